//! Tests of Parquet: what `datasets` and `pyarrow` write, in files made by `fixtures/containers.py`, and damage of it.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::containers::{check_against_expected, folder};
use super::*;
use crate::parquet::{CellKind, Cells, ColumnSpec, ParquetWriter};
use crate::{IssueKind, Manifest};

const FILES: [&str; 7] = ["default", "none", "snappy", "zstd", "gzip", "unusual-1", "unusual-2"];

fn file(name: &str) -> Vec<u8> {
    fs::read(folder().join(format!("parquet/{name}.parquet"))).unwrap()
}

fn read(path: &str) -> Manifest {
    Manifest::read(folder().join(path)).unwrap()
}

#[test]
fn every_way_of_writing_has_the_same_utterances_and_samples() {
    for name in &FILES[..5] {
        check_against_expected(name, &read(&format!("parquet/{name}.parquet")));
    }
    // Files with ids in common.
    let all = read("parquet");
    assert_eq!((all.utterances.len(), all.issues.len()), (5 * FILES.len(), 0), "{:?}", all.issues);
    let ids: BTreeSet<&str> = all.utterances.iter().map(|u| u.id).collect();
    assert!(ids.len() == all.utterances.len() && ids.contains("snappy/utt-3.flac"), "{ids:?}");
}

#[test]
fn numbers_nulls_lists_and_other_names_are_read() {
    let expected = read("parquet/none.parquet");
    for name in &FILES[5..] {
        let found = read(&format!("parquet/{name}.parquet"));
        assert!(found.issues.is_empty(), "{:?}", found.issues);
        let about = |manifest: &Manifest| -> Vec<_> {
            let samples = |path: &Path| plimsoll_audio::read_recording(path).unwrap().samples;
            let each = |u: crate::utterances::UtteranceRef<'_>| {
                (u.text.to_owned(), u.duration, samples(u.audio), u.speaker.map(str::to_owned))
            };
            manifest.utterances.iter().map(each).collect()
        };
        assert_eq!(about(&found), about(&expected), "{name}");
        let ids: Vec<&str> = found.utterances.iter().map(|u| u.id).collect();
        // The column `id` has one number five times.
        assert_eq!(ids, [0, 1, 2, 3, 4].map(|n| format!("utt-{n}.wav")));
        let languages: Vec<_> = found.utterances.iter().map(|u| u.language).collect();
        assert_eq!(languages, [Some("en"), None, None, Some("mr"), None]);
    }
}

#[test]
fn splits_are_read_together_or_by_a_pattern() {
    check_against_expected("webdataset", &without_endings(read("parquet-splits")));
    for (pattern, count) in
        [("train-*", 4), ("test-*", 1), ("train-{00000..00001}-of-00002", 4), ("train-00001-of-*", 2)]
    {
        let found = read(&format!("parquet-splits/data/{pattern}.parquet"));
        assert_eq!((found.utterances.len(), found.issues.len()), (count, 0), "{pattern}");
    }
    let missing = read("parquet-splits/data/train-{00000..00002}-of-00002.parquet");
    assert_eq!((missing.utterances.len(), missing.issues.len()), (4, 1));
    let options = ImportOptions { format: Some(Format::HuggingFace), ..ImportOptions::default() };
    assert_eq!(import(folder().join("parquet-splits"), &options).unwrap().entries.len(), 5);
}

/// Removes the endings of the file names that are ids.
fn without_endings(mut manifest: Manifest) -> Manifest {
    let utterances = manifest.utterances.to_vec().into_iter();
    manifest.utterances = utterances.map(|u| crate::Utterance { id: u.id.replace(".flac", ""), ..u }).collect();
    manifest
}

#[test]
fn rows_without_audio_or_text_are_issues_of_their_rows() {
    let options = ImportOptions::default();
    let bytes = fs::read(folder().join("parquet-flawed/flawed.parquet")).unwrap();
    insta::assert_snapshot!(seen(&[("a.parquet", &bytes)], &options), @r"
    parquet
    ! a.parquet:1: `a/1`: it has no text
    ! a.parquet:2: `a/2`: it has no audio: its row has no bytes, and names the file a.wav
    ! a.parquet:3: `a/3`: it has no audio: its row has no bytes
    ! a.parquet:4: `a/4`: it has no audio: it has no bytes
    ");
    insta::assert_snapshot!(seen(&[("a.parquet", b"PAR1PAR1"), ("b.parquet", &file("none"))], &options), @r"
    parquet
    utt-0: b.parquet:112+1180 0s..end [bob -] text numéro 0 (b.parquet:1)
    utt-1: b.parquet:1296+1493 0s..end [ann -] text numéro 1 (b.parquet:2)
    utt-2: b.parquet:2793+1816 0s..end [bob -] text numéro 2 (b.parquet:3)
    utt-3: b.parquet:8058+2130 0s..end [ann -] text numéro 3 (b.parquet:4)
    utt-4: b.parquet:10192+2454 0s..end [bob -] text numéro 4 (b.parquet:5)
    ! a.parquet: damaged at byte 0, so what lies behind is lost, about 5 utterances: the file does not end as Parquet does, so it may be cut short
    ");
}

#[test]
fn a_file_that_ends_too_early_is_one_issue() {
    let bytes = file("snappy");
    for end in (0..bytes.len()).step_by(97) {
        let folder = write(&[("a.parquet", &bytes[..end]), ("b.parquet", &file("zstd"))]);
        let listing = import(folder.path(), &ImportOptions::default()).unwrap();
        assert_eq!((listing.entries.len(), listing.issues.len()), (5, 1), "{end}");
        assert!(matches!(listing.issues[0].kind, IssueKind::DamagedShard { lost: 5, .. }), "{}", listing.issues[0]);
    }
}

#[test]
fn damage_costs_the_rows_of_its_group() {
    // The first row group holds three rows. Its pages begin behind the first four bytes.
    let mut bytes = file("default");
    bytes[4..40].fill(0xff);
    let folder = write(&[("a.parquet", &bytes)]);
    let listing = import(folder.path(), &ImportOptions::default()).unwrap();
    assert_eq!((listing.entries.len(), listing.issues.len()), (2, 1), "{:?}", listing.issues);
    let issue = listing.issues[0].to_string();
    assert!(issue.contains("a.parquet: damaged at byte 4, so rows 1 to 3 are lost: "), "{issue}");
}

/// Where the description of the columns begins.
fn footer(bytes: &[u8]) -> usize {
    let end = bytes.len() - 8;
    end - u32::from_le_bytes(bytes[end..end + 4].try_into().unwrap()) as usize
}

#[test]
fn a_damaged_byte_of_the_footer_never_hides_rows() {
    // The texts in the footer are long, and no part of its structure. Each file starts at another byte.
    for (first, name) in FILES.iter().enumerate() {
        let whole = file(name);
        for (count, place) in (footer(&whole) + first..whole.len()).step_by(FILES.len()).enumerate() {
            let mut bytes = whole.clone();
            bytes[place] = if count % 3 == 0 { 0 } else { bytes[place] ^ [0xff, 0xf0][count % 2] };
            let folder = write(&[("a.parquet", &bytes)]);
            let listing = import(folder.path(), &ImportOptions::default()).unwrap();
            assert!(listing.entries.len() == 5 || !listing.issues.is_empty(), "{name}: byte {place}");
        }
    }
}

#[test]
fn a_footer_that_ends_too_early_is_damage() {
    // A field of another number, so that the fields behind it are read as others, and the end comes early.
    let mut bytes = file("unusual-1");
    bytes[32028] = 225;
    let folder = write(&[("a.parquet", &bytes)]);
    let listing = import(folder.path(), &ImportOptions::default()).unwrap();
    assert_eq!((listing.entries.len(), listing.issues.len()), (0, 1));
    let issue = listing.issues[0].to_string();
    assert!(issue.contains("the description of the columns makes no sense"), "{issue}");
}

proptest! {
    #[test]
    fn damaged_files_never_panic(
        name in prop::sample::select(FILES.to_vec()),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        is_in_footer in any::<bool>(),
    ) {
        let mut bytes = file(name);
        for (place, byte) in changes {
            let end = bytes.len();
            let place = if is_in_footer { end - 1 - place.index(end.min(2000)) } else { place.index(end) };
            bytes[place] = byte;
        }
        let folder = write(&[("a.parquet", &bytes)]);
        let listing = import(folder.path(), &ImportOptions::default()).unwrap();
        prop_assert!(listing.entries.len() <= 5 && listing.entries.len() + listing.issues.len() > 0);
        for entry in listing.entries {
            // Audio that is damaged may be read or not.
            let _ = plimsoll_audio::read_recording(&entry.audio);
        }
    }
}

/// Writes a file of two rows with a column of numbers for the speaker.
fn with_classes(folder: &Path, columns: &'static [ColumnSpec], facts: &str) {
    fs::create_dir_all(folder.join("data")).unwrap();
    let mut writer = ParquetWriter::create(&folder.join("data/a.parquet"), columns).unwrap();
    let mut cells: Vec<Cells> = columns.iter().map(|_| Cells::default()).collect();
    for (row, class) in [1.0, 0.0, -1.0].into_iter().enumerate() {
        for (column, cells) in columns.iter().zip(&mut cells) {
            match column.kind {
                CellKind::F64 => cells.push_number(class),
                _ => cells.push_bytes(Some(format!("{row}").as_bytes())),
            }
        }
    }
    writer.write_group(&cells).unwrap();
    writer.finish(&[("huggingface", facts.to_owned())]).unwrap();
}

const CLASSES: &[ColumnSpec] = &[
    ColumnSpec { path: &["audio"], kind: CellKind::Bytes },
    ColumnSpec { path: &["text"], kind: CellKind::Text },
    ColumnSpec { path: &["speaker"], kind: CellKind::F64 },
];

#[test]
fn numbers_of_classes_become_their_names() {
    let features = r#"{"audio": {"_type": "Audio"}, "speaker": {"names": ["ann", "bob"], "_type": "ClassLabel"}}"#;
    let speakers = |facts: &str, info: Option<&str>| {
        let folder = TempDir::new().unwrap();
        with_classes(folder.path(), CLASSES, facts);
        if let Some(info) = info {
            fs::write(folder.path().join("dataset_info.json"), info).unwrap();
        }
        let listing = import(folder.path(), &ImportOptions::default()).unwrap();
        assert!(listing.issues.is_empty(), "{:?}", listing.issues);
        listing.entries.into_iter().map(|entry| entry.speaker.unwrap_or_default()).collect::<Vec<_>>()
    };
    assert_eq!(speakers(&format!("{{\"info\": {{\"features\": {features}}}}}"), None), ["bob", "ann", ""]);
    assert_eq!(speakers("{}", Some(&format!("{{\"features\": {features}}}"))), ["bob", "ann", ""]);
    assert_eq!(speakers("{}", None), ["1", "0", "-1"]);
}

#[test]
fn a_column_that_cannot_be_read_is_not_called_missing() {
    const PATHS: &[ColumnSpec] = &[
        ColumnSpec { path: &["audio", "path"], kind: CellKind::Text },
        ColumnSpec { path: &["text"], kind: CellKind::Text },
    ];
    const WORDS: &[ColumnSpec] = &[
        ColumnSpec { path: &["audio"], kind: CellKind::Bytes },
        ColumnSpec { path: &["text", "en"], kind: CellKind::Text },
        ColumnSpec { path: &["text", "de"], kind: CellKind::Text },
    ];
    const NONE: &[ColumnSpec] = &[ColumnSpec { path: &["audio"], kind: CellKind::Bytes }];
    let problem = |columns| {
        let folder = TempDir::new().unwrap();
        with_classes(folder.path(), columns, "{}");
        let listing = import(folder.path(), &ImportOptions::default()).unwrap();
        assert_eq!((listing.entries.len(), listing.issues.len()), (0, 1));
        listing.issues[0].kind.to_string()
    };
    insta::assert_snapshot!([problem(PATHS), problem(WORDS), problem(NONE)].join("\n"), @r"
    its column `audio` holds only `path`, and the bytes of audio files are needed, so nothing of this file can be read
    its column `text` holds only `en`, `de`, and one text is needed, so nothing of this file can be read
    the header names no column `text`, so nothing of this file can be read
    ");
}

#[test]
fn a_row_without_bytes_may_name_a_file_by_its_whole_path() {
    const COLUMNS: &[ColumnSpec] = &[
        ColumnSpec { path: &["audio", "bytes"], kind: CellKind::Bytes },
        ColumnSpec { path: &["audio", "path"], kind: CellKind::Text },
        ColumnSpec { path: &["text"], kind: CellKind::Text },
    ];
    let folder = TempDir::new().unwrap();
    let audio = folder.path().join("a.wav");
    crate::testing::write_wav(&audio, &crate::testing::tone(300.0, 0.5, 8_000), 8_000);
    let mut writer = ParquetWriter::create(&folder.path().join("x.parquet"), COLUMNS).unwrap();
    let mut cells: Vec<Cells> = COLUMNS.iter().map(|_| Cells::default()).collect();
    for path in [audio.to_str().unwrap(), "a.wav"] {
        cells[0].push_bytes(None);
        cells[1].push_bytes(Some(path.as_bytes()));
        cells[2].push_bytes(Some(b"one"));
    }
    writer.write_group(&cells).unwrap();
    writer.finish(&[]).unwrap();
    let manifest = Manifest::read(folder.path().join("x.parquet")).unwrap();
    assert_eq!((manifest.utterances.len(), manifest.utterances.get(0).audio), (1, &*audio));
    let issue = manifest.issues[0].to_string();
    assert!(issue.ends_with("its row has no bytes, and names the file a.wav"), "{issue}");
}
