//! `plimsoll data cache`: fills, checks or deletes the features that are cached on disk.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use indicatif::{ProgressBar, ProgressStyle};
use plimsoll_config::RunConfig;
use plimsoll_core::{Bytes, counted};
use plimsoll_data::store::{StoreReport, clear, survey};
use plimsoll_recipes::filling::{Filled, Part, fill_cache};
use plimsoll_recipes::processes::Processes;
use plimsoll_recipes::{Failure, FailureExt, load_run};
use serde_json::json;

use super::accept;
use super::args::CacheArgs;
use crate::environment;
use crate::terminal::{Terminal, bar};

/// Fills the feature cache, checks every record of it, or deletes all records.
pub(super) fn cache(args: &CacheArgs) -> Result<ExitCode, Failure> {
    let config = load_run(&args.config, environment(), &Terminal)?.config;
    if args.fill {
        return fill(config, args);
    }
    let folder: PathBuf = args.folder.clone().or(config.data.cache_dir).ok_or_else(|| {
        Failure::invalid(
            "the folder of the cache is missing",
            "give it as an argument, or a configuration with data.cache_dir",
        )
    })?;
    if args.clear {
        let freed = clear(&folder).failed()?;
        let message = format!("{freed} freed in {}", folder.display());
        println!("{}", if args.json { json!({"freed_bytes": freed}).to_string() } else { message });
        return Ok(ExitCode::SUCCESS);
    }
    let style = ProgressStyle::with_template("checking records: {binary_bytes}, {elapsed}");
    let bar = ProgressBar::no_length().with_style(style.expect("the template is valid"));
    let report = survey(&folder, &|bytes| bar.set_position(bytes));
    bar.finish_and_clear();
    let StoreReport { segments, records, hashes, bytes, damaged } = report.invalid()?;
    if args.json {
        let places: Vec<_> =
            damaged.iter().map(|damage| json!({"file": damage.segment, "offset": damage.offset})).collect();
        let report =
            json!({"files": segments, "records": records, "hashes": hashes, "bytes": bytes, "damaged": places});
        println!("{report}");
        return Ok(ExitCode::SUCCESS);
    }
    let limit: Bytes = config.data.cache_size;
    let (records, files) = (counted(records, "record"), counted(segments, "file"));
    let hashes = if hashes > 0 { format!(" ({hashes} of them hashes of audio files)") } else { String::new() };
    println!("{}: {records}{hashes} in {files}, {bytes} of at most {limit}", folder.display());
    for damage in &damaged {
        println!("  damaged: {} at byte {} (a run computes it again)", damage.segment.display(), damage.offset);
    }
    Ok(ExitCode::SUCCESS)
}

/// Computes what the cache does not have, in all processes together.
fn fill(mut config: RunConfig, args: &CacheArgs) -> Result<ExitCode, Failure> {
    config.data.cache_dir = args.folder.clone().or(config.data.cache_dir);
    let processes = Processes::join()?;
    let bar = if processes.is_first() { bar("computing features", 0) } else { ProgressBar::hidden() };
    let progress = |done: usize, count: usize| {
        bar.set_length(count as u64);
        bar.set_position(done as u64);
    };
    let filled = fill_cache(&config, &processes, args.part.unwrap_or(Part::WHOLE), &Terminal, &progress);
    bar.finish_and_clear();
    let filled = filled?;
    // No process may end while another needs it.
    processes.wait_for_all()?;
    if !processes.is_first() {
        return Ok(ExitCode::SUCCESS);
    }
    let Filled { utterances, computed, found, rejected, unreadable, named, bytes } = &filled;
    let limit = config.data.cache_size;
    if args.json {
        println!("{}", serde_json::to_string(&filled).expect("numbers and texts are plain data"));
    } else {
        let folder = config.data.cache_dir.as_deref().unwrap_or(Path::new(".")).display();
        let utterances = counted(*utterances, "utterance");
        println!("{folder}: {utterances}; {computed} computed, {found} found, {bytes} of at most {limit}");
        named.iter().for_each(|reason| println!("  left out: {reason}"));
        if *unreadable > named.len() {
            println!("  left out: {} more", unreadable - named.len());
        }
    }
    if *rejected > 0 {
        let message = format!("{} did not fit into {limit}", counted(*rejected as usize, "record"));
        return Err(Failure::invalid(message, "write a larger `--set data.cache_size`, or `data.cache_half=true`"));
    }
    accept(*unreadable as f64 / (unreadable + utterances).max(1) as f64, &config.data)?;
    Ok(ExitCode::SUCCESS)
}
