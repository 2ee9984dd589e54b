//! Compares a recognizer's training step with PyTorch: `cargo xtask bench step [WIDTH BLOCKS DECODER BATCH FRAMES]`.
//!
//! `fixtures/bench_step.py` runs the PyTorch steps with the Python in `PLIMSOLL_PYTHON` (default `python3`). The steps
//! of both alternate, so that other load on the machine slows both equally. Without PyTorch only our steps are
//! measured.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Instant;

use burn::tensor::Device;
use plimsoll_core::{Bytes, Choice, CountingAllocator, Grid, HostBatch, HostSample, Key, MemoryMeter, Remat, SampleId};
use plimsoll_layers::HeadPositions;
use plimsoll_speech::asr::{Recognizer, RecognizerConfig};
use plimsoll_tape::count;
use plimsoll_train::{Governor, Schedule, Trainer, TrainerConfig};

#[global_allocator]
static MEMORY: CountingAllocator = CountingAllocator::new();

/// Number of training steps that are measured, after one warm-up step.
const STEPS: usize = 20;
const VOCABULARY: usize = 256;
const TOKENS: usize = 40;
const FEATURES: usize = 80;
const CHANNELS: usize = 32;

type Failure = Box<dyn std::error::Error>;

/// The model and the batch of a benchmark.
struct Job {
    config: RecognizerConfig,
    batch: usize,
    frames: usize,
    dropout: f64,
    threads: usize,
}

impl Job {
    fn asked() -> Self {
        let numbers: Vec<usize> = std::env::args().skip(1).filter_map(|text| text.parse().ok()).collect();
        let [width, blocks, decoder, batch, frames] = numbers.try_into().unwrap_or([256, 12, 6, 4, 800]);
        let dropout = 0.1;
        let config = RecognizerConfig {
            subsampling_channels: CHANNELS,
            positions: HeadPositions::Absolute,
            dropout,
            ..RecognizerConfig::recommended(width, blocks, decoder, VOCABULARY)
        };
        let threads = std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get);
        Self { config, batch, frames, dropout, threads }
    }

    fn batch(&self) -> HostBatch {
        let sample = |place: usize| {
            let key = Key::new(2).at(place as u64);
            let features = (0..self.frames * FEATURES).map(|i| key.at(i as u64).unit() as f32 * 2.0 - 1.0).collect();
            let tokens = (0..TOKENS).map(|i| 4 + key.with("text").at(i as u64).below(VOCABULARY as u64 - 4) as u32);
            let (id, name, tokens) = (SampleId(place as u64), place.to_string(), tokens.collect());
            HostSample { id, name, features, tokens, reference: Vec::new() }
        };
        let samples: Vec<HostSample> = (0..self.batch).map(sample).collect();
        HostBatch::collate(&samples, FEATURES, &Grid::default()).expect("whole frames")
    }

    fn trainer(&self, remat: Remat, lanes: usize) -> Trainer<Recognizer> {
        let choice = Choice { remat, ..Choice::default() };
        let config = TrainerConfig { choice, lanes, ..TrainerConfig::new(Schedule::constant(1e-3), Key::new(1)) };
        let model = self.config.init(&Device::flex().autodiff(), Key::new(3));
        Trainer::new(model, config, Governor::new(self.batch))
    }
}

/// A Python process with the same model in PyTorch.
struct Torch {
    child: Child,
    ask: ChildStdin,
    answer: BufReader<ChildStdout>,
}

impl Torch {
    fn start(job: &Job) -> Result<(Self, u64), Failure> {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/bench_step.py");
        let python = std::env::var("PLIMSOLL_PYTHON").unwrap_or_else(|_| "python3".into());
        let config = &job.config;
        let options = [
            ("--d-model", config.d_model),
            ("--layers", config.layers),
            ("--decoder-layers", config.decoder.map_or(0, |decoder| decoder.layers)),
            ("--heads", config.heads),
            ("--kernel", config.kernel),
            ("--channels", CHANNELS),
            ("--vocabulary", VOCABULARY),
            ("--batch", job.batch),
            ("--frames", job.frames),
            ("--tokens", TOKENS),
            ("--threads", job.threads),
        ];
        let mut command = Command::new(python);
        command.arg(script).args(["--positions", "absolute", "--dropout", &job.dropout.to_string()]);
        options.iter().for_each(|(name, value)| {
            command.args([*name, &value.to_string()]);
        });
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let (ask, answer) = (child.stdin.take().ok_or("no input")?, child.stdout.take().ok_or("no output")?);
        let mut torch = Self { child, ask, answer: BufReader::new(answer) };
        let ready = torch.line()?;
        let parameters = ready.strip_prefix("ready ").ok_or("no PyTorch")?.parse()?;
        Ok((torch, parameters))
    }

    fn line(&mut self) -> Result<String, Failure> {
        let mut line = String::new();
        self.answer.read_line(&mut line)?;
        Ok(line.trim().to_string())
    }

    fn ask(&mut self, what: &str) -> Result<f64, Failure> {
        writeln!(self.ask, "{what}")?;
        Ok(self.line()?.parse()?)
    }
}

impl Drop for Torch {
    fn drop(&mut self) {
        let _ = writeln!(self.ask, "quit");
        let _ = self.child.wait();
    }
}

/// One way to run Plimsoll's training step, with its measurements: seconds of each step and peak memory.
struct Ours {
    name: &'static str,
    trainer: Trainer<Recognizer>,
    seconds: Vec<f64>,
    peak: Bytes,
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

fn main() -> Result<(), Failure> {
    let job = Job::asked();
    let batch = job.batch();
    // The first two steps are not timed. The second measures the peak memory, with the optimizer's moments allocated.
    let ours = |name, remat, lanes| -> Result<Ours, Failure> {
        let before = MEMORY.current();
        let mut trainer = job.trainer(remat, lanes);
        trainer.step(&batch)?;
        MEMORY.reset_peak();
        trainer.step(&batch)?;
        Ok(Ours { name, trainer, seconds: vec![], peak: Bytes(MEMORY.peak().0 - before.0) })
    };
    let mut all = [ours("lanes", Remat::None, job.threads)?, ours("one piece", Remat::None, 1)?];
    let mut torch = match Torch::start(&job) {
        Ok((torch, parameters)) => {
            println!("PyTorch: {parameters} parameters");
            Some(torch)
        }
        Err(error) => {
            println!("no PyTorch to compare with ({error}); PLIMSOLL_PYTHON names a Python that has it");
            None
        }
    };
    println!(
        "ours: {} parameters; {} utterances of {} frames and {TOKENS} tokens, {} threads, dropout {}",
        count(&all[0].trainer.task),
        job.batch,
        job.frames,
        job.threads,
        job.dropout,
    );
    let mut theirs = Vec::new();
    for round in 0..=STEPS {
        for way in &mut all {
            let start = Instant::now();
            way.trainer.step(&batch)?;
            if round > 0 {
                way.seconds.push(start.elapsed().as_secs_f64());
            }
        }
        if let Some(torch) = &mut torch {
            let seconds = torch.ask("step")?;
            if round > 0 {
                theirs.push(seconds);
            }
        }
    }
    let reference = median(theirs.clone());
    for Ours { name, seconds, peak, .. } in all {
        let ratios = seconds.iter().zip(&theirs).map(|(a, b)| a / b).collect();
        println!("{name}: {:.3} s, {:.2}x of PyTorch, peak {peak}", median(seconds), median(ratios));
    }
    if let Some(torch) = &mut torch {
        println!("PyTorch: {reference:.3} s, resident at most {}", Bytes(torch.ask("memory")? as u64));
    }
    Ok(())
}
