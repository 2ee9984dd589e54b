//! Debug mode: an error names the layer where the first value that is not finite appeared.

use std::sync::Arc;
use std::time::Instant;

use burn::tensor::Device;
use plimsoll_core::{Key, TimeOwner, timing};
use plimsoll_tape::{apply, collect};
use plimsoll_train::{Governor, LayerClock, LayerTime, Schedule, StepError, Trainer, TrainerConfig};

use crate::net::{Net, batch};

fn trainer(lanes: usize) -> Trainer<Net> {
    let config = TrainerConfig { debug: true, lanes, ..TrainerConfig::new(Schedule::constant(3e-3), Key::new(1)) };
    Trainer::new(Net::new(24, &Device::flex().autodiff()), config, Governor::new(4))
}

#[test]
fn a_nan_weight_is_named_as_the_place() {
    for lanes in [1, 2] {
        let mut trainer = trainer(lanes);
        let sound = trainer.step(&batch(0..8, 20)).unwrap();
        assert!(sound.loss.is_finite());
        let mut values = collect(&trainer.task);
        let broken = values.iter_mut().find(|value| value.name.ends_with("weight")).unwrap();
        broken.values[0] = f32::NAN;
        let name = broken.name.clone();
        trainer.task = apply(trainer.task.clone(), values).unwrap();
        let error = trainer.step(&batch(0..8, 20)).unwrap_err();
        let StepError::NotFinite { place, .. } = &error else { panic!("{error}") };
        let layer = name.strip_suffix(".weight").unwrap();
        assert_eq!(place.as_deref(), Some(format!("the output of `{layer}`").as_str()), "{lanes} lanes");
    }
}

#[test]
fn debug_mode_changes_no_bit() {
    let weights = |debug: bool| {
        let config = TrainerConfig { debug, ..TrainerConfig::new(Schedule::constant(3e-3), Key::new(1)) };
        let mut trainer = Trainer::new(Net::new(24, &Device::flex().autodiff()), config, Governor::new(4));
        (0..3).for_each(|step| drop(trainer.step(&batch(step * 8..step * 8 + 8, 20)).unwrap()));
        collect(&trainer.task)
    };
    assert!(weights(true) == weights(false));
}

#[test]
fn the_times_of_the_layers_add_up_to_less_than_the_wall_time_of_their_threads() {
    for lanes in [1, 2] {
        let config = TrainerConfig { lanes, ..TrainerConfig::new(Schedule::constant(3e-3), Key::new(1)) };
        let clock = Arc::new(LayerClock::default());
        let trainer = Trainer::new(Net::new(24, &Device::flex().autodiff()), config, Governor::new(4));
        clock.name_layers(&trainer.task);
        let mut trainer = trainer.with_observer(clock.clone());
        let begun = Instant::now();
        trainer.step(&batch(0..8, 20)).unwrap();
        let wall = begun.elapsed().as_secs_f64() * lanes as f64;
        let times = clock.times();
        let sum: f64 = times.iter().map(LayerTime::seconds).sum();
        assert!(sum > 0.0 && sum <= wall, "{sum} of {wall}");
        let last = times.last().unwrap();
        assert_eq!(last.name, "loss");
        let passes = if lanes == 1 { 2 } else { 4 };
        let is_whole = |time: &LayerTime| time.count == passes && time.forward > 0.0 && time.backward > 0.0;
        assert!(times.iter().all(is_whole), "{times:?}");
    }
}

#[test]
fn the_reads_of_debug_mode_have_an_owner() {
    for lanes in [1, 2] {
        let mut trainer = trainer(lanes);
        timing::lap();
        trainer.step(&batch(0..8, 20)).unwrap();
        let times = timing::lap();
        assert!(times.get(TimeOwner::Read) > 0.0 && times.get(TimeOwner::Compute) > 0.0, "{lanes} lanes: {times:?}");
    }
}
