//! A run state as one line of text.

use plimsoll_core::Seconds;
use plimsoll_core::units::AudioSpeed;

use super::state::RunView;

/// Formats a run state as one line, for logs and for terminals without a screen. What is not known is left out.
///
/// ```
/// use plimsoll_core::{Event, Record, StepEvent};
/// use plimsoll_monitor::live::{RunView, line};
///
/// let mut run = RunView::new("toy");
/// assert_eq!(line(&run), "toy: no event yet");
/// run.observe(&Record::new(1.8e9, Event::Step(StepEvent { step: 3, loss: 2.5, ..StepEvent::default() })));
/// assert_eq!(line(&run), "toy: running, step 3, loss 2.500");
/// ```
pub fn line(run: &RunView) -> String {
    let status = run.status().map_or_else(|| "no event yet".into(), |status| status.to_string());
    let mut parts = vec![status];
    parts.extend(run.step().map(|step| match run.total_steps() {
        Some(total) => format!("step {step}/{total}"),
        None => format!("step {step}"),
    }));
    parts.extend(run.losses().last().map(|(_, loss)| format!("loss {loss:.3}")));
    parts.extend(run.audio_seconds_per_second().map(|speed| AudioSpeed(speed).to_string()));
    parts.extend(run.peak_bytes().map(|peak| match run.planned_bytes() {
        Some(planned) => format!("memory {peak} of {planned} planned"),
        None => format!("memory {peak}"),
    }));
    let verdict = run.verdict();
    parts.extend(verdict.owner.zip(verdict.share).map(|(owner, share)| format!("{owner} {:.0} %", share * 100.0)));
    parts.extend(gpus(run));
    parts.extend(run.time_left().map(|Seconds(left)| format!("{} left", Seconds(left.round()))));
    format!("{}: {}", run.name(), parts.join(", "))
}

/// Describes the use of each GPU. A utilization says only that a kernel ran.
fn gpus(run: &RunView) -> Vec<String> {
    let gpus = run.last_sample().map(|sample| &sample.gpus[..]).unwrap_or_default();
    let text = |index: u32, share: &f64, what: &str| format!("GPU {index} {what} {:.0} %", share * 100.0);
    gpus.iter()
        .filter_map(|gpu| match (gpu.sm_active.value(), gpu.utilization.value()) {
            (Some(active), _) => Some(text(gpu.index, active, "SM active")),
            (None, Some(busy)) => Some(text(gpu.index, busy, "had a kernel")),
            (None, None) => None,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::{running, running_on_gpu};
    use super::*;

    #[test]
    fn a_line_has_what_is_known() {
        let facts = "birch-07: running, step 240/1000, loss 0.615, 214x real time, \
                     memory 949 MiB of 1000 MiB planned, computing 71 %";
        assert_eq!(line(&RunView::new("a")), "a: no event yet");
        assert_eq!(line(&running()), format!("{facts}, 9m29s left"));
        assert_eq!(line(&running_on_gpu()), format!("{facts}, GPU 0 SM active 41 %, 9m29s left"));
    }
}
