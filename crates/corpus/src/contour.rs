//! From a score to smooth movements: tongues are heavy, so one target slides into the next.

use super::draw::{between, factor};
use super::score::{FRAME_RATE, Score, Target};
use super::voice::Voice;
use plimsoll_core::Key;

/// What the vocal tract does, frame by frame; every column is one moving part.
pub(super) struct Contour {
    /// The first three formants in hertz.
    pub(super) formants: [Vec<f32>; 3],
    /// How open the nose is.
    pub(super) nasal: Vec<f32>,
    /// Loudness of the glottis.
    pub(super) voicing: Vec<f32>,
    /// Loudness of breath.
    pub(super) aspiration: Vec<f32>,
    /// Loudness of noise in the mouth.
    pub(super) frication: Vec<f32>,
    /// Where that noise is loudest.
    pub(super) peak: Vec<f32>,
    /// How wide it is.
    pub(super) width: Vec<f32>,
    /// Pitch in hertz.
    pub(super) pitch: Vec<f32>,
}

impl Contour {
    /// The movements of this voice through `score`.
    pub(super) fn follow(score: &Score, voice: &Voice, key: Key) -> Self {
        let column = |part: fn(&Target) -> f32| -> Vec<f32> {
            score.segments.iter().flat_map(|s| std::iter::repeat_n(part(&s.target), s.n_frames)).collect()
        };
        let formant = |column: Vec<f32>| slide(column, voice.slide);
        Self {
            formants: [
                formant(column(|t| t.formants[0])),
                formant(column(|t| t.formants[1])),
                formant(column(|t| t.formants[2])),
            ],
            nasal: slide(column(|t| t.nasal), 0.06),
            voicing: slide(column(|t| t.voicing), 0.03),
            aspiration: slide(column(|t| t.aspiration), 0.02),
            // Bursts last two frames, so their loudness must not be smoothed away.
            frication: slide(column(|t| t.frication), 0.01),
            peak: column(|t| t.peak),
            width: column(|t| t.width),
            pitch: pitch(score, voice, key.with("pitch")),
        }
    }

    /// Frames in all.
    pub(super) fn n_frames(&self) -> usize {
        self.pitch.len()
    }
}

/// Smooths a column with a triangle `secs` wide, made of two boxes.
fn slide(column: Vec<f32>, secs: f32) -> Vec<f32> {
    let reach = (secs * FRAME_RATE / 4.0).round() as usize;
    average(&average(&column, reach), reach)
}

/// The mean of the neighbours up to `reach` frames away.
fn average(column: &[f32], reach: usize) -> Vec<f32> {
    let mean = |at: usize| {
        let around = &column[at.saturating_sub(reach)..(at + reach + 1).min(column.len())];
        around.iter().sum::<f32>() / around.len() as f32
    };
    (0..column.len()).map(mean).collect()
}

/// Pitch: it sinks along the sentence, rises at accents, ends in a fall or, for one in five, in a rise.
fn pitch(score: &Score, voice: &Voice, key: Key) -> Vec<f32> {
    let base = voice.pitch * factor(key.with("base"), 0.06 * voice.freedom);
    let sinking = voice.held(between(key.with("sinking"), 0.10, 0.25), 0.175);
    let ending = if !voice.reads() && key.with("question").unit() < 0.2 { 1.5 } else { -1.0 } * voice.liveliness;
    let heights: Vec<f32> = (0..score.accents.len())
        .map(|place| voice.liveliness * voice.held(between(key.with("accent").at(place as u64), 0.1, 1.2), 0.65))
        .collect();
    let flutter = between(key.with("flutter"), 2.0, 5.0);
    let n_frames = score.n_frames();
    let end = score.words.last().map_or(n_frames, |word| word.end);
    let at = |frame: usize| {
        let along = frame as f32 / n_frames as f32;
        let accents: f32 = score.accents.iter().zip(&heights).map(|(&a, height)| height * bump(frame, a)).sum();
        let last = (1.0 - end.saturating_sub(frame) as f32 / (0.3 * FRAME_RATE)).max(0.0);
        let shaking = 0.01 * (flutter * std::f32::consts::TAU * frame as f32 / FRAME_RATE).sin();
        base * (1.0 + sinking * (0.5 - along) + accents + ending * last + shaking).max(0.5)
    };
    (0..n_frames).map(at).collect()
}

/// One at `centre`, falling to nothing within about 0.2 s on both sides.
fn bump(frame: usize, centre: usize) -> f32 {
    let secs = (frame as f32 - centre as f32) / FRAME_RATE;
    (-(secs / 0.09).powi(2)).exp()
}
