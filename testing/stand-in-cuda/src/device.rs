//! A GPU: its books, its context and what it did.

use std::collections::BTreeSet;

use crate::abi::Handle;
use crate::architecture::Architecture;
use crate::books::Books;
use crate::counts::Counts;
use crate::errors::{Answer, Code};
use crate::scenario::{GpuFacts, Scenario};

/// GPU of the machine.
#[derive(Debug)]
pub(crate) struct Gpu {
    pub(crate) facts: GpuFacts,
    pub(crate) architecture: Architecture,
    pub(crate) books: Books,
    pub(crate) counts: Counts,
    /// How often the program has retained the context.
    pub(crate) n_retained: u32,
    /// Code of the fault that has made the context unusable.
    pub(crate) poison: Option<Code>,
    /// GPUs whose memory this one can reach.
    pub(crate) peers: BTreeSet<usize>,
    /// Stream that has no handle; `None` without a context.
    pub(crate) null_stream: Option<Handle>,
    /// Number of kernels that ran, in graphs and outside.
    pub(crate) n_run: u64,
}

impl Gpu {
    /// Makes the GPU with this number.
    pub(crate) fn new(number: usize, facts: GpuFacts, scenario: &Scenario) -> Self {
        let books = Books::new(number, &facts, scenario);
        let architecture = Architecture::new(facts.capability);
        Self {
            facts,
            architecture,
            books,
            counts: Counts::default(),
            n_retained: 0,
            poison: None,
            peers: BTreeSet::new(),
            null_stream: None,
            n_run: 0,
        }
    }

    /// Returns the code of the fault of the context, if there was one.
    pub(crate) fn check(&self) -> Answer {
        self.poison.map_or(Ok(()), Err)
    }

    /// Returns the number of multiprocessors.
    pub(crate) fn multiprocessors(&self) -> u32 {
        self.facts.multiprocessors.unwrap_or(self.architecture.multiprocessors)
    }

    /// Returns the threads that can be on the GPU at a time.
    pub(crate) fn threads(&self) -> u64 {
        u64::from(self.multiprocessors()) * u64::from(self.architecture.threads)
    }

    /// Returns the identifier; one that the scenario leaves out ends with the number of the GPU.
    pub(crate) fn uuid(&self, number: usize) -> [u8; 16] {
        self.facts.uuid.unwrap_or_else(|| {
            let mut uuid = *b"stand-in-cuda-00";
            uuid[15] = number as u8;
            uuid
        })
    }
}
