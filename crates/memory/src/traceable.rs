//! A model that can be traced: it can be built on any device, and it has batches of any shape.

use burn::tensor::Device;
use plimsoll_core::{BatchShape, Key};
use plimsoll_tape::lora::TrainedParts;
use plimsoll_tape::{ParametersError, Pass, Task};

/// Builds a model and its largest batches for a trace.
///
/// The planner builds the model on a recording device, which uses the sizes of the parameters but not their values.
pub trait Traceable {
    /// Type of the model with its loss.
    type Task: Task;

    /// Builds the model on `device`. Its parameters need no initial values.
    fn init(&self, device: &Device) -> Self::Task;

    /// Makes a batch in which every sample has the full length of `shape`, so that the batch needs the most memory.
    fn batch(&self, shape: BatchShape) -> <Self::Task as Task>::Batch;

    /// Validates one batch, without gradients. By default this computes the loss; override it for a model that
    /// validates in another way, such as one that decodes.
    fn validate(&self, task: &Self::Task, batch: &<Self::Task as Task>::Tensors) {
        let _ = task.loss(batch, &Pass::plain());
    }
}

/// A model of which only some parameters, or adapters beside them, are trained: others have no gradient and no optimizer state, and
/// what only their gradients would need is not kept.
#[derive(Clone, Copy, Debug)]
pub struct Trained<'a, S> {
    traceable: &'a S,
    parts: &'a TrainedParts,
}

impl<'a, S: Traceable> Trained<'a, S> {
    /// Trains the `parts` of `traceable`.
    pub fn new(traceable: &'a S, parts: &'a TrainedParts) -> Self {
        Self { traceable, parts }
    }

    /// Makes of `task`, a model of this kind, one whose parts are trained.
    ///
    /// # Errors
    /// [`ParametersError`] with the first name that no parameter and no layer has.
    pub fn apply(&self, task: S::Task) -> Result<S::Task, ParametersError> {
        self.parts.apply(task, Key::new(0))
    }

    /// Returns the model of which all is trained.
    pub fn whole(&self) -> &'a S {
        self.traceable
    }
}

impl<S: Traceable> Traceable for Trained<'_, S> {
    type Task = S::Task;

    /// # Panics
    /// If no parameter or layer has one of the names.
    fn init(&self, device: &Device) -> S::Task {
        self.apply(self.traceable.init(device)).expect("each name is that of a part")
    }

    fn batch(&self, shape: BatchShape) -> <S::Task as Task>::Batch {
        self.traceable.batch(shape)
    }

    fn validate(&self, task: &S::Task, batch: &<S::Task as Task>::Tensors) {
        self.traceable.validate(task, batch);
    }
}
