//! Rule about the optimizer.

use plimsoll_core::TimeOwner;

use crate::advice::measured::{Measured, took};
use crate::advice::outcome::{Outcome, Problem};

/// Share of the time from which the optimizer is a finding. A small model has a few percent.
const NOTED: f64 = 0.1;
/// Share of the memory below which the full state has room: it takes at most four times as much as the one in 8 bits.
const ROOM_BELOW: f64 = 0.5;
/// Part of the optimizer's time that is promised. The update itself remains.
const DISCOUNT: f64 = 0.3;

/// The optimizer takes much of the time.
pub(super) fn optimizer_bound(run: &Measured<'_>) -> Outcome {
    let share = run.share(TimeOwner::Optimizer);
    if share < NOTED {
        return Outcome::Healthy;
    }
    let written = run.fixed("training.optimizer_state").filter(|form| ["host", "8bit"].contains(form));
    let problem = Problem::new(share, took(TimeOwner::Optimizer, share));
    let hint = "No key helps. Larger batches need fewer updates for the same audio, and change the training.";
    let planned = run.plan().and_then(|plan| plan.optimizer_state.as_deref());
    let problem = match planned.filter(|form| *form == "host" && written.is_none()) {
        Some(_) => problem.because("the plan keeps its state in host memory"),
        None => problem,
    };
    match (written, run.uses_less_than(ROOM_BELOW)) {
        (Some(form), Some(true)) => problem
            .because(format!("its state is kept as `{form}` although memory has room"))
            .change(run.change("training.optimizer_state", "auto"), Some(share * DISCOUNT))
            .found(),
        (Some(_), None) => Outcome::abstained("the memory plan is not known"),
        _ => problem.hint(hint).found(),
    }
}
