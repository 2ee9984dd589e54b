//! Rematerialisation: a block keeps its input alone and computes its inside a second time in the backward pass.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use burn::module::{Module, ModuleMapper, Param};
use burn::tensor::Tensor;
use burn_autodiff::NodeId;
use burn_autodiff::checkpoint::base::Checkpointer;
use burn_autodiff::checkpoint::strategy::NoCheckpointing;
use burn_autodiff::grads::Gradients;
use burn_autodiff::ops::{Backward, Ops, OpsKind};
use burn_backend::tensor::FloatTensor;

use crate::bridge::{Surface, on_backend};

/// Computes `block(module, x)`, keeping `x` and nothing that is made inside; the backward pass computes it again.
///
/// Result and gradients are those of `block(module, x)` itself, to the last bit on the CPU: both passes run the same
/// kernels, and what is random in the block must come from a [`Noise`](crate::Noise), which draws the same twice.
/// Whatever else the block reads (lengths, masks, noise) it captures; tensors captured so are constants to it.
/// Parameters may be shared with other blocks, and blocks may be nested.
///
/// ```
/// use burn::nn::LinearConfig;
/// use burn::tensor::{Device, Tensor};
/// use plimsoll_core::Key;
/// use plimsoll_tape::{backward, initialise, remat, silu};
///
/// let device = Device::flex().autodiff();
/// let layer = initialise(LinearConfig::new(3, 3).init(&device), Key::new(1));
/// let x = Tensor::<2>::ones([4, 3], &device);
/// let y = remat(&layer, x, |layer, x| silu(layer.forward(x)));
/// assert_eq!(backward(y.sum(), &layer).len(), 2);
/// ```
pub fn remat<M, F, const D: usize, const E: usize>(module: &M, x: Tensor<D>, block: F) -> Tensor<E>
where
    M: Module + Sync + 'static,
    F: Fn(&M, Tensor<D>) -> Tensor<E> + Send + Sync + 'static,
{
    let device = x.device();
    if !device.is_autodiff() {
        return block(module, x);
    }
    on_backend!(&device, B => remat_on::<B, M, F, D, E>(module, x, block))
}

fn remat_on<B: Surface, M, F, const D: usize, const E: usize>(module: &M, x: Tensor<D>, block: F) -> Tensor<E>
where
    M: Module + Sync + 'static,
    F: Fn(&M, Tensor<D>) -> Tensor<E> + Send + Sync + 'static,
{
    // The step hangs on the input's node: an input without one, such as a batch, becomes a leaf that nobody asks.
    let x = if x.is_tracked() { x } else { x.require_grad() };
    let input = B::tracked(x);
    let kept = input.clone().into_primitive();
    // On the autodiff device, where dropout and batch norm act, but with nothing that requires a gradient.
    let quiet = module.clone().map(&mut Leaves::<B> { record: false, found: Vec::new() });
    let y = B::plain(block(&quiet, B::lifted::<D>(kept.clone())));
    let step = Again::<B>(PhantomData).prepare::<NoCheckpointing>([input.node()]).compute_bound().stateful();
    B::from_tracked(match step {
        OpsKind::Tracked(step) => {
            let module = module.clone();
            let run = move |above| second_pass::<B, M, F, D, E>(&module, kept.clone(), &block, above);
            step.finish(State(Arc::new(run)), y)
        }
        OpsKind::UnTracked(step) => step.finish(y),
    })
}

/// Runs `block` with a tape of its own and takes that one back.
fn second_pass<B: Surface, M: Module, F, const D: usize, const E: usize>(
    module: &M,
    kept: FloatTensor<B>,
    block: &F,
    above: FloatTensor<B>,
) -> Found<B>
where
    F: Fn(&M, Tensor<D>) -> Tensor<E>,
{
    let mut leaves = Leaves::<B> { record: true, found: Vec::new() };
    let module = module.clone().map(&mut leaves);
    let x = B::lifted::<D>(kept).require_grad();
    let y = block(&module, x.clone());
    let mut tape = B::tracked((y * B::lifted::<E>(above)).sum()).backward();
    let input = B::tracked(x).grad_remove(&mut tape);
    let parameters = leaves.found.into_iter().filter_map(|(node, take)| Some((node, take(&mut tape)?))).collect();
    Found { input, parameters }
}

/// The gradients that the second run of a block gives.
struct Found<B: Surface> {
    input: Option<FloatTensor<B>>,
    parameters: Vec<(NodeId, FloatTensor<B>)>,
}

/// Runs the block again, given the gradient from above.
struct State<B: Surface>(Arc<dyn Fn(FloatTensor<B>) -> Found<B> + Send + Sync>);

impl<B: Surface> Clone for State<B> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<B: Surface> fmt::Debug for State<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a block to run again")
    }
}

#[derive(Debug)]
struct Again<B>(PhantomData<B>);

impl<B: Surface> Backward<B, 1> for Again<B> {
    type State = State<B>;

    fn backward(self, ops: Ops<State<B>, 1>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let above = gradients.consume::<B>(&ops.node);
        let Found { input, parameters } = (ops.state.0)(above);
        if let (Some(parent), Some(input)) = (&ops.parents[0], input) {
            gradients.register::<B>(parent.id, input);
        }
        for (node, gradient) in parameters {
            gradients.register::<B>(node, gradient);
        }
    }
}

/// Takes the gradient of a leaf out of a tape.
type Take<B> = Box<dyn FnOnce(&mut Gradients) -> Option<FloatTensor<B>>>;

/// Gives a module's parameters new leaves: recorded ones for the second pass, silent ones for the first.
struct Leaves<B: Surface> {
    record: bool,
    /// For each recorded leaf the node of the parameter that it stands for.
    found: Vec<(NodeId, Take<B>)>,
}

impl<B: Surface> ModuleMapper for Leaves<B> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let (id, value, mapper) = param.consume();
        if !value.is_autodiff() {
            return Param::from_mapped_value(id, value, mapper);
        }
        let required = value.is_require_grad() || value.is_tracked();
        let original = B::tracked(value);
        let leaf = B::lifted::<D>(original.clone().into_primitive()).set_require_grad(self.record && required);
        if self.record && required {
            let again = B::tracked(leaf.clone());
            self.found.push((original.node().id(), Box::new(move |tape| again.grad_remove(tape))));
        }
        Param::from_mapped_value(id, leaf, mapper)
    }
}

#[cfg(test)]
mod tests {
    use burn::nn::{Linear, LinearConfig};
    use burn::optim::GradientsParams;
    use burn::tensor::{Device, TensorData};
    use plimsoll_core::{Key, SampleId};

    use super::*;
    use crate::{Noise, backward, initialise, silu};

    #[derive(Module, Debug)]
    struct Stack {
        first: Linear,
        second: Linear,
    }

    impl Stack {
        fn block(layer: &Linear, x: Tensor<2>, noise: &Noise) -> Tensor<2> {
            x.clone() + noise.dropout(silu(layer.forward(x)), 0.3)
        }

        /// The second layer runs twice: its parameters are shared.
        fn forward(&self, x: Tensor<2>, again: bool) -> Tensor<2> {
            let ids: Vec<SampleId> = (0..4).map(SampleId).collect();
            let layers = [&self.first, &self.second, &self.second];
            layers.into_iter().enumerate().fold(x, |x, (index, layer)| {
                let noise = Noise::new(Key::new(9).at(index as u64), &ids);
                match again {
                    true => remat(layer, x, move |layer, x| Self::block(layer, x, &noise)),
                    false => Self::block(layer, x, &noise),
                }
            })
        }
    }

    fn stack(device: &Device) -> Stack {
        let layer = || LinearConfig::new(6, 6).init(device);
        initialise(Stack { first: layer(), second: layer() }, Key::new(1))
    }

    fn input(device: &Device) -> Tensor<2> {
        let values: Vec<f32> = (0..24).map(|i| Key::new(2).at(i).unit() as f32 - 0.5).collect();
        Tensor::from_data(TensorData::new(values, [4, 6]), device)
    }

    fn values(gradients: &GradientsParams, stack: &Stack) -> Vec<Vec<f32>> {
        let matrix = |layer: &Linear| gradients.get::<2>(layer.weight.id).unwrap().into_data().try_into_vec().unwrap();
        let bias = |layer: &Linear| {
            let id = layer.bias.as_ref().unwrap().id;
            gradients.get::<1>(id).unwrap().into_data().try_into_vec().unwrap()
        };
        [&stack.first, &stack.second].into_iter().flat_map(|layer| [matrix(layer), bias(layer)]).collect()
    }

    #[test]
    fn gradients_are_the_same_to_the_last_bit_with_dropout_and_shared_parameters() {
        let device = Device::flex().autodiff();
        let stack = stack(&device);
        let gradients = |again| {
            let x = input(&device).require_grad();
            let y = stack.forward(x.clone(), again);
            let loss = (y.clone() * y).sum();
            values(&backward(loss, &stack), &stack)
        };
        assert_eq!(gradients(true), gradients(false));
    }

    #[test]
    fn blocks_may_be_nested_and_the_input_gets_its_gradient() {
        let device = Device::flex().autodiff();
        let stack = stack(&device);
        let gradient = |again: bool| {
            let x = input(&device).require_grad();
            let y = match again {
                true => remat(&stack, x.clone(), |stack, x| stack.forward(x, true)),
                false => stack.forward(x.clone(), false),
            };
            let grads = y.square().sum().backward();
            x.grad(&grads).unwrap().into_data()
        };
        assert_eq!(gradient(true), gradient(false));
    }

    #[test]
    fn the_recording_device_sees_both_passes() {
        let operations = |again| {
            let device = Device::capture();
            let captured = device.capture_scope(|scope| {
                let device = device.clone().autodiff();
                let stack = stack(&device);
                let y = stack.forward(input(&device), again);
                assert_eq!(backward(y.clone().mul(y).sum(), &stack).len(), 4);
                scope.complete([], [])
            });
            captured.unwrap().graph.operations.len()
        };
        assert!(operations(true) > operations(false));
    }

    #[test]
    fn without_a_tape_the_block_just_runs() {
        let device = Device::flex();
        let stack = stack(&device);
        let x = input(&device);
        assert_eq!(stack.forward(x.clone(), true).into_data(), stack.forward(x, false).into_data());
    }
}
