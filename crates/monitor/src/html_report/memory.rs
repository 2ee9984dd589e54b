//! The section about the memory of a run: what was used at each step, against what was planned, by owner.

use plimsoll_core::{Bytes, counted};

use super::curves::unit_of;
use super::detail::Detail;
use super::html::{note, number, percent, table};
use super::numbers::RunNumbers;
use super::plan::{MemoryOwner, PlannedMemory};
use super::plot::{Parts, StackedBar, figure, labels, strip};
use super::run_data::{RunData, StepFacts};
use super::scale::Scale;

/// Most bars of the memory over the steps.
const BARS_MAX: usize = 240;
/// Room above the highest bar or the plan, as a factor.
const ROOM: f64 = 1.04;

/// Makes the body of the section of a single run.
pub(super) fn memory(run: &RunData, numbers: &RunNumbers, detail: &Detail) -> String {
    let planned = run.plan.memory(run.report.setup.parameters);
    format!("{}{}{}", sentence(run, numbers), over_steps(run, planned.as_ref(), detail), plan_table(planned.as_ref()))
}

/// Says how much memory the run took, of how much.
fn sentence(run: &RunData, numbers: &RunNumbers) -> String {
    let peak = Bytes(numbers.peak_bytes);
    if peak.0 == 0 {
        return String::new();
    }
    let planned = run.plan.peak().filter(|planned| planned.0 > 0).map_or(String::new(), |planned| {
        let class = if peak > planned { " class=\"warn\"" } else { "" };
        format!(", <b{class}>{}</b> of the {planned} planned", percent(peak.0 as f64 / planned.0 as f64))
    });
    let budget = run.plan.budget().map_or(String::new(), |budget| format!(" The run may use {budget}."));
    format!("<p>The peak was <b>{peak}</b>{planned}.{budget}</p>\n")
}

/// Draws the highest memory of neighboring steps as stacked bars, with the plan as a line.
fn over_steps(run: &RunData, planned: Option<&PlannedMemory>, detail: &Detail) -> String {
    let steps: Vec<&StepFacts> = run.steps.iter().filter(|step| step.peak.0 > 0).collect();
    let [first, .., last] = &steps[..] else { return String::new() };
    let highest = steps.iter().map(|step| step.peak.0).max().unwrap_or(0) as f64;
    let limit = planned.map(|planned| planned.peak().0 as f64);
    let top = highest.max(limit.unwrap_or(0.0)) * ROOM;
    let (unit, size) = unit_of(top);
    let fixed = planned.map_or(&[][..], PlannedMemory::of_model);
    let rest = if planned.is_some_and(PlannedMemory::has_process) { MemoryOwner::Rest } else { MemoryOwner::Step };
    let wide = (last.step - first.step + 1) as f64;
    let chunk = steps.len().div_ceil(BARS_MAX.min(detail.points).max(1));
    let bar = |part: &[&StepFacts]| {
        let highest = part.iter().map(|step| step.peak.0).max().unwrap_or(0) as f64;
        let (mut left, mut parts) = (highest, Vec::new());
        for (owner, bytes) in fixed {
            let taken = (bytes.0 as f64).min(left);
            left -= taken;
            parts.push((*owner as usize, taken / top));
        }
        parts.push((rest as usize, left / top));
        let (from, to) = (part[0].step, part[part.len() - 1].step);
        let steps = if from == to { format!("step {from}") } else { format!("steps {from} to {to}") };
        let place = |step: u64| (step - first.step) as f64 / wide;
        StackedBar {
            from: place(from),
            to: place(to + 1).min(1.0),
            parts,
            title: format!("{steps}: {}", Bytes(highest as u64)),
        }
    };
    let bars: Vec<StackedBar> = steps.chunks(chunk.max(1)).map(bar).collect();
    let spoken = format!("Memory by owner over the steps: highest {}", Bytes(highest as u64));
    let svg = strip(&spoken, Parts::Memory, &bars, limit.map(|limit| limit / top));
    let y = labels(&Scale::linear(0.0, top / size), 4, number);
    let x = labels(&Scale::linear(first.step as f64, (last.step + 1) as f64), 6, number);
    let owners = fixed.iter().map(|(owner, _)| *owner).chain([rest]);
    let mut legend: String = owners.map(|owner| format!("<span>{}{}</span>", swatch(owner), owner.label())).collect();
    if limit.is_some() {
        legend += "<span><i class=\"key dashed c12\"></i>planned peak</span>";
    }
    let caption = format!("<b>Memory by owner</b> <span class=\"unit\">{unit}</span>");
    let measured = match (fixed.is_empty(), chunk) {
        (true, 1) => "Each bar is the peak of a step.".into(),
        (true, _) => format!("Each bar is the highest peak of {}.", counted(chunk as u64, "step")),
        (false, _) => "The peaks are measured. What the model takes is from the plan, and the rest is the difference: \
                       the record does not divide a peak by owner."
            .to_string(),
    };
    let drawn = figure("plot ledger", &caption, &svg, &y, (&x, "step"), "");
    format!("{drawn}<p class=\"legend\">{legend}</p>\n{}", note(&measured))
}

/// Makes a bar and a table of the planned peak by owner.
fn plan_table(planned: Option<&PlannedMemory>) -> String {
    // One owner is no division.
    let Some(planned) = planned.filter(|planned| planned.peak().0 > 0 && planned.parts().len() > 1) else {
        return String::new();
    };
    let share = |bytes: Bytes| bytes.0 as f64 / planned.peak().0 as f64;
    let cell = |owner: MemoryOwner, bytes: Bytes| {
        let width = (share(bytes) * 100.0).clamp(0.0, 100.0);
        let (share, owner) = (percent(share(bytes)), owner as usize);
        format!("<span class=\"share\">{share}<i class=\"m{owner}\" style=\"width:{width:.1}%\"></i></span>{bytes}")
    };
    let row = |(owner, bytes): &(MemoryOwner, Bytes)| {
        vec![format!("{}{}", swatch(*owner), owner.label()), cell(*owner, *bytes)]
    };
    let mut rows: Vec<Vec<String>> = planned.parts().iter().map(row).collect();
    let total = format!("<span class=\"share\"><b>100 %</b></span><b>{}</b>", planned.peak());
    rows.push(vec!["<b>planned peak</b>".into(), total]);
    format!("<h3>The plan by owner</h3>\n{}", table("The planned memory by owner", "times", &[], &rows))
}

fn swatch(owner: MemoryOwner) -> String {
    format!("<i class=\"swatch m{}\"></i>", owner as usize)
}
