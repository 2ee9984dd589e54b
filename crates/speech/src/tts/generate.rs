//! Generation: step by step from the generated frames before, until the model predicts a stop.

use burn::tensor::{Tensor, TensorData};
use plimsoll_core::{Key, SampleId};
use plimsoll_layers::Lengths;
use plimsoll_tape::{Noise, Pass, TensorBatch};

use super::Synthesizer;

// Shapes: b texts, r frames of a step, t frames, f features, v width of a voice.

/// How a model generates speech.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GenerationOptions {
    /// Key of the random numbers of a model that has any.
    pub key: Key,
    /// Speed of speech: at 2 a text lasts half as long. Only models for which [`SpeechModel::has_rate`](super::SpeechModel::has_rate) holds follow it.
    pub rate: f64,
    /// Change of pitch in semitones. Only models for which [`SpeechModel::has_pitch`](super::SpeechModel::has_pitch) holds follow it.
    pub pitch: f64,
    /// Change of energy in decibels: how loud the voice speaks. Only models for which [`SpeechModel::has_pitch`](super::SpeechModel::has_pitch) holds follow it.
    pub energy: f64,
}

impl GenerationOptions {
    /// Makes options with the random numbers of `key`, and speech as in the training data.
    pub fn new(key: Key) -> Self {
        Self { key, rate: 1.0, pitch: 0.0, energy: 0.0 }
    }
}

/// The log-mels generated for one text.
#[derive(Clone, Debug, PartialEq)]
pub struct GeneratedMels {
    /// Log-mels, frame after frame.
    pub mels: Vec<f32>,
    /// What the generation went by.
    pub detail: GenerationDetail,
    /// Reason why the generation ended.
    pub ending: Ending,
}

/// What the generation of a text went by, from which its alignment follows.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum GenerationDetail {
    /// Autoregressive family: log-mels before the postnet. Each decoder step was generated from those before it.
    BeforePostnet(Vec<f32>),
    /// Parallel family: number of frames of the start token, and of each token of the text.
    Durations(Vec<u32>),
}

/// Reason why the generation of a text ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// The model predicted a stop, or a number of frames.
    Stopped,
    /// The text reached its maximum of frames without a stop; see [`LengthBounds`](super::LengthBounds).
    CutOff,
}

/// A text that is being generated, and the limits of its length.
struct Generation {
    /// Index of the text among all texts.
    index: usize,
    id: SampleId,
    /// Minimum and maximum number of frames of the text.
    frame_bounds: [usize; 2],
}

impl Generation {
    /// Decides whether the generation of the text ends after `frames` frames, when the last step has the stop logit
    /// `stop`. Returns the reason, or `None` if the generation continues.
    fn ending(&self, frames: usize, stop: f32) -> Option<Ending> {
        let [frames_min, frames_max] = self.frame_bounds;
        match stop > 0.0 && frames >= frames_min {
            true => Some(Ending::Stopped),
            false => (frames >= frames_max).then_some(Ending::CutOff),
        }
    }
}

impl Synthesizer {
    /// Generates the log-mels of `texts` (tokens each) in `voices` `[texts, 1, voice width]`, all in one batch.
    ///
    /// The prenet's dropout depends on `key` and on the text's entry in `ids` only, so the result of a text does not
    /// depend on the other texts. Use a model without autodiff. A step takes constant time except for attention, which
    /// grows with the number of steps before.
    ///
    /// # Panics
    /// When `texts`, `ids` and `voices` have different lengths.
    pub fn generate(&self, texts: &[Vec<u32>], ids: &[SampleId], voices: Tensor<3>, key: Key) -> Vec<GeneratedMels> {
        assert!(texts.len() == ids.len() && texts.len() == voices.dims()[0], "an id and a voice for each text");
        if texts.is_empty() {
            return Vec::new();
        }
        let generated = self.generate_frames(texts, ids, voices, key);
        let refined = self.apply_postnet_to_each(&generated);
        let denormalize = |values: Vec<f32>| -> Vec<f32> {
            let normalization = self.config().normalization;
            values.into_iter().map(|x| x * normalization.std + normalization.mean).collect()
        };
        let result = |((before_postnet, ending), mels)| GeneratedMels {
            mels: denormalize(mels),
            detail: GenerationDetail::BeforePostnet(denormalize(before_postnet)),
            ending,
        };
        generated.into_iter().zip(refined).map(result).collect()
    }

    /// Generates the normalized frames of each text before the postnet. Returns the values, and the reason why the text
    /// ended.
    fn generate_frames(
        &self,
        texts: &[Vec<u32>],
        ids: &[SampleId],
        voices: Tensor<3>,
        key: Key,
    ) -> Vec<(Vec<f32>, Ending)> {
        let pass = &self.with_length_policy(&Pass::plain());
        let text = self.encode_text(texts, pass);
        let mut state = self.decoder.start(&text, voices, pass);
        let f = self.config().features;
        let mut generated: Vec<(Vec<f32>, Ending)> = vec![(Vec::new(), Ending::CutOff); texts.len()];
        let begin = |(index, text): (usize, &Vec<u32>)| {
            let frame_bounds = self.config().length_bounds.frame_bounds(text.len());
            Generation { index, id: ids[index], frame_bounds }
        };
        let mut running: Vec<Generation> = texts.iter().enumerate().map(begin).collect();
        let mut last = Tensor::<3>::zeros([texts.len(), 1, f], &text.tokens.device());
        while !running.is_empty() {
            let prenet_noise = Noise::new(key, &running.iter().map(|text| text.id).collect::<Vec<_>>());
            let (frames, stop) = self.decoder.step(last, &mut state, &prenet_noise, pass);
            let [b, r, _] = frames.dims();
            last = frames.clone().narrow(1, r - 1, 1);
            let [values, stops]: [Vec<f32>; 2] =
                [frames.into_data(), stop.into_data()].map(|data| data.try_into_vec().expect("they are in fp32"));
            let mut unfinished = Vec::with_capacity(b);
            for (row, text) in running.iter().enumerate() {
                let (frames, ending) = &mut generated[text.index];
                frames.extend_from_slice(&values[row * r * f..(row + 1) * r * f]);
                match text.ending(frames.len() / f, stops[row]) {
                    Some(reached) => *ending = reached,
                    None => unfinished.push(row),
                }
            }
            if unfinished.len() < b {
                let rows: Vec<i32> = unfinished.iter().map(|&row| row as i32).collect();
                let mut row = 0..;
                running.retain(|_| row.next().is_some_and(|row| unfinished.contains(&row)));
                if !unfinished.is_empty() {
                    state.select(&unfinished);
                    last = last.clone().select(0, Tensor::from_ints(rows.as_slice(), &last.device()));
                }
            }
        }
        generated
    }

    /// Computes the largest steps of a generation of the texts of `batch`, and the postnet, as if no text ended before its
    /// maximum of frames. It reads no values, so a plan of memory can trace it.
    pub(crate) fn trace_generation(&self, batch: &TensorBatch) {
        let pass = &self.with_length_policy(&Pass::plain());
        let (f, r) = (self.config().features, self.config().reduction);
        let longest = batch.tokens.iter().map(Vec::len).max().unwrap_or(1);
        let [_, frames] = self.config().length_bounds.frame_bounds(longest);
        let steps = frames.div_ceil(r).max(1);
        let text = self.encode_text(&batch.tokens, pass);
        let mut state = self.decoder.start(&text, self.batch_voices(batch, pass), pass);
        let prenet_noise = Noise::new(Key::new(0), &batch.ids);
        let last = Tensor::<3>::zeros([batch.tokens.len(), 1, f], &text.tokens.device());
        // The first step, the step that enlarges the buffers for the last time, and the last step.
        for done in [0, (steps.next_power_of_two() / 2).min(steps - 1), steps - 1] {
            state.pad_to(done);
            let _ = self.decoder.step(last.clone(), &mut state, &prenet_noise, pass);
        }
        drop(state);
        let (b, t) = (batch.tokens.len(), steps * r);
        let _ = self.apply_postnet(last.expand([b, t, f]), &Lengths::new(vec![t as u32; b], t), pass);
    }

    /// Applies the postnet to the frames of each text, and returns the corrected frames.
    fn apply_postnet_to_each(&self, generated: &[(Vec<f32>, Ending)]) -> Vec<Vec<f32>> {
        if self.postnet.is_none() {
            return generated.iter().map(|(frames, _)| frames.clone()).collect();
        }
        let f = self.config().features;
        let lengths: Vec<u32> = generated.iter().map(|(frames, _)| (frames.len() / f) as u32).collect();
        let width = lengths.iter().copied().max().unwrap_or(1).max(1) as usize;
        let padded = |(frames, _): &(Vec<f32>, Ending)| -> Vec<f32> {
            frames.iter().copied().chain(std::iter::repeat(0.0)).take(width * f).collect()
        };
        let rows: Vec<f32> = generated.iter().flat_map(padded).collect();
        let device = burn::module::Module::devices(self).into_iter().next().expect("a model has parameters");
        let frames = Tensor::<3>::from_data(TensorData::new(rows, [generated.len(), width, f]), &device);
        let refined = self.apply_postnet(frames, &Lengths::new(lengths.clone(), width), &Pass::plain());
        let values: Vec<f32> = refined.into_data().try_into_vec().expect("frames are in fp32");
        let cut = |(row, length): (&[f32], u32)| row[..length as usize * f].to_vec();
        values.chunks_exact(width * f).zip(lengths).map(cut).collect()
    }
}
