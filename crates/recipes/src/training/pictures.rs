//! Pictures of synthesized speech: its log-mels, and its attention over the text.

use plimsoll_audio::LogMelConfig;
use plimsoll_monitor::{Axis, Heatmap, Ticks};
use plimsoll_speech::tts::Alignment;

/// Log-mels with a title, stored one band after another as heat maps need them.
pub struct Mels {
    title: String,
    values: Vec<f32>,
}

impl Mels {
    /// Makes log-mels from features `[t, m]`, t frames and m mel bands, one frame after another.
    pub fn new(title: &str, features: &[f32], n_mels: usize) -> Self {
        let band = |band| features.iter().skip(band).step_by(n_mels).copied();
        Self { title: title.into(), values: (0..n_mels).flat_map(band).collect() }
    }
}

/// Makes heat maps of log-mels, over seconds and mel bands.
pub fn mels<'a>(all: &'a [Mels], features: &LogMelConfig) -> Vec<Heatmap<'a>> {
    let map = |mels: &'a Mels| {
        let columns = mels.values.len() / features.n_mels;
        Heatmap {
            title: mels.title.clone(),
            values: &mels.values,
            columns,
            x: Axis { label: "seconds".into(), ticks: Ticks::Scale { from: 0.0, to: seconds(columns, features) } },
            y: Axis { label: "mel band".into(), ticks: Ticks::Scale { from: 0.0, to: features.n_mels as f64 } },
        }
    };
    all.iter().map(map).collect()
}

/// Attention of a synthesizer over the tokens of a text that it has synthesized, to be drawn as a heat map.
#[derive(Clone, Copy, Debug)]
pub struct AttentionPicture<'a> {
    /// Text that was synthesized, which is the title.
    pub text: &'a str,
    /// Attention weights, for each decoder step and token.
    pub alignment: &'a Alignment,
    /// Tokens of the text.
    pub tokens: &'a [u32],
    /// Name of each token of the vocabulary.
    pub names: &'a [String],
    /// Feature settings, which give the time axis.
    pub features: &'a LogMelConfig,
}

impl<'a> AttentionPicture<'a> {
    /// Makes the heat map of the attention, over seconds and tokens.
    pub fn heatmap(&self) -> Heatmap<'a> {
        let &Self { text, alignment, tokens, names, features } = self;
        let name = |token: &u32| names.get(*token as usize).cloned().unwrap_or_default();
        let duration = seconds(alignment.frames, features);
        Heatmap {
            title: text.into(),
            values: &alignment.weights,
            columns: alignment.steps,
            x: Axis { label: "seconds".into(), ticks: Ticks::Scale { from: 0.0, to: duration } },
            y: Axis { label: "text".into(), ticks: Ticks::Labels(tokens.iter().map(name).collect()) },
        }
    }
}

/// Computes the duration of `frames` feature frames.
fn seconds(frames: usize, features: &LogMelConfig) -> f64 {
    frames as f64 * features.hop_length as f64 / f64::from(features.sample_rate)
}
