//! Builds the program with the features that its device needs, and replaces this process by it.

use std::env::consts::EXE_SUFFIX;
use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::Result;

use crate::backend::{self, nvidia_answers};
use crate::cargo::{become_program, build_executable, target_dir};

/// Runs `plimsoll` with these arguments, unchanged, in the current folder of the user.
pub(crate) fn run(args: &[OsString]) -> Result<ExitCode> {
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

fn announce_first_cuda_build() {
    eprintln!(
        "\
The program has not been built for NVIDIA GPUs here yet.
The first CUDA build takes 20 to 30 minutes, later ones seconds. An interrupted one goes on where it stopped.
To start at once on the CPU, add `--backend cpu` to the same command.
"
    );
}
