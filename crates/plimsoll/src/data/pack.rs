//! `plimsoll data pack`: writes a corpus into shards.

use std::process::ExitCode;

use plimsoll_audio::LogMel;
use plimsoll_core::counted;
use plimsoll_data::dropped::Dropped;
use plimsoll_data::pack::{PackFormat, PackOptions, pack};
use plimsoll_data::{Limits, Manifest};
use plimsoll_recipes::data::{CtcFrames, ctc_tokenizer, limits};
use plimsoll_recipes::{Failure, FailureExt, features, load_run};
use serde_json::json;

use super::accept;
use super::args::PackArgs;
use crate::environment;
use crate::terminal::{Terminal, bar};

/// Packs the corpus that `args` name, and prints the shards.
pub(super) fn run(args: &PackArgs) -> Result<ExitCode, Failure> {
    let format = PackFormat::from_name(&args.to).ok_or_else(|| {
        let words = PackFormat::ALL.map(PackFormat::name).join(" or ");
        Failure::invalid(format!("there is no format `{}`", args.to), format!("use {words}"))
    })?;
    let config = load_run(&args.config, environment(), &Terminal)?.config;
    let path = args
        .corpus
        .path
        .clone()
        .or_else(|| config.data.manifest.clone())
        .ok_or_else(|| Failure::invalid("the corpus is missing", "give its folder or list as an argument"))?;
    let manifest = Manifest::read_with(&path, &args.corpus.import_options(&config.data)?).invalid()?;
    let mut options = PackOptions::new(format);
    options.shard_size = args.shard_size;
    let bar = bar("packing", manifest.utterances.len() as u64);
    let packed = pack(&manifest.utterances, &args.out, &options, &|done, _| bar.set_position(done as u64));
    bar.finish_and_clear();
    let packed = packed.invalid()?;
    let issues = || manifest.issues.iter().chain(&packed.issues);
    let shards = packed.shards.len();
    if args.json {
        let reasons: Vec<String> = issues().map(ToString::to_string).collect();
        println!(
            "{}",
            json!({"folder": args.out, "utterances": packed.utterances, "shards": shards, "bytes": packed.bytes, "left_out": reasons})
        );
    } else {
        let (utterances, shards) = (counted(packed.utterances, "utterance"), counted(shards, "shard"));
        println!("{}: {utterances}, {} in {shards}", args.out.display(), packed.bytes);
        issues().for_each(|issue| println!("  left out: {issue}"));
    }
    // Everything that can be read is packed; a run leaves out what its limits do not allow, too.
    let log_mel = LogMel::new(&features(&config.features)).invalid()?;
    let frames = CtcFrames::new(&config, &log_mel);
    let count = |length| frames.count(length);
    let tokenizer = ctc_tokenizer(&config, manifest.utterances.texts())?;
    let selection = manifest.select(&Limits { tokenizer: tokenizer.as_ref(), ..limits(&config, &count) });
    let mut dropped = selection.dropped();
    dropped.add(&Dropped::new(packed.utterances, &packed.issues, 0));
    dropped.add(&manifest.dropped());
    accept(dropped.share(), &config.data)?;
    Ok(ExitCode::SUCCESS)
}
