//! `plimsoll config`: print, validate, path.

use std::io::Write;

use miette::IntoDiagnostic;

use super::arguments::ConfigArgs;
use super::environment::{self, PREFIX, RESERVED};
use super::file::built_in_name;
use super::load::{Loaded, load, task_of};
use super::print;
use super::words::Task;

/// What to do with the configuration.
#[derive(Clone, Debug, PartialEq, Eq, clap::Subcommand)]
pub enum ConfigCommand {
    /// Prints the whole configuration, and where each value came from.
    Print {
        /// Prints JSON instead of commented TOML.
        #[arg(long)]
        json: bool,
        /// What to print.
        #[command(flatten)]
        config: ConfigArgs,
    },
    /// Says whether the configuration is valid, and what it would train.
    Validate {
        /// What to validate.
        #[command(flatten)]
        config: ConfigArgs,
    },
    /// Says which file, environment variables and flags are looked at, and which set something.
    Path {
        /// What to look at.
        #[command(flatten)]
        config: ConfigArgs,
    },
}

impl ConfigCommand {
    /// Runs the command under `environment` and writes what it has to say to `out`.
    ///
    /// A mistake in the configuration comes back as a [`super::ConfigError`] inside the report.
    pub fn run(self, environment: impl Iterator<Item = (String, String)>, out: &mut dyn Write) -> miette::Result<()> {
        let text = match self {
            Self::Print { json: true, config } => print::to_json(&load(&config, environment)?),
            Self::Print { json: false, config } => print::to_toml(&load(&config, environment)?),
            Self::Validate { config } => summary(&config, &load(&config, environment)?),
            Self::Path { config } => places(&config, environment),
        };
        out.write_all(text.as_bytes()).into_diagnostic()
    }
}

fn summary(args: &ConfigArgs, loaded: &Loaded) -> String {
    let config = &loaded.config;
    let batch = match config.data.batch_seconds {
        Some(time) => format!("{time} of audio"),
        None => format!("{} utterances", config.data.effective_utterances().unwrap_or_default()),
    };
    let training = &config.training;
    let stops = [
        training.epochs.map(|n| format!("{n} epochs")),
        training.steps.map(|n| format!("{n} steps")),
        training.max_time.map(|time| time.to_string()),
    ];
    let stops: Vec<String> = stops.into_iter().flatten().collect();
    let changed = loaded.provenance.0.len();
    let notes: String = loaded.warnings.iter().map(|warning| format!("note: {warning}\n")).collect();
    format!(
        "valid: {}, {changed} keys set\n{}: width {}, {} layers; batches of {batch}; stops after {}\n{notes}",
        file_name(args, config.task),
        config.task,
        config.model.d_model,
        config.model.encoder_layers,
        stops.join(" or "),
    )
}

fn places(args: &ConfigArgs, environment: impl Iterator<Item = (String, String)>) -> String {
    let environment: Vec<(String, String)> = environment.collect();
    let mut said = environment::read(environment.iter().cloned());
    said.extend(args.read(&mut Vec::new()));
    let mut text = String::from("later places are stronger than earlier ones\n");
    let absent = args.config.as_ref().is_some_and(|path| !path.exists());
    text += &format!("file: {}{}\n", file_name(args, task_of(&said)), if absent { " (not there)" } else { "" });
    let mut variables: Vec<String> =
        environment.into_iter().map(|(name, _)| name).filter(|n| n.starts_with(PREFIX)).collect();
    variables.sort();
    if variables.is_empty() {
        text += &format!("environment: nothing begins with {PREFIX}\n");
    }
    for variable in variables {
        let use_ = RESERVED.iter().find(|(name, _)| *name == variable);
        let meaning = use_.map_or_else(|| key_of(&variable), |(_, what)| format!("no key; {what}"));
        text += &format!("environment: {variable} ({meaning})\n");
    }
    let flags: Vec<String> = args.read(&mut Vec::new()).iter().map(|s| format!("{} ({})", s.place, s.name)).collect();
    text += &format!("command line: {}\n", if flags.is_empty() { "no flags".to_string() } else { flags.join(", ") });
    text
}

fn key_of(variable: &str) -> String {
    let one = std::iter::once((variable.to_string(), "?".to_string()));
    environment::read(one).into_iter().map(|setting| setting.name).collect()
}

fn file_name(args: &ConfigArgs, task: Task) -> String {
    args.config.as_ref().map_or(built_in_name(task).into(), |path| path.display().to_string())
}
