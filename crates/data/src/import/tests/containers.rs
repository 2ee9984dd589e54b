//! Tests of shards and archives: what their own libraries wrote is read with the same utterances and samples (made by
//! `fixtures/containers.py`), and damage costs only what it hits.

use std::path::PathBuf;

use plimsoll_audio::read_recording;
use proptest::prelude::*;
use serde_json::Value;

use super::*;
use crate::{IssueKind, Manifest};

pub(super) fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/data/containers")
}

fn read(name: &str) -> Manifest {
    let options = ImportOptions { audio_root: Some(folder().join(name)), ..ImportOptions::default() };
    let kaldi = ImportOptions { audio_root: Some(folder()), ..ImportOptions::default() };
    Manifest::read_with(folder().join(name), if name.starts_with("kaldi") { &kaldi } else { &options }).unwrap()
}

/// Compares a manifest with all utterances that the libraries wrote.
pub(super) fn check_against_expected(name: &str, manifest: &Manifest) {
    assert!(manifest.issues.is_empty(), "{name}: {:?}", manifest.issues);
    let expected = fs::read_to_string(folder().join("expected.json")).unwrap();
    let expected: Value = serde_json::from_str(&expected).unwrap();
    let expected = expected["utterances"].as_array().unwrap();
    assert_eq!(manifest.utterances.len(), expected.len(), "{name}");
    for utterance in &manifest.utterances {
        let id = utterance.id.rsplit('/').next().unwrap();
        let known = expected.iter().find(|known| known["id"] == id).unwrap_or_else(|| panic!("{name}: {id}"));
        assert_eq!(known["text"], *utterance.text, "{name}");
        if name != "text.tar" {
            assert_eq!(known["speaker"].as_str(), utterance.speaker, "{name}");
        }
        let audio = read_recording(utterance.audio).unwrap();
        let samples: Vec<i64> = audio.samples.iter().map(|sample| (sample * 32_768.0) as i64).collect();
        let known: Vec<i64> = known["samples"].as_array().unwrap().iter().map(|s| s.as_i64().unwrap()).collect();
        assert!(samples == known && audio.rate == 8_000, "{name}: {id}");
        assert!((audio.duration().0 - utterance.duration.0).abs() < 1e-9, "{name}: {id}");
    }
}

#[test]
fn every_container_has_the_utterances_and_samples_of_its_library() {
    let options =
        ImportOptions { audio_root: Some("../../fixtures/data/containers".into()), ..ImportOptions::default() };
    check_against_expected("kaldi", &Manifest::read_with(folder().join("kaldi"), &options).unwrap());
    for name in ["webdataset", "text.tar", "webdataset/train-{000..001}.tar", "shar-flac", "shar-wav", "kaldi"] {
        check_against_expected(name, &read(name));
    }
}

#[test]
fn a_written_list_of_a_container_is_read_again() {
    let (manifest, folder) = (read("webdataset"), TempDir::new().unwrap());
    let log_mel = plimsoll_audio::LogMel::new(&plimsoll_audio::LogMelConfig::default()).unwrap();
    let file = folder.path().join("manifest.jsonl");
    Manifest::write(&file, &manifest.utterances, &log_mel).unwrap();
    let again = Manifest::read(&file).unwrap();
    check_against_expected("manifest", &again);
    let ids = |manifest: &Manifest| manifest.utterances.iter().map(|u| u.id.to_owned()).collect::<Vec<_>>();
    assert_eq!(ids(&again), ids(&manifest));
}

#[test]
fn features_of_kaldi_are_refused_by_name() {
    let options = ImportOptions { audio_root: Some(folder()), ..ImportOptions::default() };
    let listing = import(folder().join("kaldi-features"), &options).unwrap();
    assert!(listing.entries.is_empty());
    let issue = listing.issues[0].to_string();
    assert!(issue.ends_with("feats.ark has a matrix, as of features at byte 6, and audio is needed"), "{issue}");
}

#[test]
fn compressed_shards_are_issues_without_a_folder_to_unpack_into() {
    let bytes = fs::read(folder().join("text.tar")).unwrap();
    let folder = write(&[("a.tar", &compressed(&bytes)), ("b.tar", &bytes)]);
    let manifest = Manifest::read(folder.path()).unwrap();
    assert_eq!((manifest.utterances.len(), manifest.issues.len()), (5, 1));
    assert!(manifest.issues[0].to_string().contains("a.tar: damaged at byte 0"), "{}", manifest.issues[0]);
    assert!(manifest.issues[0].to_string().contains("unpack it with gunzip"), "{}", manifest.issues[0]);
}

#[test]
fn equal_keys_of_several_shards_are_different_utterances() {
    let bytes = fs::read(folder().join("text.tar")).unwrap();
    let folder = write(&[("x/a.tar", &bytes), ("x/b.tar", &bytes)]);
    let manifest = Manifest::read(folder.path()).unwrap();
    assert_eq!((manifest.utterances.len(), manifest.issues.len()), (10, 0));
    assert_eq!((manifest.utterances.get(0).id, manifest.utterances.get(9).id), ("x/a/utt-0", "x/b/utt-4"));
}

#[test]
fn a_shard_that_ends_too_early_gives_what_it_has() {
    let bytes = fs::read(folder().join("text.tar")).unwrap();
    // The text of a sample follows its audio.
    let ends: Vec<usize> = (0..=bytes.len()).step_by(256).collect();
    let mut counts = Vec::new();
    for end in ends {
        let folder = write(&[("a.tar", &bytes[..end])]);
        let listing = import(folder.path(), &ImportOptions::default()).unwrap();
        let is_whole = listing.issues.is_empty();
        assert!(is_whole == (listing.entries.len() == 5 && end > 14_000 && listing.issues.is_empty()), "{end}");
        let damage = listing.issues.iter().filter(|issue| matches!(issue.kind, IssueKind::DamagedShard { .. }));
        assert_eq!(damage.count(), usize::from(!is_whole), "{end}: {:?}", listing.issues);
        counts.push(listing.entries.len());
    }
    assert!(counts.is_sorted() && counts.contains(&3) && counts.ends_with(&[5]), "{counts:?}");
}

/// Of a corpus of two equal shards, half is lost with one of them, not one utterance of six.
#[test]
fn a_damaged_shard_counts_for_the_utterances_that_are_lost_with_it() {
    let bytes = fs::read(folder().join("text.tar")).unwrap();
    for end in (0..bytes.len()).step_by(512) {
        let folder = write(&[("a.tar", &bytes[..end]), ("b.tar", &bytes)]);
        let manifest = Manifest::read(folder.path()).unwrap();
        if manifest.issues.is_empty() {
            assert_eq!(manifest.utterances.len(), 10, "{end}");
            continue;
        }
        let lost = (10 - manifest.utterances.len()).max(1);
        assert_eq!(manifest.flawed(), lost, "{end}: {:?}", manifest.issues);
        let listed = (manifest.utterances.len() + lost) as f64;
        assert_eq!(manifest.unusable_share(), lost as f64 / listed, "{end}");
        // Alone, it is as dense behind the damage as before it.
        let alone = Manifest::read(write(&[("a.tar", &bytes[..end])]).path().join("a.tar"));
        assert!(alone.is_err() || alone.is_ok_and(|alone| alone.unusable_share() > 0.0), "{end}");
    }
    // A shard whose first half is whole and whose second half is not.
    let mut damaged = bytes.clone();
    damaged[bytes.len() / 2..].fill(0xAA);
    let alone = Manifest::read(write(&[("a.tar", &damaged)]).path().join("a.tar")).unwrap();
    let (found, lost) = (alone.utterances.len(), alone.flawed());
    assert!(found > 0 && (found..=2 * found + 2).contains(&lost), "{found} {lost}");
}

#[test]
fn a_stray_sound_hides_no_shards() {
    let bytes = fs::read(folder().join("text.tar")).unwrap();
    let folder = write(&[("a.tar", &bytes), ("stray.wav", b"x")]);
    assert_eq!(Manifest::read(folder.path()).unwrap().utterances.len(), 5);
    let folder = write(&[("a.tar", &bytes), ("stray.wav", b"x"), ("notes.txt", b"x")]);
    assert_eq!(Manifest::read(folder.path()).unwrap().utterances.len(), 5);
    // A shard that cannot be read counts as what it would have had.
    let folder = write(&[("a.tar", &bytes), ("b.tar.xz", b"x")]);
    let manifest = Manifest::read(folder.path()).unwrap();
    assert_eq!((manifest.utterances.len(), manifest.unusable_share()), (5, 0.5));
    assert!(manifest.issues[0].to_string().contains("its compression is not read"), "{}", manifest.issues[0]);
    // A sound with its text is a corpus of its own, as one that was unpacked beside its shard.
    let folder = write(&[("a.tar", &bytes), ("known.wav", b"x"), ("known.txt", b"one")]);
    assert_eq!(Format::detect(folder.path()), Some(Format::Folder));
}

#[test]
fn what_is_no_tar_file_is_called_so() {
    for (bytes, expected) in [(&b""[..], "the file is empty"), (b"hello", "no tar file: it is smaller than a header")] {
        for name in ["a.tar", "a.tgz"] {
            let folder = write(&[(name, bytes)]);
            let issue = import(folder.path(), &ImportOptions::default()).unwrap().issues.remove(0).to_string();
            assert!(issue.ends_with(expected), "{issue}");
        }
    }
}

#[test]
fn missing_shards_of_a_pattern_are_issues() {
    let bytes = fs::read(folder().join("text.tar")).unwrap();
    let folder = write(&[("a-1.tar", &bytes)]);
    let manifest = Manifest::read(folder.path().join("a-{0..1}.tar")).unwrap();
    assert_eq!(manifest.utterances.len(), 5);
    let [issue] = &*manifest.issues else { panic!("{:?}", manifest.issues) };
    assert!(issue.location.as_ref().unwrap().file.ends_with("a-0.tar"), "{issue}");
    assert_eq!((manifest.flawed(), manifest.unusable_share()), (5, 0.5), "{issue}");
}

#[test]
fn samples_with_several_recordings_are_several_utterances() {
    let entries: &[(&str, &[u8])] = &[
        ("d/a.1.wav", b"x"),
        ("d/a.1.txt", b"one"),
        ("d/a.2.wav", b"x"),
        ("d/a.2.json", br#"{"text": "two", "speaker": 7, "lang": "de"}"#),
        ("d/b.mp3", b"x"),
        ("d/b.cls", b"3"),
        ("d/c.txt", b"no audio"),
        ("d/.hidden", b"x"),
        ("noext", b"x"),
        ("e.flac", b"x"),
        ("e.json", b"[]"),
        ("f.flac", b"x"),
        ("f.txt", b"\xff"),
    ];
    insta::assert_snapshot!(seen(&[("s.tar", &tar_of(entries))], &ImportOptions::default()), @r"
    webdataset
    d/a.1: s.tar:512+1 0s..end [- -] one (s.tar)
    d/a.2: s.tar:2560+1 0s..end [7 de] two (s.tar)
    d/b: s.tar:4608+1 0s..end [- -] 3 (s.tar)
    ! s.tar: `d/c`: it has no audio: no audio file of the same name is in its shard
    ! s.tar: `e`: a JSON object was expected: a list was found
    ! s.tar: `f`: not UTF-8, from byte 1 on
    ");
}

/// Makes a tar file.
fn tar_of(entries: &[(&str, &[u8])]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for (name, content) in entries {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        builder.append_data(&mut header, name, *content).unwrap();
    }
    builder.into_inner().unwrap()
}

#[test]
fn long_names_and_other_members_are_read_like_tar_does() {
    let mut builder = tar::Builder::new(Vec::new());
    let long = format!("{}/{}", "b".repeat(90), "ü".repeat(100));
    let mut folder = tar::Header::new_gnu();
    folder.set_entry_type(tar::EntryType::Directory);
    folder.set_size(0);
    builder.append_data(&mut folder, "d/", &b""[..]).unwrap();
    let mut link = tar::Header::new_gnu();
    link.set_entry_type(tar::EntryType::Symlink);
    link.set_size(0);
    builder.append_link(&mut link, "x.wav", "y".repeat(200)).unwrap();
    builder.append_pax_extensions([("path", "p.wav".as_bytes()), ("other", b"1\n2")]).unwrap();
    for name in ["ignored", &format!("{long}.wav"), &format!("{long}.txt")] {
        let mut header = tar::Header::new_gnu();
        header.set_size(3);
        header.set_mode(0o644);
        header.set_cksum();
        builder.append_data(&mut header, name, &b"abc"[..]).unwrap();
    }
    let folder = write(&[("a.tar", &builder.into_inner().unwrap())]);
    let members: Vec<_> = tar_members::TarMembers::open(&folder.path().join("a.tar")).unwrap().collect();
    let names: Vec<&str> = members.iter().map(|member| &*member.as_ref().unwrap().name).collect();
    assert_eq!(names[1..], [format!("{long}.wav"), format!("{long}.txt")]);
    assert_eq!(names[0], "p.wav");
}

proptest! {
    #[test]
    fn damaged_containers_never_panic(
        name in prop::sample::select(vec![
            "webdataset/train-000.tar", "shar-flac/recording.000000.tar", "kaldi/wav.ark", "kaldi/wav.scp",
            "parquet-splits/data/train-00000-of-00002.parquet",
        ]),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        end in any::<prop::sample::Index>(), is_cut in any::<bool>(),
    ) {
        let copy = TempDir::new().unwrap();
        let corpus = Path::new(name).parent().unwrap();
        fs::create_dir_all(copy.path().join(corpus)).unwrap();
        for file in fs::read_dir(folder().join(corpus)).unwrap().map(|file| file.unwrap().path()) {
            fs::copy(&file, copy.path().join(corpus).join(file.file_name().unwrap())).unwrap();
        }
        let mut bytes = fs::read(folder().join(name)).unwrap();
        for (place, byte) in changes {
            // Headers rather than audio.
            let place = if is_cut { place.index(bytes.len()) } else { place.index(bytes.len().min(1600)) };
            bytes[place] = byte;
        }
        if is_cut {
            bytes.truncate(end.index(bytes.len()));
        }
        fs::write(copy.path().join(name), bytes).unwrap();
        let options = ImportOptions { audio_root: Some(copy.path().into()), ..ImportOptions::default() };
        let shards = ImportOptions { audio_root: None, ..options.clone() };
        let is_kaldi = name.starts_with("kaldi");
        let Ok(listing) = import(copy.path().join(corpus), if is_kaldi { &options } else { &shards }) else { return Ok(()) };
        for entry in listing.entries {
            // Audio that is damaged may be read or not.
            let _ = read_recording(&entry.audio);
        }
    }

    #[test]
    fn garbage_is_no_shard(bytes in prop::collection::vec(any::<u8>(), 0..3000)) {
        let folder = write(&[("a.tar", &bytes)]);
        let listing = import(folder.path(), &ImportOptions::default()).unwrap();
        prop_assert_eq!((listing.entries.len(), listing.issues.len()), (0, 1));
    }
}
