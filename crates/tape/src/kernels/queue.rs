//! Operations in the queue of Burn's GPU backends that are queued by hand: Burn's macro for operations of one's own takes no
//! lists of tensors, and none that may be missing.

use burn::backend::fusion::FusionTensor;
use burn::backend::fusion::custom::{CustomOpIr, HandleContainer, OperationFn, OperationIr, StreamId, TensorIr};
use burn::tensor::{DType, Shape};
use burn_cubecl::CubeBackend;
use burn_cubecl::fusion::{CubeFusionHandle, FusionCubeRuntime};
use burn_cubecl::tensor::CubeTensor;

/// A tensor of the queue, of numbers of any type.
pub(crate) type Queued = FusionTensor<FusionCubeRuntime>;

/// Queues `run` as one operation of Burn's queue.
pub(crate) fn queue(
    name: &'static str,
    inputs: Vec<Queued>,
    outputs: Vec<(Shape, DType)>,
    run: impl Fn(Vec<CubeTensor>) -> Vec<CubeTensor> + Send + Sync + 'static,
) -> Vec<Queued> {
    let client = inputs[0].client.clone();
    let inputs: Vec<TensorIr> = inputs.into_iter().map(Queued::into_ir).collect();
    let new = |(shape, dtype)| TensorIr::uninit(client.create_empty_handle(), shape, dtype);
    let outputs: Vec<TensorIr> = outputs.into_iter().map(new).collect();
    let ir = CustomOpIr::new(name, &inputs, &outputs);
    let operation = OperationFn(move |handles: &mut HandleContainer<CubeFusionHandle>| {
        let inputs = inputs.iter().map(|ir| handles.get_float_tensor::<CubeBackend>(ir)).collect();
        for (ir, tensor) in outputs.iter().zip(run(inputs)) {
            handles.register_float_tensor::<CubeBackend>(&ir.id, tensor);
        }
        Ok(())
    });
    client.register(StreamId::current(), OperationIr::Custom(ir), operation)
}
