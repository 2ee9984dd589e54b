//! `memtest --verify`: predictions beside what was measured, each case in a process of its own.

use std::num::NonZeroU32;
use std::process::{Command, ExitCode, Stdio};

use indicatif::ProgressBar;
use plimsoll_core::{BatchShape, Bytes, Choice, CountingAllocator, Frames, Key, Precision, Remat};
use plimsoll_memory::{BackendRules, BucketPlan, Demand, MemoryModel, Speed, StepMemory, plan};
use plimsoll_speech::asr::{DecoderConfig, RecognizerConfig};
use plimsoll_speech::tts::SynthesizerConfig;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::MemtestArgs;
use super::case::{self, Found, InUse, PIECES};
use super::verdict::choice_words;
use plimsoll_recipes::config::{BackendChoice, RunConfig};
use plimsoll_recipes::demand::DemandBuilder;
use plimsoll_recipes::device::TrainingDevice;
use plimsoll_recipes::mapping::{self, ModelPlan};
use plimsoll_recipes::{Failure, FailureExt};

/// One case.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Case {
    name: String,
    model: Model,
    shape: (u32, u32, u32),
    choice: Choice,
    /// Pieces of its steps.
    pieces: u32,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
enum Model {
    Recogniser(RecognizerConfig),
    Synthesiser(SynthesizerConfig),
}

/// A case with what came of it.
#[derive(Clone, Debug, Serialize)]
struct Row {
    name: String,
    case: String,
    #[serde(flatten)]
    found: Found,
    /// How far the prediction is from what was measured, in percent.
    error_percent: f64,
    /// The same of the part above weights, gradients and optimizer.
    above_error_percent: f64,
    /// The same of what is in use when the forward pass of a piece ends, which a card tells.
    #[serde(skip_serializing_if = "Option::is_none")]
    in_use_error_percent: Option<f64>,
    /// On a card: what was reserved by the run before, which may have tried out kernels.
    #[serde(skip_serializing_if = "Option::is_none")]
    first_bytes: Option<u64>,
}

/// Runs the matrix, or the one case of `args`.
pub(crate) fn verify(
    args: &MemtestArgs,
    config: RunConfig,
    meter: &'static CountingAllocator,
) -> Result<ExitCode, Failure> {
    if let Some(case) = &args.case {
        let case: Case = serde_json::from_str(case).invalid()?;
        let device = TrainingDevice::choose(&config.device)?;
        println!("{}", json!(run(&case, &device, meter)?));
        return Ok(ExitCode::SUCCESS);
    }
    if args.budgets > 0 {
        return budgets(args.budgets);
    }
    let backend = config.device.backend;
    let device = TrainingDevice::choose(&config.device)?;
    let is_host = device.is_host;
    let cases = match args.batch {
        Some(batch) => vec![named(args, batch, config, device.precision)?],
        None if !is_host => cards(),
        None => {
            let mut cases = matrix();
            cases.extend(drawn(args.random));
            cases
        }
    };
    let bar = if args.json { ProgressBar::hidden() } else { ProgressBar::new(cases.len() as u64) };
    let mut rows = Vec::new();
    for case in &cases {
        // What a card is asked for the first time it does by trying kernels out, which takes memory too.
        let first = if is_host { None } else { Some(in_a_process(case, backend)?.found.measured_bytes) };
        let row = Row { first_bytes: first, ..in_a_process(case, backend)? };
        if !args.json {
            bar.suspend(|| println!("{}", row.told()));
        }
        rows.push(row);
        bar.inc(1);
    }
    bar.finish_and_clear();
    match args.json {
        true => println!("{:#}", json!({"cases": rows})),
        false => print!("{}", summary(&rows)),
    }
    Ok(ExitCode::SUCCESS)
}

/// Plans for budgets from the smallest to the largest useful one, each run for real and held against its budget.
fn budgets(count: u32) -> Result<ExitCode, Failure> {
    let model = SynthesizerConfig::recommended(80, 100, 128, 4);
    let bucket = BatchShape { utterances: 24, frames: Frames(300), tokens: 30 };
    let demand = Demand {
        buckets: vec![bucket],
        blocks: 4,
        remat_counts: Demand::remat_counts_up_to(4),
        chunks: vec![None, NonZeroU32::new(32)],
        precision: Precision::Fp32,
        micro_batch: None,
        rules: BackendRules::host(),
        step: StepMemory::default(),
        prefetch: 0,
        eight_bit_state_bits: 17,
    };
    let survey = MemoryModel::new(&model, demand).failed()?;
    let peak = |utterances, remat| {
        survey
            .estimate(bucket, utterances, Choice { remat, ..Choice::default() })
            .map(|weighed| weighed.peak.0)
            .failed()
    };
    let (least, most) = (peak(1, Remat::All)?, peak(bucket.utterances, Remat::None)?);
    let mut kept = true;
    for part in 0..count {
        let budget = Bytes(least + (most - least) * u64::from(part) / u64::from((count - 1).max(1)));
        let found = plan(&survey, budget, &Speed::for_host(2)).invalid()?;
        let BucketPlan { micro_batch, accumulation, choice, peak, .. } = found.buckets[0];
        let shape = (micro_batch, bucket.frames.0, bucket.tokens);
        let pieces = accumulation.min(PIECES);
        let case = Case { name: format!("{budget}"), model: Model::Synthesiser(model), shape, choice, pieces };
        let row = in_a_process(&case, BackendChoice::Cpu)?;
        // The whole batch lies on the host, and not only the two pieces that the case computes.
        let measured = row.found.measured_bytes;
        kept &= measured <= budget.0;
        println!(
            "budget {budget}: {micro_batch} at once, {}; planned {peak}, measured {} ({:.1} % of the budget)",
            choice_words(choice),
            Bytes(measured),
            measured as f64 / budget.0 as f64 * 100.0
        );
    }
    Ok(if kept { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn run(case: &Case, device: &TrainingDevice, process: &'static CountingAllocator) -> Result<Found, Failure> {
    let (utterances, frames, tokens) = case.shape;
    let shape = BatchShape { utterances, frames: Frames(frames), tokens };
    let meter = device.meter(process);
    let how = (case.pieces, device);
    match &case.model {
        Model::Recogniser(model) => case::found(model, shape, case.choice, how, &*meter),
        Model::Synthesiser(model) => case::found(model, shape, case.choice, how, &*meter),
    }
}

fn in_a_process(case: &Case, backend: BackendChoice) -> Result<Row, Failure> {
    let program = std::env::current_exe().failed()?;
    let output = Command::new(program)
        .args(["memtest", "--verify", "--case", &json!(case).to_string(), "--backend", backend.as_str()])
        .stderr(Stdio::inherit())
        .output()
        .failed()?;
    let found: Result<Found, _> = serde_json::from_slice(&output.stdout);
    let Ok(found) = found else {
        let message = format!("the case `{}` ended with {}", case.name, output.status);
        return Err(Failure::invalid(message, "run it alone with --batch, --frames and --tokens"));
    };
    let (predicted, measured, fixed) =
        (found.predicted_bytes as f64, found.measured_bytes as f64, found.fixed_bytes as f64);
    let (utterances, frames, tokens) = case.shape;
    let off = |used: InUse| (used.predicted_bytes as f64 / used.measured_bytes as f64 - 1.0) * 100.0;
    Ok(Row {
        name: case.name.clone(),
        case: format!("{utterances} x {frames} x {tokens}, {}", choice_words(case.choice)),
        error_percent: (predicted / measured - 1.0) * 100.0,
        above_error_percent: ((predicted - fixed) / (measured - fixed) - 1.0) * 100.0,
        in_use_error_percent: found.in_use.map(off),
        first_bytes: None,
        found,
    })
}

impl Row {
    fn told(&self) -> String {
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        let in_use = self.in_use_error_percent.map(|error| format!(", in use after the forward pass {error:+.2} %"));
        let first = self.first_bytes.map(|bytes| format!(", {:.1} MiB when kernels were tried out", mib(bytes)));
        format!(
            "{:<12} {:<55} predicted {:>8.1} MiB, measured {:>8.1} MiB, {:+.2} %, above the fixed part {:+.2} %{}{}",
            self.name,
            self.case,
            mib(self.found.predicted_bytes),
            mib(self.found.measured_bytes),
            self.error_percent,
            self.above_error_percent,
            in_use.unwrap_or_default(),
            first.unwrap_or_default()
        )
    }
}

fn summary(rows: &[Row]) -> String {
    let line = |what: &str, error: &dyn Fn(&Row) -> f64| {
        let mut sizes: Vec<f64> = rows.iter().map(|row| error(row).abs()).collect();
        sizes.sort_by(f64::total_cmp);
        let at = |share: f64| sizes[((sizes.len() as f64 * share).ceil() as usize).clamp(1, sizes.len()) - 1];
        let lowest = rows.iter().map(error).fold(f64::INFINITY, f64::min);
        format!(
            "{what}: median error {:.2} %, 95th percentile {:.2} %, largest {:.2} %, most below {:.2} %\n",
            at(0.5),
            at(0.95),
            at(1.0),
            -lowest.min(0.0)
        )
    };
    let mut text = format!("{} cases\n", rows.len());
    text.push_str(&line("whole", &|row| row.error_percent));
    text.push_str(&line("above the fixed part", &|row| row.above_error_percent));
    if rows.iter().all(|row| row.in_use_error_percent.is_some()) {
        text.push_str(&line("in use", &|row| row.in_use_error_percent.unwrap_or_default()));
    }
    text
}

/// The case that the flags name.
fn named(args: &MemtestArgs, batch: u32, config: RunConfig, fastest: Precision) -> Result<Case, Failure> {
    let asked = DemandBuilder::from_config(config)?;
    let choice = mapping::choice(&asked.config, &asked.model, fastest);
    let longest = asked.shapes.last().copied().expect("there are lengths");
    let remat = match args.remat.as_deref() {
        Some("half") => Remat::Half,
        Some("all") => Remat::All,
        Some(_) => Remat::None,
        None => choice.remat,
    };
    let model = match asked.model {
        ModelPlan::Recogniser(model) => Model::Recogniser(model),
        ModelPlan::Synthesiser(model) => Model::Synthesiser(model),
    };
    let (frames, tokens) = (args.frames.unwrap_or(longest.frames.0), args.tokens.unwrap_or(longest.tokens));
    if batch == 0 || frames == 0 || tokens == 0 {
        return Err(Failure::invalid("a case needs utterances, frames and tokens", "give numbers above 0"));
    }
    Ok(Case {
        name: "asked".into(),
        model,
        shape: (batch, frames, tokens),
        choice: Choice { remat, ..choice },
        pieces: PIECES,
    })
}

/// The levels that every model is tried at.
const REMATS: [Remat; 3] = [Remat::None, Remat::Half, Remat::All];

/// Both models in three sizes, two batches and lengths each, four ways to compute: three levels of rematerialisation,
/// attention in chunks and not, in fp32 and in bf16.
fn matrix() -> Vec<Case> {
    let mut cases = Vec::new();
    let ways = |place: usize| {
        let chunk = |on: bool| if on { NonZeroU32::new(32) } else { None };
        let precision = |low: bool| if low { Precision::Bf16 } else { Precision::Fp32 };
        [0, 1, 2, 3].map(|way| Choice {
            remat: REMATS[(way + place) % 3],
            attention_chunk: chunk((way + place / 2) % 2 == 1),
            precision: precision(way == 3),
        })
    };
    for (size, (width, layers)) in [(96, 3), (128, 4), (192, 6)].into_iter().enumerate() {
        for (batch, (utterances, frames, tokens)) in [(3, 500, 40), (8, 260, 22)].into_iter().enumerate() {
            for choice in ways(size + batch) {
                let model = Model::Recogniser(recogniser(width, layers, 100));
                let name = format!("asr {width}/{layers}");
                cases.push(Case { name, model, shape: (utterances, frames, tokens), choice, pieces: PIECES });
                let model = Model::Synthesiser(SynthesizerConfig::recommended(80, 100, width, layers));
                let name = format!("tts {width}/{layers}");
                cases.push(Case { name, model, shape: (utterances, frames, tokens), choice, pieces: PIECES });
            }
        }
    }
    cases
}

/// The cases for a card: fewer, as the only one at hand may be a CPU that plays one.
fn cards() -> Vec<Case> {
    let mut cases = Vec::new();
    for (size, (width, layers)) in [(96, 3), (160, 4)].into_iter().enumerate() {
        let models = [
            ("asr", Model::Recogniser(recogniser(width, layers, 100))),
            ("tts", Model::Synthesiser(SynthesizerConfig::recommended(80, 100, width, layers))),
        ];
        for (kind, model) in models {
            for (way, remat) in REMATS.into_iter().enumerate() {
                let (utterances, frames, tokens) = [(4, 320, 24), (8, 200, 16)][(way + size) % 2];
                let attention_chunk = NonZeroU32::new([0, 32][way % 2]);
                let choice = Choice { remat, attention_chunk, ..Choice::default() };
                let name = format!("{kind} {width}/{layers}");
                cases.push(Case { name, model, shape: (utterances, frames, tokens), choice, pieces: PIECES });
            }
        }
    }
    cases
}

fn recogniser(width: usize, layers: usize, vocabulary: usize) -> RecognizerConfig {
    let config = RecognizerConfig::recommended(width, layers, layers / 2, vocabulary);
    RecognizerConfig { subsampling_channels: width.min(128), ..config }
}

/// Cases of sizes that no rule was written for.
fn drawn(count: u32) -> Vec<Case> {
    let case = |place: u32| {
        let key = Key::new(2026).at(u64::from(place));
        let draw = |name: &str, from: u64, to: u64| from + key.with(name).below(to - from + 1);
        let width = 16 * draw("width", 5, 14) as usize;
        let layers = draw("layers", 2, 8) as usize;
        let (utterances, frames) = (draw("utterances", 2, 9) as u32, draw("frames", 150, 700) as u32);
        let tokens = draw("tokens", 5, u64::from(frames / 8)) as u32;
        let choice = Choice {
            remat: REMATS[draw("remat", 0, 2) as usize],
            attention_chunk: NonZeroU32::new([0, 24, 48][draw("chunk", 0, 2) as usize]),
            precision: [Precision::Fp32, Precision::Bf16][draw("precision", 0, 1) as usize],
        };
        let shape = (utterances, frames, tokens);
        let vocabulary = draw("vocabulary", 30, 900) as usize;
        if place.is_multiple_of(2) {
            let config = recogniser(width, layers, vocabulary);
            let decoder = config.decoder.map(|decoder| DecoderConfig { layers: 1 + layers / 3, ..decoder });
            let kernel = 1 + 2 * draw("kernel", 2, 15) as usize;
            let model = Model::Recogniser(RecognizerConfig { decoder, kernel, ..config });
            return Case { name: format!("asr {width}/{layers}"), model, shape, choice, pieces: PIECES };
        }
        let config = SynthesizerConfig::recommended(80, vocabulary, width, layers);
        let config = SynthesizerConfig {
            reduction: draw("reduction", 1, 4) as usize,
            postnet_layers: [0, 2, 3, 5][draw("postnet", 0, 3) as usize],
            ..config
        };
        let model = Model::Synthesiser(config);
        Case { name: format!("tts {width}/{layers}"), model, shape, choice, pieces: PIECES }
    };
    (0..count).map(case).collect()
}
