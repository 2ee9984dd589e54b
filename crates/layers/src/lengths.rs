//! How long each sequence of a padded batch is, and the masks that follow.

use burn::tensor::{Bool, Device, Int, Tensor, TensorData};

/// The valid lengths of a padded batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lengths {
    lengths: Vec<u32>,
    width: usize,
}

impl Lengths {
    /// The `lengths` of sequences that are padded to `width`.
    ///
    /// # Panics
    /// Where a sequence is longer than the padded width.
    pub fn new(lengths: Vec<u32>, width: usize) -> Self {
        let longest = lengths.iter().copied().max().unwrap_or(0) as usize;
        assert!(longest <= width, "a sequence of {longest} does not fit a width of {width}");
        Self { lengths, width }
    }

    /// The length of each sequence.
    pub fn each(&self) -> &[u32] {
        &self.lengths
    }

    /// The padded length.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Whether any sequence is padded at all.
    pub fn is_padded(&self) -> bool {
        self.lengths.iter().any(|&length| (length as usize) < self.width)
    }

    /// `[b, t]`, true where padding stands; `None` where there is no padding.
    pub fn padding(&self, device: &Device) -> Option<Tensor<2, Bool>> {
        self.is_padded().then(|| self.positions(device).greater_equal(self.column(device)))
    }

    /// Sets the padding of `[b, t, d]` to zero.
    pub fn clear_padding(&self, x: Tensor<3>) -> Tensor<3> {
        match self.padding(&x.device()) {
            Some(padding) => {
                let shape = x.dims();
                x.mask_fill(padding.unsqueeze_dim::<3>(2).expand(shape), 0.0)
            }
            None => x,
        }
    }

    fn positions(&self, device: &Device) -> Tensor<2, Int> {
        let row: Tensor<1, Int> = Tensor::arange(0..self.width as i64, device);
        row.unsqueeze_dim::<2>(0).expand([self.lengths.len(), self.width])
    }

    fn column(&self, device: &Device) -> Tensor<2, Int> {
        let lengths: Vec<i32> = self.lengths.iter().map(|&length| length as i32).collect();
        let column: Tensor<2, Int> = Tensor::from_data(TensorData::new(lengths, [self.lengths.len(), 1]), device);
        column.expand([self.lengths.len(), self.width])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn padding_is_what_lies_beyond_each_length() {
        let device = Device::flex();
        let lengths = Lengths::new(vec![1, 3], 3);
        let x = lengths.clear_padding(Tensor::ones([2, 3, 2], &device));
        let values = x.into_data().try_to_vec::<f32>().unwrap();
        assert_eq!(values, [1., 1., 0., 0., 0., 0., 1., 1., 1., 1., 1., 1.]);
        assert!(Lengths::new(vec![3, 3], 3).padding(&device).is_none());
    }
}
