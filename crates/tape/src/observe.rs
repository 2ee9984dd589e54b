//! Observation of a pass: the output of each layer and its gradient, in the order in which they are computed.

use std::collections::HashMap;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use burn::module::{Module, Param, ParamId};
use burn::tensor::{FloatDType, Tensor};
use burn_autodiff::checkpoint::base::Checkpointer;
use burn_autodiff::checkpoint::strategy::NoCheckpointing;
use burn_autodiff::grads::Gradients;
use burn_autodiff::ops::{Backward, Ops, OpsKind};

use crate::bridge::{PrimitiveBackend, on_backend, without_autodiff};
use crate::{NamedVisitor, walk};

/// Receives the values that the layers of a pass compute.
///
/// A profiler measures the time between two visits, and a debugger reads the values. The methods are called on the
/// thread that computes; several micro-batches may be computed on several threads at once.
pub trait PassObserver: Send + Sync {
    /// Called before the forward pass of a micro-batch.
    fn begin(&self) {}

    /// Called when a layer has computed its output, and in the backward pass when the gradient of that output is known.
    /// A GPU may still be computing the values.
    fn visit(&self, visit: &Visit<'_>);

    /// Called after the backward pass of a micro-batch.
    fn end(&self) {}
}

/// Direction of a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Direction {
    /// From the input to the loss.
    Forward,
    /// From the loss to the gradients.
    Backward,
}

impl fmt::Display for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Forward => "forward",
            Self::Backward => "backward",
        })
    }
}

/// Output of a layer, or the gradient of the output, at the time when it is computed.
pub struct Visit<'a> {
    /// Weight of the layer; `None` for the loss. [`layer_names`] gives it a name.
    pub layer: Option<ParamId>,
    /// Direction of the pass: forward for an output, backward for its gradient.
    pub direction: Direction,
    /// Length of each axis of the values.
    pub shape: &'a [usize],
    values: &'a dyn Values,
}

impl Visit<'_> {
    /// Waits until the device has computed the values. On a GPU this is what makes observation slow.
    pub fn wait(&self) {
        self.values.wait();
    }

    /// Reads the values, and returns whether none of them is infinite or NaN. A device that cannot be read has no finite
    /// values.
    pub fn is_finite(&self) -> bool {
        self.values.is_finite()
    }
}

impl fmt::Debug for Visit<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { layer, direction, shape, .. } = self;
        f.debug_struct("Visit").field("layer", layer).field("direction", direction).field("shape", shape).finish()
    }
}

/// Values of a visit, for tensors of every rank.
trait Values {
    fn wait(&self);
    fn is_finite(&self) -> bool;
}

impl<const D: usize> Values for Tensor<D> {
    fn wait(&self) {
        // A device that fails here fails again at the next read, which reports it.
        let _ = self.device().sync();
    }

    fn is_finite(&self) -> bool {
        // Zero times infinity or NaN is NaN, and a sum with NaN is NaN. In 16 bits the sum could overflow.
        let zeros = self.clone().cast(FloatDType::F32) * 0.0;
        zeros.sum().try_into_scalar::<f32>().is_ok_and(|sum| sum == 0.0)
    }
}

/// Returns the name of each layer of `module` by the id of its weight: the path of fields of the parameter, without its
/// last part if that is `weight` or `gamma`.
///
/// ```
/// use burn::nn::LinearConfig;
/// use burn::tensor::Device;
/// use plimsoll_tape::observe::layer_names;
///
/// let layers = vec![LinearConfig::new(2, 2).init(&Device::flex()), LinearConfig::new(2, 2).init(&Device::flex())];
/// assert_eq!(layer_names(&layers)[&layers[1].weight.id], "1");
/// ```
pub fn layer_names<M: Module>(module: &M) -> HashMap<ParamId, String> {
    struct Names(HashMap<ParamId, String>);
    impl NamedVisitor for Names {
        fn parameter<const D: usize>(&mut self, name: &str, param: &Param<Tensor<D>>) {
            let layer = [".weight", ".gamma"].iter().find_map(|end| name.strip_suffix(end));
            self.0.insert(param.id, layer.unwrap_or(name).to_string());
        }
    }
    let mut names = Names(HashMap::new());
    walk(module, &mut names);
    names.0
}

/// An observer that is shared by all passes of a run.
#[derive(Clone)]
pub(crate) struct Observed(pub(crate) Arc<dyn PassObserver>);

impl fmt::Debug for Observed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Observed")
    }
}

/// Visits `x`, the output of `layer`, and in the backward pass the gradient of `x`. The result is `x`.
pub(crate) fn observed<const D: usize>(observer: &Observed, layer: Option<ParamId>, x: Tensor<D>) -> Tensor<D> {
    let visited = without_autodiff(x.clone());
    let shape = x.dims();
    observer.0.visit(&Visit { layer, direction: Direction::Forward, shape: &shape, values: &visited });
    drop(visited);
    let device = x.device();
    if !device.is_autodiff() {
        return x;
    }
    on_backend!(&device, B => observed_on::<B, D>(Visited { observer: observer.clone(), layer }, x))
}

fn observed_on<B: PrimitiveBackend, const D: usize>(visited: Visited, x: Tensor<D>) -> Tensor<D> {
    let input = B::tracked(x.clone());
    let value = B::plain(x);
    let step = VisitStep::<B, D>(PhantomData).prepare::<NoCheckpointing>([input.node()]).compute_bound().stateful();
    B::from_tracked(match step {
        OpsKind::Tracked(step) => step.finish(visited, value),
        OpsKind::UnTracked(step) => step.finish(value),
    })
}

/// Place of an operation that changes nothing, and who is called there.
#[derive(Clone, Debug)]
struct Visited {
    observer: Observed,
    layer: Option<ParamId>,
}

#[derive(Debug)]
struct VisitStep<B, const D: usize>(PhantomData<B>);

impl<B: PrimitiveBackend, const D: usize> Backward<B, 1> for VisitStep<B, D> {
    type State = Visited;

    fn backward(self, ops: Ops<Visited, 1>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let gradient: Tensor<D> = B::from_plain(gradients.consume::<B>(&ops.node));
        let Visited { observer, layer } = ops.state;
        let shape = gradient.dims();
        observer.0.visit(&Visit { layer, direction: Direction::Backward, shape: &shape, values: &gradient });
        if let Some(parent) = &ops.parents[0] {
            gradients.register::<B>(parent.id, B::plain(gradient));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use burn::nn::{Linear, LinearConfig};
    use burn::tensor::Device;
    use plimsoll_core::{Choice, Key};

    use super::*;
    use crate::{Noise, Pass, backward, initialize, remat};

    type Seen = (Option<String>, Direction, Vec<usize>, bool);

    /// Keeps what it is called with.
    struct Recorder {
        names: HashMap<ParamId, String>,
        seen: Mutex<Vec<Seen>>,
    }

    impl PassObserver for Recorder {
        fn visit(&self, visit: &Visit<'_>) {
            let name = visit.layer.map(|id| self.names[&id].clone());
            let seen = (name, visit.direction, visit.shape.to_vec(), visit.is_finite());
            self.seen.lock().unwrap().push(seen);
        }
    }

    fn layers(device: &Device) -> Vec<Linear> {
        let layers = (0..2).map(|_| LinearConfig::new(3, 3).init(device)).collect::<Vec<_>>();
        initialize(layers, Key::new(1))
    }

    fn observed_pass(layers: &Vec<Linear>) -> (Arc<Recorder>, Pass) {
        let recorder = Arc::new(Recorder { names: layer_names(layers), seen: Mutex::default() });
        let pass = Pass::new(Choice::default(), Noise::off()).with_observer(Some(recorder.clone()));
        (recorder, pass)
    }

    #[test]
    fn layers_are_visited_forward_and_backward() {
        let layers = layers(&Device::flex().autodiff());
        let (recorder, pass) = observed_pass(&layers);
        let x = Tensor::<2>::ones([4, 3], &Device::flex().autodiff());
        let y = layers.iter().fold(x, |x, layer| pass.dense(layer, x));
        let loss = pass.observe_loss(y.square().sum());
        assert_eq!(backward(loss, &layers).len(), 4);
        let at = |name: Option<&str>, direction, shape: &[usize]| {
            (name.map(str::to_string), direction, shape.to_vec(), true)
        };
        use Direction::{Backward, Forward};
        let expected = [
            at(Some("0"), Forward, &[4, 3]),
            at(Some("1"), Forward, &[4, 3]),
            at(None, Forward, &[1]),
            at(None, Backward, &[1]),
            at(Some("1"), Backward, &[4, 3]),
            at(Some("0"), Backward, &[4, 3]),
        ];
        assert_eq!(*recorder.seen.lock().unwrap(), expected);
    }

    #[test]
    fn observation_changes_no_bit() {
        let device = Device::flex().autodiff();
        let gradients = |is_observed: bool, is_recomputed: bool| {
            let layers = layers(&device);
            let (_, observed) = observed_pass(&layers);
            let pass = if is_observed { observed } else { Pass::plain() };
            let x = Tensor::<2>::ones([4, 3], &device);
            let block = move |layers: &Vec<Linear>, x| layers.iter().fold(x, |x, layer| pass.dense(layer, x));
            let y: Tensor<2> = if is_recomputed { remat(&layers, x, block) } else { block(&layers, x) };
            let gradients = backward(y.square().sum(), &layers);
            layers.iter().map(|layer| gradients.get::<2>(layer.weight.id).unwrap().into_data()).collect::<Vec<_>>()
        };
        let plain = gradients(false, false);
        for (is_observed, is_recomputed) in [(true, false), (false, true), (true, true)] {
            assert_eq!(gradients(is_observed, is_recomputed), plain);
        }
    }

    #[test]
    fn values_that_are_not_finite_are_found() {
        for (value, is_finite) in [(1e38, true), (f32::INFINITY, false), (f32::NEG_INFINITY, false), (f32::NAN, false)]
        {
            let x = Tensor::<2>::from_floats([[value, 3e38], [0.0, -3e38]], &Device::flex());
            assert_eq!(Values::is_finite(&x), is_finite, "{value}");
        }
    }
}
