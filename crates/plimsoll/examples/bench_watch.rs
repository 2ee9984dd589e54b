//! Cost of watching a run, on the wall and on the processors: `cargo xtask bench watch [CONFIG.toml] [--rounds N]`.
//!
//! It trains the built-in run, or that of a configuration, and turns the ledger, the record with its curves, and a monitor
//! that samples every second off and on by turns, for the steps of a second each. Blocks come as on, off, off, on, so that a drift of
//! the machine cancels. It prints the ratio of the time of a frame with and without, on the wall and on the processors.

use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use plimsoll_core::{CountingAllocator, timing};
use plimsoll_monitor::sample::{MachineSource, Monitor, Sample, SampleSource, Sampler};
use plimsoll_recipes::config::{ConfigArgs, load};
use plimsoll_recipes::reporter::Silent;
use plimsoll_recipes::training::{RunDisplay, Totals, Trial, TrialOptions};
use plimsoll_train::Event;

#[global_allocator]
static MEMORY: CountingAllocator = CountingAllocator::new();

/// Steps that warm up.
const WARM: u64 = 8;
/// Rounds of four blocks.
const ROUNDS: usize = 60;
/// Shortest block: several samples of the monitor fall into a round.
const BLOCK_SECONDS: f64 = 1.0;
/// Interval of the samples, as in `monitor` and in a run on a GPU.
const INTERVAL: Duration = Duration::from_secs(1);
/// Ticks of a second in `/proc/self/stat`.
const TICKS: f64 = 100.0;

/// Source of samples that gives its last sample while the clocks are off.
struct Gated {
    source: MachineSource,
    last: Sample,
}

impl SampleSource for Gated {
    fn read(&mut self, elapsed: Duration) -> Sample {
        if !timing::is_off() {
            self.last = self.source.read(elapsed);
        }
        self.last.clone()
    }
}

/// Seconds and frames of the blocks that were watched, or were not.
#[derive(Clone, Copy, Debug, Default)]
struct Block {
    wall: f64,
    cpu: f64,
    frames: u64,
}

/// Turns watching off and on, and measures the blocks between.
struct Turns {
    /// Steps of a block; chosen after those that warm up.
    length: u64,
    steps: u64,
    begun: Instant,
    cpu: f64,
    open: Block,
    blocks: Arc<Mutex<Vec<Block>>>,
    rounds: usize,
    ends: Arc<AtomicBool>,
}

/// Returns whether the block `index` is watched: on, off, off, on.
fn is_watched(index: usize) -> bool {
    matches!(index % 4, 0 | 3)
}

/// Reads the seconds that this process ran.
fn cpu_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let rest = text.rsplit_once(')').map_or("", |(_, rest)| rest);
    rest.split_whitespace().skip(11).take(2).filter_map(|ticks| ticks.parse::<f64>().ok()).sum::<f64>() / TICKS
}

impl RunDisplay for Turns {
    fn show(&mut self, event: &Event, _: &Totals) {
        let Event::Step(step) = event else { return };
        self.steps += 1;
        self.open.frames += step.frames;
        if self.steps < WARM || !(self.steps - WARM).is_multiple_of(self.length) {
            if self.steps == 1 {
                self.begun = Instant::now();
            }
            return;
        }
        if self.steps == WARM {
            let seconds = self.begun.elapsed().as_secs_f64() / (WARM - 1) as f64;
            self.length = (BLOCK_SECONDS / seconds.max(1e-3)).ceil() as u64;
        }
        let mut blocks = self.blocks.lock().unwrap_or_else(PoisonError::into_inner);
        let cpu = cpu_seconds();
        if self.steps > WARM {
            self.open.wall = self.begun.elapsed().as_secs_f64();
            self.open.cpu = cpu - self.cpu;
            blocks.push(self.open);
        }
        (self.open, self.cpu) = (Block::default(), cpu);
        timing::turn_off(!is_watched(blocks.len()));
        if blocks.len() >= 4 * self.rounds {
            self.ends.store(true, std::sync::atomic::Ordering::Relaxed);
        }
        self.begun = Instant::now();
    }
}

/// Returns the ratios of the rounds: the time of a frame watched by that of a frame not watched.
fn ratios(blocks: &[Block], seconds: fn(&Block) -> f64) -> Vec<f64> {
    let a_frame = |blocks: &[Block], watched: bool| {
        let of =
            || blocks.iter().enumerate().filter(|(index, _)| is_watched(*index) == watched).map(|(_, block)| block);
        of().map(seconds).sum::<f64>() / of().map(|block| block.frames as f64).sum::<f64>()
    };
    let mut ratios: Vec<f64> =
        blocks.chunks_exact(4).map(|round| a_frame(round, true) / a_frame(round, false)).collect();
    ratios.sort_by(f64::total_cmp);
    ratios
}

/// Formats the median, and the interval that holds the true median with 95 % by the ranks of a sign test.
fn line(name: &str, ratios: &[f64]) -> String {
    let count = ratios.len() as f64;
    let away = (1.96 * count.sqrt() / 2.0).ceil();
    let at = |rank: f64| ratios[(rank.max(0.0) as usize).min(ratios.len() - 1)];
    let percent = |ratio: f64| (ratio - 1.0) * 100.0;
    format!(
        "{name}: {:+.2} % ({:+.2} to {:+.2} %), {} rounds",
        percent(at(count / 2.0)),
        percent(at(count / 2.0 - away)),
        percent(at(count / 2.0 + away)),
        ratios.len()
    )
}

fn main() -> Result<ExitCode, Box<dyn std::error::Error>> {
    let mut args: Vec<String> = std::env::args().skip(1).collect();
    let rounds = match args.iter().position(|arg| arg == "--rounds") {
        Some(at) => args.drain(at..).nth(1).ok_or("--rounds needs a number")?.parse()?,
        None => ROUNDS,
    };
    // Validations and checkpoints belong to no block.
    let set = ["validation", "checkpoint"].map(|what| format!("training.{what}_interval=1000000"));
    let config = ConfigArgs { config: args.first().map(Into::into), set: set.to_vec(), ..ConfigArgs::default() };
    let mut loaded = load(&config, std::env::vars())?;
    let folder = std::env::temp_dir().join(format!("bench_watch-{}", std::process::id()));
    loaded.config.runs_dir.clone_from(&folder);
    let (blocks, ends) = (Arc::<Mutex<Vec<Block>>>::default(), Arc::new(AtomicBool::new(false)));
    let begun = Instant::now();
    let mut turns = Turns {
        length: 1,
        steps: 0,
        begun,
        cpu: 0.0,
        open: Block::default(),
        blocks: blocks.clone(),
        rounds,
        ends: ends.clone(),
    };
    let source = || Sampler::new(Gated { source: MachineSource::open(), last: Sample::default() });
    let monitor = Monitor::start_with(INTERVAL, source, |_| {});
    let trial = Trial::run(loaded, TrialOptions::default(), (&MEMORY, &Silent), &ends, &mut turns);
    timing::turn_off(false);
    drop((trial.map_err(|failure| format!("{:?}", failure.report()))?, monitor));
    let _ = std::fs::remove_dir_all(folder);
    let blocks = blocks.lock().unwrap_or_else(PoisonError::into_inner);
    let mean = blocks.iter().map(|block| block.wall).sum::<f64>() / blocks.len() as f64 / turns.length as f64;
    println!("{} blocks of {} steps, {:.0} ms a step", blocks.len(), turns.length, mean * 1e3);
    println!("{}", line("wall time", &ratios(&blocks, |block| block.wall)));
    println!("{}", line("processor time", &ratios(&blocks, |block| block.cpu)));
    Ok(ExitCode::SUCCESS)
}
