//! Tests of packing: a packed corpus has the same utterances and samples, in every format.

use plimsoll_core::Seconds;
use tempfile::TempDir;

use super::*;
use crate::testing::{corpus, tone, write_wav};
use crate::utterances::UtteranceRef;
use crate::{Manifest, Utterance};
use plimsoll_audio::{AudioSegment, read_audio_segment};

/// Makes utterances with awkward ids: whole files, and parts of a recording.
fn utterances(folder: &Path) -> Utterances {
    let mut utterances = corpus(folder, 9).0;
    for (n, utterance) in utterances.iter_mut().enumerate() {
        utterance.id = format!("{}{n}.x", ["a/b", "ü ", "..", ""][n % 4]);
        utterance.speaker = (n % 2 == 0).then(|| "ann".into());
        utterance.language = (n % 3 == 0).then(|| "mr".into());
    }
    let long = folder.join("long.wav");
    write_wav(&long, &tone(500.0, 3.0, 8_000), 8_000);
    let part = |n: usize| Utterance {
        id: format!("part{n}"),
        audio: long.clone(),
        offset: Seconds(0.5 * n as f64),
        duration: Seconds(0.45),
        ..utterances[0].clone()
    };
    (0..3).map(part).chain(utterances.clone()).collect()
}

fn samples(utterance: UtteranceRef<'_>) -> Vec<f32> {
    let segment = AudioSegment { offset: utterance.offset, duration: Some(utterance.duration) };
    read_audio_segment(utterance.audio, segment, 16_000).unwrap().samples
}

#[test]
fn a_packed_corpus_has_the_same_utterances_and_samples() {
    let folder = TempDir::new().unwrap();
    let utterances = utterances(folder.path());
    for format in PackFormat::ALL {
        let shards = folder.path().join(format.name());
        let options = PackOptions { shard_size: Bytes(30_000), ..PackOptions::new(format) };
        let packed = pack(&utterances, &shards, &options, &|_, _| {}).unwrap();
        assert_eq!((packed.utterances, packed.issues.len()), (12, 0));
        assert!(packed.shards.len() > 2 && packed.shards.iter().all(|shard| shard.is_file()), "{packed:?}");
        let read = Manifest::read(&shards).unwrap();
        assert!(read.issues.is_empty(), "{:?}", read.issues);
        assert_eq!(read.utterances.len(), 12);
        let order: Vec<usize> = match format {
            PackFormat::Kaldi => kaldi::order(&utterances),
            _ => (0..utterances.len()).collect(),
        };
        assert_eq!(order.is_sorted(), format != PackFormat::Kaldi);
        for (old, new) in utterances.part(order.iter().copied()).iter().zip(&read.utterances) {
            let about = |u: UtteranceRef<'_>| {
                (u.id.to_owned(), u.text.to_owned(), u.speaker.map(str::to_owned), u.language.map(str::to_owned))
            };
            assert_eq!(about(old), about(new));
            assert!(
                (old.duration.0 - new.duration.0).abs() < 1e-9 && samples(old) == samples(new),
                "{format:?} {}",
                old.id
            );
        }
        let again = folder.path().join("again");
        let same = pack(&utterances, &again, &options, &|_, _| {}).unwrap();
        for (one, other) in packed.shards.iter().zip(&same.shards) {
            assert!(fs::read(one).unwrap() == fs::read(other).unwrap());
        }
        // Shards of shards: audio is copied from the middle of a container.
        let twice = pack(&read.utterances, folder.path().join("twice"), &options, &|_, _| {}).unwrap();
        assert_eq!(twice.shards.len(), packed.shards.len());
        let twice = Manifest::read(folder.path().join("twice")).unwrap();
        let same = |(new, old): (UtteranceRef<'_>, UtteranceRef<'_>)| new.id == old.id && samples(new) == samples(old);
        assert!(twice.utterances.iter().zip(&read.utterances).all(same));
        fs::remove_dir_all(again).unwrap();
        fs::remove_dir_all(folder.path().join("twice")).unwrap();
    }
}

#[test]
fn the_picture_of_a_video_is_not_packed() {
    let folder = TempDir::new().unwrap();
    let sound = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/data/audio/sweep.mp4");
    let mut video = fs::read(&sound).unwrap();
    // A box that readers skip stands for the picture.
    video.extend((4_000_000u32 + 8).to_be_bytes());
    video.extend(b"free");
    video.extend(vec![7; 4_000_000]);
    let path = folder.path().join("video.mp4");
    fs::write(&path, &video).unwrap();
    let duration = plimsoll_audio::audio_info(&path).unwrap().duration;
    let one = |audio: &Path| {
        Utterances::from(vec![Utterance { audio: audio.into(), duration, ..corpus(folder.path(), 1).0.remove(0) }])
    };
    for (audio, name, most) in [(&path, "video", 200_000), (&sound, "sound", 20_000)] {
        let shards = folder.path().join(name);
        let utterances = one(audio);
        pack(&utterances, &shards, &PackOptions::new(PackFormat::WebDataset), &|_, _| {}).unwrap();
        let sizes = fs::read_dir(&shards).unwrap().map(|file| file.unwrap().metadata().unwrap().len());
        let size: u64 = sizes.sum();
        assert!(size < most, "{name}: {size} bytes");
        let read = Manifest::read(&shards).unwrap();
        assert!(samples(read.utterances.get(0)) == samples(utterances.get(0)), "{name}");
    }
}

#[test]
fn unreadable_utterances_are_left_out_and_named() {
    let folder = TempDir::new().unwrap();
    let utterances = Utterances::from(corpus(folder.path(), 3).0);
    fs::write(utterances.get(1).audio, "not a sound").unwrap();
    let options = PackOptions::new(PackFormat::WebDataset);
    let packed = pack(&utterances, folder.path().join("a"), &options, &|_, _| {}).unwrap();
    assert_eq!((packed.utterances, packed.issues.len()), (2, 1));
    assert!(packed.issues[0].to_string().starts_with("`1`: "), "{}", packed.issues[0]);
    let full = pack(&utterances, folder.path(), &options, &|_, _| {});
    assert!(matches!(full, Err(PackError::NotEmpty(_))));
    let nothing = pack(&utterances.part([1]), folder.path().join("b"), &options, &|_, _| {});
    assert!(matches!(nothing, Err(PackError::NothingPacked { count: 1, .. })));
    let names: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|file| file.unwrap().file_name()).collect();
    assert_eq!(names.len(), 4, "{names:?}");
}
