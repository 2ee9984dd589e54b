//! Copies of parameters in 16 bits, which take the place of a cast of each.
//!
//! A layer casts its weights with [`Pass::to_compute_dtype`](crate::Pass::to_compute_dtype). In a model of hundreds of
//! parameters these casts, and those of their gradients, are hundreds of kernels. Here one cast of a flat tensor is all: a
//! parameter that has a copy here gives the copy instead, which is a leaf of the graph, and its gradient stays in 16 bits
//! until it is summed.
//!
//! The copy belongs to the node of the parameter in the graph of autodiff. So a layer says nothing of it, a parameter that is
//! used in fp32 as well gets both gradients, and no other graph finds the copy. Where a parameter is used several times in 16
//! bits, its gradients are added in 16 bits, as PyTorch's autocast adds them.

use std::any::Any;
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{PoisonError, RwLock};

use burn::module::{Module, Param};
use burn::tensor::{DType, Tensor};
use burn_autodiff::NodeId;
use burn_backend::tensor::FloatTensor;

use super::FlatLayout;
use crate::bridge::{PrimitiveBackend, on_backend};
use crate::kernels::flat::FlatBackend;
use crate::parameters::{NamedVisitor, walk};

/// Copies by the node of their parameter: tensors of as many axes as the parameter has.
static COPIES: RwLock<Option<HashMap<NodeId, Box<dyn Any + Send + Sync>>>> = RwLock::new(None);
/// Number of copies: where there are none, a cast does not ask for the node of its tensor.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Copies of parameters in 16 bits, for as long as this value exists. [`FlatLayout::lower`] makes them.
#[derive(Debug, Default)]
#[must_use = "the copies are in use for as long as this value exists"]
pub struct LowParameters(Vec<NodeId>);

impl LowParameters {
    /// Makes `copy` the copy of the parameter with the node `parameter`.
    pub(crate) fn add<const D: usize>(&mut self, parameter: NodeId, copy: Tensor<D>) {
        let mut copies = COPIES.write().unwrap_or_else(PoisonError::into_inner);
        if copies.get_or_insert_default().insert(parameter, Box::new(copy)).is_none() {
            COUNT.fetch_add(1, Ordering::Relaxed);
            self.0.push(parameter);
        }
    }
}

impl Drop for LowParameters {
    fn drop(&mut self) {
        let mut copies = COPIES.write().unwrap_or_else(PoisonError::into_inner);
        let own = self.0.iter().filter_map(|node| copies.as_mut()?.remove(node));
        let own: Vec<_> = own.collect();
        COUNT.fetch_sub(own.len(), Ordering::Relaxed);
        // Tensors are freed without the lock.
        drop(copies);
        drop(own);
    }
}

/// Returns the copy of the parameter with the node `parameter`, if it has one.
pub(crate) fn copy_at<const D: usize>(parameter: NodeId) -> Option<Tensor<D>> {
    if COUNT.load(Ordering::Relaxed) == 0 {
        return None;
    }
    let copies = COPIES.read().unwrap_or_else(PoisonError::into_inner);
    copies.as_ref()?.get(&parameter)?.downcast_ref::<Tensor<D>>().cloned()
}

/// Returns the copy of `x` of the type `dtype`, if `x` is a parameter that has one.
pub(crate) fn copy_of<const D: usize>(x: &Tensor<D>, dtype: DType) -> Option<Tensor<D>> {
    if COUNT.load(Ordering::Relaxed) == 0 || !x.is_autodiff() {
        return None;
    }
    let device = x.device();
    let node = on_backend!(&device, B => B::tracked(x.clone()).id());
    copy_at(node).filter(|copy: &Tensor<D>| copy.dtype() == dtype)
}

impl FlatLayout {
    /// Gives each trained parameter of `module` its part of `values` as a copy in 16 bits. `values` are the parameters in one
    /// tensor for each part of the layout, cast to the precision of a [`Pass`](crate::Pass).
    ///
    /// For as long as the result exists, [`Pass::to_compute_dtype`](crate::Pass::to_compute_dtype) returns these copies instead
    /// of casting the parameters, and [`backward`](crate::backward) returns gradients in 16 bits of the parameters that were
    /// used so.
    ///
    /// # Panics
    /// If `values` does not have the lengths of the parts.
    pub fn lower<M: Module>(&self, module: &M, values: Vec<Tensor<1>>) -> LowParameters {
        struct Lower<'a, B: FlatBackend> {
            layout: &'a FlatLayout,
            views: Vec<Vec<Option<FloatTensor<B>>>>,
            low: LowParameters,
        }
        impl<B: FlatBackend> NamedVisitor for Lower<'_, B> {
            fn parameter<const D: usize>(&mut self, name: &str, param: &Param<Tensor<D>>) {
                let value = param.val();
                let Some(&(part, index)) = self.layout.by_name.get(name) else { return };
                if let (true, Some(view)) = (value.is_require_grad(), self.views[part][index].take()) {
                    let copy = B::constant::<D>(view).require_grad();
                    self.low.add(B::tracked(value).id(), copy);
                }
            }
        }
        self.check_lengths(&values);
        let Some(device) = values.first().map(Tensor::device) else { return LowParameters::default() };
        on_backend!(&device, B => {
            let views = self.views::<B>(values);
            let mut lower = Lower::<B> { layout: self, views, low: LowParameters::default() };
            walk(module, &mut lower);
            lower.low
        })
    }
}

#[cfg(test)]
mod tests {
    use burn::nn::{Linear, LinearConfig};
    use burn::tensor::{Device, TensorData};
    use plimsoll_core::{Choice, Key, Precision};

    use super::super::MOST_VALUES;
    use super::*;
    use crate::{Noise, Pass, backward, initialize, remat, remat_dense, without_autodiff};

    #[derive(Module, Debug)]
    struct Net {
        first: Linear,
        last: Linear,
        /// Used in fp32 and in 16 bits.
        both: Linear,
    }

    fn net(device: &Device) -> Net {
        let layer =
            |index, input, output| initialize(LinearConfig::new(input, output).init(device), Key::new(7).at(index));
        Net { first: layer(0, 6, 8), last: layer(1, 8, 4), both: layer(2, 4, 4) }
    }

    fn loss(net: &Net, pass: &Pass, remats: bool) -> Tensor<1> {
        let values = (0..18).map(|i| Key::new(9).at(i).unit() as f32 - 0.5).collect::<Vec<_>>();
        let x = Tensor::<2>::from_data(TensorData::new(values, [3, 6]), &net.first.weight.device());
        let own = pass.clone();
        let block = move |net: &Net, x: Tensor<2>| own.at_least_fp32(own.dense(&net.first, x)).tanh();
        let x = if remats { remat(net, x, block) } else { block(net, x) };
        let own = pass.clone();
        let square = move |_: &Net, x: Tensor<2>| x.square();
        let x = match remats {
            true => remat_dense(net, x, square, |net| &net.last, pass),
            false => own.dense(&net.last, square(net, x)),
        };
        let x = pass.at_least_fp32(x);
        let y = pass.at_least_fp32(pass.dense(&net.both, x.clone())) + net.both.forward(x);
        y.square().sum()
    }

    fn gradients(net: &Net, pass: &Pass, remats: bool) -> Vec<(DType, Vec<f32>)> {
        let mut found = backward(loss(net, pass, remats), net);
        let mut take = |layer: &Linear| {
            let weight = found.remove::<2>(layer.weight.id).map(|x| (x.dtype(), x.into_data()));
            let bias = layer.bias.as_ref().and_then(|bias| found.remove::<1>(bias.id));
            [weight, bias.map(|x| (x.dtype(), x.into_data()))]
        };
        let all = [take(&net.first), take(&net.last), take(&net.both)];
        let values = |data: TensorData| data.convert::<f32>().try_to_vec::<f32>().expect("numbers");
        all.into_iter().flatten().flatten().map(|(dtype, data)| (dtype, values(data))).collect()
    }

    /// Checks on `device` that the loss and the gradients are those with a cast of each parameter.
    fn check(device: &Device, (precision, dtype): (Precision, DType)) {
        let net = net(&device.clone().autodiff());
        let pass = Pass::new(Choice { precision, ..Choice::default() }, Noise::off());
        let layout = FlatLayout::new(&net, 0, MOST_VALUES);
        for remats in [false, true] {
            let value = |x: Tensor<1>| without_autodiff(x).into_data();
            let (wanted, sum) = (gradients(&net, &pass, remats), value(loss(&net, &pass, remats)));
            assert!(wanted.iter().all(|(dtype, _)| *dtype == DType::F32));
            let values = layout.gather_parameters(&net).into_iter().map(|values| pass.to_compute_dtype(values));
            let low = layout.lower(&net, values.collect());
            let found = gradients(&net, &pass, remats);
            let types = [dtype, dtype, dtype, dtype, DType::F32, DType::F32];
            assert!(found.iter().map(|(dtype, _)| *dtype).eq(types), "{remats}");
            assert_eq!(value(loss(&net, &pass, remats)), sum, "{remats}");
            for ((_, found), (_, wanted)) in found.iter().zip(&wanted) {
                assert_eq!(found, wanted, "{remats}");
            }
            drop(low);
            assert_eq!(gradients(&net, &pass, remats), wanted, "without copies all is as before");
        }
    }

    #[test]
    fn copies_in_16_bits_give_the_values_of_casts() {
        check(&Device::flex(), (Precision::Bf16, DType::BF16));
        check(&Device::flex(), (Precision::Fp16, DType::F16));
    }

    #[test]
    fn copies_are_of_one_type_and_of_one_graph() {
        let device = Device::flex().autodiff();
        let net = net(&device);
        let layout = FlatLayout::new(&net, 0, MOST_VALUES);
        let low = |dtype| {
            let values = layout.gather_parameters(&net).into_iter().map(|values| values.cast(dtype));
            layout.lower(&net, values.collect())
        };
        let _low = low(burn::tensor::FloatDType::BF16);
        let weight = net.first.weight.val();
        assert!(copy_of(&weight, DType::BF16).is_some());
        assert!(copy_of(&weight, DType::F16).is_none());
        assert!(copy_of(&(weight.clone() * 1.0), DType::BF16).is_none());
        assert!(copy_of(&without_autodiff(weight), DType::BF16).is_none());
    }

    /// Needs a device with Vulkan, Metal or WebGPU; a software device will do.
    #[cfg(feature = "wgpu")]
    #[test]
    fn copies_in_16_bits_give_the_values_of_casts_on_a_gpu() {
        check(&Device::wgpu(burn::tensor::DeviceKind::DefaultDevice), (Precision::Fp16, DType::F16));
    }
}
