//! Compares a recognizer's training step with PyTorch: `cargo xtask bench step [WIDTH BLOCKS DECODER BATCH FRAMES]`.
//!
//! `fixtures/bench_step.py` runs the PyTorch steps with the Python in `PLIMSOLL_PYTHON` (default `python3`). The steps
//! of both alternate, so that other load on the machine slows both equally. Without PyTorch only our steps are
//! measured. A build with a GPU backend measures that GPU, in fp32 (PyTorch with TF32) and bf16, against PyTorch as it is
//! and compiled; the first steps, which compile and tune kernels, are timed apart.

#[path = "bench_storm/device.rs"]
mod device;

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Instant;

use plimsoll_core::{
    Bytes, Choice, CountingAllocator, Grid, HostBatch, HostSample, Key, MemoryMeter, Precision, SampleId,
};
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

    fn trainer(&self, precision: Precision, lanes: usize) -> Trainer<Recognizer> {
        let choice = Choice { precision, ..Choice::default() };
        let config = TrainerConfig { choice, lanes, ..TrainerConfig::new(Schedule::constant(1e-3), Key::new(1)) };
        let model = self.config.init(&device::device().autodiff(), Key::new(3));
        Trainer::new(model, config, Governor::new(self.batch))
    }
}

/// A Python process with the same model in PyTorch.
struct Torch {
    name: String,
    seconds: Vec<f64>,
    child: Child,
    ask: ChildStdin,
    answer: BufReader<ChildStdout>,
}

impl Torch {
    fn start(job: &Job, more: &[&str]) -> Result<(Self, u64), Failure> {
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
        command.arg(script).args(["--positions", "absolute", "--dropout", &job.dropout.to_string()]).args(more);
        options.iter().for_each(|(name, value)| {
            command.args([*name, &value.to_string()]);
        });
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let (ask, answer) = (child.stdin.take().ok_or("no input")?, child.stdout.take().ok_or("no output")?);
        let name = [&["PyTorch"], more].concat().join(" ");
        let mut torch = Self { name, seconds: Vec::new(), child, ask, answer: BufReader::new(answer) };
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

/// Ways to run PyTorch: options of `fixtures/bench_step.py`.
const TORCH_ON_CPU: [&[&str]; 1] = [&[]];
const TORCH_ON_GPU: [&[&str]; 4] = [
    &["--device", "cuda"],
    &["--device", "cuda", "--compile"],
    &["--device", "cuda", "--bf16"],
    &["--device", "cuda", "--bf16", "--compile"],
];

/// Starts a trainer. The first two steps are not timed. The second measures the peak memory, with the optimizer's moments
/// allocated.
fn ours(job: &Job, batch: &HostBatch, name: &'static str, precision: Precision, lanes: usize) -> Result<Ours, Failure> {
    let before = MEMORY.current();
    let start = Instant::now();
    let mut trainer = job.trainer(precision, lanes);
    trainer.step(batch)?;
    println!("{name}: ready after {:.1} s", start.elapsed().as_secs_f64());
    MEMORY.reset_peak();
    trainer.step(batch)?;
    Ok(Ours { name, trainer, seconds: vec![], peak: Bytes(MEMORY.peak().0 - before.0) })
}

fn main() -> Result<(), Failure> {
    let job = Job::asked();
    let batch = job.batch();
    let is_gpu = cfg!(any(feature = "cuda", feature = "wgpu"));
    let mut all = match is_gpu {
        true => vec![
            ours(&job, &batch, "fp32", Precision::Fp32, 1)?,
            #[cfg(feature = "cuda")]
            ours(&job, &batch, "bf16", Precision::Bf16, 1)?,
        ],
        false => vec![
            ours(&job, &batch, "lanes", Precision::Fp32, job.threads)?,
            ours(&job, &batch, "one piece", Precision::Fp32, 1)?,
        ],
    };
    let ways = if is_gpu { &TORCH_ON_GPU[..] } else { &TORCH_ON_CPU[..] };
    let mut torches = Vec::new();
    for way in ways {
        match Torch::start(&job, way) {
            Ok((torch, parameters)) => {
                println!("{}: {parameters} parameters", torch.name);
                torches.push(torch);
            }
            Err(error) => {
                println!("no PyTorch to compare with ({error}); PLIMSOLL_PYTHON names a Python that has it");
                break;
            }
        }
    }
    println!(
        "ours: {} parameters; {} utterances of {} frames and {TOKENS} tokens, {} threads, dropout {}",
        count(&all[0].trainer.task),
        job.batch,
        job.frames,
        job.threads,
        job.dropout,
    );
    for round in 0..=STEPS {
        for way in &mut all {
            let start = Instant::now();
            way.trainer.step(&batch)?;
            if round > 0 {
                way.seconds.push(start.elapsed().as_secs_f64());
            }
        }
        for torch in &mut torches {
            let seconds = torch.ask("step")?;
            if round > 0 {
                torch.seconds.push(seconds);
            }
        }
    }
    for Ours { name, seconds, peak, .. } in all {
        let ratios = torches.iter().map(|torch| {
            let ratios = seconds.iter().zip(&torch.seconds).map(|(a, b)| a / b).collect();
            format!(", {:.2}x of {}", median(ratios), torch.name)
        });
        let ratios: String = ratios.collect();
        // On a GPU, this is the memory of the host.
        println!("{name}: {:.4} s{ratios}, peak {peak}", median(seconds));
    }
    for torch in &mut torches {
        let resident = Bytes(torch.ask("memory")? as u64);
        println!("{}: {:.4} s, at most {resident}", torch.name, median(torch.seconds.clone()));
    }
    Ok(())
}
