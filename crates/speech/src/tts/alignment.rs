//! The attention of a synthesizer over its text, which shows whether it reads the text in order.

use burn::tensor::Tensor;

/// The attention weights of every decoder step over the tokens of one text, averaged over blocks and heads.
#[derive(Clone, Debug, PartialEq)]
pub struct Alignment {
    /// Weights `[tokens, steps]`, row after row: the weights of all steps on the first token come first.
    pub weights: Vec<f32>,
    /// Number of decoder steps.
    pub steps: usize,
    /// Number of frames that the decoder steps generated.
    pub frames: usize,
    /// Number of tokens of the text.
    pub tokens: usize,
}

impl Alignment {
    /// Computes the alignment of one utterance from the attention weights `[1, h, u, k]` of each block (heads `h`,
    /// steps `u`, tokens `k`).
    ///
    /// A step has `reduction` frames.
    ///
    /// # Panics
    /// When `blocks` is empty, or holds more than one utterance.
    pub fn from_attention(blocks: &[Tensor<4>], reduction: usize) -> Self {
        let means = blocks.iter().map(|weights| weights.clone().mean_dim(1));
        let sum = means.reduce(|sum, mean| sum + mean).expect("a decoder has a block at least");
        let [_, _, steps, tokens] = sum.dims();
        let weights = (sum / blocks.len() as f64).swap_dims(2, 3);
        let weights = weights.into_data().try_into_vec().expect("weights are in fp32");
        Self { weights, steps, frames: steps * reduction, tokens }
    }

    /// Makes the alignment of an utterance of the parallel family from its durations: the frames of the start token, then
    /// those of each token of the text. Each frame attends to its token alone; the silence of the start token counts to
    /// the first token.
    pub fn from_durations(durations: &[u32]) -> Self {
        let frames = durations.iter().sum::<u32>() as usize;
        let tokens = durations.len().saturating_sub(1);
        let mut weights = vec![0.0; tokens * frames];
        let mut frame = 0;
        for (place, &duration) in durations.iter().enumerate().take(tokens + 1).filter(|_| tokens > 0) {
            let row = place.saturating_sub(1) * frames;
            weights[row + frame..row + frame + duration as usize].fill(1.0);
            frame += duration as usize;
        }
        Self { weights, steps: frames, frames, tokens }
    }

    /// Computes the focus rate of FastSpeech: the mean over steps of the highest weight of a step. It is 1 when every
    /// step attends to one token only.
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
    fn each_frame_attends_to_its_token() {
        let found = Alignment::from_durations(&[1, 2, 1]);
        assert_eq!((found.tokens, found.frames), (2, 4));
        assert_eq!(found.weights, [1., 1., 1., 0., 0., 0., 0., 1.]);
        assert_eq!(found.focus_rate(), 1.0);
        assert_eq!(Alignment::from_durations(&[]).tokens, 0);
    }

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
