//! Runs the checks of the continuous integration, cheapest first.

use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::cargo::{cargo, code_of, has_command};
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

/// Runs the steps of the checks and stops at the first step that fails.
pub(crate) fn run() -> Result<ExitCode> {
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
