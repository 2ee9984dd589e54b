//! Helpers that the tests of both tasks share: gradients under an execution choice, and their difference.

use burn::module::Param;
use burn::optim::GradientsParams;
use burn::tensor::{Device, Tensor};
use plimsoll_core::{Batch, Choice, Grid, HostBatch, HostSample, Key};
use plimsoll_tape::{NamedVisitor, Noise, Pass, Task, backward, count, walk};

/// Computes the loss of `samples`, and the gradients of all parameters in one vector, in micro-batches of at most
/// `pieces` utterances.
pub(crate) fn gradient_under<T: Task<Batch = HostBatch>>(
    model: &T,
    samples: &[HostSample],
    width: usize,
    pieces: usize,
    choice: &Choice,
) -> (f64, Vec<f32>) {
    struct All<'a>(&'a GradientsParams, Vec<f32>);
    impl NamedVisitor for All<'_> {
        fn parameter<const D: usize>(&mut self, name: &str, param: &Param<Tensor<D>>) {
            let gradient = self.0.get::<D>(param.id).unwrap_or_else(|| panic!("{name} has no gradient"));
            self.1.extend(gradient.into_data().try_into_vec::<f32>().unwrap());
        }
    }
    let batch = HostBatch::collate(samples, width, &Grid::multiples_of(8.try_into().unwrap())).unwrap();
    let (mut loss, mut sum) = (0.0, vec![0.0; count(model) as usize]);
    for piece in batch.split(pieces) {
        let pass = Pass::new(*choice, Noise::new(Key::new(4), &piece.ids));
        let step = model.loss(&T::send(&piece, &Device::flex().autodiff()), &pass);
        loss += f64::from(step.sum.clone().into_scalar::<f32>());
        let gradients = backward(step.sum, model);
        let mut all = All(&gradients, Vec::new());
        walk(model, &mut all);
        assert_eq!(all.1.len(), sum.len());
        sum.iter_mut().zip(all.1).for_each(|(sum, gradient)| *sum += gradient);
    }
    assert!(loss.is_finite() && sum.iter().all(|gradient| gradient.is_finite()));
    (loss, sum)
}

/// Computes the norm of the difference of `found` and `expected`, divided by the norm of `expected`.
pub(crate) fn apart(found: &[f32], expected: &[f32]) -> f32 {
    let norm = |values: &[f32]| values.iter().map(|v| v * v).sum::<f32>().sqrt();
    let difference: Vec<f32> = found.iter().zip(expected).map(|(a, b)| a - b).collect();
    norm(&difference) / norm(expected)
}
