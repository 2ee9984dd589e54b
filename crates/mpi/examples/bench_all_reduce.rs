//! Sums 25M f32 over the ranks of mpirun, by turns with plain MPI_Allreduce; needs the feature `mpi`.
//!
//! `cargo build --release -p plimsoll-mpi --features mpi --example bench_all_reduce`, then
//! `mpirun -n 2 target/release/examples/bench_all_reduce [MILLIONS [ROUNDS]]`.

#[cfg(not(feature = "mpi"))]
fn main() {
    println!("build this with `--features mpi`, and start it with mpirun");
}

#[cfg(feature = "mpi")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    use plimsoll_core::Collective;
    use plimsoll_mpi::scale::{Cluster, LinkTest, all_reduce_seconds, measure_link};
    use plimsoll_mpi::{Limits, MpiWorld};

    let number = |index: usize, default: usize| std::env::args().nth(index).map_or(Ok(default), |text| text.parse());
    let (len, rounds) = (number(1, 25)? * 1_000_000, number(2, 9)?);
    let world = MpiWorld::initialize()?;
    let (library, nodes, ranks_per_node) = (world.library_version(), world.place().nodes, world.place().local_ranks);
    let replica = world.into_replica(Limits::default())?;
    let own = vec![replica.rank() as f32 + 0.5; len];
    let (mut values, mut sums) = (own.clone(), own.clone());
    let mut times: [Vec<f64>; 5] = Default::default();
    for round in 0..=rounds {
        for (way, times) in times.iter_mut().enumerate() {
            if way < 3 {
                values.copy_from_slice(&own);
            }
            let mut rest = &own[..];
            let mut read = |out: &mut [f32]| {
                let (next, later) = rest.split_at(out.len());
                out.copy_from_slice(next);
                rest = later;
                Ok(())
            };
            replica.agree(true)?;
            let start = std::time::Instant::now();
            match way {
                0 => replica.plain_all_reduce(&mut values, &mut sums)?,
                1 => replica.sum_f32(&mut values)?,
                2 => replica.sum_f32_by_library(&mut values)?,
                3 => {
                    read(&mut values)?;
                    replica.sum_f32_by_library(&mut values)?;
                }
                _ => replica.sum_f32_while_read(&mut values, &mut read)?,
            }
            // The slowest rank counts, and the first round makes the buffers.
            let slowest = replica.gather(start.elapsed().as_secs_f64().to_le_bytes().to_vec())?;
            let seconds = slowest.iter().filter_map(|bytes| bytes[..].try_into().ok()).map(f64::from_le_bytes);
            if round > 0 {
                times.push(seconds.fold(0.0, f64::max));
            }
        }
    }
    let link = measure_link(&replica, nodes, &LinkTest::default(), &mut |values| replica.sum_f32_by_library(values))?;
    if replica.rank() == 0 {
        println!("{library}, {} ranks, {} numbers, median (best) of {rounds}:", replica.ranks(), len);
        let [plain, ordered, library, read, while_read] = times.map(|mut times| {
            times.sort_by(f64::total_cmp);
            (times[times.len() / 2], times[0])
        });
        let ways = [("MPI_Allreduce", plain), ("ordered", ordered), ("library", library)];
        for (name, time) in ways.into_iter().chain([("read, library", read), ("while read", while_read)]) {
            let (rate, best) = (100.0 * plain.0 / time.0, 100.0 * plain.1 / time.1);
            println!("{name:<14} {:7.1} ms ({:7.1} ms)  {rate:5.0} % ({best:5.0} %)", time.0 * 1e3, time.1 * 1e3);
        }
        if let Some(link) = link {
            let ranks = replica.ranks();
            let full_speed_ranks = ranks as f64;
            let cluster =
                Cluster { within: link, between: link, ranks_per_node, full_speed_ranks, node_hour_cost: None };
            let seconds = all_reduce_seconds(ranks, len as f64 * 4.0, &cluster);
            println!("{:<14} {:7.1} ms, from sums of 4M numbers", "predicted", seconds * 1e3);
        }
    }
    Ok(())
}
