//! `plimsoll scale`: what more machines would bring to a run, before they are rented.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use plimsoll_core::{Bytes, Event, PlanHeader, StepEvent, TimeOwner, read_text_file};
use plimsoll_monitor::{Host, read_records};
use plimsoll_mpi::scale::{Cluster, Link, Prediction, Step, table};
use plimsoll_recipes::processes::Processes;
use plimsoll_recipes::training::named_run;
use plimsoll_recipes::{Failure, FailureExt};
use serde::Deserialize;
use serde_json::json;

use crate::number::number_in;

/// Steps at the start of a run that do not count: they wait for the loader, and compile kernels.
const WARM_STEPS: usize = 3;
/// Largest number of ranks of a table.
const RANKS_MAX: usize = 1 << 16;
/// Ways between ranks of one machine where nothing is measured: host memory of a common server.
const WITHIN: Link = Link { latency_seconds: 5e-6, message_seconds: 1e-6, bytes_per_second: 2e9 };

/// Networks that have a name: latency in seconds, and bytes a second in one direction that programs see.
const NETWORKS: [(&str, f64, f64); 6] = [
    ("1gbe", 50e-6, 0.11e9),
    ("10gbe", 30e-6, 1.1e9),
    ("25gbe", 20e-6, 2.8e9),
    ("100gbe", 10e-6, 11e9),
    ("hdr", 3e-6, 22e9),
    ("ndr", 2e-6, 45e9),
];

/// Arguments of `scale`.
#[derive(Debug, Args)]
pub(crate) struct ScaleArgs {
    /// Run whose steps are measured, by name or folder: a run of one process.
    #[arg(long, value_name = "RUN")]
    run: PathBuf,
    /// Number of processes on a machine: one for each GPU, or on a CPU 1.
    #[arg(long, value_name = "N", default_value = "1", value_parser = |text: &str| number_in(text, 1..=1024))]
    ranks_per_node: NonZeroUsize,
    /// Network between the machines: 1gbe, 10gbe, 25gbe, 100gbe, hdr or ndr (InfiniBand). Default: as measured, if MPI started
    /// this command on several machines, or else 10gbe.
    #[arg(long, value_name = "NAME", value_parser = NETWORKS.map(|(name, ..)| name))]
    network: Option<String>,
    /// Latency of the network in microseconds, in place of that of --network.
    #[arg(long, value_name = "MICROSECONDS", value_parser = positive)]
    latency: Option<f64>,
    /// Bandwidth of the network a second in one direction, such as 1.1GB, in place of that of --network.
    #[arg(long, value_name = "SIZE")]
    bandwidth: Option<Bytes>,
    /// Price of a machine for an hour, for the price of training on an hour of audio.
    #[arg(long, value_name = "PRICE", value_parser = positive)]
    price: Option<f64>,
    /// Largest number of processes of the table.
    #[arg(long, value_name = "N", default_value = "1024", value_parser = |text: &str| number_in(text, 1..=RANKS_MAX))]
    ranks: NonZeroUsize,
    /// Print one JSON object instead of a table.
    #[arg(long)]
    json: bool,
}

/// Parses a number above 0.
fn positive(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number: &f64| number.is_finite() && *number > 0.0);
    number.ok_or_else(|| "expected a number above 0".into())
}

/// Prints what more processes would bring to a run. Under MPI it measures the links between its processes first.
pub(crate) fn scale(args: &ScaleArgs) -> Result<ExitCode, Failure> {
    let processes = Processes::join()?;
    let (measured, full_speed) = (processes.measure_link()?, processes.measure_full_speed()?);
    if !processes.is_first() {
        return Ok(ExitCode::SUCCESS);
    }
    let (step, facts) = measured_step(&named_run(&args.run))?;
    let is_one_machine = processes.local_ranks() == processes.ranks();
    let (within, between) = links(args, measured, is_one_machine);
    let cluster = Cluster {
        within,
        between,
        ranks_per_node: args.ranks_per_node.get(),
        full_speed_ranks: match (full_speed, facts.host_threads) {
            // On GPUs the processors say nothing, and fewer processes than asked for say nothing of more.
            (Some(measured), Some(_)) if processes.local_ranks() >= args.ranks_per_node.get() => measured,
            // A process that is bound to a core sees no other.
            _ => facts.full_speed_ranks(args.ranks_per_node.get()).max(full_speed.unwrap_or(1.0)),
        },
        node_hour_cost: args.price,
    };
    let rows = table(&step, &cluster, args.ranks.get());
    if args.json {
        let all = json!({"step": step, "cluster": cluster, "steps_measured": facts.steps, "half_of_steps": facts.half, "table": rows});
        println!("{all:#}");
    } else {
        let is_measured = [is_one_machine, !is_one_machine].map(|is_this| measured.is_some() && is_this);
        print!("{}", report(&step, &cluster, &facts, &rows, is_measured));
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the links within a machine and between machines: as the flags say, as measured, or usual ones.
fn links(args: &ScaleArgs, measured: Option<Link>, is_one_machine: bool) -> (Link, Link) {
    let within = measured.filter(|_| is_one_machine).unwrap_or(WITHIN);
    let named = |name: &str| {
        let found = NETWORKS.iter().find(|(known, ..)| *known == name);
        found.map(|&(_, latency, bytes)| Link {
            latency_seconds: latency,
            message_seconds: 1e-6,
            bytes_per_second: bytes,
        })
    };
    let between = match &args.network {
        Some(name) => named(name),
        None => measured.filter(|_| !is_one_machine).or_else(|| named("10gbe")),
    };
    let mut between = between.expect("clap accepts only these names");
    if let Some(latency) = args.latency {
        between.latency_seconds = latency * 1e-6;
    }
    if let Some(bandwidth) = args.bandwidth {
        between.bytes_per_second = bandwidth.0.max(1) as f64;
    }
    (within, between)
}

/// Part of `plan.toml` that is read.
#[derive(Deserialize)]
struct PlanFile {
    #[serde(flatten)]
    header: PlanHeader,
    training: TrainingTable,
}

#[derive(Deserialize)]
struct TrainingTable {
    replicas: usize,
}

/// What the record of a run says besides its step.
struct RunFacts {
    /// Number of steps that were measured.
    steps: usize,
    /// Times between which half of the steps lie.
    half: [f64; 2],
    /// Threads of the process that trained, if the CPU did.
    host_threads: Option<usize>,
}

impl RunFacts {
    /// Returns how many processes of a machine like this one compute at full speed: all, if each has a GPU.
    fn full_speed_ranks(&self, ranks_per_node: usize) -> f64 {
        let count = match self.host_threads {
            Some(threads) => (Host::read().logical_cpus / threads.max(1)).max(1),
            None => ranks_per_node,
        };
        count as f64
    }
}

/// Returns the median step of a run, as its record has it.
fn measured_step(run: &Path) -> Result<(Step, RunFacts), Failure> {
    if !run.join("metrics.jsonl").is_file() {
        return Err(Failure::no_run(run, &plimsoll_config::runs_folder()));
    }
    let records = read_records(&run.join("metrics.jsonl")).invalid()?;
    let steps = records.into_iter().filter_map(|record| match record.event {
        Event::Step(step) if !step.times.is_empty() => Some(step),
        _ => None,
    });
    let steps: Vec<StepEvent> = steps.skip(WARM_STEPS).collect();
    if steps.is_empty() {
        let message = format!("{} has no step after the first {WARM_STEPS} whose time was measured", run.display());
        return Err(Failure::invalid(message, "train some 20 steps first: `train --steps 20`"));
    }
    let plan = read_text_file(run.join("plan.toml")).invalid()?;
    let PlanFile { header, training } = toml::from_str(&plan).map_err(|error| {
        let message = format!("cannot read {}: {}", run.join("plan.toml").display(), error.message());
        Failure::invalid(message, "the plan of a run is written when it begins: train some 20 steps again")
    })?;
    if let replicas @ 2.. = training.replicas {
        let message =
            format!("{} trained with {replicas} replicas, and each recorded its own part of a step", run.display());
        return Err(Failure::invalid(message, "measure a run of one process: `train --steps 20`"));
    }
    let unknown = |what| {
        let message = format!("the plan of {} does not say {what}", run.display());
        Failure::invalid(message, "train some 20 steps with this version: `train --steps 20`")
    };
    let parameters = header.parameters.ok_or_else(|| unknown("how many parameters the model has"))?;
    let hop_seconds = header.hop_seconds.ok_or_else(|| unknown("how long a frame is"))?;
    let median = |value: &dyn Fn(&StepEvent) -> f64| {
        let mut values: Vec<f64> = steps.iter().map(value).collect();
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    let of =
        |owners: &'static [TimeOwner]| move |step: &StepEvent| owners.iter().map(|&owner| step.times.get(owner)).sum();
    let shared = of(SHARED);
    let each: Vec<(f64, f64)> = steps.iter().filter_map(|step| Some((padded_frames(step)?, shared(step)))).collect();
    let (compute, (of_each, jitter)) = (median(&shared), fixed_and_jitter(&each));
    let mut seconds: Vec<f64> = steps.iter().map(|step| shared(step) + of(OWN)(step)).collect();
    seconds.sort_by(f64::total_cmp);
    let half = [seconds[seconds.len() / 4], seconds[seconds.len() - 1 - seconds.len() / 4]];
    let utterances = median(&|step| step.shape.map_or(step.micro_batches, |shape| shape.utterances as usize) as f64);
    let step = Step {
        compute_seconds: (compute - of_each).max(0.0),
        fixed_seconds: median(&of(OWN)) + of_each,
        gradient_bytes: parameters as f64 * size_of::<f32>() as f64,
        micro_batches: (utterances as usize).max(1),
        audio_seconds: median(&|step| step.frames as f64) * hop_seconds,
        jitter,
    };
    let device = header.device.unwrap_or_default();
    let host_threads = device.strip_prefix("the CPU, ").and_then(|rest| rest.split(' ').next()?.parse().ok());
    Ok((step, RunFacts { steps: steps.len(), half, host_threads }))
}

/// Returns the frames of a batch with its padding.
fn padded_frames(step: &StepEvent) -> Option<f64> {
    step.shape.map(|shape| f64::from(shape.utterances) * shape.frames.0 as f64)
}

/// Returns what each process spends on its part of a batch, however small, from the frames and times of batches of several
/// sizes: the time of a batch of no frames. And how much batches of one size differ: the standard deviation, as a share. Both
/// follow from medians, so that single slow steps change little.
fn fixed_and_jitter(batches: &[(f64, f64)]) -> (f64, f64) {
    /// Pairs of batches that differ enough, below which nothing is known.
    const PAIRS_MIN: usize = 20;
    /// Batches that are compared with each other.
    const BATCHES_MAX: usize = 200;
    /// Standard deviation of normal numbers whose absolute values have the median 1.
    const SPREAD: f64 = 1.4826;
    let median = |mut values: Vec<f64>| {
        values.sort_by(f64::total_cmp);
        values.get(values.len() / 2).copied().unwrap_or(0.0)
    };
    let some = &batches[..batches.len().min(BATCHES_MAX)];
    let usual = median(some.iter().map(|&(frames, _)| frames).collect());
    let differ = |a: f64, b: f64| (a - b).abs() > 0.1 * usual;
    let pairs =
        some.iter().enumerate().flat_map(|(index, one)| some[index + 1..].iter().map(move |other| (one, other)));
    let slopes: Vec<f64> = pairs
        .filter(|(one, other)| differ(one.0, other.0))
        .map(|(one, other)| (one.1 - other.1) / (one.0 - other.0))
        .collect();
    let slope = if slopes.len() < PAIRS_MIN { 0.0 } else { median(slopes).max(0.0) };
    let rest: Vec<f64> = some.iter().map(|&(frames, seconds)| seconds - slope * frames).collect();
    let (fixed, whole) = (median(rest.clone()), median(some.iter().map(|&(_, seconds)| seconds).collect()));
    let off = median(rest.iter().map(|rest| (rest - fixed).abs()).collect());
    let jitter = if whole > 0.0 { SPREAD * off / whole } else { 0.0 };
    // Without a slope nothing says what of the time is fixed.
    (if slope > 0.0 { fixed.clamp(0.0, whole) } else { 0.0 }, jitter)
}

/// Owners of time that more processes share.
const SHARED: &[TimeOwner] =
    &[TimeOwner::Data, TimeOwner::Transfer, TimeOwner::Submit, TimeOwner::Compute, TimeOwner::Read, TimeOwner::Retry];
/// Owners of time that each process spends itself.
const OWN: &[TimeOwner] = &[TimeOwner::Optimizer, TimeOwner::Record, TimeOwner::Unknown];

/// Formats the table. `is_measured`: whether the links within a machine and between machines were measured.
fn report(step: &Step, cluster: &Cluster, facts: &RunFacts, rows: &[Prediction], is_measured: [bool; 2]) -> String {
    let millis = |seconds: f64| seconds * 1e3;
    let link = |link: Link, is_measured: bool| {
        let how = if is_measured { "measured" } else { "assumed" };
        let (latency, bandwidth) = (link.latency_seconds * 1e6, Bytes(link.bytes_per_second as u64));
        format!("{latency:.0} us, {bandwidth} a second ({how})")
    };
    let mut text = format!(
        "median of {} steps, half of them from {:.0} to {:.0} ms: {:.0} ms to share, {:.0} ms of each process, {} of gradients, {:.0} s of audio in {} parts\n\
         within a machine: {}\nbetween machines: {}\n{} a machine\n\n",
        facts.steps,
        millis(facts.half[0]),
        millis(facts.half[1]),
        millis(step.compute_seconds),
        millis(step.fixed_seconds),
        Bytes(step.gradient_bytes as u64),
        step.audio_seconds,
        step.micro_batches,
        link(cluster.within, is_measured[0]),
        link(cluster.between, is_measured[1]),
        plimsoll_core::counted(cluster.ranks_per_node, "process"),
    );
    let price = if cluster.node_hour_cost.is_some() { "  per audio hour" } else { "" };
    text += &format!("processes  machines     step  computing  own  exchange  faster  efficiency{price}\n");
    for row in rows {
        let price = row.audio_hour_cost.map_or(String::new(), |cost| format!("  {cost:>14.4}"));
        text += &format!(
            "{:>9}  {:>8}  {:>4.0} ms  {:>6.0} ms {:>4.0}  {:>5.0} ms  {:>5.2}x  {:>8.0} %{price}\n",
            row.ranks,
            row.nodes,
            millis(row.step_seconds),
            millis(row.compute_seconds),
            millis(row.fixed_seconds),
            millis(row.sum_seconds),
            row.speedup,
            row.efficiency * 100.0,
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_each_process_spends_follows_from_batches_of_several_sizes() {
        let batches = |fixed: f64, sizes: &[f64]| -> Vec<(f64, f64)> {
            sizes.iter().cycle().take(40).map(|&frames| (frames, fixed + 1e-4 * frames)).collect()
        };
        for fixed in [0.0, 0.02, 0.5] {
            let (found, jitter) = fixed_and_jitter(&batches(fixed, &[500.0, 800.0, 1300.0]));
            assert!((found - fixed).abs() < 1e-9 && jitter < 1e-9, "{found} {jitter} {fixed}");
        }
        // One slow step changes nothing.
        let mut slow = batches(0.02, &[500.0, 800.0, 1300.0]);
        slow[7].1 = 5.0;
        assert!((fixed_and_jitter(&slow).0 - 0.02).abs() < 1e-9);
        // Of batches of one size only the spread is known: half of these are a tenth slower, half a tenth faster.
        let equal: Vec<(f64, f64)> = (0..40).map(|index| (500.0, [0.9, 1.1][index % 2])).collect();
        let (found, jitter) = fixed_and_jitter(&equal);
        assert!(found == 0.0 && (0.1..0.3).contains(&jitter), "{found} {jitter}");
        assert_eq!(fixed_and_jitter(&[]), (0.0, 0.0));
        // Steps that are faster with more frames say nothing.
        let odd: Vec<(f64, f64)> =
            (0..40).map(|index| (f64::from(index) * 100.0, 1.0 - f64::from(index) * 0.01)).collect();
        assert_eq!(fixed_and_jitter(&odd).0, 0.0);
    }
}
