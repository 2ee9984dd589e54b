//! Tests of movies with uncompressed sound, which ffmpeg wrote (`fixtures/movies.sh`): the samples are those of the same sound in
//! WAV.

use std::fs;
use std::path::{Path, PathBuf};

use plimsoll_core::Seconds;
use proptest::prelude::*;
use tempfile::TempDir;

use crate::{
    AudioError, AudioKind, AudioSegment, AudioSource, AudioStream, audio_info, read_audio_segment, read_recording,
};

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/data/movies").join(name)
}

/// Returns the largest difference of two sounds of equal length.
fn difference(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
}

fn samples(path: &Path) -> Vec<f32> {
    read_recording(path).unwrap().samples
}

#[test]
fn every_form_has_the_samples_of_wav() {
    let expected = samples(&file("tones.wav"));
    for (form, bits) in [
        ("s8", 7),
        ("u8", 7),
        ("s16le", 15),
        ("s16be", 15),
        ("s24le", 23),
        ("s24be", 23),
        ("s32le", 23),
        ("s32be", 23),
        ("f32le", 23),
        ("f32be", 23),
        ("f64le", 23),
        ("f64be", 23),
        ("alaw", 4),
        ("mulaw", 4),
    ] {
        let path = file(&format!("{form}.mov"));
        let info = audio_info(&path).unwrap();
        assert_eq!((info.kind, info.rate, info.channels), (AudioKind::MoviePcm, 8_000, 2), "{form}");
        assert_eq!(info.duration, Seconds(0.1), "{form}");
        let found = samples(&path);
        let most = difference(&found, &expected);
        assert!(most < 1.01 * 2f32.powi(-bits), "{form}: {most}");
        let segment = AudioSegment { offset: Seconds(0.025), duration: Some(Seconds(0.05)) };
        assert_eq!(read_audio_segment(&path, segment, 8_000).unwrap().samples, found[200..600], "{form}");
        let (mut stream, mut streamed) = (AudioStream::open(&path, 8_000).unwrap(), Vec::new());
        while stream.read(&mut streamed).unwrap() {}
        assert_eq!(streamed, found, "{form}");
        let channels = [0, 1].map(|channel| {
            let [found, expected] =
                [&path, &file("tones.wav")].map(|path| samples(&AudioSource::path_of_channel(path, channel)));
            difference(&found, &expected)
        });
        assert!(channels.iter().all(|most| *most < 1.01 * 2f32.powi(-bits)), "{form}: {channels:?}");
    }
    assert_eq!(samples(&file("wide.mov")), samples(&file("wide.wav")));
}

#[test]
fn sound_between_pictures_is_joined_and_edits_are_kept() {
    let expected = samples(&file("s16le.mov"));
    for name in ["film.mov", "front.mov"] {
        assert_eq!(samples(&file(name)), expected, "{name}");
    }
    assert_eq!(samples(&file("edited.mov")), expected[400..]);
    let error = read_recording(file("parts.mov")).unwrap_err();
    assert!(matches!(error, AudioError::Codec { .. }), "{error}");
    assert!(
        error.to_string().contains("uncompressed sound of the form `sowt` in a movie whose index lies in parts"),
        "{error}"
    );
}

#[test]
fn a_movie_inside_of_a_container_is_read_and_one_that_is_cut_is_not() {
    let folder = TempDir::new().unwrap();
    let bytes = fs::read(file("front.mov")).unwrap();
    let container = folder.path().join("shard.tar");
    fs::write(&container, [b"before", &*bytes, b"behind"].concat()).unwrap();
    let part = AudioSource::from_bytes_of(&container, 6, bytes.len() as u64).to_path();
    assert_eq!(samples(&part), samples(&file("s16le.mov")));
    let cut = folder.path().join("cut.mov");
    fs::write(&cut, &bytes[..bytes.len() - 900]).unwrap();
    let error = read_recording(&cut).unwrap_err();
    assert!(matches!(error, AudioError::Truncated { .. } | AudioError::Damaged { .. }), "{error}");
}

proptest! {
    #[test]
    fn damaged_movies_never_panic(
        name in prop::sample::select(vec!["s24le.mov", "wide.mov", "film.mov", "edited.mov"]),
        changes in prop::collection::vec((0usize..1500, any::<u8>()), 1..6),
    ) {
        let mut bytes = fs::read(file(name)).unwrap();
        let index = bytes.windows(4).position(|window| window == b"moov").unwrap();
        for (place, byte) in changes {
            let place = (index + place) % bytes.len();
            bytes[place] = byte;
        }
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("x.mov");
        fs::write(&path, bytes).unwrap();
        let _ = audio_info(&path);
        let _ = read_recording(&path);
    }
}
