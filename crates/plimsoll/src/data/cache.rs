//! `plimsoll data cache`: what is kept in a folder of features.

use std::path::PathBuf;
use std::process::ExitCode;

use indicatif::{ProgressBar, ProgressStyle};
use plimsoll_core::Bytes;
use plimsoll_data::{StoreReport, clear_store, survey_store};
use serde_json::json;

use super::args::CacheArgs;
use crate::environment;
use plimsoll_recipes::config::load;
use plimsoll_recipes::{Failure, FailureExt};

/// Looks at every record, or deletes them all.
pub(super) fn cache(args: &CacheArgs) -> Result<ExitCode, Failure> {
    let config = load(&args.config, environment())?.config;
    let folder: PathBuf = args.folder.clone().or(config.data.cache_dir).ok_or_else(|| {
        Failure::invalid("no folder was named", "name the folder of a cache, or a configuration with data.cache_dir")
    })?;
    if args.clear {
        let freed = clear_store(&folder).failed()?;
        let told = format!("{freed} freed in {}", folder.display());
        println!("{}", if args.json { json!({"freed_bytes": freed}).to_string() } else { told });
        return Ok(ExitCode::SUCCESS);
    }
    let style = ProgressStyle::with_template("looking at {binary_bytes} of records, {elapsed}");
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
    println!("{}: {records} records in {segments} files, {bytes} of at most {limit}", folder.display());
    for damage in &damaged {
        println!("  damaged: {} at byte {} (it will be computed anew)", damage.segment.display(), damage.offset);
    }
    Ok(ExitCode::SUCCESS)
}
