//! `plimsoll config`: prints and checks configurations, and lists their sources.

#[cfg(test)]
mod tests;

use clap::Subcommand;
use plimsoll_config::{ConfigArgs, ConfigSources, Loaded, sources, to_json, to_toml};
use plimsoll_core::counted;
use plimsoll_recipes::families;
use plimsoll_recipes::{Failure, load_run};

use crate::terminal::Terminal;

/// The subcommands of `plimsoll config`.
#[derive(Clone, Debug, PartialEq, Eq, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Print every key, its value, and where the value came from
    Print {
        /// Print JSON in place of commented TOML.
        #[arg(long)]
        json: bool,
        /// The configuration to print.
        #[command(flatten)]
        config: ConfigArgs,
    },
    /// Check the configuration without training, and print a summary
    Validate {
        /// The configuration to check.
        #[command(flatten)]
        config: ConfigArgs,
    },
    /// List the file, the environment variables and the flags that are read, and the keys that they set
    Path {
        /// The configuration whose sources to list.
        #[command(flatten)]
        config: ConfigArgs,
    },
}

impl ConfigCommand {
    /// Runs the subcommand with the variables of `environment`, and returns its output.
    ///
    /// # Errors
    /// If the configuration cannot be loaded.
    pub(crate) fn run(self, environment: impl Iterator<Item = (String, String)>) -> Result<String, Failure> {
        Ok(match self {
            Self::Print { json: true, config } => to_json(&load_run(&config, environment, &Terminal)?),
            Self::Print { json: false, config } => to_toml(&load_run(&config, environment, &Terminal)?),
            Self::Validate { config } => summary(&config, &load_run(&config, environment, &Terminal)?),
            Self::Path { config } => list_sources(&sources(&config, environment)),
        })
    }
}

/// Formats the output of `config validate`.
fn summary(args: &ConfigArgs, loaded: &Loaded) -> String {
    let config = &loaded.config;
    let batch = match config.data.batch_seconds {
        Some(time) => format!("{time} of audio"),
        None => counted(config.effective_utterances().unwrap_or_default(), "utterance"),
    };
    let training = &config.training;
    let limits = [
        training.epochs.map(|n| counted(n, "epoch")),
        training.steps.map(|n| counted(n, "step")),
        training.max_time.map(|time| time.to_string()),
    ];
    let limits: Vec<String> = limits.into_iter().flatten().collect();
    let (changed, model) = (counted(loaded.provenance.len(), "key"), families::model(config, 1, 1).size());
    let notes: String = loaded.warnings.iter().map(|warning| format!("note: {warning}\n")).collect();
    format!(
        "valid: {}, {changed} set\n{}: {model}; batches of {batch}; stops after {}\n{notes}",
        sources(args, std::iter::empty()).file,
        config.task,
        limits.join(" or "),
    )
}

/// Formats the output of `config path`.
fn list_sources(sources: &ConfigSources) -> String {
    let missing = if sources.file_is_missing { " (does not exist)" } else { "" };
    let mut text = format!("later sources override earlier ones\nfile: {}{missing}\n", sources.file);
    if sources.variables.is_empty() {
        text += &format!("environment: no variable begins with {}\n", ConfigSources::PREFIX);
    }
    for variable in &sources.variables {
        text += &format!("environment: {} ({})\n", variable.name, variable.meaning);
    }
    let flags: Vec<String> = sources.flags.iter().map(|(flag, key)| format!("{flag} ({key})")).collect();
    text + &format!("command line: {}\n", if flags.is_empty() { "no flags".to_string() } else { flags.join(", ") })
}
