//! Cost of an optimizer's state in each form: bytes as counted by the allocator, and milliseconds per step.
//!
//! The model has 38 blocks of a linear layer and a norm, 144 wide, and runs on the CPU.

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

/// Largest share of AdamW's fp32 state that 8-bit state may take.
const SHARE_MAX: f64 = 0.28;

/// Bytes besides the values: names and Burn's handles of 304 tensors.
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

/// Measures the bytes of the state as reported by the optimizer and by the allocator, and the milliseconds per step.
fn measure(config: OptimizerConfig, form: StateForm) -> (u64, u64, f64) {
    let device = Device::flex().autodiff();
    let mut stack = Stack::new(&device);
    let mut optimizer = Optimizer::new(config, form);
    let mut seconds = 0.0;
    for step in 0..=STEPS {
        let gradients = backward(stack.loss(Tensor::ones([8, WIDTH], &device)), &stack);
        let start = Instant::now();
        stack = optimizer.step(1e-4, stack, gradients, 1.0);
        // The first step allocates the state.
        seconds += if step == 0 { 0.0 } else { start.elapsed().as_secs_f64() };
    }
    let state_bytes = optimizer.bytes().0;
    let with = MEMORY.current().0;
    drop(optimizer);
    (state_bytes, with - MEMORY.current().0, seconds * 1e3 / f64::from(STEPS))
}

fn main() {
    let sgd = SgdConfig { momentum: 0.9, ..SgdConfig::default() };
    let full = measure(AdamWConfig::default().into(), StateForm::Full).0 as f64;
    println!("{} parameters", count(&Stack::new(&Device::flex().autodiff())));
    println!("a handle of a tensor takes {} bytes", size_of::<Tensor<1>>());
    println!("| rule | form | bytes | counted | of AdamW in fp32 | ms a step |");
    for config in [AdamWConfig::default().into(), LionConfig::default().into(), sgd.into()] {
        for form in [StateForm::Full, StateForm::Eight, StateForm::Host] {
            let (state_bytes, counted, milliseconds) = measure(config, form);
            let share = state_bytes as f64 / full;
            let name = format!("{config:?}");
            let name = name.split('(').next().unwrap_or_default();
            println!("| {name} | {form:?} | {state_bytes} | {counted} | {share:.4} | {milliseconds:.1} |");
            assert!(counted.abs_diff(state_bytes) <= HANDLES_MAX, "{counted} bytes are not {state_bytes}");
            assert!(form != StateForm::Eight || share <= SHARE_MAX, "{name} in 8 bits takes {share}");
        }
    }
}
