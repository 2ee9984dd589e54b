//! Tests that compare losses with PyTorch.

use burn::tensor::{Device, Tensor, TensorData};
use plimsoll_core::Choice;
use plimsoll_layers::{
    CrossAttention, CrossAttentionConfig, Distance, GuidedAttention, Lengths, cross_entropy, ctc_loss, mel_distance,
    stop_loss,
};
use plimsoll_tape::Pass;

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
fn cross_entropy_agrees_with_pytorch_and_ignores_padding() {
    let fixture = Fixture::read("cross_entropy");
    let [n, v] = fixture.shape("logits").unwrap().try_into().unwrap();
    let targets: Vec<i64> = fixture.values("targets").iter().map(|&t| t as i64).collect();
    let device = Device::flex().autodiff();
    // Each row is one sequence here. A padded row of PyTorch is an empty sequence.
    let rows: Vec<Vec<u32>> = targets.iter().map(|&t| u32::try_from(t).into_iter().collect()).collect();
    let values = fixture.values("logits").to_vec();
    let x = Tensor::<3>::from_data(TensorData::new(values, [n, 1, v]), &device).require_grad();
    let loss = cross_entropy(x.clone(), &rows, 0.1);
    let tape = loss.backward();
    close("loss", &[loss.into_scalar::<f32>()], fixture.values("loss"), 1e-5);
    let gradient: Vec<f32> = x.grad(&tape).unwrap().into_data().try_into_vec().unwrap();
    close("gradient", &gradient, fixture.values("grad_logits"), 1e-4);
}

/// Checks `loss` of the tensor `name`, and its gradient, against the fixture.
fn agrees<const D: usize>(fixture: &Fixture, name: &str, loss: impl FnOnce(Tensor<D>) -> Tensor<1>) {
    let shape: [usize; D] = fixture.shape(name).unwrap().try_into().unwrap();
    let data = TensorData::new(fixture.values(name).to_vec(), shape);
    let x = Tensor::<D>::from_data(data, &Device::flex().autodiff()).require_grad();
    let loss = loss(x.clone());
    let tape = loss.backward();
    close("loss", &[loss.into_scalar::<f32>()], fixture.values("loss"), 1e-5);
    let gradient: Vec<f32> = x.grad(&tape).unwrap().into_data().try_into_vec().unwrap();
    close("gradient", &gradient, fixture.values(&format!("grad_{name}")), 1e-4);
}

#[test]
fn mel_distances_agree_with_pytorch_and_ignore_padding() {
    for (name, distance) in [("mel_distance_l1", Distance::L1), ("mel_distance_huber", Distance::Huber)] {
        let fixture = Fixture::read(name);
        let shape: [usize; 3] = fixture.shape("truth").unwrap().try_into().unwrap();
        let truth = Tensor::<3>::from_data(TensorData::new(fixture.values("truth").to_vec(), shape), &Device::flex());
        let lengths = Lengths::new(fixture.numbers("lengths"), shape[1]);
        agrees(&fixture, "found", |found: Tensor<3>| {
            let truth = Tensor::from_data(truth.into_data(), &found.device());
            mel_distance(found, truth, &lengths, distance)
        });
    }
}

#[test]
fn stop_loss_agrees_with_pytorch_and_ignores_padding() {
    let fixture = Fixture::read("stop_loss");
    let steps = fixture.shape("logits").unwrap()[1];
    let lengths = Lengths::new(fixture.numbers("lengths"), steps);
    agrees(&fixture, "logits", |logits: Tensor<2>| stop_loss(logits, &lengths, 5.0));
}

/// Builds cross-attention with identity projections, so that its inputs are the queries and keys themselves.
fn identity_attention(device: &Device, d: usize) -> CrossAttention {
    use plimsoll_tape::{apply, collect};
    let attention = CrossAttentionConfig { d_model: d, d_memory: 2 * d, heads: 2, dropout: 0.0 }.init(device);
    let mut values = collect(&attention);
    for value in &mut values {
        let columns = value.shape.last().copied().unwrap_or(1);
        let is_matrix = value.shape.len() == 2;
        for (index, x) in value.values.iter_mut().enumerate() {
            *x = f32::from(is_matrix && index / columns == index % columns);
        }
    }
    apply(attention, values).unwrap()
}

#[test]
fn guided_attention_agrees_with_pytorch_whole_and_in_chunks() {
    let fixture = Fixture::read("guided_attention");
    let device = Device::flex().autodiff();
    let [b, h, u, w]: [usize; 4] = fixture.shape("query").unwrap().try_into().unwrap();
    let k = fixture.shape("key").unwrap()[2];
    let head = |name: &str, n: usize| -> Tensor<4> {
        let data = TensorData::new(fixture.values(name).to_vec(), [b, h, n, w]);
        Tensor::<4>::from_data(data, &device).require_grad()
    };
    let joined = |x: &Tensor<4>, n: usize| -> Tensor<3> { x.clone().swap_dims(1, 2).reshape([b, n, h * w]) };
    let queries = Lengths::new(fixture.numbers("query_lengths"), u);
    let keys = Lengths::new(fixture.numbers("key_lengths"), k);
    let guide = GuidedAttention::new(0.2, &queries, &keys, &device);
    let layer = identity_attention(&device, h * w);
    for chunk in [None, std::num::NonZeroU32::new(4)] {
        let pass = Pass::plain().with_choice(Choice { attention_chunk: chunk, ..Choice::default() });
        let (query, key) = (head("query", u), head("key", k));
        let memory = Tensor::cat(vec![joined(&key, k), Tensor::zeros([b, k, h * w], &device)], 2);
        let memory = layer.project_memory(memory, &keys, &pass);
        let (_, penalty) = layer.attend_guided(joined(&query, u), &memory, &guide, &pass);
        let tape = penalty.backward();
        close("penalty", &[penalty.into_scalar::<f32>()], fixture.values("penalty"), 1e-4);
        for (name, x) in [("grad_query", query), ("grad_key", key)] {
            let gradient: Vec<f32> = x.grad(&tape).unwrap().into_data().try_into_vec().unwrap();
            close(name, &gradient, fixture.values(name), 1e-4);
        }
    }
}
