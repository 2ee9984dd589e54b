//! Trains a neural vocoder and compares it with Griffin-Lim: `... --example vocoder -- OUT STEPS [FOLDER]`.
//!
//! Trains on the WAV files in FOLDER, or on ten minutes of the built-in voice. Every twentieth recording is held out. Each of
//! these is turned into log-mels and back in three ways: OUT gets `N.wav`, `N-neural.wav`, `N-refined.wav` and
//! `N-griffin-lim.wav`, so that another program can judge them.

use std::collections::BTreeMap;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::time::Instant;

use burn::module::Module;
use burn::tensor::{Device, Tensor, TensorData};
use plimsoll_core::{Grid, HostBatch, HostSample, Key, SampleId};
use plimsoll_corpus::{CorpusOptions, Engine, make_corpus};
use plimsoll_speech::audio::{LogMel, LogMelConfig, Vocoder, read_audio, write_wav};
use plimsoll_speech::vocoder::{NeuralVocoder, RefinedVocoder, VocoderTask, VocoderTaskConfig};
use plimsoll_tape::count;
use plimsoll_train::{AdamWConfig, Governor, Schedule, Shape, Trainer, TrainerConfig};

/// Crops of a batch.
const BATCH: usize = 8;
/// Micro-batches that are computed at once.
const LANES: usize = 2;
/// Frames of a chunk when sound is made while frames arrive.
const CHUNK: usize = 40;

type Recordings = Vec<Vec<f32>>;

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [out, steps, rest @ ..] = args.as_slice() else { return Err("usage: vocoder OUT STEPS [FOLDER]".into()) };
    let (out, steps) = (PathBuf::from(out), steps.parse::<u64>()?);
    std::fs::create_dir_all(&out)?;
    let folder = match rest.first() {
        Some(folder) => PathBuf::from(folder),
        None => built_in_voice(&out.join("corpus"))?,
    };
    let features = LogMelConfig { sample_rate: 16_000, win_length: 800, hop_length: 200, ..preset()? };
    let (train, held_out) = recordings(&folder, features.sample_rate)?;
    let task = train_vocoder(&VocoderTaskConfig::recommended(features.clone()), &train, steps)?;
    compare(&task.valid().vocoder().clone(), &features, &held_out, &out)
}

fn preset() -> Result<LogMelConfig, &'static str> {
    LogMelConfig::preset("myxtts").ok_or("no such preset")
}

/// Makes 400 sentences of one speaker, and returns the folder of their recordings.
fn built_in_voice(out: &Path) -> Result<PathBuf, Box<dyn Error>> {
    let options = CorpusOptions {
        out: out.into(),
        utterances: 400,
        speakers: 1,
        seed: 1,
        words: None,
        studio: true,
        engine: Engine::Formant,
    };
    make_corpus(&options, &|_, _| {})?;
    Ok(out.join("wavs"))
}

/// Reads all WAV files of `folder`: those to train on, and every twentieth, which is held out.
fn recordings(folder: &Path, rate: u32) -> Result<(Recordings, Recordings), Box<dyn Error>> {
    let files = std::fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<std::io::Result<Vec<PathBuf>>>()?;
    let mut files: Vec<PathBuf> =
        files.into_iter().filter(|path| path.extension().is_some_and(|e| e == "wav")).collect();
    files.sort();
    let (mut train, mut held_out) = (Recordings::new(), Recordings::new());
    for (index, path) in files.iter().enumerate() {
        let list = if index % 20 == 19 { &mut held_out } else { &mut train };
        list.push(read_audio(path, rate)?.samples);
    }
    let seconds = |all: &Recordings| all.iter().map(Vec::len).sum::<usize>() as f64 / f64::from(rate);
    println!("{:.0} s to train on, {:.0} s held out", seconds(&train), seconds(&held_out));
    Ok((train, held_out))
}

/// Cuts a crop at a random place of each of some random recordings.
fn crops(train: &Recordings, crop: usize, key: Key) -> Result<HostBatch, plimsoll_core::BatchError> {
    let cut = |index: u64| {
        let key = key.at(index);
        let recording = &train[key.with("recording").below(train.len() as u64) as usize];
        let from = key.with("place").below(recording.len().saturating_sub(crop) as u64 + 1) as usize;
        let mut features = recording[from..recording.len().min(from + crop)].to_vec();
        features.resize(crop, 0.0);
        HostSample {
            id: SampleId(key.bits()),
            name: index.to_string(),
            features,
            tokens: vec![0],
            reference: Vec::new(),
        }
    };
    HostBatch::collate(&(0..BATCH as u64).map(cut).collect::<Vec<_>>(), 1, &Grid::default())
}

fn train_vocoder(config: &VocoderTaskConfig, train: &Recordings, steps: u64) -> Result<VocoderTask, Box<dyn Error>> {
    let task = config.init(&Device::flex().autodiff(), Key::new(1));
    println!("{} parameters, {} of them in the vocoder", count(&task), count(task.vocoder()));
    let schedule = Schedule { shape: Shape::Cosine, peak: 2e-3, last: 2e-5, warmup: 50, total: steps };
    let optimizer = AdamWConfig { beta_1: 0.8, beta_2: 0.99, ..AdamWConfig::default() }.into();
    let trainer_config =
        TrainerConfig { optimizer, lanes: LANES, clip_norm: 50.0, ..TrainerConfig::new(schedule, Key::new(1)) };
    let mut trainer = Trainer::new(task, trainer_config, Governor::new(BATCH));
    let (begin, mut sums, mut counted) = (Instant::now(), BTreeMap::<&str, f64>::new(), 0);
    for step in 0..steps {
        let report = trainer.step(&crops(train, config.crop, Key::new(2).at(step))?)?;
        report.parts.iter().for_each(|(name, value)| *sums.entry(name).or_default() += value);
        counted += 1;
        if report.step % 50 == 0 || report.step == steps {
            let mean = |(name, sum): (&str, f64)| format!("{name} {:.3}", sum / f64::from(counted));
            let parts: Vec<String> = std::mem::take(&mut sums).into_iter().map(mean).collect();
            println!("step {} after {} s: {}", report.step, begin.elapsed().as_secs(), parts.join(", "));
            counted = 0;
        }
    }
    Ok(trainer.task)
}

/// Resynthesizes the held-out recordings in all ways, and prints how far their log-mels are from the truth.
fn compare(
    vocoder: &NeuralVocoder,
    features: &LogMelConfig,
    held_out: &Recordings,
    out: &Path,
) -> Result<(), Box<dyn Error>> {
    let (extractor, griffin_lim) = (LogMel::new(features)?, Vocoder::new(features)?);
    let distance = |sound: &[f32], truth: &[f32]| {
        let found = extractor.extract(sound);
        let pairs = found.iter().zip(truth);
        pairs.map(|(a, b)| f64::from((a - b).abs())).sum::<f64>() / truth.len() as f64
    };
    let refined = RefinedVocoder::new(vocoder.clone())?;
    let mut sums = [0.0; 3];
    for (index, recording) in held_out.iter().enumerate() {
        let truth = extractor.extract(recording);
        write_wav(&out.join(format!("{index}.wav")), recording, features.sample_rate)?;
        let ways = [
            ("neural", generate(vocoder, &truth)),
            ("refined", refined.waveform(&truth, CHUNK)),
            ("griffin-lim", griffin_lim.waveform(&truth)),
        ];
        for (sum, (name, mut samples)) in sums.iter_mut().zip(ways) {
            samples.truncate(recording.len());
            *sum += distance(&samples, &truth);
            write_wav(&out.join(format!("{index}-{name}.wav")), &samples, features.sample_rate)?;
        }
    }
    let [neural, between, iterated] = sums.map(|sum| sum / held_out.len() as f64);
    println!("log-mel distance: neural {neural:.4}, refined {between:.4}, Griffin-Lim {iterated:.4}");
    let Some(longest) = held_out.iter().max_by_key(|recording| recording.len()) else { return Ok(()) };
    let (truth, seconds) = (extractor.extract(longest), longest.len() as f64 / f64::from(features.sample_rate));
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build()?;
    let timed = |work: &(dyn Fn() + Sync)| {
        let started = Instant::now();
        pool.install(work);
        started.elapsed().as_secs_f64() / seconds
    };
    let whole = timed(&|| drop(generate(vocoder, &truth)));
    let chunks = timed(&|| drop(vocoder.waveform(&truth, CHUNK)));
    let between = timed(&|| drop(refined.waveform(&truth, CHUNK)));
    let iterated = timed(&|| drop(griffin_lim.waveform(&truth)));
    println!(
        "seconds for a second of sound on one thread: neural {whole:.3}, in chunks {chunks:.3}, refined {between:.3}, \
         Griffin-Lim {iterated:.3}"
    );
    Ok(())
}

fn generate(vocoder: &NeuralVocoder, mels: &[f32]) -> Vec<f32> {
    let width = vocoder.config().features.n_mels;
    let mels = Tensor::from_data(TensorData::new(mels.to_vec(), [1, mels.len() / width, width]), &Device::flex());
    vocoder.generate(mels).into_data().try_into_vec().expect("samples are in fp32")
}
