//! What a page reads of a run's `plan.toml`.

use std::fs;
use std::path::Path;

use plimsoll_core::Bytes;
use serde::Deserialize;

/// Part of `plan.toml` that a page shows. Other keys are skipped: some hold numbers that TOML has no type for, such as the
/// number of steps of a run that ends by time.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct PlanFile {
    version: Option<String>,
    data: DataPlan,
    training: TrainingPlan,
    memory: MemoryShares,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct DataPlan {
    training_utterances: Option<u64>,
    validation_utterances: Option<u64>,
    held_out: Option<String>,
    batches_in_epoch: Option<u64>,
    padded_shapes: Option<u64>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct TrainingPlan {
    micro_batch: Option<u64>,
    validation_interval: Option<u64>,
    checkpoint_interval: Option<u64>,
    replicas: Option<u64>,
    lanes: Option<u64>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct MemoryShares {
    budget: Option<Bytes>,
    sharing: Option<u64>,
    around: Bytes,
    plan: MemoryPlan,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct MemoryPlan {
    budget: Option<Bytes>,
    peak: Option<Bytes>,
    fixed: Bytes,
    state: StatePlan,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct StatePlan {
    bits: Option<u64>,
}

/// Owner of memory. The number of an owner is the number of its color.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MemoryOwner {
    Weights,
    Gradients,
    Optimizer,
    /// The three above, where the plan does not tell them apart.
    Model,
    /// What a step needs beside them.
    Step,
    /// What the process needs beside the steps.
    Process,
    /// Steps and process, where a measurement does not tell them apart.
    Rest,
}

impl MemoryOwner {
    /// All owners, in the order of their numbers.
    #[cfg(test)]
    pub(super) const ALL: [Self; 7] =
        [Self::Weights, Self::Gradients, Self::Optimizer, Self::Model, Self::Step, Self::Process, Self::Rest];

    /// Returns the owner as a few words for people.
    pub(super) fn label(self) -> &'static str {
        match self {
            Self::Weights => "weights",
            Self::Gradients => "gradients",
            Self::Optimizer => "optimizer state",
            Self::Model => "weights, gradients and optimizer state",
            Self::Step => "activations and batches",
            Self::Process => "the process beside the steps",
            Self::Rest => "activations, batches and the rest of the process",
        }
    }
}

/// The planned peak of memory by owner.
#[derive(Clone, Debug)]
pub(super) struct PlannedMemory {
    parts: Vec<(MemoryOwner, Bytes)>,
    /// Number of the first parts that belong to the model.
    n_model: usize,
}

impl PlannedMemory {
    /// Returns the owners with their memory, those of the model first.
    pub(super) fn parts(&self) -> &[(MemoryOwner, Bytes)] {
        &self.parts
    }

    /// Returns the owners whose memory is the same in all steps.
    pub(super) fn of_model(&self) -> &[(MemoryOwner, Bytes)] {
        &self.parts[..self.n_model]
    }

    /// Returns whether the plan has memory of the process beside the steps.
    pub(super) fn has_process(&self) -> bool {
        self.parts.iter().any(|part| part.0 == MemoryOwner::Process)
    }

    /// Returns the planned peak.
    pub(super) fn peak(&self) -> Bytes {
        Bytes(self.parts.iter().fold(0u64, |sum, part| sum.saturating_add(part.1.0)))
    }
}

impl PlanFile {
    /// Reads the plan in the folder of a run; all is unknown if it is missing or damaged.
    pub(super) fn read(folder: &Path) -> Self {
        let text = fs::read_to_string(folder.join("plan.toml")).unwrap_or_default();
        toml::from_str(&text).unwrap_or_default()
    }

    /// Returns the number of held-out utterances.
    pub(super) fn held_out(&self) -> Option<u64> {
        self.data.validation_utterances
    }

    /// Returns the memory that the run may use.
    pub(super) fn budget(&self) -> Option<Bytes> {
        self.memory.budget.or(self.memory.plan.budget).filter(|budget| budget.0 > 0)
    }

    /// Returns the planned peak of the run: that of all replicas that share the memory, and that of the process around
    /// them.
    pub(super) fn peak(&self) -> Option<Bytes> {
        Some(Bytes(self.of_replicas(self.memory.plan.peak?).0.saturating_add(self.memory.around.0)))
    }

    /// Divides the planned peak by owner. `parameters` is the number of parameters of the model.
    pub(super) fn memory(&self, parameters: Option<u64>) -> Option<PlannedMemory> {
        let (peak, fixed) = (self.memory.plan.peak?, self.memory.plan.fixed);
        let mut parts = Vec::new();
        match self.divided(parameters) {
            Some(divided) => parts.extend(divided.map(|(owner, bytes)| (owner, self.of_replicas(bytes)))),
            None if fixed.0 > 0 => parts.push((MemoryOwner::Model, self.of_replicas(fixed))),
            None => {}
        }
        let n_model = parts.len();
        parts.push((MemoryOwner::Step, self.of_replicas(Bytes(peak.0.saturating_sub(fixed.0)))));
        if self.memory.around.0 > 0 {
            parts.push((MemoryOwner::Process, self.memory.around));
        }
        Some(PlannedMemory { parts, n_model })
    }

    /// Divides the memory of the model, if its parameters explain all of it: weights and gradients of 4 bytes each, and the
    /// optimizer state. Frozen or shared parameters have another sum.
    fn divided(&self, parameters: Option<u64>) -> Option<[(MemoryOwner, Bytes); 3]> {
        let plan = &self.memory.plan;
        let (weights, state) = (parameters?.checked_mul(4)?, parameters?.checked_mul(plan.state.bits?)? / 8);
        (weights.checked_mul(2)?.checked_add(state)? == plan.fixed.0).then_some([
            (MemoryOwner::Weights, Bytes(weights)),
            (MemoryOwner::Gradients, Bytes(weights)),
            (MemoryOwner::Optimizer, Bytes(state)),
        ])
    }

    fn of_replicas(&self, bytes: Bytes) -> Bytes {
        Bytes(bytes.0.saturating_mul(self.memory.sharing.unwrap_or(1)))
    }

    /// Returns facts for the table of the setup.
    pub(super) fn facts(&self) -> Vec<(&'static str, String)> {
        let Self { version, data, training, .. } = self;
        let number = |count: Option<u64>| count.map(|count| count.to_string());
        let facts = [
            ("program version", version.clone()),
            ("training utterances", number(data.training_utterances)),
            ("validation utterances", number(data.validation_utterances)),
            ("held out by", data.held_out.clone()),
            ("batches in an epoch", number(data.batches_in_epoch)),
            ("padded shapes", number(data.padded_shapes)),
            ("utterances in the first micro-batch", number(training.micro_batch)),
            ("steps between validations", number(training.validation_interval)),
            ("steps between checkpoints", number(training.checkpoint_interval)),
            ("replicas", number(training.replicas)),
            ("lanes", number(training.lanes)),
        ];
        facts.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(text: &str) -> PlanFile {
        toml::from_str(text).unwrap()
    }

    #[test]
    fn a_number_beyond_toml_hides_nothing_else() {
        let plan =
            plan("[training.schedule]\ntotal = 18446744073709551615\n[memory]\naround = 5\n[memory.plan]\npeak = 10\n");
        assert_eq!(plan.peak(), Some(Bytes(15)));
    }

    #[test]
    fn a_plan_is_divided_where_the_parameters_explain_it() {
        let plan = plan(
            "[memory]\nsharing = 2\naround = 7\n[memory.plan]\npeak = 1000\nfixed = 160\n[memory.plan.state]\nbits = 64\n",
        );
        use MemoryOwner::{Gradients, Model, Optimizer, Process, Step, Weights};
        let bytes = |parts: &[(MemoryOwner, u64)]| parts.iter().map(|part| (part.0, Bytes(part.1))).collect::<Vec<_>>();
        let exact = plan.memory(Some(10)).unwrap();
        assert_eq!(
            exact.parts(),
            bytes(&[(Weights, 80), (Gradients, 80), (Optimizer, 160), (Step, 1680), (Process, 7)])
        );
        assert_eq!((exact.peak(), plan.peak()), (Bytes(2007), Some(Bytes(2007))));
        for parameters in [None, Some(11), Some(u64::MAX)] {
            let whole = plan.memory(parameters).unwrap();
            assert_eq!(whole.parts(), bytes(&[(Model, 320), (Step, 1680), (Process, 7)]), "{parameters:?}");
        }
    }
}
