//! Terms of a vocoder's training loss, each a sum over the crops of a batch.

use burn::tensor::Tensor;
use burn::tensor::activation::relu;
use plimsoll_layers::{Stft, hann_window};
use plimsoll_tape::detach;

// Shapes: b crops, n samples, t frames, k bins.

/// Number that is added to each squared magnitude, so that silence has a logarithm and a gradient: 60 dB below a bin of
/// quiet speech.
const QUIET_POWER: f64 = 1e-6;

/// Magnitudes of sound at several resolutions.
#[derive(Clone, Debug)]
pub(super) struct Resolutions(Vec<Stft>);

/// Magnitudes `[b, t, k]` at one resolution, and their natural logarithms.
#[derive(Clone, Debug)]
pub(super) struct Magnitudes {
    pub(super) linear: Tensor<3>,
    pub(super) log: Tensor<3>,
}

impl Resolutions {
    /// Prepares transforms of `lengths` samples, of frames that begin every quarter of their length.
    pub(super) fn new(lengths: &[usize]) -> Self {
        Self(lengths.iter().map(|&length| Stft::new(length, length / 4, hann_window(length))).collect())
    }

    /// Computes the magnitudes of the waveforms `samples` `[b, n]` at each resolution.
    pub(super) fn forward(&self, samples: &Tensor<2>) -> Vec<Magnitudes> {
        let each = |stft: &Stft| {
            let linear = (stft.power(samples.clone()) + QUIET_POWER).sqrt();
            Magnitudes { log: linear.clone().log(), linear }
        };
        self.0.iter().map(each).collect()
    }
}

/// Sums over the crops the mean of all values of a crop.
pub(super) fn sum_of_means<const D: usize>(x: Tensor<D>) -> Tensor<1> {
    let shape = x.dims();
    let each: usize = shape[1..].iter().product();
    x.sum() / each as f64
}

/// Computes the spectral loss (Arik et al. 2019; Yamamoto et al. 2020): spectral convergence of each crop, and the mean
/// difference of logarithms; the mean over the resolutions.
pub(super) fn spectral_loss(found: Vec<Magnitudes>, truth: Vec<Magnitudes>) -> Tensor<1> {
    let norm = |x: Tensor<3>| x.square().sum_dim(2).sum_dim(1);
    let count = found.len();
    let each = found.into_iter().zip(truth).map(|(found, truth)| {
        let difference = (norm(found.linear - truth.linear.clone()) + QUIET_POWER).sqrt();
        let convergence = (difference / norm(truth.linear).sqrt()).sum();
        convergence + sum_of_means((found.log - truth.log).abs())
    });
    mean(each, count)
}

/// Computes the hinge loss of the discriminators: `recordings` should have scores from 1 on, `generated` up to -1.
pub(super) fn discriminator_loss(recordings: Vec<Tensor<4>>, generated: Vec<Tensor<4>>) -> Tensor<1> {
    let count = recordings.len();
    let each = recordings
        .into_iter()
        .zip(generated)
        .map(|(recording, generated)| sum_of_means(relu(recording.neg() + 1.0)) + sum_of_means(relu(generated + 1.0)));
    mean(each, count)
}

/// Computes the hinge loss of the vocoder: `generated` should have scores from 1 on.
pub(super) fn adversarial_loss(generated: Vec<Tensor<4>>) -> Tensor<1> {
    let count = generated.len();
    mean(generated.into_iter().map(|scores| sum_of_means(relu(scores.neg() + 1.0))), count)
}

/// Computes feature matching: the difference of the discriminators' hidden values, of each discriminator by layers.
/// `recordings` are constant.
pub(super) fn feature_loss(recordings: Vec<Vec<Tensor<4>>>, generated: Vec<Vec<Tensor<4>>>) -> Tensor<1> {
    let count = recordings.len();
    let each = recordings.into_iter().zip(generated).map(|(recording, generated)| {
        let layers = recording.len();
        let pairs = recording.into_iter().zip(generated);
        mean(pairs.map(|(truth, found)| sum_of_means((found - detach(truth)).abs())), layers)
    });
    mean(each, count)
}

fn mean(terms: impl Iterator<Item = Tensor<1>>, count: usize) -> Tensor<1> {
    terms.reduce(|sum, term| sum + term).expect("there is at least one resolution") / count as f64
}
