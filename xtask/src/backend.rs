//! The backend that a command asks for, and the cargo feature that brings it.

use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::Misuse;

/// Environment variable that sets `device.backend`.
pub(crate) const VARIABLE: &str = "PLIMSOLL_DEVICE__BACKEND";
/// Configuration key of the backend, as written after `--set`.
const KEY: &str = "device.backend";

/// A backend, as its name is written after `--backend`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Backend {
    Auto,
    Cpu,
    Cuda,
    Wgpu,
}

/// Whether a command computes on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Work {
    /// The command computes nothing: it reads, writes or plans, and the CPU build can run it on every machine.
    None,
    /// The command judges a machine, and should not wait for the long build of a GPU backend without a word.
    ComputesIfNamed,
    /// The command runs a model on the device.
    Computes,
}

/// Returns the feature of `plimsoll` to build with for these arguments; `None` for the CPU, which is always built.
///
/// `variable` is the value of [`VARIABLE`], and `nvidia_answers` returns whether an NVIDIA driver works. The arguments
/// stay as they are: the program parses them again, and reports mistakes in them.
pub(crate) fn feature(
    args: &[OsString],
    variable: Option<&str>,
    nvidia_answers: impl FnOnce() -> bool,
) -> Result<Option<&'static str>, Misuse> {
    let args: Vec<&str> =
        args.iter().take_while(|arg| *arg != "--").map(|arg| arg.to_str().unwrap_or_default()).collect();
    let backend = Backend::asked_for(&args, variable)?;
    Ok(match (Work::of_command(&args), backend) {
        (Work::None, _) | (_, Backend::Cpu) => None,
        (_, Backend::Wgpu) => Some("wgpu"),
        (_, Backend::Cuda) => Some("cuda"),
        (Work::ComputesIfNamed, Backend::Auto) => None,
        (Work::Computes, Backend::Auto) => nvidia_answers().then_some("cuda"),
    })
}

impl Backend {
    /// Finds the requested backend by the program's rules: the last `--set device.backend=X`, then `--backend X`, then
    /// the environment.
    fn asked_for(args: &[&str], variable: Option<&str>) -> Result<Self, Misuse> {
        let flag = match values(args, "--backend").next() {
            Some(Some(name)) => Some(Self::from_name(name)?),
            Some(None) => return Err(Misuse("`--backend` needs a name: auto, cpu, cuda or wgpu".into())),
            None => None,
        };
        let set = values(args, "--set").flatten().filter_map(|setting| setting.split_once('='));
        let set = set.filter(|(key, _)| key.trim() == KEY).last().map(|(_, value)| value);
        // A wrong name in these two is for the program to report: the CPU build does so without a wait.
        let or_cpu = |value: &str| Self::from_name(value.trim().trim_matches(['"', '\''])).unwrap_or(Self::Cpu);
        let variable = variable.filter(|value| !value.is_empty());
        Ok(set.map(or_cpu).or(flag).or(variable.map(or_cpu)).unwrap_or(Self::Auto))
    }

    fn from_name(name: &str) -> Result<Self, Misuse> {
        match name {
            "auto" => Ok(Self::Auto),
            "cpu" => Ok(Self::Cpu),
            "cuda" => Ok(Self::Cuda),
            "wgpu" => Ok(Self::Wgpu),
            other => Err(Misuse(format!("unknown backend `{other}`: it can be auto, cpu, cuda or wgpu"))),
        }
    }
}

impl Work {
    /// Returns whether the command in these arguments computes on a device. A command that is not listed here does not.
    fn of_command(args: &[&str]) -> Self {
        let has = |flag: &str| args.contains(&flag);
        if ["--help", "-h", "--version", "-V"].iter().any(|flag| has(flag)) {
            return Self::None;
        }
        match command(args) {
            // `advise` trains a configuration for a trial.
            Some("train" | "transcribe" | "align" | "say" | "eval" | "profile" | "advise" | "stress" | "prove") => {
                Self::Computes
            }
            Some("data") if has("segment") => Self::Computes,
            // It computes a product on the device of the configuration.
            Some("doctor") => Self::ComputesIfNamed,
            Some("memtest") if has("--verify") => Self::Computes,
            _ => Self::None,
        }
    }
}

/// Returns the first argument that is neither an option nor the value of an option.
pub(crate) fn command<'a>(args: &[&'a str]) -> Option<&'a str> {
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        match *arg {
            "--backend" | "--set" => _ = args.next(),
            option if option.starts_with('-') => {}
            command => return Some(command),
        }
    }
    None
}

/// Returns the value after each `option`, as `--option X` or `--option=X`; `None` if the arguments end before the
/// value.
fn values<'a>(args: &'a [&'a str], option: &'a str) -> impl Iterator<Item = Option<&'a str>> {
    args.iter().enumerate().filter_map(move |(place, arg)| match arg.strip_prefix(option)? {
        "" => Some(args.get(place + 1).copied()),
        rest => rest.strip_prefix('=').map(Some),
    })
}

/// Returns whether an NVIDIA driver works on this machine.
pub(crate) fn nvidia_answers() -> bool {
    // The file costs nothing to look for; containers and Windows may lack it and still have the tool.
    Path::new("/proc/driver/nvidia/version").exists()
        || Command::new("nvidia-smi")
            .arg("-L")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|status| status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the feature for a command line, or the error message for it. `nvidia`: whether an NVIDIA driver works.
    fn feature_of(line: &str, variable: Option<&str>, nvidia: bool) -> Result<Option<&'static str>, String> {
        let args: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
        feature(&args, variable, || nvidia).map_err(|misuse| misuse.0)
    }

    #[test]
    fn commands_that_run_a_model_take_the_gpu() {
        for line in [
            "train",
            "train --resume runs/a",
            // Its plan is that of the run, for the device that the run would take.
            "train --dry-run",
            "train --backend auto --epochs 3",
            "-v train",
            "transcribe a.wav --run runs/a",
            "align a.wav text --run runs/a",
            "data segment a.wav a.txt --run runs/a --out a",
            "say hello --run runs/a",
            "eval --run runs/a",
            "profile --config a.toml",
            "advise --config a.toml --verify 40",
            "stress --minutes 5",
            "prove --minutes 5",
            "memtest --verify",
            "memtest --config a.toml --verify --batch 4",
            "say --run runs/a -- --help",
        ] {
            assert_eq!(feature_of(line, None, true), Ok(Some("cuda")), "{line}");
            assert_eq!(feature_of(line, None, false), Ok(None), "{line}");
        }
    }

    #[test]
    fn other_commands_never_build_for_a_gpu() {
        for line in [
            "",
            "--help",
            "--version",
            "-V",
            "help",
            "help train",
            "gpu-info",
            "gpu-info --json",
            "optimize --config a.toml --output b.toml",
            "memtest",
            "memtest --gpu t4",
            "runs list",
            "data import corpus",
            "config print",
            "corpus make --out corpus",
            "model info",
            "export --run runs/a --out b",
            "monitor",
            "unknown",
            "train --help",
            "stress --help",
            "doctor --help",
            "doctor",
            "doctor --json",
            "report runs/a",
            "memtest --verify -h",
            "transcribe --help",
        ] {
            assert_eq!(feature_of(line, None, true), Ok(None), "{line}");
        }
        for line in ["config print", "memtest", "model info", "train --help", "--help"] {
            assert_eq!(feature_of(&format!("{line} --backend cuda"), Some("cuda"), true), Ok(None), "{line}");
        }
    }

    #[test]
    fn the_cpu_is_always_the_cpu() {
        for (line, variable) in [
            ("train --backend cpu", None),
            ("train --backend=cpu", Some("cuda")),
            ("--backend cpu train", None),
            ("train --set device.backend=cpu", None),
            ("train --set=device.backend=cpu", None),
            ("train --set device.backend=\"cpu\"", None),
            ("train --backend cuda --set device.backend=cpu", None),
            ("train --set device.backend=cpu --backend cuda", None),
            ("train --set device.backend=cuda --set device.backend=cpu", None),
            ("train", Some("cpu")),
            ("eval --run runs/a", Some("cpu")),
            ("memtest --verify --backend cpu", None),
        ] {
            assert_eq!(feature_of(line, variable, true), Ok(None), "{line} {variable:?}");
        }
    }

    #[test]
    fn a_backend_that_is_named_is_built() {
        for (line, variable, expected) in [
            ("train --backend cuda", None, "cuda"),
            ("train --epochs 3 --backend=cuda --seed 1", None, "cuda"),
            ("--backend wgpu eval", None, "wgpu"),
            ("memtest --verify --backend wgpu", None, "wgpu"),
            ("doctor --backend cuda", None, "cuda"),
            ("train --set device.backend=wgpu", None, "wgpu"),
            ("train", Some("wgpu"), "wgpu"),
            ("train --backend cuda", Some("cpu"), "cuda"),
            ("train --dry-run --backend cuda", None, "cuda"),
        ] {
            assert_eq!(feature_of(line, variable, false), Ok(Some(expected)), "{line} {variable:?}");
        }
    }

    #[test]
    fn what_only_looks_like_a_backend_is_none() {
        for (line, variable) in [
            ("train -- --backend wgpu", None),
            ("train --backends wgpu", None),
            ("train --set device.backends=wgpu", None),
            ("train --set data.manifest=wgpu", Some("")),
        ] {
            assert_eq!(feature_of(line, variable, true), Ok(Some("cuda")), "{line} {variable:?}");
        }
    }

    #[test]
    fn wrong_names_are_refused_without_a_gpu_build() {
        let known = "it can be auto, cpu, cuda or wgpu";
        for (line, message) in [
            ("train --backend metal", format!("unknown backend `metal`: {known}")),
            ("train --backend=", format!("unknown backend ``: {known}")),
            ("train --backend", "`--backend` needs a name: auto, cpu, cuda or wgpu".to_owned()),
        ] {
            assert_eq!(feature_of(line, None, true), Err(message), "{line}");
        }
        assert_eq!(feature_of("train --set device.backend=metal", None, true), Ok(None));
        assert_eq!(feature_of("train", Some("metal"), true), Ok(None));
    }
}
