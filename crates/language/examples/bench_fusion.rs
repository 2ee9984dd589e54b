//! Compares the search with a language model with pyctcdecode and kenlm: word error rate and time (--python PATH).
//!
//! A hundred and fifty sentences of a random grammar with 3000 words, heard badly, are decoded with a 3-gram model of twenty
//! thousand other sentences. Both sides use one thread, the same numbers and the same options. The Python needs the packages
//! kenlm and pyctcdecode. pyctcdecode 0.5.0 loses texts after which a space could stand; it is measured as released and
//! with that mended.

use std::error::Error;
use std::fs;
use std::num::NonZeroUsize;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use plimsoll_language::{FusionOptions, LanguageScorer, NgramModel, Quantization, TrainOptions, fused_beam, train};

type Outcome<T> = Result<T, Box<dyn Error>>;

const SCRIPT: &str = "fixtures/bench_fusion.py";

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let python = arguments.iter().skip_while(|word| *word != "--python").nth(1).map_or("python3", String::as_str);
    let folder = Path::new("target/bench-fusion");
    run(python, &["make", &folder.to_string_lossy()])?;

    let texts = fs::read_to_string(folder.join("train.txt"))?;
    let start = Instant::now();
    let (model, report) = train(texts.lines(), &TrainOptions::new(3))?;
    println!("trained on {} words in {:.2} s: {:?} n-grams", report.n_tokens, seconds(start), model.counts());
    model.write_arpa_file(folder.join("model.arpa"))?;
    for (name, quantization) in [("model.lm", Quantization::None), ("model8.lm", Quantization::Bits8)] {
        model.save(folder.join(name), quantization)?;
        let start = Instant::now();
        NgramModel::open(folder.join(name))?;
        let size = fs::metadata(folder.join(name))?.len();
        println!("{name}: {} KiB, opened in {:.2} ms", size >> 10, 1e3 * seconds(start));
    }

    let tokens: Vec<String> = fs::read_to_string(folder.join("tokens.txt"))?.split('\n').map(str::to_owned).collect();
    let emissions = read_emissions(&fs::read(folder.join("emissions"))?);
    let heard = fs::read_to_string(folder.join("heard.txt"))?;
    let heard: Vec<&str> = heard.lines().collect();
    let n_frames = emissions.iter().map(Vec::len).sum::<usize>() / tokens.len();
    println!("{} utterances, {n_frames} frames, {} tokens", emissions.len(), tokens.len());

    let without = FusionOptions::default();
    let plain = LanguageScorer::new(&tokens, &without);
    let found = |scorer: &LanguageScorer, options: &FusionOptions| -> Vec<String> {
        emissions.iter().map(|rows| fused_beam(rows, scorer, options).swap_remove(0).text).collect()
    };
    println!("without a model: WER {:.2} %", error_rate(&heard, &found(&plain, &without)));
    for (width, version) in [(10, "mended"), (100, "mended"), (100, "released")] {
        let arguments = ["decode", &folder.to_string_lossy(), &width.to_string(), version];
        let theirs: f64 = run(python, &arguments)?.trim().parse()?;
        let their_texts = fs::read_to_string(folder.join("found.txt"))?;
        let their_texts: Vec<String> = their_texts.lines().map(str::to_owned).collect();
        let options = FusionOptions::default().with_width(NonZeroUsize::new(width).ok_or("a width of zero")?);
        for name in ["model.lm", "model8.lm"] {
            let scorer = LanguageScorer::new(&tokens, &options).with_model(NgramModel::open(folder.join(name))?);
            let start = Instant::now();
            let texts = found(&scorer, &options);
            let ours = seconds(start);
            let n_equal = texts.iter().zip(&their_texts).filter(|(ours, theirs)| ours == theirs).count();
            println!(
                "width {width}, {name}: WER {:.2} % in {ours:.2} s; {version}: {:.2} % in {theirs:.2} s ({:.1} times); \
                 {n_equal} equal texts",
                error_rate(&heard, &texts),
                error_rate(&heard, &their_texts),
                theirs / ours
            );
        }
    }
    Ok(())
}

fn seconds(start: Instant) -> f64 {
    start.elapsed().as_secs_f64()
}

/// Runs the script and returns what it prints.
fn run(python: &str, arguments: &[&str]) -> Outcome<String> {
    let output = Command::new(python).arg(SCRIPT).args(arguments).output()?;
    if !output.status.success() {
        return Err(format!("{python} {SCRIPT} failed: {}", String::from_utf8_lossy(&output.stderr)).into());
    }
    Ok(String::from_utf8(output.stdout)?)
}

/// Reads the emissions of each utterance.
fn read_emissions(bytes: &[u8]) -> Vec<Vec<f32>> {
    let words: Vec<[u8; 4]> = bytes.chunks_exact(4).map(|word| [word[0], word[1], word[2], word[3]]).collect();
    let mut at = 1;
    let mut emissions = Vec::new();
    while at < words.len() {
        let n_values = (u32::from_le_bytes(words[at]) * u32::from_le_bytes(words[at + 1])) as usize;
        at += 2;
        emissions.push(words[at..at + n_values].iter().map(|&word| f32::from_le_bytes(word)).collect());
        at += n_values;
    }
    emissions
}

/// Computes the word error rate over all texts, in percent.
fn error_rate(heard: &[&str], found: &[String]) -> f64 {
    let mut totals = (0, 0);
    for (heard, found) in heard.iter().zip(found) {
        let (heard, found): (Vec<&str>, Vec<&str>) = (heard.split(' ').collect(), found.split(' ').collect());
        let mut row: Vec<usize> = (0..=found.len()).collect();
        for (index, word) in heard.iter().enumerate() {
            let mut diagonal = std::mem::replace(&mut row[0], index + 1);
            for (at, other) in found.iter().enumerate() {
                let changed = diagonal + usize::from(word != other);
                diagonal = row[at + 1];
                row[at + 1] = changed.min(row[at] + 1).min(diagonal + 1);
            }
        }
        totals.0 += row[found.len()];
        totals.1 += heard.len();
    }
    100.0 * totals.0 as f64 / f64::from(totals.1 as u32)
}
