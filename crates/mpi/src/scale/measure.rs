//! A short measurement of latency and bandwidth, over any collective.

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
/// ones for the bandwidth. All ranks get the numbers of rank 0. With one rank it returns `None`.
///
/// The bandwidth is the one that the model of [`all_reduce_seconds`](super::all_reduce_seconds) needs to predict the large
/// sum, so it contains the adding. It is that within a node if all ranks stand on one, and else that between nodes.
///
/// # Errors
/// If a sum fails.
pub fn measure_link(
    collective: &dyn Collective,
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
    let sent = 2.0 * bytes * (ranks - 1) as f64 / ranks as f64;
    // A small sum is two phases of hardly more than latency.
    let numbers = [small / 2.0, sent / (large - small).max(large / 100.0)];
    let own = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
    let all = collective.broadcast(0, own)?;
    let number = |index: usize| {
        let bytes = all.get(index * 8..index * 8 + 8).and_then(|bytes| bytes.try_into().ok());
        bytes.map(f64::from_le_bytes).ok_or_else(|| CollectiveError::gone(0))
    };
    Ok(Some(Link { latency_seconds: number(0)?, message_seconds: 0.0, bytes_per_second: number(1)? }))
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
    fn all_ranks_get_the_same_link() {
        let test = LinkTest { rounds: 3, numbers: 10_000 };
        let measure = move |transport| {
            let replica = MessageReplica::new(transport, Limits::default()).unwrap();
            measure_link(&replica, &test, &mut |values| replica.sum_f32(values)).unwrap().unwrap()
        };
        let mut transports = LocalTransport::for_ranks(2).into_iter();
        let (first, second) = (transports.next().unwrap(), transports.next().unwrap());
        let other = std::thread::spawn(move || measure(second));
        let link = measure(first);
        assert_eq!(link, other.join().unwrap());
        assert!(link.bytes_per_second > 0.0 && link.latency_seconds > 0.0);
        assert_eq!(measure_link(&SingleReplica, &test, &mut |_| Ok(())), Ok(None));
    }
}
