//! Somebody else's Transformer, each block of which is computed again instead of kept.
//!
//! Nothing of it is ours: Burn's attention, feed-forward layer and norms in a model that knows nothing of this crate. The
//! one change is `remat` around each block. Its dropout is zero, because Burn's draws anew in the second pass; a
//! `Noise` does not.

use burn::module::Module;
use burn::nn::attention::{MhaInput, MultiHeadAttention, MultiHeadAttentionConfig};
use burn::nn::transformer::{PositionWiseFeedForward, PositionWiseFeedForwardConfig};
use burn::nn::{LayerNorm, LayerNormConfig};
use burn::tensor::{Bool, Device, Tensor, TensorData};
use plimsoll_core::{Bytes, CountingAllocator, Key, MemoryMeter};
use plimsoll_tape::{backward, initialise, remat};

#[global_allocator]
static MEMORY: CountingAllocator = CountingAllocator::new();

#[derive(Module, Debug)]
struct Block {
    norm_attention: LayerNorm,
    attention: MultiHeadAttention,
    norm_feed_forward: LayerNorm,
    feed_forward: PositionWiseFeedForward,
}

impl Block {
    fn init(device: &Device) -> Self {
        Self {
            norm_attention: LayerNormConfig::new(64).init(device),
            attention: MultiHeadAttentionConfig::new(64, 4).with_dropout(0.0).init(device),
            norm_feed_forward: LayerNormConfig::new(64).init(device),
            feed_forward: PositionWiseFeedForwardConfig::new(64, 256).with_dropout(0.0).init(device),
        }
    }

    fn forward(&self, (x, padding): (Tensor<3>, Tensor<2, Bool>)) -> Tensor<3> {
        let input = MhaInput::self_attn(self.norm_attention.forward(x.clone())).mask_pad(padding);
        let x = x + self.attention.forward(input).context;
        x.clone() + self.feed_forward.forward(self.norm_feed_forward.forward(x))
    }
}

fn main() {
    let device = Device::flex().autodiff();
    let blocks: Vec<Block> = initialise((0..6).map(|_| Block::init(&device)).collect(), Key::new(1));
    let values: Vec<f32> = (0..2 * 200 * 64).map(|i| Key::new(2).at(i).unit() as f32 - 0.5).collect();
    let x = Tensor::<3>::from_data(TensorData::new(values, [2, 200, 64]), &device);
    let padding = Tensor::<2>::zeros([2, 200], &device).greater_elem(0.5);
    let pass = |again: bool| -> (Bytes, f32) {
        let before = MEMORY.current();
        MEMORY.reset_peak();
        let y = blocks.iter().fold(x.clone(), |x, block| {
            let inputs = (x, padding.clone());
            if again { remat(block, inputs, Block::forward) } else { block.forward(inputs) }
        });
        let gradients = backward(y.square().mean(), &blocks);
        let weight = gradients.get::<2>(blocks[0].attention.query.weight.id).expect("the loss depends on it");
        (MEMORY.peak().saturating_sub(before), weight.abs().sum().into_scalar::<f32>())
    };
    let ((plain, gradient), (again, same)) = (pass(false), pass(true));
    println!("six blocks kept: {plain}; computed again: {again}; gradients {gradient} and {same}");
}
