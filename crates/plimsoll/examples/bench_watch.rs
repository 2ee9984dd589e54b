//! Cost of watching a run, on the wall and on the processors: `cargo xtask bench watch [CONFIG.toml] [--seconds S]`.
//!
//! It trains the built-in run, or that of a configuration, and turns the ledger, the record with its curves, and a monitor
//! that samples every second off and on by chance, for blocks of some steps. A third of the blocks is a control: not watched, as
//! another third. The time of a block is compared with what steps of its shapes take on average. It prints by how much
//! blocks that are watched take longer, on the wall and on the processors, and the same of the control, which would be 0 without noise.

use std::collections::HashMap;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use plimsoll_config::ConfigArgs;
use plimsoll_core::{BatchShape, CountingAllocator, StepEvent, timing};
use plimsoll_monitor::sample::{MachineSource, Monitor, Sample, SampleSource, Sampler};
use plimsoll_recipes::load;
use plimsoll_recipes::reporter::Silent;
use plimsoll_recipes::training::{RunDisplay, Totals, Trial, TrialOptions};
use plimsoll_train::Event;

#[global_allocator]
static MEMORY: CountingAllocator = CountingAllocator::new();

/// Steps that warm up.
const WARM: u64 = 16;
/// Seconds of a measurement.
const SECONDS: f64 = 300.0;
/// Steps of a block. The first is not counted: the record of the step before it is written in its time.
const BLOCK: usize = 8;
/// Interval of the samples, as in `monitor` and in a run on a GPU.
const INTERVAL: Duration = Duration::from_secs(1);
/// Ticks of a second in `/proc/self/stat`.
const TICKS: f64 = 100.0;
/// Share of the blocks that is left out at each end: another program ran, or the machine paused.
const TRIMMED: f64 = 0.1;
/// Drawn samples of blocks from which an interval is taken.
const RESAMPLES: usize = 2_000;

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

/// What a block does. Blocks that are not watched are of two kinds, whose difference shows the error of the measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Watched,
    Off,
    Control,
}

/// One step: its shape, and its seconds on the wall and on the processors.
type Step = (BatchShape, [f64; 2]);

/// A block: what it did, and its steps.
type Block = (Mode, Vec<Step>);

/// Turns watching off and on, and measures the steps between.
struct Turns {
    steps: u64,
    /// Seconds on the wall and on the processors at the end of the last step.
    last: [f64; 2],
    begun: Instant,
    seconds: f64,
    mode: Mode,
    /// Steps of the block that is measured.
    open: Vec<Step>,
    blocks: Arc<Mutex<Vec<Block>>>,
    random: Random,
    ends: Arc<AtomicBool>,
}

/// Random numbers that are the same in each measurement (xorshift).
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % end
    }
}

/// Reads the seconds that this process ran.
fn cpu_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let rest = text.rsplit_once(')').map_or("", |(_, rest)| rest);
    rest.split_whitespace().skip(11).take(2).filter_map(|ticks| ticks.parse::<f64>().ok()).sum::<f64>() / TICKS
}

impl RunDisplay for Turns {
    fn show(&mut self, event: &Event, _: &Totals) {
        let Event::Step(StepEvent { shape: Some(shape), .. }) = event else { return };
        self.steps += 1;
        let now = [self.begun.elapsed().as_secs_f64(), cpu_seconds()];
        let step = (*shape, [now[0] - self.last[0], now[1] - self.last[1]]);
        self.last = now;
        if self.steps <= WARM {
            return;
        }
        self.open.push(step);
        if self.open.len() == BLOCK {
            let mut steps = std::mem::take(&mut self.open);
            steps.remove(0);
            self.blocks.lock().unwrap_or_else(PoisonError::into_inner).push((self.mode, steps));
            self.mode = [Mode::Watched, Mode::Off, Mode::Control][self.random.below(3)];
            timing::turn_off(self.mode != Mode::Watched);
            if now[0] > self.seconds {
                self.ends.store(true, Ordering::Relaxed);
            }
        }
    }
}

/// Returns the mean of `values` without the lowest and the highest tenth.
fn trimmed_mean(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    let cut = (values.len() as f64 * TRIMMED) as usize;
    let kept = &values[cut..values.len() - cut];
    kept.iter().sum::<f64>() / kept.len() as f64
}

/// Returns the time of each block as a multiple of what steps of its shapes take on average.
fn relative(blocks: &[Block], clock: usize) -> Vec<(Mode, f64)> {
    let mut by_shape: HashMap<BatchShape, Vec<f64>> = HashMap::new();
    for (shape, seconds) in blocks.iter().flat_map(|(_, steps)| steps) {
        by_shape.entry(*shape).or_default().push(seconds[clock]);
    }
    let usual: HashMap<BatchShape, f64> =
        by_shape.into_iter().map(|(shape, mut seconds)| (shape, trimmed_mean(&mut seconds))).collect();
    let ratio = |steps: &[Step]| {
        let taken: f64 = steps.iter().map(|(_, seconds)| seconds[clock]).sum();
        taken / steps.iter().map(|(shape, _)| usual[shape]).sum::<f64>()
    };
    blocks.iter().map(|(mode, steps)| (*mode, ratio(steps))).collect()
}

/// Formats by how much blocks of `mode` take longer than those that are `Off`, with the interval that holds it with 95 %.
fn line(name: &str, blocks: &[(Mode, f64)], mode: Mode) -> String {
    let of = |wanted: Mode| -> Vec<f64> {
        blocks.iter().filter(|(mode, _)| *mode == wanted).map(|(_, ratio)| *ratio).collect()
    };
    let (mut with, mut without) = (of(mode), of(Mode::Off));
    if with.is_empty() || without.is_empty() {
        return format!("{name}: not measured, there were too few blocks; a larger --seconds brings more");
    }
    let mut random = Random(17);
    let mut drawn = |from: &[f64]| -> f64 {
        let mut values: Vec<f64> = from.iter().map(|_| from[random.below(from.len())]).collect();
        trimmed_mean(&mut values)
    };
    let mut ratios: Vec<f64> = (0..RESAMPLES).map(|_| drawn(&with) / drawn(&without)).collect();
    ratios.sort_by(f64::total_cmp);
    let percent = |ratio: f64| (ratio - 1.0) * 100.0;
    let at = |share: f64| percent(ratios[(share * RESAMPLES as f64) as usize]);
    let middle = percent(trimmed_mean(&mut with) / trimmed_mean(&mut without));
    format!("{name}: {middle:+.2} % ({:+.2} to {:+.2} %)", at(0.025), at(0.975))
}

fn main() -> Result<ExitCode, Box<dyn std::error::Error>> {
    let mut args: Vec<String> = std::env::args().skip(1).collect();
    let seconds = match args.iter().position(|arg| arg == "--seconds") {
        Some(at) => args.drain(at..).nth(1).ok_or("--seconds needs a number")?.parse()?,
        None => SECONDS,
    };
    // Validations and checkpoints belong to no block.
    let set =
        ["training.validation_interval=1000000", "training.checkpoint_interval=1000000", "training.steps=1000000"];
    let set = set.map(String::from).to_vec();
    let config = ConfigArgs { config: args.first().map(Into::into), set, ..ConfigArgs::default() };
    let mut loaded = load(&config, std::env::vars())?;
    let folder = std::env::temp_dir().join(format!("bench_watch-{}", std::process::id()));
    loaded.config.runs_dir.clone_from(&folder);
    let (blocks, ends) = (Arc::<Mutex<Vec<Block>>>::default(), Arc::new(AtomicBool::new(false)));
    let mut turns = Turns {
        steps: 0,
        last: [0.0; 2],
        begun: Instant::now(),
        seconds,
        mode: Mode::Watched,
        open: Vec::new(),
        blocks: blocks.clone(),
        random: Random(29),
        ends: ends.clone(),
    };
    let source = || Sampler::new(Gated { source: MachineSource::open(), last: Sample::default() });
    let monitor = Monitor::start_with(INTERVAL, source, |_| {});
    let trial = Trial::run(loaded, TrialOptions::default(), (&MEMORY, &Silent), &ends, &mut turns);
    timing::turn_off(false);
    drop((trial.map_err(|failure| format!("{:?}", failure.report()))?, monitor));
    let _ = std::fs::remove_dir_all(folder);
    let blocks = blocks.lock().unwrap_or_else(PoisonError::into_inner);
    let steps: Vec<f64> = blocks.iter().flat_map(|(_, steps)| steps).map(|(_, seconds)| seconds[0]).collect();
    let mean = steps.iter().sum::<f64>() / steps.len() as f64;
    println!("{} blocks of {} steps, {:.0} ms a step", blocks.len(), BLOCK - 1, mean * 1e3);
    for (clock, name) in ["wall time", "processor time"].into_iter().enumerate() {
        let blocks = relative(&blocks, clock);
        println!("{}", line(name, &blocks, Mode::Watched));
        println!("{}", line("  not watched, twice", &blocks, Mode::Control));
    }
    Ok(ExitCode::SUCCESS)
}
