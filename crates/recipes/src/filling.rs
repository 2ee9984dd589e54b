//! Fills the feature cache of a configuration before a run, by any number of processes.

use std::fs;
use std::num::NonZeroUsize;
use std::path::Path;
use std::str::FromStr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use plimsoll_config::RunConfig;
use plimsoll_core::{Bytes, error_chain};
use plimsoll_data::Dataset;
use plimsoll_data::store::StoreCounts;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use crate::data::{PreparedData, prepare};
use crate::error::Failure;
use crate::families::family;
use crate::processes::Processes;
use crate::reporter::Reporter;

/// Number of utterances in a row that one part has: enough to read a container in order, few enough for equal parts.
const ROW: usize = 64;
/// Number of unreadable utterances that are named.
const NAMED: usize = 5;

/// One of several equal parts of a corpus, as the job array of a cluster counts them: `3/16` is the third of sixteen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    index: usize,
    count: NonZeroUsize,
}

impl Part {
    /// The whole corpus.
    pub const WHOLE: Self = Self { index: 0, count: NonZeroUsize::MIN };

    /// Returns whether the part has the utterance `index`.
    pub fn has(&self, index: usize) -> bool {
        index / ROW % self.count == self.index
    }
}

impl FromStr for Part {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let numbers = text.split_once('/').and_then(|(index, count)| Some((index.parse().ok()?, count.parse().ok()?)));
        match numbers {
            Some((index @ 1.., count)) if index <= NonZeroUsize::get(count) => Ok(Self { index: index - 1, count }),
            _ => Err("expected a part such as 3/16: from 1/16 to 16/16".into()),
        }
    }
}

/// What was filled into a feature cache, by all processes together.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Filled {
    /// Number of utterances whose features are in the cache now.
    pub utterances: usize,
    /// Number of features that were computed: of an utterance at a speed.
    pub computed: u64,
    /// Number of features that were there already.
    pub found: u64,
    /// Number of records, features or hashes of files, that did not fit into the size of the cache.
    pub rejected: u64,
    /// Number of utterances that cannot be read.
    pub unreadable: usize,
    /// Some of them, each with its reason.
    pub named: Vec<String>,
    /// Size of the cache.
    pub bytes: Bytes,
}

impl Filled {
    fn add(&mut self, other: Self) {
        self.utterances += other.utterances;
        self.computed += other.computed;
        self.found += other.found;
        self.rejected += other.rejected;
        self.unreadable += other.unreadable;
        self.named.extend(other.named);
        self.named.truncate(NAMED);
    }
}

/// Computes the features of the training and validation utterances of `config` that its cache does not have, and writes
/// them there. `part` restricts it to a part of the corpus; several `processes` have a part each. `progress` gets the
/// number of utterances that are done, and how many there are for this process.
///
/// Equal features are found by every run with the same corpus and the same settings of features and augmentation.
///
/// # Errors
/// If the configuration has no cache or trains a vocoder, if its data cannot be prepared, or if another process fails.
pub fn fill_cache(
    config: &RunConfig,
    processes: &Processes,
    part: Part,
    reporter: &dyn Reporter,
    progress: &(dyn Fn(usize, usize) + Sync),
) -> Result<Filled, Failure> {
    let Some(folder) = &config.data.cache_dir else {
        return Err(Failure::invalid("the folder of the cache is missing", "write `--set data.cache_dir=DIR`"));
    };
    if family(config).crop(config).is_some() {
        let advice = "train without a cache, or fill one for a recognizer or a synthesizer";
        return Err(Failure::invalid("a vocoder reads sound, which is not cached", advice));
    }
    if part != Part::WHOLE && !processes.is_alone() {
        let advice = "leave --part out: each process that MPI starts takes a part by itself";
        return Err(Failure::invalid("a part was asked for, and there are several processes", advice));
    }
    let part = match (processes.rank(), NonZeroUsize::new(processes.ranks())) {
        (index, Some(count)) if !processes.is_alone() => Part { index, count },
        _ => part,
    };
    let prepared = processes.first_then_others(|| prepare(config, reporter))?;
    let own = fill(&prepared, part, progress);
    let all = processes.gathered(&own)?;
    let mut together = Filled::default();
    all.into_iter().for_each(|filled| together.add(filled));
    // Each process knows only what it has written itself, and what was there when it began.
    together.bytes = size_of(folder);
    Ok(together)
}

/// Returns the size of the files in `folder`.
fn size_of(folder: &Path) -> Bytes {
    let files = fs::read_dir(folder).into_iter().flatten().flatten();
    Bytes(files.filter_map(|file| file.metadata().ok()).map(|file| file.len()).sum())
}

/// Fills `part` of the corpus.
fn fill(prepared: &PreparedData, part: Part, progress: &(dyn Fn(usize, usize) + Sync)) -> Filled {
    let sides = [&prepared.training, &prepared.validation];
    let work: Vec<(&Dataset, usize)> = sides
        .into_iter()
        .flat_map(|side| (0..side.len()).filter(|&index| part.has(index)).map(move |index| (&**side, index)))
        .collect();
    let (done, unreadable) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    work.par_iter().for_each(|(side, index)| {
        if let Err(error) = side.fill_store(*index) {
            unreadable.lock().unwrap_or_else(PoisonError::into_inner).push(error_chain(&error));
        }
        progress(done.fetch_add(1, Ordering::Relaxed) + 1, work.len());
    });
    let mut named = unreadable.into_inner().unwrap_or_else(PoisonError::into_inner);
    named.sort_unstable();
    let unreadable = named.len();
    named.truncate(NAMED);
    let counts = prepared.training.store_counts();
    let StoreCounts { hits, misses, rejected, .. } = counts.unwrap_or_default();
    let utterances = work.len() - unreadable;
    // One that is damaged was looked for in vain, too.
    let computed = misses.saturating_sub(unreadable as u64);
    Filled { utterances, computed, found: hits, rejected, unreadable, named, bytes: Bytes(0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_have_each_utterance_once() {
        for count in [1, 2, 3, 7, 16] {
            let parts: Vec<Part> = (1..=count).map(|index| format!("{index}/{count}").parse().unwrap()).collect();
            assert!((0..2000).all(|index| parts.iter().filter(|part| part.has(index)).count() == 1), "{count}");
        }
        assert_eq!("1/1".parse(), Ok(Part::WHOLE));
        for wrong in ["", "3", "0/4", "5/4", "1/0", "a/2", "-1/2", "1/2/3", "1 / 2"] {
            assert!(wrong.parse::<Part>().is_err(), "{wrong}");
        }
    }
}
