//! Help that lists what a command uses. All flags of the configuration are accepted by every command that reads one, because
//! they are checked alike; most have an effect in a few commands only.

use clap::{Args, Command};
use plimsoll_config::ConfigArgs;

/// Flag that lists the hidden flags, too.
pub(super) const HELP_ALL: &str = "--help-all";

/// Flags of commands that find runs.
const FINDS_RUNS: &[&str] = &["config", "set"];
/// Flags of commands that read a corpus.
const READS_CORPUS: &[&str] = &["config", "set", "task", "manifest"];
/// Flags of commands that look at the machine.
const LOOKS_AT_MACHINE: &[&str] = &["config", "set", "task", "manifest", "device", "backend", "precision"];
/// Flags of commands that look at a model and its memory.
const LOOKS_AT_MODEL: &[&str] = &[
    "config",
    "set",
    "task",
    "manifest",
    "device",
    "backend",
    "precision",
    "batch_size",
    "gradient_accumulation_steps",
    "max_memory",
    "d_model",
    "encoder_layers",
    "decoder_layers",
];

/// Commands whose help lists some flags of the configuration only, with these flags.
const FITTING: [(&[&str], &[&str]); 15] = [
    (&["monitor"], FINDS_RUNS),
    (&["report"], FINDS_RUNS),
    (&["gpu-info"], FINDS_RUNS),
    (&["runs", "list"], FINDS_RUNS),
    (&["runs", "show"], FINDS_RUNS),
    (&["runs", "compare"], FINDS_RUNS),
    (&["data", "check"], READS_CORPUS),
    (&["data", "import"], READS_CORPUS),
    (&["data", "stats"], READS_CORPUS),
    (&["data", "pack"], READS_CORPUS),
    (&["data", "index"], READS_CORPUS),
    (&["doctor"], LOOKS_AT_MACHINE),
    (&["model", "info"], LOOKS_AT_MODEL),
    (&["memtest"], LOOKS_AT_MODEL),
    (&["optimize"], LOOKS_AT_MODEL),
];

/// Hides the flags of the configuration that a command has no use for from its help.
pub(super) fn with_fitting_help(program: Command) -> Command {
    FITTING.into_iter().fold(program, |program, (path, kept)| hide(program, path, kept))
}

fn hide(command: Command, path: &[&str], kept: &[&str]) -> Command {
    let Some((first, rest)) = path.split_first() else { return without(command, kept) };
    // Not `mut_subcommand`, which puts the command behind all others.
    command.mut_subcommands(|inner| if inner.get_name() == *first { hide(inner, rest, kept) } else { inner })
}

fn without(command: Command, kept: &[&str]) -> Command {
    let all = ConfigArgs::augment_args(Command::new(""));
    let of_config = |id: &str| all.get_arguments().any(|arg| arg.get_id() == id);
    command
        .mut_args(|arg| {
            let id = arg.get_id().as_str();
            let is_hidden = of_config(id) && !kept.contains(&id) || arg.is_hide_set();
            arg.hide(is_hidden)
        })
        .after_help(format!(
            "{HELP_ALL} lists the other flags of the configuration, which are accepted and checked here, too."
        ))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::cli::Cli;

    #[test]
    fn every_named_command_and_flag_exists() {
        let program = with_fitting_help(Cli::command());
        for (path, kept) in FITTING {
            let command = path.iter().fold(&program, |command, name| command.find_subcommand(name).unwrap());
            for flag in kept {
                let arg = command.get_arguments().find(|arg| arg.get_id() == flag);
                assert!(arg.is_some_and(|arg| !arg.is_hide_set()), "{path:?}: {flag}");
            }
        }
    }
}
