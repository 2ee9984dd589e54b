//! A short training with the CUDA build on a GPU that does not exist, whose driver refuses allocations.

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::{ExitCode, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use crate::cargo::{code_of, root, target_dir};
use crate::cuda::libdevice;
use crate::paper_gpu;

/// GPU with enough memory, whose driver refuses every third allocation.
const MACHINE: &str = "\
driver 12090
slow direct_conv2d,conv_transpose2d_direct
gpu NVIDIA of 8 GiB
memory 8GiB
capability 8.6
fail-allocation-every 3
";

/// Number of steps.
const STEPS: usize = 6;

/// Trains for a few steps if the CUDA build is present, and checks the record of the run and the books of the driver. Says
/// why if it is left out.
pub(crate) fn run() -> Result<ExitCode> {
    if !paper_gpu::is_program_built()? {
        return Ok(left_out("Plimsoll was not built for CUDA: `cargo xtask paper-gpu -- gpu-info` builds it"));
    }
    if !libdevice::is_found() {
        return Ok(left_out("libdevice.10.bc is missing: `cargo xtask cuda setup` gets it"));
    }
    println!("training on a GPU that does not exist, with refused allocations: {STEPS} steps");
    let start = Instant::now();
    let folder = target_dir()?.join("paper-gpu/smoke");
    if folder.exists() {
        fs::remove_dir_all(&folder).with_context(|| format!("cannot remove {}", folder.display()))?;
    }
    fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    fs::write(folder.join("machine.txt"), MACHINE).context("cannot write the scenario")?;
    let mut command = match paper_gpu::call(&args(&folder))? {
        Ok(command) => command,
        Err(code) => return Ok(code),
    };
    let output = fs::File::create(folder.join("output.txt")).context("cannot write the output")?;
    command.current_dir(&folder).stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
    let status = command.status().context("cannot start the program")?;
    if !status.success() {
        eprint!("{}", fs::read_to_string(folder.join("output.txt")).unwrap_or_default());
        eprintln!("the training on a GPU that does not exist failed; its files are in {}", folder.display());
        return Ok(code_of(status));
    }
    let record = fs::read_to_string(folder.join("runs/smoke/metrics.jsonl")).context("the run has no record")?;
    let books = fs::read_to_string(folder.join("books.json")).context("the driver wrote no books")?;
    let refused = check(&record, &books).with_context(|| format!("files are in {}", folder.display()))?;
    let secs = start.elapsed().as_secs_f64();
    println!("trained {STEPS} steps through {refused} refused allocations in {secs:.1} s");
    Ok(ExitCode::SUCCESS)
}

fn left_out(why: &str) -> ExitCode {
    println!("the training on a GPU that does not exist was left out: {why}");
    ExitCode::SUCCESS
}

/// Returns the arguments of `cargo xtask paper-gpu`.
fn args(folder: &Path) -> Vec<OsString> {
    let path = |name: &str| folder.join(name).into_os_string();
    let mut args: Vec<OsString> = vec!["--scenario".into(), path("machine.txt"), "--books".into(), path("books.json")];
    args.extend(["--", "train", "--backend", "cuda", "--ui", "lines", "--name", "smoke", "--config"].map(Into::into));
    args.push(root().join("configs/toy_asr.toml").into());
    args.extend(["--steps".into(), STEPS.to_string().into()]);
    args.extend(["--gradient-accumulation-steps", "2", "--batch-size", "4"].map(Into::into));
    args.extend(["--set", "data.corpus_utterances=60", "--set", "data.corpus_speakers=6"].map(Into::into));
    args
}

/// Checks the record of the run and the books of the driver. Returns how many allocations were refused.
fn check(record: &str, books: &str) -> Result<u64> {
    let steps: Vec<&str> = record.lines().filter(|line| line.contains(r#""event":"step""#)).collect();
    ensure!(steps.len() == STEPS, "the record has {} steps instead of {STEPS}", steps.len());
    for step in steps {
        for key in ["launches", "uploads", "peak_bytes"] {
            ensure!(number(step, key).is_some_and(|value| value > 0), "a step has no `{key}`: {step}");
        }
    }
    let refused = number(books, "injected").unwrap_or_default();
    ensure!(refused > 0, "the driver refused no allocation");
    Ok(refused)
}

/// Finds the first number that stands behind `key` in a text of JSON.
pub(crate) fn number(json: &str, key: &str) -> Option<u64> {
    number_behind(json, &format!("\"{key}\":"))
}

/// Finds the first number that stands behind `mark`.
pub(crate) fn number_behind(text: &str, mark: &str) -> Option<u64> {
    let rest = text.split_once(mark)?.1.trim_start();
    let end = rest.find(|char: char| !char.is_ascii_digit()).unwrap_or(rest.len());
    rest[..end].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOOKS: &str = r#"{"gpus": [{"refused": 4, "injected": 4, "x": 0}]}"#;

    fn record(steps: usize, launches: usize) -> String {
        let step = format!(r#"{{"event":"step","launches":{launches},"uploads":25,"peak_bytes":41943040,"cut":0}}"#);
        vec![step; steps].join("\n") + "\n{\"event\":\"validation\"}\n"
    }

    #[test]
    fn record_and_books_are_checked() {
        assert_eq!(check(&record(STEPS, 900), BOOKS).unwrap(), 4);
        assert!(check(&record(STEPS - 1, 900), BOOKS).is_err());
        assert!(check(&record(STEPS, 0), BOOKS).is_err());
        assert!(check(&record(STEPS, 900), r#"{"gpus": [{"injected": 0}]}"#).is_err());
    }
}
