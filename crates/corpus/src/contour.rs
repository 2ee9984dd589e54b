//! Parameter tracks of the synthesizer: articulation targets smoothed over time, because a tongue moves slowly.

use crate::random::{log_normal, uniform};
use crate::targets::{FRAME_RATE, Target, TargetSequence};
use crate::voice::Voice;
use plimsoll_core::Key;

/// Parameters of the vocal tract in every frame, one track per parameter.
pub(super) struct Contour {
    /// Frequencies of the first three formants in hertz, in every frame.
    pub(super) formants: [Vec<f32>; 3],
    /// Opening of the nose, from 0 to 1, in every frame.
    pub(super) nasal: Vec<f32>,
    /// Level of the glottal pulses in every frame.
    pub(super) voicing: Vec<f32>,
    /// Level of breath noise in every frame.
    pub(super) aspiration: Vec<f32>,
    /// Level of frication noise, made in the mouth, in every frame.
    pub(super) frication: Vec<f32>,
    /// Center frequency of the frication noise in hertz, in every frame.
    pub(super) peak: Vec<f32>,
    /// Bandwidth of the frication noise in hertz, in every frame.
    pub(super) width: Vec<f32>,
    /// Pitch in hertz, in every frame.
    pub(super) pitch: Vec<f32>,
}

impl Contour {
    /// Computes the parameter tracks of `targets` in the voice `voice`.
    pub(super) fn new(targets: &TargetSequence, voice: &Voice, key: Key) -> Self {
        let column = |part: fn(&Target) -> f32| -> Vec<f32> {
            targets.segments.iter().flat_map(|s| std::iter::repeat_n(part(&s.target), s.n_frames)).collect()
        };
        let formant = |column: Vec<f32>| smooth(column, voice.transition_secs);
        Self {
            formants: [
                formant(column(|t| t.formants[0])),
                formant(column(|t| t.formants[1])),
                formant(column(|t| t.formants[2])),
            ],
            nasal: smooth(column(|t| t.nasal), 0.06),
            voicing: smooth(column(|t| t.voicing), 0.03),
            aspiration: smooth(column(|t| t.aspiration), 0.02),
            // Bursts last two frames, so smoothing must not remove them.
            frication: smooth(column(|t| t.frication), 0.01),
            peak: column(|t| t.peak),
            width: column(|t| t.width),
            pitch: pitch(targets, voice, key.with("pitch")),
        }
    }

    /// Returns the number of frames, which is equal for all tracks.
    pub(super) fn n_frames(&self) -> usize {
        self.pitch.len()
    }
}

/// Smooths a track with a triangle window `secs` wide, made of two moving averages.
fn smooth(column: Vec<f32>, secs: f32) -> Vec<f32> {
    let reach = (secs * FRAME_RATE / 4.0).round() as usize;
    average(&average(&column, reach), reach)
}

/// Computes the moving average over the neighbors up to `reach` frames away.
fn average(column: &[f32], reach: usize) -> Vec<f32> {
    let mean = |at: usize| {
        let around = &column[at.saturating_sub(reach)..(at + reach + 1).min(column.len())];
        around.iter().sum::<f32>() / around.len() as f32
    };
    (0..column.len()).map(mean).collect()
}

/// Computes the pitch in hertz: it declines along the sentence, rises at accents and falls at the end; one sentence in
/// five ends in a rise.
fn pitch(targets: &TargetSequence, voice: &Voice, key: Key) -> Vec<f32> {
    let base = voice.pitch * log_normal(key.with("base"), 0.06 * voice.variability);
    let sinking = voice.restrain(uniform(key.with("sinking"), 0.10, 0.25), 0.175);
    let ending = if !voice.is_reading() && key.with("question").unit() < 0.2 { 1.5 } else { -1.0 } * voice.liveliness;
    let heights: Vec<f32> = (0..targets.accents.len())
        .map(|place| voice.liveliness * voice.restrain(uniform(key.with("accent").at(place as u64), 0.1, 1.2), 0.65))
        .collect();
    let flutter = uniform(key.with("flutter"), 2.0, 5.0);
    let n_frames = targets.n_frames();
    let end = targets.words.last().map_or(n_frames, |word| word.end);
    let at = |frame: usize| {
        let along = frame as f32 / n_frames as f32;
        let accents: f32 = targets.accents.iter().zip(&heights).map(|(&a, height)| height * bump(frame, a)).sum();
        let last = (1.0 - end.saturating_sub(frame) as f32 / (0.3 * FRAME_RATE)).max(0.0);
        let shaking = 0.01 * (flutter * std::f32::consts::TAU * frame as f32 / FRAME_RATE).sin();
        base * (1.0 + sinking * (0.5 - along) + accents + ending * last + shaking).max(0.5)
    };
    (0..n_frames).map(at).collect()
}

/// Computes a bell curve that is one at `center`, and near zero 0.2 s away from it.
fn bump(frame: usize, center: usize) -> f32 {
    let secs = (frame as f32 - center as f32) / FRAME_RATE;
    (-(secs / 0.09).powi(2)).exp()
}
