//! Cost of a micro-batch by operation.

use std::collections::BTreeMap;

use plimsoll_core::{BatchShape, Choice};
use serde::Serialize;

use crate::backend::BackendRules;
use crate::cost::Cost;
use crate::heap::Heap;
use crate::operations::Operations;
use crate::trace::{TraceError, record, replay_on};
use crate::traceable::Traceable;

/// Cost of all operations of one name in a micro-batch.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OperationCost {
    /// Name of the operation, such as `matrix product`, or `fused kernel` for several that are computed at once.
    pub name: &'static str,
    /// Number of times that it runs in forward and backward pass.
    pub count: u64,
    /// Cost of all of them, by the cost model.
    pub cost: Cost,
}

/// Records a micro-batch of `shape`, and sums the cost of its operations by name, as a device with `rules` computes them:
/// a GPU fuses some. Nothing is left out, so the costs add up to that of the [trace](crate::trace) of the same
/// micro-batch.
///
/// # Errors
/// [`TraceError::Record`] where the model reads tensor values, and [`TraceError::NoGradient`] where nothing is trained.
pub fn operation_costs<S: Traceable>(
    traceable: &S,
    shape: BatchShape,
    choice: Choice,
    rules: BackendRules,
) -> Result<Vec<OperationCost>, TraceError> {
    let recording = record(traceable, shape, choice, rules)?;
    let mut costs = BTreeMap::<_, OperationCost>::new();
    let operations = Operations::new(&recording.operations);
    replay_on(Heap::new(rules), (&recording, &operations), rules, |kernel| {
        let new = || OperationCost { name: kernel.name, count: 0, cost: Cost::default() };
        let entry = costs.entry(kernel.name).or_insert_with(new);
        entry.count += 1;
        entry.cost.add(&Cost::of(kernel), 1.0);
    });
    Ok(costs.into_values().collect())
}
