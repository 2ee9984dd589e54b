//! `plimsoll config`: print, validate, path.

#[cfg(test)]
mod tests;

use std::io::Write;

use clap::Subcommand;
use plimsoll_recipes::config::{ConfigArgs, ConfigSources, Loaded, load, sources, to_json, to_toml};
use plimsoll_recipes::{Failure, FailureExt};

/// What to do with the configuration.
#[derive(Clone, Debug, PartialEq, Eq, Subcommand)]
pub(crate) enum ConfigCommand {
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
    /// Runs the command under `environment` and writes its answer to `out`.
    pub(crate) fn run(
        self,
        environment: impl Iterator<Item = (String, String)>,
        out: &mut dyn Write,
    ) -> Result<(), Failure> {
        let text = match self {
            Self::Print { json: true, config } => to_json(&load(&config, environment)?),
            Self::Print { json: false, config } => to_toml(&load(&config, environment)?),
            Self::Validate { config } => summary(&config, &load(&config, environment)?),
            Self::Path { config } => places(&sources(&config, environment)),
        };
        out.write_all(text.as_bytes()).failed()
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
    let changed = loaded.provenance.len();
    let notes: String = loaded.warnings.iter().map(|warning| format!("note: {warning}\n")).collect();
    format!(
        "valid: {}, {changed} keys set\n{}: width {}, {} layers; batches of {batch}; stops after {}\n{notes}",
        sources(args, std::iter::empty()).file,
        config.task,
        config.model.d_model,
        config.model.encoder_layers,
        stops.join(" or "),
    )
}

fn places(sources: &ConfigSources) -> String {
    let missing = if sources.file_is_missing { " (not there)" } else { "" };
    let mut text = format!("later places are stronger than earlier ones\nfile: {}{missing}\n", sources.file);
    if sources.variables.is_empty() {
        text += &format!("environment: nothing begins with {}\n", ConfigSources::PREFIX);
    }
    for variable in &sources.variables {
        text += &format!("environment: {} ({})\n", variable.name, variable.meaning);
    }
    let flags: Vec<String> = sources.flags.iter().map(|(flag, key)| format!("{flag} ({key})")).collect();
    text + &format!("command line: {}\n", if flags.is_empty() { "no flags".to_string() } else { flags.join(", ") })
}
