//! Tests of the books: a random sequence against a simple model, and single rules.

use std::collections::{BTreeMap, BTreeSet};

use super::*;

const MIB: u64 = 1 << 20;
const GRAIN: u64 = 2 * MIB;

fn books(lines: &str) -> Books {
    let scenario: Scenario = format!("gpu A\nmemory 256MiB\ncontext 10MiB\n{lines}").parse().unwrap();
    Books::new(0, &scenario.gpus[0], &scenario)
}

/// Random numbers that are the same in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

/// What must hold of the books, computed from the live allocations alone.
fn check(books: &Books, live: &BTreeMap<u64, (u64, bool)>) {
    let mut end = 0;
    let (mut grains, mut pool, mut asked) = (BTreeSet::new(), 0, 0);
    for (address, (size, pooled)) in live {
        assert!(*address >= end && address.is_multiple_of(SLOT), "allocations lie apart");
        end = address + size;
        asked += size;
        if *pooled {
            pool += round_up(*size, if *size > MIB { GRAIN } else { SLOT });
        } else {
            grains.extend(address / GRAIN..=(end - 1) / GRAIN);
        }
        for inside in [*address, end - 1] {
            assert_eq!(books.block_at(inside).map(|(start, _)| start), Some(*address));
        }
        assert!(books.block_at(end).is_none_or(|(start, _)| start == end));
    }
    assert_eq!((books.tally.asked, books.n_live()), (asked, live.len()));
    assert_eq!(books.tally.granted, grains.len() as u64 * GRAIN, "a grain is held while anything is in it");
    assert_eq!(books.tally.pool_used, pool);
    assert!(books.tally.pool_reserved >= pool && books.tally.pool_reserved.is_multiple_of(32 * MIB));
    assert!(books.held() <= books.capacity());
}

/// Sizes of all magnitudes.
fn size(random: &mut Random) -> u64 {
    let magnitude = random.below(29);
    1 + random.below(1 << magnitude)
}

/// Allocates, and checks that a refusal means that the memory does not fit.
fn allocate(books: &mut Books, live: &mut BTreeMap<u64, (u64, bool)>, size: u64, pooled: bool) {
    let free = books.free();
    let answer = if pooled { books.allocate_from_pool(size) } else { books.allocate(size) };
    match answer {
        Ok((address, change)) => {
            assert_eq!(live.insert(address, (size, pooled)), None);
            assert_eq!((change.asked, free - books.free()), (size, change.granted));
        }
        Err(code) => {
            let room = if pooled { size } else { round_up(size, GRAIN) };
            let reserve = books.tally.pool_reserved - books.tally.pool_used;
            assert_eq!((code, books.free()), (OUT_OF_MEMORY, free));
            assert!(room > if pooled { (free + reserve).saturating_sub(32 * MIB + GRAIN) } else { free });
        }
    }
}

#[test]
fn books_equal_a_simple_model_over_random_sequences() {
    for seed in 0..20 {
        let (mut books, mut random, mut live) = (books("others 20MiB"), Random(seed), BTreeMap::new());
        books.open_context().unwrap();
        let (mut peak, mut refused) = (0, 0);
        for _ in 0..600 {
            let n_live = live.len() as u64;
            match random.below(10) {
                0..=3 if n_live > 0 => {
                    let place = random.below(n_live) as usize;
                    let (address, (size, _)) = live.iter().nth(place).map(|(key, value)| (*key, *value)).unwrap();
                    live.remove(&address);
                    assert_eq!(books.release(address).unwrap().0, size);
                    assert_eq!(books.release(address), Err(INVALID_VALUE), "a second time");
                }
                4 => books.trim_pool(),
                choice => allocate(&mut books, &mut live, size(&mut random), choice > 7),
            }
            refused = refused.max(books.tally.n_refused);
            peak = peak.max(books.tally.asked);
            check(&books, &live);
        }
        assert!(refused > 0, "the GPU must fill up");
        assert_eq!(books.tally.peak_asked, peak);
        assert_eq!(books.close_context().len(), live.len());
        assert_eq!((books.own(), books.free()), (0, 236 * MIB));
        assert_eq!(books.tally.n_allocations, books.tally.n_frees);
        let whole = |addresses: &mut Addresses| addresses.take(1 << 39).is_some();
        assert!(whole(&mut books.addresses) && whole(&mut books.pool_addresses), "every address is free");
    }
}

#[test]
fn memory_is_refused_at_the_line() {
    let mut books = books("others 46MiB");
    books.open_context().unwrap();
    assert_eq!(books.free(), 200 * MIB);
    assert_eq!(books.allocate(200 * MIB + 1), Err(OUT_OF_MEMORY));
    let (all, _) = books.allocate(200 * MIB).unwrap();
    assert_eq!((books.allocate(1), books.allocate_from_pool(1)), (Err(OUT_OF_MEMORY), Err(OUT_OF_MEMORY)));
    assert_eq!((books.load_code(1, 0), books.tally.n_refused), (Err(OUT_OF_MEMORY), 3));
    books.release(all).unwrap();
    assert_eq!((books.free(), books.tally.peak_held, books.tally.peak_own), (200 * MIB, 256 * MIB, 210 * MIB));
    books.reset_peaks();
    assert_eq!((books.tally.peak_held, books.tally.peak_asked), (56 * MIB, 0));
    assert_eq!(books.allocate(0), Err(INVALID_VALUE));
}

#[test]
fn the_pool_holds_its_grains_until_the_gpu_is_waited_for() {
    let mut books = books("");
    let (first, _) = books.allocate_from_pool(40 * MIB).unwrap();
    assert_eq!((books.own(), books.tally.peak_pool), (64 * MIB, 64 * MIB));
    books.allocate_from_pool(1000).unwrap();
    assert_eq!(books.own(), 64 * MIB, "it fits into the reserve");
    books.release(first).unwrap();
    assert_eq!(books.own(), 64 * MIB);
    books.trim_pool();
    assert_eq!(books.own(), 32 * MIB);
    books.set_pool_keep(100 * MIB);
    let (second, _) = books.allocate_from_pool(150 * MIB).unwrap();
    books.release(second).unwrap();
    books.trim_pool();
    assert_eq!((books.own(), books.pool_keep()), (128 * MIB, 100 * MIB));
    books.trim_pool_to(0);
    assert_eq!(books.own(), 32 * MIB);
}

#[test]
fn other_processes_come_and_go_at_counted_allocations() {
    let mut books = books("others-at 3 100MiB\nothers-at 4 5GiB\nothers-at 5 0");
    let free = |books: &mut Books| {
        books.allocate(MIB / 2).ok();
        books.free() / MIB
    };
    assert_eq!([(); 6].map(|()| free(&mut books)), [254, 254, 154, 0, 252, 252]);
    assert_eq!(books.tally.n_refused, 0, "small allocations share grains");
    assert_eq!(books.tally.peak_held, 256 * MIB);
}

#[test]
fn code_takes_whole_grains_and_stacks_the_largest() {
    let mut books = books("");
    books.load_code(1000, 0).unwrap();
    books.load_code(GRAIN, 3 * MIB).unwrap();
    assert_eq!(books.own(), 2 * GRAIN + 4 * MIB);
    books.load_code(0, MIB).unwrap();
    books.unload_code(GRAIN);
    assert_eq!(books.own(), GRAIN + 4 * MIB);
}
