//! Tests of the samples of a run's machine on its page.

use proptest::prelude::*;

use super::*;
use crate::RunSamples;
use crate::sample::{
    GpuSample, HostSample, Missing, Origin, Reading, Sample, SampleRecorder, SampledProcess, ThrottleReason,
};

/// Time of the first sample.
const START: f64 = 1.8e9;
/// Samples without power and temperature.
const LOST: std::ops::Range<u32> = 20..40;
/// The only sample with heat.
const HOT: u32 = 137;

fn known<T>(value: T) -> Reading<T> {
    Reading::new(value, Origin::Nvml)
}

fn missing<T>(why: Missing) -> Reading<T> {
    Reading::missing(why, Origin::Nvml)
}

fn power(second: u32) -> f64 {
    f64::from(200 + second % 64)
}

fn process(gib: u64, is_own: bool) -> SampledProcess {
    let pid = if is_own { 1 } else { 2 };
    SampledProcess {
        pid,
        name: Some("<b>secret</b>".into()),
        memory: known(Bytes::gib(gib)),
        is_own,
        is_other: !is_own,
    }
}

fn gpu(index: u32, second: u32) -> GpuSample {
    let is_lost = LOST.contains(&second);
    let read = |value: f64| if is_lost { missing(Missing::Lost) } else { known(value) };
    GpuSample {
        index,
        name: "NVIDIA <H200>".into(),
        uuid: format!("GPU-{index}"),
        cuda_index: Some(index as usize),
        utilization: known(0.875),
        tensor_active: missing(Missing::NotSupported),
        memory_used: known(Bytes::gib(6)),
        power: read(power(second)),
        power_limit: known(700.0),
        temperature: read(50.0),
        sm_clock: known(if second == HOT { 900.0 } else { 1980.0 }),
        sm_clock_max: known(1980.0),
        throttle: known(if second == HOT { vec![ThrottleReason::Heat] } else { vec![] }),
        processes: known(vec![process(4, true), process(2, false)]),
        ..GpuSample::default()
    }
}

fn sample(second: u32, n_gpus: u32) -> Sample {
    let host = HostSample {
        own_cpus: known(1.5),
        cpus: known(8),
        memory_total: known(Bytes::gib(32)),
        memory_available: known(Bytes::gib(20)),
        own_memory: known(Bytes::gib(2)),
        ..HostSample::default()
    };
    let gpus = (0..n_gpus).map(|index| gpu(index, second)).collect();
    Sample { time: START + f64::from(second), host, gpus, no_gpu: None }
}

fn write_samples(folder: &Path, samples: impl IntoIterator<Item = Sample>) {
    let mut recorder = SampleRecorder::append(&folder.join(RunSamples::FILE)).unwrap();
    samples.into_iter().for_each(|sample| recorder.record(&sample).unwrap());
    recorder.finish().unwrap();
}

fn run_with(samples: impl IntoIterator<Item = Sample>) -> RunData {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), &[Event::Step(step(1))]);
    write_samples(folder.path(), samples);
    RunData::read(folder.path()).unwrap()
}

/// Returns the figure with this title.
fn figure<'a>(html: &'a str, title: &str) -> Option<&'a str> {
    let start = html.find(&format!("<figcaption><b>{title}</b>"))?;
    html[start..].split("</figure>").next()
}

fn number<'a>(numbers: &'a Value, name: &str) -> &'a Value {
    numbers.as_array().unwrap().iter().find(|number| number["name"] == name).unwrap()
}

#[test]
fn the_numbers_of_a_page_are_those_of_the_samples() {
    let (html, numbers) = page_of(&[run_with((0..300).map(|second| sample(second, 1)))]);
    let machine = &numbers["runs"][0]["machine"];
    assert_eq!(
        (&machine["samples"], &machine["seconds"], &machine["damaged_lines"]),
        (&300.into(), &299.0.into(), &0.into())
    );
    let gpu = &machine["gpus"][0];
    let powers: Vec<f64> = (0..300).filter(|second| !LOST.contains(second)).map(power).collect();
    let values = &number(&gpu["numbers"], "power")["values"];
    assert_eq!((&values["min"], &values["max"], &values["count"]), (&200.0.into(), &263.0.into(), &280.into()));
    // The first sample stands for no time.
    let mean = powers[1..].iter().sum::<f64>() / (powers.len() - 1) as f64;
    assert!((values["mean"].as_f64().unwrap() - mean).abs() < 1e-9, "{values}");
    assert_eq!(number(&gpu["numbers"], "tensor_active")["missing"], "not_supported");
    assert!(number(&gpu["numbers"], "tensor_active")["values"].is_null());
    let bytes = |name: &str| number(&gpu["numbers"], name)["values"]["max"].as_f64();
    assert_eq!(bytes("memory_own"), Some(Bytes::gib(4).0 as f64));
    assert_eq!(bytes("memory_others"), Some(Bytes::gib(2).0 as f64));
    assert_eq!(number(&machine["host"], "memory_used")["values"]["max"].as_f64(), Some(Bytes::gib(12).0 as f64));
    assert_eq!((&gpu["throttled_seconds"], &gpu["throttled_by"]["heat"]), (&1.0.into(), &1.0.into()));
    assert!(html.contains("ran below its highest clock for <b>1s</b> (0.3\u{a0}% of the known time): heat 1s."));
    // The name of another process may be private.
    assert!(!html.contains("secret") && html.contains("NVIDIA &lt;H200&gt;"));
}

#[test]
fn a_missing_value_is_a_gap_with_its_reason() {
    let (html, _) = page_of(&[run_with((0..300).map(|second| sample(second, 1)))]);
    let curves = |title: &str| figure(&html, title).unwrap().matches("class=\"bold c8\"").count();
    assert_eq!((curves("Power"), curves("Temperature"), curves("Clock")), (2, 2, 1));
    assert!(html.contains("tensor cores active: no value (not supported)"));
    assert!(html.contains("power: no value in 20 of 300 samples (the device is lost)"));
    assert!(figure(&html, "A kernel ran").is_some() && figure(&html, "Tensor cores active").is_none());
    assert!(figure(&html, "Clock").unwrap().contains("class=\"band throttled\""));
    assert!(html.contains("from 2m16s on, for 1s: heat"));
}

#[test]
fn processes_in_a_container_are_not_visible() {
    let samples = (0..30).map(|second| {
        let mut sample = sample(second, 1);
        let unknown = SampledProcess { is_own: false, is_other: false, ..process(4, true) };
        sample.gpus[0].processes = known(vec![unknown]);
        sample.gpus[0].throttle = missing(Missing::NoPermission);
        sample
    });
    let (html, numbers) = page_of(&[run_with(samples)]);
    let gpu = &numbers["runs"][0]["machine"]["gpus"][0];
    assert_eq!(number(&gpu["numbers"], "memory_own")["missing"], "not_visible");
    assert!(gpu["throttled_seconds"].is_null());
    assert!(html.contains("memory of the run's process: no value (not visible from here)"));
    assert!(html.contains("Whether GPU 0 ran below its highest clock is not known: no permission."));
    assert!(figure(&html, "GPU memory").unwrap().contains("planned"));
}

#[test]
fn a_pause_of_the_run_takes_no_time() {
    let later = |second: u32| Sample { time: START + 1e6 + f64::from(second), ..sample(second, 1) };
    let samples = (0..100).map(|second| sample(second, 1)).chain((100..200).map(later));
    let (html, numbers) = page_of(&[run_with(samples)]);
    assert_eq!(numbers["runs"][0]["machine"]["seconds"], 199.0);
    // The pause is a gap in each curve.
    assert!(figure(&html, "GPU memory").is_some());
    let back = (0..10).map(|second| sample(second, 1)).chain([Sample { time: 5.0, ..sample(10, 1) }]);
    assert_eq!(page_of(&[run_with(back)]).1["runs"][0]["machine"]["seconds"], 10.0);
}

#[test]
fn only_gpus_of_the_run_are_shown() {
    let samples = (0..30).map(|second| {
        let mut sample = sample(second, 3);
        sample.gpus[0].cuda_index = None;
        sample.gpus[1].cuda_index = None;
        sample
    });
    let (_, numbers) = page_of(&[run_with(samples)]);
    let gpus = numbers["runs"][0]["machine"]["gpus"].as_array().unwrap();
    assert_eq!((gpus.len(), &gpus[0]["index"]), (1, &2.into()));
    let none = Sample { gpus: vec![], no_gpu: Some(HOSTILE.into()), ..sample(0, 0) };
    let (html, _) = page_of(&[run_with([none.clone(), Sample { time: START + 1.0, ..none }])]);
    assert!(html.contains("No GPU could be read: &lt;/script&gt;") && figure(&html, "Memory of the host").is_some());
}

#[test]
fn samples_that_cannot_be_read_are_one_sentence() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), &[Event::Step(step(1))]);
    let path = folder.path().join(RunSamples::FILE);
    let check = |part: &str| {
        let (html, numbers) = page_of(&[RunData::read(folder.path()).unwrap()]);
        let (_, section) = html.split_once("<section id=\"gpu\">").unwrap();
        let section = section.split("</section>").next().unwrap();
        assert!(section.contains(part), "{section}");
        (section.matches("<p").count(), numbers["runs"][0]["machine"].clone())
    };
    // Only a run on a GPU has samples.
    let (html, numbers) = page_of(&[RunData::read(folder.path()).unwrap()]);
    assert!(!html.contains("id=\"gpu\"") && numbers["runs"][0]["machine"].is_null());
    let mut run = RunData::read(folder.path()).unwrap();
    run.report.setup.device = Some("CUDA device 0".into());
    assert!(page_of(&[run]).0.contains("There are no samples of the machine."));
    fs::write(&path, "").unwrap();
    assert_eq!(check("holds no sample"), (1, Value::Null));
    for bytes in ["no recording\n".as_bytes(), b"\0\0\0\0", b"{\"time\":1}\n", b"[]"] {
        fs::write(&path, bytes).unwrap();
        assert_eq!(check("cannot be read: line 1 is no sample"), (1, Value::Null));
    }
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    assert_eq!(check("cannot be read"), (1, Value::Null));
    fs::remove_dir(&path).unwrap();
    // Lines inside that are no samples are counted, and the others count.
    let lines = (0..20).map(|second| serde_json::to_string(&sample(second, 1)).unwrap() + "\n");
    let text: String =
        lines.enumerate().map(|(place, line)| if place % 5 == 4 { "{}\n".into() } else { line }).collect();
    fs::write(&path, text).unwrap();
    assert_eq!(check("that are no samples: 4.").1["samples"], 16);
}

#[test]
fn a_recording_that_is_cut_or_broken_anywhere_makes_a_page() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), &[Event::Step(step(1))]);
    write_samples(folder.path(), (0..60).map(|second| sample(second, 2)));
    let path = folder.path().join(RunSamples::FILE);
    let whole = fs::read(&path).unwrap();
    for place in (0..whole.len()).step_by(353) {
        fs::write(&path, &whole[..place]).unwrap();
        page_of(&[RunData::read(folder.path()).unwrap()]);
        let mut broken = whole.clone();
        broken[place] ^= 0x55;
        fs::write(&path, broken).unwrap();
        page_of(&[RunData::read(folder.path()).unwrap()]);
    }
}

#[test]
fn long_runs_with_many_gpus_fit_and_keep_a_short_throttle() {
    let long = |n_gpus| run_with((0..2500).map(move |second| sample(second, n_gpus)));
    let (html, numbers) = page_of(&[long(10)]);
    assert!(html.contains("GPUs that are not on this page: 2."));
    let gpus = numbers["runs"][0]["machine"]["gpus"].as_array().unwrap();
    assert_eq!((gpus.len(), html.matches("class=\"band throttled\"").count()), (10, 8 * 5));
    // The clock fell for one sample of 2500.
    let clock = figure(&html, "Clock").unwrap();
    assert!(clock.contains("for 1s: heat"));
    let mut runs = vec![long(2); 8];
    for (run, name) in runs.iter_mut().zip(["a", "b", "c", "d", "e", "f", "g", "h"]) {
        run.report.name = name.into();
    }
    runs[3] = run_of(&[Event::Step(step(1))]);
    let (html, numbers) = page_of(&runs);
    assert!(numbers["runs"][3]["machine"].is_null() && numbers["runs"][7]["machine"]["samples"] == 2500);
    let clock = figure(&html, "Clock").unwrap();
    assert!(clock.contains("class=\"band row c7\"") && clock.contains("legend"));
    assert!(!figure(&html, "Power").unwrap().contains("class=\"band"));
    assert!(
        html.contains(
            "b: GPU 1. Missing: SM active: no value (not read); tensor cores active: no value (not supported)"
        )
    );
    assert!(html.contains("Dashed: the planned peak."));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn any_readings_make_a_page(
        times in proptest::collection::vec(prop_oneof![20 => 0.0..3.0_f64, 1 => -1e9..1e9_f64], 1..60),
        numbers in proptest::collection::vec(prop_oneof![9 => -1e3..1e12_f64, 1 => Just(1e300)], 1..60),
        why in 0_u8..8,
    ) {
        let mut time = START;
        let samples = times.iter().zip(numbers.iter().cycle()).enumerate().map(|(place, (passed, value))| {
            time += passed;
            let mut sample = Sample { time, ..sample(place as u32, 1) };
            let gpu = &mut sample.gpus[0];
            gpu.power = known(*value);
            gpu.temperature = if place as u8 % 8 < why { missing(Missing::NoPermission) } else { known(*value) };
            gpu.memory_used = known(Bytes(value.min(1e15) as u64));
            sample
        });
        let run = run_with(samples);
        prop_assert!(run.machine.trace().is_some(), "{:?}", run.machine);
        let (_, page) = page_of(&[run]);
        prop_assert_eq!(&page["runs"][0]["machine"]["samples"], times.len());
    }
}
