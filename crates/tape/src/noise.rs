//! Randomness by key: a dropout mask is a function of what it is for, not of when it is drawn.

use std::sync::Arc;

use burn::tensor::{Device, Tensor, TensorData};
use plimsoll_core::{Key, SampleId};
use rayon::prelude::*;

use crate::bridge::{Family, family};

/// The randomness of one forward pass, or none.
///
/// Masks depend on the key (run, step, layer), on each sample's id and on the position inside the sample. They do not
/// depend on the split of the batch, on padding, on the order of the samples or on how often the pass is run, which is
/// what makes retries, splits and rematerialisation exact.
#[derive(Clone, Debug, Default)]
pub struct Noise(Option<Source>);

#[derive(Clone, Debug)]
struct Source {
    key: Key,
    samples: Arc<[SampleId]>,
}

impl Noise {
    /// No randomness: validation and decoding.
    pub fn off() -> Self {
        Self(None)
    }

    /// The randomness of `key` for a batch of `samples`.
    pub fn new(key: Key, samples: &[SampleId]) -> Self {
        Self(Some(Source { key, samples: samples.into() }))
    }

    /// Whether anything random will happen.
    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// The branch called `name`: each place that draws must have its own.
    #[must_use]
    pub fn with(&self, name: &str) -> Self {
        self.map(|key| key.with(name))
    }

    /// The branch numbered `index`, such as a block of a stack.
    #[must_use]
    pub fn at(&self, index: usize) -> Self {
        self.map(|key| key.at(index as u64))
    }

    fn map(&self, branch: impl Fn(Key) -> Key) -> Self {
        Self(self.0.as_ref().map(|s| Source { key: branch(s.key), samples: s.samples.clone() }))
    }

    /// Drops each value of `x` with probability `rate`, and scales what stays to keep the mean.
    ///
    /// The first axis of `x` is the samples, one for each id.
    ///
    /// # Panics
    /// Where the first axis is not as long as the list of samples, or `rate` is not in `[0, 1)`.
    pub fn dropout<const D: usize>(&self, x: Tensor<D>, rate: f64) -> Tensor<D> {
        assert!((0.0..1.0).contains(&rate), "a dropout rate of {rate} is not in [0, 1)");
        match &self.0 {
            Some(source) if rate > 0.0 => {
                let mask = source.mask(x.dims(), rate, &x.device());
                x * mask
            }
            _ => x,
        }
    }
}

impl Source {
    /// Zero where dropped, `1 / (1 - rate)` elsewhere.
    fn mask<const D: usize>(&self, shape: [usize; D], rate: f64, device: &Device) -> Tensor<D> {
        assert_eq!(shape[0], self.samples.len(), "one id for each sample of the batch");
        let plain = device.clone().inner();
        if family(&plain) == Family::Capture {
            return Tensor::ones(shape, &plain);
        }
        let values = self.draw(&shape, rate);
        Tensor::from_data(TensorData::new(values, shape), &plain)
    }

    fn draw(&self, shape: &[usize], rate: f64) -> Vec<f32> {
        let width = shape[shape.len() - 1];
        let rows_of_sample: usize = shape[1..shape.len() - 1].iter().product();
        let kept = (1.0 / (1.0 - rate)) as f32;
        // Four decisions of 16 bits come from one hash: a rate is exact to 1/65536.
        let threshold = (rate * 65536.0).round() as u64;
        let mut values = vec![0.0; shape.iter().product()];
        let fill = |(row, values): (usize, &mut [f32])| {
            let mut key = self.key.at(self.samples[row / rows_of_sample.max(1)].0);
            // The coordinates, and not the running number, which would depend on the padding.
            let mut rest = row % rows_of_sample.max(1);
            for &extent in shape[1..shape.len() - 1].iter().rev() {
                key = key.at((rest % extent) as u64);
                rest /= extent;
            }
            for (four, values) in values.chunks_mut(4).enumerate() {
                let bits = key.at(four as u64).bits();
                for (place, value) in values.iter_mut().enumerate() {
                    let draw = (bits >> (16 * place)) & 0xffff;
                    *value = if draw < threshold { 0.0 } else { kept };
                }
            }
        };
        values.par_chunks_mut(width.max(1)).enumerate().with_min_len(64).for_each(fill);
        values
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(names: &[&str]) -> Vec<SampleId> {
        names.iter().map(|n| SampleId::of(n)).collect()
    }

    fn mask(names: &[&str], shape: [usize; 3], rate: f64) -> Tensor<3> {
        let noise = Noise::new(Key::new(5).with("test"), &ids(names));
        noise.dropout(Tensor::ones(shape, &Device::flex()), rate)
    }

    #[test]
    fn a_sample_has_one_mask_whatever_it_is_batched_with() {
        let both = mask(&["a", "b"], [2, 7, 10], 0.5);
        let alone = mask(&["b"], [1, 5, 10], 0.5);
        let cut = both.clone().slice([1..2, 0..5, 0..10]);
        assert_eq!(cut.into_data(), alone.into_data());
        let swapped = mask(&["b", "a"], [2, 7, 10], 0.5);
        let first = both.slice([0..1, 0..7, 0..10]);
        assert_eq!(first.into_data(), swapped.slice([1..2, 0..7, 0..10]).into_data());
    }

    #[test]
    fn the_rate_is_kept_and_so_is_the_mean() {
        for rate in [0.1, 0.5, 0.9] {
            let values = mask(&["a"], [1, 1000, 100], rate).into_data().try_to_vec::<f32>().unwrap();
            let dropped = values.iter().filter(|v| **v == 0.0).count() as f64 / 1e5;
            assert!((dropped - rate).abs() < 0.005, "{dropped} for {rate}");
            let mean = values.iter().map(|v| f64::from(*v)).sum::<f64>() / 1e5;
            assert!((mean - 1.0).abs() < 0.05, "{mean}");
        }
    }

    #[test]
    fn places_and_samples_are_unrelated() {
        let noise = Noise::new(Key::new(5), &ids(&["a"]));
        let ones = Tensor::<3>::ones([1, 100, 100], &Device::flex());
        let first = noise.with("first").dropout(ones.clone(), 0.5);
        let second = noise.with("second").dropout(ones.clone(), 0.5);
        let both = (first * second).mean().into_scalar::<f32>();
        assert!((both - 1.0).abs() < 0.08, "{both}");
        assert_eq!(Noise::off().dropout(ones.clone(), 0.5).into_data(), ones.into_data());
    }
}
