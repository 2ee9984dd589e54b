//! Maps a configuration to the parts of a model that are trained.

use plimsoll_config::{TrainingConfig, rate_of_part};
use plimsoll_tape::lora::{Lora, Rates, TrainedParts};

/// Returns which parts of a model a run of `training` trains.
pub fn trained_parts(training: &TrainingConfig) -> TrainedParts {
    let lora = training.lora_rank.map(|rank| Lora {
        rank: rank as usize,
        alpha: training.lora_alpha.unwrap_or(2.0 * f64::from(rank)),
        targets: training.lora_targets.clone(),
        also: training.lora_also.clone(),
    });
    let rates = training.rates.iter().filter_map(|rate| rate_of_part(rate));
    let rates = Rates::new(rates.map(|(part, factor)| (part.to_owned(), factor)));
    TrainedParts { frozen: training.freeze.clone(), lora, rates }
}
