//! What is sent ahead changes when a piece is on its way, and nothing else.

use burn::tensor::Device;
use plimsoll_core::{HostBatch, Key};
use plimsoll_tape::collect;
use plimsoll_train::{Governor, Schedule, Trainer, TrainerConfig};

use crate::net::{Net, batch};

fn trainer(tells_late: bool, micro_batch: usize) -> Trainer<Net> {
    let config = TrainerConfig { tells_late, ..TrainerConfig::new(Schedule::constant(3e-3), Key::new(1)) };
    Trainer::new(Net::new(24, &Device::flex().autodiff()), config, Governor::new(micro_batch))
}

fn wave(step: u64) -> HostBatch {
    batch(step * 8..step * 8 + 8, 20)
}

#[test]
fn a_piece_that_was_sent_ahead_gives_the_same_weights() {
    for micro_batch in [8, 3] {
        let (mut plain, mut ahead) = (trainer(false, micro_batch), trainer(true, micro_batch));
        for step in 0..5 {
            let next = wave(step + 1);
            let report = ahead.step_meanwhile(&wave(step), &mut |send| send(&next)).unwrap();
            assert_eq!(report.was_ahead, step > 0, "{step}");
            assert!(!plain.step(&wave(step)).unwrap().was_ahead);
        }
        assert!(collect(&plain.task) == collect(&ahead.task));
    }
}

#[test]
fn what_was_sent_and_is_not_next_is_not_used() {
    let (mut plain, mut ahead) = (trainer(false, 8), trainer(true, 8));
    for step in 0..4 {
        let other = wave(step + 7);
        let report = ahead.step_meanwhile(&wave(step), &mut |send| send(&other)).unwrap();
        assert!(!report.was_ahead);
        plain.step(&wave(step)).unwrap();
    }
    assert!(collect(&plain.task) == collect(&ahead.task));
}

#[test]
fn a_device_that_computes_on_the_callers_time_is_not_shown_anything() {
    let mut trainer = trainer(false, 8);
    trainer.step_meanwhile(&wave(0), &mut |_| panic!("nobody asks for it")).unwrap();
}
