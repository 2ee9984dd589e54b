//! A synthesiser as a person meets it: training, speaking, being judged, being carried elsewhere, and wrong input.

use std::path::Path;

use serde_json::Value;

use crate::program::{Place, Said, names, silence};

/// A corpus and a synthesiser small enough for a step in milliseconds.
const SMALL_VOICE: &[&str] = &[
    "--task",
    "tts",
    "--set",
    "data.corpus_utterances=24",
    "--set",
    "data.corpus_words=3",
    "--batch-size",
    "6",
    "--d-model",
    "16",
    "--set",
    "model.attention_heads=2",
    "--set",
    "model.text_encoder_layers=1",
    "--set",
    "model.decoder_layers=1",
    "--set",
    "model.audio_encoder_layers=1",
    "--set",
    "model.postnet_layers=2",
    "--set",
    "model.speaker_dim=8",
    "--set",
    "training.schedule=constant",
    "--set",
    "training.warmup_steps=3",
    "--set",
    "training.samples=1",
    "--set",
    "features.n_mels=20",
    "--set",
    "features.n_fft=256",
    "--set",
    "features.win_length=256",
    "--set",
    "features.hop_length=256",
];

fn train(place: &Place, more: &[&str]) -> Said {
    place.run(&[&["train"], SMALL_VOICE, more].concat())
}

/// A place with the run `v`, after two steps.
fn trained() -> Place {
    let place = Place::new();
    train(&place, &["--name", "v", "--steps", "2"]).fine();
    place
}

fn json(place: &Place, args: &[&str]) -> Value {
    serde_json::from_str(&place.run(args).fine().out).unwrap()
}

/// Samples a second and seconds of a WAV file.
fn length(path: &Path) -> (u32, f64) {
    let wav = hound::WavReader::open(path).unwrap();
    (wav.spec().sample_rate, f64::from(wav.duration()) / f64::from(wav.spec().sample_rate))
}

#[test]
fn a_run_leaves_what_can_be_listened_to_and_looked_at() {
    let place = Place::new();
    let said = train(&place, &["--name", "v", "--steps", "4", "--set", "training.validation_interval=2"]).fine();
    for told in ["synthesizer: 1 + 1 blocks", "validated after step 2", "stopped", "distance"] {
        assert!(said.err.contains(told), "{told}: {}", said.err);
    }
    assert!(said.out.contains("cargo xtask say"), "{}", said.out);
    let expected = ["step-000002-1.svg", "step-000002-1.wav", "step-000004-1.svg", "step-000004-1.wav", "truth-1.wav"];
    assert_eq!(names(&place.path("runs/v/samples")), expected);
    let picture = std::fs::read_to_string(place.path("runs/v/samples/step-000002-1.svg")).unwrap();
    assert!(picture.starts_with("<svg") && picture.contains("said") && picture.contains("true"));
    let (rate, seconds) = length(&place.path("runs/v/samples/truth-1.wav"));
    assert!(rate == 16_000 && seconds > 0.3, "{rate} {seconds}");
    assert!(length(&place.path("runs/v/voice.wav")).1 > 0.3);
    let summary = place.json("runs/v/summary.json");
    for score in ["distance", "mel", "stopped", "off length"] {
        assert!(summary[score].is_number(), "{score}: {summary}");
    }
    let steps = std::fs::read_to_string(place.path("runs/v/metrics.jsonl")).unwrap();
    let step: Value = serde_json::from_str(steps.lines().next().unwrap()).unwrap();
    let parts: f64 = step["parts"].as_object().unwrap().values().map(|part| part.as_f64().unwrap()).sum();
    assert!((parts - step["loss"].as_f64().unwrap()).abs() < 1e-5, "{step}");
    assert_eq!(step["parts"].as_object().unwrap().len(), 4);
}

#[test]
fn going_on_equals_never_having_stopped() {
    let weights = |place: &Place| {
        let path = place.path("runs/v/checkpoints/step-0000004/weights.safetensors");
        plimsoll_train::read_weights(&path).unwrap()
    };
    let [whole, parts] = [Place::new(), Place::new()];
    train(&whole, &["--name", "v", "--steps", "4"]).fine();
    train(&parts, &["--name", "v", "--steps", "2"]).fine();
    parts.run(&["train", "--resume", "runs/v", "--steps", "4"]).fine();
    assert_eq!(weights(&parts), weights(&whole));
}

#[test]
fn it_says_texts_into_files() {
    let place = trained();
    let text = ["say", "zero one", "--run", "runs/v", "--json", "--out", "a.wav", "--picture", "a.svg"];
    let told = json(&place, &text);
    let (rate, seconds) = length(&place.path("a.wav"));
    assert_eq!(rate, 16_000);
    assert!((told["seconds"].as_f64().unwrap() - seconds).abs() < 1e-3, "{told}");
    assert_eq!((&told["parts"], &told["text"]), (&1.into(), &"zero one".into()));
    assert!(["stopped", "cut_off"].contains(&told["ending"].as_str().unwrap()));
    assert!(std::fs::read_to_string(place.path("a.svg")).unwrap().contains("zero one"));
    let bytes = |name: &str| std::fs::read(place.path(name)).unwrap();
    let again = |more: &[&str], out: &str| {
        place.run(&[&["say", "zero one", "--run", "runs/v", "--out", out], more].concat()).fine();
        bytes(out) == bytes("a.wav")
    };
    assert!(again(&[], "b.wav"), "the same seed says the same");
    assert!(!again(&["--seed", "2"], "c.wav"));
    let other = format!("corpus/{}/wavs", names(&place.path("corpus"))[0]);
    let other = format!("{other}/{}", names(&place.path(&other))[1]);
    assert!(!again(&["--speaker", &other], "d.wav"), "another voice says it otherwise");

    place.write("lines.txt", "zero\n\n  one two \n");
    let said = place.run(&["say", "--file", "lines.txt", "--run", "runs/v", "--out-dir", "said"]).fine();
    assert_eq!(names(&place.path("said")), ["0001.wav", "0003.wav"]);
    assert!(said.out.contains("0003.wav"), "{}", said.out);
}

#[test]
fn a_long_text_is_said_in_parts_and_unknown_letters_are_left_out() {
    let place = trained();
    let text = "zero one two, ".repeat(360);
    assert!(text.len() > 5_000);
    let told = json(&place, &["say", &text, "--run", "runs/v", "--json", "--out", "long.wav"]);
    assert!(told["parts"].as_u64().unwrap() > 50, "{}", told["parts"]);
    let said = place.run(&["say", "zerö, one!", "--run", "runs/v", "--out", "u.wav"]).fine();
    assert!(said.err.contains("letters that the model does not know were left out: !,ö"), "{}", said.err);
    let loud = place.run(&["say", "ZERO One", "--run", "runs/v", "--out", "u.wav"]).fine();
    assert!(!loud.err.contains("letters"), "capitals are said as small letters: {}", loud.err);
    // A model that was hardly trained does not stop where it should; the guard says when.
    let cut = place.run(&["say", "zero", "--run", "runs/v", "--out", "z.wav", "--seed", "3"]).fine();
    let (_, seconds) = length(&place.path("z.wav"));
    assert!(seconds < 20.0 && cut.err.contains("was cut off") == (json_ending(&place) == "cut_off"), "{cut:?}");
}

fn json_ending(place: &Place) -> String {
    let told = json(place, &["say", "zero", "--run", "runs/v", "--out", "z.wav", "--seed", "3", "--json"]);
    told["ending"].as_str().unwrap().into()
}

#[test]
fn it_is_judged_by_a_recogniser_and_carried_elsewhere() {
    let place = trained();
    place.train(&["--name", "r", "--steps", "2"]).fine();
    let args = ["eval", "--task", "tts", "--run", "runs/v", "--judge", "runs/r", "--json", "--out-dir", "heard"];
    let told = json(&place, &args);
    for key in ["cer", "wer", "stopped", "off_length", "distance", "rtf"] {
        assert!(told[key].is_number(), "{key}: {told}");
    }
    assert_eq!(told["utterances"].as_u64().unwrap() as usize, names(&place.path("heard")).len());
    let alone = place.run(&["eval", "--run", "runs/v", "--limit", "1", "--table", "t.tsv"]).fine();
    assert!(alone.out.contains("--judge RUN names a recogniser"), "{}", alone.out);

    place.run(&["export", "--run", "runs/v", "--out", "models/v"]).fine();
    let expected = ["README.md", "model.json", "model.safetensors", "vocabulary.json", "voice.wav"];
    assert_eq!(names(&place.path("models/v")), expected);
    let say = |run: &str, out: &str| {
        place.run(&["say", "one two", "--run", run, "--out", out]).fine();
        std::fs::read(place.path(out)).unwrap()
    };
    assert_eq!(say("runs/v", "run.wav"), say("models/v", "model.wav"));
}

#[test]
fn pieces_of_words_and_several_languages_can_be_learned() {
    let place = trained();
    let corpus = format!("corpus/{}", names(&place.path("corpus"))[0]);
    let manifest = std::fs::read_to_string(place.path(&format!("{corpus}/manifest.jsonl"))).unwrap();
    let spoken = |(number, line): (usize, &str)| {
        let mut line: Value = serde_json::from_str(line).unwrap();
        line["language"] = ["en", "mr"][number % 2].into();
        line["audio_filepath"] = format!("{corpus}/{}", line["audio_filepath"].as_str().unwrap()).into();
        format!("{line}\n")
    };
    place.write("two.jsonl", manifest.lines().enumerate().map(spoken).collect::<String>());
    let more = ["--manifest", "two.jsonl", "--set", "data.tokenizer=bpe", "--set", "data.bpe_size=24"];
    train(&place, &[&more[..], &["--name", "two", "--steps", "2"]].concat()).fine();
    let say = |language: &[&str], out: &str| {
        place.run(&[&["say", "one two", "--run", "runs/two", "--out", out], language].concat())
    };
    say(&["--language", "mr"], "mr.wav").fine();
    say(&["--language", "en"], "en.wav").fine();
    say(&[], "any.wav").fine();
    let read = |name: &str| std::fs::read(place.path(name)).unwrap();
    assert!(read("mr.wav") != read("en.wav") && read("mr.wav") != read("any.wav"));
    let refused = say(&["--language", "fr"], "fr.wav");
    assert!(refused.code == Some(2) && refused.err.contains("it knows en, mr"), "{refused:?}");
}

#[test]
fn what_cannot_be_said_is_told_clearly() {
    let place = trained();
    place.write("silent.wav", silence(16_000, 32_000));
    place.write("short.wav", silence(16_000, 100));
    place.write("broken.wav", b"RIFF\x10\x00\x00\x00WAVEfmt \x00\x00");
    place.write("nothing.txt", " \n\n");
    place.write("mixed.txt", "zero\nबरें\none\n");
    place.write("runs/mute/model.json", std::fs::read(place.path("runs/v/model.json")).unwrap());
    place.train(&["--name", "r", "--steps", "1"]).fine();
    let run = ["--run", "runs/v"];
    let mut page = String::new();
    for args in [
        &["say", "", "--run", "runs/v"][..],
        &["say", " \n ", "--run", "runs/v"],
        &["say", "बरें", "--run", "runs/v"],
        &["say", "...", "--run", "runs/v"],
        &["say", "zero", "--run", "runs/v", "--speaker", "silent.wav"],
        &["say", "zero", "--run", "runs/v", "--speaker", "short.wav"],
        &["say", "zero", "--run", "runs/v", "--speaker", "broken.wav"],
        &["say", "zero", "--run", "runs/v", "--speaker", "nowhere.wav"],
        &["say", "zero", "--run", "runs/v", "--language", "mr"],
        &["say", "zero", "--run", "runs/v", "--out", "nowhere/x.wav"],
        &["say", "zero", "--run", "runs/r"],
        &["say", "zero", "--run", "runs/mute"],
        &["say", "zero", "--run", "runs/nowhere"],
        &["say", "--file", "nothing.txt", "--run", "runs/v"],
        &["say", "--file", "nowhere.txt", "--run", "runs/v"],
        &["transcribe", "silent.wav", "--run", "runs/v"],
        &["eval", "--run", "runs/v", "--judge", "runs/v"],
        &["eval", "--run", "runs/v", "--task", "asr"],
        &["eval", "--run", "runs/r", "--judge", "runs/r"],
        &[
            "train",
            "--task",
            "tts",
            "--set",
            "model.attention=truncate",
            "--set",
            "model.max_attention_sequence_length=9",
        ],
        &["train", "--task", "tts", "--set", "model.decoder_dim=30"],
        &["train", "--task", "tts", "--set", "model.decoder_layers=0"],
        &["train", "--task", "tts", "--set", "features.preset=plimsoll"],
        &["train", "--task", "tts", "--set", "data.tokenizer_file=nothing.txt", "--set", "data.corpus_utterances=24"],
    ] {
        let said = place.run(args);
        assert_eq!(said.code, Some(2), "{args:?}: {said:?}");
        for rude in ["panicked", "RUST_BACKTRACE", "src/"] {
            assert!(!said.err.contains(rude), "{args:?}: {}", said.err);
        }
        page += &format!("$ plimsoll {}\n{}\n", args.join(" ").replace('\n', "\\n"), said.err);
    }
    insta::assert_snapshot!(page);
    // One line that cannot be said stops no other.
    let mixed = place.run(&[&["say", "--file", "mixed.txt", "--out-dir", "m"], &run[..]].concat());
    assert_eq!(mixed.code, Some(2));
    assert_eq!(names(&place.path("m")), ["0001.wav", "0003.wav"]);
}
