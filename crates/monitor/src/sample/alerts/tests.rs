//! Tests of the alerts over random sequences of samples.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::sample::{Origin, Reading};

const LIMITS: AlertLimits = AlertLimits {
    idle_below: 0.2,
    idle_seconds: 10.0,
    throttle_seconds: 4.0,
    throttle_by_power: false,
    memory_line: Some(Bytes(1000)),
    other_process_memory: Bytes(100),
    host_memory_share: 0.9,
    host_memory_seconds: 3.0,
    margin: 0.1,
    clear_seconds: 6.0,
};

fn raise_seconds(kind: AlertKind) -> f64 {
    match kind {
        AlertKind::IdleGpu => LIMITS.idle_seconds,
        AlertKind::Throttled => LIMITS.throttle_seconds,
        AlertKind::HostMemory => LIMITS.host_memory_seconds,
        _ => 0.0,
    }
}

fn reading<T: Clone + fmt::Debug + 'static>(value: impl Strategy<Value = T>) -> impl Strategy<Value = Reading<T>> {
    let missing = prop_oneof![Just(Missing::Lost), Just(Missing::NotSupported), Just(Missing::NoPermission)];
    prop_oneof![
        6 => value.prop_map(|value| Reading::new(value, Origin::Nvml)),
        1 => missing.prop_map(|why| Reading::missing(why, Origin::Nvml)),
    ]
}

fn processes() -> impl Strategy<Value = Vec<SampledProcess>> {
    let process = (1_u32..4, reading((0_u64..300).prop_map(Bytes)), any::<bool>());
    let process = process.prop_map(|(pid, memory, is_other)| SampledProcess {
        pid,
        memory,
        is_other,
        is_own: !is_other,
        name: None,
    });
    prop::collection::vec(process, 0..3)
}

fn gpu() -> impl Strategy<Value = GpuSample> {
    let throttle =
        prop::collection::vec(prop_oneof![Just(ThrottleReason::Heat), Just(ThrottleReason::PowerLimit)], 0..2);
    let parts = (
        reading(0.0..0.5_f64),
        reading(throttle),
        reading((800_u64..1100).prop_map(Bytes)),
        reading(Just(Bytes(2000))),
        reading(processes()),
    );
    parts.prop_map(|(utilization, throttle, memory_used, memory_total, processes)| GpuSample {
        cuda_index: Some(0),
        utilization,
        throttle,
        memory_used,
        memory_total,
        processes,
        ..GpuSample::default()
    })
}

/// Returns samples, of which each lasts for some steps so that conditions can hold.
fn samples() -> impl Strategy<Value = Vec<Sample>> {
    let part = (gpu(), reading((0_u64..100).prop_map(Bytes)), prop::collection::vec(0.1..3.0_f64, 1..12));
    prop::collection::vec(part, 0..25).prop_map(|parts| {
        let mut time = 1000.0;
        let mut samples = Vec::new();
        for (gpu, memory_available, steps) in parts {
            for seconds in steps {
                time += seconds;
                let memory_total = Reading::new(Bytes(100), Origin::System);
                let host =
                    HostSample { memory_total, memory_available: memory_available.clone(), ..HostSample::default() };
                samples.push(Sample { time, host, gpus: vec![gpu.clone()], no_gpu: None });
            }
        }
        samples
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn alerts_alternate_and_never_flap(samples in samples()) {
        let mut alerts = Alerts::new(LIMITS);
        let mut last: BTreeMap<_, (bool, f64)> = BTreeMap::new();
        for sample in &samples {
            for alert in alerts.observe(sample) {
                let subject = (alert.kind, alert.gpu, alert.pid);
                let before = last.insert(subject, (alert.raised, alert.time));
                prop_assert_eq!(alert.raised, before.is_none_or(|(raised, _)| !raised), "{:?}", alert);
                let wait = if alert.raised { raise_seconds(alert.kind) } else { LIMITS.clear_seconds };
                prop_assert!(before.is_none_or(|(_, time)| alert.time - time >= wait), "{:?} after {:?}", alert, before);
                prop_assert!(!alert.text.is_empty());
            }
            let raised = last.values().filter(|(raised, _)| *raised).count();
            prop_assert_eq!(alerts.active().count(), raised);
        }
    }

    #[test]
    fn missing_values_raise_nothing_but_a_lost_gpu(n in 1_usize..60, why in 0..3_usize) {
        let why = [Missing::NotSupported, Missing::NoPermission, Missing::Failed][why];
        let gpu = GpuSample {
            cuda_index: Some(0),
            utilization: Reading::missing(why, Origin::Nvml),
            memory_total: Reading::missing(why, Origin::Nvml),
            ..GpuSample::default()
        };
        let mut alerts = Alerts::new(LIMITS);
        for second in 0..n {
            let sample = Sample { time: second as f64, gpus: vec![gpu.clone()], ..Sample::default() };
            prop_assert_eq!(alerts.observe(&sample), []);
        }
    }
}

/// Gives the samples of each second to new alerts, and returns what they say.
fn texts(seconds: std::ops::Range<u32>, gpu_at: impl Fn(u32) -> GpuSample) -> Vec<(f64, String)> {
    let mut alerts = Alerts::new(LIMITS);
    let observe = |second| {
        let gpu = GpuSample { cuda_index: Some(0), ..gpu_at(second) };
        alerts.observe(&Sample { time: f64::from(second), gpus: vec![gpu], ..Sample::default() })
    };
    seconds.flat_map(observe).map(|alert| (alert.time, alert.text)).collect()
}

#[test]
fn each_condition_is_raised_once_and_cleared_once() {
    let bad = |second: u32| (10..40).contains(&second);
    let idle = |second| GpuSample {
        utilization: Reading::new(if bad(second) { 0.01 } else { 0.9 }, Origin::Nvml),
        ..GpuSample::default()
    };
    let expected = [(20.0, "GPU 0 is idle: 1.0 % for 10 s".into()), (46.0, "GPU 0 works again".into())];
    assert_eq!(texts(0..80, idle), expected);

    let hot = |second| {
        let reasons = if bad(second) { vec![ThrottleReason::Heat] } else { vec![ThrottleReason::PowerLimit] };
        GpuSample { throttle: Reading::new(reasons, Origin::Nvml), ..GpuSample::default() }
    };
    let expected = [(14.0, "GPU 0 is throttled: heat".into()), (46.0, "GPU 0 is no longer throttled".into())];
    assert_eq!(texts(0..80, hot), expected);

    let lost = |second| GpuSample {
        memory_total: match bad(second) {
            true => Reading::missing(Missing::Lost, Origin::Nvml),
            false => Reading::new(Bytes(1), Origin::Nvml),
        },
        ..GpuSample::default()
    };
    let expected = [(10.0, "GPU 0 no longer answers".into()), (46.0, "GPU 0 answers again".into())];
    assert_eq!(texts(0..80, lost), expected);

    let other = |second| {
        let memory = Reading::new(Bytes::gib(2), Origin::Nvml);
        let process = SampledProcess { pid: 7, name: Some("blender".into()), memory, is_own: false, is_other: true };
        let processes = if bad(second) { vec![process] } else { Vec::new() };
        GpuSample { processes: Reading::new(processes, Origin::Nvml), ..GpuSample::default() }
    };
    let expected = [(10.0, "blender (7) holds 2 GiB of GPU 0".into()), (46.0, "process 7 has left GPU 0".into())];
    assert_eq!(texts(0..80, other), expected);
}

#[test]
fn a_value_between_the_limits_changes_nothing() {
    let wavers = |second| {
        let used = [Bytes(1001), Bytes(950)][second as usize % 2];
        GpuSample { memory_used: Reading::new(used, Origin::Nvml), ..GpuSample::default() }
    };
    assert_eq!(texts(0..200, wavers), [(0.0, "GPU 0 holds 1001 B, and 1000 B were planned".into())]);
}

#[test]
fn gpus_that_cuda_does_not_offer_are_watched_on_request_only() {
    let gpu = GpuSample { memory_total: Reading::missing(Missing::Lost, Origin::Nvml), ..GpuSample::default() };
    let sample = Sample { gpus: vec![gpu], ..Sample::default() };
    assert_eq!(Alerts::new(LIMITS).observe(&sample), []);
    assert_eq!(Alerts::new(LIMITS).for_all_gpus().observe(&sample).len(), 1);
}
