//! One test interface for all blocks: an input, a memory and their lengths.

use std::collections::BTreeMap;

use burn::module::{Module, Param};
use burn::tensor::{Device, Tensor, TensorData};
use plimsoll_layers::{
    Activation, Attention, AttentionConfig, Conformer, ConformerConfig, Convolution, ConvolutionConfig, CrossAttention,
    CrossAttentionConfig, DecoderBlock, EncoderBlock, FeedForward, FeedForwardConfig, HeadPositions, Lengths, NormKind,
    Postnet, PostnetConfig, Prenet, PrenetConfig, SpeakerEncoder, SpeakerEncoderConfig, StyleTokens, StyleTokensConfig,
    Subsampling, SubsamplingConfig, TransformerConfig,
};
use plimsoll_tape::{NamedTensor, NamedVisitor, Pass, apply, collect, walk};

use crate::fixture::Fixture;

/// Padded batch of sequences with their lengths.
#[derive(Clone)]
pub(crate) struct Sequence {
    pub(crate) x: Tensor<3>,
    pub(crate) lengths: Lengths,
}

/// Interface of a block under test.
pub(crate) trait Block: Module + Sync + 'static {
    fn run(&self, x: Tensor<3>, lengths: &Lengths, memory: &Sequence, pass: &Pass) -> Tensor<3>;
}

macro_rules! blocks {
    ($($kind:ty: |$block:ident, $x:ident, $lengths:ident, $memory:ident, $pass:ident| $run:expr;)+) => {$(
        impl Block for $kind {
            fn run(&self, $x: Tensor<3>, $lengths: &Lengths, $memory: &Sequence, $pass: &Pass) -> Tensor<3> {
                let $block = self;
                $run
            }
        }
    )+};
}

blocks! {
    FeedForward: |block, x, _lengths, _memory, pass| block.forward(x, pass);
    Attention: |block, x, lengths, _memory, pass| block.forward(x, lengths, pass);
    CrossAttention: |block, x, _lengths, memory, pass| block.forward(x, memory.x.clone(), &memory.lengths, pass);
    Convolution: |block, x, lengths, _memory, pass| block.forward(x, lengths, pass);
    Conformer: |block, x, lengths, _memory, pass| block.forward(x, lengths, pass);
    EncoderBlock: |block, x, lengths, _memory, pass| block.forward(x, lengths, pass);
    DecoderBlock: |block, x, lengths, memory, pass| {
        block.forward(x, lengths, memory.x.clone(), &memory.lengths, pass)
    };
    Subsampling: |block, x, lengths, _memory, pass| block.forward(x, lengths, pass).0;
    Prenet: |block, x, _lengths, _memory, pass| block.forward(x, 0, pass.noise(), pass);
    Postnet: |block, x, lengths, _memory, pass| block.forward(x, lengths, pass);
    SpeakerEncoder: |block, x, lengths, _memory, pass| block.forward(x, lengths, pass);
    StyleTokens: |block, x, _lengths, _memory, pass| block.forward(x, pass);
}

/// Check that runs on each block.
pub(crate) trait Check {
    fn check<B: Block>(&self, name: &str, build: &dyn Fn(&Device) -> B);
}

/// Runs `check` on each block that has a fixture, with the given dropout probability.
pub(crate) fn every_block(check: &impl Check, dropout: f64) {
    let (d_model, heads) = (16, 4);
    let attention = |positions, causal| AttentionConfig { d_model, heads, dropout, positions, causal };
    let plain = HeadPositions::Absolute;
    for (name, activation) in [("feed_forward_silu", Activation::Silu), ("feed_forward_relu", Activation::Relu)] {
        let config = FeedForwardConfig { d_model, inner: 64, activation, dropout };
        check.check(name, &|device| config.init(device));
    }
    for (name, config) in [
        ("attention_plain", attention(plain, false)),
        ("attention_causal", attention(plain, true)),
        ("attention_relative", attention(HeadPositions::Relative, false)),
        ("attention_rotary", attention(HeadPositions::Rotary, false)),
    ] {
        check.check(name, &|device| config.init(device));
    }
    let cross = CrossAttentionConfig { d_model, d_memory: 16, heads, dropout };
    check.check("attention_cross", &|device| cross.init(device));
    for (name, norm) in [
        ("convolution_layer_norm", NormKind::Layer),
        ("convolution_group_norm", NormKind::Group(4)),
        ("convolution_batch_norm", NormKind::Batch),
    ] {
        let config = ConvolutionConfig { d_model, kernel: 5, norm, dropout };
        check.check(name, &|device| config.init(device));
    }
    for (name, positions, norm) in [
        ("conformer_absolute", plain, NormKind::Layer),
        ("conformer_relative", HeadPositions::Relative, NormKind::Layer),
        ("conformer_batch_norm", plain, NormKind::Batch),
    ] {
        let config = ConformerConfig { kernel: 5, positions, norm, dropout, ..ConformerConfig::new(d_model, heads) };
        check.check(name, &|device| config.init(device));
    }
    for (end, norm_first) in [("pre", true), ("post", false)] {
        let config = TransformerConfig { norm_first, dropout, ..TransformerConfig::new(d_model, heads) };
        check.check(&format!("transformer_encoder_{end}"), &|device| config.init_encoder(device));
        check.check(&format!("transformer_decoder_{end}"), &|device| config.init_decoder(device));
    }
    let subsampling = SubsamplingConfig { features: 20, d_model, channels: 4, factor: 4 };
    check.check("subsampling", &|device| subsampling.init(device));
    let prenet = PrenetConfig { features: 20, width: 16, layers: 2, dropout };
    check.check("prenet", &|device| prenet.init(device));
    let postnet = PostnetConfig { features: 20, channels: 12, kernel: 5, layers: 3, dropout };
    check.check("postnet", &|device| postnet.init(device));
    let speaker = SpeakerEncoderConfig { features: 20, channels: 12, layers: 2, kernel: 5, dropout };
    check.check("speaker_encoder", &|device| speaker.init(device));
    let style = StyleTokensConfig { input: 24, tokens: 4, width: 8, heads: 2 };
    check.check("style_tokens", &|device| style.init(device));
}

/// Reads a tensor of the fixture.
pub(crate) fn tensor(fixture: &Fixture, name: &str, device: &Device) -> Tensor<3> {
    let shape: [usize; 3] = fixture.shape(name).unwrap().try_into().unwrap();
    Tensor::from_data(TensorData::new(fixture.values(name).to_vec(), shape), device)
}

/// Reads sequences of the fixture. Without lengths in the fixture no sequence is padded.
pub(crate) fn sequence(fixture: &Fixture, name: &str, lengths: &str, device: &Device) -> Sequence {
    let x = tensor(fixture, name, device);
    let [b, t, _] = x.dims();
    let lengths = if fixture.shape(lengths).is_some() { fixture.numbers(lengths) } else { vec![t as u32; b] };
    Sequence { x, lengths: Lengths::new(lengths, t) }
}

/// Loads the weights of the fixture into the block. Running statistics that the fixture lacks keep their initial
/// values.
pub(crate) fn with_weights<B: Block>(block: B, fixture: &Fixture) -> B {
    let mut values: Vec<NamedTensor> = fixture
        .under("weight.")
        .map(|(name, shape, values)| NamedTensor { name: name.into(), shape: shape.into(), values: values.into() })
        .collect();
    let running = |name: &str| name.ends_with("norm.mean") || name.ends_with("norm.variance");
    values.extend(
        collect(&block)
            .into_iter()
            .filter(|v| running(&v.name) && fixture.shape(&format!("weight.{}", v.name)).is_none()),
    );
    apply(block, values).unwrap()
}

/// Collects the gradients of a module by parameter name.
pub(crate) fn gradients<M: Module>(module: &M, tape: &burn::tensor::Gradients) -> BTreeMap<String, Vec<f32>> {
    struct Found<'a>(&'a burn::tensor::Gradients, BTreeMap<String, Vec<f32>>);
    impl NamedVisitor for Found<'_> {
        fn parameter<const D: usize>(&mut self, name: &str, param: &Param<Tensor<D>>) {
            if let Some(gradient) = param.val().grad(self.0) {
                self.1.insert(name.into(), gradient.into_data().try_into_vec().unwrap());
            }
        }
    }
    let mut found = Found(tape, BTreeMap::new());
    walk(module, &mut found);
    found.1
}
