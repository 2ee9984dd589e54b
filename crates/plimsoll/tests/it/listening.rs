//! Long recordings, streams, and recordings that are cut by their text.

use std::io::Write;
use std::process::{Child, Command, Stdio};

use burn::tensor::Device;
use plimsoll_audio::{WavStream, read_recording, wav_bytes, write_wav};
use plimsoll_core::Seconds;
use plimsoll_speech::asr::{LiveOptions, LiveTranscriber, LongOptions, LongTranscriber, Search, Transcriber};
use plimsoll_text::score::ErrorCounts;
use plimsoll_text::transcript::Word;
use serde_json::Value;
use signal_hook::consts::SIGINT;

use crate::learning::{DIGITS, divide, is_long, lines_of, run, text_of};
use crate::program::{ProgramOutput, TestFolder};
use crate::stopping::signal;

const RATE: u32 = 16_000;

/// Makes a folder with the run `r` of a recognizer, after two steps, and the corpus `c` of 24 utterances.
fn barely_trained() -> TestFolder {
    let dir = TestFolder::new();
    dir.train(&["--name", "r", "--steps", "2"]).success();
    dir
}

/// An utterance of a corpus that was made with `--times`.
struct Spoken {
    text: String,
    samples: Vec<f32>,
    /// Start and end of each word in seconds.
    words: Vec<(f64, f64)>,
}

/// Reads the utterances of the manifest `name` in the corpus `c`.
fn spoken(dir: &TestFolder, name: &str) -> Vec<Spoken> {
    let times = std::fs::read_to_string(dir.path("c/words.ctm")).unwrap();
    let utterance = |line: &String| {
        let line_value: Value = serde_json::from_str(line).unwrap();
        let id = line_value["id"].as_str().unwrap();
        let word = |fields: Vec<&str>| {
            let start: f64 = fields[2].parse().unwrap();
            (start, start + fields[3].parse::<f64>().unwrap())
        };
        let lines = times.lines().map(|line| line.split(' ').collect::<Vec<_>>()).filter(|fields| fields[0] == id);
        let audio = read_recording(dir.path("c").join(line_value["audio_filepath"].as_str().unwrap())).unwrap();
        Spoken { text: text_of(line), samples: audio.samples, words: lines.map(word).collect() }
    };
    lines_of(dir, name).iter().map(utterance).collect()
}

/// Joins utterances with faint noise between them, and returns the sound and where each utterance begins, in seconds.
fn joined(utterances: &[&Spoken], pause: f64) -> (Vec<f32>, Vec<f64>) {
    let noise = |length: usize| (0..length).map(|n| (n * 7919 % 1009) as f32 * 2e-6 - 1e-3);
    let (mut samples, mut starts) = (Vec::new(), Vec::new());
    for utterance in utterances {
        starts.push(samples.len() as f64 / f64::from(RATE));
        samples.extend(&utterance.samples);
        samples.extend(noise((pause * f64::from(RATE)) as usize));
    }
    (samples, starts)
}

/// Starts the program with a stream to its standard input.
fn start(dir: &TestFolder, args: &[&str]) -> Child {
    let mut command: Command = dir.command(args);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Runs the program with `bytes` on its standard input.
fn feed(dir: &TestFolder, args: &[&str], bytes: &[u8]) -> ProgramOutput {
    let mut child = start(dir, args);
    // The program may refuse the stream before it has read all of it.
    let _ = child.stdin.take().unwrap().write_all(bytes);
    child.wait_with_output().unwrap().into()
}

/// Returns the words of the events of a stream.
fn words_of(events: &str) -> Vec<String> {
    let events = events.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let words =
        events.filter(|event| event["event"] == "words").flat_map(|event| event["words"].as_array().unwrap().clone());
    words.map(|word| word["text"].as_str().unwrap().to_string()).collect()
}

#[test]
fn streams_end_in_order_and_wrong_ones_are_refused() {
    let dir = barely_trained();
    // A lexicon makes words of what a model of two steps hears.
    dir.write("words.txt", "zero\none\n");
    let flags = ["transcribe", "-", "--run", "runs/r", "--lexicon", "words.txt"];
    let with = |more: &[&'static str]| [&flags[..], more].concat();
    let corpus = dir.path("corpus/formant-24x4-seed1/wavs");
    let name = crate::program::names(&corpus)[0].clone();
    let samples = read_recording(corpus.join(name)).unwrap().samples;
    let seconds = samples.len() as f64 / f64::from(RATE);
    let mut endless = Vec::new();
    WavStream::new(&mut endless, RATE).unwrap().write(&samples).unwrap();

    let events = feed(&dir, &with(&["--format", "jsonl"]), &endless).success().stdout;
    let last: Value = serde_json::from_str(events.lines().last().unwrap()).unwrap();
    assert_eq!(last["event"], "end");
    assert!((last["seconds"].as_f64().unwrap() - seconds).abs() < 0.01, "{last}");
    let words = words_of(&events);
    // A pause ends a word of a stream, so a word can come in two parts.
    let are_known =
        |words: &[String]| !words.is_empty() && words.concat().replace("zero", "").replace("one", "").is_empty();
    assert!(are_known(&words), "{words:?}");
    // How many samples come at once depends on the moment, and words of a model that has learned nothing depend on that.
    let text: Vec<String> =
        feed(&dir, &flags, &endless).success().stdout.split_whitespace().map(str::to_string).collect();
    assert!(are_known(&text), "{text:?}");
    let object: Value = serde_json::from_str(&feed(&dir, &with(&["--json"]), &endless).success().stdout).unwrap();
    assert!(!object["text"].as_str().unwrap().is_empty(), "{object}");
    let subtitles = feed(&dir, &with(&["--format", "vtt"]), &endless).success().stdout;
    assert!(subtitles.starts_with("WEBVTT"), "{subtitles}");
    // Samples without a header are the same sound; at half the rate, with two channels, it lasts as long.
    let raw = feed(&dir, &with(&["--format", "jsonl", "--raw-rate", "16000"]), &endless[44..]).success().stdout;
    assert!(are_known(&words_of(&raw)), "{raw}");
    let half = ["--format", "jsonl", "--raw-rate", "8000", "--raw-channels", "2", "--raw-format", "s16le"];
    let raw = feed(&dir, &with(&half), &endless[44..]).success().stdout;
    let last: Value = serde_json::from_str(raw.lines().last().unwrap()).unwrap();
    assert!((last["seconds"].as_f64().unwrap() - seconds).abs() < 0.01, "{last}");
    // Nothing is said in nothing.
    for nothing in [&b""[..], &wav_bytes(&[], RATE)] {
        let output = feed(&dir, &flags, nothing);
        assert!(output.code == Some(1) && output.stdout.is_empty(), "{output:?}");
        assert!(output.stderr.contains("standard input is empty"), "{output:?}");
    }

    let refused = |args: &[&str], bytes: &[u8], expected: &str| {
        let output = feed(&dir, args, bytes);
        assert!(output.code == Some(2) && output.stderr.contains(expected), "{args:?}: {output:?}");
    };
    refused(&flags, b"ID3 is MP3, and fLaC is FLAC", "MP3 or FLAC with a tag");
    refused(&with(&["--search", "attention"]), &endless, "--search has no effect");
    refused(&with(&["--out-dir", "x", "--format", "srt"]), &endless, "alone");
    refused(&["transcribe", "-", "a.wav", "--run", "runs/r"], &endless, "alone");
    refused(&["transcribe", "a.wav", "--run", "runs/r", "--raw-rate", "8000"], b"", "--raw-rate");
    refused(&["transcribe", "a.wav", "--run", "runs/r", "--format", "jsonl"], b"", "jsonl");
    refused(&with(&["--raw-rate", "1"]), &endless, "1 Hz");
}

/// Returns whether a process has a handler of its own for a signal.
fn handles(child: &Child, signal: i32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap_or("0");
    u64::from_str_radix(mask.trim(), 16).unwrap_or(0) & 1 << (signal - 1) != 0
}

#[cfg(target_os = "linux")]
#[test]
fn a_signal_prints_what_was_said() {
    let dir = barely_trained();
    let mut child = start(&dir, &["transcribe", "-", "--run", "runs/r", "--format", "jsonl"]);
    let mut input = child.stdin.take().unwrap();
    input.write_all(&wav_bytes(&vec![0.0; 32_000], RATE)).unwrap();
    input.flush().unwrap();
    while !handles(&child, SIGINT) {
        assert_eq!(child.try_wait().unwrap(), None);
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    signal(&child, SIGINT);
    let output = ProgramOutput::from(child.wait_with_output().unwrap());
    drop(input);
    let last: Value = serde_json::from_str(output.stdout.lines().last().unwrap_or("{}")).unwrap();
    assert!(output.code == Some(130) && last["event"] == "end", "{output:?}");
}

#[test]
fn recordings_are_cut_into_a_corpus() {
    let dir = barely_trained();
    run(&dir, "corpus make --out c --words 10 --utterances 12 --speakers 2 --times");
    let utterances = spoken(&dir, "c/manifest.jsonl");
    let (samples, _) = joined(&utterances.iter().collect::<Vec<_>>(), 0.6);
    write_wav(&dir.path("talk.wav"), &samples, RATE).unwrap();
    let texts: Vec<&str> = utterances.iter().map(|utterance| utterance.text.as_str()).collect();
    dir.write("talk.txt", format!("\u{feff}{}\n\n漢字\n", texts.join("\n")));
    let cut = "data segment talk.wav talk.txt --run runs/r --min-score -1000";
    let output = dir.run(&cut.split(' ').chain(["--out", "cut", "--speaker", "ann", "--json"]).collect::<Vec<_>>());
    // A line without a known character is left out.
    assert_eq!(output.code, Some(0), "{output:?}");
    let found: Value = serde_json::from_str(&output.stdout).unwrap();
    let kept = found["utterances"].as_array().unwrap();
    assert_eq!((kept.len(), found["left_out"][0]["line"].as_u64()), (12, Some(13)), "{found}");
    assert!(kept.iter().zip(&texts).all(|(one, text)| one["text"] == *text), "{found}");
    let starts: Vec<f64> = kept.iter().map(|one| one["start"].as_f64().unwrap()).collect();
    assert!(starts.windows(2).all(|pair| pair[0] < pair[1]), "{starts:?}");
    // A model of two steps finds no word, but what it writes is a corpus.
    let checked: Value =
        serde_json::from_str(&dir.run(&["data", "check", "cut/manifest.jsonl", "--decode", "--json"]).stdout).unwrap();
    assert_eq!(checked["usable"], 12, "{checked}");
    for (args, expected) in [
        (&["data", "segment", "talk.wav", "talk.txt", "--run", "runs/r", "--out", "cut"][..], "cut exists already"),
        (&["data", "segment", "talk.wav", "nowhere.txt", "--run", "runs/r", "--out", "d"], "nowhere.txt"),
        (&["data", "segment", "nowhere.wav", "talk.txt", "--run", "runs/r", "--out", "d"], "nowhere.wav"),
        (&["data", "segment", "talk.wav", "talk.txt", "--run", "runs/r", "--out", "d", "--min-score", "0"], "clearly"),
    ] {
        let refused = dir.run(args);
        assert!(refused.code == Some(2) && refused.stderr.contains(expected), "{args:?}: {refused:?}");
    }
}

/// Returns the share of word edges within `limit` seconds of the truth, and prints how far off they are.
fn edges_within(limit: f64, found: &[(Word, (f64, f64))], what: &str) -> f64 {
    let ends = found.iter().flat_map(|(word, (start, end))| [word.start - start, word.end - end]);
    let errors: Vec<f64> = ends.collect();
    let near = errors.iter().filter(|error| error.abs() <= limit).count() as f64 / errors.len() as f64;
    let side = |offset: usize| {
        let mut side: Vec<f64> = errors.iter().skip(offset).step_by(2).copied().collect();
        side.sort_by(f64::total_cmp);
        [0.05, 0.25, 0.5, 0.75, 0.95]
            .map(|share| format!("{:+.0}", 1000.0 * side[(side.len() as f64 * share) as usize]))
    };
    eprintln!(
        "{what}: {:.1} % of {} edges within {} ms; starts {:?} ms, ends {:?} ms at 5, 25, 50, 75 and 95 %",
        100.0 * near,
        errors.len(),
        1000.0 * limit,
        side(0),
        side(1)
    );
    near
}

fn long_text(transcriber: &Transcriber, samples: &[f32], longest: f64) -> String {
    let options = LongOptions { longest: Seconds(longest), ..LongOptions::default() };
    let mut long = LongTranscriber::new(transcriber, Search::Greedy, None, options);
    let mut segments = long.push(samples);
    segments.extend(long.finish());
    segments.into_iter().map(|segment| segment.text).collect::<Vec<_>>().join(" ")
}

/// One training for all that needs a recognizer which has learned.
#[test]
fn long_trained_recognizer_hears_long_recordings() {
    if !is_long() {
        return;
    }
    let dir = TestFolder::new();
    run(&dir, "corpus make --out c --words 10 --utterances 560 --speakers 1 --times");
    divide(&dir, 430, 60);
    let output = run(&dir, &format!("train --name r --epochs 30 {DIGITS}"));
    eprintln!("digits, unseen sentences: {}", output.stdout);
    let unseen = spoken(&dir, "c/unseen.jsonl");
    let transcriber = Transcriber::load(&dir.path("runs/r"), &Device::flex()).unwrap();
    edges_are_near(&transcriber, &unseen);
    cuts_change_little(&transcriber, &unseen);
    streams_hear_the_same(&transcriber, &unseen);
    utterances_are_found(&dir, &unseen);
}

fn edges_are_near(transcriber: &Transcriber, unseen: &[Spoken]) {
    let (mut aligned, mut transcribed) = (Vec::new(), Vec::new());
    for utterance in unseen {
        let words = transcriber.align(&utterance.samples, &utterance.text).unwrap();
        assert_eq!(words.len(), utterance.words.len());
        aligned.extend(words.into_iter().zip(utterance.words.iter().copied()));
        let found = transcriber.transcribe_timed(&utterance.samples, &Search::Greedy, None);
        if found.text == utterance.text {
            transcribed.extend(found.words.into_iter().zip(utterance.words.iter().copied()));
        }
    }
    for limit in [0.03, 0.04, 0.07, 0.1] {
        let _ = edges_within(limit, &aligned, "align");
    }
    // The aim is 0.9 within 50 ms, which frames of 40 ms have not reached: docs/recognition.md.
    assert!(edges_within(0.05, &transcribed, "transcribe") >= 0.75);
    assert!(edges_within(0.05, &aligned, "align") >= 0.75);
    assert!(edges_within(0.075, &aligned, "align") >= 0.87);
}

fn cuts_change_little(transcriber: &Transcriber, unseen: &[Spoken]) {
    let (samples, _) = joined(&unseen.iter().collect::<Vec<_>>(), 0.3);
    let spoken = unseen.iter().map(|utterance| utterance.text.as_str()).collect::<Vec<_>>().join(" ");
    let whole = long_text(transcriber, &samples, 1e6);
    let distance = |a: &str, b: &str| ErrorCounts::characters(b, a).rate();
    eprintln!("{:.0} s, uncut: CER {:.4}", samples.len() as f64 / f64::from(RATE), distance(&whole, &spoken));
    for longest in [60.0, 30.0, 23.0, 17.0] {
        let cut = long_text(transcriber, &samples, longest);
        let (apart, cer) = (distance(&cut, &whole), distance(&cut, &spoken));
        eprintln!("parts of {longest} s: CER {cer:.4}, {apart:.4} of the characters of the uncut text changed");
        // Sentences of 1.8 s are all that the model has heard: parts of 30 s are strange to it.
        assert!(cer <= 0.4 && apart <= 0.4, "{longest}: {cut}\n{whole}");
    }
}

fn streams_hear_the_same(transcriber: &Transcriber, unseen: &[Spoken]) {
    let some: Vec<&Spoken> = unseen.iter().take(20).collect();
    let (samples, starts) = joined(&some, 0.4);
    let mut live = LiveTranscriber::new(transcriber, Search::Greedy, None, LiveOptions::default());
    let (mut words, mut delays) = (Vec::new(), Vec::new());
    for block in samples.chunks(1_600) {
        let update = live.push(block);
        delays.extend(update.words.iter().map(|word| live.length().0 - word.end));
        words.extend(update.words);
    }
    words.extend(live.finish().words);
    let text = words.iter().map(|word| word.text.as_str()).collect::<Vec<_>>().join(" ");
    let spoken = some.iter().map(|utterance| utterance.text.as_str()).collect::<Vec<_>>().join(" ");
    let cer = ErrorCounts::characters(&spoken, &text).rate();
    let most = delays.iter().copied().fold(0.0, f64::max);
    eprintln!("live: CER {cer:.4}, words are final at most {most:.2} s after their end, {} utterances", starts.len());
    assert!(cer <= 0.2, "{text}\n{spoken}");
    assert!(most <= LiveOptions::default().delay().0 + 0.15, "{most}");
}

fn utterances_are_found(dir: &TestFolder, unseen: &[Spoken]) {
    // Every fifth utterance is in no text, and every seventh line of the text is not said.
    let some: Vec<&Spoken> = unseen.iter().take(40).collect();
    let (samples, starts) = joined(&some, 0.5);
    write_wav(&dir.path("talk.wav"), &samples, RATE).unwrap();
    let (mut lines, mut truth) = (Vec::new(), Vec::new());
    for (index, utterance) in some.iter().enumerate() {
        if index % 7 == 3 {
            lines.push("nine nine zero eight eight eight nine");
            truth.push(None);
        }
        if index % 5 != 4 {
            lines.push(&utterance.text);
            let (first, last) = (utterance.words[0].0, utterance.words.last().unwrap().1);
            truth.push(Some((starts[index] + first, starts[index] + last)));
        }
    }
    dir.write("talk.txt", lines.join("\n"));
    let output = dir.run(&["data", "segment", "talk.wav", "talk.txt", "--run", "runs/r", "--out", "cut", "--json"]);
    let found: Value = serde_json::from_str(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
    let kept = found["utterances"].as_array().unwrap();
    let left_out: Vec<(u64, f64)> = found["left_out"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| (one["line"].as_u64().unwrap(), one["score"].as_f64().unwrap()))
        .collect();
    let mut far: Vec<f64> = Vec::new();
    for one in kept {
        let line: usize = one["id"].as_str().unwrap().rsplit('-').next().unwrap().parse().unwrap();
        let Some((start, end)) = truth[line - 1] else { panic!("line {line} is not said: {one}") };
        let at = one["start"].as_f64().unwrap();
        let until = at + one["duration"].as_f64().unwrap();
        // The clip has the words, and parts of the pauses around them.
        far.extend([start - at, until - end]);
    }
    far.sort_by(f64::total_cmp);
    let scores: Vec<f64> = kept.iter().map(|one| one["score"].as_f64().unwrap()).collect();
    let worst = scores.iter().copied().fold(0.0, f64::min);
    eprintln!(
        "{} of {} lines were cut out, worst score {worst:.2}; left out {left_out:?}; clips begin and end {far:.2?} s outside of the words",
        kept.len(),
        lines.len()
    );
    let said = truth.iter().flatten().count();
    assert!(kept.len() * 10 >= said * 9, "{} of {said}", kept.len());
    assert!(far.iter().all(|far| (-0.1..0.55).contains(far)), "{far:?}");
    let checked = dir.run(&["data", "check", "cut/manifest.jsonl", "--decode", "--json"]).success();
    let checked: Value = serde_json::from_str(&checked.stdout).unwrap();
    assert_eq!(checked["usable"].as_u64(), Some(kept.len() as u64), "{checked}");
}
