//! Utterances that are too short for their texts change no step of a recognizer, wherever they are in a batch.

use burn::tensor::Device;
use plimsoll_core::{Grid, HostBatch, HostSample, Key, SampleId};
use plimsoll_speech::asr::{Recognizer, RecognizerConfig};
use plimsoll_tape::collect;
use plimsoll_train::{Governor, Schedule, StepError, Trainer, TrainerConfig};

fn trainer(config: RecognizerConfig, micro_batch: usize) -> Trainer<Recognizer> {
    let model = config.init(&Device::flex().autodiff(), Key::new(3));
    Trainer::new(model, TrainerConfig::new(Schedule::constant(1e-3), Key::new(1)), Governor::new(micro_batch))
}

fn config(subsampling: usize, has_decoder: bool) -> RecognizerConfig {
    let config = RecognizerConfig::recommended(16, 1, 1, 9);
    let decoder = config.decoder.filter(|_| has_decoder);
    RecognizerConfig { features: 20, heads: 2, kernel: 5, subsampling_channels: 4, subsampling, decoder, ..config }
}

fn sample(name: &str, frames: usize, tokens: usize) -> HostSample {
    let key = Key::new(1).with(name);
    let features = (0..frames * 20).map(|i| key.at(i as u64).unit() as f32 - 0.5).collect();
    let (id, tokens) = (SampleId::from_name(name), (0..tokens as u32).map(|token| 3 + token % 5).collect());
    HostSample { id, name: name.into(), features, tokens, reference: Vec::new() }
}

fn batch(samples: &[HostSample]) -> HostBatch {
    HostBatch::collate(samples, 20, &Grid::default()).unwrap()
}

/// Samples from one frame on, each with more tokens than frames.
fn infeasible() -> Vec<HostSample> {
    [1, 2, 3, 5, 9].map(|frames| sample(&format!("short{frames}"), frames, frames + 1)).into()
}

#[test]
fn a_batch_without_a_feasible_utterance_is_no_step() {
    for subsampling in [1, 2, 4] {
        let mut trainer = trainer(config(subsampling, true), 2);
        let before = collect(&trainer.task);
        let error = trainer.step(&batch(&infeasible())).unwrap_err();
        let StepError::Nothing { names, .. } = &error else { panic!("{error}") };
        assert_eq!(names.len(), 5);
        assert!(error.to_string().contains("`short1`"), "{error}");
        assert!(collect(&trainer.task) == before);
    }
}

#[test]
fn infeasible_utterances_leave_the_loss_of_the_others_as_it_is() {
    for (subsampling, has_decoder) in [(1, true), (4, true), (4, false)] {
        let feasible = [sample("a", 40, 3), sample("b", 60, 2)];
        let alone = trainer(config(subsampling, has_decoder), 1).step(&batch(&feasible)).unwrap();
        for micro_batch in [1, 2, 7] {
            let mut samples = infeasible();
            samples.splice(2..2, feasible.clone());
            let report = trainer(config(subsampling, has_decoder), micro_batch).step(&batch(&samples)).unwrap();
            let apart = (report.loss / alone.loss - 1.0).abs().max((report.norm / alone.norm - 1.0).abs());
            assert!(apart < 1e-3, "{micro_batch} of {subsampling}: {} and {}", report.loss, alone.loss);
            assert_eq!(report.left_out.len(), 5);
            assert_eq!(report.reads, 1, "on the CPU only the norm is read");
        }
    }
}
