//! Finds utterances that are silent or no sound: by decoding all of each, or by a short stretch in the middle of each WAV file.

use std::sync::atomic::{AtomicUsize, Ordering};

use plimsoll_audio::{Audio, AudioKind, AudioSegment, read_audio_segment, read_heard_segment};
use plimsoll_core::Seconds;
use rayon::prelude::*;

use super::files::AudioFiles;
use super::{Progress, audio_issue};
use crate::import::Entries;
use crate::issue::IssueKind;
use crate::table::Row;

/// Sample rate for decoding: any rate shows silence and damage, and 8 kHz is the cheapest.
const RATE: u32 = 8_000;

/// Length of the stretch that is read in the middle of an utterance. Few words have a pause of this length inside.
const STRETCH: Seconds = Seconds(0.05);

/// Decodes every utterance in parallel, and returns for each the issue of its audio, if any.
pub(super) fn decode_all(found: &[Row], entries: &Entries, progress: Progress<'_>) -> Vec<Option<IssueKind>> {
    let done = AtomicUsize::new(0);
    let decode = |&row: &Row| {
        let issue = decode(row, entries);
        progress(done.fetch_add(1, Ordering::Relaxed) + 1, found.len());
        issue
    };
    found.par_iter().map(decode).collect()
}

/// Looks for silence in the uncompressed files of utterances, such as WAV, and returns for each the issue of its audio, if any.
/// Only such a file can be read from its middle at no cost; an utterance that is silent there, or no sound, is decoded. Other issues are for
/// `CheckDepth::Decode`.
pub(super) fn probe_all(found: &[Row], entries: &Entries, files: &AudioFiles) -> Vec<Option<IssueKind>> {
    let probe = |&row: &Row| {
        let (record, duration) = (entries.table().record(row), entries.table().seconds(row));
        let is_plain = files.kind(record.audio).is_some_and(AudioKind::is_uncompressed);
        let offset = Seconds(record.offset.0 + (duration.0 - STRETCH.0).max(0.0) / 2.0);
        let middle = AudioSegment { offset, duration: Some(Seconds(STRETCH.0.min(duration.0))) };
        let is_suspect = |audio: &Audio| audio.is_silent() || !audio.is_sound();
        let found = is_plain && read_audio_segment(record.audio, middle, RATE).is_ok_and(|audio| is_suspect(&audio));
        if found { decode(row, entries) } else { None }
    };
    found.par_iter().map(probe).collect()
}

fn decode(row: Row, entries: &Entries) -> Option<IssueKind> {
    let record = entries.table().record(row);
    let segment = AudioSegment { offset: record.offset, duration: Some(entries.table().seconds(row)) };
    read_heard_segment(record.audio, segment, RATE).err().map(|error| audio_issue(&error))
}
