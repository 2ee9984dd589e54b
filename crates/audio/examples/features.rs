//! Converts audio to log-mel features and back, and writes the result as a WAV file.
//!
//! `cargo run -p plimsoll-audio --example features -- speech.flac`. Without a file, a generated tone is converted.

use std::f32::consts::TAU;

use plimsoll_audio::{LogMel, LogMelConfig, Vocoder, audio_info, read_audio, write_wav};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // A preset whose features keep their loudness, so that the vocoder can convert them back.
    let config = LogMelConfig::preset("myxtts").expect("a preset with this name");
    let rate = config.sample_rate;
    let samples = match std::env::args().nth(1) {
        Some(path) => {
            let info = audio_info(&path)?;
            println!("{path}: {}, {} Hz, {} channels, {}", info.kind.name(), info.rate, info.channels, info.duration);
            read_audio(&path, rate)?.samples
        }
        // One second that rises from 200 to 800 Hz.
        None => (0..rate)
            .map(|n| n as f32 / rate as f32)
            .map(|secs| 0.5 * (TAU * (200.0 * secs + 300.0 * secs * secs)).sin())
            .collect(),
    };

    let log_mel = LogMel::new(&config)?;
    let features = log_mel.extract(&samples);
    println!("{} samples -> {} frames of {} mels", samples.len(), features.len() / config.n_mels, config.n_mels);
    for frame in features.chunks(config.n_mels).step_by(20) {
        let loudest = (0..config.n_mels).max_by(|&a, &b| frame[a].total_cmp(&frame[b])).unwrap_or(0);
        println!("{}#", " ".repeat(loudest));
    }

    let audio = Vocoder::new(&config)?.waveform(&features);
    let path = std::env::temp_dir().join("plimsoll-griffin-lim.wav");
    write_wav(&path, &audio, rate)?;
    println!("{} samples -> {}", audio.len(), path.display());
    Ok(())
}
