//! `plimsoll lm`: n-gram language models for the search of a recognizer.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use plimsoll_config::DataConfig;
use plimsoll_config::invocation::command;
use plimsoll_core::{Bytes, counted, open_text_file};
use plimsoll_language::{NgramModel, Prediction, Quantization, TrainOptions, TrainProgress, Unit, train_with};
use plimsoll_recipes::language::open_model;
use plimsoll_recipes::texts::read_manifest;
use plimsoll_recipes::{Failure, FailureExt};
use serde_json::{Value, json};

use crate::number::number_in;
use crate::output::{ForceFlag, OutputFile};
use crate::terminal::{Terminal, spinner};

/// Commands of `lm`.
#[derive(Debug, Subcommand)]
pub(crate) enum LmCommand {
    /// Train a language model on text files or the texts of a corpus, by modified Kneser-Ney smoothing
    Train(LmTrainArgs),
    /// Show the order, unit and size of a language model
    Info(LmInfoArgs),
    /// Measure how well a language model predicts text: its perplexity
    Perplexity(LmPerplexityArgs),
}

/// Texts of `lm train` and `lm perplexity`.
#[derive(Debug, Args)]
pub(crate) struct TextArgs {
    /// Text files, one sentence a line; `-` is standard input.
    #[arg(value_name = "TEXT", required_unless_present = "data")]
    texts: Vec<PathBuf>,
    /// Corpus whose texts are read too, in any layout that `data import` knows.
    #[arg(long, value_name = "PATH")]
    data: Option<PathBuf>,
}

/// Arguments of `lm train`.
#[derive(Debug, Args)]
pub(crate) struct LmTrainArgs {
    /// The texts.
    #[command(flatten)]
    texts: TextArgs,
    /// File to write: a model of Plimsoll, or ARPA if the name ends in `.arpa` or `.arpa.gz`.
    #[arg(long, value_name = "FILE", default_value = "model.lm")]
    out: PathBuf,
    /// Number of words of the longest n-grams, from 1 to 6.
    #[arg(long, value_name = "N", default_value = "3", value_parser = |text: &str| number_in(text, 1..=6))]
    order: std::num::NonZeroUsize,
    /// Count characters in place of words, for languages without spaces and for open vocabularies.
    #[arg(long)]
    characters: bool,
    /// For each order, the count up to which n-grams are left out, such as 0,0,1; the last number is for all higher orders.
    #[arg(long, value_name = "COUNTS", value_delimiter = ',')]
    prune: Vec<u64>,
    /// Store probabilities in 8 bits. The file is smaller by about a third.
    #[arg(long)]
    quantize: bool,
    /// Whether the file may be overwritten.
    #[command(flatten)]
    overwrite: ForceFlag,
    /// Print one JSON object instead of text.
    #[arg(long)]
    json: bool,
}

/// Arguments of `lm info`.
#[derive(Debug, Args)]
pub(crate) struct LmInfoArgs {
    /// File of `lm train`, of KenLM (probing or trie) or in ARPA form, also with gzip.
    #[arg(value_name = "MODEL")]
    model: PathBuf,
    /// Print one JSON object instead of text.
    #[arg(long)]
    json: bool,
}

/// Arguments of `lm perplexity`.
#[derive(Debug, Args)]
pub(crate) struct LmPerplexityArgs {
    /// The language model.
    #[arg(value_name = "MODEL")]
    model: PathBuf,
    /// The texts.
    #[command(flatten)]
    texts: TextArgs,
    /// Print one JSON object instead of text.
    #[arg(long)]
    json: bool,
}

impl LmCommand {
    /// Runs the subcommand of `lm`.
    pub(crate) fn run(&self) -> Result<ExitCode, Failure> {
        match self {
            Self::Train(args) => run_train(args)?,
            Self::Info(args) => {
                let model = open_model(&args.model)?;
                print_model(&args.model, &model, json!({}), args.json);
            }
            Self::Perplexity(args) => run_perplexity(args)?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn run_train(args: &LmTrainArgs) -> Result<(), Failure> {
    let output = OutputFile::new(&args.out, "--out", args.overwrite, &["lm", "arpa"])?;
    let texts = sentences(&args.texts)?;
    let unit = if args.characters { Unit::Characters } else { Unit::Words };
    let options = TrainOptions::new(args.order.get()).with_unit(unit).with_prune(args.prune.clone());
    let bar = spinner("training the language model");
    let mut progress = |progress: TrainProgress| match progress {
        TrainProgress::Counted { n_sentences, .. } => bar.set_message(format!("counted {n_sentences} sentences")),
        TrainProgress::Estimated { order, n_ngrams } => bar.set_message(format!("order {order}: {n_ngrams} n-grams")),
        _ => {}
    };
    let trained = train_with(texts, &options, &mut progress);
    bar.finish_and_clear();
    let (model, report) = trained.invalid()?;
    if !report.fallback_orders.is_empty() {
        eprintln!("note: too few different n-grams of order {:?}: usual discounts were taken", report.fallback_orders);
    }
    let name = args.out.to_string_lossy().to_lowercase();
    let quantization = if args.quantize { Quantization::Bits8 } else { Quantization::None };
    output.write_with(|path| match (name.ends_with(".arpa"), name.ends_with(".arpa.gz")) {
        (true, _) => model.write_arpa_file(path).failed(),
        (_, true) => model.write_arpa_gzip(path).failed(),
        _ => model.save(path, quantization).failed(),
    })?;
    print_model(&args.out, &model, json!({"sentences": report.n_sentences, "tokens": report.n_tokens}), args.json);
    Ok(())
}

fn run_perplexity(args: &LmPerplexityArgs) -> Result<(), Failure> {
    let model = open_model(&args.model)?;
    let texts = sentences(&args.texts)?;
    let count = texts.len();
    let Some(Prediction { perplexity, known_perplexity, n_words, n_unknown }) = model.prediction(texts) else {
        return Err(Failure::invalid("there is no text", "give a file with a sentence a line"));
    };
    match args.json {
        true => println!(
            "{}",
            json!({
                "sentences": count,
                "perplexity": perplexity,
                "known_perplexity": known_perplexity,
                "words": n_words,
                "unknown_words": n_unknown,
            })
        ),
        false => println!("perplexity {perplexity:.2} on {}", counted(count, "sentence")),
    }
    if n_unknown > 0 && !args.json {
        let share = n_unknown as f64 / n_words as f64 * 100.0;
        println!("perplexity {known_perplexity:.2} without {} ({share:.1} %)", counted(n_unknown, "unknown word"));
    }
    Ok(())
}

/// Returns whether a line of a file belongs to a list of utterances: it is a JSON object, or the name of the file is that of a
/// table or of JSON. A text may have a line `[1]`.
fn is_list(path: &Path, line: &str) -> bool {
    let has_ending = |endings: &[&str]| {
        path.extension().is_some_and(|ending| endings.iter().any(|list| ending.eq_ignore_ascii_case(list)))
    };
    let start = line.trim_start_matches('\u{feff}').trim();
    has_ending(&["csv", "tsv"])
        || has_ending(&["json", "jsonl"]) && start.starts_with(['{', '['])
        || start.starts_with('{') && serde_json::from_str::<Value>(start).is_ok_and(|value| value.is_object())
}

/// Reads all sentences.
fn sentences(args: &TextArgs) -> Result<Vec<String>, Failure> {
    let mut sentences = Vec::new();
    for path in &args.texts {
        let failure = |error: std::io::Error| {
            Failure::invalid(format!("cannot read {}: {error}", path.display()), "a text file has one sentence a line")
        };
        let lines: Box<dyn BufRead> = match path.as_os_str() == "-" {
            true => Box::new(std::io::stdin().lock()),
            false => Box::new(BufReader::new(open_text_file(path).map_err(failure)?)),
        };
        for (number, line) in lines.lines().enumerate() {
            let line = line.map_err(failure)?;
            if line.contains('\0') {
                let message = format!("{}, line {}: the text has a zero byte", path.display(), number + 1);
                return Err(Failure::invalid(message, "the file is no text in UTF-8; `iconv -t UTF-8` converts one"));
            }
            if is_list(path, &line) {
                let message =
                    format!("{}, line {}: this is a list of utterances, not text", path.display(), number + 1);
                let data = command(&format!("lm train --data {}", path.display()));
                return Err(Failure::invalid(message, format!("its texts are read with --data: `{data}`")));
            }
            // A byte order mark is no letter of the first word.
            sentences.push(if number == 0 { line.trim_start_matches('\u{feff}').into() } else { line });
        }
    }
    if let Some(corpus) = &args.data {
        let manifest = read_manifest(corpus, &DataConfig::default(), &Terminal)?;
        sentences.extend(manifest.utterances.texts().map(String::from));
    }
    sentences.retain(|sentence| !sentence.trim().is_empty());
    Ok(sentences)
}

/// Prints the sizes of the model in the file at `path`, with `more` about its training.
fn print_model(path: &Path, model: &NgramModel, more: Value, json: bool) {
    let unit = if model.unit() == Unit::Words { "words" } else { "characters" };
    let bytes = Bytes(std::fs::metadata(path).map_or(0, |metadata| metadata.len()));
    if json {
        let mut all =
            json!({"file": path, "order": model.order(), "unit": unit, "ngrams": model.counts(), "bytes": bytes});
        if let (Value::Object(all), Value::Object(more)) = (&mut all, more) {
            all.extend(more);
        }
        println!("{all}");
        return;
    }
    let counts: Vec<String> = model.counts().iter().map(u64::to_string).collect();
    println!("{}: {}-grams of {unit}, {bytes}", path.display(), model.order());
    println!("  n-grams of order 1 to {}: {}", model.order(), counts.join(", "));
}
