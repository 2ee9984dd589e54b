//! A run that began earlier: the facts in its folder that a resumed run and an evaluation keep.

use std::io::BufReader;
use std::path::Path;

use plimsoll_audio::LogMelConfig;
use plimsoll_config::RunConfig;
use plimsoll_core::open_regular_file;
use plimsoll_data::{CorpusFingerprint, SplitBy};
use plimsoll_speech::ModelFolder;
use plimsoll_speech::tts::{LengthBounds, MelNormalization};
use plimsoll_text::Tokenizer;
use plimsoll_train::RunState;

use crate::error::{Failure, FailureExt};
use crate::families::{ModelFacts, family};
use crate::fingerprint::HELD_OUT_BY;

/// Name of the file with the fingerprint of the utterances, in the folder of a run.
pub(crate) const UTTERANCES: &str = "utterances.jsonl";

/// Facts of a run with a checkpoint, which do not follow from its configuration alone.
#[derive(Clone, Debug)]
pub struct EarlierRun {
    /// Identity of the run; empty for a run of an older version.
    pub id: String,
    /// Tokenizer of the model; `None` for a vocoder, which reads no text.
    pub tokenizer: Option<Tokenizer>,
    /// Features of the model.
    pub features: LogMelConfig,
    /// State in the newest checkpoint.
    pub state: RunState,
    /// Statistics of the training data that the model was built with; `None` for a recognizer.
    pub statistics: Option<(MelNormalization, LengthBounds)>,
    /// Fingerprint of the utterances; `None` if its file is missing or damaged.
    pub corpus: Option<CorpusFingerprint>,
}

impl EarlierRun {
    /// Reads the run in `folder`; `None` if it has no checkpoint yet.
    ///
    /// # Errors
    /// If a file cannot be read, the model is not of the family of `config`, or a checkpoint belongs to another run.
    pub fn read(folder: &Path, config: &RunConfig) -> Result<Option<Self>, Failure> {
        let files = ModelFolder(folder);
        let has_steps = plimsoll_train::CheckpointStore::new(files.checkpoints(), 1).steps().invalid()?;
        if has_steps.is_empty() {
            return Ok(None);
        }
        let Some(state) = files.checkpoint_store().invalid()?.newest_state().invalid()? else { return Ok(None) };
        let ModelFacts { run, tokenizer, features, statistics, .. } = family(config).facts(folder)?;
        let lines = open_regular_file(folder.join(UTTERANCES)).map(BufReader::new);
        let corpus = lines.and_then(CorpusFingerprint::read_lines).ok().flatten();
        Ok(Some(Self { id: run.unwrap_or_default(), tokenizer, features, state, statistics, corpus }))
    }

    /// Returns the unit that was held out for validation; `None` if it is not known, or another list is validated on.
    pub(crate) fn held_out_by(&self) -> Option<SplitBy> {
        match self.state.fingerprint.get(HELD_OUT_BY).map(String::as_str) {
            Some("voices") => Some(SplitBy::Speaker),
            Some("utterances") => Some(SplitBy::Utterance),
            _ => None,
        }
    }
}
