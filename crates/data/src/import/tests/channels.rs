//! Tests of utterances that are one channel of a file: as lists name it, and all the way to the samples.

use std::path::PathBuf;

use hound::{SampleFormat, WavSpec, WavWriter};
use plimsoll_audio::{AudioSegment, AudioSource, LogMel, LogMelConfig, read_audio_segment};
use plimsoll_core::Bytes;

use super::*;
use crate::pack::{PackFormat, PackOptions, pack};
use crate::store::{Store, StoreConfig};
use crate::testing::{tone, write_wav};
use crate::utterances::{UtteranceRef, Utterances, index_list};
use crate::{CheckDepth, CheckOptions, CorpusFingerprint, Manifest, check};

const RATE: u32 = 8_000;

fn channels() -> [Vec<f32>; 2] {
    [tone(300.0, 2.0, RATE), tone(440.0, 2.0, RATE)]
}

/// Makes a folder with `call.wav` of two channels, and `left.wav` and `right.wav` of one.
fn corpus(files: Files<'_>) -> TempDir {
    let folder = write(files);
    let [left, right] = channels();
    let spec = WavSpec { channels: 2, sample_rate: RATE, bits_per_sample: 16, sample_format: SampleFormat::Int };
    let mut writer = WavWriter::create(folder.path().join("call.wav"), spec).unwrap();
    for sample in left.iter().zip(&right).flat_map(|(left, right)| [left, right]) {
        writer.write_sample((sample * 32_767.0) as i16).unwrap();
    }
    writer.finalize().unwrap();
    write_wav(&folder.path().join("left.wav"), &left, RATE);
    write_wav(&folder.path().join("right.wav"), &right, RATE);
    folder
}

fn samples(utterance: UtteranceRef<'_>) -> Vec<f32> {
    let segment = AudioSegment { offset: utterance.offset, duration: Some(utterance.duration) };
    read_audio_segment(utterance.audio, segment, RATE).unwrap().samples
}

/// Checks that each utterance has the samples of the file that its text names.
fn check_samples(folder: &Path, utterances: &Utterances) {
    for utterance in utterances {
        let file = folder.join(format!("{}.wav", utterance.text));
        let expected = samples(UtteranceRef { audio: &file, ..utterance });
        assert_eq!(samples(utterance), expected, "{utterance:?}");
    }
}

/// Reads a corpus with the utterances `left`, `right` and `call`, and returns its issues.
fn check_corpus(files: Files<'_>, count: usize) -> Vec<String> {
    let folder = corpus(files);
    let manifest = Manifest::read(folder.path()).unwrap();
    assert_eq!(manifest.utterances.len(), count, "{:?}", manifest.issues);
    check_samples(folder.path(), &manifest.utterances);
    manifest.issues.iter().map(ToString::to_string).collect()
}

#[test]
fn lists_of_lhotse_name_channels() {
    let recording = |channels: &str| {
        format!(
            r#""recording": {{"sampling_rate": 8000, "sources": [{{"type": "file", "channels": {channels}, "source": "call.wav"}}]}}"#
        )
    };
    let cut = |id: &str, kind: &str, channel: &str, said: &str, channels: &str| {
        format!(
            r#"{{"id": "{id}", "type": "{kind}", "start": 0.5, "duration": 1.0, "channel": {channel}, "supervisions": [{said}], {}}}"#,
            recording(channels)
        )
    };
    let said = |text: &str, channel: &str| {
        format!(r#"{{"id": "{text}", "start": 0, "duration": 0.5, "text": "{text}"{channel}}}"#)
    };
    let in_channel = |channel: &str| format!(r#", "channel": {channel}"#);
    let both = [said("left", &in_channel("0")), said("right", &in_channel("[1]")), said("call", &in_channel("[0, 1]"))];
    let lines = [
        cut("a", "MonoCut", "0", &said("left", ""), "[0, 1]"),
        cut("b", "MonoCut", "1", &said("right", &in_channel("1")), "[0, 1]"),
        cut("c", "MultiCut", "[0, 1]", &said("call", ""), "[0, 1]"),
        cut("d", "MultiCut", "[0, 1]", &both.join(", "), "[0, 1]")
            .replace("0.5, \"duration\": 1.0", "0.0, \"duration\": 1.0"),
        // Numbers of a recording of several files.
        cut("e", "MonoCut", "5", &said("right", "").replace("0.5", "0.25"), "[4, 5]"),
        cut("f", "MonoCut", "0", &said("left", &in_channel("1")), "[0, 1]"),
        cut("g", "MultiCut", "[0, 1]", &said("left", ""), "[0, 1, 2]"),
        cut("h", "MonoCut", "3", &said("left", ""), "[0, 1]"),
        cut("i", "MultiCut", "[0, 2]", &said("left", &in_channel("0")).replace("0.5", "0.125"), "[0, 1, 2]"),
    ];
    let issues = check_corpus(&[("cuts.jsonl", lines.join("\n").as_bytes())], 8);
    insta::assert_snapshot!(issues.iter().map(|issue| issue.split_once("cuts").unwrap().1).collect::<Vec<_>>().join("\n"), @r"
    .jsonl:6: `f`: its text is spoken in another channel than that of its cut
    .jsonl:7: `g`: it has 2 of 3 channels of its file, and one or all of them can be read
    .jsonl:8: `h`: it has no audio: its recording has no channel 3
    ");
}

#[test]
fn supervisions_of_lhotse_name_channels() {
    let recordings = r#"{"id": "r", "sampling_rate": 8000, "duration": 2.0, "sources": [{"type": "file", "channels": [0, 1], "source": "call.wav"}]}"#;
    let said = |text: &str, channel: &str| {
        format!(
            r#"{{"id": "{text}", "recording_id": "r", "start": 0, "duration": 0.5, "text": "{text}", "channel": {channel}}}"#
        )
    };
    let supervisions = [said("left", "0"), said("right", "1"), said("call", "[0, 1]")].join("\n");
    let files = [("recordings.jsonl", recordings.as_bytes()), ("supervisions.jsonl", supervisions.as_bytes())];
    assert_eq!(check_corpus(&files, 3), [""; 0]);
}

#[test]
fn commands_and_segments_of_kaldi_name_channels() {
    let scp = "a sox call.wav -t wav - remix 1 |\nb sox -t wav call.wav -c 1 -t wav - remix 2 |\n\
               c ffmpeg -i call.wav -ac 1 -f wav - |\nd ffmpeg -i call.wav -af 'pan=mono|c0=c1' -f wav - |\n\
               e sph2pipe -f wav -p -c 1 call.wav |\nf sox call.wav -r 8k -t wav - remix 2 |\n";
    let texts = "a left\nb right\nc call\nd right\ne left\nf right\n";
    assert_eq!(check_corpus(&[("wav.scp", scp.as_bytes()), ("text", texts.as_bytes())], 6), [""; 0]);
    let files: [(&str, &[u8]); 3] = [
        ("wav.scp", b"r call.wav\ns sox call.wav -t wav - remix 2 |\n"),
        (
            "segments",
            b"a r 0.5 1.0 0\nb r 0.5 1.0 1\nc r 0.5 1.0\nd s 0.5 1.0 0\ne s 0.5 1.0 1\nf r 0.5 1.0 A\ng r 0 1 x\n",
        ),
        ("text", b"a left\nb right\nc call\nd right\ne left\nf left\ng left\n"),
    ];
    let issues = check_corpus(&files, 5);
    insta::assert_snapshot!(issues.iter().map(|issue| issue.rsplit_once('/').unwrap().1).collect::<Vec<_>>().join("\n"), @r"
    text:5: `e`: it is channel 1 of its audio file, counted from 0, and that has 1 channel
    segments:7: `g`: `channel` is `x`, and the number of one channel was expected, counted from 0
    ");
}

/// Lines of a manifest, of which the last three are faulty.
const MANIFEST: &str = r#"{"audio_filepath": "call.wav", "channel": 0, "duration": 1.5, "text": "left"}
{"audio_filepath": "call.wav", "channel": 1, "duration": 1.5, "text": "right", "offset": 0.25}
{"audio_filepath": "call.wav", "channel": 1, "duration": 1.5, "text": "right"}
{"audio_filepath": "call.wav", "channel": null, "duration": 1.5, "text": "call"}
{"audio_filepath": "call.wav", "channel_selector": [1], "duration": 1.25, "text": "right", "id": "e"}
{"audio_filepath": "call.wav", "channel_selector": "average", "duration": 1.25, "text": "call", "id": "f"}
{"audio_filepath": "call.wav:ch1", "duration": 1.25, "text": "right", "id": "g"}
{"audio_filepath": "call.wav", "channel": -1, "duration": 1.25, "text": "right", "id": "h"}
{"audio_filepath": "call.wav", "channel": [0, 1], "duration": 1.25, "text": "call", "id": "i"}
{"audio_filepath": "call.wav", "channel": "1.5", "duration": 1.25, "text": "call", "id": "j"}"#;

#[test]
fn manifests_name_channels() {
    let issues = check_corpus(&[("manifest.jsonl", MANIFEST.as_bytes())], 9);
    insta::assert_snapshot!(issues.iter().map(|issue| issue.rsplit_once('/').unwrap().1).collect::<Vec<_>>().join("\n"), @r"
    manifest.jsonl:8: `h`: `channel` is -1, and the number of one channel was expected, counted from 0
    ");
    let ids = seen(&[("manifest.jsonl", MANIFEST.as_bytes())], &ImportOptions::default());
    insta::assert_snapshot!(ids.lines().skip(1).take(4).collect::<Vec<_>>().join("\n"), @r"
    call.wav:ch0: call.wav:ch0 0s..1.5s [- -] left (manifest.jsonl:1)
    call.wav:ch1@0.25: call.wav:ch1 250ms..1.8s [- -] right (manifest.jsonl:2)
    call.wav:ch1: call.wav:ch1 0s..1.5s [- -] right (manifest.jsonl:3)
    call.wav: call.wav 0s..1.5s [- -] call (manifest.jsonl:4)
    ");
}

#[test]
fn channels_stay_in_written_lists_indexes_and_shards() {
    let usable: Vec<&str> = MANIFEST.lines().take(7).collect();
    let folder = corpus(&[("manifest.jsonl", usable.join("\n").as_bytes())]);
    let manifest = Manifest::read(folder.path()).unwrap();
    let log_mel = LogMel::new(&LogMelConfig::default()).unwrap();
    let again = folder.path().join("again.jsonl");
    Manifest::write(&again, &manifest.utterances, &log_mel).unwrap();
    let lines = fs::read_to_string(&again).unwrap();
    assert!(lines.contains(r#""audio_filepath":"call.wav","channel":1,"offset":0.25"#), "{lines}");
    let paths = |utterances: &Utterances| -> Vec<PathBuf> {
        utterances.iter().map(|utterance| utterance.audio.canonicalize().unwrap_or(utterance.audio.into())).collect()
    };
    assert_eq!(Manifest::read(&again).unwrap().utterances.len(), 7);
    check_samples(folder.path(), &Manifest::read(&again).unwrap().utterances);
    index_list(&again).unwrap();
    let indexed = Manifest::read(&again).unwrap().utterances;
    check_samples(folder.path(), &indexed);
    assert_eq!(paths(&indexed).len(), 7);
    for format in PackFormat::ALL {
        let shards = folder.path().join(format.name());
        let options = PackOptions { shard_size: Bytes(1 << 20), ..PackOptions::new(format) };
        pack(&manifest.utterances, &shards, &options, &|_, _| {}).unwrap();
        let packed = Manifest::read(&shards).unwrap().utterances;
        assert_eq!(packed.len(), 7);
        for (old, new) in manifest.utterances.iter().zip(&packed).filter(|_| format != PackFormat::Kaldi) {
            assert_eq!(samples(old), samples(new), "{format:?}");
        }
    }
}

#[test]
fn another_channel_is_other_audio() {
    let folder = corpus(&[]);
    let file = folder.path().join("call.wav");
    let of = |channel: Option<u16>| channel.map_or(file.clone(), |n| AudioSource::path_of_channel(&file, n));
    let all = [None, Some(0), Some(1)];
    let config = StoreConfig { limit: Bytes::gib(1), precision: crate::store::StorePrecision::F32 };
    let store = Store::open(folder.path().join("store"), &config).unwrap();
    let hashes = all.map(|channel| store.content_hash(&of(channel)).unwrap());
    let fingerprints = all.map(|channel| {
        let utterance = crate::Utterance { id: "a".into(), audio: of(channel), ..crate::Utterance::default() };
        let fingerprint = CorpusFingerprint::new(&[utterance][..].into(), &Utterances::default()).with_audio();
        (fingerprint.summary(), fingerprint.audio_summary().unwrap())
    });
    for (a, b) in [(0, 1), (0, 2), (1, 2)] {
        assert_ne!(hashes[a], hashes[b]);
        assert!(fingerprints[a].0 != fingerprints[b].0 && fingerprints[a].1 != fingerprints[b].1);
    }
}

#[test]
fn a_missing_channel_is_an_issue() {
    let lines = r#"{"id": "a", "audio_filepath": "call.wav", "channel": 2, "duration": 1.0, "text": "x"}
{"id": "b", "audio_filepath": "left.wav", "channel": 0, "duration": 1.0, "text": "x"}
{"id": "c", "audio_filepath": "left.wav", "channel": 1, "text": "x"}"#;
    let folder = corpus(&[("manifest.jsonl", lines.as_bytes())]);
    let listing = import(folder.path(), &ImportOptions::default()).unwrap();
    let checked = check(listing, &CheckOptions { depth: CheckDepth::Header, ..CheckOptions::default() }, &|_, _| {});
    let issues: Vec<String> = checked.issues.iter().map(ToString::to_string).collect();
    assert_eq!(checked.utterances.len(), 1);
    insta::assert_snapshot!(issues.iter().map(|issue| issue.rsplit_once('/').unwrap().1).collect::<Vec<_>>().join("\n"), @r"
    manifest.jsonl:1: `a`: it is channel 2 of its audio file, counted from 0, and that has 2 channels
    manifest.jsonl:3: `c`: it is channel 1 of its audio file, counted from 0, and that has 1 channel
    ");
}
