//! The time ledger: stacked bars over the time of each run, and the totals of each owner.

use plimsoll_core::{Seconds, TimeOwner, TimeShares};

use super::detail::Detail;
use super::html::{clipped, note, number, percent, table};
use super::numbers::{Bar, RunNumbers};
use super::plot::{Parts, StackedBar, figure, labels, strip};
use super::run_data::{RunData, TimeSource};
use super::scale::Scale;
use super::verdict::titles;

/// Owners from the bottom of a bar to its top: work, then waiting, then work beside the steps, then losses.
const STACK: [TimeOwner; 15] = [
    TimeOwner::Compute,
    TimeOwner::Optimizer,
    TimeOwner::Submit,
    TimeOwner::Transfer,
    TimeOwner::Read,
    TimeOwner::Data,
    TimeOwner::Replicas,
    TimeOwner::Validation,
    TimeOwner::Checkpoint,
    TimeOwner::Record,
    TimeOwner::Compile,
    TimeOwner::Retry,
    TimeOwner::OtherProcess,
    TimeOwner::Throttled,
    TimeOwner::Unknown,
];

/// Draws the ledger of each run on one scale of time, with a legend of the owners that took time.
pub(super) fn ledger(runs: &[RunData], numbers: &[RunNumbers], detail: &Detail) -> String {
    let longest = numbers.iter().map(|run| run.total_seconds).fold(0.0, f64::max);
    if longest <= 0.0 {
        return note("The record holds no times.");
    }
    let strips = runs.iter().zip(numbers).filter(|(_, numbers)| numbers.total_seconds > 0.0);
    let strips = strips.map(|(run, numbers)| run_strip(run, numbers, longest, runs.len() > 1, detail));
    let mut html: String = strips.collect();
    html += &legend(numbers);
    html += &note(
        "Each bar is a few steps in a row: its width is their time, its height is 100 % of it. \
         Point at a bar for its steps and its seconds.",
    );
    if numbers.iter().any(|run| run.times_from == TimeSource::StepAndWait && run.total_seconds > 0.0) {
        html += &note(
            "A record without owners gives the time of steps as unknown, and the time that they waited for data.",
        );
    }
    let repeated: u64 = numbers.iter().map(|run| run.steps_repeated).sum();
    if repeated > 0 {
        html += &note(&format!("The times include {repeated} steps that were taken again after a resume."));
    }
    html
}

/// Makes the table of the seconds and the share of each owner.
pub(super) fn totals(runs: &[RunData], numbers: &[RunNumbers], detail: &Detail) -> String {
    let mut all = TimeShares::default();
    numbers.iter().for_each(|run| all.add_all(&run.times));
    let cells = |times: &TimeShares, owner| {
        let (seconds, share) = (times.get(owner), times.share(owner));
        let width = (share * 100.0).clamp(0.0, 100.0);
        format!(
            "<span class=\"share\">{}<i class=\"o{}\" style=\"width:{width:.1}%\"></i></span>{}",
            percent(share),
            owner as usize,
            Seconds(seconds)
        )
    };
    let mut rows: Vec<Vec<String>> = Vec::new();
    for (owner, _) in all.ranked() {
        let name = format!("{}{}", swatch(owner), owner.label());
        rows.push(std::iter::once(name).chain(numbers.iter().map(|run| cells(&run.times, owner))).collect());
    }
    if rows.is_empty() {
        return String::new();
    }
    let total =
        |run: &RunNumbers| format!("<span class=\"share\"><b>100 %</b></span><b>{}</b>", Seconds(run.total_seconds));
    rows.push(std::iter::once("<b>total</b>".to_string()).chain(numbers.iter().map(total)).collect());
    let titles = if runs.len() > 1 { titles(runs, detail) } else { Vec::new() };
    table("Time by owner", "times", &titles, &rows)
}

fn run_strip(run: &RunData, numbers: &RunNumbers, longest: f64, is_named: bool, detail: &Detail) -> String {
    let bars: Vec<StackedBar> = numbers.bars.iter().map(|bar| stacked(bar, longest)).collect();
    let name = clipped(&run.report.name, detail.text.min(80));
    let svg = strip(&format!("Time by owner: {}", spoken(numbers)), Parts::Time, &bars, None);
    let (unit_name, unit) = match longest {
        _ if longest >= 7200.0 => ("hours", 3600.0),
        _ if longest >= 180.0 => ("minutes", 60.0),
        _ => ("seconds", 1.0),
    };
    let scale = Scale::linear(0.0, longest / unit);
    let x = labels(&scale, 6, number);
    let y = [(0.0, "0"), (0.5, "50 %"), (1.0, "100 %")].map(|(place, text)| (text.to_string(), place));
    let title = if is_named { format!("Time by owner: {name}") } else { "Time by owner".into() };
    figure(
        "plot ledger",
        &format!("<b>{title}</b> <span class=\"unit\">share of each moment</span>"),
        &svg,
        &y,
        (&x, unit_name),
        "",
    )
}

/// Lists the owners with their shares, for readers who do not see the bars.
fn spoken(numbers: &RunNumbers) -> String {
    let owners = numbers.times.ranked().into_iter().map(|(owner, seconds)| {
        let share = numbers.times.share(owner) * 100.0;
        format!("{owner} {share:.0} % ({})", Seconds(seconds))
    });
    owners.collect::<Vec<_>>().join(", ")
}

fn stacked(bar: &Bar, longest: f64) -> StackedBar {
    let total = bar.times.total();
    let parts = STACK.map(|owner| (owner as usize, bar.times.share(owner)));
    let steps = match bar.first_step == bar.last_step {
        true => format!("step {}", bar.first_step),
        false => format!("steps {} to {}", bar.first_step, bar.last_step),
    };
    let owners = bar.times.ranked().into_iter().map(|(owner, seconds)| format!("{owner} {}", Seconds(seconds)));
    StackedBar {
        from: bar.start_seconds / longest,
        to: ((bar.start_seconds + total) / longest).min(1.0),
        parts: parts.into_iter().filter(|(_, share)| *share > 0.0).collect(),
        title: format!("{steps}, {}: {}", Seconds(total), owners.collect::<Vec<_>>().join(", ")),
    }
}

fn legend(numbers: &[RunNumbers]) -> String {
    let used = STACK.into_iter().filter(|owner| numbers.iter().any(|run| run.times.get(*owner) > 0.0));
    let entry = |owner: TimeOwner| format!("<span>{}{}</span>", swatch(owner), owner.label());
    format!("<p class=\"legend\">{}</p>\n", used.map(entry).collect::<String>())
}

fn swatch(owner: TimeOwner) -> String {
    format!("<i class=\"swatch o{}\"></i>", owner as usize)
}
