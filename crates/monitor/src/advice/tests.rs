//! Tests of the advice: each rule with a run that has the problem and one that does not.

mod cases;
mod properties;

use plimsoll_core::{Bytes, Event, PlanHeader, StepEvent, TimeOwner, TimeShares};

use super::*;
use crate::Recorder;

/// Creates a run on a GPU of 50 steps of one second each. `shares` are the shares of its owners; the rest is computing.
fn run_with(shares: &[(TimeOwner, f64)]) -> RunFacts {
    let mut times = TimeShares::default();
    shares.iter().for_each(|&(owner, share)| times.add(owner, share));
    let rest = 1.0 - times.total();
    times.add(TimeOwner::Compute, rest);
    let step = |step| StepEvent { step, times, micro_batches: 1, reads: 1, frames: 1600, ..StepEvent::default() };
    RunFacts {
        name: "a".into(),
        steps: (1..=50).map(step).collect(),
        on_gpu: Some(true),
        total_steps: Some(10_000),
        hop_seconds: Some(0.01),
        host: HostFacts { processors: Some(8), memory: Some(Bytes::gib(64)), available: Some(Bytes::gib(32)) },
        ..RunFacts::default()
    }
    .set("training.checkpoint_interval", "200")
    .set("training.validation_interval", "500")
    .set("data.cache_memory", "1GiB")
}

impl RunFacts {
    fn set(mut self, key: &str, value: &str) -> Self {
        self.config.insert(key.into(), value.into());
        self
    }

    /// Adds a plan that uses all memory.
    fn planned(mut self, change: impl FnOnce(&mut PlanFacts)) -> Self {
        let bucket = BucketFacts { micro_batch: 8, accumulation: 1, utterances: 8, frames: 500, remat: "none".into() };
        let mut plan = PlanFacts {
            budget: Some(Bytes::gib(10)),
            peak: Some(Bytes::gib(9)),
            batches_in_epoch: Some(1000),
            padded_shapes: Some(60),
            training_seconds: Some(3.6e5),
            n_mels: Some(80),
            optimizer_state: Some("full".into()),
            buckets: vec![bucket],
        };
        change(&mut plan);
        self.plan = Some(plan);
        self
    }

    fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }
}

fn alternative(key: &str, to: &str, padding: Option<f64>, seconds_ratio: Option<f64>) -> Alternative {
    let change = Change { key: key.into(), from: None, to: to.into() };
    Alternative { change, padding, seconds_ratio }
}

/// Creates a run that several rules have findings about.
fn ill() -> RunFacts {
    let shares = [(TimeOwner::Data, 0.35), (TimeOwner::Validation, 0.15), (TimeOwner::OtherProcess, 0.06)];
    run_with(&shares).set("data.num_workers", "2").planned(|_| ())
}

#[test]
fn names_in_json_are_stable() {
    insta::assert_snapshot!(serde_json::to_string_pretty(&advise(&ill())).unwrap());
}

#[test]
fn the_page_is_for_people() {
    insta::assert_snapshot!(advise(&ill()));
    let short = RunFacts { name: "b\u{1b}[2J".into(), ..RunFacts::default() };
    insta::assert_snapshot!("short", advise(&short));
}

#[test]
fn colors_change_no_words() {
    let advice = advise(&ill());
    let mut page = advice.page(true);
    for code in ["\u{1b}[2m", "\u{1b}[33m", "\u{1b}[1;31m", "\u{1b}[0m"] {
        page = page.replace(code, "");
    }
    assert_eq!(page, advice.page(false));
}

#[test]
fn steps_after_a_start_do_not_count() {
    let sick = run_with(&[(TimeOwner::Data, 0.5)]).steps[0].times;
    let mut facts = run_with(&[]).set("data.num_workers", "1");
    facts.steps[..10].iter_mut().for_each(|step| step.times = sick);
    assert_eq!((advise(&facts).steps, advise(&facts).findings.len()), (40, 0));
    // The run is resumed after an end, or repeats steps after a crash.
    let usual = facts.steps[20].clone();
    facts.steps.extend((31..=80).map(|step| StepEvent { step, ..usual.clone() }));
    facts.steps.extend((81..=130).map(|step| StepEvent { step, ..usual.clone() }));
    facts.events.push(Event::Ended {
        step: 80,
        end: plimsoll_core::EndKind::Stopped,
        reason: String::new(),
        times: sick,
    });
    for start in [50, 100] {
        facts.steps[start..start + 10].iter_mut().for_each(|step| step.times = sick);
    }
    assert_eq!((advise(&facts).steps, advise(&facts).findings.len()), (120, 0));
}

#[test]
fn a_folder_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("asr-1");
    std::fs::create_dir(&path).unwrap();
    assert!(RunFacts::read(&path).is_err());
    let mut recorder = Recorder::append(&path.join("metrics.jsonl")).unwrap();
    for step in run_with(&[(TimeOwner::Data, 0.5)]).steps {
        recorder.record(&Event::Step(step)).unwrap();
    }
    recorder.record(&Event::Saved { step: 50, path: "x".into() }).unwrap();
    let header = PlanHeader { device: Some("CUDA device 0".into()), total_steps: Some(50), ..PlanHeader::default() };
    let plan = toml::to_string(&header).unwrap()
        + "[data]\nbatches_in_epoch = 7\npadded_shapes = 3\ntraining_seconds = 9.5\n[features]\nn_mels = 40\n\
           [memory.plan]\nbudget = 100\npeak = 50\n[memory.plan.state]\nform = \"eight\"\n\
           [[memory.plan.buckets]]\nmicro_batch = 4\naccumulation = 2\nbucket = { utterances = 8, frames = 240 }\n\
           choice = { remat = { first = 2 } }\n";
    std::fs::write(path.join("plan.toml"), plan).unwrap();
    std::fs::write(path.join("config.toml"), "[data]\nnum_workers = 2\ncache_memory = \"1GiB\"\n").unwrap();
    let facts = RunFacts::read(&path).unwrap();
    assert_eq!((facts.name.as_str(), facts.steps.len(), facts.events.len()), ("asr-1", 50, 1));
    assert_eq!((facts.on_gpu, facts.total_steps), (Some(true), Some(50)));
    assert_eq!(facts.config["data.cache_memory"], "1GiB");
    let plan = facts.plan.unwrap();
    assert_eq!(
        (plan.budget, plan.n_mels, plan.optimizer_state.as_deref()),
        (Some(Bytes(100)), Some(40), Some("eight"))
    );
    assert_eq!((plan.buckets[0].accumulation, plan.buckets[0].remat.contains("first")), (2, true));
    // A bucket with a renamed size is no plan, rather than a plan with sizes of 0.
    let renamed = std::fs::read_to_string(path.join("plan.toml")).unwrap().replace("accumulation", "repeats");
    std::fs::write(path.join("plan.toml"), renamed).unwrap();
    assert_eq!(RunFacts::read(&path).unwrap().plan, None);
    // Without a plan the rest is still known.
    std::fs::remove_file(path.join("plan.toml")).unwrap();
    assert_eq!(RunFacts::read(&path).unwrap().plan, None);
}

#[test]
fn samples_are_summarized() {
    use crate::sample::{GpuSample, Origin, Reading, Sample, SampledProcess, ThrottleReason};
    let known = |value| Reading::new(value, Origin::Nvml);
    let sample = |is_hot: bool| Sample {
        gpus: vec![
            GpuSample {
                cuda_index: Some(0),
                utilization: known(0.5),
                throttle: Reading::new(if is_hot { vec![ThrottleReason::Heat] } else { vec![] }, Origin::Nvml),
                processes: Reading::new(
                    vec![SampledProcess {
                        pid: 7,
                        name: Some("other".into()),
                        is_other: true,
                        ..SampledProcess::default()
                    }],
                    Origin::Nvml,
                ),
                ..GpuSample::default()
            },
            // A GPU that the run does not use.
            GpuSample { utilization: known(1.0), ..GpuSample::default() },
        ],
        ..Sample::default()
    };
    let facts = SampleFacts::from_samples(&[sample(true), sample(false)]);
    assert_eq!((facts.samples, facts.utilization, facts.throttled_share), (2, Some(0.5), Some(0.5)));
    assert_eq!((facts.throttle[&ThrottleReason::Heat], facts.gpu_processes), (0.5, vec!["other".to_string()]));
    assert_eq!(SampleFacts::from_samples(&[]), SampleFacts::default());
}
