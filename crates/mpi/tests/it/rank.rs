//! What one rank does. It is a test, so that the same program can be started as a rank; alone it does nothing.

use std::process::Command;
use std::time::Duration;

use plimsoll_core::Collective;
use plimsoll_mpi::scale::{LinkTest, measure_link};
use plimsoll_mpi::{Launch, Limits, MpiReplica, MpiWorld, require_equal};

/// Environment variable with the name of the case.
pub(crate) const CASE: &str = "PLIMSOLL_MPI_CASE";
/// Silence after which a rank counts as dead. A loaded machine must not reach it.
const SILENCE: Duration = Duration::from_secs(4);

#[test]
fn program() {
    let Ok(case) = std::env::var(CASE) else { return };
    let launch = Launch::detect().unwrap().expect("mpirun sets its variables");
    let world = MpiWorld::initialize().unwrap();
    let place = world.place().clone();
    assert_eq!((Some(place.ranks), place.rank), (launch.ranks, launch.rank));
    assert_eq!(Some(place.local_rank), launch.local_rank);
    assert_eq!(place.local_ranks * place.nodes, place.ranks);
    assert_eq!(place.node * place.local_ranks + place.local_rank, place.rank);
    assert!(world.library_version().contains("MPI"));
    // Groups of one and three ranks of four: as two nodes that are not alike.
    let world = if case == "groups" { world.with_group(usize::from(place.rank > 0)).unwrap() } else { world };
    let replica = world.into_replica(Limits::default().with_silence(SILENCE)).unwrap();
    let last = place.ranks - 1;
    let is_last = place.rank == last;
    match case.as_str() {
        "operations" => operations(&replica),
        "groups" => {
            sums_by_the_library(&replica);
            println!("[fine]");
        }
        "unequal" => report(&require_equal(&replica, "the corpus", if is_last { b"B" } else { b"A" })),
        "fails" if is_last => replica.fail("out of memory"),
        "leaves" if is_last => {}
        "killed" if is_last => signal("KILL"),
        "stopped" if is_last => signal("STOP"),
        _ => report(&replica.gather(vec![1])),
    }
}

/// Sends a signal to this process.
fn signal(name: &str) {
    let own = std::process::id().to_string();
    Command::new("kill").args([&format!("-{name}"), &own]).status().unwrap();
}

fn report<T, E: std::fmt::Display>(result: &Result<T, E>) {
    match result {
        Ok(_) => println!("[fine]"),
        Err(error) => println!("[{error}]"),
    }
}

/// Value of a rank, of a size that makes the order of a sum visible.
fn value(rank: usize, index: usize) -> f32 {
    let mixed = (rank * 7919 + index * 104_729) % 10_007;
    (mixed as f32 - 5000.0) * 10_f32.powi((mixed % 9) as i32 - 4)
}

fn sums_by_the_library(replica: &MpiReplica) {
    let (rank, ranks) = (replica.rank(), replica.ranks());
    for len in [0, 1, 1000, 5_234_567] {
        let mut values: Vec<f32> = (0..len).map(|index| value(rank, index)).collect();
        let mut read = vec![f32::NAN; len];
        let mut next = values.clone().into_iter();
        replica.sum_f32_by_library(&mut values).unwrap();
        let mut fill = |out: &mut [f32]| {
            out.iter_mut().zip(&mut next).for_each(|(out, value)| *out = value);
            Ok(())
        };
        replica.sum_f32_while_read(&mut read, &mut fill).unwrap();
        assert!(
            read.iter().zip(&values).all(|(read, sum)| read.to_bits() == sum.to_bits()),
            "reading changes the sums"
        );
        for (index, &sum) in values.iter().enumerate() {
            let all = (0..ranks).map(|rank| f64::from(value(rank, index)));
            let (expected, size) = all.fold((0.0, 0.0), |(sum, size), value| (sum + value, size + value.abs()));
            assert!((f64::from(sum) - expected).abs() <= 1e-6 * size, "{index} of {len}: {sum} {expected}");
        }
        let bytes = values.iter().flat_map(|sum| sum.to_le_bytes()).collect();
        assert!(replica.gather(bytes).unwrap().windows(2).all(|pair| pair[0] == pair[1]), "the ranks differ");
    }
}

fn operations(replica: &MpiReplica) {
    let (rank, ranks) = (replica.rank(), replica.ranks());
    for len in [0, 1, 3, 1000, 300_000, 1_234_567] {
        let mut values: Vec<f32> = (0..len).map(|index| value(rank, index)).collect();
        replica.sum_f32(&mut values).unwrap();
        for (index, sum) in values.iter().enumerate() {
            let expected = (1..ranks).fold(value(0, index), |sum, rank| sum + value(rank, index));
            assert_eq!(sum.to_bits(), expected.to_bits(), "{index} of {len}");
        }
    }
    sums_by_the_library(replica);
    // More than a chunk from one rank, nothing from another.
    let len = |rank: usize| if rank == 1 { 70 << 20 } else { rank };
    let all = replica.gather(vec![rank as u8; len(rank)]).unwrap();
    for (from, bytes) in all.iter().enumerate() {
        assert!(bytes.len() == len(from) && bytes.iter().all(|&byte| byte == from as u8), "from {from}");
    }
    let mut sums = vec![0.0; 10];
    replica.plain_all_reduce(&mut [1.0; 10], &mut sums).unwrap();
    assert_eq!(sums, vec![ranks as f32; 10]);
    require_equal(replica, "the version", b"1").unwrap();
    let test = LinkTest { rounds: 3, numbers: 100_000 };
    let link = measure_link(replica, 1, &test, &mut |values| replica.sum_f32(values)).unwrap().unwrap();
    assert!(link.bytes_per_second > 1e5, "{link:?}");
    println!("[fine]");
}
