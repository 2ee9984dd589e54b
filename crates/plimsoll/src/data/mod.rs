//! `plimsoll data`: checks, counts and imports corpora, and measures how fast they load.

mod args;
mod bench;
mod cache;
mod index;
mod pack;
mod page;
mod report;
mod segment;

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use indicatif::{ProgressBar, ProgressStyle};
use plimsoll_audio::LogMel;
use plimsoll_config::choices::TooLongChoice;
use plimsoll_config::invocation::command;
use plimsoll_config::{DataConfig, RunConfig};
use plimsoll_core::{Seconds, counted};
use plimsoll_data::{
    CheckDepth, CheckOptions, Checked, CorpusStats, Format, ImportError, Limits, Manifest, check, import,
    suggest_audio_root,
};
use plimsoll_recipes::data::{CtcFrames, ctc_tokenizer, limits};
use plimsoll_recipes::families::family;
use plimsoll_recipes::features;
use plimsoll_recipes::load;
use plimsoll_recipes::texts::check_phonemes;
use plimsoll_recipes::texts::{not_unpacked, text_normalizer, unpack_folder};
use plimsoll_recipes::{Failure, FailureExt, load_rules};
use plimsoll_text::Tokenizer;

pub(crate) use args::DataCommand;
use args::{CheckArgs, CorpusArgs, ImportArgs, StatsArgs};
use report::Report;

use crate::environment;
use crate::output::{ForceFlag, HTML, OutputFile};

impl DataCommand {
    /// Runs the subcommand of `data`.
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        match self {
            Self::Import(args) => run_import(&args),
            Self::Check(args) => run_check(&args),
            Self::Stats(args) => run_stats(&args),
            Self::Bench(args) => bench::bench(&args),
            Self::Cache(args) => cache::cache(&args),
            Self::Pack(args) => pack::run(&args),
            Self::Index(args) => index::run(&args),
            Self::Segment(args) => segment::run(&args),
        }
    }
}

/// A corpus with the results of its check.
struct CheckedCorpus {
    format: Format,
    path: PathBuf,
    /// Rule by which utterances are usable, in words.
    rule: String,
    advice: Vec<String>,
    checked: Checked,
}

impl CheckedCorpus {
    /// Makes the utterances unusable that a list in `folder` cannot name.
    fn without_unlistable(mut self, folder: &Path) -> Self {
        let unlistable = Manifest::take_unlistable(&mut self.checked.utterances, folder);
        self.checked.issues.extend(unlistable);
        self
    }

    fn report(&self) -> Report {
        let Self { format, path, rule, advice, checked } = self;
        let stats = CorpusStats::new(&checked.utterances);
        Report::new(*format, path, checked, stats).with_rule(rule, advice)
    }
}

/// Describes what makes an utterance usable for a run of `config`.
fn rule(config: &RunConfig, depth: CheckDepth) -> String {
    let data = &config.data;
    let longest = match data.too_long {
        TooLongChoice::Refuse => format!("{} (data.max_seconds)", data.max_seconds),
        policy => format!("any length (data.too_long = {policy})"),
    };
    let mut rule = format!("from {} (data.min_seconds) to {longest}", data.min_seconds);
    if family(config).aligned_frames(config).is_some() {
        rule += ", with enough audio for the text";
    }
    if let Some(most) = data.max_text_length {
        let _ = write!(rule, ", with at most {most} characters (data.max_text_length)");
    }
    rule + match depth {
        CheckDepth::Decode => "; all audio was decoded (--decode)",
        CheckDepth::Header => "; of the audio, headers were read (--decode reads all of it)",
        CheckDepth::Exists => "; the list is trusted",
    }
}

/// Returns what to do about findings that have one cause for many utterances. `root` is the folder that relative paths
/// were taken from, `rate` the sample rate of the features.
fn advice(checked: &Checked, root: &Path, rate: u32) -> Vec<String> {
    let mut advice = Vec::new();
    if let Some(folder) = suggest_audio_root(root, &checked.issues) {
        let folder = folder.display();
        advice.push(format!(
            "the missing files are found from {folder}: --audio-root {folder} (data.audio_root in a run)"
        ));
    }
    if let Some(first) = checked.opposed.first() {
        let files = counted(checked.opposed.len(), "file");
        advice.push(format!(
            "the channels of {files} cancel each other, so one of them is read; the first: {}",
            first.display()
        ));
    }
    for (resampled, count) in checked.resampled.iter().filter(|(resampled, _)| **resampled < rate) {
        advice.push(format!(
            "the list resamples {count} utterances to {resampled} Hz, but audio is read from its files as it is, for features \
             of {rate} Hz: set features.sample_rate={resampled}, or save the resampled audio"
        ));
    }
    advice
}

/// Imports and checks the corpus that `corpus` names, with the features of `config`. With `is_limited`, only what a run
/// of `config` can use is usable: one rule for all commands that judge a corpus.
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
    let options = corpus.import_options(&config.data)?;
    let spinner = crate::terminal::spinner("reading lists");
    let listing = import(path, &options);
    spinner.finish_and_clear();
    let listing = match listing {
        Err(error @ ImportError::NotUnpacked { .. }) => return Err(not_unpacked(&error)),
        listing => listing.invalid()?,
    };
    let normalize = text_normalizer(&config.data)?;
    let (format, root) = (listing.format, listing.root.clone());
    let log_mel = LogMel::new(&features(&config.features)).invalid()?;
    let frames = CtcFrames::new(config, &log_mel);
    let output_frames = |length| frames.count(length);
    let learned = match tokenizer {
        Some(_) => None,
        None if is_limited => ctc_tokenizer(config, listing.entries.iter().map(|entry| &entry.text))?,
        None => None,
    };
    let mut limits = match is_limited {
        true => Limits { tokenizer: tokenizer.or(learned.as_ref()), ..limits(config, &output_frames) },
        false => Limits::default(),
    };
    if config.data.too_long != TooLongChoice::Refuse {
        // A run cuts them.
        limits.longest = Seconds(f64::INFINITY);
    }
    let style = ProgressStyle::with_template("checking utterances {bar:40} {pos}/{len}, {eta} left");
    let bar = ProgressBar::new(listing.entries.len() as u64).with_style(style.expect("the template is valid"));
    let normalize: Option<&dyn Fn(&str) -> String> = if is_limited { Some(&normalize) } else { None };
    let audio_root = options.audio_root;
    let options = CheckOptions { depth: look, tokenizer, limits, normalize };
    let checked = check(listing, &options, &|done, all| {
        bar.set_length(all as u64);
        bar.set_position(done as u64);
    });
    bar.finish_and_clear();
    let advice = advice(&checked, audio_root.as_deref().unwrap_or(&root), log_mel.config().sample_rate);
    Ok(CheckedCorpus { format, path: path.clone(), rule: rule(config, look), advice, checked })
}

/// Writes the usable utterances of a corpus as a list.
fn run_import(args: &ImportArgs) -> Result<ExitCode, Failure> {
    let config = load_rules(&args.config, environment())?.config;
    let out = OutputFile::new(&args.out, "--out", args.overwrite, &["jsonl", "json"])?;
    let corpus = check_corpus(&args.check.corpus, &config, args.check.depth(), None, true)?;
    let corpus = corpus.without_unlistable(folder_of(&args.out));
    let (report, checked) = (corpus.report(), corpus.checked);
    if checked.utterances.is_empty() {
        report.print(args.check.json, args.check.all);
        return Err(nothing_usable());
    }
    let is_unpacked = |folder: PathBuf| checked.utterances.iter().any(|utterance| utterance.audio.starts_with(&folder));
    if let Some(folder) = unpack_folder(&config.data).filter(|folder| is_unpacked(folder.path.clone())) {
        let folder = folder.path.display();
        let message = format!(
            "the sound is unpacked in {folder}, which forgets what is not used, so a list of it would not last"
        );
        let pack = command("data pack PATH --to webdataset --out DIR");
        return Err(Failure::invalid(
            message,
            format!("train on the shards themselves, or write shards that are not compressed: `{pack}`"),
        ));
    }
    let log_mel = LogMel::new(&features(&config.features)).invalid()?;
    out.write_with(|path| Manifest::write(path, &checked.utterances, &log_mel).failed())?;
    report.print(args.check.json, args.check.all);
    if !args.check.json {
        let (out, train) = (args.out.display(), command("train"));
        println!("Written to {out}. To train on it: {train} --manifest {out}");
    }
    accept(report.lost_share(), &config.data)?;
    Ok(ExitCode::SUCCESS)
}

fn nothing_usable() -> Failure {
    Failure::invalid("none of the utterances can be used", "the reasons and the rule are listed above")
}

/// Returns the folder around a file.
fn folder_of(file: &Path) -> &Path {
    file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Reports which utterances are usable; fails if none is, or if more of the corpus is unusable than a run accepts.
fn run_check(args: &CheckArgs) -> Result<ExitCode, Failure> {
    let config = load_rules(&args.config, environment())?.config;
    let tokenizer = args.vocabulary.as_ref().map(Tokenizer::from_file).transpose().invalid()?;
    tokenizer.as_ref().map_or(Ok(()), check_phonemes)?;
    let page = page_file(args.page.as_deref(), args.overwrite)?;
    let corpus = check_corpus(&args.check.corpus, &config, args.check.depth(), tokenizer.as_ref(), true)?;
    // As `data import` writes a list by default.
    let report = corpus.without_unlistable(Path::new(".")).report();
    report.print(args.check.json, args.check.all);
    write_page(page.as_ref(), &report)?;
    if report.usable == 0 {
        return Err(nothing_usable());
    }
    accept(report.lost_share(), &config.data)?;
    Ok(ExitCode::SUCCESS)
}

/// Fails if a larger share of a corpus is lost than a run with `data` accepts: one rule for all commands that go on without a
/// part of a corpus.
pub(crate) fn accept(lost_share: f64, data: &DataConfig) -> Result<(), Failure> {
    let max_share = data.unusable_share;
    if lost_share <= max_share {
        return Ok(());
    }
    let percent = |share: f64, digits: usize| format!("{:.digits$}", share * 100.0);
    // As many digits as tell the two apart.
    let digits = (1..9).find(|&digits| percent(lost_share, digits) != percent(max_share, digits)).unwrap_or(9);
    let message = format!(
        "{} % of the utterances cannot be used, and a run accepts at most {} %",
        percent(lost_share, digits),
        percent(max_share, digits)
    );
    Err(Failure::invalid(message, "correct the list, or accept more: --set data.unusable_share=SHARE"))
}

/// Checks the file for the page that `--page` named, if it named one.
fn page_file(path: Option<&Path>, overwrite: ForceFlag) -> Result<Option<OutputFile>, Failure> {
    path.map(|path| OutputFile::new(path, "--page", overwrite, HTML)).transpose()
}

/// Writes the page on a corpus, if there is a file for it.
fn write_page(file: Option<&OutputFile>, report: &Report) -> Result<(), Failure> {
    let Some(file) = file else { return Ok(()) };
    file.write(page::page(report))?;
    eprintln!("Page written to {}", file.path().display());
    Ok(())
}

/// Prints the distributions of a corpus.
fn run_stats(args: &StatsArgs) -> Result<ExitCode, Failure> {
    let config = load(&args.config, environment())?.config;
    let page = page_file(args.page.as_deref(), args.overwrite)?;
    let report = check_corpus(&args.corpus, &config, CheckDepth::Exists, None, false)?.report();
    if args.json {
        println!("{}", serde_json::to_string(&report.stats).expect("statistics are plain data"));
    } else {
        print!("{}", report.spreads());
    }
    write_page(page.as_ref(), &report)?;
    Ok(ExitCode::SUCCESS)
}
