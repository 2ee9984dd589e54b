//! Checks a listing: audio files exist, are as long as listed, and fit the limits of a run.

mod files;
mod silence;

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;

use plimsoll_core::{Seconds, error_chain};

use crate::dropped::Dropped;
use crate::import::{Entries, Entry, Imported, Listing};
use crate::issue::{Issue, IssueKind, utterances_of};
use crate::select::{Limits, broken_limit, count_by_name, judge};
use crate::table::Row;
use crate::utterances::Utterances;
use files::AudioFiles;
use plimsoll_audio::AudioError;
use plimsoll_text::Tokenizer;
use silence::{decode_all, probe_all};

/// Depth of a check: how much of each audio file is read. Deeper checks find more and take longer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum CheckDepth {
    /// Checks only whether the audio file exists. A file is opened only where the list has no duration, or gives the
    /// sample rate of the file.
    Exists,
    /// Reads the header of each audio file, so wrong durations are found, and a stretch of each WAV file, so silent ones are
    /// found.
    #[default]
    Header,
    /// Decodes every sample of each audio file, so damaged and silent audio of every format is found.
    Decode,
}

/// Requirements that a corpus is checked for.
#[derive(Clone, Copy, Default)]
pub struct CheckOptions<'a> {
    /// Depth of the check: how much of each audio file is read.
    pub depth: CheckDepth,
    /// Tokenizer with the vocabulary that texts must stay inside; `None` accepts every character.
    pub tokenizer: Option<&'a Tokenizer>,
    /// Limits of the run on durations and texts.
    pub limits: Limits<'a>,
    /// Function that prepares a text as the run does, before the vocabulary and the limits judge it. Default: texts are
    /// judged as listed.
    pub normalize: Option<&'a dyn Fn(&str) -> String>,
}

/// A checked corpus: every listed utterance is usable or has an issue.
#[derive(Clone, Debug, Default)]
pub struct Checked {
    /// Usable utterances, in the order of the corpus.
    pub utterances: Utterances,
    /// One issue for each unusable utterance. Issues of the import come first.
    pub issues: Vec<Issue>,
    /// Number of issues beyond the million that an import keeps.
    pub more_issues: usize,
    /// Number of opened files for each format, rate and channel count: `FLAC, 16000 Hz, 1 channel`.
    pub audio_formats: BTreeMap<String, usize>,
    /// Number of utterances for each sample rate, in hertz, that their list reduces the audio to. Audio is read from the
    /// files as they are, so features of a higher rate contain frequencies that the list removes.
    pub resampled: BTreeMap<u32, usize>,
    /// Audio files whose channels cancel each other, in the order of their paths: one channel is read in place of the average, see
    /// [`taken_channel`](plimsoll_audio::taken_channel). Found in WAV files from [`CheckDepth::Header`] on, and in files of every
    /// format by [`CheckDepth::Decode`].
    pub opposed: Vec<PathBuf>,
}

impl Checked {
    /// Returns all reasons why listed utterances cannot be used, with their counts.
    pub fn dropped(&self) -> Dropped {
        Dropped::new(self.utterances.len(), &self.issues, self.more_issues)
    }

    /// Counts the issues of each [kind](IssueKind::name).
    pub fn counts(&self) -> BTreeMap<&'static str, usize> {
        count_by_name(&self.issues)
    }

    /// Returns the number of listed utterances, usable or not.
    pub fn listed(&self) -> usize {
        self.utterances.len() + utterances_of(&self.issues) + self.more_issues
    }
}

/// Callback for the progress of a check: gets how many files or utterances are done, and how many there are.
///
/// The callback runs on several threads, so the numbers may arrive out of order.
pub type Progress<'a> = &'a (dyn Fn(usize, usize) + Sync);

/// Checks every entry of `listing`.
///
/// Files are opened in parallel, and each file only once, even if many utterances share it. Entries that cannot be used
/// become [issues](Checked::issues); the check itself does not fail. Of several utterances with the same id, the first
/// usable one is taken.
pub fn check(listing: Listing, options: &CheckOptions<'_>, progress: Progress<'_>) -> Checked {
    check_lists(listing.into(), options, progress)
}

/// Checks every entry of an import.
pub(crate) fn check_lists(imported: Imported, options: &CheckOptions<'_>, progress: Progress<'_>) -> Checked {
    let Imported { mut entries, duplicates, mut issues, more_issues, .. } = imported;
    let files = AudioFiles::open(&mut entries, options.depth, progress);
    let opposed = files.opposed(options.depth);
    let mut checked = Checked { audio_formats: files.formats(), opposed, more_issues, ..Checked::default() };
    let (mut found, mut failed): (Vec<Row>, _) = (Vec::with_capacity(entries.len()), HashMap::new());
    for index in 0..entries.len() {
        let row = entries.row(index);
        match files.measure(&entries, row) {
            Ok(duration) => {
                entries.set_duration(row, duration);
                found.push(row);
            }
            Err(kind) => {
                let id = entries.table().record(row).id.to_owned();
                failed.insert(id.clone(), (index, found.len()));
                checked.issues.push(Issue { location: Some(entries.location(row)), id: Some(id), kind });
            }
        }
    }
    let replaced = replacements(duplicates, failed, options.depth);
    let is_replaced = |issue: &Issue| {
        let is_duplicate = matches!(issue.kind, IssueKind::DuplicateId(_));
        is_duplicate && replaced.iter().any(|(_, entry)| issue.location.as_ref() == Some(&entry.location))
    };
    issues.retain(|issue| !is_replaced(issue));
    issues.append(&mut checked.issues);
    // From the last on, so that the places of the others stay.
    for ((_, place), entry) in replaced.into_iter().rev() {
        found.insert(place, entries.push_replacement(&entry));
    }
    checked.issues = issues;
    checked.add_found(found, (entries, &files), options, progress);
    checked
}

/// Finds a usable duplicate for each of the `failed` utterances, which are given with their places: an utterance that
/// cannot be used must not keep another of the same id out. Returns them in the order of their places.
fn replacements(
    duplicates: Vec<Entry>,
    mut failed: HashMap<String, (usize, usize)>,
    depth: CheckDepth,
) -> Vec<((usize, usize), Entry)> {
    let candidates = duplicates.into_iter().filter(|entry| failed.contains_key(&entry.id));
    let mut candidates: Entries = candidates.collect();
    let files = AudioFiles::open(&mut candidates, depth, &|_, _| {});
    let mut found = Vec::new();
    for row in 0..candidates.len() as Row {
        let entry = candidates.entry(row);
        if let (Ok(duration), Some(place)) = (files.measure(&candidates, row), failed.get(&entry.id).copied()) {
            failed.remove(&entry.id);
            found.push((place, Entry { duration: Some(duration), ..entry }));
        }
    }
    found.sort_by_key(|(place, _)| *place);
    found
}

impl Checked {
    /// Adds the entries whose audio files are long enough.
    fn add_found(
        &mut self,
        mut found: Vec<Row>,
        (entries, files): (Entries, &AudioFiles),
        options: &CheckOptions<'_>,
        progress: Progress<'_>,
    ) {
        let table = entries.table();
        let with_rates = if table.has_rates() { &*found } else { &[] };
        for resampled in with_rates.iter().filter_map(|&row| table.record(row).resampled) {
            *self.resampled.entry(resampled).or_default() += 1;
        }
        let mut decoded = match options.depth {
            CheckDepth::Decode => decode_all(&found, &entries, progress),
            CheckDepth::Header => probe_all(&found, &entries, files),
            CheckDepth::Exists => Vec::new(),
        };
        let content = |index: usize| (table.text(found[index]), table.seconds(found[index]));
        let mut faulty = Vec::new();
        let mut add = |index: usize, kind: Option<IssueKind>| {
            let decoded = decoded.get_mut(index).and_then(Option::take);
            faulty.extend(decoded.or(kind).map(|kind| (index, kind)));
        };
        match (options.tokenizer, options.normalize) {
            (None, None) => judge(found.len(), content, &options.limits, &mut add),
            _ => (0..found.len()).for_each(|index| {
                let (text, duration) = content(index);
                add(index, text_or_limit_issue(text, duration, options));
            }),
        }
        for (index, kind) in faulty {
            let row = found[index];
            let id = Some(table.record(row).id.to_owned());
            self.issues.push(Issue { location: Some(entries.location(row)), id, kind });
            found[index] = FAULTY;
        }
        found.retain(|&row| row != FAULTY);
        self.utterances = Utterances::from_rows(entries.into_table(), found);
    }
}

/// Marks the place of an utterance that cannot be used. No table has so many rows.
const FAULTY: Row = Row::MAX;

fn text_or_limit_issue(text: &str, duration: Seconds, options: &CheckOptions<'_>) -> Option<IssueKind> {
    let normalized = options.normalize.map(|normalize| normalize(text));
    let text = normalized.as_deref().unwrap_or(text);
    let unknown = options.tokenizer.and_then(|tokenizer| tokenizer.encode(text).err());
    unknown
        .map(|error| IssueKind::UnknownCharacters(error.to_string()))
        .or_else(|| broken_limit(text, duration, &options.limits))
}

fn audio_issue(error: &AudioError) -> IssueKind {
    match error {
        AudioError::NotFound(file) => IssueKind::MissingAudio(file.clone()),
        AudioError::Silent(_) => IssueKind::Silent,
        &AudioError::NoChannel { channel, channels, .. } => IssueKind::MissingChannel { channel, channels },
        error => IssueKind::UnreadableAudio(error_chain(error)),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tempfile::TempDir;

    use super::*;
    use crate::import::{ImportOptions, import};
    use crate::testing::{tone, write_wav};

    /// Writes a corpus with one utterance for each kind of issue, and usable utterances.
    fn corpus() -> TempDir {
        let folder = TempDir::new().unwrap();
        write_wav(&folder.path().join("a.wav"), &tone(300.0, 1.0, 8_000), 8_000);
        write_wav(&folder.path().join("still.wav"), &[0.0; 8_000], 8_000);
        fs::write(folder.path().join("text.wav"), "not a sound").unwrap();
        let line = |id: &str, audio: &str, text: &str, rest: &str| {
            format!("{{\"id\": \"{id}\", \"audio_filepath\": \"{audio}\", \"text\": \"{text}\"{rest}}}\n")
        };
        let lines = [
            line("good", "a.wav", "one", ""),
            line("gone", "b.wav", "one", ""),
            line("text", "text.wav", "one", ""),
            line("long", "a.wav", "one", ", \"duration\": 2.0"),
            line("rounded", "a.wav", "one", ", \"duration\": 1.01"),
            line("after", "a.wav", "one", ", \"offset\": 1.5"),
            line("still", "still.wav", "one", ""),
            line("strange", "a.wav", "öne", ""),
            line("fast", "a.wav", "one none one none", ""),
            "not JSON\n".into(),
        ];
        fs::write(folder.path().join("manifest.jsonl"), lines.concat()).unwrap();
        folder
    }

    fn seen(depth: CheckDepth) -> String {
        let folder = corpus();
        let tokenizer = Tokenizer::characters(["one none"]);
        let ten_a_second = |duration: Seconds| (duration.0 * 10.0) as u64;
        let limits = Limits { output_frames: Some(&ten_a_second), ..Limits::default() };
        let options = CheckOptions { depth, tokenizer: Some(&tokenizer), limits, normalize: None };
        let checked = check(import(folder.path(), &ImportOptions::default()).unwrap(), &options, &|_, _| {});
        assert_eq!(checked.listed(), 10);
        assert_eq!(checked.counts().values().sum::<usize>(), checked.issues.len());
        let usable = checked.utterances.iter().map(|u| format!("{} {}", u.id, u.duration));
        let issues = checked.issues.iter().map(|issue| format!("! {}: {issue}", issue.kind.name()));
        let formats = checked.audio_formats.iter().map(|(format, count)| format!("{count} {format}"));
        let seen: Vec<String> = usable.chain(issues).chain(formats).collect();
        seen.join("\n").replace(&format!("{}/", folder.path().display()), "")
    }

    #[test]
    fn each_issue_is_found_and_named() {
        insta::assert_snapshot!(seen(CheckDepth::Decode), @r#"
    good 1s
    rounded 1s
    ! not JSON: manifest.jsonl:10: a JSON object was expected: expected ident at column 2
    ! missing file: manifest.jsonl:2: `gone`: audio file b.wav does not exist
    ! unreadable audio: manifest.jsonl:3: `text`: text.wav is neither WAV, AIFF, AU, CAF, FLAC, MP3, Ogg, MP4, AAC nor Matroska
    ! wrong duration: manifest.jsonl:4: `long`: it should last 2s, but its audio lasts only 1s
    ! outside of its file: manifest.jsonl:6: `after`: it starts at 1.5s, but its audio lasts only 1s
    ! silence: manifest.jsonl:7: `still`: its audio is silent
    ! letters outside the vocabulary: manifest.jsonl:8: `strange`: the character `ö` (U+00F6) in "öne" is not in the vocabulary
    ! too little audio for the text: manifest.jsonl:9: `fast`: too little audio for the text: 17 frames needed, 10 there
    2 WAV, 8000 Hz, 1 channel
    "#);
    }

    #[test]
    fn silent_wav_files_are_found_without_decoding_all() {
        let seen = seen(CheckDepth::Header);
        assert!(seen.contains("! silence: manifest.jsonl:7: `still`: its audio is silent"), "{seen}");
        let folder = TempDir::new().unwrap();
        let pause = [tone(300.0, 0.5, 8_000), vec![0.0; 8_000], tone(300.0, 0.5, 8_000)].concat();
        let click: Vec<f32> = (0..8_000).map(|n| if n == 3 { 0.01 } else { 0.0 }).collect();
        let hum: Vec<f32> = (0..8_000).map(|n| 0.25 + 5e-5 * (n % 2) as f32).collect();
        let sounds = [
            ("pause", pause),
            ("click", click),
            ("zero", vec![0.0; 80]),
            ("constant", vec![0.25; 8_000]),
            ("hum", hum),
        ];
        for (name, samples) in &sounds {
            write_wav(&folder.path().join(format!("{name}.wav")), samples, 8_000);
            fs::write(folder.path().join(format!("{name}.txt")), "one").unwrap();
        }
        for depth in [CheckDepth::Header, CheckDepth::Decode] {
            let options = CheckOptions { depth, ..CheckOptions::default() };
            let checked = check(import(folder.path(), &ImportOptions::default()).unwrap(), &options, &|_, _| {});
            let usable: Vec<&str> = checked.utterances.iter().map(|utterance| utterance.id).collect();
            assert_eq!(usable, ["click", "pause"], "{depth:?}");
            assert_eq!(checked.counts(), BTreeMap::from([("silence", 3)]), "{depth:?}");
        }
    }

    /// Makes a WAV file of floating-point numbers, 8 kHz.
    fn float_wav(samples: &[f32]) -> Vec<u8> {
        let bytes: Vec<u8> = samples.iter().flat_map(|sample| sample.to_le_bytes()).collect();
        let size = bytes.len() as u32;
        let format = [3u16.to_le_bytes(), 1u16.to_le_bytes()].concat();
        let rates = [8_000u32.to_le_bytes(), 32_000u32.to_le_bytes()].concat();
        let widths = [4u16.to_le_bytes(), 32u16.to_le_bytes()].concat();
        let head = [&b"RIFF"[..], &(36 + size).to_le_bytes(), b"WAVEfmt ", &16u32.to_le_bytes()].concat();
        [&head[..], &format, &rates, &widths, b"data", &size.to_le_bytes(), &bytes].concat()
    }

    #[test]
    fn samples_that_are_no_sound_are_found() {
        let folder = TempDir::new().unwrap();
        let sound = tone(300.0, 0.5, 8_000);
        let with = |sample: f32| sound.iter().map(|_| sample).collect::<Vec<f32>>();
        let scaled = |factor: f32| sound.iter().map(|sample| sample * factor).collect::<Vec<f32>>();
        for (name, samples) in [
            ("integers", scaled(2_147_483_648.0)),
            ("plain", scaled(1.0)),
            ("huge", scaled(1e34)),
            ("endless", with(f32::INFINITY)),
            ("none", with(f32::NAN)),
        ] {
            fs::write(folder.path().join(format!("{name}.wav")), float_wav(&samples)).unwrap();
            fs::write(folder.path().join(format!("{name}.txt")), "one").unwrap();
        }
        for depth in [CheckDepth::Header, CheckDepth::Decode] {
            let options = CheckOptions { depth, ..CheckOptions::default() };
            let checked = check(import(folder.path(), &ImportOptions::default()).unwrap(), &options, &|_, _| {});
            let usable: Vec<&str> = checked.utterances.iter().map(|utterance| utterance.id).collect();
            assert_eq!(usable, ["integers", "plain"], "{depth:?}");
            // What is no number is read as silence.
            assert_eq!(checked.counts(), BTreeMap::from([("silence", 2), ("unreadable audio", 1)]), "{depth:?}");
        }
    }

    #[test]
    fn channels_that_cancel_each_other_are_read_and_noted() {
        let folder = TempDir::new().unwrap();
        let sound = tone(300.0, 0.5, 8_000);
        for (name, second) in [("opposed", -1.0), ("equal", 1.0), ("one-sided", 0.0)] {
            let spec = hound::WavSpec {
                channels: 2,
                sample_rate: 8_000,
                bits_per_sample: 16,
                sample_format: hound::SampleFormat::Int,
            };
            let mut writer = hound::WavWriter::create(folder.path().join(format!("{name}.wav")), spec).unwrap();
            for sample in &sound {
                for factor in [1.0, second] {
                    writer.write_sample((sample * factor * 32_767.0) as i16).unwrap();
                }
            }
            writer.finalize().unwrap();
            fs::write(folder.path().join(format!("{name}.txt")), "one").unwrap();
        }
        for depth in [CheckDepth::Exists, CheckDepth::Header, CheckDepth::Decode] {
            let options = CheckOptions { depth, ..CheckOptions::default() };
            let checked = check(import(folder.path(), &ImportOptions::default()).unwrap(), &options, &|_, _| {});
            assert_eq!((checked.utterances.len(), checked.issues.len()), (3, 0), "{depth:?}: {:?}", checked.issues);
            let expected = if depth == CheckDepth::Exists { vec![] } else { vec![folder.path().join("opposed.wav")] };
            assert_eq!(checked.opposed, expected, "{depth:?}");
        }
    }

    #[test]
    fn without_headers_the_list_is_trusted() {
        let seen = seen(CheckDepth::Exists);
        assert!(seen.contains("still 1s\n") && seen.contains("missing file") && !seen.contains("silence"), "{seen}");
    }
}
