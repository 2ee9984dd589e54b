//! A model that can be traced: it can be built on any device, and it has batches of any shape.

use burn::tensor::Device;
use plimsoll_core::BatchShape;
use plimsoll_tape::{ParametersError, Pass, Task, freeze};

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

/// A model of which some parameters are [frozen](freeze): they have no gradient and no optimizer state, and what only their
/// gradients would need is not kept.
#[derive(Clone, Copy, Debug)]
pub struct Frozen<'a, S> {
    traceable: &'a S,
    prefixes: &'a [String],
}

impl<'a, S: Traceable> Frozen<'a, S> {
    /// Freezes the parameters of `traceable` whose names begin with one of `prefixes`; none freezes nothing.
    pub fn new(traceable: &'a S, prefixes: &'a [String]) -> Self {
        Self { traceable, prefixes }
    }

    /// Freezes the parameters of `task`, a model of this kind.
    ///
    /// # Errors
    /// [`ParametersError`] with the first prefix that no parameter name has.
    pub fn freeze(&self, task: S::Task) -> Result<S::Task, ParametersError> {
        if self.prefixes.is_empty() { Ok(task) } else { freeze(task, self.prefixes) }
    }

    /// Returns the model without frozen parameters.
    pub fn whole(&self) -> &'a S {
        self.traceable
    }
}

impl<S: Traceable> Traceable for Frozen<'_, S> {
    type Task = S::Task;

    /// # Panics
    /// If no parameter name has one of the prefixes.
    fn init(&self, device: &Device) -> S::Task {
        self.freeze(self.traceable.init(device)).expect("each prefix is that of a parameter")
    }

    fn batch(&self, shape: BatchShape) -> <S::Task as Task>::Batch {
        self.traceable.batch(shape)
    }

    fn validate(&self, task: &S::Task, batch: &<S::Task as Task>::Tensors) {
        self.traceable.validate(task, batch);
    }
}
