//! Runs a measurement: an example named `bench_NAME` in whichever crate has it.

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result};

use crate::Misuse;
use crate::build::build_executable;
use crate::cargo::{become_program, root};

struct Bench {
    name: String,
    about: String,
}

/// Runs `cargo xtask bench [NAME [args]]`; without a name it lists the benchmarks.
pub(crate) fn run(args: &[OsString]) -> Result<ExitCode> {
    let benches = find(&root())?;
    let Some((name, rest)) = args.split_first() else {
        list(&benches);
        return Ok(ExitCode::SUCCESS);
    };
    let name = name.to_string_lossy();
    if !benches.iter().any(|bench| bench.name == name) {
        list(&benches);
        return Err(Misuse(format!("there is no measurement named `{name}`")).into());
    }
    // Not `cargo run -p its-crate`: one crate alone resolves other features of what Burn uses, and compiles it again.
    match build_executable(&["--workspace", "--example", &format!("bench_{name}")])? {
        Ok(program) => become_program(&program, rest),
        Err(code) => Ok(code),
    }
}

fn list(benches: &[Bench]) {
    if benches.is_empty() {
        println!("there are no measurements yet: write one as crates/CRATE/examples/bench_NAME.rs");
    }
    for Bench { name, about } in benches {
        println!("{name:<20} {about}");
    }
}

fn find(root: &Path) -> Result<Vec<Bench>> {
    let mut benches = Vec::new();
    for krate in fs::read_dir(root.join("crates")).context("cannot list crates/")? {
        let Ok(examples) = fs::read_dir(krate?.path().join("examples")) else { continue };
        for example in examples {
            let path = example?.path();
            let Some(name) = path.file_name().and_then(|name| name.to_str()).and_then(bench_name) else { continue };
            let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
            let about = text.lines().next().unwrap_or_default().trim_start_matches("//!").trim();
            benches.push(Bench { name: name.to_owned(), about: about.to_owned() });
        }
    }
    benches.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(benches)
}

fn bench_name(file: &str) -> Option<&str> {
    file.strip_prefix("bench_")?.strip_suffix(".rs")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knows_a_measurement_by_its_file_name() {
        for (file, expected) in
            [("bench_remat.rs", Some("remat")), ("remat.rs", None), ("bench_remat.txt", None), ("bench_.rs", Some(""))]
        {
            assert_eq!(bench_name(file), expected, "{file}");
        }
    }
}
