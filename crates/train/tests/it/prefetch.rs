//! Tests that prefetching changes when a micro-batch is sent, and no result.

use burn::tensor::Device;
use plimsoll_core::{HostBatch, Key};
use plimsoll_tape::collect;
use plimsoll_train::{Governor, Schedule, Trainer, TrainerConfig};

use crate::net::{Net, batch};

fn trainer(async_errors: bool, micro_batch: usize) -> Trainer<Net> {
    let config = TrainerConfig { async_errors, ..TrainerConfig::new(Schedule::constant(3e-3), Key::new(1)) };
    Trainer::new(Net::new(24, &Device::flex().autodiff()), config, Governor::new(micro_batch))
}

fn batch_of(step: u64) -> HostBatch {
    batch(step * 8..step * 8 + 8, 20)
}

#[test]
fn prefetching_gives_the_same_weights() {
    for micro_batch in [8, 3] {
        let (mut plain, mut prefetching) = (trainer(false, micro_batch), trainer(true, micro_batch));
        for step in 0..5 {
            let next = batch_of(step + 1);
            let report = prefetching.step_with_prefetch(&batch_of(step), &mut |send| send(&next)).unwrap();
            assert_eq!(report.was_prefetched, step > 0, "{step}");
            assert!(!plain.step(&batch_of(step)).unwrap().was_prefetched);
        }
        assert!(collect(&plain.task) == collect(&prefetching.task));
    }
}

#[test]
fn a_prefetched_batch_that_is_not_next_is_not_used() {
    let (mut plain, mut prefetching) = (trainer(false, 8), trainer(true, 8));
    for step in 0..4 {
        let other = batch_of(step + 7);
        let report = prefetching.step_with_prefetch(&batch_of(step), &mut |send| send(&other)).unwrap();
        assert!(!report.was_prefetched);
        plain.step(&batch_of(step)).unwrap();
    }
    assert!(collect(&plain.task) == collect(&prefetching.task));
}

#[test]
fn synchronous_devices_do_not_prefetch() {
    let mut trainer = trainer(false, 8);
    trainer.step_with_prefetch(&batch_of(0), &mut |_| panic!("the hook is not called")).unwrap();
}
