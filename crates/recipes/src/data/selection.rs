//! Selects the utterances of a corpus that a run can use, and reports the others.

use std::path::Path;

use plimsoll_audio::LogMel;
use plimsoll_core::Seconds;
use plimsoll_data::{LengthPolicy, Limits, Manifest, Selection};
use plimsoll_speech::asr::RecognizerConfig;

use super::LeftOut;
use crate::config::{DataConfig, RunConfig, Task, TooLongChoice};
use crate::error::Failure;
use crate::invocation::command;
use crate::mapping;
use crate::reporter::{Level, Reporter};
use crate::texts::read_manifest;
use plimsoll_core::error_chain;

/// Warns about the utterances of `manifest` that cannot be used, if there are any.
pub fn report_flaws(manifest: &Manifest, reporter: &dyn Reporter) {
    let flawed = manifest.issues.len() + manifest.more_issues;
    if let Some(first) = manifest.issues.first() {
        let (path, all) = (manifest.path.display(), manifest.utterances.len() + flawed);
        let check = command("data check");
        reporter.line(
            Level::Warning,
            &format!("{flawed} of {all} utterances of {path} cannot be used (`{check} {path}` names them)\n  the first: {first}"),
        );
    }
}

/// Splits or truncates utterances that are longer than `data.max_seconds`, by the policy `data.too_long`, and reports
/// them. An utterance whose audio cannot be read stays as it is.
fn apply_length_policy(manifest: &mut Manifest, data: &DataConfig, reporter: &dyn Reporter) {
    let policy = match data.too_long {
        // `limits` leaves such utterances out and counts them.
        TooLongChoice::Refuse => return,
        TooLongChoice::Split => LengthPolicy::Split,
        TooLongChoice::Chunk => LengthPolicy::Chunk,
        TooLongChoice::Truncate => LengthPolicy::Truncate,
    };
    let (mut cut, mut parts, before) = (Vec::new(), 0, std::mem::take(&mut manifest.utterances));
    for utterance in before {
        if utterance.duration <= data.max_seconds {
            manifest.utterances.push(utterance);
            continue;
        }
        let fitted = match policy.apply(&utterance, data.max_seconds) {
            Ok(fitted) => fitted,
            Err(error) => {
                let reason = error_chain(&error);
                let text = format!("`{}` is too long and cannot be cut: {reason}", utterance.id);
                reporter.line(Level::Warning, &text);
                // `limits` leaves it out and counts it.
                manifest.utterances.push(utterance);
                continue;
            }
        };
        parts += fitted.len();
        cut.push(format!("{} ({})", utterance.id, utterance.duration));
        manifest.utterances.extend(fitted);
    }
    if !cut.is_empty() {
        let (count, policy, longest) = (cut.len(), data.too_long, data.max_seconds);
        reporter.line(
            Level::Note,
            &format!(
                "{count} utterances are longer than {longest}; by `{policy}` they became {parts}: {}",
                cut.join(", ")
            ),
        );
    }
}

/// Computes the number of frames of an utterance that a CTC loss sees.
pub struct CtcFrames {
    model: RecognizerConfig,
    log_mel: LogMel,
}

impl CtcFrames {
    /// Makes the counter for the model of `config` with the features of `log_mel`.
    pub fn new(config: &RunConfig, log_mel: &LogMel) -> Self {
        Self { model: mapping::recognizer(config, log_mel.n_mels(), 1), log_mel: log_mel.clone() }
    }

    /// Computes the number of encoder frames of an utterance of this `length`, after subsampling.
    pub fn count(&self, length: Seconds) -> u64 {
        u64::from(self.model.frames_after(self.log_mel.frames_in(length).0))
    }
}

/// Returns the limits on the utterances of a run. `output_frames` gives the CTC frames of a duration, see
/// [`CtcFrames::count`].
pub fn limits<'a>(config: &RunConfig, output_frames: &'a dyn Fn(Seconds) -> u64) -> Limits<'a> {
    Limits {
        shortest: config.data.min_seconds,
        longest: config.data.max_seconds,
        // Only a recognizer is trained with CTC.
        output_frames: (config.task == Task::Asr).then_some(output_frames),
        longest_text: config.data.max_text_length.map(|longest| longest as usize),
    }
}

/// Selects the usable utterances of the corpus at `path`, and counts the unusable utterances by reason.
///
/// # Errors
/// If the corpus cannot be read, if more than `data.unusable_share` of it cannot be used, or if nothing is left.
pub(super) fn select(
    path: &Path,
    config: &RunConfig,
    log_mel: &LogMel,
    reporter: &dyn Reporter,
) -> Result<(Selection, LeftOut), Failure> {
    let mut manifest = read_manifest(path, &config.data)?;
    let most = config.data.unusable_share;
    if manifest.unusable_share() > most {
        let (share, most) = (manifest.unusable_share() * 100.0, most * 100.0);
        let first = manifest.issues.first().map(ToString::to_string).unwrap_or_default();
        let (path, check) = (path.display(), command("data check"));
        let message = format!(
            "{share:.1} % of the utterances of {path} cannot be used, and {most:.1} % may be; the first: {first}"
        );
        return Err(Failure::invalid(
            message,
            format!("`{check} {path} --all` names them; data.unusable_share allows more"),
        ));
    }
    report_flaws(&manifest, reporter);
    apply_length_policy(&mut manifest, &config.data, reporter);
    let frames = CtcFrames::new(config, log_mel);
    let selection = manifest.select(&limits(config, &|length| frames.count(length)));
    let mut left_out = selection.counts();
    for issue in &manifest.issues {
        *left_out.entry(issue.kind.name()).or_default() += 1;
    }
    if selection.kept.is_empty() {
        let reasons: Vec<String> = left_out.iter().map(|(why, n)| format!("{n} {why}")).collect();
        let message = format!("none of the utterances of {} can be used: {}", path.display(), reasons.join(", "));
        return Err(Failure::invalid(message, "data.min_seconds and data.max_seconds set the limits of length"));
    }
    Ok((selection, left_out))
}
