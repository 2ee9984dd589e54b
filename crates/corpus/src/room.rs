//! The room between mouth and microphone: a few walls, and a short tail of what bounces on.

use super::draw::between;
use super::filter::LowPass;
use super::synthesiser::SAMPLE_RATE;
use plimsoll_core::Key;

/// `samples` as they sound in the room that this key draws, with the same length and start.
pub(super) fn echoed(samples: &[f32], key: Key) -> Vec<f32> {
    let samples = &muffled(samples, key.with("muffled"));
    let mut sound = samples.clone();
    for (delay, loudness) in walls(key.with("walls")) {
        sound.iter_mut().skip(delay).zip(samples).for_each(|(sound, early)| *sound += loudness * early);
    }
    let tail_loudness = between(key.with("tail"), 0.03, 0.15);
    let tail = tail(samples, key);
    sound.iter_mut().zip(tail).for_each(|(sound, late)| *sound += tail_loudness * late);
    sound
}

/// What the way to the microphone takes from the treble: up to half of it.
fn muffled(samples: &[f32], key: Key) -> Vec<f32> {
    let mut low = LowPass::new(between(key.with("hertz"), 1000.0, 3000.0), SAMPLE_RATE as f32);
    let lost = between(key.with("lost"), 0.0, 0.5);
    samples.iter().map(|sample| (1.0 - lost) * sample + lost * low.pass(*sample)).collect()
}

/// Early reflections: delays in samples, and how loud they return.
fn walls(key: Key) -> impl Iterator<Item = (usize, f32)> {
    let nearness = between(key.with("nearness"), 0.2, 0.6);
    (0..2 + key.with("count").below(4)).map(move |wall| {
        let secs = between(key.at(wall).with("secs"), 0.002, 0.040);
        let sign = if key.at(wall).with("sign").unit() < 0.5 { -1.0 } else { 1.0 };
        ((secs * SAMPLE_RATE as f32) as usize, sign * nearness * (-secs / 0.03).exp())
    })
}

/// A decaying tail: four loops of different lengths, which die away at one pace (Schroeder, 1962).
fn tail(samples: &[f32], key: Key) -> Vec<f32> {
    let fade_secs = between(key.with("fade"), 0.10, 0.35);
    let mut tail = vec![0.0; samples.len()];
    for lap in 0..4 {
        let lap_secs = between(key.with("lap").at(lap), 0.023, 0.047);
        // After `fade_secs` a thousandth is left, which is 60 dB less.
        let keep = 0.001_f32.powf(lap_secs / fade_secs);
        let delay = (lap_secs * SAMPLE_RATE as f32) as usize;
        let mut lap = vec![0.0; samples.len()];
        for at in delay..samples.len() {
            lap[at] = samples[at - delay] + keep * lap[at - delay];
        }
        tail.iter_mut().zip(lap).for_each(|(tail, lap)| *tail += lap);
    }
    tail
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_direct_sound_leads_and_the_tail_dies() {
        let mut clap = vec![0.0; 16_000];
        clap[0] = 1.0;
        for index in 0..20 {
            let sound = echoed(&clap, Key::new(index));
            assert!(sound.len() == clap.len() && sound[0] > 0.4, "{}", sound[0]);
            assert!(sound[1..].iter().all(|s| s.abs() < sound[0]), "room {index} is louder than the speaker");
            assert!(sound[100..].iter().any(|&s| s != 0.0));
            assert!(sound[10_000..].iter().all(|s| s.abs() < 1e-3));
        }
    }
}
