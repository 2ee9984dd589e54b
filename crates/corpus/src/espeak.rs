//! Speech engine of the external program espeak-ng, which is started for every utterance.

use crate::engine::SpeechEngine;
use crate::error::CorpusError;
use crate::random::uniform;
use crate::synthesizer::SAMPLE_RATE;
use crate::vocabulary;
use plimsoll_core::Key;
use rubato::audioadapter_buffers::direct::InterleavedSlice;
use rubato::{Fft, FixedSync, Resampler};
use std::io;
use std::process::{Command, Output};

/// Voice variants of espeak-ng that sound like natural speakers; its other variants whisper or repeat one of these.
const VARIANTS: [&str; 11] = ["m1", "m2", "m3", "m4", "m5", "m6", "m7", "f1", "f2", "f3", "f4"];

/// Speech engine of espeak-ng in one of its languages.
pub(super) struct EspeakEngine {
    language: String,
    words: Vec<&'static str>,
    seed: u64,
}

impl EspeakEngine {
    /// Creates the engine, after a check that espeak-ng is installed and that both espeak-ng and this crate support
    /// `language`.
    pub(super) fn new(language: &str, seed: u64) -> Result<Self, CorpusError> {
        let known = languages(&lossy_text(run(&["--voices"], "--voices")?.stdout));
        let language = language.to_string();
        if !known.contains(&language) {
            return Err(CorpusError::UnknownLanguage { language, known });
        }
        match vocabulary::words(&language) {
            Some(words) => Ok(Self { language, words, seed }),
            None => Err(CorpusError::NoWords { language, known: vocabulary::languages() }),
        }
    }

    /// Returns the arguments of espeak-ng for a speaker: voice, speed in words per minute, pitch from 0 to 99.
    fn voice_arguments(&self, speaker: usize, key: Key) -> [String; 3] {
        let key_of_voice = Key::new(self.seed).with("espeak");
        let mut variants = VARIANTS;
        key_of_voice.with("variants").shuffle(&mut variants);
        let own = key_of_voice.at(speaker as u64);
        let speed = uniform(own.with("speed"), 135.0, 195.0) + uniform(key.with("speed"), -12.0, 12.0);
        let pitch = uniform(own.with("pitch"), 15.0, 85.0) + uniform(key.with("pitch"), -8.0, 8.0);
        let voice = format!("{}+{}", self.language, variants[speaker % VARIANTS.len()]);
        [voice, format!("{speed:.0}"), format!("{pitch:.0}")]
    }
}

impl SpeechEngine for EspeakEngine {
    fn words(&self) -> Vec<&'static str> {
        self.words.clone()
    }

    fn say(&self, words: &[usize], speaker: usize, key: Key) -> Result<Vec<f32>, CorpusError> {
        let [voice, speed, pitch] = self.voice_arguments(speaker, key);
        let text = words.iter().map(|&word| self.words[word]).collect::<Vec<_>>().join(" ");
        // `-b 1` declares the text as UTF-8, whatever the locale.
        let output = run(&["-v", &voice, "-s", &speed, "-p", &pitch, "-b", "1", "--stdout", &text], &text)?;
        let (rate, samples) = wav_samples(&output.stdout).ok_or_else(|| CorpusError::EspeakFailed {
            text: text.clone(),
            message: format!("its {} bytes of output are not 16-bit audio", output.stdout.len()),
        })?;
        let silence = |name: &str| vec![0.0; (uniform(key.with(name), 0.05, 0.30) * SAMPLE_RATE as f32) as usize];
        Ok([silence("lead"), resample(&samples, rate), silence("trail")].concat())
    }
}

fn run(arguments: &[&str], text: &str) -> Result<Output, CorpusError> {
    let failed = |message: String| CorpusError::EspeakFailed { text: text.into(), message };
    let output = Command::new("espeak-ng").args(arguments).output().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => CorpusError::EspeakMissing,
        _ => failed(error.to_string()),
    })?;
    if !output.status.success() {
        return Err(failed(lossy_text(output.stderr).trim().to_string()));
    }
    Ok(output)
}

fn lossy_text(bytes: Vec<u8>) -> String {
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Returns the second column of the output of `espeak-ng --voices`, without its heading.
fn languages(table: &str) -> Vec<String> {
    table.lines().skip(1).filter_map(|line| line.split_whitespace().nth(1)).map(String::from).collect()
}

/// Reads sample rate and samples of a WAV file that was written to a pipe; `None` if the header is not one of 16-bit
/// WAV.
///
/// The header of such a file cannot contain the length and declares about 2 GiB instead, so a strict reader would fail.
fn wav_samples(bytes: &[u8]) -> Option<(u32, Vec<f32>)> {
    const HEADER: usize = 44;
    let header = bytes.get(..HEADER)?;
    if &header[..4] != b"RIFF" || &header[36..40] != b"data" || header[34] != 16 {
        return None;
    }
    let rate = u32::from_le_bytes([header[24], header[25], header[26], header[27]]);
    let sample = |pair: &[u8]| f32::from(i16::from_le_bytes([pair[0], pair[1]])) / 32768.0;
    Some((rate, bytes[HEADER..].chunks_exact(2).map(sample).collect()))
}

/// Resamples `samples` to [`SAMPLE_RATE`].
///
/// `plimsoll_audio::resample` is not used because its other block lengths would change the samples of existing corpora.
fn resample(samples: &[f32], rate: u32) -> Vec<f32> {
    let mut resampler = Fft::<f32>::new(rate as usize, SAMPLE_RATE as usize, 1024, 1, FixedSync::Input)
        .expect("both rates are above zero");
    let input = InterleavedSlice::new(samples, 1, samples.len()).expect("one channel has one sample a frame");
    resampler.process_all(&input, samples.len(), None).expect("the buffers are made for each other").take_data()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tone_keeps_its_pitch_and_length() {
        let tone = |rate: f32, length: usize| -> Vec<f32> {
            (0..length).map(|n| (440.0 * std::f32::consts::TAU * n as f32 / rate).sin()).collect()
        };
        let resampled = resample(&tone(22_050.0, 22_050), 22_050);
        assert!(resampled.len().abs_diff(16_000) <= 1, "{}", resampled.len());
        let expected = tone(16_000.0, 16_000);
        let furthest = (1000..15_000).map(|n| (resampled[n] - expected[n]).abs()).fold(0.0, f32::max);
        // The filter delays by a part of a sample, which is inaudible; half a sample of this tone is 0.086.
        assert!(furthest < 0.086, "{furthest}");
    }

    #[test]
    fn output_without_audio_is_refused() {
        assert_eq!(wav_samples(b"RIFF"), None);
        assert_eq!(wav_samples(&[0; 100]), None);
    }

    #[test]
    fn languages_are_read_from_the_table() {
        let table =
            "Pty Language  Age/Gender VoiceName  File\n 5  kok  --/M  Konkani  inc/kok\n 2  en-us  --/M  E  x\n";
        assert_eq!(languages(table), ["kok", "en-us"]);
    }
}
