//! Tests that the optimizer's state makes room for an utterance that fits in no other way, and comes back.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use burn::tensor::Device;
use plimsoll_core::{Key, MemoryGate, OutOfMemory, Stage};
use plimsoll_tape::{NamedTensor, collect};
use plimsoll_train::{Governor, Schedule, StateForm, StepError, Trainer, TrainerConfig};

use crate::gates::NoMeter;
use crate::net::{Net, batch};

fn config() -> TrainerConfig {
    TrainerConfig { async_errors: true, ..TrainerConfig::new(Schedule::constant(3e-3), Key::new(1)) }
}

/// A gate that finds no room for the second utterance until the optimizer's state has moved.
///
/// The checks of updates are: 0 after the first step; in the second step 1 for the move to the host, 2 for the way back
/// and 3 after the update.
#[derive(Clone, Debug, Default)]
struct RoomGate {
    /// Checks of updates that fail.
    fails: &'static [usize],
    updates: Arc<AtomicUsize>,
}

impl MemoryGate for RoomGate {
    fn check(&self, stage: Stage) -> Result<(), OutOfMemory> {
        let fails = match stage {
            Stage::Forward => self.updates.load(Relaxed) == 1,
            Stage::Update => self.fails.contains(&self.updates.fetch_add(1, Relaxed)),
            _ => false,
        };
        if fails { Err(OutOfMemory { stage, reason: "injected by the test".into() }) } else { Ok(()) }
    }
}

/// Takes 16 steps of one utterance each; returns the form of the optimizer's state after each, the names that were left
/// out, and the weights.
fn one_by_one(gate: Option<RoomGate>) -> (Vec<StateForm>, Vec<String>, Vec<NamedTensor>) {
    let net = Net::new(8, &Device::flex().autodiff());
    let mut trainer = Trainer::new(net, config(), Governor::new(1));
    if let Some(gate) = gate {
        trainer = trainer.with_memory(gate, NoMeter);
    }
    let (mut forms, mut left_out) = (Vec::new(), Vec::new());
    for step in 0..16 {
        match trainer.step(&batch(step..step + 1, 6)) {
            Ok(_) => {}
            Err(StepError::NothingFits { names, .. }) => left_out.extend(names),
            Err(error) => panic!("{error}"),
        }
        forms.push(trainer.optimizer.form());
    }
    (forms, left_out, collect(&trainer.task))
}

#[test]
fn the_state_of_the_optimizer_makes_room_for_an_utterance_and_comes_back_with_the_same_bits() {
    let (.., expected) = one_by_one(None);
    let (forms, left_out, weights) = one_by_one(Some(RoomGate::default()));
    assert_eq!((forms, left_out), (vec![StateForm::Full; 16], Vec::new()));
    assert!(weights == expected, "the utterance was not used, or the state changed");
}

#[test]
fn a_state_that_finds_no_room_stays_on_the_host_for_some_steps() {
    let (.., expected) = one_by_one(None);
    let (forms, left_out, weights) = one_by_one(Some(RoomGate { fails: &[2], ..RoomGate::default() }));
    let away = forms.iter().filter(|form| **form == StateForm::Host).count();
    assert_eq!((forms[1], forms[15], away), (StateForm::Host, StateForm::Full, 10));
    assert!(left_out.is_empty() && weights == expected);
}

#[test]
fn a_failed_move_of_the_state_leaves_everything_as_before() {
    let (forms, left_out, weights) = one_by_one(Some(RoomGate { fails: &[1], ..RoomGate::default() }));
    assert_eq!((forms, left_out), (vec![StateForm::Full; 16], vec!["u1".to_string()]));
    // As if the utterance had not been there.
    let net = Net::new(8, &Device::flex().autodiff());
    let mut trainer = Trainer::new(net, config(), Governor::new(1));
    for step in (0..16).filter(|step| *step != 1) {
        trainer.step(&batch(step..step + 1, 6)).unwrap();
    }
    assert!(collect(&trainer.task) == weights);
}
