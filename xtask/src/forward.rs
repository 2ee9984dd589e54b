//! Builds the program with the features that its device needs, and replaces this process by it.

use std::env::consts::EXE_SUFFIX;
use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::Result;

use crate::Misuse;
use crate::backend::{self, nvidia_answers};
use crate::build::build_executable;
use crate::cargo::{become_program, target_dir};
use crate::help;

/// Runs `plimsoll` with these arguments, unchanged, in the current folder of the user.
pub(crate) fn run(args: &[OsString]) -> Result<ExitCode> {
    refuse_unknown_command(args)?;
    let variable = std::env::var(backend::VARIABLE).ok();
    let feature = backend::feature(args, variable.as_deref(), nvidia_answers)?;
    let mut build: Vec<OsString> = ["-p", "plimsoll", "--bin", "plimsoll"].map(OsString::from).into();
    if let Some(feature) = feature {
        // A folder for each feature: otherwise the CPU build and this one would replace each other back and forth.
        let target = target_dir()?.join(feature);
        if feature == "cuda" && !target.join("debug").join(format!("plimsoll{EXE_SUFFIX}")).exists() {
            announce_first_cuda_build();
        }
        build.extend(["--features".into(), feature.into(), "--target-dir".into(), target.into()]);
    }
    match build_executable(&build)? {
        Ok(program) => become_program(&program, args),
        Err(code) => {
            if feature.is_some() {
                eprintln!("note: the program runs on the CPU too: add `--backend cpu`");
            }
            Ok(code)
        }
    }
}

/// Refuses a command that the program does not have, before minutes of building.
fn refuse_unknown_command(args: &[OsString]) -> Result<(), Misuse> {
    let texts: Vec<&str> = args.iter().map(|arg| arg.to_str().unwrap_or_default()).collect();
    let Some(name) = backend::command(&texts).filter(|name| !help::is_command(name)) else { return Ok(()) };
    let meant = help::nearest(name).map(|near| format!(", did you mean `{near}`?")).unwrap_or_default();
    Err(Misuse(format!("there is no command `{name}`{meant}\n  `cargo xtask help` lists the commands")))
}

fn announce_first_cuda_build() {
    eprintln!(
        "\
The program has not been built for NVIDIA GPUs here yet.
The first CUDA build takes long, later ones seconds. An interrupted one goes on where it stopped.
To start at once on the CPU, add `--backend cpu` to the same command.
`cargo xtask cuda check` lists what such a build needs, and `cargo xtask cuda setup` makes it.
"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_commands_are_refused_and_others_pass() {
        let check = |line: &str| {
            let args: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
            refuse_unknown_command(&args).map_err(|misuse| misuse.0)
        };
        for line in ["trian", "-v trian", "--backend cpu frobnicate", "train-all --help"] {
            assert!(check(line).unwrap_err().contains("there is no command `"), "{line}");
        }
        assert!(check("trian --steps 3").unwrap_err().contains("did you mean `train`?"));
        for line in
            ["", "train", "-v train", "--version", "help train", "runs list", "gpu-info --json", "--backend cpu eval"]
        {
            assert_eq!(check(line), Ok(()), "{line}");
        }
    }
}
