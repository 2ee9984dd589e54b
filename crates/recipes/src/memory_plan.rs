//! The memory that a run will need, as its plan records it.

use std::fmt;

use plimsoll_core::{BatchShape, Bytes};
use plimsoll_memory::{BucketPlan, Plan};
use plimsoll_train::PlannedLimit;
use serde::Serialize;

/// What a run will need.
#[derive(Clone, Debug, Serialize)]
pub struct MemoryPlan {
    /// What may be used, where that is limited.
    pub budget: Option<Bytes>,
    /// What the process holds beside the model, where that is the same memory: lists, features, batches.
    pub around: Bytes,
    /// Replicas that are in the same memory.
    pub sharing: u64,
    /// Model and steps of one of them.
    pub plan: Plan,
}

impl MemoryPlan {
    /// The most that is in use at once.
    pub fn peak(&self) -> Bytes {
        Bytes(self.plan.peak.0 * self.sharing + self.around.0)
    }

    /// How batches of each length are begun with, on so many lanes.
    pub fn governed(&self, lanes: usize) -> Vec<PlannedLimit> {
        let planned = |bucket: &BucketPlan| PlannedLimit {
            shape: bucket.bucket,
            limit: (bucket.micro_batch as usize * lanes.max(1)).min(bucket.bucket.utterances.max(1) as usize),
            choice: bucket.choice,
        };
        self.plan.buckets.iter().map(planned).collect()
    }

    /// What a batch of each length takes. What the pools of a card once reserved stays, whatever comes after.
    pub fn expected(&self, is_host: bool) -> Vec<(BatchShape, Bytes)> {
        if !is_host {
            return self.plan.buckets.iter().map(|bucket| (bucket.bucket, self.peak())).collect();
        }
        self.plan
            .buckets
            .iter()
            .map(|bucket| (bucket.bucket, Bytes(bucket.peak.0 * self.sharing + self.around.0)))
            .collect()
    }
}

impl fmt::Display for MemoryPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fewest = self.plan.buckets.iter().min_by_key(|bucket| bucket.micro_batch);
        let pieces = fewest.map_or(1, |bucket| bucket.accumulation);
        let cut = if pieces > 1 { format!(", the longest batches in {pieces} pieces") } else { String::new() };
        match self.budget {
            Some(budget) => write!(f, "about {} of at most {budget}{cut}", self.peak()),
            None => write!(f, "about {}{cut}", self.peak()),
        }
    }
}
