//! Tests that compare each block with PyTorch, results and gradients. The scripts that make the fixtures are in
//! `fixtures/`.

use burn::module::Module;
use burn::tensor::{Device, Tensor, TensorData};
use plimsoll_layers::{ConvolutionConfig, NormKind};
use plimsoll_tape::Pass;

use crate::block::{Block, Check, every_block, gradients, sequence, tensor, with_weights};
use crate::fixture::{Fixture, close};

/// Largest allowed difference, relative to the largest expected number.
const TOLERANCE: f32 = 1e-4;

struct AgreesWithPyTorch;

impl Check for AgreesWithPyTorch {
    fn check<B: Block>(&self, name: &str, build: &dyn Fn(&Device) -> B) {
        let fixture = Fixture::read(name);
        let device = Device::flex().autodiff();
        let block = with_weights(build(&device), &fixture);
        let mut input = sequence(&fixture, "x", "lengths", &device);
        input.x = input.x.require_grad();
        let has_memory = fixture.shape("memory").is_some();
        let mut memory =
            if has_memory { sequence(&fixture, "memory", "memory_lengths", &device) } else { input.clone() };
        memory.x = memory.x.detach().require_grad();
        let y = block.run(input.x.clone(), &input.lengths, &memory, &Pass::plain());
        // The fixture has zeros in the padding.
        let valid =
            if y.dims()[1] == input.lengths.width() { input.lengths.clear_padding(y.clone()) } else { y.clone() };
        close(&format!("{name}: y"), &valid.into_data().try_into_vec().unwrap(), fixture.values("y"), TOLERANCE);
        let tape = (y * tensor(&fixture, "c", &device)).sum().backward();
        let by_x: Vec<f32> = input.x.grad(&tape).unwrap().into_data().try_into_vec().unwrap();
        close(&format!("{name}: gradient by x"), &by_x, fixture.values("grad_x"), TOLERANCE);
        if has_memory {
            let by_memory: Vec<f32> = memory.x.grad(&tape).unwrap().into_data().try_into_vec().unwrap();
            close(&format!("{name}: gradient by memory"), &by_memory, fixture.values("grad_memory"), TOLERANCE);
        }
        let found = gradients(&block, &tape);
        for (weight, _, expected) in fixture.under("grad.") {
            let found = found.get(weight).unwrap_or_else(|| panic!("{name}: no gradient of {weight}"));
            close(&format!("{name}: gradient of {weight}"), found, expected, TOLERANCE);
        }
    }
}

#[test]
fn every_block_agrees_with_pytorch() {
    every_block(&AgreesWithPyTorch, 0.0);
}

#[test]
fn batch_norm_statistics_and_evaluation_agree_with_pytorch() {
    let config = ConvolutionConfig { d_model: 16, kernel: 5, norm: NormKind::Batch, dropout: 0.0 };
    let device = Device::flex().autodiff();
    let trained = Fixture::read("convolution_batch_norm");
    let block = with_weights(config.init(&device), &trained);
    let input = sequence(&trained, "x", "lengths", &device);
    block.forward(input.x, &input.lengths, &Pass::plain());
    for value in plimsoll_tape::collect(&block) {
        if let Some(name) = [("norm.mean", "running_mean"), ("norm.variance", "running_var")]
            .iter()
            .find_map(|(ours, theirs)| (value.name == *ours).then_some(theirs))
        {
            close(name, &value.values, trained.values(name), TOLERANCE);
        }
    }
    let fixture = Fixture::read("convolution_batch_norm_evaluation");
    let block = with_weights(config.init(&device), &fixture).valid();
    let input = sequence(&fixture, "x", "lengths", &Device::flex());
    let y = input.lengths.clear_padding(block.forward(input.x, &input.lengths, &Pass::plain()));
    close("evaluation", &y.into_data().try_into_vec().unwrap(), fixture.values("y"), TOLERANCE);
}

/// A linear layer with an adapter gives the result and the gradients of `peft`, rematerialized or not.
#[test]
fn an_adapter_matches_peft() {
    use burn::nn::LinearConfig;
    use plimsoll_tape::lora::{Lora, TrainedParts};
    use plimsoll_tape::{NamedTensor, apply, backward, remat_dense};

    let fixture = Fixture::read("lora");
    let device = Device::flex().autodiff();
    let tensor = |name: &str| -> Tensor<3> {
        let shape: [usize; 3] = fixture.shape(name).unwrap().try_into().unwrap();
        Tensor::from_data(TensorData::new(fixture.values(name).to_vec(), shape), &device)
    };
    let lora = Lora { rank: 3, alpha: 7.0, targets: Vec::new(), also: Vec::new() };
    let parts = TrainedParts { lora: Some(lora), ..TrainedParts::default() };
    // A vector of layers, because a layer alone has no name.
    let layers = parts.apply(vec![LinearConfig::new(6, 5).init(&device)], plimsoll_core::Key::new(1)).unwrap();
    let named = |(name, from): (&str, &str)| {
        let (shape, values) = (fixture.shape(from).unwrap().to_vec(), fixture.values(from).to_vec());
        NamedTensor { name: name.into(), shape, values }
    };
    let values = [("0.weight", "weight"), ("0.bias", "bias"), ("0.weight.lora.a", "a"), ("0.weight.lora.b", "b")];
    let layers = apply(layers, values.map(named).into()).unwrap();
    for is_again in [false, true] {
        let x = tensor("x").require_grad();
        let pass = Pass::plain();
        let y = match is_again {
            true => remat_dense(&layers, x.clone(), |_, x| x, |layers| &layers[0], &pass),
            false => pass.dense(&layers[0], x.clone()),
        };
        close("y", &y.clone().into_data().try_into_vec::<f32>().unwrap(), fixture.values("y"), 1e-5);
        let grads = (y * tensor("pull")).sum().backward();
        let adapter = layers[0].weight.adapter().unwrap();
        let found = |gradient: Option<Tensor<2>>| gradient.unwrap().into_data().try_into_vec::<f32>().unwrap();
        close("a", &found(adapter.a.val().grad(&grads)), fixture.values("gradient.a"), 1e-5);
        close("b", &found(adapter.b.val().grad(&grads)), fixture.values("gradient.b"), 1e-5);
        let of_x = x.grad(&grads).unwrap().into_data().try_into_vec::<f32>().unwrap();
        close("x", &of_x, fixture.values("gradient.x"), 1e-5);
        assert!(layers[0].weight.base().grad(&grads).is_none());
        let again = pass.dense(&layers[0], tensor("x")).sum();
        assert_eq!(backward(again, &layers).len(), 2);
    }
}
