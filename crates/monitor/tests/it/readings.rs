//! Each value is read, or has the right reason why it is missing, and no failure hides another value.

use plimsoll_core::Bytes;
use plimsoll_monitor::sample::{GpuSample, Missing, Origin, Sample, ThrottleReason};

use crate::machine::{samples, samples_in_container};

const H200: &str = "gpu GPU-0a NVIDIA H200
memory 143771 562 100000
utilization 93 41
power 512500
power-limit 700000
temperature 61
clock 1 1785
clock-max 1 1980
throttle 4
pcie 0 1200
pcie 1 3000
ecc 1 2
mig 0
process compute self 40000
process compute 1 3000
process graphics 1 3000
";
const T4: &str = "gpu GPU-1a Tesla T4
memory 16384 400 15000
utilization 0 0
power 9000
throttle 1
";

fn one(scenario: &str) -> Sample {
    samples(&[(0.0, scenario)]).remove(0)
}

fn value(gpu: &GpuSample, name: &str) -> Result<f64, Missing> {
    gpu.numbers().into_iter().find(|number| number.name == name).expect("a number of that name").value
}

fn check_values(gpu: &GpuSample, expected: &[(&str, f64)]) {
    for (name, expected) in expected {
        assert_eq!(value(gpu, name), Ok(*expected), "{name}");
    }
}

/// Returns the names of all values that are missing for another reason than `why`.
fn not_missing_by(gpu: &GpuSample, why: Missing) -> Vec<&'static str> {
    let numbers = gpu.numbers().into_iter().filter(|number| number.value != Err(why)).map(|number| number.name);
    let lists = [
        ("throttle", gpu.throttle.why_missing()),
        ("processes", gpu.processes.why_missing()),
        ("mig", gpu.mig.why_missing()),
    ];
    numbers.chain(lists.iter().filter(|(_, found)| *found != Some(why)).map(|(name, _)| *name)).collect()
}

#[test]
fn two_gpus_are_read_in_their_units() {
    let sample = one(&format!("driver 580.82.07\ncuda 13000\n{H200}{T4}"));
    assert_eq!((sample.gpus.len(), sample.no_gpu), (2, None));
    let [h200, t4] = [&sample.gpus[0], &sample.gpus[1]];
    assert_eq!((h200.index, h200.uuid.as_str(), h200.name.as_str()), (0, "GPU-0a", "NVIDIA H200"));
    assert_eq!((t4.index, t4.uuid.as_str(), t4.name.as_str()), (1, "GPU-1a", "Tesla T4"));
    let mib = |n: u64| Bytes::mib(n).0 as f64;
    check_values(
        h200,
        &[
            ("utilization", 0.93),
            ("memory_utilization", 0.41),
            ("memory_total", mib(143_771)),
            ("memory_used", mib(143_771 - 562 - 100_000)),
            ("memory_free", mib(100_000)),
            ("power", 512.5),
            ("power_limit", 700.0),
            ("temperature", 61.0),
            ("sm_clock", 1785.0),
            ("sm_clock_max", 1980.0),
            ("pcie_sent", 1200.0 * 1024.0),
            ("pcie_received", 3000.0 * 1024.0),
            ("ecc_errors", 2.0),
        ],
    );
    assert_eq!(h200.throttle.value(), Some(&vec![ThrottleReason::PowerLimit]));
    assert_eq!((h200.mig.value(), h200.mig.origin), (Some(&false), Origin::Nvml));
    check_values(t4, &[("utilization", 0.0), ("power", 9.0)]);
    assert_eq!(t4.throttle.value(), Some(&Vec::new()), "an idle GPU is not throttled");
}

#[test]
fn a_divided_gpu_has_instances_and_no_utilization() {
    let scenario = "gpu GPU-0a NVIDIA H200\nmemory 143771 562 100000\nmig 1\ngpm 2 50\ninstance MIG-11aa 18000 100 17000\n\
        instance -\ninstance MIG-22bb 18000 100 900\nprocess compute 77 -\n";
    let sample = one(scenario);
    let gpu = &sample.gpus[0];
    assert_eq!(gpu.mig.value(), Some(&true));
    assert_eq!(value(gpu, "utilization"), Err(Missing::NotSupported));
    assert_eq!(value(gpu, "sm_active"), Err(Missing::NotVisible), "the counters belong to the instances");
    let instances: Vec<_> = gpu.instances.iter().map(|one| (one.uuid.as_str(), one.memory_used.value())).collect();
    assert_eq!(instances, [("MIG-11aa", Some(&Bytes::mib(900))), ("MIG-22bb", Some(&Bytes::mib(17_000)))]);
    let process = &gpu.processes.value().unwrap()[0];
    assert_eq!(process.memory.why_missing(), Some(Missing::NotVisible));
}

#[test]
fn a_lost_gpu_stays_in_the_list_and_hides_no_other() {
    let [both, lost] = [format!("{H200}{T4}"), format!("{H200}fail * 15\n{T4}")];
    let gone = T4.replace("GPU-1a", "GPU-0a");
    let samples = samples(&[(0.0, &both), (1.0, &lost), (2.0, &both), (3.0, &gone)]);
    for sample in &samples[..3] {
        let names: Vec<_> = sample.gpus.iter().map(|gpu| (gpu.uuid.as_str(), gpu.name.as_str())).collect();
        assert_eq!(names, [("GPU-0a", "NVIDIA H200"), ("GPU-1a", "Tesla T4")]);
        assert_eq!(value(&sample.gpus[1], "power"), Ok(9.0));
    }
    assert_eq!(not_missing_by(&samples[1].gpus[0], Missing::Lost), [""; 0]);
    assert_eq!(value(&samples[2].gpus[0], "power"), Ok(512.5), "it has come back");
    assert_eq!(not_missing_by(&samples[3].gpus[1], Missing::Lost), [""; 0]);
    let from_the_start = one(&format!("{H200}fail * 15\n{T4}"));
    assert_eq!(not_missing_by(&from_the_start.gpus[0], Missing::Lost), [""; 0]);
    assert_eq!((from_the_start.gpus[0].uuid.as_str(), from_the_start.gpus.len()), ("", 2));
}

#[test]
fn a_refused_permission_is_a_reason() {
    let refused = ["nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetPowerUsage"];
    let fails: String = refused.map(|function| format!("fail {function} 4\n")).concat();
    let sample = one(&format!("{H200}{fails}"));
    let gpu = &sample.gpus[0];
    assert_eq!(gpu.processes.why_missing(), Some(Missing::NoPermission));
    assert_eq!((value(gpu, "power"), value(gpu, "power_limit")), (Err(Missing::NoPermission), Ok(700.0)));
    let refused = one("fail nvmlInit_v2 4\n");
    assert!(refused.gpus.is_empty() && refused.no_gpu.unwrap().contains("permission"));
    assert!(refused.host.memory_total.value().is_some(), "the host is read without GPUs");
}

#[test]
fn own_and_other_processes_differ() {
    let sample = one(H200);
    let processes = sample.gpus[0].processes.value().unwrap();
    assert_eq!(processes.len(), 2, "a process in two lists counts once");
    let own = processes.iter().find(|process| process.is_own).unwrap();
    assert!(!own.is_other && own.memory.value() == Some(&Bytes::mib(40_000)), "{own:?}");
    assert!(own.name.is_some(), "{own:?}");
    let other = processes.iter().find(|process| process.is_other).unwrap();
    assert_eq!((other.pid, other.memory.value()), (1, Some(&Bytes::mib(3000))));
}

#[test]
fn process_numbers_mean_nothing_in_a_container() {
    let sample = samples_in_container(&[(0.0, H200)]).remove(0);
    let processes = sample.gpus[0].processes.value().unwrap();
    assert_eq!(processes.len(), 2);
    assert!(processes.iter().all(|process| process.name.is_none() && !process.is_own && !process.is_other));
    assert!(processes.iter().all(|process| process.memory.value().is_some()));
}

#[test]
fn an_unsupported_value_is_missing_and_not_zero() {
    let sample = one("gpu GPU-0a Old GPU\n");
    let gpu = &sample.gpus[0];
    assert_eq!(not_missing_by(gpu, Missing::NotSupported), ["processes"]);
    assert_eq!(gpu.processes.value(), Some(&Vec::new()));
    let shared = one("gpu GPU-0a NVIDIA GB10\nmemory 0 0 0\nprocess compute 9 500\n");
    assert_eq!(value(&shared.gpus[0], "memory_free"), Err(Missing::NotSupported));
}

#[test]
fn counters_need_two_readings_100_ms_apart() {
    let gpm = format!("{H200}gpm 2 87.5\ngpm 5 41.25\ngpm 20 1.5\n");
    let without = gpm.clone() + "fail nvmlGpmSampleGet 3\n";
    let samples =
        samples(&[(0.0, &gpm), (0.05, &gpm), (0.1, &gpm), (0.15, &gpm), (1.0, &without), (2.0, &gpm), (3.0, &gpm)]);
    let sm = |sample: &Sample| value(&sample.gpus[0], "sm_active");
    let expected = [
        Err(Missing::NeedsTwoReadings),
        Err(Missing::NeedsTwoReadings),
        Ok(0.875),
        Ok(0.875),
        Err(Missing::NotSupported),
        Err(Missing::NeedsTwoReadings),
        Ok(0.875),
    ];
    assert_eq!(samples.iter().map(sm).collect::<Vec<_>>(), expected);
    let gpu = &samples[2].gpus[0];
    assert_eq!((gpu.sm_active.origin, gpu.sm_active.age_seconds), (Origin::Gpm, 0.0));
    check_values(
        gpu,
        &[("tensor_active", 0.4125), ("pcie_sent", 1.5 * 1_048_576.0), ("pcie_received", 3000.0 * 1024.0)],
    );
    assert_eq!((gpu.pcie_sent.origin, gpu.pcie_received.origin), (Origin::Gpm, Origin::Nvml));
    assert_eq!(value(gpu, "dram_active"), Err(Missing::NotSupported), "one counter is missing and no other");
    assert!((samples[3].gpus[0].sm_active.age_seconds - 0.05).abs() < 1e-9);
}

#[test]
fn one_failure_hides_no_other_value() {
    let functions: [(&str, &[&str]); 12] = [
        ("nvmlDeviceGetUtilizationRates", &["utilization", "memory_utilization"]),
        ("nvmlDeviceGetMemoryInfo_v2", &["memory_total", "memory_used", "memory_free"]),
        ("nvmlDeviceGetPowerUsage", &["power"]),
        ("nvmlDeviceGetTemperature", &["temperature"]),
        ("nvmlDeviceGetClockInfo", &["sm_clock"]),
        ("nvmlDeviceGetMaxClockInfo", &["sm_clock_max"]),
        ("nvmlDeviceGetTotalEccErrors", &["ecc_errors"]),
        ("nvmlDeviceGetCurrentClocksThrottleReasons", &["throttle"]),
        ("nvmlDeviceGetComputeRunningProcesses_v3", &["processes"]),
        ("nvmlDeviceGetMigMode", &["mig"]),
        ("nvmlGpmMetricsGet", &["sm_active", "tensor_active", "dram_active"]),
        ("nvmlDeviceGetName", &[]),
    ];
    let codes = [1, 2, 3, 4, 6, 13, 15, 16, 21, 26, 28, 31, 999];
    let all = format!("{H200}gpm 2 1\ngpm 5 1\ngpm 10 1\n");
    let mut scenarios = vec![all.clone(), all.clone()];
    let cases: Vec<_> = functions.iter().flat_map(|case| codes.map(|code| (case, code))).collect();
    for ((function, _), code) in &cases {
        // A failure of a counter starts its period anew, so each failure has two good readings around it.
        scenarios.extend([format!("{all}fail {function} {code}\n"), all.clone(), all.clone()]);
    }
    let steps: Vec<_> =
        scenarios.iter().zip(0..).map(|(scenario, time)| (f64::from(time), scenario.as_str())).collect();
    let samples = samples(&steps);
    let missing = |sample: &Sample| {
        let gpu = &sample.gpus[0];
        let lists = [
            ("throttle", gpu.throttle.why_missing()),
            ("processes", gpu.processes.why_missing()),
            ("mig", gpu.mig.why_missing()),
        ];
        let numbers = gpu.numbers().into_iter().map(|number| (number.name, number.value.err()));
        let all = numbers.chain(lists).filter(|(_, why)| why.is_some());
        all.map(|(name, _)| name).collect::<Vec<_>>()
    };
    assert_eq!(missing(&samples[1]), [""; 0]);
    for (((function, expected), code), three) in cases.iter().zip(samples[2..].chunks(3)) {
        assert_eq!(missing(&three[0]), *expected, "{function} {code}");
        assert_eq!(missing(&three[2]), [""; 0], "{function} {code}");
        assert_eq!(three[0].gpus[0].name, "NVIDIA H200");
    }
}
