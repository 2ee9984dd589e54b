//! Whether a run overfits: whether it learns its training utterances by heart.

use std::fmt;

use plimsoll_core::counted;

use crate::runs::{RunHistory, Validation};

/// Fewest validations that show a direction.
const VALIDATIONS_MIN: usize = 3;
/// Rise of the validation loss above its lowest value that is no accident.
const RISE_MIN: f64 = 1.05;
/// Rise of the validation loss above its lowest value that a sentence mentions.
const RISE_SMALL: f64 = 1.01;

/// Losses of a run that overfits: the training loss falls, and the validation loss rises.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Overfitting {
    /// Step of the validation with the lowest loss.
    step: u64,
    /// Loss of that validation, and of the last one.
    validation: [f64; 2],
    /// Mean training loss of the steps before each of these two.
    training: [f64; 2],
}

impl fmt::Display for Overfitting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { step, validation: [lowest, last], training: [before, after] } = self;
        write!(
            f,
            "it overfits since step {step}: the validation loss rose from {lowest:.3} to {last:.3}, while the training \
             loss fell from {before:.3} to {after:.3}"
        )
    }
}

impl Overfitting {
    /// Returns the step from which on the run overfits.
    pub(crate) fn step(&self) -> u64 {
        self.step
    }
}

impl RunHistory {
    /// Says in a sentence whether the run overfits, with the step and the losses that show it.
    pub(crate) fn fit(&self) -> String {
        let losses = self.validation_losses();
        let lowest = losses.iter().min_by(|(_, a), (_, b)| a.total_cmp(b));
        match (self.overfitting(), lowest, losses.last()) {
            (Some(overfitting), ..) => overfitting.to_string(),
            (None, Some((best, lowest)), Some((step, last))) if losses.len() >= VALIDATIONS_MIN && last.is_finite() => {
                match last / lowest {
                    rise if rise > RISE_MIN => format!(
                        "it gets worse: the validation loss rose from {lowest:.3} after step {best} to {last:.3} after step \
                     {step}, and the training loss is not known to fall, which overfitting would be"
                    ),
                    rise if rise > RISE_SMALL => format!(
                        "it may begin to overfit: the validation loss was lowest after step {best}, with {lowest:.3}, and is \
                     {last:.3} after step {step}"
                    ),
                    _ => format!(
                        "it does not overfit: the validation loss {last:.3} after step {step} is the lowest, or near it"
                    ),
                }
            }
            _ => {
                let count = match losses.len() {
                    0 => "no validation has measured a loss".into(),
                    count => format!("{} measured a loss", counted(count as u64, "validation")),
                };
                format!("whether it overfits is not known: {count}, and it takes {VALIDATIONS_MIN} to see a direction")
            }
        }
    }

    /// Returns the loss of each validation with its step.
    fn validation_losses(&self) -> Vec<(u64, f64)> {
        let loss = |validation: &Validation| {
            let score = validation.scores.iter().find(|score| score.name == "loss")?;
            Some((validation.step, score.value))
        };
        self.validations.iter().filter_map(loss).collect()
    }

    /// Returns the losses that show that the run overfits; `None` if they do not.
    pub(crate) fn overfitting(&self) -> Option<Overfitting> {
        let losses = self.validation_losses();
        let (best, &(step, lowest)) = losses.iter().enumerate().min_by(|(_, a), (_, b)| a.1.total_cmp(&b.1))?;
        let &(_, last) = losses.last()?;
        if losses.len() < VALIDATIONS_MIN || last <= lowest * RISE_MIN {
            return None;
        }
        let before = |index: usize| {
            let from = index.checked_sub(1).map_or(0, |earlier| losses[earlier].0);
            self.losses.mean_over(from + 1..=losses[index].0)
        };
        let training = [before(best)?, before(losses.len() - 1)?];
        (training[1] < training[0]).then_some(Overfitting { step, validation: [lowest, last], training })
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_core::Measure;

    use super::*;
    use crate::runs::{LossCurve, LossPoint};

    /// Makes a history with a validation after every tenth step.
    fn history(training: [f64; 4], validation: &[f64]) -> RunHistory {
        let point = |step: u64| LossPoint { step, loss: training[((step - 1) / 10) as usize] };
        let validated = |(index, &loss): (usize, &f64)| Validation {
            step: 10 * (index as u64 + 1),
            epoch: 0,
            scores: vec![Measure::share("cer", "character error rate", 0.5), Measure::number("loss", "loss", loss)],
            best: false,
        };
        RunHistory {
            losses: LossCurve((1..=40).map(point).collect()),
            validations: validation.iter().enumerate().map(validated).collect(),
            ..RunHistory::default()
        }
    }

    #[test]
    fn a_sentence_says_whether_a_run_overfits() {
        let falling = [3.0, 2.0, 1.0, 0.5];
        let risen = history([3.0, 2.0, 2.1, 2.2], &[2.5, 1.5, 1.7, 1.9]).fit();
        assert!(risen.starts_with("it gets worse: the validation loss rose"), "{risen}");
        for (validation, expected) in [
            (&[2.5, 1.5, 1.7, 1.9][..], "it overfits since step 20: the validation loss rose from 1.500 to 1.900"),
            (&[2.5, 1.5, 1.4, 1.3], "it does not overfit: the validation loss 1.300 after step 40 is the lowest"),
            (&[2.5, 1.5, 1.54], "it may begin to overfit: the validation loss was lowest after step 20, with 1.500"),
            (&[2.5], "whether it overfits is not known: 1 validation measured a loss, and it takes 3"),
            (&[], "whether it overfits is not known: no validation has measured a loss"),
        ] {
            let found = history(falling, validation).fit();
            assert!(found.starts_with(expected), "{found}");
        }
    }

    #[test]
    fn a_rising_validation_loss_beside_a_falling_training_loss_is_overfitting() {
        let found = history([3.0, 2.0, 1.0, 0.5], &[2.5, 1.5, 1.7, 1.9]).overfitting().unwrap();
        assert_eq!(found, Overfitting { step: 20, validation: [1.5, 1.9], training: [2.0, 0.5] });
        for (training, validation) in [
            // Still better, a rise that is too small, too few validations, training that gets worse too, none at all.
            ([3.0, 2.0, 1.0, 0.5], &[2.5, 1.5, 1.4, 1.3][..]),
            ([3.0, 2.0, 1.0, 0.5], &[2.5, 1.5, 1.5, 1.55]),
            ([3.0, 2.0, 1.0, 0.5], &[1.5, 1.9]),
            ([3.0, 2.0, 2.1, 2.2], &[2.5, 1.5, 1.7, 1.9]),
            ([3.0, 2.0, 1.0, 0.5], &[]),
        ] {
            assert_eq!(history(training, validation).overfitting(), None, "{training:?} {validation:?}");
        }
    }
}
