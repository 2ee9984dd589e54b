//! A profile as text.

use std::collections::BTreeMap;
use std::fmt::Write;

use plimsoll_core::units::AudioSpeed;
use plimsoll_core::{Bytes, PoolMemory, PoolPages, Seconds, counted};
use plimsoll_train::LayerTime;

use super::measured::Profile;

/// Number of rows of a table that are printed; the JSON form has all.
const ROWS: usize = 12;
const WIDTH: usize = 28;
/// Width of the names of kernels.
const NAME: usize = 44;

/// Formats `profile` for people.
pub(super) fn page(profile: &Profile) -> String {
    let mut text = String::new();
    head(&mut text, profile);
    times(&mut text, profile);
    memory(&mut text, profile);
    shapes(&mut text, profile);
    layers(&mut text, profile);
    kernels(&mut text, profile);
    operations(&mut text, profile);
    text
}

fn head(text: &mut String, profile: &Profile) {
    let placement = &profile.placement;
    let (tensors, values) = (counted(placement.parameters, "parameter tensor"), placement.values);
    let _ = writeln!(text, "{tensors} with {values} values, all on {}", placement.device);
    let Profile { seconds_per_step, audio_seconds_per_second, loading, left_out, .. } = profile;
    let first = if *left_out > 0 { format!(" (the first {left_out} are left out)") } else { String::new() };
    let _ = writeln!(
        text,
        "{}{first}: {} a step, {}",
        counted(profile.steps, "step"),
        Seconds(*seconds_per_step),
        AudioSpeed(*audio_seconds_per_second)
    );
    let alone = loading.audio_seconds_per_second;
    let _ = writeln!(
        text,
        "loading alone: {}, {:.1} times the speed of training",
        AudioSpeed(alone),
        alone / audio_seconds_per_second.max(f64::MIN_POSITIVE)
    );
    let _ = writeln!(
        text,
        "a step has {:.1} micro-batches and {:.1} reads from the device; {:.1} % of a batch is padding",
        profile.micro_batches,
        profile.reads,
        profile.padding * 100.0
    );
    if let (Some(launches), Some(uploads)) = (profile.launches, profile.uploads) {
        let each = launches / profile.micro_batches.max(1.0);
        let _ = writeln!(
            text,
            "the host launches {launches:.0} kernels ({each:.0} for each micro-batch) and sends {uploads:.1} tensors"
        );
    }
}

fn times(text: &mut String, profile: &Profile) {
    let _ = writeln!(text, "\nTime of a step by owner");
    let mut owners: Vec<_> = profile.times.iter().collect();
    owners.sort_by(|a, b| b.1.total_cmp(&a.1));
    for (owner, seconds) in owners {
        let share = profile.times.share(owner);
        let each = Seconds(seconds / profile.steps.max(1) as f64);
        let _ = writeln!(text, "  {owner:<WIDTH$} {:>5.1} %  {each:>8}  {}", share * 100.0, bar(share));
    }
}

fn memory(text: &mut String, profile: &Profile) {
    let memory = &profile.memory;
    let _ = writeln!(text, "\nMemory");
    let known = |bytes: Option<Bytes>, unknown: &str| bytes.map_or_else(|| unknown.to_string(), |b| b.to_string());
    let _ = writeln!(text, "  {:<WIDTH$} {:>10}", "highest, measured", known(memory.peak_bytes, "not measured"));
    let _ = writeln!(text, "  {:<WIDTH$} {:>10}", "planned for the run", known(memory.planned_bytes, "not planned"));
    let mut owners: Vec<_> = memory.owners.iter().collect();
    owners.sort_by_key(|(_, bytes)| std::cmp::Reverse(**bytes));
    if !owners.is_empty() {
        let _ = writeln!(text, "  planned at the peak of the largest step:");
    }
    for (owner, bytes) in owners {
        let _ = writeln!(text, "    {:<36} {:>10}", owner.replace('_', " "), bytes.to_string());
    }
    if let Some(pools) = &memory.pools {
        pages(text, pools);
        for (key, value) in &memory.settings {
            let _ = writeln!(text, "    {key} = {value}");
        }
    }
}

fn pages(text: &mut String, pools: &PoolMemory) {
    let (reserved, in_use) = (pools.reserved_bytes, pools.in_use_bytes);
    let _ = writeln!(text, "  pools of the GPU after the last step: {reserved} reserved, {in_use} in use");
    for pages in pools.pages.iter().filter(|pages| pages.most > 0) {
        let PoolPages { page_bytes, count, most, largest_bytes } = pages;
        let count = counted(*count as usize, "page");
        let largest = format!("{most} at most, largest tensor {largest_bytes}");
        let _ = writeln!(
            text,
            "    {:<36} {:>10}  {largest}",
            format!("{count} of {page_bytes}"),
            pages.held().to_string()
        );
    }
    let outside = pools.outside_pages();
    if outside.0 > 0 {
        let _ = writeln!(text, "    {:<36} {:>10}", "outside of pages", outside.to_string());
    }
}

fn shapes(text: &mut String, profile: &Profile) {
    let rows = &profile.shapes;
    let compiling: f64 = rows.iter().map(|row| row.compile_seconds).sum();
    let cost = if compiling > 0.0 { format!(", {} of compiling", Seconds(compiling)) } else { String::new() };
    let _ = writeln!(text, "\nPadded shapes: {} in these steps{cost}", rows.len());
    for row in rows.iter().take(ROWS.min(5)) {
        let shape = row.shape;
        let _ = writeln!(
            text,
            "  {:>3} x {:>5} frames x {:>4} tokens  {:>9}  {:>8} a step",
            shape.utterances,
            shape.frames.0,
            shape.tokens,
            counted(row.steps, "step"),
            Seconds(row.seconds_per_step)
        );
    }
    rest(text, rows.len(), 5);
}

fn layers(text: &mut String, profile: &Profile) {
    if profile.layers.is_empty() {
        return;
    }
    let cost = match profile.layer_cost {
        cost if cost > 0.0 => format!("the clock makes a step {:.0} % longer", cost * 100.0),
        _ => "the clock costs less than can be measured here".into(),
    };
    let lanes = match profile.lanes {
        1 => String::new(),
        lanes => format!(", {lanes} micro-batches at the same time"),
    };
    let _ = writeln!(text, "\nTime of a micro-batch by part of the model ({cost}{lanes})");
    let _ = writeln!(text, "  {:<WIDTH$} {:>7} {:>9} {:>9} {:>9}", "part", "share", "forward", "backward", "again");
    let all: f64 = profile.layers.iter().map(LayerTime::seconds).sum();
    let mut parts = parts(&profile.layers);
    parts.sort_by(|a, b| b.seconds().total_cmp(&a.seconds()));
    for part in parts.iter().take(ROWS) {
        let each = |seconds: f64| match seconds {
            0.0 => "-".to_string(),
            _ => Seconds(seconds / part.count.max(1) as f64).to_string(),
        };
        let _ = writeln!(
            text,
            "  {:<WIDTH$} {:>5.1} % {:>9} {:>9} {:>9}",
            part.name,
            part.seconds() / all.max(f64::MIN_POSITIVE) * 100.0,
            each(part.forward),
            each(part.backward),
            each(part.recomputed)
        );
    }
    rest(text, parts.len(), ROWS);
}

fn kernels(text: &mut String, profile: &Profile) {
    let Some(kernels) = &profile.kernels else { return };
    if kernels.rows.is_empty() {
        let _ = writeln!(text, "\nThe device times no kernels");
        return;
    }
    let share = kernels.seconds_per_step / profile.seconds_per_step.max(f64::MIN_POSITIVE);
    let _ = writeln!(
        text,
        "\nTime of a step by kernel: {} together, {:.0} % of a step without the clock, which makes a step {:.0} % longer",
        Seconds(kernels.seconds_per_step),
        share * 100.0,
        kernels.cost.max(0.0) * 100.0
    );
    let _ = writeln!(text, "  {:<NAME$} {:>7} {:>9} {:>9} {:>9}", "kernel", "share", "launches", "a step", "each");
    for row in kernels.rows.iter().take(ROWS) {
        let by_host = if row.by_host > 0.0 { "  timed by the host" } else { "" };
        let _ = writeln!(
            text,
            "  {:<NAME$} {:>5.1} % {:>9.1} {:>9} {:>9}{by_host}",
            shortened(&row.short_name()),
            row.share * 100.0,
            row.count,
            Seconds(row.seconds).to_string(),
            Seconds(row.seconds / row.count.max(f64::MIN_POSITIVE)).to_string()
        );
    }
    rest(text, kernels.rows.len(), ROWS);
}

/// Cuts a name that is too long for its column.
fn shortened(name: &str) -> String {
    match name.chars().count() {
        0..=NAME => name.into(),
        _ => name.chars().take(NAME - 3).chain("...".chars()).collect(),
    }
}

/// Sums the layers of each part of a model. A block is divided further, and equal parts of several blocks are one row:
/// `blocks.0.attention.output` belongs to `blocks.*.attention`.
fn parts(layers: &[LayerTime]) -> Vec<LayerTime> {
    let mut parts: BTreeMap<String, LayerTime> = BTreeMap::new();
    for layer in layers {
        let name = part_name(&layer.name);
        let part = parts.entry(name.clone()).or_insert_with(|| LayerTime { name, ..LayerTime::default() });
        part.forward += layer.forward;
        part.backward += layer.backward;
        part.recomputed += layer.recomputed;
        // All layers of a model run once for each micro-batch.
        part.count = part.count.max(layer.count);
    }
    parts.into_values().collect()
}

fn part_name(layer: &str) -> String {
    let words: Vec<&str> = layer.split('.').collect();
    let is_number = |word: &&str| word.bytes().all(|byte| byte.is_ascii_digit());
    let kept = match words.iter().position(is_number) {
        Some(number) => number + 2,
        None => 1,
    };
    let word = |word: &&str| if is_number(word) { "*".to_string() } else { (*word).to_string() };
    words.iter().take(kept).map(word).collect::<Vec<_>>().join(".")
}

fn operations(text: &mut String, profile: &Profile) {
    if profile.operations.is_empty() {
        return;
    }
    let _ = writeln!(text, "\nCost of a micro-batch by operation (estimated from its sizes)");
    let _ = writeln!(text, "  {:<WIDTH$} {:>7} {:>7} {:>10} {:>10}", "operation", "share", "count", "GFLOP", "moved");
    for row in profile.operations.iter().take(ROWS) {
        let _ = writeln!(
            text,
            "  {:<WIDTH$} {:>5.1} % {:>7} {:>10.2} {:>10}",
            row.name,
            row.share * 100.0,
            row.count,
            row.operations / 1e9,
            Bytes(row.bytes as u64).to_string()
        );
    }
    rest(text, profile.operations.len(), ROWS);
}

fn rest(text: &mut String, all: usize, shown: usize) {
    if all > shown {
        let _ = writeln!(text, "  and {} more (--json has all)", all - shown);
    }
}

fn bar(share: f64) -> String {
    "#".repeat((share * 40.0).round() as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_kernels_fit_their_column() {
        assert_eq!(shortened("CopyKernel"), "CopyKernel");
        let long = shortened(&"x".repeat(NAME + 1));
        assert!(long.len() == NAME && long.ends_with("..."), "{long}");
    }

    #[test]
    fn layers_of_several_blocks_are_one_part() {
        for (layer, part) in [
            ("loss", "loss"),
            ("output", "output"),
            ("subsampling.layers.0", "subsampling.layers.*"),
            ("blocks.11.attention.output", "blocks.*.attention"),
            ("decoder.blocks.3.cross.query", "decoder.blocks.*.cross"),
            ("decoder.embedding", "decoder"),
        ] {
            assert_eq!(part_name(layer), part, "{layer}");
        }
        let layer = |name: &str, forward| LayerTime { name: name.into(), forward, count: 4, ..LayerTime::default() };
        let found = parts(&[layer("blocks.0.first.widen", 1.0), layer("blocks.1.first.narrow", 2.0)]);
        assert_eq!(found, [layer("blocks.*.first", 3.0)]);
    }
}
