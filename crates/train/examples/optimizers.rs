//! What an optimizer's state costs in each form: bytes, counted by the allocator, and milliseconds of a step.
//!
//! The model is 38 blocks of a linear layer and a norm, 144 wide, on the CPU.

use std::time::Instant;

use burn::module::Module;
use burn::nn::{LayerNorm, LayerNormConfig, Linear, LinearConfig};
use burn::tensor::{Device, Tensor};
use plimsoll_core::{CountingAllocator, Key, MemoryMeter};
use plimsoll_tape::{backward, count, initialize};
use plimsoll_train::{AdamWConfig, LionConfig, Optimizer, OptimizerConfig, SgdConfig, StateForm};

#[global_allocator]
static MEMORY: CountingAllocator = CountingAllocator::new();

const WIDTH: usize = 144;
const BLOCKS: usize = 38;
const STEPS: u32 = 10;

/// The most that 8 bits may take of what AdamW takes in fp32.
const SHARE_MAX: f64 = 0.28;

/// What the allocator may see beside the values: names and Burn's handles of 304 tensors.
const HANDLES_MAX: u64 = 304 * 640;

#[derive(Module, Debug)]
struct Stack {
    layers: Vec<Linear>,
    norms: Vec<LayerNorm>,
}

impl Stack {
    fn new(device: &Device) -> Self {
        let layers = (0..BLOCKS).map(|_| LinearConfig::new(WIDTH, WIDTH).init(device)).collect();
        let norms = (0..BLOCKS).map(|_| LayerNormConfig::new(WIDTH).init(device)).collect();
        initialize(Self { layers, norms }, Key::new(1))
    }

    fn loss(&self, x: Tensor<2>) -> Tensor<1> {
        let forward = |x: Tensor<2>, (layer, norm): (&Linear, &LayerNorm)| x.clone() + layer.forward(norm.forward(x));
        self.layers.iter().zip(&self.norms).fold(x, forward).square().mean()
    }
}

/// Bytes that the state takes by the optimizer's count and by the allocator's, and milliseconds of a step.
fn measure(config: OptimizerConfig, form: StateForm) -> (u64, u64, f64) {
    let device = Device::flex().autodiff();
    let mut stack = Stack::new(&device);
    let mut optimizer = Optimizer::new(config, form);
    let mut seconds = 0.0;
    for step in 0..=STEPS {
        let gradients = backward(stack.loss(Tensor::ones([8, WIDTH], &device)), &stack);
        let start = Instant::now();
        stack = optimizer.step(1e-4, stack, gradients, 1.0);
        // The first step makes the state.
        seconds += if step == 0 { 0.0 } else { start.elapsed().as_secs_f64() };
    }
    let told = optimizer.bytes().0;
    let with = MEMORY.current().0;
    drop(optimizer);
    (told, with - MEMORY.current().0, seconds * 1e3 / f64::from(STEPS))
}

fn main() {
    let sgd = SgdConfig { momentum: 0.9, ..SgdConfig::default() };
    let full = measure(AdamWConfig::default().into(), StateForm::Full).0 as f64;
    println!("{} parameters", count(&Stack::new(&Device::flex().autodiff())));
    println!("a handle of a tensor takes {} bytes", size_of::<Tensor<1>>());
    println!("| rule | form | bytes | counted | of AdamW in fp32 | ms a step |");
    for config in [AdamWConfig::default().into(), LionConfig::default().into(), sgd.into()] {
        for form in [StateForm::Full, StateForm::Eight, StateForm::Host] {
            let (told, counted, milliseconds) = measure(config, form);
            let share = told as f64 / full;
            let name = format!("{config:?}");
            let name = name.split('(').next().unwrap_or_default();
            println!("| {name} | {form:?} | {told} | {counted} | {share:.4} | {milliseconds:.1} |");
            assert!(counted.abs_diff(told) <= HANDLES_MAX, "{counted} bytes are not {told}");
            assert!(form != StateForm::Eight || share <= SHARE_MAX, "{name} in 8 bits takes {share}");
        }
    }
}
