//! One run with each problem, and one without it.

use std::collections::BTreeMap;

use plimsoll_core::EndKind;

use super::*;
use crate::sample::ThrottleReason;

/// Checks that `sick` has a finding of `rule` with these changes, and that `healthy` does not.
#[track_caller]
fn check(rule: &str, sick: &RunFacts, changes: &[&str], healthy: &RunFacts) {
    let advice = advise(sick);
    let finding = advice.findings.iter().find(|finding| finding.rule == rule);
    let finding = finding.unwrap_or_else(|| panic!("{rule}: {advice}"));
    let found: Vec<String> = finding.changes().map(ToString::to_string).collect();
    assert_eq!(found, changes, "{advice}");
    assert!(finding.change.is_some() || finding.hint.is_some(), "{advice}");
    let advice = advise(healthy);
    assert!(advice.healthy.contains(&rule), "{rule}: {advice}");
}

fn ended(facts: RunFacts, end: EndKind, reason: &str) -> RunFacts {
    facts.with(|facts| {
        let step = facts.steps.last().map_or(0, |step| step.step);
        facts.events.push(Event::Ended { step, end, reason: reason.into(), times: TimeShares::default() });
    })
}

const NOT_FINITE: &str =
    "the run stopped after 3 failed steps in a row: the loss of step 51 is NaN, in a micro-batch with `a`";

#[test]
fn a_run_that_failed_says_so_first() {
    let fine = ended(run_with(&[]), EndKind::Complete, "");
    let sick = ended(waiting(0.4).set("data.num_workers", "2"), EndKind::Failed, NOT_FINITE);
    check("run-end", &sick, &[], &fine);
    let advice = advise(&sick);
    let finding = &advice.findings[0];
    assert_eq!((finding.rule, finding.severity), ("run-end", Severity::Serious));
    assert!(advice.findings.len() > 1 && finding.evidence[0].ends_with("is not finite after step 50"), "{advice}");
    assert!(finding.evidence[1].contains(NOT_FINITE), "{advice}");
    assert!(finding.hint.as_ref().unwrap().contains("training.debug = true"), "{advice}");
    insta::assert_snapshot!("failed", advice);
    // A run of a few steps fails too, and has no times to judge.
    for steps in [0, 1, 12] {
        let short = run_with(&[]).with(|facts| facts.steps.truncate(steps));
        check("run-end", &ended(short, EndKind::Failed, NOT_FINITE), &[], &fine);
    }
}

#[test]
fn only_an_error_is_a_failure() {
    let rule = |facts: &RunFacts| {
        let advice = advise(facts);
        (advice.findings.iter().any(|found| found.rule == "run-end"), advice.healthy.contains(&"run-end"))
    };
    for end in [EndKind::Complete, EndKind::Stale, EndKind::Stopped] {
        assert_eq!(rule(&ended(run_with(&[]), end, "")), (false, true), "{end:?}");
    }
    assert_eq!(rule(&ended(run_with(&[]), EndKind::Unknown, "")), (false, false));
    assert_eq!(rule(&run_with(&[])), (false, true), "a run without an end still trains");
    let failed = ended(run_with(&[]), EndKind::Failed, NOT_FINITE);
    assert_eq!(rule(&failed), (true, false));
    // The run was resumed: it took further steps, or wrote further events.
    let usual = failed.steps[20].clone();
    let resumed = failed.clone().with(|facts| facts.steps.push(StepEvent { step: 51, ..usual }));
    assert_eq!(rule(&resumed), (false, true));
    let saved = Event::Saved { step: 50, path: "x".into() };
    assert_eq!(rule(&failed.clone().with(|facts| facts.events.push(saved))), (false, true));
    assert_eq!(rule(&ended(failed, EndKind::Complete, "")), (false, true));
}

#[test]
fn each_cause_has_its_next_step() {
    let hint = |facts: RunFacts, reason: &str| {
        let advice = advise(&ended(facts, EndKind::Failed, reason));
        let finding = advice.findings.into_iter().find(|finding| finding.rule == "run-end").unwrap();
        (finding.evidence, finding.hint.unwrap())
    };
    let (evidence, step) = hint(run_with(&[]), "");
    assert!(evidence[1].contains("no words") && step.contains("last checkpoint"), "{evidence:?}");
    let debug = run_with(&[(TimeOwner::Read, 0.3)]).set("training.debug", "true");
    let (_, step) = hint(debug.clone(), NOT_FINITE);
    assert!(step.contains("name the layer") && !step.contains("training.debug"), "{step}");
    // The finding about speed does not turn debug mode off meanwhile.
    let advice = advise(&ended(debug, EndKind::Failed, NOT_FINITE));
    assert!(advice.findings.iter().all(|finding| finding.change.is_none()), "{advice}");
    for (reason, part) in [
        ("step 51 does not fit into memory, even with one utterance at a time", "memtest"),
        ("the device failed in step 51, with `a`: lost", "doctor"),
        ("replica 1 failed in step 51: the loss of step 51 is odd", "replica"),
        ("the program stopped in the middle of the run", "RUST_BACKTRACE=1"),
    ] {
        assert!(hint(run_with(&[]), reason).1.contains(part), "{reason}");
    }
    let saved = run_with(&[]).with(|facts| {
        facts.events = [20, 40].map(|step| Event::Saved { step, path: "x".into() }).into();
    });
    assert_eq!(hint(saved, NOT_FINITE).0[2], "the last checkpoint is that of step 40");
}

fn waiting(share: f64) -> RunFacts {
    run_with(&[(TimeOwner::Data, share)])
}

#[test]
fn few_threads_make_training_wait() {
    let sick = waiting(0.4).set("data.num_workers", "2");
    check("loader-bound", &sick, &["data.num_workers = 2 -> 8"], &waiting(0.02).set("data.num_workers", "2"));
    // The run needs 16 / 0.6 s of audio a second; a thread loads 10 of them.
    let loading = LoadingFacts { audio_seconds_per_second: 10.0, decoding: 1.0, ..LoadingFacts::default() };
    let measured = sick.clone().with(|facts| facts.loading = Some(loading));
    check("loader-bound", &measured, &["data.num_workers = 2 -> 4"], &waiting(0.0));
    // A thread loads a whole batch, so more threads need more batches ahead.
    let both = sick.set("data.prefetch_buffer_size", "1");
    let changes = ["data.num_workers = 2 -> 8", "data.prefetch_buffer_size = 1 -> \"auto\""];
    check("loader-bound", &both, &changes, &waiting(0.0));
}

#[test]
fn few_batches_ahead_make_training_wait() {
    let sick = waiting(0.4).set("data.prefetch_buffer_size", "1");
    check("loader-bound", &sick, &["data.prefetch_buffer_size = 1 -> \"auto\""], &waiting(0.0));
    check("loader-bound", &waiting(0.4), &[], &waiting(0.0));
    let mut spikes = waiting(0.0).set("data.prefetch_buffer_size", "4");
    spikes.steps.iter_mut().skip(12).step_by(12).for_each(|step| step.times.add(TimeOwner::Data, 3.0));
    check("loader-bound", &spikes, &["data.prefetch_buffer_size = 4 -> 16"], &waiting(0.0));
}

#[test]
fn features_are_computed_again() {
    let loading = LoadingFacts { audio_seconds_per_second: 1.0, decoding: 0.8, resampling: 0.0, features: 0.2 };
    let sick = waiting(0.4).planned(|_| ()).with(|facts| facts.loading = Some(loading));
    let fast = LoadingFacts { audio_seconds_per_second: 100.0, ..loading };
    let healthy = sick.clone().with(|facts| facts.loading = Some(fast));
    check("decode-bound", &sick, &["data.cache_memory = \"1GiB\" -> \"12GiB\""], &healthy);
    let full = sick.clone().with(|facts| facts.host.available = Some(Bytes::gib(2)));
    check("decode-bound", &full, &["data.cache_dir = (default) -> \"cache\""], &healthy);
    let noisy = sick.clone().set("augment.gain_db", "6.0");
    check("decode-bound", &noisy, &[], &healthy);
    let once = sick.clone().with(|facts| facts.total_steps = Some(500));
    check("decode-bound", &once, &[], &healthy);
    let small = sick.planned(|plan| plan.training_seconds = Some(100.0)).with(|facts| facts.loading = Some(loading));
    check("decode-bound", &small, &[], &healthy);
}

#[test]
fn work_reaches_the_device_slowly() {
    let healthy = run_with(&[(TimeOwner::Submit, 0.3)]);
    check("transfer-bound", &run_with(&[(TimeOwner::Transfer, 0.2)]), &[], &healthy);
    let sick = run_with(&[(TimeOwner::Submit, 0.9)]);
    check("launch-bound", &sick, &[], &healthy);
    let small = sick
        .set("training.micro_batch", "1")
        .planned(|plan| plan.peak = Some(Bytes::gib(1)))
        .with(|facts| facts.steps.iter_mut().for_each(|step| step.micro_batches = 8))
        .with(|facts| facts.alternatives = vec![alternative("training.micro_batch", "auto", None, Some(0.5))]);
    check("launch-bound", &small, &["training.micro_batch = 1 -> \"auto\""], &healthy);
    let gain = advise(&small).findings[0].gain.unwrap();
    assert!((0.2..0.5).contains(&gain.share), "{gain:?}");
    // The norm over a batch makes the micro-batch a part of the training.
    check("launch-bound", &small.clone().set("model.conv_norm", "batch"), &[], &healthy);
    // The two keys exclude each other.
    check("launch-bound", &small.clone().set("training.gradient_accumulation_steps", "8"), &[], &healthy);
    // On the CPU nothing is queued, but many small parts are slow too.
    let on_cpu = small.with(|facts| {
        facts.on_gpu = Some(false);
        let times = run_with(&[]).steps[0].times;
        facts.steps.iter_mut().for_each(|step| step.times = times);
    });
    check("launch-bound", &on_cpu, &["training.micro_batch = 1 -> \"auto\""], &healthy);
}

#[test]
fn steps_wait_for_reads() {
    let sick = run_with(&[(TimeOwner::Read, 0.2)]);
    check("sync-bound", &sick, &[], &run_with(&[]));
    let on_cpu = sick.clone().with(|facts| facts.on_gpu = Some(false));
    check("sync-bound", &sick.set("training.debug", "true"), &["training.debug = true -> false"], &on_cpu);
}

#[test]
fn work_at_intervals_is_too_frequent() {
    let healthy = run_with(&[(TimeOwner::Checkpoint, 0.01), (TimeOwner::Validation, 0.05)]);
    let sick = run_with(&[(TimeOwner::Checkpoint, 0.1)]).set("training.checkpoint_interval", "20");
    check("checkpoint-stalls", &sick, &["training.checkpoint_interval = 20 -> 220"], &healthy);
    let short = sick.with(|facts| facts.total_steps = Some(20));
    check("checkpoint-stalls", &short, &[], &healthy);
    let sick = run_with(&[(TimeOwner::Validation, 0.5)]).set("training.validation_interval", "10");
    check("validation-heavy", &sick, &["training.validation_interval = 10 -> 190"], &healthy);
    let short = sick.clone().with(|facts| facts.total_steps = Some(60));
    check("validation-heavy", &short, &["training.validation_interval = 10 -> 60"], &healthy);
    let in_epochs = sick.clone().set("training.validation_interval", "0").planned(|_| ());
    check("validation-heavy", &in_epochs, &["training.validation_interval = 0 -> 10000"], &healthy);
    check("validation-heavy", &sick.set("training.early_stopping", "3"), &[], &healthy);
}

#[test]
fn batches_hold_padding() {
    let padded =
        |padding: f64| run_with(&[]).with(|facts| facts.steps.iter_mut().for_each(|step| step.padding = padding));
    check("padding-waste", &padded(0.3), &[], &padded(0.03));
    let sick = padded(0.3).set("data.frame_grid", "128").with(|facts| {
        facts.alternatives = vec![
            alternative("data.frame_grid", "16", Some(0.1), None),
            alternative("data.frame_grid", "64", Some(0.2), None),
            // A batch of another size is another training.
            alternative("data.batch_size", "1", Some(0.0), None),
        ];
    });
    check("padding-waste", &sick, &["data.frame_grid = 128 -> 16"], &padded(0.03));
    let gain = advise(&sick).findings[0].gain.unwrap().share;
    assert!((0.1..0.2222).contains(&gain), "{gain}");
}

#[test]
fn memory_is_unused() {
    let recomputes = |plan: &mut PlanFacts| {
        plan.peak = Some(Bytes::gib(2));
        plan.buckets[0].remat = "all".into();
    };
    let healthy = run_with(&[]).planned(|plan| plan.peak = Some(Bytes::gib(2)));
    let sick = run_with(&[]).set("training.remat", "all").planned(recomputes);
    check("memory-unused", &sick, &["training.remat = \"all\" -> \"auto\""], &healthy);
    let faster = sick.with(|facts| {
        facts.alternatives = vec![alternative("training.remat", "none", None, Some(0.7))];
    });
    check("memory-unused", &faster, &["training.remat = \"all\" -> \"none\""], &healthy);
    let split = run_with(&[]).set("training.micro_batch", "2").planned(|plan| {
        plan.peak = Some(Bytes::gib(2));
        plan.buckets[0].accumulation = 4;
    });
    check("memory-unused", &split, &["training.micro_batch = 2 -> \"auto\""], &healthy);
    // The planner has chosen the micro-batch.
    let chosen = run_with(&[]).with(|facts| facts.plan = split.plan.clone());
    check("memory-unused", &split, &["training.micro_batch = 2 -> \"auto\""], &chosen);
}

#[test]
fn memory_runs_out() {
    let sick = run_with(&[(TimeOwner::Retry, 0.15)]);
    check("retries", &sick, &[], &run_with(&[]));
    check(
        "retries",
        &sick.clone().planned(|_| ()),
        &["training.max_memory = (default) -> \"9216MiB\""],
        &run_with(&[]),
    );
    let fixed = sick.clone().set("training.micro_batch", "64");
    check("retries", &fixed, &["training.micro_batch = 64 -> \"auto\""], &run_with(&[]));
    let part = sick.set("training.max_memory_fraction", "0.9");
    check("retries", &part, &["training.max_memory_fraction = 0.9 -> 0.810"], &run_with(&[]));
}

#[test]
fn the_optimizer_is_slow() {
    let sick = run_with(&[(TimeOwner::Optimizer, 0.4)]);
    check("optimizer-bound", &sick, &[], &run_with(&[(TimeOwner::Optimizer, 0.05)]));
    let on_host = sick.set("training.optimizer_state", "host").planned(|plan| plan.peak = Some(Bytes::gib(1)));
    check("optimizer-bound", &on_host, &["training.optimizer_state = \"host\" -> \"auto\""], &run_with(&[]));
}

#[test]
fn the_machine_is_slow() {
    let cool = SampleFacts { samples: 9, throttled_share: Some(0.0), ..SampleFacts::default() };
    let hot = SampleFacts {
        throttled_share: Some(0.5),
        throttle: BTreeMap::from([(ThrottleReason::Heat, 0.5)]),
        gpu_processes: vec!["other".into()],
        other_cpus: Some(3.5),
        ..cool.clone()
    };
    let healthy = run_with(&[]).with(|facts| facts.samples = Some(cool));
    let sick = run_with(&[(TimeOwner::OtherProcess, 0.3)]).with(|facts| facts.samples = Some(hot));
    check("throttled", &sick, &[], &healthy);
    check("other-processes", &sick, &[], &healthy);
    let page = advise(&sick).to_string();
    assert!(page.contains("heat 50 %") && page.contains("also on the GPU: other") && page.contains("3.5 processors"));
    check("throttled", &run_with(&[(TimeOwner::Throttled, 0.2)]), &[], &healthy);
    check("recording", &run_with(&[(TimeOwner::Record, 0.2)]), &[], &healthy);
    check("unexplained", &run_with(&[(TimeOwner::Unknown, 0.4)]), &[], &healthy);
}

#[test]
fn shapes_keep_coming() {
    let sick = run_with(&[(TimeOwner::Compile, 0.4)]);
    check("compiling", &sick, &[], &run_with(&[]));
    let many = sick.clone().planned(|plan| plan.padded_shapes = Some(300));
    check("compiling", &many, &["data.shapes = (default) -> 72"], &run_with(&[]));
    check("compiling", &sick.clone().set("data.shapes", "192"), &["data.shapes = 192 -> 72"], &run_with(&[]));
    check("compiling", &sick.set("data.shapes", "40"), &[], &run_with(&[]));
    // Compilation that is over is no problem.
    let mut over = run_with(&[]);
    over.steps[..25].iter_mut().for_each(|step| step.times.add(TimeOwner::Compile, 1.0));
    check("compiling", &run_with(&[(TimeOwner::Compile, 0.4)]), &[], &over);
}
