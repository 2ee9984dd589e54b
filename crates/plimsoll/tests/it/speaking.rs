//! Synthesizers: training, speaking, evaluation, export, and wrong input.

use std::path::Path;

use serde_json::Value;

use crate::program::{ProgramOutput, TestFolder, names, silence};

/// Flags for a corpus and a synthesizer small enough for a step in milliseconds.
pub(crate) const SMALL_VOICE: &[&str] = &[
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

fn train(dir: &TestFolder, more: &[&str]) -> ProgramOutput {
    dir.run(&[&["train"], SMALL_VOICE, more].concat())
}

/// Makes a folder with the run `v` of a synthesizer, after two steps.
fn trained() -> TestFolder {
    trained_as("parallel")
}

/// Makes a folder with the run `v` of a synthesizer of `family`, after two steps.
fn trained_as(family: &str) -> TestFolder {
    let dir = TestFolder::new();
    train(&dir, &["--name", "v", "--steps", "2", "--set", &format!("model.family={family}")]).success();
    dir
}

fn json(dir: &TestFolder, args: &[&str]) -> Value {
    serde_json::from_str(&dir.run(args).success().stdout).unwrap()
}

/// Returns the sample rate in Hz and the length in seconds of a WAV file.
fn length(path: &Path) -> (u32, f64) {
    let wav = hound::WavReader::open(path).unwrap();
    (wav.spec().sample_rate, f64::from(wav.duration()) / f64::from(wav.spec().sample_rate))
}

#[test]
fn run_writes_samples_and_pictures() {
    let dir = TestFolder::new();
    let output = train(&dir, &["--name", "v", "--steps", "4", "--set", "training.validation_interval=2"]).success();
    for expected in ["synthesizer: 1 + 1 blocks", "validated after step 2", "off length", "distance"] {
        assert!(output.stderr.contains(expected), "{expected}: {}", output.stderr);
    }
    assert!(output.stdout.contains("plimsoll say \"TEXT\" --run runs/v"), "{}", output.stdout);
    let of_steps = ["step-000002-1.svg", "step-000002-1.wav", "step-000004-1.svg", "step-000004-1.wav"];
    let expected = [&["best-1.npy", "best-1.wav", "recording-1.wav"], &of_steps[..], &["truth-1.wav"]].concat();
    assert_eq!(names(&dir.path("runs/v/samples")), expected);
    let picture = std::fs::read_to_string(dir.path("runs/v/samples/step-000002-1.svg")).unwrap();
    assert!(picture.starts_with("<svg") && picture.contains("said") && picture.contains("true"));
    let (rate, seconds) = length(&dir.path("runs/v/samples/truth-1.wav"));
    assert!(rate == 16_000 && seconds > 0.3, "{rate} {seconds}");
    assert!(length(&dir.path("runs/v/voice.wav")).1 > 0.3);
    let summary = dir.json("runs/v/summary.json");
    for score in ["distance", "mel", "off length"] {
        assert!(summary[score].is_number(), "{score}: {summary}");
    }
    // A model that predicts lengths always stops.
    assert!(summary["stopped"].is_null(), "{summary}");
    let steps = std::fs::read_to_string(dir.path("runs/v/metrics.jsonl")).unwrap();
    let step: Value = serde_json::from_str(steps.lines().next().unwrap()).unwrap();
    let parts: f64 = step["parts"].as_object().unwrap().values().map(|part| part.as_f64().unwrap()).sum();
    assert!((parts - step["loss"].as_f64().unwrap()).abs() < 1e-5, "{step}");
    assert_eq!(step["parts"].as_object().unwrap().len(), 3);
}

#[test]
fn resumed_run_equals_uninterrupted_run() {
    ["parallel", "autoregressive"].into_iter().for_each(check_resume);
}

fn check_resume(family: &str) {
    let family = format!("model.family={family}");
    let weights = |dir: &TestFolder| {
        let path = dir.path("runs/v/checkpoints/step-0000004/weights.safetensors");
        plimsoll_train::read_weights(&path).unwrap()
    };
    let [whole, parts] = [TestFolder::new(), TestFolder::new()];
    train(&whole, &["--name", "v", "--steps", "4", "--set", &family]).success();
    train(&parts, &["--name", "v", "--steps", "2", "--set", &family]).success();
    parts.run(&["train", "--resume", "runs/v", "--steps", "4"]).success();
    assert_eq!(weights(&parts), weights(&whole));
}

#[test]
fn say_writes_files() {
    check_say("parallel", ["--rate", "2"], ["--seed", "2"]);
    check_say("autoregressive", ["--seed", "2"], ["--rate", "1.5"]);
}

/// Checks the files of `say` with a model of `family`, whose speech the flag `changing` changes. The flag `other` changes
/// nothing, or is refused.
fn check_say(family: &str, changing: [&str; 2], other: [&str; 2]) {
    let dir = trained_as(family);
    let text = ["say", "zero one", "--run", "runs/v", "--json", "--out", "a.wav", "--picture", "a.svg"];
    let report = json(&dir, &text);
    let (rate, seconds) = length(&dir.path("a.wav"));
    assert_eq!(rate, 16_000);
    assert!((report["seconds"].as_f64().unwrap() - seconds).abs() < 1e-3, "{report}");
    assert_eq!((&report["parts"], &report["text"]), (&1.into(), &"zero one".into()));
    assert!(["stopped", "cut_off"].contains(&report["ending"].as_str().unwrap()));
    assert!(std::fs::read_to_string(dir.path("a.svg")).unwrap().contains("zero one"));
    let bytes = |name: &str| std::fs::read(dir.path(name)).unwrap();
    let again = |more: &[&str], out: &str| {
        dir.run(&[&["say", "zero one", "--run", "runs/v", "--out", out], more].concat()).success();
        bytes(out) == bytes("a.wav")
    };
    assert!(again(&[], "b.wav"), "the same seed gives other speech");
    assert!(!again(&changing, "c.wav"), "{changing:?} changes nothing");
    let same = dir.run(&["say", "zero one", "--run", "runs/v", "--out", "e.wav", other[0], other[1]]);
    match same.code {
        Some(0) => assert_eq!(bytes("e.wav"), bytes("a.wav"), "{other:?} changes something"),
        _ => assert!(same.code == Some(2) && same.stderr.contains("speaks at one rate"), "{same:?}"),
    }
    let other = format!("corpus/{}/wavs", names(&dir.path("corpus"))[0]);
    let other = format!("{other}/{}", names(&dir.path(&other))[1]);
    assert!(!again(&["--speaker", &other], "d.wav"), "another voice gives the same speech");

    dir.write("lines.txt", "zero\n\n  one two \n");
    let output = dir.run(&["say", "--file", "lines.txt", "--run", "runs/v", "--out-dir", "said"]).success();
    assert_eq!(names(&dir.path("said")), ["0001.wav", "0003.wav"]);
    assert!(output.stdout.contains("0003.wav"), "{}", output.stdout);
}

#[test]
fn pitch_and_energy_are_steered_where_the_model_learned_them() {
    let dir = TestFolder::new();
    let steps = ["--name", "v", "--steps", "2", "--set", "model.prosody_dim=2"];
    train(&dir, &[&steps[..], &["--set", "model.pitch=true"]].concat()).success();
    let say = |text: &str, more: &[&str]| {
        let args = ["say", text, "--run", "runs/v", "--out", "a.wav", "--force"];
        (dir.run(&[&args[..], more].concat()), std::fs::read(dir.path("a.wav")).unwrap_or_default())
    };
    let (_, plain) = say("five", &[]);
    let span = |attribute: &str| format!("<speak><prosody {attribute}>five</prosody></speak>");
    for (text, more) in
        [("five", ["--pitch", "-2.5"]), ("five", ["--energy", "6"]), (&span("pitch=\"+2st\""), ["--seed", "1"])]
    {
        let (output, changed) = say(text, &more);
        assert!(!output.success().stderr.contains("cannot"), "{more:?}");
        assert!(changed.len() == plain.len() && changed != plain, "{text} {more:?}");
    }
    for (more, reason) in
        [(["--pitch", "20"], "the pitch is 20, not from -12 to 12"), (["--energy", "-13"], "the energy is -13")]
    {
        let (output, _) = say("five", &more);
        assert!(output.code == Some(2) && output.stderr.contains(reason), "{output:?}");
    }
    train(&dir, &["--name", "w", "--steps", "1"]).success();
    let output = dir.run(&["say", "five", "--run", "runs/w", "--out", "b.wav", "--pitch", "2"]);
    assert!(output.code == Some(2) && output.stderr.contains("`--set model.pitch=true`"), "{output:?}");
}

#[test]
fn a_vocoder_is_trained_after_its_voice() {
    let dir = TestFolder::new();
    let share = ["--set", "training.vocoder_share=0.5", "--set", "data.crop_seconds=0.1"];
    // What no vocoder can have is found before the voice is trained.
    let refused = train(&dir, &[&["--name", "v", "--steps", "2"][..], &share].concat());
    assert!(refused.code == Some(2) && refused.stderr.contains("`features.hop_length` is 256"), "{refused:?}");
    assert!(!dir.path("runs").exists());
    let steps = [&["--name", "v", "--steps", "2", "--set", "features.hop_length=128"][..], &share].concat();
    // The plan has both.
    let planned = train(&dir, &[&steps[..], &["--dry-run"]].concat()).success();
    let sizes = ["parallel synthesizer:", "its vocoder, for 50 % of the time of both", "vocoder: 6 blocks"];
    assert!(sizes.iter().all(|text| planned.stderr.contains(text)), "{}", planned.stderr);
    let output = train(&dir, &steps).success();
    assert!(output.stderr.contains("Its vocoder follows, in runs/v/vocoder"), "{}", output.stderr);
    assert!(output.stdout.contains("The voice beside it speaks with this vocoder"), "{}", output.stdout);
    let samples = names(&dir.path("runs/v/samples"));
    let sounds = ["recording-1.wav", "truth-1.wav", "truth-1-vocoder.wav", "best-1.wav", "best-1-vocoder.wav"];
    for expected in sounds.into_iter().chain(["best-1.npy"]) {
        assert!(samples.iter().any(|name| name == expected), "{expected}: {samples:?}");
    }
    let report = std::fs::read_to_string(dir.path("runs/v/report.html")).unwrap();
    for expected in [
        "the recording",
        "from the log-mels of the recording, by the vocoder",
        "said by the best model, by the vocoder",
    ] {
        assert!(report.contains(expected), "{expected}");
    }
    let say = |more: &[&str], out: &str| {
        let output = dir.run(&[&["say", "five", "--run", "runs/v", "--out", out], more].concat()).success();
        (std::fs::read(dir.path(out)).unwrap(), output.stderr)
    };
    assert_eq!(say(&[], "a.wav").0, say(&["--vocoder", "runs/v/vocoder"], "b.wav").0, "the voice has its vocoder");
    // Both are complete: nothing is trained again.
    let sound = || std::fs::read(dir.path("runs/v/samples/best-1-vocoder.wav")).unwrap();
    let before = sound();
    let again = dir.run(&["train", "--resume", "runs/v"]).success();
    assert_eq!(again.stderr.matches("is complete").count(), 2, "{}", again.stderr);
    assert!(sound() == before);
    // A vocoder that has only begun does not keep the voice from speaking.
    std::fs::remove_dir_all(dir.path("runs/v/vocoder/checkpoints")).unwrap();
    assert!(say(&[], "c.wav").1.contains("has no weights yet, so Griffin-Lim makes the sound"));
    dir.run(&["export", "--run", "runs/v", "--out", "models/v"]).success();
    assert!(!dir.path("models/v/vocoder").exists());
    // It goes on with the voice.
    let again = dir.run(&["train", "--resume", "runs/v"]).success();
    assert!(again.stdout.contains("The voice beside it speaks with this vocoder"), "{again:?}");
    std::fs::remove_file(dir.path("runs/v/vocoder/config.toml")).unwrap();
    let refused = dir.run(&["train", "--resume", "runs/v"]);
    assert!(refused.code == Some(2) && refused.stderr.contains("is there already"), "{refused:?}");
}

#[test]
fn long_text_is_split_and_unknown_characters_are_left_out() {
    let dir = trained();
    let text = "zero one two, ".repeat(360);
    assert!(text.len() > 5_000);
    let report = json(&dir, &["say", &text, "--run", "runs/v", "--json", "--out", "long.wav"]);
    assert!(report["parts"].as_u64().unwrap() > 50, "{}", report["parts"]);
    let output = dir.run(&["say", "zerö, one!", "--run", "runs/v", "--out", "u.wav"]).success();
    assert!(output.stderr.contains("characters that the model does not know were left out: !,ö"), "{}", output.stderr);
    let loud = dir.run(&["say", "ZERO One", "--run", "runs/v", "--out", "u.wav", "--force"]).success();
    assert!(!loud.stderr.contains("characters"), "capitals are not lowercased: {}", loud.stderr);
    // A hardly trained model does not stop at the end of the text; the limit of length cuts it off.
    let cut = dir.run(&["say", "zero", "--run", "runs/v", "--out", "z.wav", "--seed", "3"]).success();
    let (_, seconds) = length(&dir.path("z.wav"));
    assert!(seconds < 20.0 && cut.stderr.contains("was cut off") == (json_ending(&dir) == "cut_off"), "{cut:?}");
}

fn json_ending(dir: &TestFolder) -> String {
    let report = json(dir, &["say", "zero", "--run", "runs/v", "--out", "z.wav", "--seed", "3", "--json", "--force"]);
    report["ending"].as_str().unwrap().into()
}

#[test]
fn synthesizer_is_evaluated_by_recognizer_and_exported() {
    ["parallel", "autoregressive"].into_iter().for_each(check_export);
}

fn check_export(family: &str) {
    let dir = trained_as(family);
    dir.train(&["--name", "r", "--steps", "2"]).success();
    let args = ["eval", "--task", "tts", "--run", "runs/v", "--judge", "runs/r", "--json", "--out-dir", "heard"];
    let report = json(&dir, &args);
    for key in ["cer", "wer", "stopped", "off_length", "distance", "rtf"] {
        assert!(report[key].is_number(), "{key}: {report}");
    }
    assert_eq!(report["utterances"].as_u64().unwrap() as usize, names(&dir.path("heard")).len());
    let alone = dir.run(&["eval", "--run", "runs/v", "--limit", "1", "--table", "t.tsv"]).success();
    assert!(alone.stdout.contains("--judge RUN names a recognizer"), "{}", alone.stdout);

    dir.run(&["export", "--run", "runs/v", "--out", "models/v"]).success();
    let expected = ["README.md", "model.json", "model.safetensors", "vocabulary.json", "voice.wav"];
    assert_eq!(names(&dir.path("models/v")), expected);
    let say = |run: &str, out: &str| {
        dir.run(&["say", "one two", "--run", run, "--out", out]).success();
        std::fs::read(dir.path(out)).unwrap()
    };
    assert_eq!(say("runs/v", "run.wav"), say("models/v", "model.wav"));
}

#[test]
fn synthesizer_learns_subwords_and_languages() {
    let dir = trained();
    let corpus = format!("corpus/{}", names(&dir.path("corpus"))[0]);
    let manifest = std::fs::read_to_string(dir.path(&format!("{corpus}/manifest.jsonl"))).unwrap();
    let spoken = |(number, line): (usize, &str)| {
        let mut line: Value = serde_json::from_str(line).unwrap();
        line["language"] = ["en", "mr"][number % 2].into();
        line["audio_filepath"] = format!("{corpus}/{}", line["audio_filepath"].as_str().unwrap()).into();
        format!("{line}\n")
    };
    dir.write("two.jsonl", manifest.lines().enumerate().map(spoken).collect::<String>());
    let more = ["--manifest", "two.jsonl", "--set", "data.tokenizer=bpe", "--set", "data.bpe_size=24"];
    train(&dir, &[&more[..], &["--name", "two", "--steps", "2"]].concat()).success();
    let say = |language: &[&str], out: &str| {
        dir.run(&[&["say", "one two", "--run", "runs/two", "--out", out], language].concat())
    };
    say(&["--language", "mr"], "mr.wav").success();
    say(&["--language", "en"], "en.wav").success();
    say(&[], "any.wav").success();
    let read = |name: &str| std::fs::read(dir.path(name)).unwrap();
    assert!(read("mr.wav") != read("en.wav") && read("mr.wav") != read("any.wav"));
    let refused = say(&["--language", "fr"], "fr.wav");
    assert!(refused.code == Some(2) && refused.stderr.contains("it knows en, mr"), "{refused:?}");
}

#[test]
fn spans_pauses_words_and_formats_are_spoken() {
    let dir = trained();
    let say = |text: &str, out: &str, more: &[&str]| {
        let args = [&["say", text, "--run", "runs/v", "--out", out, "--json"][..], more].concat();
        let output = dir.run(&args).success();
        let samples = plimsoll_audio::read_recording(dir.path(out)).unwrap().samples;
        (samples, output.stderr)
    };
    let (plain, _) = say("five", "plain.wav", &[]);
    let rate = length(&dir.path("plain.wav")).0 as usize;
    // A pause has its length, and a volume its factor.
    let (paused, _) = say(r#"<speak>five<break time="2s"/></speak>"#, "paused.wav", &[]);
    assert!(
        paused.len() == plain.len() + 2 * rate
            && paused[..plain.len()] == plain
            && paused[plain.len()..] == vec![0.0; 2 * rate]
    );
    let quiet = r#"<speak><prosody volume="-20dB" pitch="+2st">five</prosody><foo/></speak>"#;
    let (quiet, warnings) = say(quiet, "quiet.wav", &[]);
    let peak = |samples: &[f32]| samples.iter().fold(0.0_f32, |peak, sample| peak.max(sample.abs()));
    assert!((peak(&quiet) / peak(&plain) - 0.1).abs() < 0.001);
    assert!(warnings.contains("cannot change its pitch") && warnings.contains("the tag `foo`"), "{warnings}");
    let (slow, _) = say(r#"<speak><prosody rate="50%">five</prosody></speak>"#, "slow.wav", &[]);
    assert!(slow.len() > plain.len() * 3 / 2, "{} and {}", slow.len(), plain.len());
    // The other format and the stream hold the same samples.
    assert!(say("five", "plain.flac", &[]).0 == plain);
    let stream = dir.command(&["say", "five", "--run", "runs/v", "--stream"]).output().unwrap().stdout;
    dir.write("stream.wav", stream);
    assert!(plimsoll_audio::read_recording(dir.path("stream.wav")).unwrap().samples == plain);
    // Words are made of what is no word.
    let (words, _) = say("5", "words.wav", &["--normalize", "en"]);
    assert!(words == plain);
}

#[test]
fn speech_mistakes_get_one_message() {
    let dir = trained();
    dir.write("silent.wav", silence(16_000, 32_000));
    dir.write("short.wav", silence(16_000, 100));
    dir.write("broken.wav", b"RIFF\x10\x00\x00\x00WAVEfmt \x00\x00");
    dir.write("nothing.txt", " \n\n");
    dir.write("mixed.txt", "zero\nबरें\none\n");
    dir.write("runs/mute/model.json", std::fs::read(dir.path("runs/v/model.json")).unwrap());
    dir.train(&["--name", "r", "--steps", "1"]).success();
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
        &["train", "--task", "tts", "--set", "model.family=autoregressive", "--set", "model.decoder_dim=30"],
        &["train", "--task", "tts", "--set", "model.decoder_layers=0"],
        &["train", "--task", "tts", "--set", "features.preset=plimsoll"],
        &["train", "--task", "tts", "--set", "data.tokenizer_file=nothing.txt", "--set", "data.corpus_utterances=24"],
    ] {
        let output = dir.run(args);
        assert_eq!(output.code, Some(2), "{args:?}: {output:?}");
        for unwanted in ["panicked", "RUST_BACKTRACE", "src/"] {
            assert!(!output.stderr.contains(unwanted), "{args:?}: {}", output.stderr);
        }
        page += &format!("$ plimsoll {}\n{}\n", args.join(" ").replace('\n', "\\n"), output.stderr);
    }
    insta::assert_snapshot!(page);
    // A line that fails does not stop the others.
    let mixed = dir.run(&[&["say", "--file", "mixed.txt", "--out-dir", "m"], &run[..]].concat());
    assert_eq!(mixed.code, Some(2));
    assert_eq!(names(&dir.path("m")), ["0001.wav", "0003.wav"]);
}
