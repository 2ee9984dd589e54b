//! What the commands that train for a trial share: their configuration, and their progress bar.

use std::path::{Path, PathBuf};

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use plimsoll_config::invocation::command;
use plimsoll_config::{ConfigArgs, Loaded};
use plimsoll_recipes::load;
use plimsoll_recipes::training::{RunDisplay, Totals, config_path, named_run, named_run_in};
use plimsoll_recipes::{Failure, load_run};
use plimsoll_train::Event;

use crate::environment;
use crate::run_flag::RunArg;
use crate::terminal::Terminal;

/// Configuration of a trial: of its own, or that of a run.
#[derive(Clone, Debug, Args)]
pub(crate) struct TrialConfigArgs {
    /// The run whose configuration is taken.
    #[command(flatten)]
    pub(crate) run: RunArg,
    /// The configuration.
    #[command(flatten)]
    pub(crate) config: ConfigArgs,
}

impl TrialConfigArgs {
    /// Returns the folder of the run, if one is named.
    pub(crate) fn folder(&self) -> Result<Option<PathBuf>, Failure> {
        let Some(named) = self.run.named() else { return Ok(None) };
        let runs = load(&self.config, environment())?.config.runs_dir;
        let folder = named_run_in(named, &runs);
        if folder.exists() { Ok(Some(folder)) } else { Err(Failure::no_run(named, &runs)) }
    }

    /// Returns the flags, with the configuration file of the run if one is named.
    pub(crate) fn flags(&self) -> Result<ConfigArgs, Failure> {
        let mut flags = self.config.clone();
        if let Some(folder) = self.folder()? {
            if self.config.config.is_some() {
                let message = "a run and --config both name a configuration";
                return Err(Failure::invalid(message, "leave one of them out"));
            }
            let Ok(path) = config_path(&folder) else {
                let message = format!("there is no run in {} that has a config.toml", folder.display());
                return Err(Failure::invalid(message, format!("`{}` lists the runs", command("runs list"))));
            };
            flags.config = Some(path);
        }
        Ok(flags)
    }

    /// Returns the number of steps that `--steps` asks for.
    pub(crate) fn steps(&self) -> Result<Option<u64>, Failure> {
        let Some(text) = &self.config.steps else { return Ok(None) };
        match text.parse() {
            Ok(steps) if steps > 0 => Ok(Some(steps)),
            _ => {
                Err(Failure::invalid(format!("`--steps {text}` is no number of steps"), "write a whole number above 0"))
            }
        }
    }

    /// Loads the configuration.
    pub(crate) fn load(&self) -> Result<Loaded, Failure> {
        load_trial(&self.flags()?)
    }
}

/// Loads the configuration of `flags` for a trial, which has no name: that of a run belongs to the run.
pub(crate) fn load_trial(flags: &ConfigArgs) -> Result<Loaded, Failure> {
    let is_of_run = |file: &Path| {
        file.file_name().is_some_and(|name| name == "config.toml") && file.with_file_name("plan.toml").is_file()
    };
    let mut loaded = match flags.config.as_deref() {
        // All that follows from the corpus, or from the model that the run began with, is written there.
        Some(file) if is_of_run(file) => load(flags, environment())?,
        _ => load_run(flags, environment(), &Terminal)?,
    };
    loaded.config.name = None;
    // A trial takes as long with random weights, and the model that a run began with may be gone.
    loaded.config.training.from.take_if(|from| !named_run(from).exists());
    Ok(loaded)
}

/// Shows the steps of a trial as a progress bar on standard error, and problems as lines.
pub(crate) struct TrialBar {
    bar: ProgressBar,
    done: u64,
}

impl TrialBar {
    /// Makes the bar of `steps` steps, named `label`; without a number of steps it shows no end.
    pub(crate) fn new(label: &str, steps: Option<u64>) -> Self {
        let template = match steps {
            Some(_) => "{msg} {bar:30} step {pos}/{len}, {eta} left",
            None => "{spinner} {msg}: step {pos}, {elapsed}",
        };
        let style = ProgressStyle::with_template(template).expect("the template is valid");
        let bar = steps.map_or_else(ProgressBar::no_length, ProgressBar::new);
        Self { bar: bar.with_style(style).with_message(label.to_owned()), done: 0 }
    }
}

impl RunDisplay for TrialBar {
    fn show(&mut self, event: &Event, _: &Totals) {
        match event {
            Event::Step(_) => {
                self.done += 1;
                self.bar.set_position(self.done);
            }
            Event::Skipped { reason, .. } => self.bar.suspend(|| eprintln!("warning: step skipped: {reason}")),
            Event::OutOfMemory { failure, .. } => self.bar.suspend(|| eprintln!("note: {failure}")),
            Event::NotSaved { reason, .. } => {
                self.bar.suspend(|| eprintln!("warning: no checkpoint was written: {reason}"));
            }
            _ => {}
        }
    }

    fn finish(&mut self) {
        self.bar.finish_and_clear();
    }
}
