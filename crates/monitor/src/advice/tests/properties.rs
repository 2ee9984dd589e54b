//! Properties of all advice.

use std::collections::BTreeSet;

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::{Index, select};

use super::*;
use crate::advice::rules::{FAILED, RULES};
use plimsoll_core::EndKind;

const VALUES: &[(&str, &[&str])] = &[
    ("data.num_workers", &["1", "3", "64", "auto"]),
    ("data.prefetch_buffer_size", &["1", "2", "16", "1000"]),
    ("data.cache_memory", &["1GiB", "64GiB", "0"]),
    ("data.cache_dir", &["cache"]),
    ("data.shapes", &["1", "8", "72", "1000"]),
    ("data.frame_grid", &["1", "16"]),
    ("training.micro_batch", &["1", "auto", "64"]),
    ("training.gradient_accumulation_steps", &["1", "8"]),
    ("training.remat", &["auto", "none", "all", "3"]),
    ("training.debug", &["true", "false", "nonsense"]),
    ("training.optimizer_state", &["auto", "host", "8bit", "full"]),
    ("training.max_memory", &["1MiB", "8GiB", "nonsense"]),
    ("training.max_memory_fraction", &["0.5", "1", "0.001"]),
    ("training.checkpoint_interval", &["1", "200", "0"]),
    ("training.validation_interval", &["0", "1", "500", "-3"]),
    ("training.schedule", &["plateau", "cosine"]),
    ("model.conv_norm", &["layer", "batch"]),
    ("augment.noise_share", &["0.0", "0.3", "7"]),
];

/// Facts with random shares and configurations, where any fact may be missing.
fn any_facts() -> impl Strategy<Value = RunFacts> {
    let amount = || prop_oneof![40 => 0.0..100.0_f64, 1 => select(vec![0.0, f64::NAN, f64::INFINITY, -1.0, 1e300])];
    let times = vec((any::<Index>(), amount()), 0..6);
    let steps = vec((times, 0_usize..40, amount(), 0_u64..5000), 0..4);
    let config = vec((any::<Index>(), any::<Index>()), 0..12);
    let plan = option::of((option::of(0_u64..1 << 40), option::of(0_u64..1 << 40), option::of(0_u64..2000), 0_u64..9));
    let numbers = (option::of(any::<bool>()), option::of(0_u64..5000), option::of(amount()), option::of(0_usize..128));
    let more =
        (option::of(amount()), option::of(amount()), vec((any::<Index>(), any::<Index>(), amount(), amount()), 0..6));
    (steps, 0_usize..120, config, plan, numbers, more).prop_map(|(kinds, count, config, plan, numbers, more)| {
        let pair = |(key, value): (Index, Index)| {
            let (key, values) = VALUES[key.index(VALUES.len())];
            (key.to_string(), values[value.index(values.len())].to_string())
        };
        let step = |number: usize| {
            let mut step = StepEvent { step: number as u64, ..StepEvent::default() };
            if let Some((times, micro_batches, padding, frames)) = kinds.get(number % kinds.len().max(1)) {
                times.iter().for_each(|(owner, time)| step.times.add(TimeOwner::ALL[owner.index(14)], *time));
                (step.micro_batches, step.padding, step.frames) = (*micro_batches, *padding, *frames);
            }
            step
        };
        let (on_gpu, total_steps, hop_seconds, processors) = numbers;
        let end = (count % 3 == 0).then(|| Event::Ended {
            step: count as u64,
            end: if count % 2 == 0 { EndKind::Failed } else { EndKind::Unknown },
            reason: "the loss of step 9 is inf".into(),
            times: TimeShares::default(),
        });
        let (loading, throttled, alternatives) = more;
        let other = |(key, value, padding, ratio): (Index, Index, f64, f64)| {
            let (key, to) = pair((key, value));
            alternative(&key, &to, Some(padding / 100.0), Some(ratio / 50.0))
        };
        let plan = plan.map(|(budget, peak, batches_in_epoch, accumulation)| {
            let remat = if accumulation % 2 == 0 { "none" } else { "all" }.to_string();
            PlanFacts {
                budget: budget.map(Bytes),
                peak: peak.map(Bytes),
                batches_in_epoch,
                training_seconds: hop_seconds,
                n_mels: Some(80),
                buckets: vec![BucketFacts { accumulation, remat, ..BucketFacts::default() }],
                ..PlanFacts::default()
            }
        });
        RunFacts {
            steps: (1..=count).map(step).collect(),
            events: end.into_iter().collect(),
            config: config.into_iter().map(pair).collect(),
            on_gpu,
            total_steps,
            hop_seconds,
            plan,
            host: HostFacts { processors, ..HostFacts::default() },
            loading: loading.map(|speed| LoadingFacts {
                audio_seconds_per_second: speed,
                decoding: 1.0,
                ..LoadingFacts::default()
            }),
            alternatives: alternatives.into_iter().map(other).collect(),
            samples: throttled
                .map(|share| SampleFacts { throttled_share: Some(share / 100.0), ..SampleFacts::default() }),
            ..RunFacts::default()
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn advice_is_consistent(facts in any_facts()) {
        let advice = advise(&facts);
        let found = advice.findings.iter().map(|finding| finding.rule);
        let mut rules: Vec<_> = found.chain(advice.abstained.iter().map(|other| other.rule)).collect();
        rules.extend(&advice.healthy);
        rules.sort_unstable();
        let mut all: Vec<_> = RULES.iter().chain([&FAILED]).map(|rule| rule.id).collect();
        all.sort_unstable();
        prop_assert_eq!(rules, all, "each rule has one outcome");
        prop_assert!(advice.findings.is_sorted_by_key(|finding| std::cmp::Reverse(finding.severity)));
        prop_assert!(advice.steps >= 20 || advice.findings.iter().all(|finding| finding.rule == FAILED.id));
        let mut keys = BTreeSet::new();
        for finding in &advice.findings {
            prop_assert!((0.0..=1.0).contains(&finding.share));
            let expected = match finding.rule {
                "unexplained" => Severity::Minor,
                "run-end" => Severity::Serious,
                _ => Severity::for_share(finding.share),
            };
            prop_assert_eq!(finding.severity, expected);
            prop_assert!(finding.gain.is_none() || finding.change.is_some());
            if let Some(gain) = finding.gain {
                prop_assert!(gain.share > 0.0 && gain.share <= finding.share && gain.speedup() >= 1.0, "{finding:?}");
            }
            prop_assert!(!finding.evidence.is_empty());
            for change in finding.changes() {
                prop_assert_eq!(facts.config.get(&change.key), change.from.as_ref());
                prop_assert!(change.from.as_deref() != Some(&change.to));
                prop_assert!(keys.insert(change.key.clone()), "two findings change {}", change.key);
            }
        }
        for (a, b) in [("micro_batch", "gradient_accumulation_steps"), ("max_memory", "max_memory_fraction")] {
            let [a, b] = [a, b].map(|key| format!("training.{key}"));
            prop_assert!(!(keys.contains(&a) && facts.config.contains_key(&b)), "{a} excludes {b}");
            prop_assert!(!(keys.contains(&b) && facts.config.contains_key(&a)), "{b} excludes {a}");
        }
        serde_json::to_string(&advice).unwrap();
        prop_assert!(!advice.to_string().contains("NaN"));
    }

    #[test]
    fn a_run_that_computes_is_healthy(shares in vec(0.0..0.099_f64, 10)) {
        let owners: Vec<_> = TimeOwner::ALL.into_iter().filter(|owner| *owner != TimeOwner::Compute).collect();
        let sum: f64 = shares.iter().sum();
        let scale = if sum > 0.9 { 0.9 / sum } else { 1.0 };
        let shares: Vec<_> = owners.into_iter().zip(shares).map(|(owner, share)| (owner, share * scale)).collect();
        for finding in advise(&run_with(&shares)).findings {
            prop_assert_eq!(finding.severity, Severity::Minor, "{:?}", finding);
        }
    }
}
