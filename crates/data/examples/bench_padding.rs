//! Measures padding and repeated pairs of our batches and of lhotse's bucketing sampler (--python PATH, --seconds N of
//! a batch, --lengths FILE, --shapes N of the grid).
//!
//! The data are thirty thousand lengths distributed as in LibriSpeech and LJSpeech (`fixtures/data/lengths.tsv`), or those
//! of FILE, such as `fixtures/unusual_lengths.py` makes.
//! lhotse is installed into a virtual environment under `target/`, unless --python names a Python with lhotse. Without
//! lhotse, only our batches are measured.

use std::collections::{HashMap, HashSet};
use std::error::Error;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::process::Command;

use plimsoll_core::{Frames, Grid, Key, SampleId, Seconds};
use plimsoll_data::{BatchSize, BatchingConfig, SampleMeta, epoch_batches};

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures");
    let (mut python, mut budget, mut lengths) = (None, 200.0, fixtures.join("data/lengths.tsv"));
    // What a GPU gets by default.
    let mut shapes = 72;
    while let Some(arg) = args.next() {
        let value = args.next().ok_or("--python PATH, --seconds N, --lengths FILE, --shapes N")?;
        match arg.as_str() {
            "--python" => python = Some(PathBuf::from(value)),
            "--seconds" => budget = value.parse()?,
            "--lengths" => lengths = value.into(),
            "--shapes" => shapes = value.parse()?,
            _ => {
                return Err(format!(
                    "there is no {arg}; there are --python PATH, --seconds N, --lengths FILE and --shapes N"
                )
                .into());
            }
        }
    }
    let rows = std::fs::read_to_string(&lengths)?;
    let python = python.map_or_else(|| lhotse(Path::new("target/bench-padding")), Ok);
    if let Err(reason) = &python {
        println!("lhotse is not available ({reason}); only ours is measured");
    }
    println!("batches of {budget} s, padding included");
    println!(
        "{:<12} {:<12} {:>8} {:>8} {:>14} {:>14} {:>12} {:>8}",
        "corpus", "", "batches", "audio", "audio padding", "token padding", "meet again", "shapes"
    );
    let mut corpora: Vec<&str> = rows.lines().filter_map(|line| line.split('\t').next()).collect();
    corpora.dedup();
    // Two corpora are measured together, too.
    corpora.extend((corpora.len() == 2).then_some("both"));
    for corpus in corpora {
        let samples = samples(&rows, corpus);
        let config = BatchingConfig::new(BatchSize::Seconds(Seconds(budget)));
        for (whose, shapes) in [("ours", None), ("ours, grid", NonZeroU32::new(shapes))] {
            let config = BatchingConfig { shapes, ..config.clone() };
            let epochs = [0, 1].map(|epoch| epoch_batches(&samples, &config, Key::new(1), epoch));
            print(corpus, whose, &samples, &epochs, &config.grid(&samples));
        }
        if let Ok(python) = &python {
            let script = fixtures.join("bench_padding.py");
            let out = Command::new(python).arg(script).arg(&lengths).args([corpus, &budget.to_string()]).output()?;
            match serde_json::from_slice::<[Vec<Vec<usize>>; 2]>(&out.stdout) {
                Ok(theirs) => print(corpus, "lhotse", &samples, &theirs, &Grid::default()),
                Err(_) => println!("lhotse failed: {}", String::from_utf8_lossy(&out.stderr)),
            }
        }
    }
    Ok(())
}

/// Returns the path of a Python with lhotse, which is installed into `folder` if needed.
fn lhotse(folder: &Path) -> Result<PathBuf, String> {
    let python = folder.join("bin/python");
    let run = |command: &mut Command| match command.output() {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => {
            Err(String::from_utf8_lossy(&output.stderr).lines().last().unwrap_or("no reason given").to_string())
        }
        Err(error) => Err(error.to_string()),
    };
    if run(Command::new(&python).args(["-c", "import lhotse"])).is_err() {
        println!("installing lhotse into {}, which takes minutes", folder.display());
        run(Command::new("python3").args(["-m", "venv"]).arg(folder))?;
        run(Command::new(&python).args(["-m", "pip", "install", "--quiet", "lhotse"]))?;
    }
    Ok(python)
}

fn samples(rows: &str, corpus: &str) -> Vec<SampleMeta> {
    let row = |line: &str| {
        let mut fields = line.split('\t');
        let (name, seconds, tokens) =
            (fields.next()?, fields.next()?.parse::<f64>().ok()?, fields.next()?.parse().ok()?);
        (corpus == "both" || corpus == name).then(|| SampleMeta {
            id: SampleId::from_name(line),
            frames: Frames((seconds * 100.0).round() as u32),
            tokens,
            seconds: Seconds(seconds),
        })
    };
    rows.lines().filter_map(row).collect()
}

fn print(corpus: &str, whose: &str, samples: &[SampleMeta], epochs: &[Vec<Vec<usize>>; 2], grid: &Grid) {
    let shape = |batch: &Vec<usize>| {
        let longest = |length: fn(&SampleMeta) -> u32| batch.iter().map(|&i| length(&samples[i])).max().unwrap_or(0);
        let frames = grid.frames(longest(|sample| sample.frames.0));
        (batch.len(), frames, grid.tokens(frames, longest(|sample| sample.tokens)))
    };
    let shapes: Vec<(usize, u32, u32)> = epochs[0].iter().map(shape).collect();
    let padding = |padded: fn(&(usize, u32, u32)) -> u32, real: fn(&SampleMeta) -> u32| {
        let cells: f64 = shapes.iter().map(|shape| shape.0 as f64 * f64::from(padded(shape))).sum();
        100.0 * (1.0 - samples.iter().map(|sample| f64::from(real(sample))).sum::<f64>() / cells)
    };
    println!(
        "{corpus:<12} {whose:<12} {:>8} {:>6.1} s {:>12.2} % {:>12.2} % {:>10.2} % {:>8}",
        epochs[0].len(),
        samples.iter().map(|sample| sample.seconds.0).sum::<f64>() / epochs[0].len() as f64,
        padding(|shape| shape.1, |sample| sample.frames.0),
        padding(|shape| shape.2, |sample| sample.tokens),
        100.0 * meetings(epochs),
        shapes.iter().collect::<HashSet<_>>().len(),
    );
}

/// Computes the share of the pairs in one batch of the first epoch that are in one batch of the second epoch, too.
fn meetings([first, second]: &[Vec<Vec<usize>>; 2]) -> f64 {
    let batch_of: HashMap<usize, usize> = second
        .iter()
        .enumerate()
        .flat_map(|(batch_idx, batch)| batch.iter().map(move |&index| (index, batch_idx)))
        .collect();
    let pairs = |count: usize| (count * count.saturating_sub(1)) as f64;
    let (mut again, mut all) = (0.0, 0.0);
    for batch in first {
        let mut counts: HashMap<Option<&usize>, usize> = HashMap::new();
        batch.iter().for_each(|index| *counts.entry(batch_of.get(index)).or_default() += 1);
        again += counts.values().map(|&count| pairs(count)).sum::<f64>();
        all += pairs(batch.len());
    }
    again / f64::max(all, 1.0)
}
