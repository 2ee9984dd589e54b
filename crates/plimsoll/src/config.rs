//! `plimsoll config`: prints and checks configurations, and lists their sources.

#[cfg(test)]
mod tests;

use clap::Subcommand;
use plimsoll_config::choices::Task;
use plimsoll_config::{ConfigArgs, ConfigSources, Loaded, RunConfig, sources, to_json, to_toml};
use plimsoll_core::counted;
use plimsoll_recipes::Failure;
use plimsoll_recipes::load;
use plimsoll_recipes::mapping;

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
            Self::Print { json: true, config } => to_json(&load(&config, environment)?),
            Self::Print { json: false, config } => to_toml(&load(&config, environment)?),
            Self::Validate { config } => summary(&config, &load(&config, environment)?),
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
    let (changed, model) = (counted(loaded.provenance.len(), "key"), sizes(config));
    let notes: String = loaded.warnings.iter().map(|warning| format!("note: {warning}\n")).collect();
    format!(
        "valid: {}, {changed} set\n{}: {model}; batches of {batch}; stops after {}\n{notes}",
        sources(args, std::iter::empty()).file,
        config.task,
        limits.join(" or "),
    )
}

/// Formats the sizes of the model that the task of `config` trains.
fn sizes(config: &RunConfig) -> String {
    let of_width = |layers, width| format!("{} of width {width}", counted(layers, "layer"));
    // The numbers of features and tokens change none of these sizes.
    match config.task {
        Task::Asr => of_width(config.model.encoder_layers as usize, config.model.d_model as usize),
        Task::Tts => {
            let model = mapping::synthesizer(config, 1, 1);
            let (text, decoder) =
                (of_width(model.text_layers, model.text_dim), of_width(model.decoder_layers, model.decoder_dim));
            format!("text encoder with {text}, decoder with {decoder}")
        }
        Task::Vocoder => of_width(config.model.vocoder_layers as usize, config.model.d_model as usize),
    }
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
