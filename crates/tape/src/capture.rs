//! Recordings: what a device would be asked to do, without a device that does it.
//!
//! A recording device computes nothing and keeps no values, so that a step of any size is written down in milliseconds.
//! It plays either a card, on which everything is composed of Burn's own operations, or the CPU, on which this crate has
//! operations of its own: those are written down with the memory that they take, as [`CustomOp`]s.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, PoisonError};

use burn::module::{Module, ModuleMapper, Param};
use burn::tensor::{Bool, BoolStore, DType, Device, DeviceConfig, Int, Shape, Tensor};
use burn_backend::TensorMetadata;
use burn_backend::tensor::FloatTensor;
use burn_dispatch::backends::Capture;
use burn_ir::{CustomOpIr, OperationIr, ScalarIr, TensorIr};
use burn_router::RouterClient;

use crate::bridge::{Family, PrimitiveBackend, family, runs_host_ops, simulate_cpu};
use crate::host::{HostBackend, InPlaceArgs};

/// What a recording device stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SimulatedDevice {
    /// The CPU, with the operations that are computed there in one pass.
    Cpu,
    /// A device with memory of its own.
    Gpu,
}

/// Why there is no recording.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum CaptureError {
    /// What was to be recorded asked for values, which a recording does not have, or failed on its own.
    #[error("the model cannot be traced: {reason}")]
    Failed {
        /// What it said.
        reason: String,
    },
}

/// Who writes down what is done on its device.
#[derive(Debug)]
pub struct CaptureSession {
    device: Device,
    anchor: Tensor<1>,
}

impl CaptureSession {
    /// The device on which everything is recorded, with a tape.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Writes `name` between what has been done and what will be.
    pub fn mark(&self, name: &str) {
        let anchor = Capture::plain(self.anchor.clone());
        anchor.client.register_op(custom("mark", name, Vec::new(), Vec::new(), 0));
    }

    /// The number by which `tensor` is known in the recording.
    pub fn id<const D: usize>(&self, tensor: &Tensor<D>) -> burn_ir::TensorId {
        Capture::plain(tensor.clone()).id()
    }

    /// A number between those of the tensors so far and those of the tensors to come: two of them enclose what was made
    /// between.
    pub fn next_id(&self) -> burn_ir::TensorId {
        Capture::plain(self.anchor.clone()).client.create_empty_handle()
    }

    /// `module` outside the tape, as it is validated and used.
    ///
    /// Does what Burn's `valid` does, which refuses a recording device.
    pub fn without_autodiff<M: Module>(&self, module: M) -> M {
        struct Off;
        impl ModuleMapper for Off {
            fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
                let (id, value, mapper) = param.consume();
                Param::from_mapped_value(id, crate::without_autodiff(value), mapper)
            }
        }
        module.map(&mut Off)
    }
}

/// What is done by `work`, on a device that plays `played` and computes nothing.
///
/// ```
/// use burn::nn::LinearConfig;
/// use burn::tensor::Tensor;
/// use plimsoll_tape::{CustomOp, SimulatedDevice, backward, capture};
///
/// // A layer of a million by a million, forward and back, on paper.
/// let operations = capture(SimulatedDevice::Gpu, |session| {
///     let layer = LinearConfig::new(1 << 20, 1 << 20).init(session.device());
///     let loss = layer.forward(Tensor::<2>::zeros([4, 1 << 20], session.device())).sum();
///     session.mark("backward");
///     backward(loss, &layer);
/// })?;
/// assert!(operations.iter().any(|operation| matches!(CustomOp::parse(operation), Some(CustomOp::Mark("backward")))));
/// # Ok::<(), plimsoll_tape::CaptureError>(())
/// ```
pub fn capture(
    simulated: SimulatedDevice,
    work: impl FnOnce(&CaptureSession),
) -> Result<Vec<OperationIr>, CaptureError> {
    let device = acquire_device(simulated);
    let recording = || {
        device.capture_scope(|scope| {
            set_dtypes(simulated, &device);
            let tape = device.clone().autodiff();
            let session = CaptureSession { anchor: Tensor::zeros([1], &tape), device: tape };
            work(&session);
            scope.complete([], [])
        })
    };
    IS_CAPTURING.set(true);
    let captured = catch_unwind(AssertUnwindSafe(recording));
    IS_CAPTURING.set(false);
    release_device(simulated, device);
    match captured {
        Ok(Ok(captured)) => Ok(captured.graph.operations),
        Ok(Err(error)) => Err(CaptureError::Failed { reason: error.to_string() }),
        Err(panic) => Err(CaptureError::Failed { reason: panic_message(&*panic) }),
    }
}

/// Does `work` on a device that only records: what is built there takes no memory and no time, however large it is.
///
/// For sizes that are asked before anything is trained. What is returned must not hold tensors of that device.
///
/// ```
/// use burn::nn::LinearConfig;
/// use plimsoll_tape::{count, on_capture_device};
///
/// let parameters = on_capture_device(|device| count(&LinearConfig::new(1 << 20, 1 << 20).init(device)));
/// assert_eq!(parameters, (1 << 40) + (1 << 20));
/// ```
pub fn on_capture_device<R>(work: impl FnOnce(&Device) -> R) -> R {
    let device = Device::capture();
    let mut result = None;
    let captured = device.capture_scope(|scope| {
        result = Some(work(&device.clone().autodiff()));
        scope.complete([], [])
    });
    assert!(captured.is_ok(), "nothing is asked of what was recorded");
    result.expect("the work was done")
}

/// Whether `device` only records operations and computes nothing.
pub fn is_capture_device(device: &Device) -> bool {
    family(device) == Family::Capture
}

thread_local! {
    static IS_CAPTURING: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread is recording, so that a panic on it is an answer and no accident: a program may keep it from
/// being printed.
pub fn is_capturing() -> bool {
    IS_CAPTURING.get()
}

fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("it failed without a word").to_string()
}

/// Recording devices that nobody uses now. Burn has numbers for 65,536 of them in a process, and a planner asks often.
static IDLE_DEVICES: Mutex<Vec<(SimulatedDevice, Device)>> = Mutex::new(Vec::new());

fn acquire_device(simulated: SimulatedDevice) -> Device {
    let mut idle = IDLE_DEVICES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(place) = idle.iter().position(|(plays, _)| *plays == simulated) {
        return idle.swap_remove(place).1;
    }
    let device = Device::capture();
    if simulated == SimulatedDevice::Cpu {
        simulate_cpu(&device);
    }
    device
}

/// Gives `device` the whole numbers of the device that it plays; its own are wider. They stay once they are set.
fn set_dtypes(simulated: SimulatedDevice, device: &Device) {
    let store = if simulated == SimulatedDevice::Cpu { BoolStore::Native } else { BoolStore::U32 };
    let config = DeviceConfig::default().int_dtype(DType::I32).bool_dtype(DType::Bool(store));
    let _ = device.clone().configure(config);
}

fn release_device(simulated: SimulatedDevice, device: Device) {
    IDLE_DEVICES.lock().unwrap_or_else(PoisonError::into_inner).push((simulated, device));
}

/// What stands in a recording beside Burn's own operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CustomOp<'a> {
    /// What [`CaptureSession::mark`] wrote.
    Mark(&'a str),
    /// The output is the input with its values in one row of memory: a copy where they are not, and the input where
    /// they are.
    Contiguous,
    /// The outputs are new; the inputs, all in one row of memory, are read.
    Make(&'a str),
    /// The first output is the first input, changed: in place where nobody else holds it, in a copy where somebody
    /// does. A second output is new, and there before.
    Change {
        /// The operation.
        name: &'a str,
        /// Bytes that it uses meanwhile.
        scratch: u64,
    },
    /// The host takes so many bytes for a moment.
    Scratch {
        /// What for.
        name: &'a str,
        /// Bytes.
        bytes: u64,
    },
}

const PREFIX: &str = "plimsoll.";

impl<'a> CustomOp<'a> {
    /// What `operation` notes, if it is a note and none of Burn's operations.
    pub fn parse(operation: &'a OperationIr) -> Option<Self> {
        let OperationIr::Custom(custom) = operation else { return None };
        let (kind, name) = custom.id.strip_prefix(PREFIX)?.split_once('/')?;
        let bytes = custom.scalars.first().map_or(0, |scalar| match scalar {
            ScalarIr::UInt(bytes) => *bytes,
            _ => 0,
        });
        match kind {
            "mark" => Some(Self::Mark(name)),
            "contiguous" => Some(Self::Contiguous),
            "make" => Some(Self::Make(name)),
            "change" => Some(Self::Change { name, scratch: bytes }),
            "scratch" => Some(Self::Scratch { name, bytes }),
            _ => None,
        }
    }
}

/// Writes down that `bytes` of the host's memory are in use at this moment, for `name`, where `tensor` is on a recording
/// of the CPU. Anywhere else nothing happens.
///
/// For work on plain slices between tensors, such as a loss that is computed on the host.
pub fn record_scratch<const D: usize>(tensor: &Tensor<D>, name: &str, bytes: usize) {
    if family(&tensor.device()) == Family::Capture && runs_host_ops(&tensor.device()) {
        let tensor = Capture::plain(tensor.clone());
        tensor.client.register_op(custom("scratch", name, Vec::new(), Vec::new(), bytes));
    }
}

/// Whole numbers of `shape` that come from the host, where `device` only records: their memory counts, and their values
/// would cost time and memory that nobody reads.
pub(crate) fn placeholder_ints<const D: usize>(shape: [usize; D], device: &Device) -> Option<Tensor<D, Int>> {
    Some(Tensor::from_primitive::<Capture>(from_host(Shape::new(shape), DType::I32, device)?))
}

/// The same of truths.
pub(crate) fn placeholder_bools<const D: usize>(shape: [usize; D], device: &Device) -> Option<Tensor<D, Bool>> {
    let store = device.settings().bool_dtype;
    Some(Tensor::from_primitive::<Capture>(from_host(Shape::new(shape), store.into(), device)?))
}

fn from_host(shape: Shape, dtype: DType, device: &Device) -> Option<Recorded> {
    if family(device) != Family::Capture {
        return None;
    }
    let client = Capture::plain(Tensor::<1>::zeros([1], device)).client.clone();
    let output = TensorIr::uninit(client.create_empty_handle(), shape, dtype);
    Some(client.register(custom("make", "from the host", Vec::new(), vec![output], 0)).remove(0))
}

fn custom(kind: &str, name: &str, inputs: Vec<TensorIr>, outputs: Vec<TensorIr>, bytes: usize) -> OperationIr {
    let scalars = vec![ScalarIr::UInt(bytes as u64)];
    OperationIr::Custom(CustomOpIr { id: format!("{PREFIX}{kind}/{name}"), inputs, outputs, scalars })
}

type Recorded = FloatTensor<Capture>;

/// Registers an operation that reads `inputs` and makes tensors of `shapes`.
fn record_custom(kind: &str, name: &str, inputs: Vec<Recorded>, shapes: Vec<Shape>, scratch: usize) -> Vec<Recorded> {
    let client = inputs.first().map(|tensor| tensor.client.clone()).expect("an operation reads something");
    let fresh = |shape| TensorIr::uninit(client.create_empty_handle(), shape, DType::F32);
    let outputs: Vec<TensorIr> = shapes.into_iter().map(fresh).collect();
    let inputs = inputs.into_iter().map(Recorded::into_ir).collect();
    client.register(custom(kind, name, inputs, outputs, scratch))
}

impl HostBackend for Capture {
    fn contiguous(tensor: Recorded) -> Recorded {
        let shape = tensor.shape();
        record_custom("contiguous", "", vec![tensor], vec![shape], 0).remove(0)
    }

    fn compute(
        name: &'static str,
        inputs: &[&Recorded],
        shapes: Vec<Shape>,
        _: impl FnOnce(&[&[f32]]) -> Vec<Vec<f32>>,
    ) -> Vec<Recorded> {
        record_custom("make", name, inputs.iter().map(|&tensor| tensor.clone()).collect(), shapes, 0)
    }

    fn change_in_place(
        name: &'static str,
        tensor: Recorded,
        args: InPlaceArgs<'_, Self>,
        _: impl FnOnce(&mut [f32], &mut [f32], &[&[f32]]),
    ) -> (Recorded, Option<Recorded>) {
        let shapes = [Some(tensor.shape()), args.second_output].into_iter().flatten().collect();
        let others = args.inputs.iter().map(|&input| input.clone());
        let inputs = std::iter::once(tensor).chain(others).collect();
        let mut outputs = record_custom("change", name, inputs, shapes, args.scratch).into_iter();
        (outputs.next().expect("what is changed comes back"), outputs.next())
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::TensorData;

    use super::*;
    use crate::{backward, layer_norm, silu};
    use burn::nn::LinearConfig;

    fn step(session: &CaptureSession) {
        let device = session.device();
        let layer = LinearConfig::new(4, 4).init(device);
        let (scale, shift) = (Tensor::ones([4], device), Tensor::zeros([4], device));
        let x = layer_norm(layer.forward(Tensor::<2>::zeros([3, 4], device)), scale, shift, 1e-5);
        let loss = silu(x).sum();
        record_scratch(&loss, "table", 77);
        session.mark("backward");
        assert_eq!(backward(loss, &layer).len(), 2);
    }

    fn custom_ops(operations: &[OperationIr]) -> Vec<CustomOp<'_>> {
        operations.iter().filter_map(CustomOp::parse).filter(|op| !matches!(op, CustomOp::Contiguous)).collect()
    }

    #[test]
    fn capture_of_the_cpu_has_the_operations_of_this_crate() {
        let operations = capture(SimulatedDevice::Cpu, step).unwrap();
        let expected = [
            CustomOp::Make("layer_norm"),
            CustomOp::Make("silu"),
            CustomOp::Scratch { name: "table", bytes: 77 },
            CustomOp::Mark("backward"),
            CustomOp::Make("silu"),
            CustomOp::Make("layer_norm"),
        ];
        assert_eq!(custom_ops(&operations), expected);
    }

    #[test]
    fn capture_of_a_gpu_has_only_operations_of_burn() {
        let operations = capture(SimulatedDevice::Gpu, step).unwrap();
        assert_eq!(custom_ops(&operations), [CustomOp::Mark("backward")]);
        assert!(operations.len() > 30);
    }

    #[test]
    fn integers_have_the_type_of_the_simulated_device() {
        for simulated in [SimulatedDevice::Cpu, SimulatedDevice::Gpu] {
            capture(simulated, |session| {
                let device = session.device();
                let ids = Tensor::<1, Int>::from_data(TensorData::from([1_i32, 2]), device);
                assert_eq!(ids.dtype(), DType::I32);
            })
            .unwrap();
        }
    }

    #[test]
    fn reading_values_fails_with_a_reason() {
        let read = |session: &CaptureSession| {
            let _ = Tensor::<1>::zeros([1], session.device()).into_scalar::<f32>();
        };
        let CaptureError::Failed { reason } = capture(SimulatedDevice::Gpu, read).unwrap_err();
        assert!(reason.contains("no concrete value"), "{reason}");
        // The device is there for the next one.
        assert!(capture(SimulatedDevice::Gpu, step).is_ok());
    }
}
