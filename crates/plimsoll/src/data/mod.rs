//! `plimsoll data`: checks, counts and imports corpora, and measures how fast they load.

mod args;
mod bench;
mod cache;
mod page;
mod report;

use std::process::ExitCode;

use indicatif::{ProgressBar, ProgressStyle};
use plimsoll_audio::LogMel;
use plimsoll_data::{CheckDepth, CheckOptions, Checked, CorpusStats, Limits, Manifest, check, import};
use plimsoll_text::Tokenizer;

pub(crate) use args::DataCommand;
use args::{CheckArgs, CorpusArgs, ImportArgs, StatsArgs};
use report::Report;

use crate::environment;
use plimsoll_recipes::config::{RunConfig, load};
use plimsoll_recipes::data::{CtcFrames, ctc_tokenizer, limits};
use plimsoll_recipes::mapping::features;
use plimsoll_recipes::texts::text_normalizer;
use plimsoll_recipes::{Failure, FailureExt};

impl DataCommand {
    /// Runs the subcommand of `data`.
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        match self {
            Self::Import(args) => run_import(&args),
            Self::Check(args) => run_check(&args),
            Self::Stats(args) => run_stats(&args),
            Self::Bench(args) => bench::bench(&args),
            Self::Cache(args) => cache::cache(&args),
        }
    }
}

/// A corpus with the results of its check.
struct CheckedCorpus {
    report: Report,
    checked: Checked,
}

/// Imports and checks the corpus that `corpus` names, with the features of `config`. With `is_limited`, normalizes
/// texts and limits lengths as a run of `config` does.
fn check_corpus(
    corpus: &CorpusArgs,
    config: &RunConfig,
    look: CheckDepth,
    tokenizer: Option<&Tokenizer>,
    is_limited: bool,
) -> Result<CheckedCorpus, Failure> {
    let path = corpus.path.as_ref().or(config.data.manifest.as_ref()).ok_or_else(|| {
        Failure::invalid("no corpus was named", "give its folder or list, or a configuration with data.manifest")
    })?;
    let mut options = corpus.import_options()?;
    options.audio_root = options.audio_root.or_else(|| config.data.audio_root.clone());
    let spinner = crate::terminal::spinner("reading lists");
    let listing = import(path, &options).invalid();
    spinner.finish_and_clear();
    let mut listing = listing?;
    if is_limited {
        let normalize = text_normalizer(&config.data)?;
        for entry in &mut listing.entries {
            entry.text = normalize(&entry.text);
        }
    }
    let (format, root) = (listing.format, listing.root.clone());
    let log_mel = LogMel::new(&features(&config.features)).invalid()?;
    let frames = CtcFrames::new(config, &log_mel);
    let output_frames = |length| frames.count(length);
    let counted = match tokenizer {
        Some(_) => None,
        None if is_limited => ctc_tokenizer(config, listing.entries.iter().map(|entry| &entry.text))?,
        None => None,
    };
    let limits = match is_limited {
        true => Limits { tokenizer: tokenizer.or(counted.as_ref()), ..limits(config, &output_frames) },
        false => Limits::default(),
    };
    let style = ProgressStyle::with_template("checking utterances {bar:40} {pos}/{len}, {eta} left");
    let bar = ProgressBar::new(listing.entries.len() as u64).with_style(style.expect("the template is valid"));
    let options = CheckOptions { depth: look, tokenizer, limits };
    let checked = check(listing, &options, &|done, all| {
        bar.set_length(all as u64);
        bar.set_position(done as u64);
    });
    bar.finish_and_clear();
    let stats = CorpusStats::new(&checked.utterances);
    Ok(CheckedCorpus { report: Report::new(format, &root, &checked, stats), checked })
}

/// Writes the usable utterances of a corpus as a list.
fn run_import(args: &ImportArgs) -> Result<ExitCode, Failure> {
    let config = load(&args.config, environment())?.config;
    if args.out.exists() && !args.force {
        let message = format!("{} exists already", args.out.display());
        return Err(Failure::invalid(message, "choose another file with --out, or overwrite it with --force"));
    }
    let CheckedCorpus { report, checked } = check_corpus(&args.check.corpus, &config, args.check.depth(), None, false)?;
    if checked.utterances.is_empty() {
        report.print(args.check.json, args.check.all);
        return Err(Failure::invalid("none of the utterances can be used", "the reasons are listed above"));
    }
    let log_mel = LogMel::new(&features(&config.features)).invalid()?;
    Manifest::write(&args.out, &checked.utterances, &log_mel).failed()?;
    report.print(args.check.json, args.check.all);
    if !args.check.json {
        println!("Written to {}. To train on it: plimsoll train --manifest {0}", args.out.display());
    }
    Ok(ExitCode::SUCCESS)
}

/// Reports which utterances are usable; fails if more of the corpus is unusable than a run accepts.
fn run_check(args: &CheckArgs) -> Result<ExitCode, Failure> {
    let config = load(&args.config, environment())?.config;
    let tokenizer = args.vocabulary.as_ref().map(Tokenizer::from_file).transpose().invalid()?;
    let CheckedCorpus { report, .. } =
        check_corpus(&args.check.corpus, &config, args.check.depth(), tokenizer.as_ref(), true)?;
    report.print(args.check.json, args.check.all);
    if let Some(file) = &args.page {
        page::write(file, &report)?;
    }
    let max_share = config.data.unusable_share;
    if report.flawed_share() > max_share {
        let message = format!(
            "{:.1} % of the utterances cannot be read, and a run accepts at most {:.1} %",
            report.flawed_share() * 100.0,
            max_share * 100.0
        );
        return Err(Failure::invalid(message, "correct the list, or accept more: --set data.unusable_share=SHARE"));
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints the distributions of a corpus.
fn run_stats(args: &StatsArgs) -> Result<ExitCode, Failure> {
    let config = load(&args.config, environment())?.config;
    let CheckedCorpus { report, .. } = check_corpus(&args.corpus, &config, CheckDepth::Exists, None, false)?;
    if args.json {
        println!("{}", serde_json::to_string(&report.stats).expect("statistics are plain data"));
    } else {
        print!("{}", report.spreads());
    }
    if let Some(file) = &args.page {
        page::write(file, &report)?;
    }
    Ok(ExitCode::SUCCESS)
}
