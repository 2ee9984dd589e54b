//! Memory of a GPU that a process holds and does not use, as another program would.

use std::fs::{self, File};
use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::Ordering;
use std::thread::sleep;
use std::time::{Duration, Instant};

use burn::tensor::Tensor;
use plimsoll_config::DeviceConfig;
use plimsoll_core::Bytes;
use plimsoll_recipes::device::TrainingDevice;
use plimsoll_recipes::{Failure, FailureExt};

use super::child::{Commands, POLL};

/// Size of one tensor that holds memory.
const PIECE: u64 = 256 << 20;
/// Time in which the process must hold its memory.
const LIMIT: Duration = Duration::from_secs(60);
/// What the process prints when it holds the memory.
const HELD: u8 = b'h';

/// Holds `memory` of the GPU of `device` until standard input ends.
pub(super) fn hold(memory: Bytes, device: &DeviceConfig) -> Result<(), Failure> {
    let device = TrainingDevice::choose(device)?.device;
    let pieces = memory.0.div_ceil(PIECE);
    let tensors: Vec<Tensor<1>> = (0..pieces)
        .map(|piece| {
            let bytes = PIECE.min(memory.0 - piece * PIECE);
            Tensor::zeros([(bytes / 4).max(1) as usize], &device)
        })
        .collect();
    // A device may allocate late: each tensor is read.
    for tensor in &tensors {
        tensor.clone().narrow(0, 0, 1).try_into_data().failed()?;
    }
    println!("{}", char::from(HELD));
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    drop(tensors);
    Ok(())
}

/// A process that holds memory of a GPU until it is dropped.
pub(super) struct Ballast(Child);

impl Ballast {
    /// Starts a process that holds `memory`; `None` if it cannot hold so much, or does not in time.
    pub(super) fn start(commands: &Commands<'_>, memory: Bytes) -> Result<Option<Self>, Failure> {
        let output = commands.folder.join("ballast");
        let mut child = Command::new(std::env::current_exe().failed()?)
            .args(commands.arguments("prove", &["--hold", &memory.0.to_string()]))
            .stdin(Stdio::piped())
            .stdout(File::create(&output).failed()?)
            .stderr(Stdio::null())
            .spawn()
            .failed()?;
        let begun = Instant::now();
        let mut holds = false;
        while !holds && begun.elapsed() < LIMIT && !commands.stop.load(Ordering::Relaxed) {
            if child.try_wait().failed()?.is_some() {
                break;
            }
            sleep(POLL);
            holds = fs::read(&output).is_ok_and(|output| output.first() == Some(&HELD));
        }
        let ballast = Self(child);
        Ok(holds.then_some(ballast))
    }
}

impl Drop for Ballast {
    fn drop(&mut self) {
        // It has nothing to save.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
