//! Tests of whole corpora: files, formats, reproducibility and errors.

use super::*;
use std::collections::{BTreeMap, HashSet};
use std::error::Error;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

fn options(out: &Path, seed: u64) -> CorpusOptions {
    CorpusOptions {
        out: out.into(),
        utterances: 60,
        speakers: 12,
        seed,
        words: None,
        studio: false,
        engine: Engine::Formant,
    }
}

/// Makes a corpus and returns the bytes of each of its files.
fn bytes_of(options: &CorpusOptions) -> BTreeMap<String, Vec<u8>> {
    make_corpus(options, &|_, _| ()).unwrap();
    let folders = [options.out.clone(), options.out.join("wavs")];
    let entries = folders.iter().flat_map(|folder| fs::read_dir(folder).unwrap()).map(|entry| entry.unwrap().path());
    let name = |path: &Path| path.strip_prefix(&options.out).unwrap().display().to_string();
    entries.filter(|path| path.is_file()).map(|path| (name(&path), fs::read(&path).unwrap())).collect()
}

fn on_threads<T: Send>(threads: usize, work: impl FnOnce() -> T + Send) -> T {
    rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap().install(work)
}

#[test]
fn the_same_options_give_the_same_bytes_on_any_number_of_threads() {
    let folders: Vec<_> = (0..3).map(|_| tempfile::tempdir().unwrap()).collect();
    let one = on_threads(1, || bytes_of(&options(folders[0].path(), 1)));
    let many = on_threads(4, || bytes_of(&options(folders[1].path(), 1)));
    let other = bytes_of(&options(folders[2].path(), 2));
    assert_eq!(one.len(), 62);
    assert!(one == many);
    assert!(one.keys().eq(other.keys()));
    assert!(one.iter().all(|(name, bytes)| *bytes != other[name]));
}

#[test]
fn listed_utterances_equal_those_of_the_corpus_that_is_made() {
    for (number, (studio, words, speakers, seed)) in [
        (false, None, 12, 1),
        (false, Some(10), 3, 2),
        (true, Some(10), 2, 1),
        (true, None, 5, 9),
        (false, Some(1), 1, 3),
    ]
    .into_iter()
    .enumerate()
    {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("made");
        let options = CorpusOptions { utterances: 15, speakers, words, studio, ..options(&out, seed) };
        let listed = list_corpus(&options, &|_, _| ()).unwrap();
        assert!(!out.exists(), "case {number}");
        make_corpus(&options, &|_, _| ()).unwrap();
        let lines: String = listed.iter().map(|line| serde_json::to_string(line).unwrap() + "\n").collect();
        assert_eq!(lines, fs::read_to_string(out.join("manifest.jsonl")).unwrap(), "case {number}");
    }
    let nothing = CorpusOptions { utterances: 0, ..options(Path::new("nowhere"), 1) };
    assert!(matches!(list_corpus(&nothing, &|_, _| ()), Err(CorpusError::NoUtterances)));
}

#[test]
fn manifest_and_metadata_describe_the_audio() {
    let folder = tempfile::tempdir().unwrap();
    let (calls, options) = (AtomicUsize::new(0), options(folder.path(), 3));
    let report = make_corpus(&options, &|_, all| {
        assert_eq!(all, 60);
        calls.fetch_add(1, Ordering::Relaxed);
    })
    .unwrap();
    assert_eq!((report.utterances, report.speakers, calls.into_inner()), (60, 12, 60));
    let manifest = fs::read_to_string(folder.path().join("manifest.jsonl")).unwrap();
    let metadata = fs::read_to_string(folder.path().join("metadata.csv")).unwrap();
    let (mut total, mut words, mut speakers) = (0.0, HashSet::new(), HashSet::new());
    for (line, row) in manifest.lines().zip(metadata.lines()) {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        let (id, text) = (line["id"].as_str().unwrap(), line["text"].as_str().unwrap());
        assert_eq!(row, format!("{id}|{text}|{text}"));
        total += check_wav(&folder.path().join(line["audio_filepath"].as_str().unwrap()), &line["duration"]);
        words.extend(text.split(' ').map(String::from));
        speakers.insert(line["speaker"].as_str().unwrap().to_string());
    }
    assert!(words.len() >= 50 && speakers.len() == 12, "{} words", words.len());
    assert!((total - report.total.0).abs() < 1e-6);
    assert!((1.5..2.5).contains(&(total / 60.0)), "{} s an utterance", total / 60.0);
}

/// Checks format, length and loudness of a WAV file, and returns its duration in seconds.
fn check_wav(path: &Path, duration: &serde_json::Value) -> f64 {
    let mut wav = hound::WavReader::open(path).unwrap();
    let spec = wav.spec();
    assert_eq!((spec.sample_rate, spec.bits_per_sample, spec.channels), (16_000, 16, 1));
    let secs = f64::from(wav.duration()) / 16_000.0;
    assert_eq!(duration.as_f64(), Some(secs));
    let loudest = wav.samples::<i16>().map(|sample| sample.unwrap().unsigned_abs()).max().unwrap();
    assert!((3_000..30_000).contains(&loudest), "{}: {loudest}", path.display());
    secs
}

/// Returns all fields of a manifest except durations: ids, files, texts and speakers.
fn lines_of(folder: &Path) -> Vec<[String; 4]> {
    let text = fs::read_to_string(folder.join("manifest.jsonl")).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let part = |line: &serde_json::Value, name: &str| line[name].as_str().unwrap().to_string();
    lines.map(|line| ["id", "audio_filepath", "text", "speaker"].map(|name| part(&line, name))).collect()
}

#[test]
fn studio_speech_has_the_same_sentences_without_room_noise_and_breaths() {
    let folders: Vec<_> = (0..3).map(|_| tempfile::tempdir().unwrap()).collect();
    let usual = CorpusOptions { utterances: 8, speakers: 4, ..options(folders[0].path(), 5) };
    let studio = |n: usize| CorpusOptions { out: folders[n].path().into(), studio: true, ..usual.clone() };
    bytes_of(&usual);
    assert!(bytes_of(&studio(1)) == bytes_of(&studio(2)));
    let lines = lines_of(folders[0].path());
    assert_eq!(lines, lines_of(folders[1].path()));
    for [id, file, ..] in lines {
        let read = |folder: usize| plimsoll_audio::read_recording(folders[folder].path().join(&file)).unwrap().samples;
        let (usual, studio) = (read(0), read(1));
        let peak = studio.iter().fold(0.0_f32, |most, s| most.max(s.abs()));
        assert!((0.69..0.91).contains(&peak), "{id}: {peak}");
        let lead = studio.iter().position(|&s| s != 0.0).unwrap();
        let trail = studio.len() - 1 - studio.iter().rposition(|&s| s != 0.0).unwrap();
        assert!((800..1_600).contains(&lead) && (800..1_600).contains(&trail), "{id}: {lead} {trail}");
        assert!(usual[..200].iter().any(|&s| s != 0.0), "{id} has noise from the start, elsewhere");
        // At most a breath or an `mm` at every other word is missing.
        let longer = usual.len() as f64 / studio.len() as f64;
        assert!((0.8..1.7).contains(&longer), "{id}: {} {}", usual.len(), studio.len());
    }
}

#[test]
fn an_interrupted_corpus_has_no_manifest() {
    let folder = tempfile::tempdir().unwrap();
    make_corpus(&options(folder.path(), 1), &|_, _| ()).unwrap();
    // A folder in the place of an audio file stops the second run half-way.
    let wav = folder.path().join("wavs/s003-00039.wav");
    fs::remove_file(&wav).unwrap();
    fs::create_dir(&wav).unwrap();
    let error = make_corpus(&options(folder.path(), 1), &|_, _| ()).unwrap_err();
    assert_eq!(error.to_string(), format!("cannot write {}", wav.display()));
    assert!(!folder.path().join("manifest.jsonl").exists());
}

#[test]
fn invalid_options_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let refused = |change: fn(&mut CorpusOptions)| {
        let mut options = options(folder.path(), 1);
        change(&mut options);
        make_corpus(&options, &|_, _| ()).unwrap_err()
    };
    assert_eq!(refused(|o| o.utterances = 0).to_string(), "a corpus needs at least one utterance");
    assert_eq!(refused(|o| o.speakers = 0).to_string(), "a corpus needs at least one speaker");
    let error = refused(|o| o.out = "/dev/null/corpus".into());
    assert_eq!(error.to_string(), "cannot write /dev/null/corpus/wavs");
    assert!(error.source().is_some());
}

#[test]
fn options_are_saved_as_plain_json() {
    let options = options(Path::new("corpus"), 1);
    let json = serde_json::to_string(&options).unwrap();
    assert_eq!(json, r#"{"out":"corpus","utterances":60,"speakers":12,"seed":1,"engine":"formant"}"#);
    let espeak = json.replace(r#""formant""#, r#"{"espeak-ng":{"language":"kok"}}"#);
    let engine = serde_json::from_str::<CorpusOptions>(&espeak).unwrap().engine;
    assert_eq!(engine, Engine::EspeakNg { language: "kok".into() });
    let studio = CorpusOptions { studio: true, ..options };
    assert_eq!(serde_json::from_str::<CorpusOptions>(&serde_json::to_string(&studio).unwrap()).unwrap(), studio);
}

#[test]
fn espeak_makes_the_same_kind_of_corpus() {
    let folder = tempfile::tempdir().unwrap();
    let with = |language: &str| {
        let engine = Engine::EspeakNg { language: language.into() };
        let options = CorpusOptions { utterances: 4, engine, ..options(folder.path(), 1) };
        make_corpus(&options, &|_, _| ())
    };
    match with("kok") {
        Err(CorpusError::EspeakMissing) => return println!("skipped: espeak-ng is not installed"),
        made => assert_eq!(made.unwrap().utterances, 4),
    }
    let manifest = fs::read_to_string(folder.path().join("manifest.jsonl")).unwrap();
    for line in manifest.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()) {
        check_wav(&folder.path().join(line["audio_filepath"].as_str().unwrap()), &line["duration"]);
        assert!(!line["text"].as_str().unwrap().is_ascii());
    }
    assert!(matches!(with("klingon"), Err(CorpusError::UnknownLanguage { known, .. }) if known.len() > 50));
    let error = with("de").unwrap_err().to_string();
    assert_eq!(error, "there is no word list for `de`; there is one for en, kok, hi, mr, fa");
}

#[test]
fn a_word_limit_keeps_the_first_words() {
    let folder = tempfile::tempdir().unwrap();
    make_corpus(&CorpusOptions { words: Some(3), ..options(folder.path(), 1) }, &|_, _| {}).unwrap();
    let texts = fs::read_to_string(folder.path().join("metadata.csv")).unwrap();
    let mut words: Vec<&str> = texts.lines().flat_map(|l| l.rsplit('|').next().unwrap().split(' ')).collect();
    words.sort_unstable();
    words.dedup();
    assert_eq!(words, ["one", "two", "zero"]);
}

/// Sound begins and ends where the words do, in rooms and in studios.
#[test]
fn words_have_the_times_of_their_sound() {
    for studio in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let options = CorpusOptions { utterances: 12, studio, ..options(folder.path(), 3) };
        make_corpus(&options, &|_, _| ()).unwrap();
        let listed = list_corpus(&options, &|_, _| ()).unwrap();
        let times = word_times(&options).unwrap();
        assert_eq!(times.len(), 12);
        for ((id, words), line) in times.iter().zip(&listed) {
            let texts: Vec<&str> = words.iter().map(|word| word.text).collect();
            assert_eq!((id, &texts.join(" ")), (&line.id, &line.text));
            assert!(
                words.windows(2).all(|pair| pair[0].start < pair[0].end && pair[0].end <= pair[1].start),
                "{words:?}"
            );
            assert!(words.last().unwrap().end.0 <= line.duration + 1e-9);
            if studio {
                let audio = plimsoll_audio::read_recording(folder.path().join(&line.audio_filepath)).unwrap();
                let first = audio.samples.iter().position(|sample| sample.abs() > 0.003).unwrap();
                let onset = first as f64 / f64::from(audio.rate);
                // A stop, as in `tiger`, begins with its silence.
                assert!((onset - words[0].start.0).abs() < 0.08, "{id}: {onset} {:?}", words[0]);
            }
        }
        let path = write_word_times(&options).unwrap();
        let lines = fs::read_to_string(path).unwrap();
        assert_eq!(lines.lines().count(), times.iter().map(|(_, words)| words.len()).sum::<usize>());
        let first: Vec<&str> = lines.lines().next().unwrap().split(' ').collect();
        assert_eq!((first[0], first[1], first[4]), (times[0].0.as_str(), "1", times[0].1[0].text));
    }
}
