//! Batches of utterances in host memory: arrays padded to one length, which can be split and copied to a device.

use std::ops::Range;

use crate::{Batch, BatchShape, Frames, Grid, SampleId};

/// An utterance as the loader delivers it: features, tokens and identity.
#[derive(Clone, Debug, PartialEq)]
pub struct HostSample {
    /// Id of the sample, for random keys and records.
    pub id: SampleId,
    /// Name of the sample in the manifest, for messages.
    pub name: String,
    /// Features of the audio, one frame after the other.
    pub features: Vec<f32>,
    /// Text of the utterance as token ids.
    pub tokens: Vec<u32>,
    /// Features of another audio segment by the same speaker; empty if the task needs no voice reference.
    pub reference: Vec<f32>,
}

/// A batch of utterances, padded with zeros to one length.
///
/// Shapes: b utterances, t frames, f features of a frame, u tokens, r frames of a voice reference.
#[derive(Clone, Debug, PartialEq)]
pub struct HostBatch {
    /// Ids of the utterances in the batch.
    pub ids: Vec<SampleId>,
    /// Names of the utterances in the manifest, for messages.
    pub names: Vec<String>,
    /// Features `[b, t, f]` of the utterances, padded with zeros.
    pub features: Vec<f32>,
    /// Number of features in a frame.
    pub feature_width: usize,
    /// Number of frames of the longest utterance, with padding.
    pub frames: usize,
    /// Number of frames in each utterance, without padding.
    pub frame_lengths: Vec<u32>,
    /// Token ids `[b, u]` of the utterances, padded with zeros.
    pub tokens: Vec<u32>,
    /// Number of tokens of the longest utterance, with padding.
    pub token_width: usize,
    /// Number of tokens in each utterance, without padding.
    pub token_lengths: Vec<u32>,
    /// Features `[b, r, f]` of the voice references, padded with zeros. Empty if the batch has no voice references.
    pub references: Vec<f32>,
    /// Number of frames of the longest voice reference, with padding.
    pub reference_frames: usize,
    /// Number of frames in each voice reference, without padding.
    pub reference_lengths: Vec<u32>,
    /// Lengths to which batches are padded.
    pub grid: Grid,
}

/// Reason why samples cannot form a batch.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum BatchError {
    /// The list of samples is empty.
    #[error("a batch needs at least one utterance")]
    Empty,
    /// The number of feature values of a sample is not a multiple of the frame width.
    #[error("utterance `{name}` has {values} feature values, which is not a whole number of frames of {width} values")]
    Ragged {
        /// Name of the sample with the incomplete frame.
        name: String,
        /// Number of feature values of the sample.
        values: usize,
        /// Number of feature values of a frame.
        width: usize,
    },
}

impl HostBatch {
    /// Pads `samples` to the length of the longest sample, rounded up to the next length of `grid`.
    ///
    /// The grid limits the number of different shapes, and with it kernel compilation and autotuning on a GPU.
    ///
    /// # Errors
    /// [`BatchError`] if there is no sample, or a sample has an incomplete frame.
    pub fn collate(samples: &[HostSample], feature_width: usize, grid: &Grid) -> Result<Self, BatchError> {
        Self::collate_with(samples, feature_width, grid, Vec::with_capacity)
    }

    /// Pads `samples` to one length on `grid`, and writes the features into a vector that `buffer` returns. `buffer`
    /// gets the number of feature values and may return a vector with old values, to use its memory again.
    ///
    /// # Errors
    /// [`BatchError`] if there is no sample, or a sample has an incomplete frame.
    pub fn collate_with(
        samples: &[HostSample],
        feature_width: usize,
        grid: &Grid,
        buffer: impl FnOnce(usize) -> Vec<f32>,
    ) -> Result<Self, BatchError> {
        if samples.is_empty() {
            return Err(BatchError::Empty);
        }
        let ragged = |values: usize| !values.is_multiple_of(feature_width);
        if let Some(bad) = samples.iter().find(|s| ragged(s.features.len()) || ragged(s.reference.len())) {
            let both = [bad.features.len(), bad.reference.len()];
            let values = both.into_iter().find(|&values| ragged(values)).unwrap_or_default();
            return Err(BatchError::Ragged { name: bad.name.clone(), values, width: feature_width });
        }
        let rows: Vec<Row<'_>> = samples.iter().map(Row::from_sample).collect();
        Ok(Self::padded(&rows, feature_width, grid, buffer))
    }

    /// Pads utterances, each of which has whole frames, to a batch. `buffer` returns the vector for the features.
    fn padded(rows: &[Row<'_>], feature_width: usize, grid: &Grid, buffer: impl FnOnce(usize) -> Vec<f32>) -> Self {
        let lengths = |values: fn(&Row<'_>) -> usize, unit: usize| -> Vec<u32> {
            rows.iter().map(|row| (values(row) / unit) as u32).collect()
        };
        let frame_lengths = lengths(|row| row.features.len(), feature_width);
        let reference_lengths = lengths(|row| row.reference.len(), feature_width);
        let token_lengths = lengths(|row| row.tokens.len(), 1);
        let padded_frames = grid.frames(longest(&frame_lengths));
        let token_width = grid.tokens(padded_frames, longest(&token_lengths)).max(1) as usize;
        let (frames, reference_frames) = (padded_frames as usize, longest(&reference_lengths) as usize);
        Self {
            ids: rows.iter().map(|row| row.id).collect(),
            names: rows.iter().map(|row| row.name.to_owned()).collect(),
            features: concat_padded(rows.iter().map(|row| row.features), frames * feature_width, buffer),
            feature_width,
            frames,
            frame_lengths,
            tokens: concat_padded(rows.iter().map(|row| row.tokens), token_width, Vec::with_capacity),
            token_width,
            token_lengths,
            references: concat_padded(
                rows.iter().map(|row| row.reference),
                reference_frames * feature_width,
                Vec::with_capacity,
            ),
            reference_frames,
            reference_lengths,
            grid: grid.clone(),
        }
    }

    /// Creates an empty batch: the share of a replica when there are fewer utterances than replicas.
    pub fn empty(feature_width: usize, grid: &Grid) -> Self {
        Self {
            ids: Vec::new(),
            names: Vec::new(),
            features: Vec::new(),
            feature_width,
            frames: 0,
            frame_lengths: Vec::new(),
            tokens: Vec::new(),
            token_width: 0,
            token_lengths: Vec::new(),
            references: Vec::new(),
            reference_frames: 0,
            reference_lengths: Vec::new(),
            grid: grid.clone(),
        }
    }

    /// Returns the token ids of utterance `index`, without padding.
    ///
    /// # Panics
    /// If `index` is outside the batch.
    pub fn tokens_of(&self, index: usize) -> &[u32] {
        let start = index * self.token_width;
        &self.tokens[start..start + self.token_lengths[index] as usize]
    }

    /// Copies utterance `index`, without padding.
    ///
    /// # Panics
    /// If `index` is outside the batch.
    pub fn sample(&self, index: usize) -> HostSample {
        let Row { id, name, features, tokens, reference } = self.row(index);
        HostSample {
            id,
            name: name.to_owned(),
            features: features.to_vec(),
            tokens: tokens.to_vec(),
            reference: reference.to_vec(),
        }
    }

    fn row(&self, index: usize) -> Row<'_> {
        let width = self.feature_width;
        Row {
            id: self.ids[index],
            name: &self.names[index],
            features: &self.features[index * self.frames * width..][..self.frame_lengths[index] as usize * width],
            tokens: self.tokens_of(index),
            reference: &self.references[index * self.reference_frames * width..]
                [..self.reference_lengths[index] as usize * width],
        }
    }
}

impl Batch for HostBatch {
    fn ids(&self) -> &[SampleId] {
        &self.ids
    }

    /// Copies the utterances at `indices` to a new batch, padded on the same grid to the longest selected utterance.
    fn select(&self, indices: &[usize]) -> Self {
        let rows: Vec<Row<'_>> = indices.iter().map(|&index| self.row(index)).collect();
        match rows.is_empty() {
            true => Self::empty(self.feature_width, &self.grid),
            false => Self::padded(&rows, self.feature_width, &self.grid, Vec::with_capacity),
        }
    }

    fn shape(&self) -> BatchShape {
        BatchShape {
            utterances: self.len() as u32,
            frames: Frames(self.frames as u32),
            tokens: self.token_width as u32,
        }
    }

    fn shape_of(&self, range: Range<usize>) -> BatchShape {
        let frames = self.grid.frames(longest(&self.frame_lengths[range.clone()]));
        let tokens = self.grid.tokens(frames, longest(&self.token_lengths[range.clone()]));
        BatchShape { utterances: range.len() as u32, frames: Frames(frames), tokens }
    }

    fn name(&self, index: usize) -> String {
        self.names[index].clone()
    }

    fn valid_frames(&self) -> u64 {
        self.frame_lengths.iter().map(|&n| u64::from(n)).sum()
    }
}

/// Borrowed utterance without padding, taken from a sample or from a batch.
struct Row<'a> {
    id: SampleId,
    name: &'a str,
    features: &'a [f32],
    tokens: &'a [u32],
    reference: &'a [f32],
}

impl<'a> Row<'a> {
    fn from_sample(sample: &'a HostSample) -> Self {
        let HostSample { id, name, features, tokens, reference } = sample;
        Self { id: *id, name, features, tokens, reference }
    }
}

/// Joins arrays, such as the features of each utterance, into one vector, each padded with default values (zeros) to
/// `width` values. `buffer` gets the number of values of the result and returns the vector to fill, whose old values
/// are removed.
fn concat_padded<'a, T: Copy + Default + 'a>(
    rows: impl ExactSizeIterator<Item = &'a [T]>,
    width: usize,
    buffer: impl FnOnce(usize) -> Vec<T>,
) -> Vec<T> {
    let mut all = buffer(rows.len() * width);
    all.clear();
    for (number, row) in (1..).zip(rows) {
        all.extend_from_slice(row);
        all.resize(number * width, T::default());
    }
    all
}

fn longest(lengths: &[u32]) -> u32 {
    lengths.iter().copied().max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use super::*;

    fn sample(name: &str, frames: usize, tokens: usize) -> HostSample {
        HostSample {
            id: SampleId::from_name(name),
            name: name.into(),
            features: (1..=frames * 2).map(|v| v as f32).collect(),
            tokens: (1..=tokens as u32).collect(),
            reference: vec![7.0; tokens * 2],
        }
    }

    #[test]
    fn padding_is_zero_and_lengths_are_kept() {
        let batch = HostBatch::collate(
            &[sample("a", 3, 1), sample("b", 1, 4)],
            2,
            &Grid::multiples_of(NonZeroU32::new(4).unwrap()),
        )
        .unwrap();
        assert_eq!((batch.frames, batch.token_width), (4, 4));
        assert_eq!(batch.features, [1., 2., 3., 4., 5., 6., 0., 0., 1., 2., 0., 0., 0., 0., 0., 0.]);
        assert_eq!(batch.tokens, [1, 0, 0, 0, 1, 2, 3, 4]);
        assert_eq!(batch.padding(), 0.5);
        assert_eq!((batch.reference_frames, batch.reference_lengths.as_slice()), (4, &[1, 4][..]));
        assert_eq!(batch.references[..8], [7., 7., 0., 0., 0., 0., 0., 0.]);
    }

    #[test]
    fn parts_hold_every_sample_once() {
        let samples: Vec<_> = (1..=5).map(|n| sample(&n.to_string(), n, n)).collect();
        let batch = HostBatch::collate(&samples, 2, &Grid::default()).unwrap();
        let parts = batch.split(2);
        assert_eq!(parts.iter().map(HostBatch::len).collect::<Vec<_>>(), [2, 2, 1]);
        let again: Vec<_> = parts.iter().flat_map(|p| (0..p.len()).map(|i| p.sample(i))).collect();
        assert_eq!(again, samples);
        assert_eq!(parts[0].frames, 2);
    }

    #[test]
    fn empty_and_ragged_input_is_refused() {
        assert_eq!(HostBatch::collate(&[], 2, &Grid::default()), Err(BatchError::Empty));
        let mut ragged = sample("a", 2, 1);
        ragged.features.pop();
        assert!(matches!(
            HostBatch::collate(&[ragged], 2, &Grid::default()),
            Err(BatchError::Ragged { values: 3, .. })
        ));
        let mut ragged = sample("a", 2, 1);
        ragged.reference.pop();
        assert!(matches!(
            HostBatch::collate(&[ragged], 2, &Grid::default()),
            Err(BatchError::Ragged { values: 1, .. })
        ));
    }
}
