//! Positions as sinusoids.

use burn::tensor::{Tensor, TensorData};

/// Adds the sinusoids of Vaswani et al. 2017 to `[b, t, d]`: one phase for each frame, one frequency for each pair of
/// channels.
///
/// # Panics
/// Where the width is odd.
pub fn add_sinusoids(x: Tensor<3>) -> Tensor<3> {
    let [_, t, d] = x.dims();
    assert!(d.is_multiple_of(2), "sinusoids come in pairs, and {d} is odd");
    let frequencies: Vec<f64> = (0..d / 2).map(|i| (-(2.0 * i as f64 / d as f64) * 1e4_f64.ln()).exp()).collect();
    let phases = (0..t).flat_map(|frame| frequencies.iter().map(move |f| frame as f64 * f));
    let values: Vec<f32> = phases.flat_map(|phase| [phase.sin() as f32, phase.cos() as f32]).collect();
    let table: Tensor<3> = Tensor::from_data(TensorData::new(values, [1, t, d]), &x.device());
    x + table
}

#[cfg(test)]
mod tests {
    use burn::tensor::Device;

    use super::*;

    #[test]
    fn the_first_pair_turns_once_in_two_pi_frames() {
        let x = add_sinusoids(Tensor::zeros([1, 3, 4], &Device::flex()));
        let values = x.into_data().try_to_vec::<f32>().unwrap();
        let expected = [0.0, 1.0, 0.0, 1.0, 1f32.sin(), 1f32.cos(), 0.01f32.sin(), 0.01f32.cos()];
        for (value, expected) in values.iter().zip(expected) {
            assert!((value - expected).abs() < 1e-6, "{values:?}");
        }
    }
}
