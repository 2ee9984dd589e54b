//! The recogniser: subsampling, Conformer blocks, and a letter for every frame.

use burn::module::Module;
use burn::nn::{Linear, LinearConfig};
use burn::tensor::{Device, Tensor};
use plimsoll_core::{Choice, HostBatch, Key};
use plimsoll_layers::{
    Conformer, ConformerConfig, Lengths, Subsampling, SubsamplingConfig, add_sinusoids, ctc_greedy, ctc_loss, dense,
    is_ctc_feasible,
};
use plimsoll_tape::{Noise, StepLoss, Task, TensorBatch, initialise, remat};
use serde::{Deserialize, Serialize};

// Shapes: b batch, t frames, t' frames after subsampling, f features, d model width, v vocabulary.

/// The sizes of a [`Recogniser`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecogniserConfig {
    /// Features of a frame.
    pub features: usize,
    /// Tokens, the blank included.
    pub vocabulary: usize,
    /// Width of the model.
    pub d_model: usize,
    /// Conformer blocks.
    pub layers: usize,
    /// Attention heads.
    pub heads: usize,
    /// Frames that the depthwise kernel spans, odd.
    pub kernel: usize,
    /// Width inside the feed-forward layers, as a multiple of `d_model`.
    pub feed_forward_multiplier: usize,
    /// How many frames become one: 2, 4 or 8.
    pub subsampling: usize,
    /// Channels of the subsampling convolutions.
    pub subsampling_channels: usize,
    /// Share of values dropped in training.
    pub dropout: f64,
}

/// A Conformer encoder with a linear layer for CTC.
#[derive(Module, Debug)]
pub struct Recogniser {
    subsampling: Subsampling,
    blocks: Vec<Conformer>,
    output: Linear,
    factor: usize,
    dropout: f64,
}

impl RecogniserConfig {
    /// A recogniser on `device`, its first values drawn from `key`.
    ///
    /// # Panics
    /// Where the sizes contradict each other, as the layers say.
    pub fn init(&self, device: &Device, key: Key) -> Recogniser {
        let &Self { features, d_model, heads, kernel, feed_forward_multiplier, dropout, .. } = self;
        let block = ConformerConfig { d_model, heads, kernel, feed_forward_multiplier, dropout };
        let subsampling =
            SubsamplingConfig { features, d_model, channels: self.subsampling_channels, factor: self.subsampling };
        let recogniser = Recogniser {
            subsampling: subsampling.init(device),
            blocks: (0..self.layers).map(|_| block.init(device)).collect(),
            output: LinearConfig::new(d_model, self.vocabulary).init(device),
            factor: self.subsampling,
            dropout,
        };
        initialise(recogniser, key.with("weights"))
    }
}

impl Recogniser {
    /// `[b, t, f]` to the scores `[b, t', v]` of every token in every frame, before any softmax.
    ///
    /// Blocks that `choice` rematerialises keep their input alone; the result is the same to the last bit.
    pub fn forward(
        &self,
        features: Tensor<3>,
        lengths: &Lengths,
        choice: &Choice,
        noise: &Noise,
    ) -> (Tensor<3>, Lengths) {
        let (x, lengths) = self.subsampling.forward(features, lengths);
        // As in the Transformer: without the scale, positions of amplitude one drown the small values of a fresh model.
        let [_, _, d] = x.dims();
        let x = noise.with("input").dropout(add_sinusoids(x * (d as f64).sqrt()), self.dropout);
        let run = |x, (index, block): (usize, &Conformer)| {
            let (lengths, noise) = (lengths.clone(), noise.with("block").at(index));
            let forward = move |block: &Conformer, x| block.forward(x, &lengths, &noise);
            if choice.remat.covers(index) { remat(block, x, forward) } else { forward(block, x) }
        };
        let x = self.blocks.iter().enumerate().fold(x, run);
        (dense(&self.output, x), lengths)
    }

    /// The most likely tokens of each utterance, frame by frame (greedy CTC).
    pub fn read(&self, features: Tensor<3>, frame_lengths: &[u32]) -> Vec<Vec<u32>> {
        let lengths = Lengths::new(frame_lengths.to_vec(), features.dims()[1]);
        let (logits, lengths) = self.forward(features, &lengths, &Choice::default(), &Noise::off());
        ctc_greedy(logits, &lengths)
    }
}

impl Task for Recogniser {
    /// The tokens of the samples that have frames enough for them.
    fn weight(&self, batch: &HostBatch) -> f64 {
        let frames = |index: usize| SubsamplingConfig::frames_after(self.factor, batch.frame_lengths[index]) as usize;
        let tokens = |index: usize| batch.tokens_of(index);
        let counts = (0..batch.len()).filter(|&index| is_ctc_feasible(frames(index), tokens(index)));
        counts.map(|index| tokens(index).len().max(1) as f64).sum()
    }

    fn loss(&self, batch: &TensorBatch, choice: &Choice, noise: &Noise) -> StepLoss {
        let lengths = Lengths::new(batch.frame_lengths.clone(), batch.features.dims()[1]);
        let (logits, lengths) = self.forward(batch.features.clone(), &lengths, choice, noise);
        let loss = ctc_loss(logits, &lengths, &batch.tokens);
        StepLoss { sum: loss.sum, left_out: loss.infeasible }
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_core::{HostSample, Remat, SampleId};
    use plimsoll_tape::{backward, collect};

    use super::*;

    const SMALL: RecogniserConfig = RecogniserConfig {
        features: 20,
        vocabulary: 6,
        d_model: 16,
        layers: 2,
        heads: 2,
        kernel: 5,
        feed_forward_multiplier: 2,
        subsampling: 4,
        subsampling_channels: 4,
        dropout: 0.2,
    };

    fn sample(name: &str, frames: usize, tokens: &[u32]) -> HostSample {
        let key = Key::new(1).with(name);
        let features = (0..frames * 20).map(|i| key.at(i as u64).unit() as f32 - 0.5).collect();
        HostSample { id: SampleId::of(name), name: name.into(), features, tokens: tokens.to_vec() }
    }

    fn samples() -> Vec<HostSample> {
        vec![sample("a", 60, &[1, 2, 3]), sample("b", 41, &[4, 4]), sample("c", 77, &[5]), sample("d", 9, &[1, 1, 2])]
    }

    fn gradient(samples: &[HostSample], pieces: usize) -> (f64, Vec<f32>) {
        gradient_under(samples, pieces, &Choice::default())
    }

    fn gradient_under(samples: &[HostSample], pieces: usize, choice: &Choice) -> (f64, Vec<f32>) {
        let model = SMALL.init(&Device::flex().autodiff(), Key::new(3));
        let batch = HostBatch::collate(samples, 20, 8).unwrap();
        let (mut loss, mut sum) = (0.0, Vec::new());
        for piece in batch.split(pieces, 1) {
            let noise = Noise::new(Key::new(4), &piece.ids);
            let step = model.loss(&TensorBatch::send(&piece, &Device::flex().autodiff()), choice, &noise);
            loss += f64::from(step.sum.clone().into_scalar::<f32>());
            let gradients = backward(step.sum, &model);
            let weight = gradients.get::<2>(model.output.weight.id).unwrap();
            let values: Vec<f32> = weight.into_data().try_into_vec().unwrap();
            sum = if sum.is_empty() { values } else { sum.iter().zip(values).map(|(a, b)| a + b).collect() };
        }
        (loss, sum)
    }

    #[test]
    fn any_split_gives_the_same_loss_and_gradient_dropout_included() {
        let (whole, expected) = gradient(&samples(), 4);
        for pieces in [1, 2, 3] {
            let (loss, found) = gradient(&samples(), pieces);
            assert!((loss - whole).abs() < 1e-4 * whole, "{loss} {whole}");
            let norm = |values: &[f32]| values.iter().map(|v| v * v).sum::<f32>().sqrt();
            let difference: Vec<f32> = found.iter().zip(&expected).map(|(a, b)| a - b).collect();
            assert!(norm(&difference) < 1e-5 * norm(&expected), "{pieces}");
        }
    }

    #[test]
    fn a_rematerialised_model_gives_the_same_gradient_to_the_last_bit() {
        let plain = gradient(&samples(), 4);
        for remat in [Remat::All, Remat::Half, Remat::First(1)] {
            let choice = Choice { remat, ..Choice::default() };
            assert_eq!(gradient_under(&samples(), 4, &choice), plain, "{remat:?}");
        }
    }

    #[test]
    fn padding_changes_nothing() {
        let model = SMALL.init(&Device::flex(), Key::new(3));
        let logits = |samples: &[HostSample], fill: f32| {
            let mut batch = HostBatch::collate(samples, 20, 16).unwrap();
            let width = batch.frames * 20;
            for (index, &length) in batch.frame_lengths.iter().enumerate() {
                batch.features[index * width + length as usize * 20..(index + 1) * width].fill(fill);
            }
            let tensors = TensorBatch::send(&batch, &Device::flex());
            let lengths = Lengths::new(batch.frame_lengths.clone(), batch.frames);
            let (y, lengths) = model.forward(tensors.features, &lengths, &Choice::default(), &Noise::off());
            let valid = lengths.each()[0] as usize;
            y.slice([0..1, 0..valid, 0..6]).into_data().try_into_vec::<f32>().unwrap()
        };
        let all = samples();
        let alone = logits(&all[1..2], 0.0);
        for (batch, fill) in [(&[all[1].clone(), all[2].clone()][..], 0.0), (&all[1..2], 9.0)] {
            let found = logits(batch, fill);
            let apart = found.iter().zip(&alone).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            assert!(found.len() == alone.len() && apart < 1e-5, "{apart}");
        }
    }

    #[test]
    fn weight_counts_what_the_loss_counts() {
        let model = SMALL.init(&Device::flex().autodiff(), Key::new(3));
        let batch = HostBatch::collate(&samples(), 20, 1).unwrap();
        // "d" has one frame left for four.
        assert_eq!(model.weight(&batch), 6.0);
        let tensors = TensorBatch::send(&batch, &Device::flex().autodiff());
        assert_eq!(model.loss(&tensors, &Choice::default(), &Noise::off()).left_out, [3]);
    }

    #[test]
    fn the_first_values_follow_from_the_seed() {
        let values = |seed| collect(&SMALL.init(&Device::flex(), Key::new(seed)));
        assert_eq!(values(1), values(1));
        assert_ne!(values(1), values(2));
    }
}
