//! A run state as Prometheus text.

use plimsoll_core::Bytes;

use super::metric::{Exposition, Kind, Labeled};
use crate::RunStatus;
use crate::live::RunView;
use crate::sample::{GpuSample, Reading, Sample};

/// Formats a run state in the text format of Prometheus, version 0.0.4. Units are bytes, seconds and shares of 1. What is
/// missing is left out, because a zero would be a value.
///
/// ```
/// use plimsoll_core::{Event, Record, StepEvent};
/// use plimsoll_monitor::live::RunView;
/// use plimsoll_monitor::serve::prometheus_text;
///
/// let mut run = RunView::new("toy");
/// run.observe(&Record::new(1.8e9, Event::Step(StepEvent { step: 3, loss: 2.5, ..StepEvent::default() })));
/// let text = prometheus_text(&run);
/// assert!(text.contains("\nplimsoll_loss 2.5\n") && !text.contains("plimsoll_memory_peak_bytes"));
/// ```
pub fn prometheus_text(run: &RunView) -> String {
    let mut text = Exposition::default();
    add_run(&mut text, run);
    add_counts(&mut text, run);
    if let Some(sample) = run.last_sample() {
        add_host(&mut text, sample);
        add_gpu_shares(&mut text, &sample.gpus);
        add_gpu_amounts(&mut text, &sample.gpus);
    }
    text.into_text()
}

fn bytes(amount: Bytes) -> f64 {
    amount.0 as f64
}

fn add_run(text: &mut Exposition, run: &RunView) {
    let mut labels = vec![("name", run.name().to_string())];
    labels.extend(run.task().map(|task| ("task", task.into())));
    labels.extend(run.device().map(|device| ("device", device.into())));
    text.family(Kind::Gauge, "run_info", "Names of the run. The value is always 1.", [(labels, Some(1.0))]);
    let mut gauge = |name: &str, help: &str, value: Option<f64>| text.one(Kind::Gauge, name, help, value);
    let is_running = run.status().map(|status| f64::from(u8::from(status == RunStatus::Running)));
    gauge("running", "Whether the run is running.", is_running);
    gauge("last_record_timestamp_seconds", "Time of the last record of the run.", run.last_record());
    gauge("step", "Number of the last step.", run.step().map(|step| step as f64));
    gauge("steps_planned", "Number of steps of the whole run.", run.total_steps().map(|steps| steps as f64));
    gauge("epoch", "Number of completed epochs.", run.epoch().map(|epoch| epoch as f64));
    gauge("remaining_seconds", "Time until the last step, estimated.", run.time_left().map(|left| left.0));
    gauge("step_seconds", "Wall time of a step over the last steps.", run.window().seconds_per_step());
    let speed = run.audio_seconds_per_second();
    gauge("audio_speed_ratio", "Seconds of audio per second over the last steps.", speed);
    gauge("padding_ratio", "Share of padding in the last batch.", run.padding());
    gauge("loss", "Loss of the last step.", run.losses().last().map(|(_, loss)| loss));
    gauge("learning_rate", "Learning rate of the last step.", run.rate());
    gauge("gradient_norm", "Norm of the gradient of the last step before clipping.", run.norm());
    gauge("memory_peak_bytes", "Peak memory of the run.", run.peak_bytes().map(bytes));
    gauge("memory_planned_bytes", "Planned peak memory of the run.", run.planned_bytes().map(bytes));
    let scores = run.scores().iter().map(|score| (vec![("score", score.name.to_string())], Some(score.value)));
    text.family(Kind::Gauge, "validation_score", "Scores of the last validation.", scores);
}

fn add_counts(text: &mut Exposition, run: &RunView) {
    let times: Vec<Labeled<'_>> =
        run.total().times.iter().map(|(owner, time)| (vec![("owner", owner.name().to_string())], Some(time))).collect();
    text.family(Kind::Counter, "time_seconds_total", "Wall time of the run by owner.", times);
    text.one(Kind::Counter, "audio_seconds_total", "Audio of all steps, without padding.", run.audio_seconds());
    let counts = run.counts();
    for (name, help, count) in [
        ("steps_total", "Steps that were taken, with repeated steps of a resumed run.", counts.steps),
        ("frames_total", "Feature frames of all steps, without padding.", counts.frames),
        ("skipped_steps_total", "Steps that were not taken.", counts.skipped),
        ("out_of_memory_total", "Times that memory ran out.", counts.out_of_memory),
        ("steps_above_plan_total", "Steps that used more memory than planned.", counts.over_plan),
        ("left_out_samples_total", "Samples that were left out of batches.", counts.left_out),
        ("validations_total", "Validations of the model.", counts.validations),
        ("checkpoints_total", "Checkpoints that were written.", counts.checkpoints),
        ("failed_checkpoints_total", "Checkpoints that could not be written.", counts.not_saved),
    ] {
        text.one(Kind::Counter, name, help, Some(count as f64));
    }
}

fn add_host(text: &mut Exposition, sample: &Sample) {
    let host = &sample.host;
    let mut gauge = |name: &str, help: &str, value: Option<f64>| text.one(Kind::Gauge, name, help, value);
    let number = |reading: &Reading<f64>| reading.value().copied();
    let amount = |reading: &Reading<Bytes>| reading.value().copied().map(bytes);
    gauge("sample_timestamp_seconds", "Time of the readings of host and GPUs.", Some(sample.time));
    gauge("host_cpu_ratio", "Use of the processors that the run can use.", number(&host.cpu));
    gauge("host_cpus", "Processors that the run can use.", host.cpus.value().map(|cpus| *cpus as f64));
    gauge("process_cpus", "Processors that the run uses.", number(&host.own_cpus));
    gauge("other_process_cpus", "Processors that other processes use.", number(&host.other_cpus));
    gauge("host_memory_total_bytes", "Memory that the run can use in total.", amount(&host.memory_total));
    gauge("host_memory_available_bytes", "Memory that can still be allocated.", amount(&host.memory_available));
    gauge("process_resident_memory_bytes", "Resident memory of the run.", amount(&host.own_memory));
    gauge("disk_read_bytes_per_second", "Bytes that the run reads from disks.", number(&host.disk_read));
    gauge("disk_written_bytes_per_second", "Bytes that the run writes to disks.", number(&host.disk_written));
}

/// Adds a gauge with a value for each GPU.
fn gpu_gauge(
    text: &mut Exposition,
    gpus: &[GpuSample],
    name: &str,
    help: &str,
    value: impl Fn(&GpuSample) -> Option<f64>,
) {
    text.family(Kind::Gauge, name, help, gpus.iter().map(|gpu| (gpu_labels(gpu), value(gpu))));
}

fn gpu_labels(gpu: &GpuSample) -> Vec<(&'static str, String)> {
    vec![("gpu", gpu.index.to_string()), ("uuid", gpu.uuid.clone())]
}

fn add_gpu_shares(text: &mut Exposition, gpus: &[GpuSample]) {
    let info = gpus.iter().map(|gpu| {
        let mut labels = gpu_labels(gpu);
        labels.push(("name", gpu.name.clone()));
        (labels, Some(1.0))
    });
    text.family(Kind::Gauge, "gpu_info", "Names of the GPUs. The value is always 1.", info);
    let mut gauge = |name: &str, help: &str, value: fn(&GpuSample) -> &Reading<f64>| {
        gpu_gauge(text, gpus, name, help, |gpu| value(gpu).value().copied());
    };
    let help = "Share of time in which at least one kernel ran. It does not say how much of the GPU worked.";
    gauge("gpu_kernel_time_ratio", help, |gpu| &gpu.utilization);
    gauge("gpu_memory_time_ratio", "Share of time in which memory was read or written.", |gpu| &gpu.memory_utilization);
    gauge("gpu_sm_active_ratio", "Share of the multiprocessors that had work.", |gpu| &gpu.sm_active);
    gauge("gpu_tensor_active_ratio", "Share of time in which tensor cores worked.", |gpu| &gpu.tensor_active);
    gauge("gpu_dram_active_ratio", "Share of the memory bandwidth that was used.", |gpu| &gpu.dram_active);
    gauge("gpu_power_watts", "Power that the GPU draws.", |gpu| &gpu.power);
    gauge("gpu_power_limit_watts", "Limit of the power.", |gpu| &gpu.power_limit);
    gauge("gpu_temperature_celsius", "Temperature.", |gpu| &gpu.temperature);
    gauge("gpu_pcie_received_bytes_per_second", "Bytes that come over PCIe.", |gpu| &gpu.pcie_received);
    gauge("gpu_pcie_sent_bytes_per_second", "Bytes that go over PCIe.", |gpu| &gpu.pcie_sent);
}

fn add_gpu_amounts(text: &mut Exposition, gpus: &[GpuSample]) {
    let mut gauge =
        |name: &str, help: &str, value: fn(&GpuSample) -> Option<f64>| gpu_gauge(text, gpus, name, help, value);
    gauge("gpu_memory_total_bytes", "Memory that the GPU has.", |gpu| gpu.memory_total.value().copied().map(bytes));
    gauge("gpu_memory_used_bytes", "Memory that processes hold.", |gpu| gpu.memory_used.value().copied().map(bytes));
    gauge("gpu_memory_free_bytes", "Memory that is free.", |gpu| gpu.memory_free.value().copied().map(bytes));
    gauge("gpu_sm_clock_hertz", "Clock of the multiprocessors.", |gpu| gpu.sm_clock.value().map(|mhz| mhz * 1e6));
    gauge("gpu_sm_clock_max_hertz", "Highest clock of the multiprocessors.", |gpu| {
        gpu.sm_clock_max.value().map(|mhz| mhz * 1e6)
    });
    gauge("gpu_throttled", "Whether the clock is limited by power, heat or another GPU.", |gpu| {
        gpu.throttle.value().map(|reasons| f64::from(u8::from(!reasons.is_empty())))
    });
    let errors = gpus.iter().map(|gpu| (gpu_labels(gpu), gpu.ecc_errors.value().map(|count| *count as f64)));
    text.family(Kind::Counter, "gpu_ecc_errors_total", "Memory errors that could not be corrected.", errors);
}
