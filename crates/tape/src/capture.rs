//! Captures: the operations that a training step would execute on a device, recorded without executing them.
//!
//! A capture device computes nothing and keeps no values, so a step of any size is recorded in milliseconds. It
//! simulates either a GPU, for which this crate has a few kernels of its own, or the CPU, for which it has
//! many operations. The operations of this crate are recorded as [`CustomOp`]s with the memory that they take.

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, PoisonError};

use burn::module::{Module, ModuleMapper, Param};
use burn::tensor::{Bool, BoolStore, DType, Device, Int, IntDType, Shape, Tensor, TensorData};
use burn_backend::TensorMetadata;
use burn_backend::tensor::FloatTensor;
use burn_dispatch::backends::Capture;
use burn_ir::{CustomOpIr, OperationIr, ScalarIr, TensorIr};
use burn_router::RouterClient;

use crate::bridge::{Family, PrimitiveBackend, family, runs_host_ops, set_default_dtypes, simulate_cpu};
use crate::gpu::counts::uploaded;
use crate::host::{HostBackend, HostScratch, InPlaceArgs};

/// Kind of device that a capture device simulates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SimulatedDevice {
    /// CPU, with the one-pass operations of this crate.
    Cpu,
    /// GPU: a device with its own memory.
    Gpu,
}

impl SimulatedDevice {
    /// Returns the number of values that the CPU packs (copies) for a product of `[rows, inner]` and `[inner, columns]`. `turned` says of
    /// each factor whether it lies column by column.
    pub fn packed_values(sizes: [usize; 3], turned: [bool; 2]) -> usize {
        crate::matrix::packed_values(sizes, turned)
    }
}

/// Reason why a capture failed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum CaptureError {
    /// The recorded code read values, which a capture does not have, or panicked.
    #[error("the model cannot be traced: {reason}")]
    Failed {
        /// Message of the panic or of Burn.
        reason: String,
    },
}

/// Capture in progress: supplies the capture device, sets marks between operations, and returns ids of tensors.
#[derive(Debug)]
pub struct CaptureSession {
    device: Device,
    anchor: Tensor<1>,
}

impl CaptureSession {
    /// Returns the capture device, with autodiff.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Records a mark named `name`, which separates the operations so far from later operations.
    pub fn mark(&self, name: &str) {
        let anchor = Capture::plain(self.anchor.clone());
        anchor.client.register_op(custom("mark", name, Vec::new(), Vec::new(), 0));
    }

    /// Returns the id of `tensor` in the capture.
    pub fn id<const D: usize>(&self, tensor: &Tensor<D>) -> burn_ir::TensorId {
        Capture::plain(tensor.clone()).id()
    }

    /// Creates a tensor id greater than the ids of all tensors so far and less than the ids of later tensors. Two such
    /// ids enclose the tensors made in between.
    pub fn next_id(&self) -> burn_ir::TensorId {
        Capture::plain(self.anchor.clone()).client.create_empty_handle()
    }

    /// Returns `module` without autodiff, as in validation and inference.
    ///
    /// The result equals Burn's `valid`, which panics on a capture device.
    pub fn without_autodiff<M: Module>(&self, module: M) -> M {
        struct WithoutAutodiff;
        impl ModuleMapper for WithoutAutodiff {
            fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
                let (id, value, mapper) = param.consume();
                Param::from_mapped_value(id, crate::without_autodiff(value), mapper)
            }
        }
        module.map(&mut WithoutAutodiff)
    }
}

/// Records the operations of `work` on a device that simulates `simulated` and computes nothing.
///
/// ```
/// use burn::nn::LinearConfig;
/// use burn::tensor::Tensor;
/// use plimsoll_tape::{CustomOp, SimulatedDevice, backward, capture};
///
/// // Forward and backward pass of a linear layer of a million by a million, without computing it.
/// let operations = capture(SimulatedDevice::Gpu, |session| {
///     let layer = LinearConfig::new(1 << 20, 1 << 20).init(session.device());
///     let loss = layer.forward(Tensor::<2>::zeros([4, 1 << 20], session.device())).sum();
///     session.mark("backward");
///     backward(loss, &layer);
/// })?;
/// assert!(operations.iter().any(|operation| matches!(CustomOp::parse(operation), Some(CustomOp::Mark("backward")))));
/// # Ok::<(), plimsoll_tape::CaptureError>(())
/// ```
///
/// # Errors
/// [`CaptureError::Failed`] if `work` panics or reads the value of a tensor, which a capture does not have.
pub fn capture(
    simulated: SimulatedDevice,
    work: impl FnOnce(&CaptureSession),
) -> Result<Vec<OperationIr>, CaptureError> {
    let device = acquire_device(simulated);
    let record = || {
        device.capture_scope(|scope| {
            set_dtypes(simulated, &device);
            let tape = device.clone().autodiff();
            let session = CaptureSession { anchor: Tensor::zeros([1], &tape), device: tape };
            ANCHOR.replace(Some((simulated, session.anchor.clone())));
            work(&session);
            ANCHOR.take();
            scope.complete([], [])
        })
    };
    IS_CAPTURING.set(true);
    let captured = catch_unwind(AssertUnwindSafe(record));
    IS_CAPTURING.set(false);
    ANCHOR.take();
    release_device(simulated, device);
    match captured {
        Ok(Ok(captured)) => Ok(captured.graph.operations),
        Ok(Err(error)) => Err(CaptureError::Failed { reason: error.to_string() }),
        Err(panic) => Err(CaptureError::Failed { reason: panic_message(&*panic) }),
    }
}

/// Runs `work` with a capture device, where building a module of any size takes neither memory nor time.
///
/// Use this function, for example, to count the parameters of a model before training. The result must not hold tensors
/// of the capture device.
///
/// ```
/// use burn::nn::LinearConfig;
/// use plimsoll_tape::{count, on_capture_device};
///
/// let parameters = on_capture_device(|device| count(&LinearConfig::new(1 << 20, 1 << 20).init(device)));
/// assert_eq!(parameters, (1 << 40) + (1 << 20));
/// ```
///
/// # Panics
/// If `work` panics.
pub fn on_capture_device<R>(work: impl FnOnce(&Device) -> R) -> R {
    let device = Device::capture();
    let mut result = None;
    let captured = device.capture_scope(|scope| {
        result = Some(work(&device.clone().autodiff()));
        scope.complete([], [])
    });
    assert!(captured.is_ok(), "an empty capture succeeds");
    result.expect("the capture ran `work`")
}

/// Returns whether `device` is a capture device, which records operations and computes nothing.
pub fn is_capture_device(device: &Device) -> bool {
    family(device) == Family::Capture
}

thread_local! {
    static IS_CAPTURING: Cell<bool> = const { Cell::new(false) };
    /// Device that the capture on this thread simulates, and a tensor of it, through which the capture is reached.
    static ANCHOR: RefCell<Option<(SimulatedDevice, Tensor<1>)>> = const { RefCell::new(None) };
}

/// Records that what is queued is sent, if this thread runs [`capture`] and the capture simulates a GPU.
pub(crate) fn record_sending() {
    if let Some((SimulatedDevice::Gpu, anchor)) = ANCHOR.with_borrow(Clone::clone) {
        Capture::plain(anchor).client.register_op(custom("sent", "", Vec::new(), Vec::new(), 0));
    }
}

/// Returns whether this thread runs [`capture`]. A panic on such a thread becomes a [`CaptureError`], and a panic hook
/// need not print it.
pub fn is_capturing() -> bool {
    IS_CAPTURING.get()
}

fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("panic without a message").to_string()
}

/// Unused capture devices, kept for reuse: Burn has ids for only 65,536 capture devices in a process.
static IDLE_DEVICES: Mutex<Vec<(SimulatedDevice, Device)>> = Mutex::new(Vec::new());

fn acquire_device(simulated: SimulatedDevice) -> Device {
    let mut idle = IDLE_DEVICES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(index) = idle.iter().position(|(kind, _)| *kind == simulated) {
        return idle.swap_remove(index).1;
    }
    let device = Device::capture();
    if simulated == SimulatedDevice::Cpu {
        simulate_cpu(&device);
    }
    device
}

/// Sets the integer and boolean types of `device` to the types of the simulated device. They cannot change later.
fn set_dtypes(simulated: SimulatedDevice, device: &Device) {
    let store = if simulated == SimulatedDevice::Cpu { BoolStore::Native } else { BoolStore::U32 };
    set_default_dtypes(device, IntDType::I32, store);
}

fn release_device(simulated: SimulatedDevice, device: Device) {
    IDLE_DEVICES.lock().unwrap_or_else(PoisonError::into_inner).push((simulated, device));
}

/// Operation in a capture that Burn does not define.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CustomOp<'a> {
    /// Mark between two operations, with its name, such as the phase that begins here. [`CaptureSession::mark`] writes it.
    Mark(&'a str),
    /// The operations so far are sent to the device, and none of them is fused with a later one.
    Sent,
    /// The operations between a note with `is_on: false` and the next with `true` leave nothing on the tape of autodiff: the
    /// first pass of a rematerialized block. Such pairs can be inside of each other. Only a capture of the CPU has them.
    Tape {
        /// Whether the operations from here on are on the tape again.
        is_on: bool,
        /// Number of parameters of the block that begins, of which the tape keeps second handles.
        parameters: u64,
    },
    /// Operation that makes the values of its input contiguous: the output is a copy if they are not contiguous,
    /// otherwise the input itself.
    Contiguous,
    /// Operation, with its name, that creates its outputs as new tensors. It reads its inputs, which are contiguous.
    Make(&'a str),
    /// Operation whose outputs are parts of its input, in the memory of the input.
    Parts,
    /// Copy of data from the host, which is not in the recording, to the output.
    Upload,
    /// Operation that overwrites its first input: the first output takes the memory of the first input if that has no
    /// other owner, otherwise a copy. A second output is a new tensor, allocated before the input is overwritten.
    Change {
        /// Name of the operation that overwrites its first input.
        name: &'a str,
        /// Number of bytes of temporary memory that the operation needs.
        scratch: u64,
    },
    /// Record of host memory that is in use for a short time, written by [`record_scratch`].
    Scratch {
        /// Name of the purpose of the memory, such as `table`.
        name: &'a str,
        /// Number of bytes of host memory in use.
        bytes: u64,
    },
}

const PREFIX: &str = "plimsoll.";
/// Name of the note before operations that leave nothing on the tape.
const OFF: &str = "off";

impl<'a> CustomOp<'a> {
    /// End of the name of a [`Make`](Self::Make) that also adds up sums over segments of rows, on a device on which a group of threads
    /// sees what others wrote: CUDA. Elsewhere another kernel does.
    pub const WITH_SUMS: &'static str = " with sums";

    /// Returns the bytes of temporary memory of `operation` on `threads` threads, if it is a [`Make`](Self::Make) of the CPU; otherwise 0.
    pub fn scratch_of_make(operation: &'a OperationIr, threads: usize) -> u64 {
        match (Self::parse(operation), operation) {
            (Some(Self::Make(_)), OperationIr::Custom(custom)) => match custom.scalars[..] {
                [ScalarIr::UInt(fixed), ScalarIr::UInt(each), ScalarIr::UInt(tasks)] => {
                    HostScratch { fixed, each, tasks }.bytes(threads)
                }
                _ => 0,
            },
            _ => 0,
        }
    }

    /// Parses `operation` as an operation that this crate records; `None` if it is one of Burn's operations.
    pub fn parse(operation: &'a OperationIr) -> Option<Self> {
        let OperationIr::Custom(custom) = operation else { return None };
        let (kind, name) = custom.id.strip_prefix(PREFIX)?.split_once('/')?;
        let bytes = custom.scalars.first().map_or(0, |scalar| match scalar {
            ScalarIr::UInt(bytes) => *bytes,
            _ => 0,
        });
        match kind {
            "mark" => Some(Self::Mark(name)),
            "sent" => Some(Self::Sent),
            "tape" => Some(Self::Tape { is_on: name != OFF, parameters: bytes }),
            "contiguous" => Some(Self::Contiguous),
            "make" => Some(Self::Make(name)),
            "parts" => Some(Self::Parts),
            "upload" => Some(Self::Upload),
            "change" => Some(Self::Change { name, scratch: bytes }),
            "scratch" => Some(Self::Scratch { name, bytes }),
            _ => None,
        }
    }
}

/// Records that `bytes` of host memory are in use at this moment for `name`, if `tensor` is on a capture device that
/// simulates the CPU. On all other devices this function does nothing.
///
/// Code that works on host slices between tensors calls this function, such as a loss that is computed on the host.
pub fn record_scratch<const D: usize>(tensor: &Tensor<D>, name: &str, bytes: usize) {
    if family(&tensor.device()) == Family::Capture && runs_host_ops(&tensor.device()) {
        let tensor = Capture::plain(tensor.clone());
        tensor.client.register_op(custom("scratch", name, Vec::new(), Vec::new(), bytes));
    }
}

/// Does `work`, the first pass of a rematerialized block, whose operations leave nothing on the tape of autodiff. Records
/// that if this thread runs [`capture`] and the capture simulates the CPU: for each operation on the tape, autodiff keeps
/// host memory until the backward pass. `parameters` counts the parameters of the block.
pub(crate) fn off_tape<R>(parameters: impl FnOnce() -> usize, work: impl FnOnce() -> R) -> R {
    let recorder = || match ANCHOR.with_borrow(Clone::clone) {
        Some((SimulatedDevice::Cpu, anchor)) => Some(Capture::plain(anchor).client.clone()),
        _ => None,
    };
    let Some(client) = recorder() else { return work() };
    client.register_op(custom("tape", OFF, Vec::new(), Vec::new(), parameters()));
    let result = work();
    client.register_op(custom("tape", "on", Vec::new(), Vec::new(), 0));
    result
}

/// Creates an integer tensor of `shape` in place of data copied from the host, if `device` is a capture device;
/// otherwise returns `None`. The capture counts the memory of the tensor and needs no values.
pub(crate) fn placeholder_ints<const D: usize>(shape: [usize; D], device: &Device) -> Option<Tensor<D, Int>> {
    Some(Tensor::from_primitive::<Capture>(host_data(Shape::new(shape), DType::I32, device)?))
}

/// Creates a boolean tensor of `shape` in place of data copied from the host, if `device` is a capture device;
/// otherwise returns `None`.
pub(crate) fn placeholder_bools<const D: usize>(shape: [usize; D], device: &Device) -> Option<Tensor<D, Bool>> {
    let store = device.settings().bool_dtype;
    Some(Tensor::from_primitive::<Capture>(host_data(Shape::new(shape), store.into(), device)?))
}

/// Creates a tensor of `shape` on `device` from `values` of the host. In a [`capture`], which needs no values, `values` is
/// not called.
///
/// Layers make their tables with this function, such as position encodings: a plan traces a model some hundred times, and
/// tables took a third of its time.
///
/// # Panics
/// If the number of values is not that of `shape`.
pub fn from_host<const D: usize>(shape: [usize; D], device: &Device, values: impl FnOnce() -> Vec<f32>) -> Tensor<D> {
    let recorded = is_capturing().then(|| host_data(Shape::new(shape), DType::F32, device)).flatten();
    match recorded {
        Some(recorded) if device.is_autodiff() => Capture::constant(recorded),
        Some(recorded) => Capture::from_plain(recorded),
        None => Tensor::from_data(uploaded(TensorData::new(values(), shape)), device),
    }
}

fn host_data(shape: Shape, dtype: DType, device: &Device) -> Option<Recorded> {
    if family(device) != Family::Capture {
        return None;
    }
    let client = Capture::plain(Tensor::<1>::zeros([1], device)).client.clone();
    let output = TensorIr::uninit(client.create_empty_handle(), shape, dtype);
    Some(client.register(custom("upload", "", Vec::new(), vec![output], 0)).remove(0))
}

fn custom(kind: &str, name: &str, inputs: Vec<TensorIr>, outputs: Vec<TensorIr>, bytes: usize) -> OperationIr {
    let scalars = vec![ScalarIr::UInt(bytes as u64)];
    OperationIr::Custom(CustomOpIr { id: format!("{PREFIX}{kind}/{name}"), inputs, outputs, scalars })
}

type Recorded = FloatTensor<Capture>;

/// Records the operation `name` of a GPU, which reads `inputs` and creates tensors of the shapes and types `made`.
pub(crate) fn record_kernel(name: &str, inputs: Vec<Recorded>, made: Vec<(Shape, DType)>) -> Vec<Recorded> {
    record_typed("make", name, inputs, made, 0)
}

/// Records tensors that are parts of `flat`, in its memory.
pub(crate) fn record_parts(flat: Recorded, places: Vec<(usize, Shape)>) -> Vec<Recorded> {
    let dtype = flat.dtype();
    let parts = places.into_iter().map(|(_, shape)| (shape, dtype)).collect();
    record_typed("parts", "", vec![flat], parts, 0)
}

/// Records in the capture a `CustomOp` of the given kind (such as `make`) and name, which reads `inputs`, creates fp32
/// tensors of `shapes` and uses `scratch` bytes of temporary memory. Returns the created tensors.
fn record_custom(kind: &str, name: &str, inputs: Vec<Recorded>, shapes: Vec<Shape>, scratch: usize) -> Vec<Recorded> {
    record_typed(kind, name, inputs, shapes.into_iter().map(|shape| (shape, DType::F32)).collect(), scratch)
}

/// The same as [`record_custom`] with tensors of other types.
fn record_typed(
    kind: &str,
    name: &str,
    inputs: Vec<Recorded>,
    outputs: Vec<(Shape, DType)>,
    scratch: usize,
) -> Vec<Recorded> {
    let client = inputs.first().map(|tensor| tensor.client.clone()).expect("a custom operation has an input");
    let fresh = |(shape, dtype)| TensorIr::uninit(client.create_empty_handle(), shape, dtype);
    let outputs: Vec<TensorIr> = outputs.into_iter().map(fresh).collect();
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
        HostScratch { fixed, each, tasks }: HostScratch,
        _: impl FnOnce(&[&[f32]]) -> Vec<Vec<f32>>,
    ) -> Vec<Recorded> {
        let client = inputs.first().map(|tensor| tensor.client.clone()).expect("a custom operation has an input");
        let fresh = |shape| TensorIr::uninit(client.create_empty_handle(), shape, DType::F32);
        let outputs = shapes.into_iter().map(fresh).collect();
        let scalars = [fixed, each, tasks].map(ScalarIr::UInt).into();
        let inputs = inputs.iter().map(|&tensor| tensor.clone().into_ir()).collect();
        client.register(OperationIr::Custom(CustomOpIr {
            id: format!("{PREFIX}make/{name}"),
            inputs,
            outputs,
            scalars,
        }))
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
        (outputs.next().expect("the first output is the changed tensor"), outputs.next())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::activation::silu;
    use crate::{backward, layer_norm};
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
        let is_note = |op: &CustomOp<'_>| matches!(op, CustomOp::Contiguous | CustomOp::Sent | CustomOp::Tape { .. });
        operations.iter().filter_map(CustomOp::parse).filter(|op| !is_note(op)).collect()
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
    fn truth_values_have_four_bytes_in_the_capture_of_a_gpu() {
        use burn::tensor::activation::leaky_relu;
        let record = |session: &CaptureSession| {
            let layer = LinearConfig::new(4, 4).init(session.device());
            let x = layer.forward(Tensor::<2>::zeros([3, 4], session.device()));
            let mask = x.clone().lower_elem(0.5);
            // Burn's own operations make a mask, too.
            let loss = leaky_relu(x.clone(), 0.1).mask_fill(mask, 0.0).sum();
            assert_eq!(backward(loss, &layer).len(), 2);
        };
        for (simulated, store) in [(SimulatedDevice::Gpu, BoolStore::U32), (SimulatedDevice::Cpu, BoolStore::Native)] {
            let operations = capture(simulated, record).unwrap();
            let all = operations.iter().flat_map(OperationIr::outputs).map(|out| out.dtype);
            let found: Vec<DType> = all.filter(|dtype| matches!(dtype, DType::Bool(_))).collect();
            assert_eq!(found, [DType::Bool(store); 2]);
        }
    }

    #[test]
    fn capture_of_a_gpu_has_the_kernels_of_this_crate() {
        let operations = capture(SimulatedDevice::Gpu, step).unwrap();
        let norm = CustomOp::Make("layer_norm");
        assert_eq!(custom_ops(&operations), [norm, CustomOp::Mark("backward"), norm]);
        // Before the gradients are computed.
        assert_eq!(operations.iter().filter_map(CustomOp::parse).filter(|op| *op == CustomOp::Sent).count(), 1);
        assert!(operations.iter().any(|operation| CustomOp::parse(operation).is_none()));
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
        // The device can be used again.
        assert!(capture(SimulatedDevice::Gpu, step).is_ok());
    }
}
