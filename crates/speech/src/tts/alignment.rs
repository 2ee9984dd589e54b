//! Where a synthesiser looked in its text while it spoke.

use burn::tensor::Tensor;

/// The weights of every step over the tokens of one text, the mean of all blocks and heads.
#[derive(Clone, Debug, PartialEq)]
pub struct Alignment {
    /// Token after token: the weight that each step gave it.
    pub weights: Vec<f32>,
    /// Steps of the decoder.
    pub steps: usize,
    /// Frames that these steps said.
    pub frames: usize,
    /// Tokens of the text.
    pub tokens: usize,
}

impl Alignment {
    /// That of an utterance alone, from what its blocks and heads saw: `[1, h, u, k]` each.
    ///
    /// A step said `reduction` frames.
    pub fn from_attention(blocks: &[Tensor<4>], reduction: usize) -> Self {
        let means = blocks.iter().map(|weights| weights.clone().mean_dim(1));
        let sum = means.reduce(|sum, mean| sum + mean).expect("a decoder has a block at least");
        let [_, _, steps, tokens] = sum.dims();
        let weights = (sum / blocks.len() as f64).swap_dims(2, 3);
        let weights = weights.into_data().try_into_vec().expect("weights are in fp32");
        Self { weights, steps, frames: steps * reduction, tokens }
    }

    /// How sure each step was of one token, on average: 1 where it looked at nothing else.
    pub fn focus_rate(&self) -> f64 {
        let highest =
            |step: usize| (0..self.tokens).map(|token| self.weights[token * self.steps + step]).fold(0.0, f32::max);
        (0..self.steps).map(|step| f64::from(highest(step))).sum::<f64>() / self.steps.max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::Device;

    use super::*;

    #[test]
    fn weights_are_averaged_and_transposed() {
        let block = |values: [[f32; 2]; 3]| Tensor::<2>::from_data(values, &Device::flex()).reshape([1, 1, 3, 2]);
        let found = Alignment::from_attention(
            &[block([[1., 0.], [1., 0.], [0., 1.]]), block([[1., 0.], [0., 1.], [0., 1.]])],
            4,
        );
        assert_eq!((found.steps, found.frames, found.tokens), (3, 12, 2));
        assert_eq!(found.weights, [1.0, 0.5, 0.0, 0.0, 0.5, 1.0]);
        assert!((found.focus_rate() - 2.5 / 3.0).abs() < 1e-6);
    }
}
