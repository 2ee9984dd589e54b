//! Tones and small corpora for the tests of `plimsoll-data`.

use std::f64::consts::TAU;
use std::path::Path;

use hound::{SampleFormat, WavSpec, WavWriter};
use plimsoll_core::{Bytes, Seconds};

use crate::{Augment, Dataset, Utterance};
use plimsoll_audio::{LogMel, LogMelConfig, Normalize};
use plimsoll_text::Tokenizer;

/// Generates a sine wave at half of full scale.
pub(crate) fn tone(hertz: f64, seconds: f64, rate: u32) -> Vec<f32> {
    let samples = (seconds * f64::from(rate)).round() as usize;
    (0..samples).map(|n| 0.5 * (TAU * hertz * n as f64 / f64::from(rate)).sin() as f32).collect()
}

/// Writes `samples` as a mono WAV file with 16 bits.
pub(crate) fn write_wav(path: &Path, samples: &[f32], rate: u32) {
    let spec = WavSpec { channels: 1, sample_rate: rate, bits_per_sample: 16, sample_format: SampleFormat::Int };
    let mut writer = WavWriter::create(path, spec).unwrap();
    for sample in samples {
        writer.write_sample((sample * 32_767.0) as i16).unwrap();
    }
    writer.finalize().unwrap();
}

/// Utterances of a folder of tones.
pub(crate) struct Corpus(pub(crate) Vec<Utterance>);

/// Writes `count` tones of different lengths, as `0.wav`, `1.wav` and so on.
pub(crate) fn corpus(folder: &Path, count: usize) -> Corpus {
    let utterance = |n: usize| {
        let (seconds, audio) = (0.2 + 0.03 * (n * 7 % 10) as f64, folder.join(format!("{n}.wav")));
        write_wav(&audio, &tone(300.0 + 100.0 * n as f64, seconds, 16_000), 16_000);
        Utterance {
            id: n.to_string(),
            audio,
            offset: Seconds(0.0),
            duration: Seconds(seconds),
            text: format!("tone {n}"),
            speaker: None,
            language: None,
        }
    };
    Corpus((0..count).map(utterance).collect())
}

impl Corpus {
    pub(crate) fn dataset(self, augment: Option<Augment>, cache: Bytes) -> Dataset {
        // Not normalized, because a steady tone minus its mean is noise.
        let config = LogMelConfig { normalize: Normalize::None, ..LogMelConfig::default() };
        let tokenizer = Tokenizer::characters(self.0.iter().map(|utterance| &utterance.text));
        let dataset = Dataset::new(self.0, LogMel::new(&config).unwrap(), tokenizer).with_memory_cache(cache);
        match augment {
            Some(augment) => dataset.with_augment(augment).unwrap(),
            None => dataset,
        }
    }
}
