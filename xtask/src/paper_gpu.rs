//! Runs the program on GPUs that do not exist: with a CUDA driver and a management library that stand in for NVIDIA's.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};

use crate::Misuse;
use crate::backend;
use crate::build::build_executable;
use crate::cargo::{become_command, call_of, cargo, code_of, library_paths, target_dir};
use crate::cuda::libdevice;

mod catalog;
mod options;
mod scenario;

use options::Options;
use scenario::Scenarios;

/// Libraries with the names by which programs load them.
const LINKS: [(&str, &str); 3] =
    [("libcuda.so", "stand_in_cuda"), ("libcuda.so.1", "stand_in_cuda"), ("libnvidia-ml.so.1", "stand_in_nvml")];

/// Text about the command and its options.
pub(crate) const HELP: &str = "\
Runs Plimsoll on GPUs that do not exist: memory is refused as there, kernels do nothing.

cargo xtask paper-gpu [OPTIONS] -- COMMAND...     such as `-- memtest --verify --config FILE`
cargo xtask paper-gpu --soak [--steps N] [--program FILE]
                                                  train for a long time through refused memory, neighbors and faults

  --gpu NAME|SIZE    GPU by name (t4, 3060, h100) or memory (8GiB); default 3060
  --sm N             compute capability, such as 86; default: that of the GPU, 86 for a size
  --count N          number of GPUs, 1 to 8; default 1
  --others SIZE      memory of other processes on each GPU; default 0
  --books FILE       write the books of memory and work as JSON; %p is the number of the process
  --ptxas FILE       compile each kernel with NVIDIA's assembler, as the driver would: books then have registers and
                     spills by kernel; `pip download nvidia-cuda-nvcc-cu12` has the assembler
  --scenario FILE    the machine as a scenario of testing/stand-in-cuda, instead of the four options above
  --program FILE     run this program instead of building Plimsoll for CUDA

Burn compiles kernels with libdevice.10.bc, which `cargo xtask cuda setup` gets. The libraries, their scenarios and the README of testing/stand-in-cuda say what is true of
such a GPU, what is assumed and what is made up.
";

/// Runs `cargo xtask paper-gpu`.
pub(crate) fn run(args: &[OsString]) -> Result<ExitCode> {
    if args.iter().take_while(|arg| *arg != "--").any(|arg| arg == "--help" || arg == "-h") {
        print!("{HELP}");
        return Ok(ExitCode::SUCCESS);
    }
    match call(args)? {
        Ok(command) => become_command(command),
        Err(code) => Ok(code),
    }
}

/// Makes the call of the program that the arguments of `cargo xtask paper-gpu` ask for, or returns the exit code of cargo
/// if a build fails.
pub(crate) fn call(args: &[OsString]) -> Result<Result<Command, ExitCode>> {
    let options = Options::parse(args)?;
    if !cfg!(target_os = "linux") {
        bail!("the libraries stand in for those of Linux only");
    }
    let folder = target_dir()?.join("paper-gpu");
    let scenarios = Scenarios::new(&options, &folder.join("kernels"))?;
    let libraries = match build_libraries()? {
        Ok(folder) => folder,
        Err(code) => return Ok(Err(code)),
    };
    let folder = folder.join(&scenarios.name);
    prepare(&folder, &libraries, &scenarios).with_context(|| format!("cannot prepare {}", folder.display()))?;
    let program = match &options.program {
        Some(program) => program.clone(),
        None => match build_program()? {
            Ok(program) => program,
            Err(code) => return Ok(Err(code)),
        },
    };
    if !libdevice::is_found() {
        eprintln!("note: kernels cannot be compiled without libdevice.10.bc: `cargo xtask cuda setup` gets it");
    }
    let mut command = call_of(&program, &options.command);
    command.envs(variables(&folder, &scenarios)?);
    Ok(Ok(command))
}

/// Builds the libraries, and returns their folder or the exit code of cargo.
fn build_libraries() -> Result<Result<PathBuf, ExitCode>> {
    let target = target_dir()?;
    let mut command = cargo();
    command.args(["build", "--quiet", "-p", "stand-in-cuda", "-p", "stand-in-nvml", "--target-dir"]).arg(&target);
    let status = command.status().context("cannot start cargo")?;
    Ok(if status.success() { Ok(target.join("debug")) } else { Err(code_of(status)) })
}

/// Returns whether Plimsoll was built for CUDA before, in the folder that `cargo xtask` uses for it.
pub(crate) fn is_program_built() -> Result<bool> {
    Ok(cfg!(target_os = "linux") && target_dir()?.join("cuda/debug/plimsoll").is_file())
}

/// Builds Plimsoll for CUDA, in the folder that `cargo xtask` uses for it.
fn build_program() -> Result<Result<PathBuf, ExitCode>> {
    let mut build: Vec<OsString> =
        ["-p", "plimsoll", "--bin", "plimsoll", "--features", "cuda"].map(OsString::from).into();
    build.extend(["--target-dir".into(), target_dir()?.join("cuda").into()]);
    build_executable(&build)
}

/// Writes the scenarios and links the libraries. The folder has a name that follows from the scenarios, so that runs on
/// the same machine share it.
fn prepare(folder: &Path, libraries: &Path, scenarios: &Scenarios) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    fs::write(folder.join("cuda.txt"), &scenarios.cuda)?;
    fs::write(folder.join("nvml.txt"), &scenarios.nvml)?;
    for (link, library) in LINKS {
        let link = folder.join(link);
        if fs::symlink_metadata(&link).is_ok() {
            fs::remove_file(&link)?;
        }
        link_to(&libraries.join(format!("lib{library}.so")), &link)?;
    }
    Ok(())
}

#[cfg(unix)]
fn link_to(library: &Path, link: &Path) -> io::Result<()> {
    match std::os::unix::fs::symlink(library, link) {
        // Another run has made it in this moment.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other,
    }
}

#[cfg(not(unix))]
fn link_to(library: &Path, link: &Path) -> io::Result<()> {
    fs::copy(library, link).map(|_| ())
}

/// Returns the variables of the program's environment.
fn variables(folder: &Path, scenarios: &Scenarios) -> Result<Vec<(&'static str, OsString)>> {
    let paths = std::iter::once(folder.to_owned()).chain(library_paths("LD_LIBRARY_PATH"));
    let paths = env::join_paths(paths)?;
    let mut variables = vec![
        ("LD_LIBRARY_PATH", paths),
        ("STAND_IN_CUDA", folder.join("cuda.txt").into()),
        ("STAND_IN_NVML", folder.join("nvml.txt").into()),
        // CubeCL keeps its choices of kernels and compiled kernels in the database NAME.db. What it chose by made-up
        // times must never serve on a GPU.
        ("CUBECL_ENVIRONMENT", environment(env::var_os("CUBECL_ENVIRONMENT").as_deref(), &scenarios.choices)),
    ];
    if env::var_os(backend::VARIABLE).is_none_or(|value| value.is_empty()) {
        variables.push((backend::VARIABLE, "cuda".into()));
    }
    Ok(variables)
}

/// Returns the name of CubeCL's environment: that of the user, if there is one, and what decides the choices.
fn environment(user: Option<&OsStr>, choices: &str) -> OsString {
    let mut name = user.map(OsStr::to_owned).filter(|name| !name.is_empty()).unwrap_or_default();
    if !name.is_empty() {
        name.push("-");
    }
    name.push("stand-in-");
    name.push(choices);
    name
}

/// Hash of a text (FNV-1a) as hexadecimal digits.
fn hash(text: &str) -> String {
    let add = |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    format!("{:016x}", text.bytes().fold(0xcbf2_9ce4_8422_2325, add))
}

/// Error of a wrong option.
fn misuse(text: String) -> anyhow::Error {
    Misuse(format!("{text}\n  `cargo xtask paper-gpu --help` shows the options")).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn environments_are_apart_from_those_of_gpus() {
        let check = |user: Option<&str>, expected: &str| {
            assert_eq!(environment(user.map(OsStr::new), "1f"), expected);
        };
        check(None, "stand-in-1f");
        check(Some(""), "stand-in-1f");
        check(Some("mine"), "mine-stand-in-1f");
    }
}
