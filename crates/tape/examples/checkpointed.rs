//! Rematerialization of each layer of Burn's Transformer encoder.
//!
//! The only change is `remat` around each layer. Dropout is zero, because Burn's dropout would draw another mask in the
//! second pass. A `Noise` draws the same mask twice.

use burn::nn::transformer::TransformerEncoderConfig;
use burn::tensor::{Device, Tensor, TensorData};
use plimsoll_core::{Bytes, CountingAllocator, Key, MemoryMeter};
use plimsoll_tape::{backward, initialize, remat};

#[global_allocator]
static MEMORY: CountingAllocator = CountingAllocator::new();

fn main() {
    let device = Device::flex().autodiff();
    let config = TransformerEncoderConfig::new(64, 256, 4, 6).with_dropout(0.0).with_norm_first(true);
    let encoder = initialize(config.init(&device), Key::new(1));
    let values: Vec<f32> = (0..2 * 200 * 64).map(|i| Key::new(2).at(i).unit() as f32 - 0.5).collect();
    let x = Tensor::<3>::from_data(TensorData::new(values, [2, 200, 64]), &device);
    let padding = Tensor::<2>::zeros([2, 200], &device).greater_elem(0.5);
    let pass = |rematerialize: bool| -> (Bytes, f32) {
        let before = MEMORY.current();
        MEMORY.reset_peak();
        let y = encoder.layers.iter().fold(x.clone(), |x, layer| match rematerialize {
            true => remat(layer, (x, padding.clone()), |layer, (x, padding)| layer.forward(x, Some(padding), None)),
            false => layer.forward(x, Some(padding.clone()), None),
        });
        let gradients = backward(y.square().mean(), &encoder);
        let weight = gradients.get::<2>(encoder.layers[0].mha.query.weight.id).expect("the loss depends on it");
        (MEMORY.peak().saturating_sub(before), weight.abs().sum().into_scalar::<f32>())
    };
    let ((plain, gradient), (again, same)) = (pass(false), pass(true));
    println!("six layers kept: {plain}; computed again: {again}; gradients {gradient} and {same}");
}
