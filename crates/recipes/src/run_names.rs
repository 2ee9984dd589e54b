//! Finds the folder of the run that a person named.

use std::path::{Path, PathBuf};

use plimsoll_config::runs_folder;

/// Returns the folder of the run that a person named: the folder `named` if it is there, or else the run of that name in
/// the folder of the runs. A folder of another kind, such as the corpus of the run, does not hide the run of its name.
pub fn named_run(named: &Path) -> PathBuf {
    named_run_in(named, &runs_folder())
}

/// Returns the folder of the run that a person named as [`named_run`] does, with `runs` as the folder of the runs.
pub fn named_run_in(named: &Path, runs: &Path) -> PathBuf {
    let by_name = runs.join(named);
    let holds_model =
        |folder: &Path| ["config.toml", "model.json", "config.json"].iter().any(|file| folder.join(file).is_file());
    let is_other = named.exists() && !holds_model(named) && holds_model(&by_name);
    if by_name.is_dir() && (!named.exists() || is_other) { by_name } else { named.into() }
}
