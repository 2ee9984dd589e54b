//! Tests of parts of containers: they are read like the files that they were made from.

use proptest::prelude::*;
use tempfile::TempDir;

use super::*;
use crate::testing::{tone, write_wav};
use crate::{AudioError, AudioSegment, audio_info, read_audio_segment, read_recording};
use plimsoll_core::{Seconds, error_chain};

/// Writes a container of `files` with something else around each, and returns the parts of the files.
fn container(path: &Path, files: &[Vec<u8>]) -> Vec<(u64, u64)> {
    let (mut bytes, mut parts) = (b"container".to_vec(), Vec::new());
    for file in files {
        parts.push((bytes.len() as u64, file.len() as u64));
        bytes.extend(file);
        bytes.extend(b"RIFFfLaCOggS");
    }
    fs::write(path, bytes).unwrap();
    parts
}

#[test]
fn a_part_is_read_like_a_file() {
    let folder = TempDir::new().unwrap();
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/data/audio");
    let wav = folder.path().join("x.wav");
    write_wav(&wav, &tone(300.0, 1.0, 8_000), 8_000);
    let audio =
        |file: &fs::DirEntry| ["flac", "mp3", "ogg"].iter().any(|e| file.path().extension() == Some(e.as_ref()));
    let compressed = fs::read_dir(fixtures).unwrap().map(Result::unwrap).filter(audio).map(|file| file.path());
    let files: Vec<PathBuf> = compressed.filter(|file| read_recording(file).is_ok()).chain([wav]).collect();
    assert!(files.len() >= 4, "{files:?}");
    let contents: Vec<Vec<u8>> = files.iter().map(|file| fs::read(file).unwrap()).collect();
    let shard = folder.path().join("shard.tar");
    let segment = AudioSegment { offset: Seconds(0.2), duration: Some(Seconds(0.5)) };
    for ((offset, length), file) in container(&shard, &contents).into_iter().zip(&files) {
        let part = AudioSource::from_bytes_of(&shard, offset, length).to_path();
        assert_eq!(audio_info(&part).unwrap(), audio_info(file).unwrap(), "{file:?}");
        assert_eq!(read_recording(&part).unwrap(), read_recording(file).unwrap(), "{file:?}");
        let read = |path: &Path| read_audio_segment(path, segment, 8_000).unwrap();
        assert_eq!(read(&part), read(file), "{file:?}");
        let mut bytes = Vec::new();
        AudioSource::from_path(&part).open().unwrap().read_to_end(&mut bytes).unwrap();
        assert_eq!(bytes, fs::read(file).unwrap());
    }
    // Without a length, a WAV file ends where its header says.
    let (offset, length) = container(&shard, &contents).pop().unwrap();
    let open = AudioSource::from_path(format!("{}:{offset}", shard.display())).open().unwrap();
    assert_eq!(open.byte_len(), length);
}

#[test]
fn a_file_called_like_a_part_is_a_file() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("take:2");
    write_wav(&path, &tone(300.0, 1.0, 8_000), 8_000);
    write_wav(&folder.path().join("take"), &tone(300.0, 0.5, 8_000), 8_000);
    assert_eq!(read_recording(&path).unwrap().duration(), Seconds(1.0));
    assert_eq!(AudioSource::from_path(&path), AudioSource { file: path, part: None, channel: None });
    for name in ["a.wav", "a:b.wav", "a:", ":1", "a:1+", "a:+1", "a:-1", "a:1+2+3", "a:99999999999999999999", "a:1/b"] {
        assert_eq!(AudioSource::from_path(name), AudioSource { file: name.into(), part: None, channel: None });
    }
}

#[test]
fn a_part_beyond_its_container_is_an_error() {
    let folder = TempDir::new().unwrap();
    let shard = folder.path().join("shard.tar");
    fs::write(&shard, [7; 100]).unwrap();
    for part in ["50+51", "101+0", "100", "18446744073709551615+18446744073709551615"] {
        let path = format!("{}:{part}", shard.display());
        let error = read_recording(&path).unwrap_err();
        assert!(error_chain(&error).contains("it ends at byte 100"), "{error:?}");
        assert!(AudioSource::from_path(&path).metadata().is_err());
    }
    let found = read_recording(format!("{}:50+50", shard.display()));
    assert!(matches!(found, Err(AudioError::NotAudio(_))), "{found:?}");
    let gone = read_recording(folder.path().join("gone.tar:5+6"));
    assert!(matches!(gone, Err(AudioError::NotFound(_))), "{gone:?}");
}

proptest! {
    #[test]
    fn any_path_is_read_and_written(name in "[a-z:+0-9/]{1,20}", offset in any::<u64>(), length in any::<Option<u64>>()) {
        let source = AudioSource { file: "a/b.ark".into(), part: Some(AudioPart::Bytes { offset, length }), channel: None };
        prop_assert_eq!(AudioSource::from_path(source.to_path()), source);
        prop_assert_eq!(AudioSource::from_path(&name).to_path(), Path::new(&name));
    }

    #[test]
    fn positions_follow_the_rules_of_files(
        moves in prop::collection::vec((0usize..3, -80i64..80, 0usize..50), 1..20), start in 0u64..40,
    ) {
        let folder = TempDir::new().unwrap();
        let (shard, alone) = (folder.path().join("shard"), folder.path().join("alone"));
        let bytes: Vec<u8> = (0..100).collect();
        fs::write(&shard, &bytes).unwrap();
        fs::write(&alone, &bytes[start as usize..start as usize + 50]).unwrap();
        let mut part = AudioSource::from_bytes_of(&shard, start, 50).open().unwrap();
        let mut whole = AudioSource::from_path(&alone).open().unwrap();
        for (kind, by, count) in moves {
            let to = [SeekFrom::Start(by.unsigned_abs()), SeekFrom::Current(by), SeekFrom::End(by)][kind];
            prop_assert_eq!(part.seek(to).ok(), whole.seek(to).ok());
            let mut read = [vec![0; count], vec![0; count]];
            let counts = (part.read(&mut read[0]).unwrap(), whole.read(&mut read[1]).unwrap());
            prop_assert_eq!(counts.0, counts.1);
            prop_assert_eq!(&read[0], &read[1]);
        }
    }
}

#[test]
fn channels_are_part_of_a_path() {
    let folder = TempDir::new().unwrap();
    let wav = folder.path().join("a.wav");
    write_wav(&wav, &tone(300.0, 0.1, 8_000), 8_000);
    for (end, part, channel) in [
        (":ch0", None, Some(0)),
        (":3+4:ch12", Some(AudioPart::Bytes { offset: 3, length: Some(4) }), Some(12)),
        (":3:ch1", Some(AudioPart::Bytes { offset: 3, length: None }), Some(1)),
    ] {
        let path = PathBuf::from(format!("{}{end}", wav.display()));
        let source = AudioSource::from_path(&path);
        assert_eq!(source, AudioSource { file: wav.clone(), part, channel });
        assert_eq!(source.to_path(), path);
        assert_eq!(AudioSource::named_channel(&path), channel);
    }
    for name in ["a.wav:ch", "a.wav:ch01", "a.wav:ch-1", "a.wav:ch70000", ":ch1", "a:ch1/b"] {
        let path = folder.path().join(name);
        assert_eq!(AudioSource::from_path(&path), AudioSource { file: path, part: None, channel: None });
    }
    // A file with such a name.
    let named = folder.path().join("b.wav:ch1");
    fs::copy(&wav, &named).unwrap();
    assert_eq!(AudioSource::from_path(&named).channel, None);
    assert_eq!(read_recording(&named).unwrap(), read_recording(&wav).unwrap());
}
