//! Sums an array over the ranks of `mpirun`, or over two threads without it.
//!
//! `cargo run -p plimsoll-mpi --features mpi --example all_reduce`, or with `mpirun -n 4` before the built program.

use std::error::Error;
use std::thread;

use plimsoll_core::Collective;
use plimsoll_mpi::{Launch, Limits, LocalTransport, MessageReplica, Transport, require_equal};

fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    match Launch::detect()? {
        Some(launch) => over_mpi(&launch),
        None => over_threads(),
    }
}

/// Runs as one rank of a launcher.
#[cfg(feature = "mpi")]
fn over_mpi(_launch: &Launch) -> Result<(), Box<dyn Error + Send + Sync>> {
    let world = plimsoll_mpi::MpiWorld::initialize()?;
    let place = world.place().clone();
    if place.rank == 0 {
        println!("{}: {} ranks on {} nodes", world.library_version(), place.ranks, place.nodes);
    }
    work(&world.into_replica(Limits::default())?, &format!("{}, local rank {}", place.machine, place.local_rank))
}

#[cfg(not(feature = "mpi"))]
fn over_mpi(launch: &Launch) -> Result<(), Box<dyn Error + Send + Sync>> {
    Err(format!("{} started this, but it was built without the feature `mpi`", launch.launcher.name()).into())
}

fn over_threads() -> Result<(), Box<dyn Error + Send + Sync>> {
    let run = |transport| work(&MessageReplica::new(transport, Limits::default())?, "a thread");
    let ranks: Vec<_> = LocalTransport::for_ranks(2).into_iter().map(|rank| thread::spawn(move || run(rank))).collect();
    ranks.into_iter().try_for_each(|rank| rank.join().expect("a rank does not panic"))
}

fn work<T: Transport>(replica: &MessageReplica<T>, place: &str) -> Result<(), Box<dyn Error + Send + Sync>> {
    require_equal(replica, "the version", env!("CARGO_PKG_VERSION").as_bytes())?;
    let mut gradient: Vec<f32> =
        (0..1_000_000).map(|index| (index % 1000) as f32 * 0.1 + replica.rank() as f32).collect();
    replica.sum_f32(&mut gradient)?;
    println!("rank {} of {} ({place}): {:?}", replica.rank(), replica.ranks(), &gradient[..3]);
    Ok(())
}
