//! Using trained recognizers: transcription, evaluation, export, and model sizes.

use plimsoll_train::read_weights;
use serde_json::Value;

use crate::program::{SMALL, TestFolder, names, silence};

/// Folder of the built-in corpus of `trained`.
pub(crate) const CORPUS: &str = "corpus/formant-24x4-seed1";

/// Makes a folder with the run `r` of a recognizer, after two steps.
pub(crate) fn trained() -> TestFolder {
    let dir = TestFolder::new();
    dir.train(&["--name", "r", "--steps", "2"]).success();
    dir
}

/// Returns the path of a recording of the built-in corpus in `dir`.
pub(crate) fn recording(dir: &TestFolder) -> String {
    format!("{CORPUS}/wavs/{}", names(&dir.path(CORPUS).join("wavs"))[0])
}

/// Runs the program, asserts success, and parses the JSON that it printed.
fn json(dir: &TestFolder, args: &[&str]) -> Value {
    serde_json::from_str(&dir.run(args).success().stdout).unwrap()
}

/// Runs the program, and asserts exit code 2, no output, and an error message that contains `expected`.
fn refused(dir: &TestFolder, args: &[&str], expected: &str) {
    let output = dir.run(args);
    assert_eq!(output.code, Some(2), "{args:?}: {output:?}");
    assert!(output.stdout.is_empty() && output.stderr.contains(expected), "{args:?}: {output:?}");
}

#[test]
fn eval_equals_validation_of_training() {
    let dir = trained();
    // The search that was tuned: with the language of the texts, where that helped.
    let (tuned, by_default) = (dir.json("runs/r/search.json"), json(&dir, &["eval", "--run", "runs/r", "--json"]));
    let rates = if tuned["helps"].as_bool().unwrap() { &tuned["with_language"] } else { &tuned["greedy"] };
    for (rate, place) in [("cer", 0), ("wer", 1)] {
        let apart = by_default[rate].as_f64().unwrap() - rates[place].as_f64().unwrap();
        assert!(apart.abs() < 1e-9, "{rate}: {by_default} {tuned}");
    }
    let greedy = ["eval", "--run", "runs/r", "--json", "--worst", "2", "--table", "table.tsv", "--lm", "none"];
    let (found, summary) = (json(&dir, &greedy), dir.json("runs/r/summary.json"));
    for rate in ["cer", "wer"] {
        let apart = found[rate].as_f64().unwrap() - summary[rate].as_f64().unwrap();
        assert!(apart.abs() < 1e-9, "{rate}: {found} {summary}");
    }
    assert_eq!(found["utterances"], summary["held_out"]);
    let counts = &found["counts"]["characters"];
    let count = |name: &str| counts[name].as_f64().unwrap();
    let wrong = count("substitutions") + count("deletions") + count("insertions");
    let truth = count("hits") + count("substitutions") + count("deletions");
    assert!((found["cer"].as_f64().unwrap() - wrong / truth).abs() < 1e-9, "{found}");
    assert!(found["rtf"].as_f64().unwrap() > 0.0, "{found}");
    assert_eq!(found["worst"].as_array().unwrap().len(), 2);
    let table = std::fs::read_to_string(dir.path("table.tsv")).unwrap();
    assert_eq!(table.lines().count() as u64, found["utterances"].as_u64().unwrap() + 1);
    assert!(table.starts_with("name\tseconds\t") && table.lines().all(|line| line.split('\t').count() == 8), "{table}");
}

#[test]
fn eval_reads_manifest_and_lists_unreadable_utterances() {
    let dir = trained();
    let manifest = format!("{CORPUS}/manifest.jsonl");
    let all = json(&dir, &["eval", "--run", "runs/r", "--manifest", &manifest, "--json"]);
    assert_eq!((all["utterances"].as_u64(), all["worst"].as_array().unwrap().len()), (Some(24), 5));
    dir.write("broken.wav", b"RIFF\x10\x00\x00\x00WAVEfmt \x00\x00");
    let line = |file: &str| format!("{{\"audio_filepath\": \"{file}\", \"text\": \"one two\", \"duration\": 0.5}}\n");
    dir.write("broken.jsonl", line("broken.wav"));
    dir.write("mixed.jsonl", line("broken.wav") + &line(&recording(&dir)));
    // The result is printed, and the exit code says that a part of the list is missing.
    let share = "data.unusable_share=0.5";
    let mixed = ["eval", "--run", "runs/r", "--manifest", "mixed.jsonl"];
    let partly = dir.run(&[&mixed[..], &["--json"]].concat());
    assert_eq!(partly.code, Some(2), "{}", partly.stderr);
    assert!(partly.stderr.contains("50.0 % of the utterances cannot be used"), "{}", partly.stderr);
    assert_eq!(serde_json::from_str::<Value>(&partly.stdout).unwrap()["utterances"], 1);
    refused(&dir, &[&mixed[..], &["--set", "seed=3"]].concat(), "an evaluation has the settings of the run");
    let mixed = json(&dir, &[&mixed[..], &["--set", share, "--json"]].concat());
    assert_eq!(mixed["utterances"], 1, "{mixed}");
    assert_eq!(mixed["skipped"][0]["name"], "broken.wav", "{mixed}");
    let output = dir.run(&["eval", "--run", "runs/r", "--manifest", "mixed.jsonl", "--set", share]).success();
    for expected in ["CER", "WER", "real-time factor", "truth    one two", "1 more could not be read"] {
        assert!(output.stdout.contains(expected), "{expected}: {}", output.stdout);
    }
    refused(&dir, &["eval", "--run", "runs/r", "--manifest", "broken.jsonl"], "none of 1 utterance can be read");
    refused(&dir, &["eval", "--run", "runs/r", "--table", "no/such/folder.tsv"], "cannot write");
    refused(&dir, &["eval", "--run", "runs/nowhere"], "there is no run in runs/nowhere, and none of that name");
}

/// Replaces a letter of all texts of a list by another one.
pub(crate) fn write_accents(dir: &TestFolder, list: &str) {
    let other = |line: &str| {
        let mut line: Value = serde_json::from_str(line).unwrap();
        line["text"] = line["text"].as_str().unwrap().replace('e', "é").into();
        format!("{line}\n")
    };
    let lines = std::fs::read_to_string(dir.path(list)).unwrap();
    dir.write(list, lines.lines().map(other).collect::<String>());
}

/// One of 24 listed utterances is missing: less than a run accepts, however few of the others are evaluated.
#[test]
fn a_share_is_that_of_the_whole_list() {
    let dir = trained();
    let list = std::fs::read_to_string(dir.path(&format!("{CORPUS}/manifest.jsonl"))).unwrap();
    let list = list.replacen(".wav", ".gone", 1);
    dir.write(&format!("{CORPUS}/gone.jsonl"), list);
    let manifest = format!("{CORPUS}/gone.jsonl");
    for more in [&[][..], &["--limit", "4"]] {
        let eval = ["eval", "r", "--manifest", manifest.as_str(), "--json"];
        let found = json(&dir, &[&eval[..], more].concat());
        assert_eq!(found["missing"], 1, "{found}");
    }
    let all = dir.run(&["data", "pack", manifest.as_str(), "--out", "packed", "--to", "webdataset"]);
    assert_eq!(all.code, Some(0), "{all:?}");
}

/// What is no run is named as one that is not there, by every command that reads one.
#[test]
fn what_is_no_run_gets_one_message() {
    let dir = TestFolder::new();
    std::fs::create_dir_all(dir.path("runs/hollow")).unwrap();
    dir.write("file", "x");
    let odd = ["nowhere", "runs/hollow", "file"];
    for named in odd {
        refused(&dir, &["scale", "--run", named], "there is no run in");
        refused(&dir, &["monitor", named, "--once"], "there is no run in");
    }
    for named in ["nowhere", "file"] {
        for command in [&["eval"][..], &["export", "--out", "x"], &["report"], &["runs", "show"]] {
            refused(&dir, &[command, &[named]].concat(), "there is no run in");
        }
    }
    // A vocoder has no attention that its width is divided into.
    let vocoder = ["train", "--task", "vocoder", "--d-model", "30", "--steps", "1", "--dry-run"];
    dir.run(&vocoder).success();
}

#[test]
fn eval_refuses_changed_texts() {
    let dir = TestFolder::new();
    dir.run(&["corpus", "make", "--out", "c", "--utterances", "12", "--speakers", "4"]).success();
    dir.train(&["--name", "r", "--steps", "1", "--manifest", "c/manifest.jsonl"]).success();
    json(&dir, &["eval", "--run", "runs/r", "--json"]);
    write_accents(&dir, "c/manifest.jsonl");
    refused(&dir, &["eval", "--run", "runs/r"], "have changed");
}

#[test]
fn decoder_search_needs_decoder() {
    let dir = trained();
    let file = recording(&dir);
    for search in ["attention", "joint", "rescore"] {
        for args in [&["eval"][..], &["transcribe", file.as_str()]] {
            let args = [args, &["--run", "runs/r", "--search", search]].concat();
            refused(&dir, &args, "no attention decoder");
        }
    }
    refused(&dir, &["eval", "--run", "runs/r", "--ctc-weight", "7"], "a share from 0 to 1");
    dir.train(&["--name", "d", "--steps", "1", "--set", "model.decoder_layers=1"]).success();
    for search in ["greedy", "prefix-beam", "attention", "joint", "rescore"] {
        let width: &[&str] = if search == "greedy" { &[] } else { &["--width", "2"] };
        let found = json(&dir, &[&["eval", "--run", "runs/d", "--search", search, "--json"], width].concat());
        assert_eq!(found["search"]["kind"], search.replace('-', "_"));
    }
}

#[test]
fn broken_recording_does_not_stop_others() {
    let dir = trained();
    dir.write("broken.wav", b"RIFF\x10\x00\x00\x00WAVEfmt \x00\x00");
    let file = recording(&dir);
    assert!(std::process::Command::new("mkfifo").arg(dir.path("pipe.wav")).status().unwrap().success());
    let args = ["transcribe", "broken.wav", file.as_str(), "nowhere.wav", "pipe.wav", "--run", "runs/r"];
    let output = dir.run(&args);
    assert_eq!((output.code, output.stdout.lines().count()), (Some(2), 1), "{output:?}");
    assert!(output.stdout.starts_with(&file), "{}", output.stdout);
    for name in ["broken.wav", "nowhere.wav", "pipe.wav"] {
        assert!(output.stderr.contains(&format!("error: {name}: ")), "{}", output.stderr);
    }
    let output = dir.run(&[&args[..], &["--json"]].concat());
    let lines: Vec<Value> = output.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((output.code, lines.len()), (Some(2), 4), "{}", output.stdout);
    assert!(lines[3]["error"].as_str().unwrap().contains("it is a named pipe, not a file"), "{}", lines[3]);
    assert!(lines[0]["error"].is_string() && lines[1]["text"].is_string() && lines[2]["error"].is_string());
    assert!(lines[1]["seconds"].as_f64().unwrap() > 0.1, "{}", lines[1]);
}

#[test]
fn recording_beyond_training_lengths_is_transcribed() {
    let dir = trained();
    dir.write("long.wav", silence(16_000, 100 * 16_000));
    let line = json(&dir, &["transcribe", "long.wav", "--run", "runs/r", "--json"]);
    assert_eq!(line["seconds"].as_f64(), Some(100.0));
}

#[test]
fn truncation_is_reported_in_training_and_transcription_hears_everything() {
    let dir = TestFolder::new();
    let mut cut = vec!["--set", "model.attention=truncate", "--set", "model.max_attention_sequence_length=20"];
    // Most utterances have more text than 20 frames can say.
    cut.extend(["--set", "data.unusable_share=1"]);
    dir.train(&[&["--name", "r", "--steps", "2"], &cut[..]].concat()).success();
    let summary = std::fs::read_to_string(dir.path("runs/r/summary.md")).unwrap();
    assert!(summary.contains("cut to `model.max_attention_sequence_length`"), "{summary}");
    dir.write("long.wav", silence(16_000, 10 * 16_000));
    // A recording is computed in parts that the model does not cut.
    let output = dir.run(&["transcribe", "long.wav", "--run", "runs/r"]).success();
    assert!(!output.stderr.contains("the end is cut"), "{output:?}");
}

#[test]
fn recognizer_learns_subwords() {
    let dir = TestFolder::new();
    let more = ["--set", "data.tokenizer=bpe", "--set", "data.bpe_size=60", "--name", "b", "--steps", "2"];
    let output = dir.train(&more).success();
    assert!(output.stderr.contains("60 tokens"), "{}", output.stderr);
    dir.run(&["transcribe", &recording(&dir), "--run", "runs/b"]).success();
    dir.run(&["eval", "--run", "runs/b"]).success();
    // Another run can use its tokens.
    let file = "data.tokenizer_file=runs/b/model.json";
    let output = dir.train(&["--set", file, "--name", "c", "--steps", "1"]).success();
    assert!(output.stderr.contains("60 tokens"), "{}", output.stderr);
}

#[test]
fn exported_model_equals_run() {
    let dir = trained();
    let output = dir.run(&["export", "--run", "runs/r", "--out", "models/r"]).success();
    let expected =
        ["README.md", "model.json", "model.safetensors", "search.json", "spelling.lm", "texts.lm", "vocabulary.json"];
    assert_eq!(names(&dir.path("models/r")), expected);
    assert!(expected.iter().all(|name| output.stdout.contains(name)), "{}", output.stdout);
    let exported = read_weights(&dir.path("models/r/model.safetensors")).unwrap();
    let kept = read_weights(&dir.path("runs/r/checkpoints/step-0000002/weights.safetensors")).unwrap();
    assert_eq!(exported, kept);
    let vocabulary = dir.json("models/r/vocabulary.json");
    assert_eq!(vocabulary[3], "<eos>");
    assert_eq!(vocabulary.as_array().unwrap().len() as u64, dir.json("models/r/model.json")["model"]["vocabulary"]);

    let wavs = format!("{CORPUS}/wavs");
    let read = |run: &str| dir.run(&["transcribe", &wavs, "--run", run, "--json"]).success().stdout;
    assert_eq!(read("models/r"), read("runs/r"));

    refused(&dir, &["eval", "--run", "models/r"], "--manifest FILE");
    refused(&dir, &["export", "--run", "runs/r", "--out", "models/r"], "models/r is not empty");
    dir.run(&["export", "--run", "runs/r", "--out", "models/r", "--step", "newest", "--force"]).success();
    refused(&dir, &["export", "--run", "runs/nowhere", "--out", "models/x"], "there is no run in runs/nowhere");
    assert!(!dir.path("models/x").exists());
}

#[test]
fn model_info_counts_parameters() {
    let dir = TestFolder::new();
    let info = |flags: &[&str]| dir.run(&[&["model", "info"], SMALL, flags].concat()).success().stdout;
    let flags = ["--set", "model.vocabulary=200", "--set", "model.encoder_layers=2", "--set", "model.decoder_layers=2"];
    let found: Value = serde_json::from_str(&info(&[&flags[..], &["--json"]].concat())).unwrap();
    let parts = found["parts"].as_array().unwrap();
    let sum: u64 = parts.iter().map(|part| part["parameters"].as_u64().unwrap()).sum();
    assert_eq!(found["parameters"], sum);
    for (key, expected) in
        [("vocabulary", 200), ("d_model", 16), ("layers", 2), ("decoder_layers", 2), ("subsampling", 4)]
    {
        assert_eq!(found[key], expected, "{key}");
    }
    // 200 tokens of width 16, and a bias for each.
    let output = parts.iter().find(|part| part["name"] == "output").unwrap();
    assert_eq!(output["parameters"], 200 * 16 + 200);
    let text = info(&flags);
    assert!(text.contains("3,400") && text.contains("2 x ") && text.contains("decoder.embedding"), "{text}");

    let nothing = [&["model", "info"], SMALL].concat();
    refused(&dir, &nothing, "model.vocabulary=N");
    dir.train(&["--name", "r", "--steps", "1"]).success();
    let known = json(&dir, &[&nothing[..], &["--json"]].concat());
    let plan: toml::Table = std::fs::read_to_string(dir.path("runs/r/plan.toml")).unwrap().parse().unwrap();
    assert_eq!(known["parameters"].as_u64(), plan["parameters"].as_integer().map(|n| n as u64));
}
