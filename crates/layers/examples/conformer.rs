//! A Conformer block and CTC, from noise to a text that it was made to say.

use burn::module::Module;
use burn::nn::{Linear, LinearConfig};
use burn::optim::{AdamWConfig, GradientsParams};
use burn::tensor::{Device, Tensor, TensorData};
use plimsoll_core::Key;
use plimsoll_layers::{Conformer, ConformerConfig, Lengths, ctc_greedy, ctc_loss};
use plimsoll_tape::{Pass, initialise};

#[derive(Module, Debug)]
struct Speaker {
    block: Conformer,
    letters: Linear,
}

fn main() {
    let device = Device::flex().autodiff();
    let speaker =
        Speaker { block: ConformerConfig::new(32, 4).init(&device), letters: LinearConfig::new(32, 5).init(&device) };
    let mut speaker = initialise(speaker, Key::new(1));
    let values: Vec<f32> = (0..20 * 32).map(|i| Key::new(2).at(i).unit() as f32 - 0.5).collect();
    let sound: Tensor<3> = Tensor::from_data(TensorData::new(values, [1, 20, 32]), &device);
    let lengths = Lengths::new(vec![20], 20);
    let text = vec![vec![3, 1, 4, 1]];
    let pass = Pass::plain();
    let mut optimizer = AdamWConfig::new().init();
    for step in 0..60 {
        let logits = pass.dense(&speaker.letters, speaker.block.forward(sound.clone(), &lengths, &pass));
        let loss = ctc_loss(logits.clone(), &lengths, &text).sum;
        if step % 15 == 0 {
            let heard = ctc_greedy(logits, &lengths);
            println!("step {step}: loss {:.3}, it says {:?}", loss.clone().into_scalar::<f32>(), heard[0]);
        }
        let gradients = GradientsParams::from_grads(loss.backward(), &speaker);
        speaker = optimizer.step(3e-3, speaker, gradients);
    }
    let logits = pass.dense(&speaker.letters, speaker.block.forward(sound, &lengths, &pass));
    println!("in the end it says {:?}, and was to say {:?}", ctc_greedy(logits, &lengths)[0], text[0]);
}
