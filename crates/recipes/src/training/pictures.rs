//! Pictures of a synthesiser at work: where it looked, and what it said beside what was true.

use plimsoll_audio::LogMelConfig;
use plimsoll_monitor::{Axis, Heatmap, Ticks};
use plimsoll_speech::tts::Alignment;

/// Log-mels to draw, band after band.
pub struct Mels {
    title: String,
    values: Vec<f32>,
}

impl Mels {
    /// Features `[t, m]` under a title.
    pub fn new(title: &str, features: &[f32], n_mels: usize) -> Self {
        let band = |band| features.iter().skip(band).step_by(n_mels).copied();
        Self { title: title.into(), values: (0..n_mels).flat_map(band).collect() }
    }
}

/// Maps of log-mels, over seconds and bands.
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

/// The map of where a synthesiser looked in `text` while it spoke; `names` say what its tokens are.
pub fn alignment<'a>(
    text: &str,
    alignment: &'a Alignment,
    tokens: &[u32],
    names: &[String],
    features: &LogMelConfig,
) -> Heatmap<'a> {
    let name = |token: &u32| names.get(*token as usize).cloned().unwrap_or_default();
    let frames = alignment.frames;
    Heatmap {
        title: text.into(),
        values: &alignment.weights,
        columns: alignment.steps,
        x: Axis { label: "seconds".into(), ticks: Ticks::Scale { from: 0.0, to: seconds(frames, features) } },
        y: Axis { label: "text".into(), ticks: Ticks::Labels(tokens.iter().map(name).collect()) },
    }
}

fn seconds(frames: usize, features: &LogMelConfig) -> f64 {
    frames as f64 * features.hop_length as f64 / f64::from(features.sample_rate)
}
