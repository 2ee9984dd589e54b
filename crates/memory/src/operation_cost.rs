//! Cost of a micro-batch by operation.

use std::collections::BTreeMap;

use plimsoll_core::{BatchShape, Choice};
use plimsoll_tape::CustomOp;
use serde::Serialize;

use crate::backend::BackendRules;
use crate::cost::Cost;
use crate::operation_name::operation_name;
use crate::trace::{TraceError, record};
use crate::traceable::Traceable;

/// Cost of all operations of one name in a micro-batch.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OperationCost {
    /// Name of the operation, such as `matrix product`.
    pub name: &'static str,
    /// Number of times that the operation runs in forward and backward pass.
    pub count: u64,
    /// Cost of all of them, by the cost model.
    pub cost: Cost,
}

/// Records a micro-batch of `shape`, and sums the cost of its operations by name. No operation is left out, so the costs
/// add up to that of the [trace](crate::trace) of the same micro-batch.
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
    let (mut costs, mut has_begun) = (BTreeMap::<_, OperationCost>::new(), false);
    for operation in &recording.operations {
        let note = CustomOp::parse(operation);
        has_begun |= matches!(note, Some(CustomOp::Mark(_)));
        if let Some(CustomOp::Mark(_) | CustomOp::Tape { .. }) = note {
            continue;
        }
        if !has_begun {
            // The weights are initialized.
            continue;
        }
        let name = operation_name(operation);
        let entry = costs.entry(name).or_insert_with(|| OperationCost { name, count: 0, cost: Cost::default() });
        entry.count += 1;
        entry.cost.add(&Cost::of(operation), 1.0);
    }
    Ok(costs.into_values().collect())
}
