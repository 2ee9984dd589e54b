//! A network of simulated ranks in one thread, with delays, ranks that stop, and a clock of its own.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use plimsoll_core::CollectiveError;

use crate::engine::{Engine, Started};
use crate::limits::Limits;
use crate::operation::Operation;
use crate::packet::Packet;
use crate::pool::Pool;
use crate::post::Post;
use crate::transport::Transport;

/// Pseudo-random numbers that are the same everywhere.
#[derive(Clone)]
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn next(&mut self) -> u64 {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    pub(super) fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    /// A number of any size, as gradients have them.
    pub(super) fn float(&mut self) -> f64 {
        let size = 10.0_f64.powi(self.below(12) as i32 - 6);
        (self.below(2_000_001) as f64 / 1e6 - 1.0) * size
    }
}

/// What is under way.
struct Network {
    /// By receiver and sender: packets with the times at which they arrive.
    lines: Vec<Vec<VecDeque<(Duration, Packet)>>>,
    /// By rank: what it has given to sums of the library, and how many of them it has taken.
    given: Vec<(Vec<Vec<f32>>, usize)>,
    now: Duration,
    delay_max: Duration,
    random: Random,
}

/// One end of the network.
pub(super) struct SimTransport {
    rank: usize,
    network: Arc<Mutex<Network>>,
}

impl Transport for SimTransport {
    fn rank(&self) -> usize {
        self.rank
    }

    fn ranks(&self) -> usize {
        self.network.lock().unwrap().lines.len()
    }

    fn send(&mut self, to: usize, packet: Packet, _pool: &mut Pool) -> Result<(), CollectiveError> {
        let mut network = self.network.lock().unwrap();
        let delay_max = network.delay_max.as_micros() as usize;
        let at = network.now + Duration::from_micros(network.random.below(delay_max + 1) as u64);
        network.lines[to][self.rank].push_back((at, packet));
        Ok(())
    }

    fn receive(&mut self, _pool: &mut Pool) -> Result<Option<(usize, Packet)>, CollectiveError> {
        let mut network = self.network.lock().unwrap();
        let now = network.now;
        let lines = &mut network.lines[self.rank];
        let ready = lines.iter().position(|line| line.front().is_some_and(|&(at, _)| at <= now));
        Ok(ready.and_then(|from| lines[from].pop_front().map(|(_, packet)| (from, packet))))
    }

    fn outstanding(&self) -> usize {
        0
    }

    fn has_library(&self) -> bool {
        true
    }

    fn begin_sum(&mut self, values: &[f32]) -> Result<(), CollectiveError> {
        self.network.lock().unwrap().given[self.rank].0.push(values.to_vec());
        Ok(())
    }

    /// Adds from the last rank to the first.
    fn take_sum(&mut self, out: &mut [f32]) -> Result<Option<usize>, CollectiveError> {
        let mut network = self.network.lock().unwrap();
        let index = network.given[self.rank].1;
        let parts: Option<Vec<Vec<f32>>> =
            network.given.iter().rev().map(|(given, _)| given.get(index).cloned()).collect();
        network.given[self.rank].1 += usize::from(parts.is_some());
        let add = |sums: Vec<f32>, part: Vec<f32>| sums.into_iter().zip(part).map(|(sum, value)| sum + value).collect();
        let Some(sums) = parts.and_then(|parts| parts.into_iter().reduce(add)) else { return Ok(None) };
        out[..sums.len()].copy_from_slice(&sums);
        Ok(Some(sums.len()))
    }
}

/// Ranks with their network.
pub(super) struct Ranks {
    pub(super) engines: Vec<Engine<SimTransport>>,
    /// Ranks that do nothing at all: dead, or stopped.
    pub(super) stopped: Vec<bool>,
    network: Arc<Mutex<Network>>,
    random: Random,
}

impl Ranks {
    pub(super) fn new(count: usize, limits: Limits, delay_max: Duration, seed: u64) -> Self {
        let mut random = Random(seed);
        let line = |_| (0..count).map(|_| VecDeque::new()).collect();
        let lines = (0..count).map(line).collect();
        let inner = Network {
            lines,
            given: vec![Default::default(); count],
            now: Duration::ZERO,
            delay_max,
            random: Random(random.next()),
        };
        let network = Arc::new(Mutex::new(inner));
        let engine = |rank| Engine::new(SimTransport { rank, network: network.clone() }, limits, Duration::ZERO);
        let engines = (0..count).map(engine).collect();
        Self { engines, stopped: vec![false; count], network, random }
    }

    pub(super) fn now(&self) -> Duration {
        self.network.lock().unwrap().now
    }

    /// Lets `step` pass, and then does `work` for each rank that is not stopped, in any order.
    fn round(&mut self, step: Duration, mut work: impl FnMut(usize, &mut Engine<SimTransport>, Duration)) {
        self.network.lock().unwrap().now += step;
        let now = self.now();
        let mut order: Vec<usize> = (0..self.engines.len()).collect();
        for index in (1..order.len()).rev() {
            order.swap(index, self.random.below(index + 1));
        }
        for rank in order.into_iter().filter(|&rank| !self.stopped[rank]) {
            work(rank, &mut self.engines[rank], now);
        }
    }

    /// Lets `time` pass in which no operation runs.
    pub(super) fn pass(&mut self, time: Duration, step: Duration) {
        let end = self.now() + time;
        while self.now() < end {
            self.round(step, |_, engine, now| engine.tick(now));
        }
    }

    /// Runs one operation on each rank for which `make` gives one; the others only keep their hearts beating. Returns
    /// the ends of all, when each rank that is not stopped has come to one.
    pub(super) fn run<O: Operation>(
        &mut self,
        step: Duration,
        mut make: impl FnMut(usize, &Post<SimTransport>) -> Option<O>,
    ) -> Vec<Option<Result<O, CollectiveError>>> {
        let count = self.engines.len();
        let mut running: Vec<Option<(O, Started)>> = (0..count).map(|_| None).collect();
        let mut ends: Vec<Option<Result<O, CollectiveError>>> = (0..count).map(|_| None).collect();
        let now = self.now();
        for rank in (0..count).filter(|&rank| !self.stopped[rank]) {
            let Some(operation) = make(rank, self.engines[rank].post()) else { continue };
            match self.engines[rank].start(now) {
                Ok(started) => running[rank] = Some((operation, started)),
                Err(error) => ends[rank] = Some(Err(error)),
            }
        }
        let stopped = self.stopped.clone();
        let limit = self.now() + Duration::from_secs(100_000);
        while running.iter().zip(&stopped).any(|(running, stopped)| running.is_some() && !stopped) {
            assert!(self.now() < limit, "an operation never ends");
            self.round(step, |rank, engine, now| {
                let Some((operation, started)) = &mut running[rank] else { return engine.tick(now) };
                if let Err(reason) = operation.work() {
                    let error = CollectiveError::failed(rank, &reason);
                    engine.report(error.clone());
                    (running[rank], ends[rank]) = (None, Some(Err(error)));
                } else if let Some(end) = engine.advance(operation, started, now) {
                    let (operation, _) = running[rank].take().unwrap();
                    ends[rank] = Some(end.map(|()| operation));
                }
            });
        }
        ends
    }
}
