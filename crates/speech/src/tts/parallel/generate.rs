//! Generation: durations are predicted, then all frames are computed at once.

use burn::tensor::Tensor;
use plimsoll_core::Key;
use plimsoll_layers::Lengths;
use plimsoll_tape::{Pass, TensorBatch};

use super::ParallelSynthesizer;
use super::durations::Durations;
use crate::tts::{Ending, GeneratedMels, GenerationDetail, GenerationOptions};

// Shapes: b texts, k tokens, t frames, f features, v width of a voice.

/// Longest duration of a token, as a multiple of the longest of the training data.
const LONGEST: f64 = 4.0;

impl ParallelSynthesizer {
    /// Generates the log-mels of `texts` (tokens each) in `voices` `[texts, 1, voice width]`, all in one batch, at the rate, pitch and
    /// energy of `options`.
    ///
    /// The result of a text does not depend on the other texts. Use a model without autodiff.
    ///
    /// # Panics
    /// When `texts` and `voices` have different lengths, or the rate is not above 0.
    pub fn generate(&self, texts: &[Vec<u32>], voices: Tensor<3>, options: &GenerationOptions) -> Vec<GeneratedMels> {
        assert!(texts.len() == voices.dims()[0], "a voice for each text");
        assert!(options.rate > 0.0, "the rate is {}, not above 0", options.rate);
        if texts.is_empty() {
            return Vec::new();
        }
        let wanted = self.config().pitch.map_or(0.0, |axis| options.energy * axis.decibel());
        if wanted == 0.0 {
            return self.spoken(texts, voices, options);
        }
        let usual = self.spoken(texts, voices.clone(), &GenerationOptions { energy: 0.0, ..*options });
        let mut steered = self.spoken(texts, voices, options);
        // The model follows a part of the change, by the way in which it speaks. The level brings the rest.
        for (steered, usual) in steered.iter_mut().zip(&usual) {
            let missing = wanted as f32 - (mean(&steered.mels) - mean(&usual.mels));
            steered.mels.iter_mut().for_each(|value| *value += missing);
        }
        steered
    }

    /// Generates the log-mels of `texts` in `voices`, at the rate, pitch and energy of `options` as far as the model follows them.
    fn spoken(&self, texts: &[Vec<u32>], voices: Tensor<3>, options: &GenerationOptions) -> Vec<GeneratedMels> {
        let rate = options.rate;
        let pass = &Pass::plain();
        let text = self.encode_text(texts, voices, pass);
        let k = text.lengths.width();
        let logarithms = self.log_durations(&text, pass).into_data().try_into_vec::<f32>().expect("they are in fp32");
        let own = logarithms.chunks_exact(k).zip(text.lengths.each());
        let predicted = own.map(|(row, &tokens)| self.whole_frames(&row[..tokens as usize], rate));
        let (frames, endings): (Vec<Vec<u32>>, Vec<Ending>) = predicted.unzip();
        let durations = Durations { frames };
        let lengths = durations.lengths();
        let shared = durations.shared(k, lengths.width(), &text.vectors.device());
        let text = self.with_predicted_prosody(text, options, pass);
        let normalized = self.decode(&text, &shared, &lengths, pass);
        let normalization = self.config().normalization;
        let mels = normalized * normalization.std + normalization.mean;
        let values = mels.into_data().try_into_vec::<f32>().expect("frames are in fp32");
        let (f, t) = (self.config().features, lengths.width());
        let result = |((index, frames), ending): ((usize, Vec<u32>), Ending)| {
            let valid = frames.iter().sum::<u32>() as usize;
            let mut mels = values[index * t * f..][..valid * f].to_vec();
            self.sharpen(&mut mels);
            GeneratedMels { mels, detail: GenerationDetail::Durations(frames), ending }
        };
        durations.frames.into_iter().enumerate().zip(endings).map(result).collect()
    }

    /// Rounds predicted durations to whole frames, at least one for each token. Texts whose frames are more than the
    /// bounds of the training data allow are cut off.
    fn whole_frames(&self, logarithms: &[f32], rate: f64) -> (Vec<u32>, Ending) {
        let bounds = self.config().length_bounds;
        let most = (LONGEST * bounds.frames_per_token_max / rate).max(1.0);
        let [_, mut left] = bounds.frame_bounds(logarithms.len()).map(|frames| (frames as f64 / rate).ceil() as u32);
        let mut ending = Ending::Stopped;
        let whole = |&logarithm: &f32| {
            let frames = (f64::from(logarithm).exp() / rate).round().clamp(1.0, most) as u32;
            let given = frames.min(left);
            if given < frames {
                ending = Ending::CutOff;
            }
            left -= given;
            given
        };
        (logarithms.iter().map(whole).collect(), ending)
    }

    /// Computes the largest generation of the texts of `batch`, as if each lasted as long as its bound allows. It reads no
    /// values, so a plan of memory can trace it.
    pub(crate) fn trace_generation(&self, batch: &TensorBatch) {
        let pass = &Pass::plain();
        let text = self.encode_text(&batch.tokens, self.batch_voices(batch, pass), pass);
        let _ = self.log_durations(&text, pass);
        let text = self.with_predicted_prosody(text, &GenerationOptions::new(Key::new(0)), pass);
        let (b, k) = (batch.tokens.len(), text.lengths.width());
        let [_, frames] = self.config().length_bounds.frame_bounds(k);
        let each = text.lengths.each().iter().map(|&tokens| vec![frames as u32 / tokens.max(1); tokens as usize]);
        let shared = Durations { frames: each.collect() }.shared(k, frames, &text.vectors.device());
        let _ = self.decode(&text, &shared, &Lengths::new(vec![frames as u32; b], frames), pass);
    }
}

fn mean(values: &[f32]) -> f32 {
    values.iter().sum::<f32>() / values.len().max(1) as f32
}
