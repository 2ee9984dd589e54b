//! A run that never happened: its numbers are exact in binary, so that sums of them are exact too.

use std::f64::consts::TAU;
use std::fs::{create_dir_all, write};
use std::path::Path;

use plimsoll_core::{
    Bytes, EndKind, Event, Measure, OutOfMemory, PlanHeader, Position, Record, SCHEMA_VERSION, Stage, StepEvent,
    TimeOwner, TimeShares,
};
use plimsoll_monitor::live::RunView;
use plimsoll_monitor::sample::{
    GpuSample, HostSample, Missing, Origin, Reading, Sample, SampleRecorder, SampledProcess, ThrottleReason,
};
use plimsoll_monitor::{Axis, Example, Heatmap, Picture, RunSamples, RunSetup, Summary, Ticks};

/// Number of steps of the run.
pub(crate) const STEPS: u64 = 128;
/// Time of the first record: far in the future, so that no view shows an age.
const START: f64 = 4e9;
/// Length of the sound of an example in seconds.
pub(crate) const SOUND_SECONDS: u32 = 1;

/// Seconds of each step by owner.
pub(crate) const TIMES: [(TimeOwner, f64); 5] = [
    (TimeOwner::Compute, 0.5),
    (TimeOwner::Data, 0.125),
    (TimeOwner::Submit, 0.0625),
    (TimeOwner::Optimizer, 0.03125),
    (TimeOwner::Unknown, 0.03125),
];
/// Feature frames of each step, of 10 ms each.
pub(crate) const FRAMES: u64 = 16_000;

pub(crate) fn loss(step: u64) -> f64 {
    0.5 + (STEPS - step) as f64 / 64.0
}

pub(crate) fn peak(step: u64) -> Bytes {
    Bytes::mib(900 + step % 50)
}

/// Events of the first `steps` steps of the run.
pub(crate) fn events(steps: u64) -> Vec<Event> {
    let mut events = Vec::new();
    for step in 1..=steps {
        let mut times = TimeShares::default();
        TIMES.iter().for_each(|(owner, seconds)| times.add(*owner, *seconds));
        events.push(Event::Step(StepEvent {
            step,
            position: Position { epoch: step / 64, ..Position::default() },
            loss: loss(step),
            parts: [("ctc".into(), loss(step) * 0.5)].into(),
            norm: 1.5,
            rate: 0.001,
            frames: FRAMES,
            padding: 0.25,
            step_seconds: 0.625,
            wait_seconds: 0.125,
            peak_bytes: peak(step),
            times,
            ..StepEvent::default()
        }));
        if step % 64 == 0 {
            let scores = vec![Measure::share("cer", "character error rate", 8.0 / step as f64)];
            events.push(Event::Validated {
                step,
                epoch: step / 64,
                scores,
                seconds: 2.5,
                best: true,
                peak_bytes: peak(1),
            });
            events.push(Event::Saved { step, path: format!("runs/harbor/checkpoints/{step:06}").into() });
        }
        if step == 100 {
            let failure = OutOfMemory { stage: Stage::Backward, reason: "cannot allocate 512 MiB".into() };
            events.push(Event::OutOfMemory { step, failure, limit: 24 });
        }
    }
    events
}

/// State of the run after `steps` steps, with the readings of a machine.
pub(crate) fn view(steps: u64) -> RunView {
    let mut run = RunView::new("harbor-07");
    run.set_setup(&RunSetup {
        task: Some("asr".into()),
        device: Some("CUDA device 0: NVIDIA H200".into()),
        total_steps: Some(STEPS),
        hop_seconds: Some(0.01),
        ..RunSetup::default()
    });
    run.set_planned_bytes(Some(Bytes::mib(1000)));
    let records = events(steps).into_iter().zip(0..).map(|(event, at)| Record::new(START + f64::from(at), event));
    records.for_each(|record| run.observe(&record));
    run.sample(sample());
    run
}

/// Readings of a machine with a GPU, of which some are missing.
pub(crate) fn sample() -> Sample {
    let nvml = |value| Reading::new(value, Origin::Nvml);
    let system = |value| Reading::new(value, Origin::System);
    let process = |pid, name: Option<&str>, memory, is_own| SampledProcess {
        pid,
        name: name.map(Into::into),
        memory,
        is_own,
        is_other: !is_own,
    };
    let gpu = GpuSample {
        uuid: "GPU-8f6d2f0a-0000-4000-8000-000000000001".into(),
        name: "NVIDIA H200".into(),
        cuda_index: Some(0),
        utilization: nvml(0.97),
        sm_active: Reading::new(0.41, Origin::Gpm),
        tensor_active: Reading::missing(Missing::NotSupported, Origin::Gpm),
        memory_total: Reading::new(Bytes::gib(141), Origin::Nvml),
        memory_used: Reading::new(Bytes::gib(17), Origin::Nvml),
        power: nvml(431.5),
        power_limit: nvml(700.0),
        temperature: nvml(54.0),
        sm_clock: nvml(1755.0),
        sm_clock_max: nvml(1980.0),
        throttle: Reading::new(vec![ThrottleReason::PowerLimit], Origin::Nvml),
        ecc_errors: Reading::new(0, Origin::Nvml),
        processes: Reading::new(
            vec![
                process(4242, Some("plimsoll"), Reading::new(Bytes::gib(16), Origin::Nvml), true),
                process(77, None, Reading::missing(Missing::NoPermission, Origin::Nvml), false),
            ],
            Origin::Nvml,
        ),
        ..GpuSample::default()
    };
    let host = HostSample {
        cpu: system(0.625),
        own_cpus: system(3.5),
        other_cpus: Reading::missing(Missing::NeedsTwoReadings, Origin::System),
        cpus: Reading::new(8, Origin::System),
        memory_total: Reading::new(Bytes::gib(32), Origin::System),
        memory_available: Reading::new(Bytes::gib(20), Origin::System),
        ..HostSample::default()
    };
    Sample { time: START, host, gpus: vec![gpu], no_gpu: None }
}

/// Power of the GPU in a sample of the recording.
pub(crate) fn watts(second: u32) -> f64 {
    f64::from(400 + second % 32)
}

/// Number of samples of the recording, of which the last third is throttled.
pub(crate) const SAMPLES: u32 = 96;

/// Writes the recording of the machine, with one sample a second.
fn write_samples(folder: &Path) {
    let mut recorder = SampleRecorder::append(&folder.join(RunSamples::FILE)).unwrap();
    for second in 0..SAMPLES {
        let mut sample = Sample { time: START + f64::from(second), ..sample() };
        let gpu = &mut sample.gpus[0];
        gpu.power = Reading::new(watts(second), Origin::Nvml);
        if second < SAMPLES * 2 / 3 {
            gpu.throttle = Reading::new(Vec::new(), Origin::Nvml);
        }
        recorder.record(&sample).unwrap();
    }
    recorder.finish().unwrap();
}

/// Writes the folder of the complete run.
pub(crate) fn write_run(folder: &Path) {
    create_dir_all(folder.join("samples")).unwrap();
    let header = PlanHeader {
        schema_version: SCHEMA_VERSION,
        task: Some("asr".into()),
        seed: Some(7),
        device: Some("CUDA device 0: NVIDIA H200".into()),
        total_steps: Some(STEPS),
        hop_seconds: Some(0.01),
        ..PlanHeader::default()
    };
    let plan = "[memory]\nbudget = 1258291200\n[memory.plan]\npeak = 1048576000\n";
    write(folder.join("plan.toml"), toml::to_string(&header).unwrap() + plan).unwrap();
    write(folder.join("config.toml"), "task = \"asr\"\nseed = 7\n[training]\nsteps = 128\n").unwrap();
    let times = TimeShares::default();
    let end = Event::Ended { step: STEPS, end: EndKind::Complete, reason: String::new(), times };
    let records = events(STEPS).into_iter().chain([end]).map(|event| Record::new(START, event));
    let lines = records.map(|record| serde_json::to_string(&record).unwrap() + "\n");
    write(folder.join("metrics.jsonl"), lines.collect::<String>()).unwrap();
    summary().write(folder).unwrap();
    write_samples(folder);
    write(folder.join("samples/truth-1.wav"), tone()).unwrap();
    let values: Vec<f32> = (0..40 * 90).map(|n| (-((n / 90 * 2 - n % 90) as f32 / 9.0).powi(2)).exp()).collect();
    let map = Heatmap {
        title: "the harbor was quiet".into(),
        values: &values,
        columns: 90,
        x: Axis { label: "seconds".into(), ticks: Ticks::Scale { from: 0.0, to: 0.9 } },
        y: Axis { label: "text".into(), ticks: Ticks::Scale { from: 0.0, to: 40.0 } },
    };
    Picture { maps: vec![map], shared: false }.write(&folder.join("samples/step-000128-1.svg")).unwrap();
}

fn summary() -> Summary {
    let example = |name: &str, truth: &str, output: &str| Example {
        name: name.into(),
        truth: truth.into(),
        output: output.into(),
    };
    let long = "harbor".repeat(60);
    Summary {
        name: "harbor-07".into(),
        complete: true,
        scores: vec![Measure::share("cer", "character error rate", 0.0625)],
        held_out: 512,
        steps: STEPS,
        epochs: 2,
        examples: vec![
            example("book-0044", "she read the letter twice", "she red the <b>letter</b> twice"),
            example("book-0713", &long, &long),
        ],
        ..Summary::default()
    }
}

/// Makes a sound as a WAV file with one channel of 16 bits.
fn tone() -> Vec<u8> {
    let (rate, count) = (8000u32, 8000 * SOUND_SECONDS);
    let mut bytes = b"RIFF".to_vec();
    bytes.extend((36 + count * 2).to_le_bytes());
    bytes.extend(b"WAVEfmt ");
    bytes.extend(16u32.to_le_bytes());
    bytes.extend([1u16, 1].map(u16::to_le_bytes).concat());
    bytes.extend([rate, rate * 2].map(u32::to_le_bytes).concat());
    bytes.extend([2u16, 16].map(u16::to_le_bytes).concat());
    bytes.extend(b"data");
    bytes.extend((count * 2).to_le_bytes());
    let wave = |n: u32| (f64::from(n) * 440.0 * TAU / f64::from(rate)).sin() * 6000.0;
    bytes.extend((0..count).flat_map(|n| (wave(n) as i16).to_le_bytes()));
    bytes
}
