//! Tests that containers with damage of any kind are read without a panic, and that the sound utterances before it stay.

use std::fs;
use std::path::{Path, PathBuf};

use plimsoll_core::Key;
use tempfile::TempDir;

use crate::manifest::Manifest;
use plimsoll_audio::{AudioSegment, read_audio_segment};

/// Corpora in containers that other programs wrote.
const CORPORA: [&str; 7] =
    ["webdataset", "shar-wav", "shar-flac", "kaldi", "kaldi-features", "parquet", "arrow-unusual"];

fn files(corpus: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/data/containers").join(corpus);
    let mut files: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()).collect();
    files.sort();
    files.into_iter().map(|file| (file.file_name().unwrap().into(), fs::read(&file).unwrap())).collect()
}

/// Changes the bytes of a file: cuts it short, flips bits, puts bytes before it, or removes or repeats a piece.
fn damage(bytes: &mut Vec<u8>, key: Key) {
    let below = |name: &str, bound: usize| key.with(name).below(bound.max(1) as u64) as usize;
    let place = below("place", bytes.len());
    let end = (place + 1 + below("length", 700)).min(bytes.len());
    match below("kind", 6) {
        0 => bytes.truncate(place),
        1 => (0..1 + below("flips", 40) as u64).for_each(|flip| {
            let bit = key.with("flip").at(flip).below(8 * bytes.len().max(1) as u64) as usize;
            if let Some(byte) = bytes.get_mut(bit / 8) {
                *byte ^= 1 << (bit % 8);
            }
        }),
        2 => {
            let before = (0..1 + below("before", 600) as u64).map(|n| key.with("byte").at(n).bits() as u8);
            *bytes = before.chain(bytes.iter().copied()).collect();
        }
        3 => drop(bytes.drain(place.min(end)..end)),
        4 => {
            let piece = bytes[place.min(end)..end].to_vec();
            bytes.splice(place..place, piece);
        }
        // Large numbers in headers.
        _ => bytes[place.min(end)..end].iter_mut().for_each(|byte| *byte = [0xff, b'7', 0x80, 0][below("fill", 4)]),
    }
}

/// Reads damaged corpora and all of their audio that is found.
fn read_damaged(cases: u64) {
    for corpus in CORPORA {
        let files = files(corpus);
        for case in 0..cases {
            let (folder, key) = (TempDir::new().unwrap(), Key::new(case).with(corpus));
            let damaged = key.below(files.len() as u64) as usize;
            for (index, (name, bytes)) in files.iter().enumerate() {
                let mut bytes = bytes.clone();
                if index == damaged {
                    damage(&mut bytes, key);
                }
                fs::write(folder.path().join(name), bytes).unwrap();
            }
            let Ok(manifest) = Manifest::read(folder.path()) else { continue };
            assert!(manifest.utterances.len() < 1000 && manifest.issues.len() < 100_000, "{corpus}, case {case}");
            for utterance in &manifest.utterances {
                let segment = AudioSegment { offset: utterance.offset, duration: Some(utterance.duration) };
                let _ = read_audio_segment(utterance.audio, segment, 8_000);
            }
        }
    }
}

#[test]
fn damaged_containers_end_no_import() {
    read_damaged(40);
}

#[test]
fn long_damaged_containers_end_no_import() {
    read_damaged(2_000);
}
