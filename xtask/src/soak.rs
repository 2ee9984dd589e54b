//! Long trainings with the CUDA build on GPUs that do not exist, whose driver refuses memory, whose neighbors come and go, and which are
//! lost: `cargo xtask paper-gpu --soak`.

use std::ffi::OsString;
use std::fs;
use std::ops::Range;
use std::path::PathBuf;
use std::process::{ExitCode, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};

use crate::Misuse;
use crate::cargo::{root, target_dir};
use crate::paper_gpu;
use crate::smoke::{number, number_behind};

/// Memory of the GPUs in GiB.
const SIZES: [u64; 3] = [2, 6, 12];
/// What is trained.
const CONFIGS: [&str; 2] = ["toy_asr", "toy_tts"];
/// Steps of an endurance run.
const STEPS: u64 = 3000;
/// MiB that the other process leaves free while it is small, and while it is large. The context takes 512 of them.
const FREE: [u64; 2] = [1100, 640];
/// Steps of a run that is ended by a fault and goes on after it.
const FAULT_STEPS: u64 = 60;

/// Faults that end a run after its first checkpoints: a name, the code of the 15,000th launch, and what the message advises. A kernel takes
/// more than the GPU has, and a kernel reads foreign memory, after which the GPU answers no longer.
const FAULTS: [(&str, u32, &str); 2] = [
    ("kernel", 701, "this is no lack of memory, and a retry does not help"),
    ("lost", 719, "start the program again and go on from the last checkpoint"),
];

/// Runs all trainings, prints a line for each, and fails at the first that breaks a promise.
pub(crate) fn run(args: &[OsString]) -> Result<ExitCode> {
    let (mut steps, mut program) = (STEPS, None);
    let mut pairs = args.chunks_exact(2);
    for pair in &mut pairs {
        let value = pair[1].to_string_lossy();
        match &*pair[0].to_string_lossy() {
            "--steps" => {
                steps = value.parse().map_err(|_| Misuse(format!("`--steps` cannot be `{value}`")))?;
            }
            "--program" => program = Some(std::path::absolute(&*value)?),
            other => bail!(Misuse(format!("`--soak` takes `--steps N` and `--program FILE`, and not `{other}`"))),
        }
    }
    ensure!(pairs.remainder().is_empty(), Misuse("`--soak` takes `--steps N` and `--program FILE`".into()));
    let folder = target_dir()?.join("paper-gpu/soak");
    if folder.exists() {
        fs::remove_dir_all(&folder).with_context(|| format!("cannot remove {}", folder.display()))?;
    }
    for config in CONFIGS {
        for (fault, code, advice) in FAULTS {
            let place = Soak { folder: folder.join(format!("{config}-{fault}")), config, program: program.clone() };
            place.train(&format!("driver 12090\n{}fail-launch 15000 {code}\n", gpu(6, 0)), FAULT_STEPS, &[], 1)?;
            let record = place.record()?;
            ensure!(record.contains(advice), "the record in {} does not say: {advice}", place.folder.display());
            let resumed = ["--resume".into(), place.folder.join("runs/soak").into_os_string()];
            ensure!(
                place.folder.join("runs/soak/checkpoints").exists(),
                "no checkpoint was there before the fault; see {}",
                place.folder.display()
            );
            place.train(&format!("driver 12090\n{}", gpu(6, 0)), FAULT_STEPS, &resumed, 0)?;
            println!("{config}-{fault}: ended by the fault, said what it is, and went on to step {FAULT_STEPS}");
        }
        for size in SIZES {
            let name = format!("{config}-{size}gib");
            let place = Soak { folder: folder.join(&name), config, program: program.clone() };
            let begun = Instant::now();
            place.train(&endurance(size), steps, &[], 0)?;
            let found = Held::of(&place.record()?, &place.plan()?, steps)
                .with_context(|| format!("files are in {}", place.folder.display()))?;
            let seconds = begun.elapsed().as_secs();
            println!("{name}: {steps} steps, {found}; {seconds} s");
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// A GPU of `size` GiB with `others` MiB of other processes.
fn gpu(size: u64, others: u64) -> String {
    format!(
        "slow direct_conv2d,conv_transpose2d_direct\ngpu NVIDIA of {size} GiB\nmemory {size}GiB\ncapability 8.6\nothers {others}MiB\n"
    )
}

/// The scenario of an endurance run: another process takes more and gives it back, again and again, and one allocation in fifty is
/// refused.
fn endurance(size: u64) -> String {
    let others = FREE.map(|free| size * 1024 - free);
    let changes: String = (1..40).map(|turn| format!("others-at {} {}MiB\n", turn * 25, others[turn % 2])).collect();
    format!("driver 12090\n{}{changes}fail-allocation-chance 0.02 {size}\n", gpu(size, others[0]))
}

/// One run and its folder.
struct Soak {
    folder: PathBuf,
    config: &'static str,
    /// Program that was built with CUDA; `None` to build it.
    program: Option<PathBuf>,
}

impl Soak {
    /// Trains on the machine of `scenario` and checks how it ends.
    fn train(&self, scenario: &str, steps: u64, more: &[OsString], expected: i32) -> Result<()> {
        let folder = &self.folder;
        fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
        fs::write(folder.join("machine.txt"), scenario).context("cannot write the scenario")?;
        let mut command = match paper_gpu::call(&self.args(steps, more))? {
            Ok(command) => command,
            Err(_) => bail!("the program could not be built for CUDA"),
        };
        let output = fs::File::create(folder.join("output.txt")).context("cannot write the output")?;
        command.current_dir(folder).stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
        let status = command.status().context("cannot start the program")?;
        ensure!(
            status.code() == Some(expected),
            "it ended with {status} instead of {expected}; see {}",
            folder.display()
        );
        Ok(())
    }

    fn args(&self, steps: u64, more: &[OsString]) -> Vec<OsString> {
        let mut args: Vec<OsString> = vec!["--scenario".into(), self.folder.join("machine.txt").into()];
        args.extend(self.program.iter().flat_map(|program| ["--program".into(), program.clone().into_os_string()]));
        args.push("--".into());
        args.extend(["train", "--backend", "cuda", "--ui", "lines", "--steps", &steps.to_string()].map(Into::into));
        if more.is_empty() {
            let config = root().join("configs").join(format!("{}.toml", self.config));
            args.extend(["--name".into(), "soak".into(), "--config".into(), config.into()]);
            // Many lengths are shapes of their own, and a batch is large enough that it has to be cut.
            for setting in [
                "data.frame_grid=16",
                "data.corpus_utterances=400",
                "data.corpus_speakers=8",
                "data.batch_size=96",
                "training.validation_interval=200",
                "training.checkpoint_interval=20",
                // The neighbors would come and go while it is measured.
                "training.measure_memory=false",
            ] {
                args.extend(["--set".into(), setting.into()]);
            }
        }
        args.extend(more.iter().cloned());
        args
    }

    fn record(&self) -> Result<String> {
        fs::read_to_string(self.folder.join("runs/soak/metrics.jsonl")).context("the run has no record")
    }

    fn plan(&self) -> Result<String> {
        fs::read_to_string(self.folder.join("runs/soak/plan.toml")).context("the run has no plan")
    }
}

/// What an endurance run held.
#[derive(Debug, PartialEq)]
struct Held {
    /// Steps that were computed in more micro-batches than were begun first.
    retried: usize,
    /// Highest reserved memory in bytes, and the budget.
    peak: u64,
    budget: u64,
    /// Mean number of micro-batches of the first and the last tenth of the steps.
    pieces: [f64; 2],
}

impl std::fmt::Display for Held {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mib = |bytes: u64| bytes >> 20;
        let Self { retried, peak, budget, pieces } = self;
        write!(
            f,
            "{retried} retried, at most {} of {} MiB reserved, {:.2} micro-batches a step at first and {:.2} at last",
            mib(*peak),
            mib(*budget),
            pieces[0],
            pieces[1]
        )
    }
}

impl Held {
    /// Checks the promises: every step is there, no utterance was left out, memory stayed within the budget and a page.
    fn of(record: &str, plan: &str, steps: u64) -> Result<Self> {
        let each: Vec<&str> = record.lines().filter(|line| line.contains(r#""event":"step""#)).collect();
        ensure!(each.len() as u64 == steps, "the record has {} steps instead of {steps}", each.len());
        let of_plan =
            |key: &str| number_behind(plan, &format!("\n{key} = ")).with_context(|| format!("the plan has no `{key}`"));
        let (budget, page) = (of_plan("budget")?, of_plan("page")?);
        let (mut retried, mut peak) = (0, 0);
        let mut pieces = Vec::new();
        for step in &each {
            let field = |key: &str| number(step, key).with_context(|| format!("a step has no `{key}`: {step}"));
            covers(step, field("utterances")?)?;
            peak = peak.max(field("peak_bytes")?);
            pieces.push(field("pieces")? as f64);
            retried += usize::from(field("begun")? > field("pieces")?);
        }
        ensure!(peak <= budget + page, "{peak} bytes were reserved of {budget}, with pages of {page}");
        let mean = |range: Range<usize>| pieces[range.clone()].iter().sum::<f64>() / range.len().max(1) as f64;
        let tenth = pieces.len().div_ceil(10);
        Ok(Self { retried, peak, budget, pieces: [mean(0..tenth), mean(pieces.len() - tenth..pieces.len())] })
    }
}

/// Checks that the micro-batches of `step` have each of its `utterances` once, and that none was left out.
fn covers(step: &str, utterances: u64) -> Result<()> {
    let (_, rest) = step.split_once(r#""cuts":[["#).with_context(|| format!("a step has no cuts: {step}"))?;
    let cuts = rest.split_once("]]").map_or(rest, |(cuts, _)| cuts);
    let mut ranges = Vec::new();
    for cut in cuts.split("],[") {
        let numbers: Vec<u64> = cut.split(',').filter_map(|number| number.parse().ok()).collect();
        let [start, len, level] = numbers[..] else { bail!("a cut is not three numbers: {cut}") };
        ensure!(level != u64::from(u32::MAX), "utterances were left out: {step}");
        ranges.push((start, len));
    }
    ranges.sort_unstable();
    let end = ranges.iter().try_fold(0, |end, &(start, len)| (start == end).then_some(end + len));
    ensure!(end == Some(utterances), "the micro-batches do not have each of {utterances} utterances once: {step}");
    Ok(())
}

/// Returns whether `args` ask for a soak, and the rest of them.
pub(crate) fn asked(args: &[OsString]) -> Option<&[OsString]> {
    args.split_first().filter(|(first, _)| *first == "--soak").map(|(_, rest)| rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(cuts: &str, peak: u64) -> String {
        format!(
            r#"{{"begun":2,"cuts":{cuts},"event":"step","peak_bytes":{peak},"pieces":2,"shape":{{"utterances":6,"frames":9}}}}"#
        )
    }

    #[test]
    fn promises_are_checked() {
        let plan = "[memory.plan]\nbudget = 100\npage = 10\n";
        let held = |cuts: &str, peak| Held::of(&format!("{}\n", step(cuts, peak)), plan, 1);
        let whole = held("[[2,4,0],[0,2,1]]", 110).unwrap();
        assert_eq!(whole, Held { retried: 0, peak: 110, budget: 100, pieces: [2.0; 2] });
        for (cuts, peak) in [
            ("[[0,2,0],[2,4,0]]", 111),
            ("[[0,2,0],[2,3,0]]", 100),
            ("[[0,2,0],[1,5,0]]", 100),
            ("[[0,2,0],[2,4,4294967295]]", 100),
        ] {
            assert!(held(cuts, peak).is_err(), "{cuts} {peak}");
        }
        assert!(Held::of("", plan, 1).is_err());
    }

    #[test]
    fn neighbors_come_and_go() {
        let scenario = endurance(2);
        assert!(
            scenario.contains("others 948MiB\n") && scenario.contains("others-at 25 1408MiB\nothers-at 50 948MiB\n")
        );
    }
}
