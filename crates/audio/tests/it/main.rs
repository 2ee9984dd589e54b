//! Compares log-mel features with the features of the systems that the presets are named after.
#![cfg(test)]

#[path = "../../../../fixtures/read.rs"]
mod fixture;

use fixture::{Fixture, close};
use plimsoll_audio::{LogMel, LogMelConfig};

/// Largest allowed difference from torchaudio and librosa, as a share of the largest feature value.
const TOLERANCE: f32 = 1e-4;

#[test]
fn log_mels_equal_torchaudio_and_librosa() {
    let fixture = Fixture::read("mel");
    for name in ["konkani", "espnet", "nemo", "whisper", "xtts", "myxtts"] {
        let config = LogMelConfig::preset(name).unwrap();
        let features = LogMel::new(&config).unwrap();
        let signal = fixture.values(&format!("signal_{}", config.sample_rate));
        assert_eq!(config.n_mels, fixture.shape(name).unwrap()[1], "{name}");
        close(name, &features.extract(signal), fixture.values(name), TOLERANCE);
    }
}
