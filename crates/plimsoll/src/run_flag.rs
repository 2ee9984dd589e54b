//! Arguments that name a run.

use std::ops::Deref;
use std::path::{Path, PathBuf};

use clap::Args;
use clap::builder::{PathBufValueParser, TypedValueParser};
use plimsoll_recipes::training::named_run;

/// The run or exported model that a command reads: `RUN`, or `--run RUN`.
#[derive(Clone, Debug, Args)]
#[group(required = true, multiple = false)]
pub(crate) struct ModelArg {
    /// Run (its folder, or its name in `runs`), or folder of an exported model. `--run RUN` is the same.
    #[arg(value_name = "RUN", value_parser = run_folder())]
    model: Option<PathBuf>,
    /// The same as the argument RUN.
    #[arg(long = "run", value_name = "RUN", hide = true, value_parser = run_folder())]
    flag: Option<PathBuf>,
}

impl Deref for ModelArg {
    type Target = Path;

    fn deref(&self) -> &Path {
        let named = self.model.as_deref().or(self.flag.as_deref());
        named.expect("the command line is refused without a run")
    }
}

/// The run that a command can read: `RUN`, `--run RUN`, or none.
#[derive(Clone, Debug, Args)]
#[group(id = "named_run", multiple = false)]
pub(crate) struct RunArg {
    /// Run: its folder, or its name in the folder of runs. It stays as it is. `--run RUN` is the same.
    #[arg(value_name = "RUN")]
    run: Option<PathBuf>,
    /// The same as the argument RUN.
    #[arg(long = "run", value_name = "RUN", hide = true)]
    flag: Option<PathBuf>,
}

impl RunArg {
    /// Returns the run as it was named.
    pub(crate) fn named(&self) -> Option<&Path> {
        self.run.as_deref().or(self.flag.as_deref())
    }
}

/// Reads the folder of a run or of an exported model, or the name of a run in the folder of runs; every other path stays as it is.
pub(crate) fn run_folder() -> impl TypedValueParser<Value = PathBuf> {
    PathBufValueParser::new().map(|named| named_run(&named))
}
