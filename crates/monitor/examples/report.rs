//! Writes the report of runs as one HTML file: `cargo run -p plimsoll-monitor --example report -- runs/asr-1 runs/asr-2`.
//! Without folders it makes up two runs in a temporary folder.

use std::error::Error;
use std::f64::consts::TAU;
use std::fs;
use std::path::{Path, PathBuf};

use plimsoll_core::{
    Bytes, EndKind, Event, Measure, MicroBatch, OutOfMemory, PlanHeader, Position, Record, SCHEMA_VERSION, Skipped,
    Stage, StepEvent, TimeOwner, TimeShares,
};
use plimsoll_monitor::sample::{
    GpuSample, HostSample, Missing, Origin, Reading, Sample, SampleRecorder, SampledProcess, ThrottleReason,
};
use plimsoll_monitor::{Axis, Example, Heatmap, Picture, ReportPage, RunData, RunSamples, Summary, Ticks};

const STEPS: u64 = 4000;

fn main() -> Result<(), Box<dyn Error>> {
    let mut folders: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let out = tempfile::tempdir()?.keep();
    if folders.is_empty() {
        for (name, speed) in [("asr-small", 1.0), ("asr-wide", 1.6)] {
            folders.push(out.join(name));
            make_up(&out.join(name), speed)?;
        }
    }
    let runs: Vec<RunData> = folders.iter().filter_map(|folder| RunData::read(folder)).collect();
    let mut pages = vec![("report.html", &runs[..])];
    if runs.len() > 1 {
        pages.push(("first.html", &runs[..1]));
    }
    for (name, runs) in pages {
        let page = ReportPage::new(runs).to_html();
        fs::write(out.join(name), &page)?;
        println!("{} ({})", out.join(name).display(), Bytes(page.len() as u64));
    }
    Ok(())
}

/// Writes the files of a run that never happened. `speed` is the time of its steps, relative to another run.
fn make_up(folder: &Path, speed: f64) -> Result<(), Box<dyn Error>> {
    fs::create_dir_all(folder.join("samples"))?;
    let header = PlanHeader {
        schema_version: SCHEMA_VERSION,
        version: Some("0.1.0".into()),
        commit: Some("0c03081".into()),
        task: Some("asr".into()),
        seed: Some(7),
        device: Some("CUDA device 0: NVIDIA H200".into()),
        parameters: Some((7.2e6 * speed) as u64),
        total_steps: Some(STEPS),
        hop_seconds: Some(0.01),
        ..PlanHeader::default()
    };
    let plan = "[data]\ntraining_utterances = 28539\nvalidation_utterances = 512\n[memory]\nsharing = 1\naround = 0\n\
                budget = 12884901888\n[memory.plan]\npeak = 10200547328\n";
    fs::write(folder.join("plan.toml"), toml::to_string(&header)? + plan)?;
    let config = format!(
        "task = \"asr\"\nseed = 7\n[model]\nencoder_layers = {}\n[training]\nlearning_rate = 2.0e-3\nsteps = {STEPS}\n",
        (8.0 * speed).round()
    );
    fs::write(folder.join("config.toml"), config)?;
    let mut time = 1_795_269_780.0;
    let mut lines = String::new();
    for event in events(speed) {
        if let Event::Step(step) = &event {
            time += step.times.total();
        }
        lines += &(serde_json::to_string(&Record::new(time, event))? + "\n");
    }
    fs::write(folder.join("metrics.jsonl"), lines)?;
    summary(speed).write(folder)?;
    samples(&folder.join("samples"))?;
    record_machine(folder, (1800.0 * speed) as u32)?;
    Ok(())
}

fn events(speed: f64) -> Vec<Event> {
    let mut events = Vec::new();
    for step in 1..=STEPS {
        if step == 700 || step == 2210 {
            let failure = OutOfMemory { stage: Stage::Backward, reason: "cannot allocate 512 MiB".into() };
            events.push(Event::OutOfMemory { step, failure, limit: 24 });
        }
        if step == 90 {
            let sample = |n: u64| Skipped { name: format!("book-{n}"), reason: "too short for its text".into() };
            events.push(Event::LeftOut { samples: (0..12).map(sample).collect() });
        }
        events.push(Event::Step(step_event(step, speed)));
        if step == 2210 {
            events.push(Event::Drift {
                step: 2210,
                phase: Stage::Backward,
                planned_bytes: Bytes::mib(9728),
                peak_bytes: Bytes::mib(9990),
            });
        }
        if step.is_multiple_of(500) {
            let done = step as f64 / STEPS as f64;
            let cer = 0.045 * speed.sqrt() + 0.5 * (-4.5 * done).exp();
            let scores = vec![
                Measure::share("cer", "character error rate", cer),
                Measure::share("wer", "word error rate", (cer * 2.3).min(1.0)),
                Measure::number("loss", "loss for each token", 0.32 + 4.0 * (-5.5 * done).exp()),
            ];
            let peak_bytes = Bytes::mib(7300);
            events.push(Event::Validated { step, epoch: step / 600, scores, seconds: 21.0, best: true, peak_bytes });
            events.push(Event::Saved { step, path: format!("checkpoints/step-{step:06}").into() });
        }
    }
    let times = TimeShares::default();
    events.push(Event::Ended { step: STEPS, end: EndKind::Complete, reason: String::new(), times });
    events
}

fn step_event(step: u64, speed: f64) -> StepEvent {
    // A number between 0 and 1 that depends on nothing but the step.
    let noise = |salt: u64| ((step * 2_654_435_761 + salt * 40_503) % 1009) as f64 / 1009.0;
    let done = step as f64 / STEPS as f64;
    let seconds = (0.30 + 0.22 * noise(1)) * speed;
    let wait = if (1500..1750).contains(&step) { 0.35 * noise(2) } else { 0.03 * noise(2) };
    let mut times = TimeShares::default();
    times.add(TimeOwner::Compute, seconds * 0.84);
    times.add(TimeOwner::Optimizer, seconds * 0.06);
    times.add(TimeOwner::Submit, seconds * 0.05);
    times.add(TimeOwner::Transfer, seconds * 0.02);
    times.add(TimeOwner::Unknown, seconds * 0.03);
    times.add(TimeOwner::Data, wait);
    times.add(TimeOwner::Compile, if step < 40 { 1.4 } else { 0.0 });
    times.add(TimeOwner::Validation, if step % 500 == 1 && step > 1 { 21.0 } else { 0.0 });
    times.add(TimeOwner::Checkpoint, if step % 500 == 1 && step > 1 { 2.5 } else { 0.0 });
    times.add(TimeOwner::Retry, if step == 700 || step == 2210 { 9.0 } else { 0.0 });
    times.add(TimeOwner::Throttled, if (2800..3200).contains(&step) { 0.08 * speed } else { 0.0 });
    let loss = (0.25 + 5.0 * (-6.0 * done).exp() + 1.1 * (-1.8 * done).exp()) * (0.9 + 0.25 * noise(3));
    let ctc = loss * (0.9 + 0.2 * noise(4));
    StepEvent {
        step,
        position: Position { epoch: step / 600, ..Position::default() },
        loss: if step == 1203 { f64::NAN } else { loss },
        parts: [("ctc".into(), ctc), ("attention".into(), loss * 0.8)].into(),
        norm: 0.6 + 3.0 * (-8.0 * done).exp() + noise(5),
        rate: 2e-3 * (done * 12.0).min(1.0) * (0.5 + 0.5 * (done * TAU / 2.0).cos()),
        micro_batches: 1 + usize::from(step > 2210 && noise(1) > 0.7),
        ledger: vec![MicroBatch { start: 0, len: 20 + (40.0 * noise(1)) as u32, fallback_level: 0 }],
        frames: 24_000 + (9000.0 * noise(1)) as u64,
        padding: 0.02 + 0.09 * noise(6),
        step_seconds: seconds,
        wait_seconds: wait,
        peak_bytes: Bytes::mib(if step == 2210 { 9990 } else { 6400 + (2900.0 * noise(1)) as u64 }),
        times,
        ..StepEvent::default()
    }
}

fn summary(speed: f64) -> Summary {
    let example = |name: &str, truth: &str, output: &str| Example {
        name: name.into(),
        truth: truth.into(),
        output: output.into(),
    };
    Summary {
        name: "made up".into(),
        complete: true,
        scores: vec![
            Measure::share("cer", "character error rate", 0.0503 * speed.sqrt()),
            Measure::share("wer", "word error rate", 0.1157 * speed.sqrt()),
        ],
        held_out: 512,
        steps: STEPS,
        epochs: 6,
        left_out: vec![("too long".into(), 31)],
        examples: vec![
            example("book-0012", "the harbor was quiet before the storm", "the harbor was quiet before the storm"),
            example("book-0044", "she read the letter twice and folded it", "she red the letter twice and fold it"),
            example("book-0713", "seventeen ships left the bay at dawn", "seventeen sheep left bay at the dawn"),
        ],
        ..Summary::default()
    }
}

fn samples(folder: &Path) -> Result<(), Box<dyn Error>> {
    let tone: Vec<i16> =
        (0..8000).map(|n| (f64::from(n) * 440.0 * TAU / 8000.0).sin() * 6000.0).map(|s| s as i16).collect();
    for name in ["step-004000-1.wav", "truth-1.wav"] {
        fs::write(folder.join(name), wav(&tone, 8000))?;
    }
    let values: Vec<f32> = (0..40 * 90).map(|n| (-((n / 90 * 2 - n % 90) as f32 / 9.0).powi(2)).exp()).collect();
    let map = Heatmap {
        title: "the harbor was quiet".into(),
        values: &values,
        columns: 90,
        x: Axis { label: "seconds".into(), ticks: Ticks::Scale { from: 0.0, to: 0.9 } },
        y: Axis { label: "text".into(), ticks: Ticks::Scale { from: 0.0, to: 40.0 } },
    };
    Picture { maps: vec![map], shared: false }.write(&folder.join("step-004000-1.svg"))?;
    Ok(())
}

/// Records a machine for some seconds. Its GPU becomes hot in the last third, and other readings fail for a while.
fn record_machine(folder: &Path, seconds: u32) -> Result<(), Box<dyn Error>> {
    let mut recorder = SampleRecorder::append(&folder.join(RunSamples::FILE))?;
    for second in 0..seconds {
        let noise = |salt: u32| {
            f64::from((second.wrapping_mul(2_654_435_761) >> 7).wrapping_add(salt * 40_503) % 1009) / 1009.0
        };
        let done = f64::from(second) / f64::from(seconds);
        let is_hot = done > 0.7 && second % 90 < 25 || second == seconds / 3;
        let is_idle = second % 400 < 22;
        let (nvml, gpm) = (|value| Reading::new(value, Origin::Nvml), |value| Reading::new(value, Origin::Gpm));
        let system = |value| Reading::new(value, Origin::System);
        let busy = if is_idle { 0.0 } else { 0.82 + 0.17 * noise(1) };
        let watts = if is_idle { 95.0 } else { 480.0 + 210.0 * noise(2) };
        let is_lost = (0.45..0.5).contains(&done);
        let process = |pid, gib: f64, is_own| SampledProcess {
            pid,
            memory: Reading::new(Bytes((gib * 1024.0) as u64 * (1 << 20)), Origin::Nvml),
            is_own,
            is_other: !is_own,
            ..SampledProcess::default()
        };
        let others = if done > 0.4 { 2.5 } else { 0.0 };
        let gpu = GpuSample {
            name: "NVIDIA H200".into(),
            cuda_index: Some(0),
            utilization: nvml(busy),
            sm_active: gpm(busy * (0.5 + 0.1 * noise(3))),
            tensor_active: gpm(busy * 0.22),
            dram_active: gpm(busy * (0.3 + 0.05 * noise(4))),
            memory_used: Reading::new(Bytes::mib(9100 + (others * 1024.0) as u64), Origin::Nvml),
            power: if is_lost { Reading::missing(Missing::Failed, Origin::Nvml) } else { nvml(watts) },
            power_limit: nvml(700.0),
            temperature: nvml(45.0 + 38.0 * (1.0 - (-5.0 * done).exp()) + 2.0 * noise(5)),
            sm_clock: nvml(if is_hot { 1290.0 + 60.0 * noise(6) } else { 1980.0 }),
            sm_clock_max: nvml(1980.0),
            throttle: nvml_list(is_hot, watts > 685.0),
            processes: Reading::new(vec![process(1, 8.6, true), process(2, others, false)], Origin::Nvml),
            ..GpuSample::default()
        };
        let host = HostSample {
            own_cpus: system(3.0 + 2.0 * noise(7)),
            other_cpus: system(0.4 * noise(8)),
            cpus: Reading::new(16, Origin::System),
            memory_total: Reading::new(Bytes::gib(128), Origin::System),
            memory_available: Reading::new(Bytes::gib(100), Origin::System),
            own_memory: Reading::new(Bytes::mib(6000 + (2000.0 * done) as u64), Origin::System),
            ..HostSample::default()
        };
        recorder.record(&Sample { time: 1_795_269_780.0 + f64::from(second), host, gpus: vec![gpu], no_gpu: None })?;
    }
    Ok(recorder.finish()?)
}

fn nvml_list(is_hot: bool, is_at_limit: bool) -> Reading<Vec<ThrottleReason>> {
    let reasons = [(is_hot, ThrottleReason::Heat), (is_at_limit, ThrottleReason::PowerLimit)];
    Reading::new(reasons.into_iter().filter_map(|(is_on, reason)| is_on.then_some(reason)).collect(), Origin::Nvml)
}

/// Encodes samples as a WAV file with one channel of 16 bits.
fn wav(samples: &[i16], rate: u32) -> Vec<u8> {
    let size = samples.len() as u32 * 2;
    let mut bytes = b"RIFF".to_vec();
    bytes.extend((36 + size).to_le_bytes());
    bytes.extend(b"WAVEfmt ");
    bytes.extend(16u32.to_le_bytes());
    bytes.extend([1u16, 1].map(u16::to_le_bytes).concat());
    bytes.extend([rate, rate * 2].map(u32::to_le_bytes).concat());
    bytes.extend([2u16, 16].map(u16::to_le_bytes).concat());
    bytes.extend(b"data");
    bytes.extend(size.to_le_bytes());
    bytes.extend(samples.iter().flat_map(|sample| sample.to_le_bytes()));
    bytes
}
