//! The device a run asks for, and the cargo feature that brings its backend.

use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::Misuse;

/// What a person writes after `--backend`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Backend {
    Auto,
    Cpu,
    Cuda,
    Wgpu,
}

impl Backend {
    /// Reads `--backend X` or `--backend=X` wherever it stands before a `--`. Without one, `Auto`.
    ///
    /// The option stays among the arguments: the program reads it again, and reports one that is given twice.
    pub(crate) fn from_args(args: &[OsString]) -> Result<Self, Misuse> {
        let mut args = args.iter().take_while(|arg| *arg != "--");
        while let Some(arg) = args.next() {
            let Some(text) = arg.to_str() else { continue };
            if let Some(name) = text.strip_prefix("--backend=") {
                return Self::from_name(name);
            }
            if text == "--backend" {
                return match args.next() {
                    Some(name) => Self::from_name(&name.to_string_lossy()),
                    None => Err(Misuse("`--backend` needs a name: auto, cpu, cuda or wgpu".into())),
                };
            }
        }
        Ok(Self::Auto)
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

    /// The feature of `plimsoll` to build with; the CPU is always there and needs none.
    pub(crate) fn feature(self, nvidia_answers: impl FnOnce() -> bool) -> Option<&'static str> {
        match self {
            Self::Cpu => None,
            Self::Wgpu => Some("wgpu"),
            Self::Cuda => Some("cuda"),
            Self::Auto => nvidia_answers().then_some("cuda"),
        }
    }
}

/// Whether an NVIDIA driver answers on this machine.
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

    fn check(line: &str, expected: Result<Backend, &str>) {
        let args: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
        let found = Backend::from_args(&args).map_err(|misuse| misuse.0);
        assert_eq!(found, expected.map_err(str::to_owned), "{line}");
    }

    #[test]
    fn reads_the_backend_wherever_it_stands() {
        check("train", Ok(Backend::Auto));
        check("train --backend cpu", Ok(Backend::Cpu));
        check("train --epochs 3 --backend=cuda --seed 1", Ok(Backend::Cuda));
        check("--backend wgpu memtest", Ok(Backend::Wgpu));
        check("train --backend auto", Ok(Backend::Auto));
        check("train -- --backend cuda", Ok(Backend::Auto));
        check("train --backends cuda", Ok(Backend::Auto));
    }

    #[test]
    fn refuses_what_it_does_not_know() {
        check("train --backend metal", Err("unknown backend `metal`: it can be auto, cpu, cuda or wgpu"));
        check("train --backend=", Err("unknown backend ``: it can be auto, cpu, cuda or wgpu"));
        check("train --backend", Err("`--backend` needs a name: auto, cpu, cuda or wgpu"));
    }

    #[test]
    fn auto_follows_the_driver() {
        assert_eq!(Backend::Auto.feature(|| true), Some("cuda"));
        assert_eq!(Backend::Auto.feature(|| false), None);
        assert_eq!(Backend::Cpu.feature(|| true), None);
        assert_eq!(Backend::Cuda.feature(|| false), Some("cuda"));
    }
}
