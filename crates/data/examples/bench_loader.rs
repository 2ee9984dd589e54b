//! Measures the hours of speech loaded per second by this loader, PyTorch's DataLoader and lhotse (--python PATH,
//! --files N).
//!
//! The data are a thousand FLAC files of the built-in corpus, loaded by two workers in batches of 16 with equal
//! features. A Python with torch, torchaudio, soundfile and lhotse writes the FLAC files and is measured. Without it,
//! only this loader is measured, on WAV files.

use std::collections::HashMap;
use std::error::Error;
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

use plimsoll_audio::{LogMel, LogMelConfig, audio_info, read_recording};
use plimsoll_core::{Batch, BatchSource, Bytes, Key, Position, Seconds};
use plimsoll_corpus::{CorpusOptions, Engine, make_corpus};
use plimsoll_data::store::{Store, StoreConfig, StorePrecision};
use plimsoll_data::{BatchSize, BatchingConfig, Dataset, Loader, LoaderConfig, Manifest, Mode, Shard, Utterance};
use plimsoll_text::Tokenizer;

type Outcome<T> = Result<T, Box<dyn Error>>;

const WORKERS: usize = 2;
const BATCH: u32 = 16;
/// Number of passes over all files. The fastest pass counts, for every loader.
const PASSES: usize = 3;

fn main() -> Outcome<()> {
    let mut args = std::env::args().skip(1);
    let (mut python, mut files) = (None, 1000);
    while let Some(arg) = args.next() {
        let value = args.next().ok_or("--python PATH, --files N")?;
        match arg.as_str() {
            "--python" => python = Some(PathBuf::from(value)),
            "--files" => files = value.parse()?,
            _ => return Err(format!("there is no {arg}; there are --python PATH and --files N").into()),
        }
    }
    let folder = Path::new("target/bench-loader").join(files.to_string());
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/bench_loader.py");
    let utterances = corpus(&folder, files, python.as_deref(), &script)?;
    let total: Seconds = utterances.iter().map(|utterance| utterance.duration).sum();
    println!("{files} files, {total} of speech, {WORKERS} workers, batches of {BATCH}");

    let log_mel = LogMel::new(&LogMelConfig::default())?;
    let store = StoreConfig { limit: Bytes::gib(8), precision: StorePrecision::F32 };
    let kept = tempfile::tempdir_in(&folder)?;
    let dataset = |store: Option<Store>| -> Outcome<Dataset> {
        let tokenizer = Tokenizer::characters(utterances.iter().map(|utterance| &utterance.text));
        let dataset = Dataset::new(utterances.clone(), log_mel.clone(), tokenizer);
        Ok(match store {
            Some(store) => dataset.with_store(Arc::new(store)),
            None => dataset,
        })
    };
    let cold = fastest(&Arc::new(dataset(None)?), PASSES);
    let writing = fastest(&Arc::new(dataset(Some(Store::open(kept.path(), &store)?))?), 1);
    // Opened again, as by another run.
    let warm = fastest(&Arc::new(dataset(Some(Store::open(kept.path(), &store)?))?), PASSES);
    let hours = |seconds: f64| total.0 / 3600.0 / seconds;
    println!("ours, decoding:             {:7.3} hours a second", hours(cold));
    println!("ours, and writing the cache:{:7.3}", hours(writing));
    println!("ours, from the cache:       {:7.3}", hours(warm));
    stages(&utterances, &log_mel)?;
    if let Some(python) = python {
        let arguments = [&folder.join("flac").display().to_string(), &WORKERS.to_string(), &BATCH.to_string()];
        let out = Command::new(python).arg(&script).arg("measure").args(arguments).output()?;
        let measured: serde_json::Value = serde_json::from_slice(&out.stdout)
            .map_err(|_| format!("the script failed: {}", String::from_utf8_lossy(&out.stderr)))?;
        compare(&dataset(None)?, &measured)?;
        for name in ["torch", "lhotse"] {
            let Some(passes) = measured[name].as_array() else {
                println!("{name} could not be measured: {}", measured[format!("{name}_error")]);
                continue;
            };
            let theirs = passes.iter().filter_map(serde_json::Value::as_f64).fold(f64::INFINITY, f64::min);
            println!(
                "{name:<28}{:7.3} hours a second; ours {:.2}x, from the cache {:.1}x",
                hours(theirs),
                theirs / cold,
                theirs / warm
            );
        }
    }
    Ok(())
}

/// Returns the utterances of the corpus, whose files are made if needed.
fn corpus(folder: &Path, files: usize, python: Option<&Path>, script: &Path) -> Outcome<Vec<Utterance>> {
    let (wav, flac) = (folder.join("wav"), folder.join("flac"));
    if !wav.join("manifest.jsonl").exists() {
        println!("making {files} utterances in {}", wav.display());
        let options = CorpusOptions {
            out: wav.clone(),
            utterances: files,
            speakers: 20,
            seed: 1,
            words: None,
            studio: false,
            engine: Engine::Formant,
        };
        make_corpus(&options, &|_, _| {})?;
    }
    let mut utterances = Manifest::read(&wav)?.utterances.to_vec();
    let Some(python) = python else { return Ok(utterances) };
    if !flac.exists() {
        let status = Command::new(python).arg(script).arg("convert").arg(wav.join("wavs")).arg(&flac).status()?;
        if !status.success() {
            return Err("FLAC files could not be made".into());
        }
    }
    for utterance in &mut utterances {
        let name = utterance.audio.file_stem().ok_or("a file without a name")?;
        utterance.audio = flac.join(name).with_extension("flac");
        utterance.duration = audio_info(&utterance.audio)?.duration;
    }
    Ok(utterances)
}

/// Loads all utterances `passes` times, and returns the seconds of the fastest pass.
fn fastest(dataset: &Arc<Dataset>, passes: usize) -> f64 {
    let config = LoaderConfig {
        batching: BatchingConfig::new(BatchSize::Utterances(NonZeroU32::new(BATCH).expect("16 is not zero"))),
        grid: None,
        workers: NonZeroUsize::new(WORKERS),
        prefetch: NonZeroUsize::new(8),
        unreadable_share: 0.0,
        mode: Mode::Train { epochs: Some(1) },
        shard: Shard::default(),
    };
    let pass = |n| {
        let start = Instant::now();
        let mut loader = Loader::start(dataset.clone(), &config, Key::new(n), Position::default());
        let mut utterances = 0;
        while let Some(loaded) = loader.next_batch() {
            let batch = loaded.expect("all files are good").batch;
            utterances += batch.len();
            // So that buffers are reused, as by a trainer.
            loader.recycle(batch);
        }
        assert_eq!(utterances, dataset.len());
        start.elapsed().as_secs_f64()
    };
    (0..passes as u64).map(pass).fold(f64::INFINITY, f64::min)
}

/// Measures and prints the time of each loading step in one thread.
fn stages(utterances: &[Utterance], log_mel: &LogMel) -> Outcome<()> {
    let start = Instant::now();
    let sounds: Vec<_> = utterances.iter().map(|u| read_recording(&u.audio)).collect::<Result<_, _>>()?;
    let decoding = start.elapsed();
    let start = Instant::now();
    let frames: usize = sounds.iter().map(|sound| log_mel.extract(&sound.samples).len()).sum();
    let features = start.elapsed();
    assert!(frames > 0);
    println!("one thread: {decoding:.2?} for reading and decoding, {features:.2?} for features");
    Ok(())
}

/// Compares the features of some files with the features that Python computed, and prints the largest difference.
fn compare(dataset: &Dataset, measured: &serde_json::Value) -> Outcome<()> {
    let theirs: HashMap<String, Vec<f64>> = serde_json::from_value(measured["features"].clone())?;
    let (mut most, mut files) = (0.0, 0);
    for index in 0..dataset.len() {
        let audio = &dataset.utterance(index).audio;
        let Some(theirs) = audio.file_stem().and_then(|stem| theirs.get(stem.to_str()?)) else { continue };
        let ours = dataset.load(index, None)?.features;
        if ours.len() != theirs.len() {
            let (ours, theirs, file) = (ours.len(), theirs.len(), audio.display());
            return Err(format!("{file}: ours has {ours} feature values, theirs {theirs}").into());
        }
        most = ours.iter().zip(theirs).map(|(ours, theirs)| (f64::from(*ours) - theirs).abs()).fold(most, f64::max);
        files += 1;
    }
    if files < theirs.len() {
        return Err(format!("theirs has {} files, and ours only {files} of them", theirs.len()).into());
    }
    println!("features of {files} files differ by at most {most:.1e}");
    Ok(())
}
