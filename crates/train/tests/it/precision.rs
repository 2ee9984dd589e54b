//! Training in 16 bits, with a loss scale for fp16.

use burn::tensor::Device;
use plimsoll_core::{Choice, Key, Precision};
use plimsoll_train::{Governor, Schedule, StepError, Trainer, TrainerConfig};

use crate::net::{Net, batch};

fn trainer(precision: Precision) -> Trainer<Net> {
    let choice = Choice { precision, ..Choice::default() };
    let config = TrainerConfig { choice, ..TrainerConfig::new(Schedule::constant(3e-3), Key::new(1)) };
    Trainer::new(Net::new(24, &Device::flex().autodiff()), config, Governor::new(8))
}

/// Trains a new model for a hundred steps and returns the mean loss of the last ten.
fn learned(precision: Precision) -> f64 {
    let mut trainer = trainer(precision);
    let losses = (0..100).map(|step| trainer.step(&batch(step * 8..step * 8 + 8, 20)).unwrap().loss);
    losses.collect::<Vec<_>>()[90..].iter().sum::<f64>() / 10.0
}

#[test]
fn sixteen_bit_precision_reaches_the_fp32_loss() {
    let full = learned(Precision::Fp32);
    for precision in [Precision::Bf16, Precision::Fp16] {
        let low = learned(precision);
        assert!((low / full - 1.0).abs() < 0.05, "{precision:?}: {low} beside {full}");
    }
}

#[test]
fn an_overflow_lowers_the_loss_scale_and_moves_no_weight() {
    let mut trainer = trainer(Precision::Fp16);
    let before = plimsoll_tape::collect(&trainer.task);
    // High enough for a gradient to overflow in 16 bits.
    trainer.scale = serde_json::from_str(r#"{"factor": 1e12, "quiet": 0, "is_dynamic": true}"#).unwrap();
    let batch = batch(0..8, 20);
    let mut failures = 0;
    let report = loop {
        match trainer.step(&batch) {
            Ok(report) => break report,
            Err(StepError::NotFinite { is_expected, step: 1, .. }) => assert!(is_expected),
            Err(other) => panic!("{other}"),
        }
        failures += 1;
        assert!(plimsoll_tape::collect(&trainer.task) == before, "the weights moved");
    };
    assert!(failures > 3, "{failures} failures");
    assert_eq!((report.step, report.loss_scale), (1, 1e12 / 2f64.powi(failures)));
}

#[test]
fn a_nan_loss_names_its_utterance() {
    let mut trainer = trainer(Precision::Fp32);
    let mut batch = batch(0..8, 20);
    let place = 5 * batch.frames * batch.feature_width;
    batch.features[place] = f32::NAN;
    trainer.governor = Governor::new(1);
    let error = trainer.step(&batch).unwrap_err().to_string();
    assert_eq!(error, format!("the loss of step 1 is NaN, in a micro-batch with `{}`", batch.names[5]));
    assert_eq!(trainer.optimizer.steps(), 0);
}
