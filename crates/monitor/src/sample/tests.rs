//! Tests of sampling with plain data in place of a machine.

use std::sync::mpsc::channel;
use std::time::Duration;

use plimsoll_core::Bytes;

use super::*;

fn sample(time: f64, utilization: Result<f64, Missing>) -> Sample {
    let gpu = GpuSample {
        uuid: "GPU-1".into(),
        name: "Test GPU".into(),
        utilization: Reading::from_result(utilization, Origin::Nvml),
        memory_used: Reading::new(Bytes::gib(3), Origin::Nvml),
        ..GpuSample::default()
    };
    Sample { time, gpus: vec![gpu], ..Sample::default() }
}

fn summary_of(samples: &[Sample]) -> MonitorSummary {
    let mut collector = summary::SummaryCollector::default();
    samples.iter().for_each(|sample| collector.add(sample));
    collector.summary()
}

fn number<'a>(summary: &'a MonitorSummary, name: &str) -> &'a NumberSummary {
    summary.gpus[0].numbers.iter().find(|number| number.name == name).unwrap()
}

#[test]
fn a_missing_value_is_never_zero_in_a_summary() {
    let values = [Ok(0.5), Err(Missing::Lost), Ok(0.9), Err(Missing::Lost)];
    let samples: Vec<_> =
        values.into_iter().zip(0..).map(|(value, time)| sample(f64::from(time) + 7.0, value)).collect();
    let summary = summary_of(&samples);
    let utilization = number(&summary, "utilization");
    let values = utilization.values.unwrap();
    assert_eq!((values.min, values.max, values.count, values.seconds), (0.5, 0.9, 2, 1.0));
    assert_eq!(utilization.missing, Some(Missing::Lost));
    let never_read = number(&summary, "power");
    assert_eq!((never_read.values, never_read.missing), (None, Some(Missing::NotRead)));
    let text = summary.to_string();
    assert!(text.contains("GPU 0 (Test GPU)") && text.contains("3 GiB") && text.contains("not read"), "{text}");
    let json = serde_json::to_string(&summary).unwrap();
    assert_eq!(serde_json::from_str::<MonitorSummary>(&json).unwrap(), summary);
}

#[test]
fn a_clock_that_goes_back_takes_no_time_away() {
    let samples = [3.0, 5.0, 1.0, 2.0].map(|time| sample(time, Ok(0.5)));
    assert_eq!(summary_of(&samples).seconds, 3.0);
}

#[test]
fn a_gpu_that_answers_late_is_one_gpu() {
    let mut unknown = sample(1.0, Err(Missing::Lost));
    unknown.gpus[0].uuid.clear();
    unknown.gpus[0].name.clear();
    let summary = summary_of(&[unknown, sample(2.0, Ok(0.25))]);
    assert_eq!(summary.gpus.len(), 1);
    assert_eq!((summary.gpus[0].uuid.as_str(), number(&summary, "utilization").values.unwrap().max), ("GPU-1", 0.25));
}

#[test]
fn a_monitor_samples_until_it_is_stopped() {
    let (sender, seen) = channel();
    let mut time = 0.0;
    let open = move || {
        Sampler::new(move |_| {
            time += 1.0;
            sample(time, Ok(0.5))
        })
    };
    let on_sample = move |sample: &Sample| sender.send(sample.time).unwrap_or_default();
    let monitor = Monitor::start_with(Duration::from_millis(10), open, on_sample);
    let times: Vec<f64> = seen.iter().take(3).collect();
    assert_eq!(times, [1.0, 2.0, 3.0]);
    assert!(monitor.latest().is_some());
    let summary = monitor.stop();
    assert!(summary.samples >= 3 && summary.problem.is_none(), "{summary:?}");
    assert_eq!(number(&summary, "utilization").values.unwrap().mean, 0.5);
    assert!(summary.cost.wall_seconds >= summary.cost.longest_seconds);
}

#[test]
fn a_panic_of_a_source_ends_sampling_and_nothing_else() {
    let open = || Sampler::new(|_| -> Sample { panic!("on purpose") });
    let monitor = Monitor::start_with(Duration::from_millis(10), open, |_| {});
    let summary = monitor.stop();
    assert_eq!((summary.samples, summary.problem.as_deref()), (0, Some("on purpose")));
    assert!(summary.to_string().contains("sampling ended early: on purpose"));
}

#[test]
fn this_machine_is_sampled() {
    let mut sampler = Sampler::new(MachineSource::open());
    let sample = sampler.sample();
    assert!(sample.time > 1.7e9 && sample.host.cpus.value() >= Some(&1), "{sample:?}");
    let json = serde_json::to_string(&sample).unwrap();
    assert_eq!(serde_json::from_str::<Sample>(&json).unwrap(), sample);
}
