//! Rules about the way of work to the device: copies, queue, reads and kernels.

use plimsoll_core::{TimeOwner, TimeShares};

use crate::advice::measured::{Measured, NOTED_SHARE, percent, took};
use crate::advice::outcome::{Outcome, Problem};

/// Number of micro-batches of a step from which they are many.
const MANY_MICRO_BATCHES: f64 = 8.0;
/// Share of the memory below which larger micro-batches have room.
const ROOM_BELOW: f64 = 0.6;
/// Part of a predicted gain that is promised.
const DISCOUNT: f64 = 0.6;
/// Number of reads of a step that a training step needs: its loss and the norm of its gradient.
const READS_USUAL: f64 = 2.0;
/// Number of shapes that a run on a GPU is limited to by default.
const SHAPES_DEFAULT: u64 = 72;
/// Part of the time of compiling that is promised for the default number of shapes: a shape costs one kernel at most, and fewer shapes
/// need more padding. Below the default nothing is gained: 8 shapes compile 306 kernels and 41 shapes 337 (docs/log/gpu-speed.md, "What a
/// shape costs").
const SHAPES_DISCOUNT: f64 = 0.25;
const MICRO_BATCH: &str = "training.micro_batch";

/// Batches are copied to the device while it waits.
pub(super) fn transfer_bound(run: &Measured<'_>) -> Outcome {
    let share = run.share(TimeOwner::Transfer);
    if share < NOTED_SHARE {
        return Outcome::Healthy;
    }
    let problem = Problem::new(share, took(TimeOwner::Transfer, share));
    problem
        .hint("No key helps. `plimsoll doctor` shows the speed and width of the bus; other processes may use it.")
        .found()
}

/// The host queues work more slowly than the device computes it, or a step has many small parts without need.
pub(super) fn launch_bound(run: &Measured<'_>) -> Outcome {
    let (submit, waited) = (run.share(TimeOwner::Submit), run.share(TimeOwner::Compute));
    let micro_batches = run.mean(|step| step.micro_batches as f64);
    // A device that is still busy when the host has queued everything does not wait for the host.
    let is_late = submit >= NOTED_SHARE && submit > waited;
    let is_many = micro_batches >= MANY_MICRO_BATCHES;
    let room = run.uses_less_than(ROOM_BELOW);
    match (run.facts.on_gpu, room) {
        (None, _) if is_late => return Outcome::abstained("it is not known whether the run trains on a GPU"),
        (_, None) if is_many && !is_late => return Outcome::abstained("the memory plan is not known"),
        _ => {}
    }
    let is_late = is_late && run.facts.on_gpu == Some(true);
    let is_free = run.fixed(MICRO_BATCH).is_some() && run.fixed("model.conv_norm") != Some("batch");
    let change = run.change(MICRO_BATCH, "auto").filter(|_| is_free && room == Some(true) && micro_batches > 1.0);
    if !(is_late || is_many && change.is_some()) {
        return Outcome::Healthy;
    }
    let ratio =
        run.best_alternative(&[MICRO_BATCH], |other| (other.change.to == "auto").then_some(1.0 - other.seconds_ratio?));
    let saved = ratio.map(|(_, saved)| saved * run.busy_share());
    let share = if is_late { submit } else { saved.unwrap_or(0.0) };
    let text = format!("a step is computed in {micro_batches:.1} micro-batches on average");
    let mut problem = match is_late {
        true => Problem::new(share, took(TimeOwner::Submit, submit)).because(text),
        false => Problem::new(share, text),
    };
    if is_late {
        problem = problem.because(format!("the host then waited {} of the time for the device", percent(waited)));
        let launches = run.mean(|step| step.launches.map_or(f64::NAN, f64::from));
        if launches > 0.0 {
            problem = problem.because(format!("a step launches {launches:.0} kernels on average"));
        }
    }
    let hint = "No key helps. Larger batches or a larger model give each kernel more work, and change the training.";
    let problem = if change.is_none() { problem.hint(hint) } else { problem };
    problem.change(change, saved.map(|saved| saved * DISCOUNT)).found()
}

/// Steps wait for values of the device. On the CPU they wait for what has to be computed anyway.
pub(super) fn sync_bound(run: &Measured<'_>) -> Outcome {
    if run.facts.on_gpu == Some(false) {
        return Outcome::Healthy;
    }
    let (share, reads) = (run.share(TimeOwner::Read), run.mean(|step| f64::from(step.reads)));
    // Many reads hurt a GPU even if each one is short, because its queue runs empty.
    let is_many = reads > READS_USUAL && share >= NOTED_SHARE / 5.0;
    // Debug mode is named even if its reads are short: a GPU loses more by them than their time.
    // A run that failed needs it to name the cause.
    let is_for_speed = run.has_debug() && !run.has_failed();
    let change = run.change("training.debug", "false").filter(|_| is_for_speed);
    if share < NOTED_SHARE && !is_many && change.is_none() {
        return Outcome::Healthy;
    }
    let problem =
        Problem::new(share, took(TimeOwner::Read, share)).because(format!("a step waits for {reads:.1} reads"));
    let problem = match change {
        Some(_) => problem,
        None => problem
            .hint("No key helps. A loop of one's own should read values once a step, after the next step is queued."),
    };
    problem.change(change, Some(share * DISCOUNT)).found()
}

/// Shapes that were not met before still come in the last half of the steps.
pub(super) fn compiling(run: &Measured<'_>) -> Outcome {
    let mut late = TimeShares::default();
    run.steps[run.steps.len() / 2..].iter().for_each(|step| late.add_all(&step.times));
    let (share, late) = (run.share(TimeOwner::Compile), late.share(TimeOwner::Compile));
    if late < NOTED_SHARE {
        return Outcome::Healthy;
    }
    let planned = run.plan().and_then(|plan| plan.padded_shapes);
    let written: Option<u64> = run.value("data.shapes");
    let present = written.or(planned).unwrap_or(SHAPES_DEFAULT);
    let change = run.change("data.shapes", SHAPES_DEFAULT).filter(|_| present > SHAPES_DEFAULT);
    let mut problem = Problem::new(share, took(TimeOwner::Compile, share))
        .because(format!("in the last half of the steps it was {}", percent(late)));
    if let Some(planned) = planned {
        problem = problem.because(format!("the batches have {planned} different padded shapes"));
    }
    let problem = match change {
        Some(_) => problem,
        None => problem.hint(
            "Fewer shapes would not help: most kernels serve all of them. They are kept on disk, so that the next \
             run does not compile them again.",
        ),
    };
    problem.change(change, Some(share.min(late) * SHAPES_DISCOUNT)).found()
}
