//! A short measurement of latency and bandwidth, over any collective.

use std::hint;
use std::time::{Duration, Instant};

use plimsoll_core::{Collective, CollectiveError};

use super::cluster::Link;

/// Sizes of a measurement. The default takes a second or so on one machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkTest {
    /// Times that each sum is repeated; the median counts.
    pub rounds: usize,
    /// Numbers of the large sum.
    pub numbers: usize,
}

impl Default for LinkTest {
    fn default() -> Self {
        Self { rounds: 15, numbers: 4 << 20 }
    }
}

/// Measures the link between the ranks of `collective` by sums of f32 with `sum`: small ones for the latency, and large
/// ones for the bandwidth. The ranks stand on `nodes` nodes. All ranks get the numbers of rank 0. With one rank it returns `None`.
///
/// The bandwidth is the one that the model of [`all_reduce_seconds`](super::all_reduce_seconds) needs to predict the large
/// sum, so it contains the adding. It is that within a node if all ranks stand on one, and else that between nodes.
///
/// # Errors
/// If a sum fails.
pub fn measure_link(
    collective: &dyn Collective,
    nodes: usize,
    test: &LinkTest,
    sum: &mut dyn FnMut(&mut [f32]) -> Result<(), CollectiveError>,
) -> Result<Option<Link>, CollectiveError> {
    let ranks = collective.ranks();
    if ranks == 1 {
        return Ok(None);
    }
    let small = median(collective, test.rounds, ranks, sum)?.as_secs_f64();
    let large = median(collective, test.rounds, test.numbers.max(ranks), sum)?.as_secs_f64();
    let bytes = test.numbers.max(ranks) as f64 * 4.0;
    // The steps of a ring of ranks, or of nodes. Those of a small sum are hardly more than latency.
    let places = if nodes > 1 { nodes } else { ranks };
    let steps = 2.0 * (places - 1) as f64;
    let numbers = [small / steps, steps * bytes / places as f64 / (large - small).max(large / 100.0)];
    let own = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
    let all = collective.broadcast(0, own)?;
    let number = |index: usize| {
        let bytes = all.get(index * 8..index * 8 + 8).and_then(|bytes| bytes.try_into().ok());
        bytes.map(f64::from_le_bytes).ok_or_else(|| CollectiveError::gone(0))
    };
    Ok(Some(Link { latency_seconds: number(0)?, message_seconds: 0.0, bytes_per_second: number(1)? }))
}

/// Finds how many ranks of a node compute at full speed at the same time: all of them, unless they share cores or parts of
/// them. Rank 0 computes alone, and then all compute together, by turns. All `local_ranks` ranks of a node share its cores. It
/// takes some tenths of a second; with one rank it returns `None`.
///
/// # Errors
/// If another rank is gone.
pub fn measure_full_speed(
    collective: &dyn Collective,
    local_ranks: usize,
    rounds: usize,
) -> Result<Option<f64>, CollectiveError> {
    if collective.ranks() == 1 {
        return Ok(None);
    }
    /// More numbers than the caches of a core hold.
    const NUMBERS: usize = 2 << 20;
    let mut numbers = vec![1.0_f32; NUMBERS];
    let (mut alone, mut together) = (Vec::new(), Vec::new());
    for _ in 0..rounds.max(1) {
        collective.agree(true)?;
        if collective.rank() == 0 {
            alone.push(compute(&mut numbers));
        }
        collective.agree(true)?;
        together.push(compute(&mut numbers));
    }
    let middle = |mut seconds: Vec<f64>| {
        seconds.sort_by(f64::total_cmp);
        seconds.get(seconds.len() / 2).copied().unwrap_or(1.0)
    };
    let local = local_ranks.max(1) as f64;
    let own = (local * middle(alone) / middle(together)).clamp(1.0, local);
    let found = collective.broadcast(0, own.to_le_bytes().to_vec())?;
    Ok(found[..].try_into().ok().map(f64::from_le_bytes))
}

/// Computes for some milliseconds what training computes most: products of matrices that stay in the nearest cache, and passes
/// over `numbers`, which do not. Returns how long it took.
fn compute(numbers: &mut [f32]) -> f64 {
    const SIDE: usize = 48;
    const PASSES: usize = 2;
    let (left, right) = ([0.5_f32; SIDE * SIDE], [0.25_f32; SIDE * SIDE]);
    let mut product = [0.0_f32; SIDE * SIDE];
    let start = Instant::now();
    for _ in 0..PASSES {
        numbers.iter_mut().for_each(|number| *number = 0.5 * *number + 1.0);
        hint::black_box(&mut *numbers);
    }
    for _ in 0..200 {
        let (left, right) = (hint::black_box(&left), hint::black_box(&right));
        for (row, sums) in product.chunks_exact_mut(SIDE).enumerate() {
            for (value, row) in left[row * SIDE..][..SIDE].iter().zip(right.chunks_exact(SIDE)) {
                sums.iter_mut().zip(row).for_each(|(sum, right)| *sum += value * right);
            }
        }
        hint::black_box(&mut product);
    }
    start.elapsed().as_secs_f64()
}

/// Returns the median time of a sum of `numbers` numbers.
fn median(
    collective: &dyn Collective,
    rounds: usize,
    numbers: usize,
    sum: &mut dyn FnMut(&mut [f32]) -> Result<(), CollectiveError>,
) -> Result<Duration, CollectiveError> {
    let mut values = vec![0.0; numbers];
    let mut times = Vec::with_capacity(rounds.max(1));
    // The first sum makes the buffers.
    sum(&mut values)?;
    for _ in 0..rounds.max(1) {
        collective.agree(true)?;
        let start = Instant::now();
        sum(&mut values)?;
        times.push(start.elapsed());
    }
    times.sort_unstable();
    Ok(times[times.len() / 2])
}

#[cfg(test)]
mod tests {
    use plimsoll_core::SingleReplica;

    use super::*;
    use crate::limits::Limits;
    use crate::local::LocalTransport;
    use crate::replica::MessageReplica;

    #[test]
    fn all_ranks_get_the_same_numbers() {
        let test = LinkTest { rounds: 3, numbers: 10_000 };
        let measure = move |transport| {
            let replica = MessageReplica::new(transport, Limits::default()).unwrap();
            measure_link(&replica, 1, &test, &mut |values| replica.sum_f32(values)).unwrap().unwrap()
        };
        let mut transports = LocalTransport::for_ranks(2).into_iter();
        let (first, second) = (transports.next().unwrap(), transports.next().unwrap());
        let other = std::thread::spawn(move || measure(second));
        let link = measure(first);
        assert_eq!(link, other.join().unwrap());
        let speed = |transport| {
            let replica = MessageReplica::new(transport, Limits::default()).unwrap();
            measure_full_speed(&replica, 2, 3).unwrap().unwrap()
        };
        let mut transports = LocalTransport::for_ranks(2).into_iter();
        let (first, second) = (transports.next().unwrap(), transports.next().unwrap());
        let other = std::thread::spawn(move || speed(second));
        let found = speed(first);
        assert_eq!(found, other.join().unwrap());
        assert_eq!(measure_full_speed(&SingleReplica, 1, 3), Ok(None));
        assert!(link.bytes_per_second > 0.0 && link.latency_seconds > 0.0);
        assert_eq!(measure_link(&SingleReplica, 1, &test, &mut |_| Ok(())), Ok(None));
    }
}
