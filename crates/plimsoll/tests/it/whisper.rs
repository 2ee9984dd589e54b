//! Whisper models of Hugging Face: trained further, with and without adapters, used, and written.

use std::path::{Path, PathBuf};

use plimsoll_train::read_weights;

use crate::program::{ProgramOutput, TestFolder};

/// Folder of a small random model, which hears half a second at once.
fn fixture() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/data/whisper")
}

fn train(dir: &TestFolder, from: &str, more: &[&str]) -> ProgramOutput {
    let data = ["--data", "c/manifest.jsonl", "--steps", "2", "--batch-size", "4", "--set", "data.too_long=truncate"];
    dir.run(&[&["train", "--from", from], &data[..], more].concat())
}

fn refused(output: &ProgramOutput, expected: &str) {
    assert_eq!(output.code, Some(2), "{output:?}");
    assert!(output.stderr.contains(expected), "{expected}: {}", output.stderr);
}

fn made() -> (TestFolder, String) {
    let dir = TestFolder::new();
    dir.run(&["corpus", "make", "--out", "c", "--utterances", "16", "--speakers", "4"]).success();
    (dir, fixture().display().to_string())
}

/// Returns a recording of the corpus.
fn wav(dir: &TestFolder) -> String {
    let list = std::fs::read_to_string(dir.path("c/manifest.jsonl")).unwrap();
    let first: serde_json::Value = serde_json::from_str(list.lines().next().unwrap()).unwrap();
    format!("c/{}", first["audio_filepath"].as_str().or(first["audio"].as_str()).unwrap())
}

#[test]
fn a_model_of_hugging_face_is_trained_used_and_written() {
    let (dir, base) = made();
    let plan = train(&dir, &base, &["--dry-run"]).success().stderr;
    assert!(plan.contains("Whisper: 2 + 2 blocks of width 16"), "{plan}");
    assert!(plan.contains("58 of 58 tensors") || plan.contains("tensors\n"), "{plan}");
    assert!(plan.contains("features of the model") || plan.contains("follow the model"), "{plan}");
    train(&dir, &base, &["--name", "run"]).success();
    dir.run(&["train", "--resume", "run", "--steps", "3"]).success();
    assert_eq!(dir.json("runs/run/summary.json")["steps"], 3);
    let wav = wav(&dir);
    dir.run(&["transcribe", &wav, "--run", "run"]).success();
    dir.run(&["eval", "run"]).success();
    dir.run(&["export", "run", "--out", "out"]).success();
    for file in
        ["config.json", "model.safetensors", "tokenizer.json", "generation_config.json", "preprocessor_config.json"]
    {
        assert!(dir.path("out").join(file).is_file(), "{file}");
    }
    // What was written says what the run says, and is a beginning in its turn.
    let said = |run: &str| {
        dir.run(&["transcribe", &wav, "--run", run, "--search", "attention", "--width", "2"]).success().stdout
    };
    assert_eq!(said("run"), said("out"));
    train(&dir, "out", &["--name", "again"]).success();
}

#[test]
fn adapters_are_trained_alone_and_merged() {
    let (dir, base) = made();
    let lora = ["--set", "training.lora_rank=4", "--set", "training.learning_rate=0.1", "--name", "lora"];
    let plan = train(&dir, &base, &[&lora[..], &["--dry-run"]].concat()).success().stderr;
    assert!(plan.contains("of them trained"), "{plan}");
    train(&dir, &base, &lora).success();
    let read = |file: PathBuf| read_weights(&file).unwrap();
    let saved = read(dir.path("runs/lora/checkpoints/step-0000002/weights.safetensors"));
    let (adapters, weights): (Vec<_>, Vec<_>) = saved.iter().partition(|tensor| tensor.name.contains(".lora."));
    assert!(adapters.len() > 20 && adapters.iter().any(|one| one.name.ends_with(".b") && one.values[0] != 0.0));
    // No weight moved; what is exported is the sum.
    dir.run(&["export", "lora", "--out", "out"]).success();
    let (first, written) = (read(fixture().join("model.safetensors")), read(dir.path("out/model.safetensors")));
    let same = |name: &str| {
        let find = |list: &[plimsoll_tape::NamedTensor]| {
            list.iter().find(|tensor| tensor.name == name).unwrap().values.clone()
        };
        find(&first) == find(&written)
    };
    assert!(same("model.decoder.embed_tokens.weight") && same("model.encoder.layer_norm.weight"));
    assert!(!same("model.encoder.layers.0.fc1.weight") && !same("model.decoder.layers.1.encoder_attn.q_proj.weight"));
    let embedding = weights.iter().find(|tensor| tensor.name == "decoder.embedding.weight").unwrap();
    let original = first.iter().find(|tensor| tensor.name == "model.decoder.embed_tokens.weight").unwrap();
    assert_eq!(embedding.values, original.values);
    // A run goes on with its adapters, and another begins with the sum.
    dir.run(&["train", "--resume", "lora", "--steps", "3"]).success();
    let other = ["train", "--resume", "lora", "--steps", "4", "--set", "training.lora_alpha=64"];
    refused(&dir.run(&other), "were trained with another `training.lora_alpha`");
    train(&dir, "lora", &["--name", "next"]).success();
    refused(
        &train(&dir, &base, &["--set", "training.lora_rank=4", "--set", "training.lora_targets=[\"atention\"]"]),
        "no linear layer of this model is called `atention`",
    );
    refused(&train(&dir, &base, &["--set", "training.lora_rank=0"]), "training.lora_rank");
}

#[test]
fn what_a_whisper_model_cannot_do_is_said() {
    let (dir, base) = made();
    let wav = wav(&dir);
    refused(&dir.run(&["transcribe", &wav, "--run", &base, "--search", "joint"]), "has no CTC");
    refused(
        &dir.run(&["transcribe", &wav, "--run", &base, "--hotwords", "a"]),
        "work with CTC, which Whisper does not have",
    );
    refused(&dir.run(&["transcribe", &wav, "--run", &base, "--language", "xx"]), "it has no language `xx`");
    refused(&dir.run(&["transcribe", "-", "--run", &base]), "cannot transcribe a stream");
    refused(&train(&dir, &base, &["--set", "data.language=xx"]), "the model has no language `xx`");
    refused(&dir.run(&["train", "--set", "model.family=whisper", "--steps", "1"]), "begin with a trained model");
    std::fs::create_dir(dir.path("empty")).unwrap();
    std::fs::write(dir.path("empty/config.json"), r#"{"model_type": "whisper"}"#).unwrap();
    refused(&train(&dir, "empty", &[]), "has no number `d_model`");
    std::fs::write(dir.path("empty/config.json"), r#"{"model_type": "wav2vec2"}"#).unwrap();
    refused(&train(&dir, "empty", &[]), "a model of the kind `wav2vec2`, which this version does not have");
    refused(&dir.run(&["align", &wav, "--run", &base, "--text-file", "c/manifest.jsonl"]), "a Whisper model");
}

#[test]
fn a_whisper_model_judges_the_speech_of_a_synthesizer() {
    let (dir, base) = made();
    dir.run(&[&["train", "--steps", "1", "--name", "v"], crate::speaking::SMALL_VOICE].concat()).success();
    let args = ["eval", "v", "--judge", &base, "--limit", "2", "--json"];
    let report: serde_json::Value = serde_json::from_str(&dir.run(&args).success().stdout).unwrap();
    assert_eq!(report["judge"].as_str(), Some(base.as_str()), "{report}");
    assert!(report["cer"].is_number(), "{report}");
}

#[test]
fn a_model_that_writes_capitals_is_compared_without_them() {
    let (dir, base) = made();
    dir.run(&[
        "train",
        "--data",
        "c/manifest.jsonl",
        "--steps",
        "2",
        "--name",
        "letters",
        "--set",
        "data.lowercase=true",
    ])
    .success();
    train(&dir, &base, &["--name", "whisper"]).success();
    train(&dir, &base, &["--name", "lowered", "--set", "data.lowercase=true"]).success();
    let compare = |run: &str, other: &str| {
        let shown = ["eval", "--run", run, "--compare", other, "--manifest", "c/manifest.jsonl", "--limit", "3"];
        let text = dir.run(&shown).success().stdout;
        let json = dir.run(&[&shown[..], &["--json"]].concat()).success().stdout;
        (text, serde_json::from_str::<serde_json::Value>(&json).unwrap())
    };
    for (run, other) in [("letters", "whisper"), ("whisper", "letters"), ("lowered", "whisper")] {
        let (text, json) = compare(run, other);
        assert!(text.contains("without capitals and punctuation"), "{text}");
        assert_eq!(json["comparison"]["without_capitals_and_punctuation"], true);
        let texts = json["comparison"]["changes"]
            .as_array()
            .unwrap()
            .iter()
            .map(|change| change["reference"].as_str().unwrap());
        assert!(texts.clone().all(|text| text == text.to_lowercase()), "{json}");
    }
    let (text, json) = compare("letters", "letters");
    assert!(!text.contains("without capitals") && json["comparison"]["without_capitals_and_punctuation"] == false);
}

#[test]
fn other_tokens_than_those_of_the_model_are_refused() {
    let (dir, base) = made();
    // Tokens of another model, and those of the model itself.
    dir.run(&["train", "--data", "c/manifest.jsonl", "--steps", "1", "--name", "letters"]).success();
    let tokenizer = "data.tokenizer_file=runs/letters/model.json";
    for (set, key) in [
        ("data.tokenizer=bpe", "`data.tokenizer` gives other tokens"),
        (tokenizer, "`data.tokenizer_file` gives other tokens"),
    ] {
        refused(&train(&dir, &base, &["--dry-run", "--set", set]), key);
    }
    let own = format!("data.tokenizer_file={}", fixture().join("tokenizer.json").display());
    train(&dir, &base, &["--dry-run", "--set", &own]).success();
}
