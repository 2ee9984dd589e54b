//! The value of flags that name a run.

use std::path::PathBuf;

use clap::builder::{PathBufValueParser, TypedValueParser};
use plimsoll_recipes::training::named_run;

/// Reads the folder of a run, or its name in the folder `runs`; every other path stays as it is.
pub(crate) fn run_folder() -> impl TypedValueParser<Value = PathBuf> {
    PathBufValueParser::new().map(|named| named_run(&named))
}
