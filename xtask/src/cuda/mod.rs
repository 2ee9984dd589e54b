//! `cargo xtask cuda`: finds out whether builds with CUDA and their runs work here, and makes what they need.
//!
//! A build links LLVM statically, from a folder in the user's data folder. A run loads the driver's library and reads
//! `libdevice.10.bc`. No CUDA toolkit is needed: the backend writes PTX by itself, and the driver compiles it.

mod bundle;
mod facts;
mod findings;
#[cfg(test)]
mod findings_tests;
mod install;
pub(crate) mod libdevice;
mod loader;
mod means;
mod page;
mod plan;
mod process;
mod record;
mod setup;
mod sha256;
mod versions;

use std::process::ExitCode;

use anyhow::{Context, Result};

use self::bundle::Bundle;
use self::facts::Facts;
use self::findings::{Status, judge};
use self::plan::{LibdeviceWay, LlvmWay};
use self::setup::Wish;
use crate::Misuse;

/// What the command line asks for.
#[derive(Debug, PartialEq, Eq)]
enum Task {
    Check { json: bool },
    Setup(Wish),
}

/// Runs `cargo xtask cuda setup` or `cargo xtask cuda check`.
pub(crate) fn run(args: &[String]) -> Result<ExitCode> {
    match parse(args)? {
        Task::Check { json } => check(json),
        Task::Setup(wish) => setup::run(&wish),
    }
}

/// Prints the findings. The exit code is 1 if one of them is a failure.
fn check(json: bool) -> Result<ExitCode> {
    let findings = judge(&Facts::read()?);
    match json {
        true => println!("{}", page::json(&findings)),
        false => print!("{}", page::text(&findings)),
    }
    let fails = findings.iter().any(|finding| finding.status == Status::Fail);
    Ok(if fails { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Returns whether the folder of LLVM that a build links is complete. `lock` is the text of `Cargo.lock`.
///
/// # Errors
/// If there is no home folder, or the lock file does not name the crate that links LLVM.
pub(crate) fn has_llvm(lock: &str) -> Result<bool> {
    let variable = |name: &str| std::env::var_os(name).map(std::path::PathBuf::from);
    let data_home = libdevice::data_home(variable("XDG_DATA_HOME").as_deref(), variable("HOME").as_deref());
    Ok(Bundle::find(lock, &data_home.context("HOME is not set")?)?.state == bundle::State::Complete)
}

fn parse(args: &[String]) -> Result<Task, Misuse> {
    let Some((command, rest)) = args.split_first() else {
        return Err(Misuse("`cargo xtask cuda` needs a command: setup or check".into()));
    };
    match command.as_str() {
        "check" => match rest {
            [] => Ok(Task::Check { json: false }),
            [flag] if flag == "--json" => Ok(Task::Check { json: true }),
            other => Err(Misuse(format!("`cargo xtask cuda check` takes only --json, but got `{}`", other.join(" ")))),
        },
        "setup" => parse_setup(rest).map(Task::Setup),
        other => Err(Misuse(format!("there is no `cargo xtask cuda {other}`: it can be setup or check"))),
    }
}

fn parse_setup(args: &[String]) -> Result<Wish, Misuse> {
    let mut wish = Wish { llvm: LlvmWay::Auto, libdevice: LibdeviceWay::Auto, dry_run: false, json: false };
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let (flag, attached) = match arg.split_once('=') {
            Some((flag, value)) => (flag, Some(value.to_owned())),
            None => (arg.as_str(), None),
        };
        match (flag, &attached) {
            ("--dry-run", None) => wish.dry_run = true,
            ("--json", None) => wish.json = true,
            ("--llvm" | "--libdevice", _) => {
                let value = attached.or_else(|| args.next().cloned()).filter(|value| !value.is_empty());
                let value = value.ok_or_else(|| Misuse(format!("`{flag}` needs a value")))?;
                match flag {
                    "--llvm" => wish.llvm = llvm_way(&value)?,
                    _ => wish.libdevice = libdevice_way(value),
                }
            }
            _ => {
                let known = "--llvm auto|download|debian, --libdevice auto|pip|PATH, --dry-run, --json";
                return Err(Misuse(format!("unknown argument `{arg}`: it can be {known}")));
            }
        }
    }
    Ok(wish)
}

fn llvm_way(value: &str) -> Result<LlvmWay, Misuse> {
    match value {
        "auto" => Ok(LlvmWay::Auto),
        "download" => Ok(LlvmWay::Download),
        "debian" => Ok(LlvmWay::Debian),
        other => Err(Misuse(format!("`--llvm {other}`: it can be auto, download or debian"))),
    }
}

fn libdevice_way(value: String) -> LibdeviceWay {
    match value.as_str() {
        "auto" => LibdeviceWay::Auto,
        "pip" => LibdeviceWay::Pip,
        _ => LibdeviceWay::Path(value.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Task, String> {
        let args: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        parse(&args).map_err(|misuse| misuse.0)
    }

    #[test]
    fn arguments_choose_the_task() {
        let wish = Wish { llvm: LlvmWay::Auto, libdevice: LibdeviceWay::Auto, dry_run: false, json: false };
        let setup = |change: fn(&mut Wish)| {
            let mut wish = wish.clone();
            change(&mut wish);
            Ok(Task::Setup(wish))
        };
        assert_eq!(parsed("check"), Ok(Task::Check { json: false }));
        assert_eq!(parsed("check --json"), Ok(Task::Check { json: true }));
        assert_eq!(parsed("setup"), setup(|_| {}));
        assert_eq!(parsed("setup --dry-run --json"), setup(|wish| (wish.dry_run, wish.json) = (true, true)));
        assert_eq!(parsed("setup --llvm debian"), setup(|wish| wish.llvm = LlvmWay::Debian));
        assert_eq!(parsed("setup --llvm=download"), setup(|wish| wish.llvm = LlvmWay::Download));
        assert_eq!(parsed("setup --libdevice pip"), setup(|wish| wish.libdevice = LibdeviceWay::Pip));
        assert_eq!(
            parsed("setup --libdevice=/opt/cuda"),
            setup(|wish| wish.libdevice = LibdeviceWay::Path("/opt/cuda".into()))
        );
    }

    #[test]
    fn wrong_arguments_are_refused_with_what_is_right() {
        for (line, word) in [
            ("", "setup or check"),
            ("install", "setup or check"),
            ("check --all", "--json"),
            ("setup --llvm", "needs a value"),
            ("setup --llvm=", "needs a value"),
            ("setup --llvm clang", "auto, download or debian"),
            ("setup --force", "--dry-run"),
            ("setup --json=yes", "--dry-run"),
            ("setup path", "--libdevice"),
        ] {
            let error = parsed(line).unwrap_err();
            assert!(error.contains(word), "{line}: {error}");
        }
    }
}
