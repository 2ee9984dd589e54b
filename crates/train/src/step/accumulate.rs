//! Sum of the micro-batches of a step, and the single read that confirms it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use burn::tensor::{Device, Tensor};
use plimsoll_core::{Batch, BatchShape, CollectiveError, MemoryGate, MicroBatch, Stage};
use plimsoll_tape::Task;
use plimsoll_tape::flat::{self, FlatLayout};
use serde::{Deserialize, Serialize};

use super::gradients::{GradientSum, JoinedGradients, any_replica};
use super::micro_batch::MicroBatchResult;
use crate::Replica;
use crate::attempt::attempt;
use crate::fault::Fault;
use crate::reads::read;

/// Sums over the micro-batches of a step so far: gradients, losses, names of samples and counts.
pub(super) struct StepAccumulator {
    gradients: GradientSum,
    /// Gradients that are ready to be summed over the replicas, instead of `gradients`.
    joined: Option<JoinedGradients>,
    /// Weight of the whole batch, by which losses are divided.
    weight: f64,
    /// Weight of the utterances that were left out, which is part of `weight`.
    lost: f64,
    /// Losses of each micro-batch: first the total, then its named terms. `values` holds the losses once they are read.
    losses: Vec<(Option<&'static str>, Tensor<1>)>,
    values: Vec<f64>,
    /// Losses that the other replicas computed, by name. The name of a total loss is empty.
    elsewhere: Vec<(String, f64)>,
    /// Whether any replica, this one included, computed a micro-batch of this step. Known once gradients are summed
    /// over the replicas.
    is_shared: bool,
    /// Number of entries in `losses` for each micro-batch: one for its total loss and one for each named term.
    counts: Vec<usize>,
    pub(super) micro_batches: Vec<MicroBatch>,
    pub(super) attempts: usize,
    pub(super) was_prefetched: bool,
    pub(super) unfit: Vec<String>,
    pub(super) left_out: Vec<String>,
    pub(super) truncated: Vec<String>,
    /// Frames of the batch over all replicas, without padding.
    pub(super) frames: u64,
    pub(super) reads: u32,
    pub(super) read_time: Duration,
    pub(super) safety: Duration,
    /// Whether the memory was above its limit when the gradient was complete.
    pub(super) is_above_limit: bool,
    /// Shape of the largest group of micro-batches computed at once; `None` before the first group.
    pub(super) largest: Option<BatchShape>,
}

impl StepAccumulator {
    /// Makes an empty sum for a whole batch that has the given weight over all replicas. The gradients lie in the order of
    /// `layout`, if there is one.
    pub(super) fn new(weight: f64, layout: Option<Arc<FlatLayout>>) -> Self {
        Self {
            gradients: GradientSum::new(layout),
            joined: None,
            weight,
            lost: 0.0,
            losses: Vec::new(),
            values: Vec::new(),
            elsewhere: Vec::new(),
            is_shared: false,
            counts: Vec::new(),
            micro_batches: Vec::new(),
            attempts: 0,
            was_prefetched: false,
            unfit: Vec::new(),
            left_out: Vec::new(),
            truncated: Vec::new(),
            frames: 0,
            reads: 0,
            read_time: Duration::ZERO,
            safety: Duration::ZERO,
            is_above_limit: false,
            largest: None,
        }
    }

    /// Adds the result of one micro-batch to the sum. If the memory gate reports a failure, the sum stays as it is.
    pub(super) fn add<T: Task>(
        &mut self,
        task: &T,
        gate: &dyn MemoryGate,
        (micro_batch, part): (MicroBatch, &T::Batch),
        done: MicroBatchResult,
    ) -> Result<(), Fault> {
        // The sum reuses the memory of its operand, so only the gate can fail here.
        let start = Instant::now();
        gate.check(Stage::Accumulate).map_err(Fault::Memory)?;
        self.safety += start.elapsed();
        self.left_out.extend(done.left_out.iter().map(|&index| part.name(index)));
        self.truncated.extend(done.truncated.iter().map(|&index| part.name(index)));
        self.reads += done.reads;
        self.counts.push(1 + done.parts.len());
        self.losses.push((None, done.loss));
        self.losses.extend(done.parts.into_iter().map(|(name, part)| (Some(name), part)));
        self.gradients.add(task, done.gradients);
        self.micro_batches.push(micro_batch);
        Ok(())
    }

    /// Leaves a micro-batch of `weight` out of the sum, and records the names of its utterances.
    pub(super) fn leave_out(&mut self, micro_batch: MicroBatch, weight: f64, names: Vec<String>) {
        self.lost += weight;
        self.unfit.extend(names);
        self.micro_batches.push(MicroBatch { fallback_level: MicroBatch::LEFT_OUT, ..micro_batch });
    }

    /// Records the `shape` of a group of micro-batches that fitted into memory, and keeps the largest shape in
    /// `largest`.
    pub(super) fn fitted(&mut self, shape: BatchShape) {
        let size = |shape: &BatchShape| (shape.utterances, shape.frames);
        if self.largest.as_ref().is_none_or(|largest| size(&shape) > size(largest)) {
            self.largest = Some(shape);
        }
    }

    /// Returns the weight of the whole batch over all replicas, by which losses and gradients are divided.
    pub(super) fn weight(&self) -> f64 {
        self.weight
    }

    /// Returns whether this replica computed no micro-batch.
    pub(super) fn is_empty(&self) -> bool {
        self.counts.is_empty()
    }

    /// Returns whether no replica computed a sample that has a loss.
    pub(super) fn is_nothing(&self) -> bool {
        // Weights that are not whole numbers may leave a rest of rounding.
        let is_all_lost = self.weight - self.lost <= self.weight * 1e-12;
        (self.is_empty() && !self.is_shared) || is_all_lost
    }

    /// Takes the memory for the sum over all replicas, before they agree to begin with it.
    pub(super) fn prepare_join<T: Task>(&mut self, task: &T, replica: &dyn Replica) -> Result<(), String> {
        if replica.ranks() > 1 {
            self.joined = Some(JoinedGradients::prepare(task, self.gradients.take())?);
        }
        Ok(())
    }

    /// Sums the gradients over all replicas, after [`prepare_join`](Self::prepare_join). A replica without a gradient
    /// contributes zeros; where no replica has one, there is none.
    ///
    /// If this replica fails in it, it reports that to the others, which would wait for it. All replicas return an error
    /// then.
    pub(super) fn join<T: Task>(&mut self, task: &T, replica: &dyn Replica) -> Result<(), CollectiveError> {
        if replica.ranks() == 1 {
            return Ok(());
        }
        let mut lost = [self.lost];
        replica.sum(&mut lost)?;
        self.lost = lost[0];
        let own = self.joined.take().expect("the gradients were prepared");
        // One exchange: whether a replica computed anything, and which gradients it computed.
        let any = any_replica(replica, &[&[!self.is_empty()], own.computed()].concat())?;
        self.is_shared = any[0];
        let joined = attempt(|| own.all_reduce(task, replica, &any[1..])).unwrap_or_else(|reason| {
            replica.fail(&reason);
            Err(CollectiveError::failed(replica.rank(), &reason))
        });
        self.gradients = joined?;
        // A device that waits for a replica that has failed would never return the norm.
        replica.agree(true).map(|_| ())
    }

    /// Exchanges losses and names of samples with all replicas.
    pub(super) fn share_report(&mut self, replica: &dyn Replica, batch: &impl Batch) -> Result<(), CollectiveError> {
        self.frames = batch.valid_frames();
        if replica.ranks() == 1 {
            return Ok(());
        }
        // As bits, because JSON has no NaN.
        let named = |((name, _), value): (&(Option<&'static str>, Tensor<1>), &f64)| {
            (name.unwrap_or_default().to_string(), value.to_bits())
        };
        let own = ReplicaReport {
            losses: self.losses.iter().zip(&self.values).map(named).collect(),
            unfit: self.unfit.clone(),
            left_out: self.left_out.clone(),
            truncated: self.truncated.clone(),
            frames: self.frames,
        };
        let all = replica.gather(serde_json::to_vec(&own).expect("names and numbers are plain data"))?;
        for (rank, bytes) in all.iter().enumerate().filter(|(rank, _)| *rank != replica.rank()) {
            let report: ReplicaReport = serde_json::from_slice(bytes).map_err(|error| {
                CollectiveError::failed(rank, &format!("its report of the step is unreadable: {error}"))
            })?;
            self.elsewhere.extend(report.losses.into_iter().map(|(name, bits)| (name, f64::from_bits(bits))));
            self.unfit.extend(report.unfit);
            self.left_out.extend(report.left_out);
            self.truncated.extend(report.truncated);
            self.frames += report.frames;
        }
        Ok(())
    }

    /// Computes the factor on gradients and losses that corrects for the utterances left out.
    pub(super) fn correction(&self) -> f64 {
        self.weight / (self.weight - self.lost).max(f64::MIN_POSITIVE)
    }

    /// Reads all losses and the norm of the gradient from the device in one read, and returns the norm. An asynchronous
    /// device reports its failures here.
    pub(super) fn read<T: Task>(&mut self, task: &T, device: &Device) -> Result<f64, Fault> {
        self.reads += 1;
        let mut start = Instant::now();
        let all = || {
            let square = self.gradients.square_sum(task, device);
            let losses = self.losses.iter().map(|(_, loss)| loss.clone());
            let all = flat::join(losses.chain([square]).collect());
            start = Instant::now();
            read::<f64>(all)
        };
        let values = attempt(all).and_then(|values| values);
        self.read_time = start.elapsed();
        let mut values = values.map_err(|reason| Fault::from_message(Stage::Norm, reason))?;
        let square = values.pop().expect("the norm was read");
        self.values = values;
        Ok(square.sqrt())
    }

    /// Returns whether gradients and losses were computed, without waiting for the device.
    pub(super) fn is_written<T: Task>(&self, task: &T) -> bool {
        let is_written =
            || self.gradients.is_written(task) && self.losses.iter().all(|(_, loss)| loss.try_to_data().is_ok());
        attempt(is_written).unwrap_or(false)
    }

    /// Computes the total loss and its terms by name from the values of the last read. Each is divided by the weight of
    /// the batch, without the utterances that were left out.
    pub(super) fn losses(&self) -> (f64, BTreeMap<&'static str, f64>) {
        let (mut whole, mut parts) = (0.0, BTreeMap::new());
        for ((name, _), value) in self.losses.iter().zip(&self.values) {
            let total = name.map_or(&mut whole, |name| parts.entry(name).or_default());
            *total += value / self.weight * self.correction();
        }
        for (name, value) in &self.elsewhere {
            let known = self.losses.iter().find_map(|(own, _)| own.filter(|own| own == name));
            let total = match (name.is_empty(), known) {
                (true, _) => &mut whole,
                (false, Some(name)) => parts.entry(name).or_default(),
                (false, None) => continue,
            };
            *total += value / self.weight * self.correction();
        }
        (whole, parts)
    }

    /// Returns the names of the utterances in the micro-batches with a loss that is not finite, or of all utterances of
    /// `batch` if every loss is finite.
    pub(super) fn suspects(&self, batch: &impl Batch) -> Vec<String> {
        let mut values = self.values.iter();
        let computed =
            self.micro_batches.iter().filter(|micro_batch| micro_batch.fallback_level != MicroBatch::LEFT_OUT);
        let is_bad = |count: &usize| !values.by_ref().take(*count).fold(true, |fine, value| fine & value.is_finite());
        let bad: Vec<bool> = self.counts.iter().map(is_bad).collect();
        let names =
            computed.zip(&bad).filter(|(_, bad)| **bad).flat_map(|(micro_batch, _)| batch.names(micro_batch.range()));
        let names: Vec<String> = names.collect();
        if names.is_empty() { batch.names(0..batch.len()) } else { names }
    }

    /// Takes the accumulated gradients of the batch, and leaves an empty sum.
    pub(super) fn take_gradients(&mut self) -> GradientSum {
        self.gradients.take()
    }
}

/// Named losses, names of samples and number of frames of one replica, which it sends to the other replicas for their
/// step reports.
#[derive(Serialize, Deserialize)]
struct ReplicaReport {
    losses: Vec<(String, u64)>,
    unfit: Vec<String>,
    left_out: Vec<String>,
    truncated: Vec<String>,
    frames: u64,
}
