//! `memtest --verify`: compares predicted with measured memory, each case in its own process.

use std::num::NonZeroU32;
use std::process::{Command, ExitCode, Stdio};

use indicatif::ProgressBar;
use plimsoll_config::RunConfig;
use plimsoll_config::choices::BackendChoice;
use plimsoll_core::{BatchShape, Bytes, Choice, CountingAllocator, Frames, Precision, Remat, counted};
use plimsoll_memory::{
    BackendRules, BucketPlan, Demand, MemoryModel, PlanOptions, Speed, Timeline, Trained, plan, trace,
};
use plimsoll_recipes::demand::DemandBuilder;
use plimsoll_recipes::device::TrainingDevice;
use plimsoll_recipes::mapping;
use plimsoll_recipes::target::Target;
use plimsoll_recipes::{Failure, FailureExt, trained_parts, with_model};
use plimsoll_speech::tts::SynthesizerConfig;
use plimsoll_tape::lora::TrainedParts;
use serde::Serialize;
use serde_json::json;

use super::MemtestArgs;
use super::case::{self, InUse, MICRO_BATCHES, Measurement};
use super::matrix::{Case, Model, gpu_cases, matrix, random_cases, random_gpu_cases};
use super::verdict::choice_text;
use crate::output::OutputFile;

/// Evaluates `$body` with `$subject` as the model of the case `$case`, of which its parts are trained.
macro_rules! with_case {
    ($case:expr, $subject:ident => $body:expr) => {
        with_model!(&$case.model.plan(), model => {
            let $subject = &Trained::new(model, &$case.parts);
            $body
        })
    };
}

/// Number of random cases on the CPU, if no number is given.
const RANDOM_CASES: u32 = 16;

/// Measurement of a case, with the errors of the prediction in percent.
#[derive(Clone, Debug, Serialize)]
struct Row {
    name: String,
    case: String,
    #[serde(flatten)]
    measurement: Measurement,
    /// Error of the predicted peak, in percent of the measured peak.
    error_percent: f64,
    /// Error of the predicted part of the peak above weights, gradients and optimizer state, in percent of the measured
    /// part.
    above_error_percent: f64,
    /// Error of the predicted memory in use at the end of the forward pass, in percent of the measured memory; `None`
    /// on the CPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    in_use_error_percent: Option<f64>,
    /// Peak in bytes of the first run of the case, which also tries out kernels; `None` on the CPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    first_bytes: Option<u64>,
}

/// Runs `memtest --verify`: the whole matrix of cases, the one case of `args`, or the plans for budgets.
///
/// # Errors
/// If a case does not run or its flags are wrong.
pub(crate) fn verify(
    args: &MemtestArgs,
    config: RunConfig,
    meter: &'static CountingAllocator,
) -> Result<ExitCode, Failure> {
    if let Some(case) = &args.case {
        let case: Case = serde_json::from_str(case).invalid()?;
        let device = TrainingDevice::choose(&config.device)?;
        write_allocations(args, &case, &device)?;
        println!("{}", json!(run(&case, &device, meter)?));
        return Ok(ExitCode::SUCCESS);
    }
    if args.budgets > 0 {
        return verify_budgets(args.budgets);
    }
    let backend = config.device.backend;
    let device = TrainingDevice::choose(&config.device)?;
    let is_host = device.is_host;
    let cases = match args.batch {
        Some(batch) => {
            let case = case_from_flags(args, batch, config, device.precision)?;
            write_allocations(args, &case, &device)?;
            vec![case]
        }
        None if is_host => [matrix(), random_cases(args.random.unwrap_or(RANDOM_CASES))].concat(),
        None => {
            let random = random_gpu_cases(args.random.unwrap_or(0)).into_iter().map(|case| reduced(case, &device));
            [gpu_cases(), random.collect::<Result<_, _>>()?].concat()
        }
    };
    let bar = ProgressBar::new(cases.len() as u64);
    let mut rows = Vec::new();
    for case in &cases {
        // A GPU tries out kernels when it first meets their sizes, which takes memory too: the second run counts.
        let first = if is_host { None } else { Some(run_in_process(case, backend)?.measurement.measured_bytes) };
        let row = Row { first_bytes: first, ..run_in_process(case, backend)? };
        // A case can take minutes, so each is shown when it ends, in text beside the JSON object that follows.
        bar.suspend(|| match args.json {
            true => eprintln!("{}", row.line()),
            false => println!("{}", row.line()),
        });
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

/// Halves the utterances of a case until its predicted memory fits the GPU.
fn reduced(mut case: Case, device: &TrainingDevice) -> Result<Case, Failure> {
    let Some(Target::Gpu { usable, .. }) = Target::local_gpu(device.index) else { return Ok(case) };
    while case.shape.0 > 1 && predicted(&case, device)?.0 > usable.0 {
        case.shape.0 /= 2;
    }
    Ok(case)
}

/// Predicts the memory that a case takes on a GPU.
fn predicted(case: &Case, device: &TrainingDevice) -> Result<Bytes, Failure> {
    let (utterances, frames, tokens) = case.shape;
    let shape = BatchShape { utterances, frames: Frames(frames), tokens };
    let run = (case.micro_batches, device);
    with_case!(case, model => case::reserved_on_gpu(model, shape, case.choice, run))
}

/// Writes the allocations that are predicted for a micro-batch of a case to the file of `--allocations`.
fn write_allocations(args: &MemtestArgs, case: &Case, device: &TrainingDevice) -> Result<(), Failure> {
    let Some(path) = &args.allocations else { return Ok(()) };
    let file = OutputFile::new(path, "--allocations", args.overwrite, &["json"])?;
    let (utterances, frames, tokens) = case.shape;
    let shape = BatchShape { utterances, frames: Frames(frames), tokens };
    let timeline: Timeline =
        with_case!(case, model => trace(model, shape, case.choice, device.rules)).failed()?.timeline;
    file.write(serde_json::to_string(&timeline).failed()?)
}

/// Plans for budgets from the smallest to the largest useful one, runs each plan, and checks that it stays in its
/// budget.
fn verify_budgets(count: u32) -> Result<ExitCode, Failure> {
    let model = SynthesizerConfig::recommended(80, 100, 128, 4);
    let bucket = BatchShape { utterances: 24, frames: Frames(300), tokens: 30 };
    let demand = Demand { prefetch: 0, ..Demand::new(vec![bucket], BackendRules::host()).with_blocks(4) };
    let chunks = vec![None, NonZeroU32::new(32)];
    let demand = Demand { options: PlanOptions { chunks, ..demand.options.clone() }, ..demand };
    let survey = MemoryModel::new(&model, demand).failed()?;
    let peak = |utterances, remat| {
        survey
            .estimate(bucket, utterances, Choice { remat, ..Choice::default() })
            .map(|weighed| weighed.peak.0)
            .failed()
    };
    let (least, most) = (peak(1, Remat::All)?, peak(bucket.utterances, Remat::None)?);
    let mut all_within = true;
    for part in 0..count {
        let budget = Bytes(least + (most - least) * u64::from(part) / u64::from((count - 1).max(1)));
        let plan = plan(&survey, budget, &Speed::for_host(2)).invalid()?;
        let BucketPlan { micro_batch, accumulation, choice, peak, .. } = plan.buckets[0];
        let shape = (micro_batch, bucket.frames.0, bucket.tokens);
        let micro_batches = accumulation.min(MICRO_BATCHES);
        let case = Case {
            name: format!("{budget}"),
            model: Model::Synthesizer(model),
            parts: TrainedParts::default(),
            shape,
            choice,
            micro_batches,
        };
        let row = run_in_process(&case, BackendChoice::Cpu)?;
        // The plan counts the whole batch on the host; the case holds only the micro-batches that it computes.
        let measured = row.measurement.measured_bytes;
        all_within &= measured <= budget.0;
        println!(
            "budget {budget}: {micro_batch} at once, {}; planned {peak}, measured {} ({:.1} % of the budget)",
            choice_text(choice),
            Bytes(measured),
            measured as f64 / budget.0 as f64 * 100.0
        );
    }
    Ok(if all_within { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Runs the case in this process, and returns its predicted and its measured memory.
fn run(case: &Case, device: &TrainingDevice, process: &'static CountingAllocator) -> Result<Measurement, Failure> {
    let (utterances, frames, tokens) = case.shape;
    let shape = BatchShape { utterances, frames: Frames(frames), tokens };
    let meter = device.meter(process);
    let run = (case.micro_batches, device);
    with_case!(case, model => case::measure(model, shape, case.choice, run, &*meter))
}

/// Runs the case in its own process, so that memory of other cases does not count.
fn run_in_process(case: &Case, backend: BackendChoice) -> Result<Row, Failure> {
    let program = std::env::current_exe().failed()?;
    let output = Command::new(program)
        .args(["memtest", "--verify", "--case", &json!(case).to_string(), "--backend", backend.as_str()])
        .stderr(Stdio::inherit())
        .output()
        .failed()?;
    let measurement: Result<Measurement, _> = serde_json::from_slice(&output.stdout);
    let Ok(measurement) = measurement else {
        let message = format!("the case `{}` ended with {}", case.name, output.status);
        return Err(Failure::invalid(message, "run it alone with --batch, --frames and --tokens"));
    };
    let (predicted, measured, fixed) =
        (measurement.predicted_bytes as f64, measurement.measured_bytes as f64, measurement.fixed_bytes as f64);
    let (utterances, frames, tokens) = case.shape;
    let error = |used: InUse| (used.predicted_bytes as f64 / used.measured_bytes as f64 - 1.0) * 100.0;
    Ok(Row {
        name: case.name.clone(),
        case: format!("{utterances} x {frames} x {tokens}, {}", choice_text(case.choice)),
        error_percent: (predicted / measured - 1.0) * 100.0,
        above_error_percent: ((predicted - fixed) / (measured - fixed) - 1.0) * 100.0,
        in_use_error_percent: measurement.in_use.map(error),
        first_bytes: None,
        measurement,
    })
}

impl Row {
    /// Formats the result of the case as one line.
    fn line(&self) -> String {
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        let in_use = self.in_use_error_percent.map(|error| format!(", in use after the forward pass {error:+.2} %"));
        let first = self.first_bytes.map(|bytes| format!(", {:.1} MiB while kernels were tried out", mib(bytes)));
        format!(
            "{:<12} {:<55} predicted {:>8.1} MiB, measured {:>8.1} MiB, {:+.2} %, above the fixed part {:+.2} %{}{}",
            self.name,
            self.case,
            mib(self.measurement.predicted_bytes),
            mib(self.measurement.measured_bytes),
            self.error_percent,
            self.above_error_percent,
            in_use.unwrap_or_default(),
            first.unwrap_or_default()
        )
    }
}

fn summary(rows: &[Row]) -> String {
    let line = |name: &str, error: &dyn Fn(&Row) -> f64| {
        let mut errors: Vec<f64> = rows.iter().map(|row| error(row).abs()).collect();
        errors.sort_by(f64::total_cmp);
        let at = |share: f64| errors[((errors.len() as f64 * share).ceil() as usize).clamp(1, errors.len()) - 1];
        let lowest = rows.iter().map(error).fold(f64::INFINITY, f64::min);
        format!(
            "{name}: median error {:.2} %, 95th percentile {:.2} %, largest {:.2} %, most below {:.2} %\n",
            at(0.5),
            at(0.95),
            at(1.0),
            -lowest.min(0.0)
        )
    };
    let mut text = counted(rows.len(), "case") + "\n";
    text.push_str(&line("whole", &|row| row.error_percent));
    text.push_str(&line("above the fixed part", &|row| row.above_error_percent));
    if rows.iter().all(|row| row.in_use_error_percent.is_some()) {
        text.push_str(&line("in use", &|row| row.in_use_error_percent.unwrap_or_default()));
    }
    text
}

/// Makes the case that the flags describe.
fn case_from_flags(args: &MemtestArgs, batch: u32, config: RunConfig, fastest: Precision) -> Result<Case, Failure> {
    let builder = DemandBuilder::from_config(config)?;
    let choice = mapping::choice(&builder.config, &builder.model, fastest);
    let longest = builder.shapes.last().copied().expect("there are lengths");
    let remat = match args.remat.as_deref() {
        Some("half") => Remat::Half,
        Some("all") => Remat::All,
        Some(_) => Remat::None,
        None => choice.remat,
    };
    let (frames, tokens) = (args.frames.unwrap_or(longest.frames.0), args.tokens.unwrap_or(longest.tokens));
    if batch == 0 || frames == 0 || tokens == 0 {
        return Err(Failure::invalid("a case needs utterances, frames and tokens", "give numbers above 0"));
    }
    Ok(Case {
        name: "custom".into(),
        model: builder.model.into(),
        parts: trained_parts(&builder.config.training),
        shape: (batch, frames, tokens),
        choice: Choice { remat, ..choice },
        micro_batches: MICRO_BATCHES,
    })
}
