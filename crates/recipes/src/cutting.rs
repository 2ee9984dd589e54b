//! Cuts a long recording with its known text into utterances that a run can train on.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::Path;

use plimsoll_audio::{AudioError, AudioSegment, flac_bytes, quick_audio_info, read_audio_segment, wav_bytes};
use plimsoll_core::Seconds;
use plimsoll_speech::asr::SpokenUtterance;
use serde::Serialize;

use crate::error::{Failure, FailureExt};
use crate::reader::Reader;
use crate::reporter::Progress;

/// Sound that is kept at most before and after the words of an utterance.
const MARGIN: f64 = 0.4;
/// Length of the quiet place in which a clip begins or ends.
const PAUSE: f64 = 0.03;

/// How a recording is cut.
#[derive(Clone, Debug, PartialEq)]
pub struct CutSettings {
    /// Least score of an utterance: the mean log-probability of its text in its worst second.
    pub least_score: f64,
    /// Whether clips are FLAC files; otherwise WAV.
    pub is_flac: bool,
    /// Name of the speaker.
    pub speaker: Option<String>,
}

/// An utterance that was cut out: its line in the manifest.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CutUtterance {
    /// Id: the name of the recording and the number of the line of the text, from 1.
    pub id: String,
    /// Path of the clip in the folder.
    pub audio_filepath: String,
    /// Length of the clip in seconds.
    pub duration: f64,
    /// What is said.
    pub text: String,
    /// Name of the speaker.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub speaker: Option<String>,
    /// Start of the clip in the recording, in seconds.
    pub start: f64,
    /// Mean log-probability of the text in its worst second.
    pub score: f64,
}

/// A line of the text that was left out.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LeftOut {
    /// Number of the line, from 1.
    pub line: usize,
    /// The line.
    pub text: String,
    /// Score of the line where it fits best; `None` if the model knows none of its characters.
    pub score: Option<f64>,
}

/// Result of cutting a recording.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct CutRecording {
    /// Utterances that were written, in order.
    pub utterances: Vec<CutUtterance>,
    /// Lines of the text that the recording does not say, or not clearly.
    pub left_out: Vec<LeftOut>,
    /// Length of the recording in seconds.
    pub seconds: f64,
}

/// Cuts the recording `file`, which says the lines of `texts` in order, into one clip for each line: `clips/` and
/// `manifest.jsonl` in `folder`, which must exist. Lines that the recording does not say are left out. `progress` counts
/// seconds.
///
/// # Errors
/// If the recording cannot be read, is too short for the text, or a file cannot be written.
pub fn cut(
    reader: &Reader,
    file: &Path,
    texts: &[&str],
    settings: &CutSettings,
    folder: &Path,
    progress: &dyn Progress,
) -> Result<CutRecording, Failure> {
    let (found, seconds) = find(reader, file, texts, settings.least_score, progress)?;
    let said: Vec<Option<&SpokenUtterance>> =
        found.iter().map(|found| found.as_ref().filter(|found| found.score >= settings.least_score)).collect();
    fs::create_dir_all(folder.join("clips")).failed()?;
    let rate = quick_audio_info(file).invalid()?.rate;
    let name = file.file_stem().unwrap_or_default().to_string_lossy();
    let mut result = CutRecording { seconds, ..CutRecording::default() };
    for (index, (text, utterance)) in texts.iter().zip(&said).enumerate() {
        let (line, score) = (index + 1, found[index].as_ref().map(|found| found.score));
        let Some(utterance) = utterance else {
            result.left_out.push(LeftOut { line, text: (*text).into(), score });
            continue;
        };
        let before = said[..index].iter().flatten().last().map_or(0.0, |other| other.end);
        let after = said[index + 1..].iter().flatten().next().map_or(seconds, |other| other.start);
        let (samples, start) = clip(file, utterance, (before, after), rate).invalid()?;
        let id = format!("{name}-{line:05}");
        let audio_filepath = format!("clips/{id}.{}", if settings.is_flac { "flac" } else { "wav" });
        let bytes = if settings.is_flac { flac_bytes(&samples, rate).failed()? } else { wav_bytes(&samples, rate) };
        fs::write(folder.join(&audio_filepath), bytes).failed()?;
        let duration = samples.len() as f64 / f64::from(rate);
        let (text, speaker, score) = ((*text).into(), settings.speaker.clone(), utterance.score);
        result.utterances.push(CutUtterance { id, audio_filepath, duration, text, speaker, start, score });
    }
    write_manifest(&result, folder).failed()?;
    Ok(result)
}

/// Finds the lines of a text in a recording. Returns its length in seconds, too.
fn find(
    reader: &Reader,
    file: &Path,
    texts: &[&str],
    least_score: f64,
    progress: &dyn Progress,
) -> Result<(Vec<Option<SpokenUtterance>>, f64), Failure> {
    let (scores, seconds) = reader.listen(file, progress)?;
    let transcriber = reader.transcriber();
    let found = transcriber.find_utterances(&scores, texts, least_score).map_err(|error| {
        let message = format!("{}: {error}", file.display());
        Failure::invalid(message, "the text must be that of the recording, one utterance a line")
    })?;
    Ok((found, seconds))
}

/// Reads the sound of an utterance, from a quiet place before it to one after it, within the time that is free, `(from, to)`.
/// Returns where it starts, in seconds.
fn clip(file: &Path, utterance: &SpokenUtterance, free: (f64, f64), rate: u32) -> Result<(Vec<f32>, f64), AudioError> {
    let from = utterance.start - (utterance.start - free.0).clamp(0.0, MARGIN);
    let to = utterance.end + (free.1 - utterance.end).clamp(0.0, MARGIN);
    let segment = AudioSegment { offset: Seconds(from), duration: Some(Seconds(to - from)) };
    let samples = read_audio_segment(file, segment, rate)?.samples;
    let place = |seconds: f64| ((seconds * f64::from(rate)).round().max(0.0) as usize).min(samples.len());
    let (first, last) = (place(utterance.start - from), place(utterance.end - from));
    let pause = place(PAUSE).max(1);
    // The quiet place nearest to the words: what lies beyond it can belong to others.
    let begin = first - quiet(&samples[..first].iter().rev().copied().collect::<Vec<_>>(), pause);
    let end = last + quiet(&samples[last..], pause);
    Ok((samples[begin..end].to_vec(), from + begin as f64 / f64::from(rate)))
}

/// Returns how far a clip goes on into `samples`: to the end of the first pause of twice `pause` samples that is nearly as quiet
/// as the quietest, or to the end.
fn quiet(samples: &[f32], pause: usize) -> usize {
    let power = |part: &[f32]| part.iter().map(|sample| f64::from(sample * sample)).sum::<f64>();
    let powers: Vec<f64> = samples.chunks_exact(pause).map(power).collect();
    let least = powers.iter().copied().fold(f64::INFINITY, f64::min);
    let is_quiet = |place: usize| powers[place] <= 2.0 * least + 1e-9;
    let found = (0..powers.len().saturating_sub(1)).find(|&place| is_quiet(place) && is_quiet(place + 1));
    found.map_or(samples.len(), |place| ((place + 2) * pause).min(samples.len()))
}

fn write_manifest(result: &CutRecording, folder: &Path) -> std::io::Result<()> {
    let mut manifest = BufWriter::new(File::create(folder.join("manifest.jsonl"))?);
    for utterance in &result.utterances {
        writeln!(manifest, "{}", serde_json::to_string(utterance)?)?;
    }
    manifest.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clip_ends_in_the_first_pause() {
        let sound = |length: usize| vec![0.5; length];
        let samples = [sound(500), vec![0.01; 300], sound(700), vec![0.01; 300]].concat();
        assert_eq!(quiet(&samples, 100), 700);
        assert_eq!(quiet(&sound(50), 100), 50);
        assert_eq!(quiet(&[], 100), 0);
        assert_eq!(quiet(&[0.0; 1000], 100), 200);
    }
}
