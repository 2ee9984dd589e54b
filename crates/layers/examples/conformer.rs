//! Trains a Conformer block with CTC to read one text: `cargo run -p plimsoll-layers --example conformer`.

use burn::module::Module;
use burn::nn::{Linear, LinearConfig};
use burn::optim::{AdamWConfig, GradientsParams};
use burn::tensor::{Device, Tensor, TensorData};
use plimsoll_core::Key;
use plimsoll_layers::{Conformer, ConformerConfig, Lengths, ctc_greedy, ctc_loss};
use plimsoll_tape::{Pass, initialize};

const FRAMES: usize = 20;
const WIDTH: usize = 32;
const VOCABULARY: usize = 5;

#[derive(Module, Debug)]
struct Recognizer {
    block: Conformer,
    output: Linear,
}

impl Recognizer {
    /// Computes scores `[b, t, VOCABULARY]` from features `[b, t, WIDTH]`.
    fn forward(&self, x: Tensor<3>, lengths: &Lengths) -> Tensor<3> {
        let pass = Pass::plain();
        pass.dense(&self.output, self.block.forward(x, lengths, &pass))
    }
}

fn main() {
    let device = Device::flex().autodiff();
    let model = Recognizer {
        block: ConformerConfig::new(WIDTH, 4).init(&device),
        output: LinearConfig::new(WIDTH, VOCABULARY).init(&device),
    };
    let mut model = initialize(model, Key::new(1));
    let values: Vec<f32> = (0..FRAMES * WIDTH).map(|i| Key::new(2).at(i as u64).unit() as f32 - 0.5).collect();
    let features: Tensor<3> = Tensor::from_data(TensorData::new(values, [1, FRAMES, WIDTH]), &device);
    let lengths = Lengths::new(vec![FRAMES as u32], FRAMES);
    let text = vec![vec![3, 1, 4, 1]];
    let mut optimizer = AdamWConfig::new().init();
    for step in 0..60 {
        let logits = model.forward(features.clone(), &lengths);
        let loss = ctc_loss(logits.clone(), &lengths, &text).sum;
        if step % 15 == 0 {
            println!(
                "step {step}: loss {:.3}, reads {:?}",
                loss.clone().into_scalar::<f32>(),
                ctc_greedy(logits, &lengths)[0]
            );
        }
        let gradients = GradientsParams::from_grads(loss.backward(), &model);
        model = optimizer.step(3e-3, model, gradients);
    }
    let read = ctc_greedy(model.forward(features, &lengths), &lengths);
    println!("after 60 steps: reads {:?}, target {:?}", read[0], text[0]);
}
