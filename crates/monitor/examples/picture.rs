//! Draws an alignment and two spectrograms: `cargo run -p plimsoll-monitor --example picture -- FOLDER`.

use std::path::Path;

use plimsoll_monitor::{Axis, Heatmap, Picture, RecordError, Ticks};

const TEXT: &str = "the plimsoll line <& it's سلام, नमस्ते>";
const MELS: usize = 80;
/// Feature frames per second.
const RATE: f64 = 86.0;

fn main() -> Result<(), RecordError> {
    let Some(folder) = std::env::args().nth(1) else {
        println!("usage: picture FOLDER");
        return Ok(());
    };
    let folder = Path::new(&folder);
    let characters: Vec<String> = TEXT.chars().map(String::from).collect();
    let steps = 180;
    let alignment = Heatmap {
        title: "Alignment at step 12000".into(),
        values: &alignment(characters.len(), steps),
        columns: steps,
        x: seconds(steps),
        y: Axis { label: "text".into(), ticks: Ticks::Labels(characters) },
    };
    Picture { maps: vec![alignment], shared: false }.write(&folder.join("alignment.svg"))?;

    let [truth, predicted] = [mel(310, 1.0), mel(290, 0.4)];
    let maps = vec![spectrogram("true", &truth), spectrogram("predicted", &predicted)];
    Picture { maps, shared: true }.write(&folder.join("mels.svg"))
}

fn seconds(n_frames: usize) -> Axis {
    Axis { label: "time, s".into(), ticks: Ticks::Scale { from: 0.0, to: n_frames as f64 / RATE } }
}

/// Computes an attention that moves along the text, a little slower in the middle.
fn alignment(n_characters: usize, steps: usize) -> Vec<f32> {
    let weight = |character: usize, step: usize| {
        let time = step as f64 / steps as f64;
        let center = (time + 0.05 * (time * 6.3).sin()) * n_characters as f64;
        (-(character as f64 - center).powi(2) / 1.2).exp() as f32
    };
    (0..n_characters).flat_map(|character| (0..steps).map(move |step| weight(character, step))).collect()
}

fn spectrogram<'a>(title: &str, values: &'a [f32]) -> Heatmap<'a> {
    let y = Axis { label: "mel channel".into(), ticks: Ticks::Scale { from: 0.0, to: MELS as f64 } };
    let columns = values.len() / MELS;
    Heatmap { title: title.into(), values, columns, x: seconds(columns), y }
}

/// Computes harmonics of a voice with a moving pitch, in syllables.
fn mel(n_frames: usize, sharpness: f64) -> Vec<f32> {
    let energy = |channel: usize, frame: usize| {
        let (time, height) = (frame as f64 / RATE, channel as f64 / MELS as f64);
        let pitch = 7.0 + (time * 2.1).sin() * 1.5;
        let harmonics = (channel as f64 / pitch * std::f64::consts::TAU).cos() * sharpness * (1.0 - height);
        let syllable = (time * 9.0).sin().max(-0.6) * 2.0;
        (-4.0 - 4.0 * height + harmonics * 1.8 + syllable) as f32
    };
    (0..MELS).flat_map(|channel| (0..n_frames).map(move |frame| energy(channel, frame))).collect()
}
