//! `plimsoll data cache`: checks or deletes the features that are cached on disk.

use std::path::PathBuf;
use std::process::ExitCode;

use indicatif::{ProgressBar, ProgressStyle};
use plimsoll_core::{Bytes, counted};
use plimsoll_data::{StoreReport, clear_store, survey_store};
use serde_json::json;

use super::args::CacheArgs;
use crate::environment;
use plimsoll_recipes::config::load;
use plimsoll_recipes::{Failure, FailureExt};

/// Checks every record of the feature cache, or deletes all records.
pub(super) fn cache(args: &CacheArgs) -> Result<ExitCode, Failure> {
    let config = load(&args.config, environment())?.config;
    let folder: PathBuf = args.folder.clone().or(config.data.cache_dir).ok_or_else(|| {
        Failure::invalid(
            "the folder of the cache is missing",
            "give it as an argument, or a configuration with data.cache_dir",
        )
    })?;
    if args.clear {
        let freed = clear_store(&folder).failed()?;
        let message = format!("{freed} freed in {}", folder.display());
        println!("{}", if args.json { json!({"freed_bytes": freed}).to_string() } else { message });
        return Ok(ExitCode::SUCCESS);
    }
    let style = ProgressStyle::with_template("checking records: {binary_bytes}, {elapsed}");
    let bar = ProgressBar::no_length().with_style(style.expect("the template is valid"));
    let report = survey_store(&folder, &|bytes| bar.set_position(bytes));
    bar.finish_and_clear();
    let StoreReport { segments, records, bytes, damaged } = report.invalid()?;
    if args.json {
        let places: Vec<_> =
            damaged.iter().map(|damage| json!({"file": damage.segment, "offset": damage.offset})).collect();
        println!("{}", json!({"files": segments, "records": records, "bytes": bytes, "damaged": places}));
        return Ok(ExitCode::SUCCESS);
    }
    let limit: Bytes = config.data.cache_size;
    let (records, files) = (counted(records, "record"), counted(segments, "file"));
    println!("{}: {records} in {files}, {bytes} of at most {limit}", folder.display());
    for damage in &damaged {
        println!("  damaged: {} at byte {} (a run computes it again)", damage.segment.display(), damage.offset);
    }
    Ok(ExitCode::SUCCESS)
}
