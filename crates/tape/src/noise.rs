//! Keyed randomness: a dropout mask is a function of a key and a position, not of the order of the draws.

mod mask;

use std::sync::Arc;

use burn::tensor::Tensor;
use plimsoll_core::{Key, SampleId};

use crate::transfer::Constants;
pub(crate) use mask::{DropRule, Mask, dropout, dropout_drawn, ints, random_bits};
#[cfg(feature = "cube")]
pub(crate) use mask::{GOLDEN, MULTIPLIER_1, MULTIPLIER_2, STEPS};

/// Randomness of one forward pass, which may be off.
///
/// Dropout masks depend on the key (run, step, layer), on the id of each sample and on the position within the sample.
/// They do not depend on how the batch is split or ordered, on padding, or on how often the pass runs. Retries,
/// micro-batches and rematerialization therefore give exactly the same result. All devices draw the same masks.
#[derive(Clone, Debug, Default)]
pub struct Noise(Option<Source>);

#[derive(Clone, Debug)]
struct Source {
    /// Key of the place in the model that draws, the same for all samples.
    place: Key,
    samples: Arc<Samples>,
}

/// The samples of a batch, with the tensors from which a device draws their masks.
#[derive(Debug)]
struct Samples {
    /// Key of each sample in this pass.
    keys: Vec<Halves>,
    constants: Constants,
}

/// The 64 bits of a key, as two halves of 32 bits: the low one first.
type Halves = [u32; 2];

fn halves(key: Key) -> Halves {
    [key.bits() as u32, (key.bits() >> 32) as u32]
}

impl Noise {
    /// Creates a noise without randomness, for validation and decoding.
    pub fn off() -> Self {
        Self(None)
    }

    /// Creates the randomness of `key` for a batch of `samples`.
    pub fn new(key: Key, samples: &[SampleId]) -> Self {
        let keys = samples.iter().map(|id| halves(key.at(id.0))).collect();
        let samples = Samples { keys, constants: Constants::default() };
        Self(Some(Source { place: Key::new(0), samples: Arc::new(samples) }))
    }

    /// Returns whether dropout has an effect.
    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Returns a noise with independent random numbers, the branch named `name`. Each place in a model that draws
    /// random numbers needs its own branch.
    #[must_use]
    pub fn with(&self, name: &str) -> Self {
        self.map(|key| key.with(name))
    }

    /// Returns the branch with number `index`: independent random numbers for one of several equal places, such as one
    /// block of a stack.
    #[must_use]
    pub fn at(&self, index: usize) -> Self {
        self.map(|key| key.at(index as u64))
    }

    fn map(&self, branch: impl Fn(Key) -> Key) -> Self {
        Self(self.0.as_ref().map(|s| Source { place: branch(s.place), samples: s.samples.clone() }))
    }

    /// Sets each value of `x` to zero with probability `rate`, and multiplies the remaining values by `1 / (1 - rate)`,
    /// which keeps the mean.
    ///
    /// The first axis of `x` is the samples, in the order of their ids. The mask is not kept: the backward pass draws
    /// the mask again.
    ///
    /// # Panics
    /// If the first axis is not as long as the list of samples, `x` has only one axis, or `rate` is not in `[0, 1)`.
    pub fn dropout<const D: usize>(&self, x: Tensor<D>, rate: f64) -> Tensor<D> {
        self.dropout_from(x, rate, 0)
    }

    /// Applies dropout to a part of a sequence that begins at position `first` of the second-last axis. It drops the
    /// values that dropout of the whole sequence would drop in this part. For sequences that grow during decoding, such
    /// as in the prenet of a synthesizer.
    ///
    /// # Panics
    /// See [`dropout`](Self::dropout).
    pub fn dropout_from<const D: usize>(&self, x: Tensor<D>, rate: f64, first: usize) -> Tensor<D> {
        match self.mask(rate, first) {
            Some(mask) => dropout(x, mask),
            None => x,
        }
    }

    /// Returns the mask of a dropout at `rate` for a tensor that begins at position `first` of its second-last axis;
    /// `None` if nothing is dropped.
    pub(crate) fn mask(&self, rate: f64, first: usize) -> Option<Mask> {
        assert!((0.0..1.0).contains(&rate), "the dropout rate must be in [0, 1), not {rate}");
        self.0.as_ref().filter(|_| rate > 0.0).map(|source| Mask::new(source, rate, first))
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::Device;

    use super::*;

    fn ids(names: &[&str]) -> Vec<SampleId> {
        names.iter().map(|n| SampleId::from_name(n)).collect()
    }

    fn mask(names: &[&str], shape: [usize; 3], rate: f64) -> Tensor<3> {
        let noise = Noise::new(Key::new(5).with("test"), &ids(names));
        noise.dropout(Tensor::ones(shape, &Device::flex()), rate)
    }

    #[test]
    fn the_mask_of_a_sample_does_not_depend_on_its_batch() {
        let both = mask(&["a", "b"], [2, 7, 10], 0.5);
        let alone = mask(&["b"], [1, 5, 10], 0.5);
        let cut = both.clone().slice([1..2, 0..5, 0..10]);
        assert_eq!(cut.into_data(), alone.into_data());
        let swapped = mask(&["b", "a"], [2, 7, 10], 0.5);
        let first = both.slice([0..1, 0..7, 0..10]);
        assert_eq!(first.into_data(), swapped.slice([1..2, 0..7, 0..10]).into_data());
    }

    #[test]
    fn part_of_a_sequence_has_the_mask_of_the_whole() {
        let noise = Noise::new(Key::new(5), &ids(&["a", "b"]));
        let whole = noise.dropout(Tensor::<3>::ones([2, 9, 12], &Device::flex()), 0.5);
        let part = noise.dropout_from(Tensor::<3>::ones([2, 3, 12], &Device::flex()), 0.5, 4);
        assert_eq!(whole.slice([0..2, 4..7, 0..12]).into_data(), part.into_data());
    }

    #[test]
    fn dropout_keeps_the_rate_and_the_mean() {
        for rate in [0.1, 0.5, 0.9] {
            let values = mask(&["a"], [1, 1000, 100], rate).into_data().try_to_vec::<f32>().unwrap();
            let dropped = values.iter().filter(|v| **v == 0.0).count() as f64 / 1e5;
            assert!((dropped - rate).abs() < 0.005, "{dropped} for {rate}");
            let mean = values.iter().map(|v| f64::from(*v)).sum::<f64>() / 1e5;
            assert!((mean - 1.0).abs() < 0.05, "{mean}");
        }
    }

    #[test]
    fn device_and_host_draw_the_same_mask() {
        for (shape, rate) in [([2, 7, 10], 0.3), ([2, 3, 1], 0.5), ([2, 1, 301], 0.1)] {
            let noise = Noise::new(Key::new(8), &ids(&["a", "b"])).with("here");
            for first in [0, 5] {
                let drop_mask = noise.mask(rate, first).unwrap().drop_mask(shape, &Device::flex());
                let kept = noise.dropout_from(Tensor::<3>::ones(shape, &Device::flex()), rate, first);
                assert_eq!(drop_mask.into_data(), kept.equal_elem(0.0).into_data());
            }
        }
    }

    #[test]
    fn device_and_host_draw_the_same_mask_with_any_number_of_axes() {
        let noise = Noise::new(Key::new(8), &ids(&["a", "b"])).with("here").at(2);
        fn check<const D: usize>(noise: &Noise, shape: [usize; D]) {
            for first in [0, 3] {
                let drop_mask = noise.mask(0.4, first).unwrap().drop_mask(shape, &Device::flex());
                let kept = noise.dropout_from(Tensor::<D>::ones(shape, &Device::flex()), 0.4, first);
                assert_eq!(drop_mask.into_data(), kept.equal_elem(0.0).into_data(), "{shape:?}");
            }
        }
        check(&noise, [2, 9]);
        check(&noise, [2, 5, 9]);
        check(&noise, [2, 3, 5, 9]);
        check(&noise, [2, 3, 2, 5, 9]);
    }

    #[test]
    fn gradient_is_dropped_where_the_value_was() {
        let device = Device::flex().autodiff();
        let x = Tensor::<3>::ones([1, 9, 20], &device).require_grad();
        let y = Noise::new(Key::new(3), &ids(&["a"])).dropout(x.clone(), 0.4);
        let gradient = x.grad(&(y.clone() * 2.0).sum().backward()).unwrap();
        assert_eq!(gradient.into_data(), (y * 2.0).into_data());
    }

    #[test]
    fn neighbors_on_every_axis_are_independent() {
        let x = (mask(&["a", "b"], [2, 400, 500], 0.5) - 1.0).reshape([2, 400, 500]);
        for (axis, extent) in [(0, 2), (1, 400), (2, 500)] {
            let part = |from: usize| x.clone().narrow(axis, from, extent - 1);
            let related = (part(0) * part(1)).mean().into_scalar::<f32>();
            // 2e5 to 4e5 products of +-1 each: five standard deviations are 0.011.
            assert!(related.abs() < 0.011, "axis {axis}: {related}");
        }
    }

    #[test]
    fn branches_are_independent_and_off_drops_nothing() {
        let noise = Noise::new(Key::new(5), &ids(&["a"]));
        let ones = Tensor::<3>::ones([1, 100, 100], &Device::flex());
        let first = noise.with("first").dropout(ones.clone(), 0.5);
        let second = noise.with("second").dropout(ones.clone(), 0.5);
        let both = (first * second).mean().into_scalar::<f32>();
        assert!((both - 1.0).abs() < 0.08, "{both}");
        assert_eq!(Noise::off().dropout(ones.clone(), 0.5).into_data(), ones.into_data());
    }
}
