//! How long reading takes, and where the time goes.

use std::hint::black_box;
use std::time::Instant;

use xxhash_rust::xxh3::xxh3_64;

use super::*;

const RECORDS: u64 = 500;

/// `cargo test -p plimsoll-data store -- --ignored --nocapture`: the numbers that decided between mapping and copying,
/// and for checking sums at every reading.
#[test]
#[ignore = "it measures and tells, and checks nothing"]
fn reading_mapped_and_copied() {
    // Ten seconds of speech: a thousand frames of eighty channels.
    let speech: Vec<f32> = (0..80_000).map(|n| (n as f32 * 0.37).sin() * 8.0 - 4.0).collect();
    let (log_mel, audio) = (crate::LogMel::new(&crate::LogMelConfig::default()).unwrap(), vec![0.1; 160_000]);
    each("computing", |_| drop(black_box(log_mel.extract(&audio))));
    for numbers in [StoreNumbers::F16, StoreNumbers::F32] {
        let folder = TempDir::new().unwrap();
        let store = Store::open(folder.path(), &config(1 << 30, numbers)).unwrap();
        each(&format!("{numbers:?} put"), |n| store.put(key(n), &speech));
        drop(store);
        let start = Instant::now();
        let store = open(&folder);
        println!("{numbers:?} open {:.1} us a record", 1e6 * start.elapsed().as_secs_f64() / RECORDS as f64);
        let places: Vec<Place> = (0..RECORDS).map(|n| store.index.read().unwrap()[&key(n)].clone()).collect();
        let place = |n: u64| (&places[n as usize].segment, places[n as usize].offset, places[n as usize].size);
        for pass in ["first", "second", "third"] {
            each(&format!("{numbers:?} {pass} mapped"), |n| {
                let (segment, offset, size) = place(n);
                black_box(record::open(segment.mapped(offset, size).unwrap(), key(n)).unwrap());
            });
            each(&format!("{numbers:?} {pass} copied"), |n| {
                let (segment, offset, size) = place(n);
                black_box(record::open(&segment.copied(offset, size).unwrap(), key(n)).unwrap());
            });
        }
        each(&format!("{numbers:?} sum alone"), |n| {
            let (segment, offset, size) = place(n);
            black_box(xxh3_64(segment.mapped(offset, size).unwrap()));
        });
        each(&format!("{numbers:?} length alone"), |n| {
            black_box(places[n as usize].segment.file.metadata().unwrap().len());
        });
        each(&format!("{numbers:?} get"), |n| drop(black_box(store.get(key(n)))));
    }
}

/// The median: the machine may be doing other things.
fn each(what: &str, work: impl Fn(u64)) {
    let timed = |n| {
        let start = Instant::now();
        work(n);
        start.elapsed()
    };
    let mut times: Vec<Duration> = (0..RECORDS).map(timed).collect();
    times.sort_unstable();
    println!("{what}: {:.1} us", 1e6 * times[times.len() / 2].as_secs_f64());
}
