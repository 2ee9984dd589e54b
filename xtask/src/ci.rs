//! Runs the checks of the continuous integration, cheapest first.

use std::fs;
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::Misuse;
use crate::cargo::{cargo, code_of, has_command, root, target_dir};
use crate::cuda;
use crate::mpi;
use crate::test::Wish;
use crate::tidy;

struct Step {
    name: &'static str,
    /// Command that repeats a failure of the step.
    repeat: &'static str,
    run: fn() -> Result<ExitCode>,
}

const STEPS: &[Step] = &[
    Step { name: "fmt", repeat: "cargo fmt --all -- --check", run: || call("fmt --all -- --check", None) },
    Step { name: "tidy", repeat: "cargo xtask tidy", run: || tidy::run(&[]) },
    Step {
        name: "clippy",
        repeat: "cargo clippy --workspace --all-targets -- -D warnings",
        run: || call("clippy --workspace --all-targets --locked -- -D warnings", None),
    },
    Step { name: "test", repeat: "cargo xtask test", run: || Wish { locked: true, ..Wish::here() }.fulfil() },
    Step { name: "mpi", repeat: "cargo xtask ci --mpi", run: mpi::step },
    Step {
        name: "docs",
        repeat: "RUSTDOCFLAGS='-D warnings' cargo doc --workspace --no-deps",
        run: || call("doc --workspace --no-deps --locked", Some(("RUSTDOCFLAGS", "-D warnings"))),
    },
    Step {
        name: "package",
        repeat: "cargo package --workspace --exclude xtask --no-verify --offline --allow-dirty",
        run: package,
    },
];

/// Runs `cargo xtask ci [--cuda | --mpi | --image [cpu|cuda]]`.
pub(crate) fn run(args: &[String]) -> Result<ExitCode> {
    match args {
        [] => run_steps(),
        [flag] if flag == "--cuda" => run_cuda(),
        [flag] if flag == "--mpi" => mpi::run(),
        [flag] if flag == "--image" => run_image("cpu"),
        [flag, backend] if flag == "--image" => run_image(backend),
        other => {
            let wish = format!("`cargo xtask ci` takes --cuda, --mpi or --image, but got `{}`", other.join(" "));
            Err(Misuse(wish).into())
        }
    }
}

/// Builds the image of the Dockerfile, and tries it. The exit code is 2 if something is missing for it.
fn run_image(backend: &str) -> Result<ExitCode> {
    let status = Command::new("bash").arg(root().join("xtask/image.sh")).arg(backend).status();
    Ok(code_of(status.context("cannot start bash")?))
}

/// Runs the steps of the checks and stops at the first step that fails.
fn run_steps() -> Result<ExitCode> {
    for (command, component) in [("fmt", "rustfmt"), ("clippy", "clippy")] {
        if !has_command(command) {
            bail!("`cargo {command}` is missing here: install it with `rustup component add {component}`");
        }
    }
    let mut times = Vec::new();
    for Step { name, repeat, run } in STEPS {
        println!("\n== {name}");
        let start = Instant::now();
        let code = run()?;
        let secs = start.elapsed().as_secs_f64();
        if code != ExitCode::SUCCESS {
            println!("== {name} failed after {secs:.1} s; to repeat it: {repeat}");
            return Ok(code);
        }
        println!("== {name} passed in {secs:.1} s");
        times.push(format!("{name} {secs:.1} s"));
    }
    println!("\nci passed: {}", times.join(", "));
    Ok(ExitCode::SUCCESS)
}

/// Packs every crate, without compiling the packages.
fn package() -> Result<ExitCode> {
    call("package --workspace --exclude xtask --no-verify --offline --allow-dirty --quiet", None)
}

fn call(args: &str, env: Option<(&str, &str)>) -> Result<ExitCode> {
    let status = cargo().args(args.split(' ')).envs(env).status().context("cannot start cargo")?;
    Ok(code_of(status))
}

/// Arguments of cargo for the types and lints of the build with CUDA.
const CUDA_CLIPPY: &str = "clippy -p plimsoll --features cuda --all-targets --locked";

/// How the types of the build with CUDA can be checked.
#[derive(Clone, Debug, PartialEq, Eq)]
enum CudaCheck {
    /// With the folder of LLVM, as a build does it.
    WithLlvm,
    /// Without LLVM. Nothing is linked while types are checked, so LLVM's archives are not needed. The two build scripts
    /// that look for them, those of tracel-llvm-bundler 23.1.0-4 and of cubecl-llvm 0.11.3, return at once when `DOCS_RS`
    /// is set; that of llvm-sys 231 returns at once in any case, with the features that cubecl-llvm chooses.
    WithoutLlvm,
    /// Not here: what is missing, and how to get it.
    Missing(String),
}

impl CudaCheck {
    /// Decides. `has_linker` returns whether a C compiler starts: build scripts are programs, and are linked.
    fn new(has_clippy: bool, has_linker: bool, has_llvm: bool) -> Self {
        match (has_clippy, has_linker, has_llvm) {
            (false, ..) => Self::Missing("`cargo clippy`: install it with `rustup component add clippy`".into()),
            (_, false, _) => Self::Missing("`cc`: install it with `sudo apt-get install build-essential`".into()),
            (true, true, true) => Self::WithLlvm,
            (true, true, false) => Self::WithoutLlvm,
        }
    }
}

/// Checks types and lints of the build with CUDA, in a target folder of its own: the variable would make cargo run the
/// build scripts of a real build again. The exit code is 2 if something is missing for it.
fn run_cuda() -> Result<ExitCode> {
    let lock = root().join("Cargo.lock");
    let lock = fs::read_to_string(&lock).with_context(|| format!("cannot read {}", lock.display()))?;
    let mut compiler = Command::new("cc");
    compiler.arg("--version").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let has_linker = compiler.status().is_ok_and(|status| status.success());
    let check = CudaCheck::new(has_command("clippy"), has_linker, cuda::has_llvm(&lock)?);
    let mut command = cargo();
    command.args(CUDA_CLIPPY.split(' ')).arg("--target-dir").arg(target_dir()?.join("ci-cuda"));
    match check {
        CudaCheck::Missing(what) => {
            eprintln!("the build with CUDA cannot be checked here; missing: {what}");
            return Ok(ExitCode::from(2));
        }
        CudaCheck::WithLlvm => println!("== clippy of the build with CUDA"),
        CudaCheck::WithoutLlvm => {
            println!("== clippy of the build with CUDA, without LLVM: types and lints only");
            command.env("DOCS_RS", "1");
        }
    }
    let status = command.args(["--", "-D", "warnings"]).status().context("cannot start cargo")?;
    Ok(code_of(status))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_checked_without_llvm_too() {
        for bits in 0_u32..8 {
            let (clippy, linker, llvm) = (bits & 1 != 0, bits & 2 != 0, bits & 4 != 0);
            match CudaCheck::new(clippy, linker, llvm) {
                CudaCheck::WithLlvm => assert!(clippy && linker && llvm),
                CudaCheck::WithoutLlvm => assert!(clippy && linker && !llvm),
                CudaCheck::Missing(what) => {
                    assert!(!clippy || !linker);
                    assert!(what.contains("install it with"), "{what}");
                }
            }
        }
    }

    #[test]
    fn wrong_arguments_are_refused() {
        for args in [&["--gpu"][..], &["--cuda", "--json"]] {
            let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
            assert!(run(&args).unwrap_err().is::<Misuse>(), "{args:?}");
        }
    }
}
