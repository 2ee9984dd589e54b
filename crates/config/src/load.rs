//! Loads a configuration: read the layers, check names, check values, merge, check the whole.

use std::path::Path;
use std::sync::Arc;

use config::ValueKind;

use super::arguments::ConfigArgs;
use super::bounds::read_file;
use super::check::{self, InvalidKeys};
use super::choices::Task;
use super::environment;
use super::error::{ConfigError, ConfigIssue};
use super::file::{self, ReadFile};
use super::kind::Kind;
use super::merge::merge;
use super::names;
use super::notes::{self, ConfigNote};
use super::origin::{ConfigText, Provenance, ValueOrigin};
use super::recipe::{ChosenValue, Recipe};
use super::schema::RunConfig;
use super::setting::{RawSetting, RawValue, Setting};
use super::tiers::{AUTO_FILE, Tier};
use plimsoll_core::Bytes;

/// A complete configuration with the origin of each of its values.
#[derive(Clone, Debug, PartialEq)]
pub struct Loaded {
    /// Configuration with the values of all keys.
    pub config: RunConfig,
    /// Origin of each value.
    pub provenance: Provenance,
    /// Values that were chosen for the corpus, where no file was named.
    pub recipe: Option<Recipe>,
    /// Notes about older names, about settings without effect, and about the size of batches.
    pub warnings: Vec<ConfigNote>,
}

/// Loads the configuration from the file that `args` names, `environment` and the flags in `args`, weakest first.
///
/// Without a file, the built-in file for the task is read. The file name [`AUTO_FILE`] selects the shipped
/// configuration for the memory of the device, which `memory` finds.
///
/// The environment is an argument, so that tests can pass a list; a program passes `std::env::vars()`.
///
/// # Errors
/// If the file cannot be read or parsed, if a name is unknown, or if values are invalid or conflict with each other.
/// The error lists everything that is wrong: all names first, and once the names are right, all values.
pub fn load(
    args: &ConfigArgs,
    environment: impl Iterator<Item = (String, String)>,
    memory: &dyn Fn() -> Bytes,
) -> Result<Loaded, ConfigError> {
    if args.config.as_deref() != Some(Path::new(AUTO_FILE)) {
        return load_with(args, environment, &read_file);
    }
    let environment: Vec<(String, String)> = environment.collect();
    let mut overrides = environment::read(environment.iter().cloned());
    overrides.extend(args.read(&mut Vec::new()));
    let tier = Tier::for_memory(task_of(&overrides), memory());
    let args = ConfigArgs { config: Some(tier.path()), ..args.clone() };
    let read_shipped = |path: &Path| Tier::text_at(path).map_or_else(|| read_file(path), |text| Ok(text.into()));
    load_with(&args, environment.into_iter(), &read_shipped)
}

/// Loads the configuration as [`load`] does, but reads the file through `read_file` and does not accept [`AUTO_FILE`].
pub(super) fn load_with(
    args: &ConfigArgs,
    environment: impl Iterator<Item = (String, String)>,
    read_file: ReadFile<'_>,
) -> Result<Loaded, ConfigError> {
    let mut issues = Vec::new();
    let mut overrides = environment::read(environment);
    overrides.extend(args.read(&mut issues));
    let file = file::read(args.config.as_deref(), task_of(&overrides), read_file)?;
    layered(file, overrides, issues)
}

/// Loads the configuration of a run as [`load`] does, over the [`Recipe`] that `choose` returns for it. The recipe is weaker than
/// a file that is named, and stronger than the built-in file of its task.
///
/// # Errors
/// As for [`load`], and if `choose` fails.
pub fn load_with_recipe<E: From<ConfigError>>(
    args: &ConfigArgs,
    environment: impl Iterator<Item = (String, String)>,
    memory: &dyn Fn() -> Bytes,
    choose: impl FnOnce(&Loaded) -> Result<Option<Recipe>, E>,
) -> Result<Loaded, E> {
    let environment: Vec<(String, String)> = environment.collect();
    let loaded = load(args, environment.iter().cloned(), memory)?;
    let Some(recipe) = choose(&loaded)? else { return Ok(loaded) };
    let mut issues = Vec::new();
    let mut overrides = environment::read(environment.into_iter());
    overrides.extend(args.read(&mut issues));
    let (mut file, mut settings) = file::of_recipe(&recipe)?;
    if !recipe.is_whole() {
        let (_, built_in) = file::read(None, recipe.task(), &read_file)?;
        settings.splice(0..0, built_in);
    }
    // `auto` chooses a model for the memory, and the recipe has one.
    if let Some(path) = args.config.as_deref().filter(|path| *path != Path::new(AUTO_FILE)) {
        let named = file::read(Some(path), recipe.task(), &read_file)?;
        file = named.0;
        settings.extend(named.1);
    }
    let loaded = layered((file, settings), overrides, issues)?;
    Ok(Loaded { recipe: Some(recipe), ..loaded })
}

/// Merges the settings of `file` and the stronger `overrides`. `issues` are what is wrong with the latter so far.
fn layered(
    (file, mut raw): (Arc<ConfigText>, Vec<RawSetting>),
    overrides: Vec<RawSetting>,
    mut issues: Vec<ConfigIssue>,
) -> Result<Loaded, ConfigError> {
    raw.extend(overrides);
    let (mut settings, mut warnings) = names::resolve(raw, &mut issues);
    check::duplicates(&settings, &mut issues);
    // Without the value of a misspelled key, checks of values would report errors that do not exist. So names come first.
    ConfigError::from_issues(std::mem::take(&mut issues))?;

    settings.iter_mut().for_each(unset_auto);
    let mut invalid = check::values(&mut settings, &mut issues);
    invalid.extend(check::exclusive_keys(&mut settings, &mut issues));
    check::limits_of_the_run(&mut settings);
    check::warm_up(&mut settings);
    let (mut config, provenance) = merge(&settings)?;
    warnings.extend(limit_if_none(&mut config, &file.name, &invalid));
    issues.extend(check::combinations(&config, &provenance, &ValueOrigin::File(file, None), &invalid));
    ConfigError::from_issues(issues)?;
    warnings.extend(notes::of_values(&config, &provenance));
    Ok(Loaded { config, provenance, recipe: None, warnings })
}

impl Loaded {
    /// Returns whether a person set `key`: in a file that was named, in the environment or by a flag.
    pub fn is_set(&self, key: &str) -> bool {
        match self.provenance.origin(key) {
            ValueOrigin::Default => false,
            ValueOrigin::File(file, _) => !file::is_built_in(file),
            _ => true,
        }
    }

    /// Lists the values of the [`recipe`](Self::recipe) that hold: nothing stronger replaced them.
    pub fn chosen(&self) -> Vec<ChosenValue> {
        let holds = |chosen: &&ChosenValue| match self.provenance.origin(chosen.key) {
            ValueOrigin::File(file, _) => file::is_built_in(file),
            _ => false,
        };
        self.recipe.iter().flat_map(|recipe| recipe.chosen().iter().filter(holds).cloned()).collect()
    }
}

/// Limits a run by the passes of the shipped configurations of its task if nothing else limits it, and returns a note then:
/// configurations of other systems leave the limit to the command line.
fn limit_if_none(config: &mut RunConfig, file: &str, invalid: &InvalidKeys) -> Option<ConfigNote> {
    let training = &mut config.training;
    let is_limited = training.epochs.is_some() || training.steps.is_some() || training.max_time.is_some();
    if is_limited || ["training.epochs", "training.steps", "training.max_time"].iter().any(|key| invalid.contains(key))
    {
        return None;
    }
    let epochs = match config.task {
        Task::Asr => 70,
        Task::Tts => 200,
        Task::Vocoder => 1000,
    };
    training.epochs = Some(epochs);
    Some(ConfigNote::DefaultLimit { origin: file.into(), epochs, task: config.task })
}

/// Removes the value `auto` of whole numbers, which are derived if they are not set.
fn unset_auto(setting: &mut Setting) {
    let is_derived = matches!(setting.key.kind, Kind::Integer(..)) && setting.key.default().is_none();
    if is_derived && matches!(&setting.value, ValueKind::String(text) if text == "auto") {
        setting.value = ValueKind::Nil;
    }
}

/// Returns the task in `overrides`, the settings of the environment and the flags; the last setting counts.
///
/// The task selects the built-in file, so it has to be known before the file is read.
pub(super) fn task_of(overrides: &[RawSetting]) -> Task {
    let last = overrides.iter().rfind(|setting| setting.name == "task");
    let named =
        |task: &&Task| last.is_some_and(|last| matches!(&last.value, RawValue::Text(text) if text == task.as_str()));
    Task::ALL.iter().find(named).copied().unwrap_or_default()
}
