//! A small model with everything that could make a step depend on its split: different lengths, a norm, dropout.

// Shapes: b utterances, t frames, f features, h hidden width.

use burn::module::{Module, Param};
use burn::nn::{Linear, LinearConfig};
use burn::tensor::{DType, Device, FloatDType, Tensor, TensorData};
use plimsoll_core::{Grid, HostBatch, HostSample, Key, SampleId};
use plimsoll_tape::activation::silu;
use plimsoll_tape::{Pass, StepLoss, Task, TensorBatch, initialize, layer_norm};

/// Number of features per frame.
pub(crate) const FEATURES: usize = 8;

/// A model that predicts the mean feature of each frame through two layers with a norm and dropout between them.
#[derive(Module, Debug)]
pub(crate) struct Net {
    widen: Linear,
    scale: Param<Tensor<1>>,
    offset: Param<Tensor<1>>,
    narrow: Linear,
}

impl Net {
    /// Makes a model with hidden width `width` and initial weights.
    pub(crate) fn new(width: usize, device: &Device) -> Self {
        let net = Self {
            widen: LinearConfig::new(FEATURES, width).init(device),
            scale: Param::from_tensor(Tensor::ones([width], device)),
            offset: Param::from_tensor(Tensor::zeros([width], device)),
            narrow: LinearConfig::new(width, 1).init(device),
        };
        initialize(net, Key::new(3))
    }

    /// Computes the sum of the squared prediction errors over all frames of `batch`.
    pub(crate) fn off(&self, batch: &TensorBatch, pass: &Pass) -> Tensor<1> {
        let [b, t, _] = batch.features.dims();
        let x = match self.scale.val().dtype() {
            DType::F64 => batch.features.clone().cast(FloatDType::F64),
            _ => batch.features.clone(),
        };
        let wanted = silu(x.clone()).mean_dim(2);
        let mask: Vec<f32> =
            batch.frame_lengths.iter().flat_map(|&n| (0..t).map(move |place| f32::from(place < n as usize))).collect();
        let mask = Tensor::<3>::from_data(TensorData::new(mask, [b, t, 1]), &x.device()).cast(x.dtype());
        let h = pass.at_least_fp32(pass.dense(&self.widen, x));
        let h = layer_norm(h, self.scale.val(), self.offset.val(), 1e-5);
        let h = pass.with("hidden").dropout(silu(h), 0.2);
        let y = pass.at_least_fp32(pass.dense(&self.narrow, h));
        ((y - wanted) * mask).square().sum()
    }
}

impl Task for Net {
    type Batch = HostBatch;
    type Tensors = TensorBatch;

    fn send(batch: &HostBatch, device: &Device) -> TensorBatch {
        TensorBatch::send(batch, device)
    }

    fn weight(&self, batch: &HostBatch) -> f64 {
        batch.frame_lengths.iter().map(|&n| f64::from(n)).sum()
    }

    fn loss(&self, batch: &TensorBatch, pass: &Pass) -> StepLoss {
        StepLoss::new(self.off(batch, pass))
    }
}

/// Makes the sample with index `index`, of `frames` to twice as many frames.
pub(crate) fn sample(index: u64, frames: u64) -> HostSample {
    let key = Key::new(5).at(index);
    let frames = frames + key.with("length").below(frames);
    let value = |place: u64| (key.at(place).unit() * 2.0 - 1.0) as f32;
    let features = (0..frames * FEATURES as u64).map(value).collect();
    HostSample { id: SampleId(index), name: format!("u{index}"), features, tokens: vec![], reference: vec![] }
}

/// Makes a batch of the samples of `indices`, shortest first.
pub(crate) fn batch(indices: impl IntoIterator<Item = u64>, frames: u64) -> HostBatch {
    let mut samples: Vec<HostSample> = indices.into_iter().map(|index| sample(index, frames)).collect();
    samples.sort_by_key(|sample| sample.features.len());
    HostBatch::collate(&samples, FEATURES, &Grid::default()).expect("samples are whole frames")
}
