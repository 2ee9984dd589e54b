//! Selects the utterances of a corpus that a run can use, and reports the others.

use std::path::{Path, PathBuf};

use plimsoll_audio::LogMel;
use plimsoll_config::RunConfig;
use plimsoll_config::choices::{TokenizerChoice, TooLongChoice};
use plimsoll_config::invocation::command;
use plimsoll_core::Seconds;
use plimsoll_core::error_chain;
use plimsoll_data::dropped::Dropped;
use plimsoll_data::long::LengthPolicy;
use plimsoll_data::utterances::{UtteranceRef, Utterances};
use plimsoll_data::{Limits, Manifest};
use plimsoll_text::Tokenizer;

use super::LeftOut;
use crate::error::{Failure, FailureExt};
use crate::families::{FrameCount, family};
use crate::reporter::{Level, Reporter};
use crate::texts::{read_manifest, read_manifest_of_run};

/// Warns about the utterances of `manifest` that cannot be used, if there are any.
pub fn report_flaws(manifest: &Manifest, reporter: &dyn Reporter) {
    let flawed = manifest.flawed();
    if let Some(first) = manifest.issues.first() {
        let (path, all) = (manifest.path.display(), manifest.utterances.len() + flawed);
        let check = command("data check");
        reporter.line(
            Level::Warning,
            &format!("{flawed} of {all} utterances of {path} cannot be used (`{check} {path}` names them)\n  the first: {first}"),
        );
    }
}

/// Warns about utterances that their list resamples to a rate below that of the features: their audio is read from its
/// files as it is.
fn report_resampling(manifest: &Manifest, log_mel: &LogMel, reporter: &dyn Reporter) {
    let rate = log_mel.config().sample_rate;
    for (resampled, count) in manifest.resampled.iter().filter(|(resampled, _)| **resampled < rate) {
        let path = manifest.path.display();
        let text = format!(
            "{path} resamples {count} utterances to {resampled} Hz, but audio is read from its files as it is, for features of \
             {rate} Hz (features.sample_rate)"
        );
        reporter.line(Level::Warning, &text);
    }
}

/// Splits or truncates utterances that are longer than `data.max_seconds`, by the policy `data.too_long`, and reports
/// them. An utterance whose audio cannot be read stays as it is.
fn apply_length_policy(manifest: &mut Manifest, config: &RunConfig, reporter: &dyn Reporter) {
    let (data, longest) = (&config.data, family(config).longest(config));
    let policy = match data.too_long {
        // `limits` leaves such utterances out and counts them.
        TooLongChoice::Refuse => return,
        TooLongChoice::Split => LengthPolicy::Split,
        TooLongChoice::Chunk => LengthPolicy::Chunk,
        TooLongChoice::Truncate => LengthPolicy::Truncate,
    };
    let before = std::mem::take(&mut manifest.utterances);
    if (0..before.len()).all(|index| before.duration(index) <= longest) {
        manifest.utterances = before;
        return;
    }
    let (mut cut, mut parts) = (Vec::new(), 0);
    let fit = |utterance: UtteranceRef<'_>| {
        let utterance = utterance.to_owned();
        if utterance.duration <= longest {
            return vec![utterance];
        }
        match policy.apply(&utterance, longest) {
            Ok(fitted) => {
                parts += fitted.len();
                cut.push(format!("{} ({})", utterance.id, utterance.duration));
                fitted
            }
            Err(error) => {
                let reason = error_chain(&error);
                let text = format!("`{}` is too long and cannot be cut: {reason}", utterance.id);
                reporter.line(Level::Warning, &text);
                // `limits` leaves it out and counts it.
                vec![utterance]
            }
        }
    };
    manifest.utterances = before.iter().flat_map(fit).collect();
    if !cut.is_empty() {
        let (count, policy) = (cut.len(), data.too_long);
        reporter.line(
            Level::Note,
            &format!(
                "{count} utterances are longer than {longest}; by `{policy}` they became {parts}: {}",
                cut.join(", ")
            ),
        );
    }
}

/// Computes the number of frames of an utterance that its tokens are aligned with: by the CTC loss of a recognizer, or by
/// the alignment of a parallel synthesizer.
pub struct CtcFrames {
    /// Frames that tokens are aligned with, of those of the features; `None` if nothing is aligned.
    aligned: Option<FrameCount>,
    log_mel: LogMel,
}

impl CtcFrames {
    /// Makes the counter for the model of `config`, with the features of `log_mel`.
    pub fn new(config: &RunConfig, log_mel: &LogMel) -> Self {
        Self { aligned: family(config).aligned_frames(config), log_mel: log_mel.clone() }
    }

    /// Computes the number of frames for the tokens of an utterance of this `length`: of a recognizer after subsampling.
    pub fn count(&self, length: Seconds) -> u64 {
        let frames = self.log_mel.frames_in(length).0;
        u64::from(self.aligned.as_ref().map_or(frames, |aligned| aligned(frames)))
    }
}

/// Returns the limits on the utterances of a run, with a token for each character. `output_frames` gives the CTC frames
/// of a duration, see [`CtcFrames::count`]; [`ctc_tokenizer`] gives the tokenizer of other tokens.
pub fn limits<'a>(config: &RunConfig, output_frames: &'a dyn Fn(Seconds) -> u64) -> Limits<'a> {
    let family = family(config);
    let aligns = family.aligned_frames(config).is_some();
    Limits {
        shortest: config.data.min_seconds,
        longest: family.longest(config),
        output_frames: aligns.then_some(output_frames),
        longest_text: config.data.max_text_length.filter(|_| family.reads_text()).map(|longest| longest as usize),
        ..Limits::default()
    }
}

/// Returns the tokenizer whose tokens a CTC loss needs frames for, for [`Limits::tokenizer`]; `None` if each character is
/// a token. Pieces of words are learned from `texts`, as a run learns them from its training texts.
///
/// # Errors
/// If the file `data.tokenizer_file` cannot be read, or `data.bpe_size` is too small for the texts.
pub fn ctc_tokenizer<T: AsRef<str>>(
    config: &RunConfig,
    texts: impl IntoIterator<Item = T>,
) -> Result<Option<Tokenizer>, Failure> {
    let data = &config.data;
    if let Some(file) = &data.tokenizer_file {
        return Tokenizer::from_file(file).map(Some).invalid();
    }
    match data.tokenizer {
        TokenizerChoice::Bpe => Tokenizer::bpe(texts, data.bpe_size as usize).map(Some).invalid(),
        TokenizerChoice::Characters => Ok(None),
    }
}

/// The tokens of a text that a CTC loss needs frames for.
#[derive(Clone, Copy)]
pub(super) enum TokenCount<'a> {
    /// Each character.
    Characters,
    /// The tokens of this tokenizer.
    Of(&'a Tokenizer),
    /// Not known yet: no text is too long.
    Unknown,
}

/// Reads the corpus at `path` for a run, or for its plan alone if `is_dry`.
///
/// # Errors
/// If the corpus cannot be read, or if more than `data.unusable_share` of it cannot be used.
pub(super) fn read(
    path: &Path,
    config: &RunConfig,
    is_dry: bool,
    reporter: &dyn Reporter,
) -> Result<Manifest, Failure> {
    let read = if is_dry { read_manifest } else { read_manifest_of_run };
    let manifest = read(path, &config.data, reporter)?;
    accept(path, &manifest.dropped(), config)?;
    Ok(manifest)
}

/// Fails if more of a corpus is left out than a run accepts, for whatever reasons.
pub(super) fn accept(corpus: &Path, dropped: &Dropped, config: &RunConfig) -> Result<(), Failure> {
    let most = config.data.unusable_share;
    if dropped.share() <= most {
        return Ok(());
    }
    let corpus = corpus.display();
    let message = format!("{corpus}: {dropped}; a run leaves out at most {:.1} %", most * 100.0);
    let has = |name: &str| dropped.reasons.iter().any(|reason| reason.name == name);
    let mut remedies = vec![format!("`{} {corpus} --all` names them", command("data check"))];
    if has("too long") && config.data.too_long == TooLongChoice::Refuse {
        remedies.push("data.too_long=split cuts long ones at pauses".into());
    }
    if has("too long") || has("too short") {
        remedies.push("data.min_seconds and data.max_seconds set the limits of length".into());
    }
    remedies.push("data.unusable_share accepts more".into());
    Err(Failure::invalid(message, remedies.join("; ")))
}

/// Utterances of a list that a run can use, and what is left out of it.
pub(super) struct Selected {
    pub(super) kept: Utterances,
    /// Number of utterances that are left out, by reason.
    pub(super) left_out: LeftOut,
    /// The list, and the reasons in full.
    pub(super) list: (PathBuf, Dropped),
}

/// Selects the usable utterances of `manifest`, and counts the unusable utterances by reason.
///
/// # Errors
/// If nothing is left.
pub(super) fn select(
    mut manifest: Manifest,
    config: &RunConfig,
    log_mel: &LogMel,
    count: TokenCount<'_>,
    reporter: &dyn Reporter,
) -> Result<Selected, Failure> {
    report_flaws(&manifest, reporter);
    report_resampling(&manifest, log_mel, reporter);
    apply_length_policy(&mut manifest, config, reporter);
    let frames = CtcFrames::new(config, log_mel);
    let output_frames = |length| frames.count(length);
    let limits = limits(config, &output_frames);
    let selection = manifest.select(&match count {
        TokenCount::Characters => limits,
        TokenCount::Of(tokenizer) => Limits { tokenizer: Some(tokenizer), ..limits },
        TokenCount::Unknown => Limits { output_frames: None, ..limits },
    });
    let mut left_out = selection.counts();
    for issue in &manifest.issues {
        *left_out.entry(issue.kind.name()).or_default() += issue.kind.utterances();
    }
    if selection.kept.is_empty() {
        return Err(nothing_left(&manifest.path.display().to_string(), &left_out));
    }
    let mut dropped = selection.dropped();
    dropped.add(&manifest.dropped());
    Ok(Selected { kept: selection.kept, left_out, list: (manifest.path, dropped) })
}

/// Makes the failure of a corpus of which no utterance is left.
pub(super) fn nothing_left(corpus: &str, left_out: &LeftOut) -> Failure {
    let reasons: Vec<String> = left_out.iter().map(|(why, n)| format!("{n} {why}")).collect();
    let message = format!("none of the utterances of {corpus} can be used: {}", reasons.join(", "));
    Failure::invalid(message, "data.min_seconds and data.max_seconds set the limits of length")
}
