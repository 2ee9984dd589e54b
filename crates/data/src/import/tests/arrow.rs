//! Tests of Arrow: what `datasets` and `pyarrow` write, in files made by `fixtures/arrow.py`, and damage of it.

use proptest::prelude::*;

use super::containers::{check_against_expected, folder};
use super::*;
use crate::{IssueKind, Manifest, Utterance};

fn read(path: &str) -> Manifest {
    Manifest::read(folder().join(path)).unwrap()
}

/// Removes the endings of the file names that are ids.
fn without_endings(mut manifest: Manifest) -> Manifest {
    let utterances = manifest.utterances.to_vec().into_iter();
    manifest.utterances = utterances.map(|u| Utterance { id: u.id.replace(".flac", ""), ..u }).collect();
    manifest
}

#[test]
fn a_saved_data_set_has_its_utterances_and_samples() {
    // All splits, without the results beside them.
    assert_eq!(Format::detect(&folder().join("arrow")), Some(Format::Arrow));
    check_against_expected("arrow", &without_endings(read("arrow")));
    for (part, count) in [
        ("train", 4),
        ("test", 1),
        ("train/data-*.arrow", 4),
        ("train/data-00001-of-00002.arrow", 2),
        ("train/data-{00000..00001}-of-00002.arrow", 4),
    ] {
        let found = read(&format!("arrow/{part}"));
        assert_eq!((found.utterances.len(), found.issues.len()), (count, 0), "{part}");
    }
    let options = ImportOptions { format: Some(Format::HuggingFace), ..ImportOptions::default() };
    assert_eq!(import(folder().join("arrow"), &options).unwrap().entries.len(), 5);
}

#[test]
fn a_file_that_the_data_set_lists_may_not_be_missing() {
    let bytes = fs::read(folder().join("arrow/train/data-00000-of-00002.arrow")).unwrap();
    let state = fs::read(folder().join("arrow/train/state.json")).unwrap();
    let listing = import(
        write(&[("train/data-00000-of-00002.arrow", &bytes), ("train/state.json", &state)]).path(),
        &ImportOptions::default(),
    )
    .unwrap();
    assert_eq!((listing.entries.len(), listing.issues.len()), (2, 1));
    let issue = listing.issues[0].to_string();
    assert!(issue.contains("data-00001-of-00002.arrow: it cannot be read to its end, about 2 utterances"), "{issue}");
}

#[test]
fn numbers_nulls_lists_and_several_batches_are_read() {
    let options = ImportOptions::default();
    for name in ["stream", "file"] {
        let bytes = fs::read(folder().join(format!("arrow-unusual/{name}.arrow"))).unwrap();
        let corpus = write(&[("a.arrow", &bytes)]);
        let listing = import(corpus.path(), &options).unwrap();
        let about: Vec<_> = listing.entries.iter().map(|e| (&*e.id, &*e.text, e.speaker.as_deref())).collect();
        let expected = [
            ("a/1", "text numéro 0", Some("bob")),
            ("a/2", "text numéro 1", Some("ann")),
            ("a/4", "text numéro 3", None),
        ];
        assert_eq!(about, expected, "{name}");
        let durations: Vec<_> = listing.entries.iter().map(|e| e.duration.map(|d| (d.0 * 100.0).round())).collect();
        assert_eq!(durations, [Some(10.0), None, Some(19.0)], "{name}");
        let issues: Vec<String> = listing.issues.iter().map(|issue| issue.kind.to_string()).collect();
        assert_eq!(issues, ["it has no audio: its row has no bytes", "it has no text"], "{name}");
        let known = read("parquet/default.parquet");
        for (entry, row) in listing.entries.iter().zip([0, 1, 3]) {
            let samples = |path: &Path| plimsoll_audio::read_recording(path).unwrap().samples;
            assert_eq!(samples(&entry.audio), samples(known.utterances.get(row).audio), "{name}");
        }
    }
}

#[test]
fn compressed_batches_are_refused_by_name() {
    let bytes = fs::read(folder().join("arrow-unusual/packed.arrow")).unwrap();
    let seen = seen(&[("a.arrow", &bytes)], &ImportOptions::default());
    assert!(
        seen.contains("its values are compressed by LZ4, which is not read; write it without compression"),
        "{seen}"
    );
}

#[test]
fn a_file_that_ends_too_early_gives_what_it_has() {
    let bytes = fs::read(folder().join("arrow-unusual/stream.arrow")).unwrap();
    let mut counts = Vec::new();
    for end in (0..bytes.len()).step_by(97) {
        let folder = write(&[("a.arrow", &bytes[..end])]);
        let listing = import(folder.path(), &ImportOptions::default()).unwrap();
        let is_damaged = |issue: &crate::Issue| matches!(issue.kind, IssueKind::DamagedShard { .. });
        let damaged = listing.issues.iter().filter(|issue| is_damaged(issue)).count();
        // A stream may end behind any message.
        assert!(damaged == 1 || listing.entries.len() + listing.issues.len() >= 2, "{end}: {:?}", listing.issues);
        counts.push(listing.entries.len());
    }
    assert!(counts.is_sorted() && counts.starts_with(&[0]) && counts.contains(&2), "{counts:?}");
}

proptest! {
    #[test]
    fn damaged_files_never_panic(
        name in prop::sample::select(vec!["arrow-unusual/stream", "arrow-unusual/file", "arrow/test/data-00000-of-00001"]),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        is_in_schema in any::<bool>(),
    ) {
        let mut bytes = fs::read(folder().join(format!("{name}.arrow"))).unwrap();
        for (place, byte) in changes {
            let end = if is_in_schema { 2500 } else { bytes.len() };
            bytes[place.index(end)] = byte;
        }
        let folder = write(&[("a.arrow", &bytes)]);
        let Ok(listing) = import(folder.path(), &ImportOptions::default()) else { return Ok(()) };
        prop_assert!(listing.entries.len() <= 5);
        for entry in listing.entries {
            // Audio that is damaged may be read or not.
            let _ = plimsoll_audio::read_recording(&entry.audio);
        }
    }
}
