//! Page that says where each number comes from.

use plimsoll_core::Seconds;
use ratatui::text::Line;

use super::style::Look;
use crate::live::RunView;
use crate::sample::Reading;

/// What each number means, and what it does not.
const MEANINGS: &[(&str, &str)] = &[
    ("time", "The record of the run: wall time of the last 50 steps by owner. It is time of the host,"),
    ("", "not of the device. A step without measured times counts as unknown."),
    ("memory", "The record: highest use of the device by this process, and the plan. Other processes"),
    ("", "and the memory of the driver do not count."),
    ("speed", "The record: audio without padding over the wall time of the last 50 steps, with"),
    ("", "validations and checkpoints among them."),
    ("loss", "The record: mean of a batch. The curve is logarithmic if all losses are above zero."),
    ("kernel", "Share of the time in which at least one kernel ran. It does not say how much of the"),
    ("", "GPU worked: one small kernel is enough for 100 %."),
    ("SM", "Share of the multiprocessors that had work, on average (GPM). Not how fast they worked."),
    ("tensor", "Share of the time in which tensor cores worked (GPM)."),
    ("DRAM", "Share of the memory bandwidth that was used (GPM)."),
    ("process", "Process numbers are those of the driver: in a container they differ from those inside."),
];

/// Writes the page.
pub(super) fn lines(run: &RunView, look: Look) -> Vec<Line<'static>> {
    let mut lines = vec![Line::styled("Where the numbers come from", look.strong())];
    lines.extend(MEANINGS.iter().map(|(name, text)| look.named(name, *text)));
    let age = |age: Option<Seconds>| look.value(age, |age| format!("{age} ago"));
    let (record, sample) = (age(run.record_age()), age(run.sample_age()));
    lines.push(look.named("age", format!("last record {record}, last sample {sample}")));
    let Some(sample) = run.last_sample() else { return lines };
    lines.push(
        look.named("host", origin(&sample.host.cpu, "CPU") + ", " + &origin(&sample.host.memory_total, "memory")),
    );
    for gpu in &sample.gpus {
        let busy = [("kernel", &gpu.utilization), ("SM", &gpu.sm_active), ("tensor", &gpu.tensor_active)];
        let rest = [("power", &gpu.power), ("clock", &gpu.sm_clock), ("heat", &gpu.temperature)];
        let memory = origin(&gpu.memory_used, "memory");
        let join = |parts: [(&str, &Reading<f64>); 3]| parts.map(|(name, value)| origin(value, name)).join(", ");
        lines.push(look.named(&format!("GPU {}", gpu.index), format!("{memory}, {}", join(busy))));
        lines.push(look.named("", join(rest)));
    }
    lines
}

/// Describes source and age of a reading, or the reason why it is missing.
fn origin<T>(reading: &Reading<T>, name: &str) -> String {
    match reading.why_missing() {
        Some(why) => format!("{name}: {why}"),
        None if reading.age_seconds > 0.0 => {
            format!("{name}: {}, {} old", reading.origin, Seconds(reading.age_seconds))
        }
        None => format!("{name}: {}", reading.origin),
    }
}
