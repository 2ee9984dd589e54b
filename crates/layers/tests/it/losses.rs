//! The losses beside PyTorch's.

use burn::tensor::{Device, Tensor, TensorData};
use plimsoll_layers::{Lengths, cross_entropy, ctc_loss};

use crate::fixture::{Fixture, close};

#[test]
fn ctc_agrees_with_pytorch_on_a_hundred_cases() {
    let fixture = Fixture::read("ctc");
    let (logits, texts, losses) = (fixture.values("logits"), fixture.numbers("texts"), fixture.values("losses"));
    let (mut from, mut text_from) = (0, 0);
    for (case, size) in fixture.numbers("sizes").chunks_exact(3).enumerate() {
        let [t, v, u] = [size[0], size[1], size[2]].map(|n| n as usize);
        let values = logits[from..from + t * v].to_vec();
        let device = Device::flex().autodiff();
        let x = Tensor::<3>::from_data(TensorData::new(values, [1, t, v]), &device).require_grad();
        let text = texts[text_from..text_from + u].to_vec();
        let loss = ctc_loss(x.clone(), &Lengths::new(vec![t as u32], t), &[text]);
        assert_eq!(losses[case] < 0.0, !loss.infeasible.is_empty(), "case {case}");
        let expected = losses[case].max(0.0);
        let tape = loss.sum.backward();
        close(&format!("loss {case}"), &[loss.sum.into_scalar::<f32>()], &[expected], 1e-5);
        let gradient: Vec<f32> = x.grad(&tape).unwrap().into_data().try_into_vec().unwrap();
        close(&format!("gradient {case}"), &gradient, &fixture.values("gradients")[from..from + t * v], 1e-4);
        (from, text_from) = (from + t * v, text_from + u);
    }
}

#[test]
fn cross_entropy_agrees_with_pytorch_and_counts_no_padding() {
    let fixture = Fixture::read("cross_entropy");
    let [n, v] = fixture.shape("logits").unwrap().try_into().unwrap();
    let targets: Vec<i64> = fixture.values("targets").iter().map(|&t| t as i64).collect();
    let device = Device::flex().autodiff();
    // Every row is a sequence of its own here: PyTorch's padding is an empty one.
    let rows: Vec<Vec<u32>> = targets.iter().map(|&t| u32::try_from(t).into_iter().collect()).collect();
    let values = fixture.values("logits").to_vec();
    let x = Tensor::<3>::from_data(TensorData::new(values, [n, 1, v]), &device).require_grad();
    let loss = cross_entropy(x.clone(), &rows, 0.1);
    let tape = loss.backward();
    close("loss", &[loss.into_scalar::<f32>()], fixture.values("loss"), 1e-5);
    let gradient: Vec<f32> = x.grad(&tape).unwrap().into_data().try_into_vec().unwrap();
    close("gradient", &gradient, fixture.values("grad_logits"), 1e-4);
}
