//! A run on a device whose memory truly runs out: `cargo run -p plimsoll --features wgpu --example bench_storm`.
//!
//! It looks for the smallest tensor that the device cannot hold, and trains a model whose largest tensor would be larger than
//! that in every tenth batch. What fails there is an allocation of the device, told by a poisoned buffer. On the CPU nothing
//! fails.

#[path = "../../train/tests/storm/net.rs"]
mod net;

use std::time::Instant;

use burn::tensor::{Device, Tensor};
use plimsoll_core::{Bytes, HostBatch, Key};
use plimsoll_tape::collect;
use plimsoll_train::{Cut, Governor, Schedule, Trainer, TrainerConfig};

use net::{FEATURES, Net, batch};

/// Steps of the run.
const STEPS: u64 = 60;
/// Every so many steps there is a batch of long utterances.
const EVERY: u64 = 10;
/// Utterances of a batch.
const BATCH: u64 = 8;
/// Frames of a short utterance, at least; at most twice as many.
const SHORT: u64 = 8;

#[cfg(feature = "cuda")]
fn device() -> Device {
    Device::cuda(0)
}

#[cfg(all(feature = "wgpu", not(feature = "cuda")))]
fn device() -> Device {
    Device::wgpu(burn::tensor::DeviceKind::DefaultDevice)
}

#[cfg(not(any(feature = "cuda", feature = "wgpu")))]
fn device() -> Device {
    Device::flex()
}

/// The smallest tensor that the device cannot hold, in steps of a quarter, where it is below 64 GiB.
fn too_large(device: &Device) -> Option<Bytes> {
    let holds = |bytes: u64| {
        let sum = Tensor::<1>::ones([(bytes / 4) as usize], device).narrow(0, 0, 1).try_into_scalar::<f32>();
        let _ = device.flush();
        device.memory_cleanup();
        sum.is_ok()
    };
    let mut bytes = 64 << 20;
    while bytes < 64 << 30 {
        if !holds(bytes) {
            return Some(Bytes(bytes));
        }
        bytes += bytes / 4;
    }
    None
}

/// The batch of `step`; a long one has `frames` in its utterances, and as many again at most.
fn wave(step: u64, frames: u64) -> HostBatch {
    let is_long = step % EVERY == EVERY - 1;
    batch(step * BATCH..(step + 1) * BATCH, if is_long { frames } else { SHORT })
}

fn trainer(width: usize, device: &Device) -> Trainer<Net> {
    let config = TrainerConfig { tells_late: true, ..TrainerConfig::new(Schedule::constant(1e-3), Key::new(1)) };
    Trainer::new(Net::new(width, &device.clone().autodiff()), config, Governor::new(BATCH as usize))
}

fn main() {
    let device = device();
    let Some(limit) = too_large(&device) else {
        println!("this device holds whatever was tried");
        return;
    };
    // The hidden values of a whole long batch are half as large again as what fits.
    let width = 512;
    let frames = limit.0 * 3 / 2 / (BATCH * width as u64 * 4 * 3 / 2);
    println!("a tensor of {limit} does not fit; long utterances have {frames} to {} frames of {FEATURES}", frames * 2);
    let mut storm = trainer(width, &device);
    let (mut ledger, mut failures): (Vec<Vec<Cut>>, usize) = (Vec::new(), 0);
    let start = Instant::now();
    for step in 0..STEPS {
        let report = storm.step(&wave(step, frames)).expect("no step fails for good");
        for failure in &report.failures {
            let reason: String = failure.reason.chars().take(160).collect();
            println!("step {}: out of memory in the {}: {reason}", report.step, failure.stage);
        }
        let lost = report.begun - report.cuts.len();
        assert!(lost <= report.failures.len(), "{lost} pieces were lost");
        assert!(report.unfit.is_empty(), "{:?} were left out", report.unfit);
        let places: usize = report.cuts.iter().map(|cut| cut.len as usize).sum();
        assert_eq!(places as u64, BATCH, "every utterance is in one piece");
        failures += report.failures.len();
        if step % EVERY == EVERY - 1 {
            println!("step {}: loss {:.5}, {} pieces, {lost} in vain", report.step, report.loss, report.cuts.len());
        }
        ledger.push(report.cuts);
    }
    println!("{STEPS} steps with {failures} failures in {:.0} s", start.elapsed().as_secs_f64());
    let mut calm = trainer(width, &device);
    for (step, cuts) in (0..).zip(&ledger) {
        calm.replay(&wave(step, frames), cuts).expect("what fitted once fits again");
    }
    let same = collect(&storm.task) == collect(&calm.task);
    println!("the ledger, replayed without a failure, gives {} weights", if same { "the same" } else { "OTHER" });
}
