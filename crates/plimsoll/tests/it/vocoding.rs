//! Vocoders: training, resuming, evaluation, export, and synthesizers that speak with them.

use std::path::Path;

use serde_json::Value;

use crate::program::{ProgramOutput, TestFolder};
use crate::speaking::SMALL_VOICE;

/// Flags for features that a vocoder of `SMALL` has, too.
const FEATURES: &[&str] = &[
    "--set",
    "features.n_mels=20",
    "--set",
    "features.n_fft=256",
    "--set",
    "features.win_length=256",
    "--set",
    "features.hop_length=128",
];

/// Flags for a corpus and a vocoder small enough for a step in milliseconds.
const SMALL: &[&str] = &[
    "--task",
    "vocoder",
    "--set",
    "data.corpus_utterances=24",
    "--set",
    "data.corpus_words=3",
    "--batch-size",
    "4",
    "--d-model",
    "16",
    "--set",
    "data.crop_seconds=0.1",
    "--set",
    "model.vocoder_layers=1",
    "--set",
    "model.discriminator_channels=2",
    "--set",
    "training.samples=1",
];

fn train(dir: &TestFolder, more: &[&str]) -> ProgramOutput {
    dir.run(&[&["train"], SMALL, FEATURES, more].concat())
}

fn json(dir: &TestFolder, args: &[&str]) -> Value {
    serde_json::from_str(&dir.run(args).success().stdout).unwrap()
}

fn weights(dir: &TestFolder, run: &str, step: u64) -> Vec<u8> {
    std::fs::read(dir.path(&format!("runs/{run}/checkpoints/step-{step:07}/weights.safetensors"))).unwrap()
}

fn samples(path: &Path) -> Vec<i16> {
    hound::WavReader::open(path).unwrap().into_samples().map(Result::unwrap).collect()
}

#[test]
fn a_vocoder_is_planned_trained_and_resumed_to_the_last_bit() {
    let dir = TestFolder::new();
    let plan = train(&dir, &["--dry-run"]).success();
    assert!(plan.stderr.contains("vocoder: 1 block of width 16") && !dir.path("corpus").exists(), "{}", plan.stderr);
    let every_second = ["--set", "training.checkpoint_interval=2", "--set", "training.validation_interval=2"];
    let whole = train(&dir, &[&["--name", "whole", "--steps", "6"][..], &every_second].concat()).success();
    for expected in ["validated after step 2", "distance", "griffin-lim", "1 padded shape"] {
        assert!(whole.stderr.contains(expected) || whole.stdout.contains(expected), "{expected}: {}", whole.stderr);
    }
    for name in ["recording-1.wav", "griffin-lim-1.wav", "step-000002-1.wav", "step-000006-1.wav"] {
        assert!(dir.path("runs/whole/samples").join(name).is_file(), "{name}");
    }
    // Each limit has a schedule of its own, unless it is constant.
    let constant = ["--set", "training.schedule=constant"];
    let run = |name: &str, steps: &str| {
        let args = [&["--name", name, "--steps", steps][..], &every_second, &constant].concat();
        train(&dir, &args).success();
    };
    run("a", "6");
    run("b", "4");
    dir.run(&["train", "--resume", "runs/b", "--steps", "6"]).success();
    assert_eq!(weights(&dir, "a", 6), weights(&dir, "b", 6));
    assert_ne!(weights(&dir, "a", 6), weights(&dir, "b", 4));
}

#[test]
fn a_vocoder_is_evaluated_and_exported_and_speaks_for_a_synthesizer() {
    let dir = TestFolder::new();
    train(&dir, &["--name", "sound", "--steps", "2"]).success();
    let report = json(&dir, &["eval", "--run", "runs/sound", "--json", "--out-dir", "heard", "--limit", "1"]);
    assert_eq!(report["utterances"], 1);
    let distance = |way: &str| report[way]["distance"].as_f64().unwrap();
    // A vocoder of two steps knows no level, and the rounds behind it do.
    assert!(distance("griffin_lim") > 0.0 && distance("vocoder") < 0.5 * distance("network"), "{report}");
    assert_eq!(std::fs::read_dir(dir.path("heard")).unwrap().count(), 1);
    let refused = dir.run(&["eval", "--run", "runs/sound", "--details"]);
    assert!(refused.code == Some(2) && refused.stderr.contains("--details"), "{}", refused.stderr);

    dir.run(&[&["train"], SMALL_VOICE, FEATURES, &["--name", "voice", "--steps", "2"]].concat()).success();
    let say =
        |more: &[&str], out: &str| dir.run(&[&["say", "one", "--run", "runs/voice", "--out", out], more].concat());
    say(&[], "plain.wav").success();
    say(&["--vocoder", "runs/sound"], "neural.wav").success();
    dir.run(&["export", "--run", "runs/sound", "--out", "exported"]).success();
    say(&["--vocoder", "exported"], "exported.wav").success();
    // An export into the folder of the synthesizer is used without a flag.
    dir.run(&["export", "--run", "runs/sound", "--out", "runs/voice/vocoder"]).success();
    say(&[], "own.wav").success();
    let [plain, neural, exported, own] =
        ["plain", "neural", "exported", "own"].map(|name| samples(&dir.path(&format!("{name}.wav"))));
    assert_ne!(plain, neural);
    assert!(neural == exported && neural == own);
    // It goes along when the synthesizer is exported.
    dir.run(&["export", "--run", "runs/voice", "--out", "whole"]).success();
    dir.run(&["say", "one", "--run", "whole", "--out", "whole.wav"]).success();
    assert_eq!(samples(&dir.path("whole.wav")), own);
}

#[test]
fn a_vocoder_of_other_features_is_refused() {
    let dir = TestFolder::new();
    train(&dir, &["--name", "sound", "--steps", "1", "--set", "features.hop_length=64"]).success();
    dir.run(&[&["train"], SMALL_VOICE, FEATURES, &["--name", "voice", "--steps", "1"]].concat()).success();
    let refused = dir.run(&["say", "one", "--run", "runs/voice", "--vocoder", "runs/sound"]);
    assert_eq!(refused.code, Some(2));
    assert!(refused.stderr.contains("hop 64") && refused.stderr.contains("hop 128"), "{}", refused.stderr);
    let refused = dir.run(&["say", "one", "--run", "runs/sound"]);
    assert!(refused.code == Some(2) && refused.stderr.contains("a vocoder"), "{}", refused.stderr);
    let refused = dir.run(&["transcribe", "x.wav", "--run", "runs/sound"]);
    assert_eq!(refused.code, Some(2), "{}", refused.stderr);
    // A crop that is shorter than a Fourier transform of the features, and features that cannot become sound.
    for wrong in ["data.crop_seconds=0.001", "features.preset=whisper", "model.vocoder_kernel=4"] {
        let refused = train(&dir, &["--dry-run", "--set", wrong]);
        assert_eq!(refused.code, Some(2), "{wrong}: {}", refused.stderr);
    }
}
