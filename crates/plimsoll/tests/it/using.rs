//! What a trained model is good for: reading, being judged, being carried elsewhere; and how large one will be.

use plimsoll_train::read_weights;
use serde_json::Value;

use crate::program::{Place, SMALL, names, silence};

const CORPUS: &str = "corpus/formant-24x4-seed1";

/// A place with the run `r`, after two steps.
fn trained() -> Place {
    let place = Place::new();
    place.train(&["--name", "r", "--steps", "2"]).fine();
    place
}

/// One of the corpus's recordings, from the place.
fn recording(place: &Place) -> String {
    format!("{CORPUS}/wavs/{}", names(&place.path(CORPUS).join("wavs"))[0])
}

/// What the program printed as JSON.
fn json(place: &Place, args: &[&str]) -> Value {
    serde_json::from_str(&place.run(args).fine().out).unwrap()
}

/// The program ends with code 2 and says nothing but `expected`.
fn refused(place: &Place, args: &[&str], expected: &str) {
    let said = place.run(args);
    assert_eq!(said.code, Some(2), "{args:?}: {said:?}");
    assert!(said.out.is_empty() && said.err.contains(expected), "{args:?}: {said:?}");
}

#[test]
fn the_held_out_voices_are_judged_as_training_judged_them() {
    let place = trained();
    let found = json(&place, &["eval", "--run", "runs/r", "--json", "--worst", "2", "--table", "table.tsv"]);
    let summary = place.json("runs/r/summary.json");
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
    let table = std::fs::read_to_string(place.path("table.tsv")).unwrap();
    assert_eq!(table.lines().count() as u64, found["utterances"].as_u64().unwrap() + 1);
    assert!(table.starts_with("name\tseconds\t") && table.lines().all(|line| line.split('\t').count() == 8), "{table}");
}

#[test]
fn any_corpus_can_be_judged_and_what_cannot_be_read_is_listed() {
    let place = trained();
    let manifest = format!("{CORPUS}/manifest.jsonl");
    let all = json(&place, &["eval", "--run", "runs/r", "--manifest", &manifest, "--json"]);
    assert_eq!((all["utterances"].as_u64(), all["worst"].as_array().unwrap().len()), (Some(24), 5));
    place.write("broken.wav", b"RIFF\x10\x00\x00\x00WAVEfmt \x00\x00");
    let line = |file: &str| format!("{{\"audio_filepath\": \"{file}\", \"text\": \"one two\", \"duration\": 0.5}}\n");
    place.write("broken.jsonl", line("broken.wav"));
    place.write("mixed.jsonl", line("broken.wav") + &line(&recording(&place)));
    let mixed = json(&place, &["eval", "--run", "runs/r", "--manifest", "mixed.jsonl", "--json"]);
    assert_eq!(mixed["utterances"], 1, "{mixed}");
    assert_eq!(mixed["skipped"][0]["name"], "broken.wav", "{mixed}");
    let said = place.run(&["eval", "--run", "runs/r", "--manifest", "mixed.jsonl"]).fine();
    for expected in ["CER", "WER", "real-time factor", "truth    one two", "1 more could not be read"] {
        assert!(said.out.contains(expected), "{expected}: {}", said.out);
    }
    refused(&place, &["eval", "--run", "runs/r", "--manifest", "broken.jsonl"], "none of 1 utterances can be read");
    refused(&place, &["eval", "--run", "runs/r", "--table", "no/such/folder.tsv"], "cannot write");
    refused(&place, &["eval", "--run", "runs/nowhere"], "no trained model");
}

#[test]
fn other_texts_than_those_of_the_training_are_noticed() {
    let place = Place::new();
    place.run(&["corpus", "make", "--out", "c", "--utterances", "12", "--speakers", "4"]).fine();
    place.train(&["--name", "r", "--steps", "1", "--manifest", "c/manifest.jsonl"]).fine();
    json(&place, &["eval", "--run", "runs/r", "--json"]);
    let other = |line: &str| {
        let mut line: Value = serde_json::from_str(line).unwrap();
        line["text"] = line["text"].as_str().unwrap().replace('e', "é").into();
        format!("{line}\n")
    };
    let manifest = std::fs::read_to_string(place.path("c/manifest.jsonl")).unwrap();
    place.write("c/manifest.jsonl", manifest.lines().map(other).collect::<String>());
    refused(&place, &["eval", "--run", "runs/r"], "have changed");
}

#[test]
fn a_search_that_asks_a_decoder_needs_one() {
    let place = trained();
    let file = recording(&place);
    for search in ["attention", "joint", "rescore"] {
        for args in [&["eval"][..], &["transcribe", file.as_str()]] {
            let args = [args, &["--run", "runs/r", "--search", search]].concat();
            refused(&place, &args, "no attention decoder");
        }
    }
    refused(&place, &["eval", "--run", "runs/r", "--ctc-weight", "7"], "a share from 0 to 1");
    place.train(&["--name", "d", "--steps", "1", "--set", "model.decoder_layers=1"]).fine();
    for search in ["greedy", "prefix-beam", "attention", "joint", "rescore"] {
        let found = json(&place, &["eval", "--run", "runs/d", "--search", search, "--width", "2", "--json"]);
        assert_eq!(found["search"]["kind"], search.replace('-', "_"));
    }
}

#[test]
fn one_broken_recording_stops_no_other() {
    let place = trained();
    place.write("broken.wav", b"RIFF\x10\x00\x00\x00WAVEfmt \x00\x00");
    let file = recording(&place);
    let args = ["transcribe", "broken.wav", file.as_str(), "nowhere.wav", "--run", "runs/r"];
    let said = place.run(&args);
    assert_eq!((said.code, said.out.lines().count()), (Some(2), 1), "{said:?}");
    assert!(said.out.starts_with(&file), "{}", said.out);
    for name in ["broken.wav", "nowhere.wav"] {
        assert!(said.err.contains(&format!("error: {name}: ")), "{}", said.err);
    }
    let said = place.run(&[&args[..], &["--json"]].concat());
    let lines: Vec<Value> = said.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((said.code, lines.len()), (Some(2), 3), "{}", said.out);
    assert!(lines[0]["error"].is_string() && lines[1]["text"].is_string() && lines[2]["error"].is_string());
    assert!(lines[1]["seconds"].as_f64().unwrap() > 0.1, "{}", lines[1]);
}

#[test]
fn a_recording_may_be_longer_than_any_that_was_trained_on() {
    let place = trained();
    place.write("long.wav", silence(16_000, 100 * 16_000));
    let line = json(&place, &["transcribe", "long.wav", "--run", "runs/r", "--json"]);
    assert_eq!(line["seconds"].as_f64(), Some(100.0));
}

#[test]
fn a_model_that_cuts_says_so_in_training_and_in_reading() {
    let place = Place::new();
    let cut = ["--set", "model.attention=truncate", "--set", "model.max_attention_sequence_length=20"];
    place.train(&[&["--name", "r", "--steps", "2"], &cut[..]].concat()).fine();
    let summary = std::fs::read_to_string(place.path("runs/r/summary.md")).unwrap();
    assert!(summary.contains("cut to `model.max_attention_sequence_length`"), "{summary}");
    place.write("long.wav", silence(16_000, 10 * 16_000));
    let said = place.run(&["transcribe", "long.wav", "--run", "runs/r"]).fine();
    assert!(said.err.contains("the end is cut"), "{said:?}");
}

#[test]
fn a_recogniser_can_learn_pieces_of_words() {
    let place = Place::new();
    let more = ["--set", "data.tokenizer=bpe", "--set", "data.bpe_size=60", "--name", "b", "--steps", "2"];
    let said = place.train(&more).fine();
    assert!(said.err.contains("60 tokens"), "{}", said.err);
    place.run(&["transcribe", &recording(&place), "--run", "runs/b"]).fine();
    place.run(&["eval", "--run", "runs/b"]).fine();
    // Its tokens can be those of another.
    let file = "data.tokenizer_file=runs/b/model.json";
    let said = place.train(&["--set", file, "--name", "c", "--steps", "1"]).fine();
    assert!(said.err.contains("60 tokens"), "{}", said.err);
}

#[test]
fn an_exported_model_reads_as_its_run_does() {
    let place = trained();
    let said = place.run(&["export", "--run", "runs/r", "--out", "models/r"]).fine();
    let expected = ["README.md", "model.json", "model.safetensors", "vocabulary.json"];
    assert_eq!(names(&place.path("models/r")), expected);
    assert!(expected.iter().all(|name| said.out.contains(name)), "{}", said.out);
    let exported = read_weights(&place.path("models/r/model.safetensors")).unwrap();
    let kept = read_weights(&place.path("runs/r/checkpoints/step-0000002/weights.safetensors")).unwrap();
    assert_eq!(exported, kept);
    let vocabulary = place.json("models/r/vocabulary.json");
    assert_eq!(vocabulary[3], "<eos>");
    assert_eq!(vocabulary.as_array().unwrap().len() as u64, place.json("models/r/model.json")["model"]["vocabulary"]);

    let wavs = format!("{CORPUS}/wavs");
    let read = |run: &str| place.run(&["transcribe", &wavs, "--run", run, "--json"]).fine().out;
    assert_eq!(read("models/r"), read("runs/r"));

    refused(&place, &["eval", "--run", "models/r"], "--manifest FILE");
    refused(&place, &["export", "--run", "runs/r", "--out", "models/r"], "models/r is not empty");
    place.run(&["export", "--run", "runs/r", "--out", "models/r", "--step", "newest", "--force"]).fine();
    refused(&place, &["export", "--run", "runs/nowhere", "--out", "models/x"], "no trained model");
    assert!(!place.path("models/x").exists());
}

#[test]
fn a_models_size_is_known_before_it_is_trained() {
    let place = Place::new();
    let tell = |flags: &[&str]| place.run(&[&["model", "info"], SMALL, flags].concat()).fine().out;
    let flags = ["--set", "model.vocabulary=200", "--set", "model.encoder_layers=2", "--set", "model.decoder_layers=2"];
    let found: Value = serde_json::from_str(&tell(&[&flags[..], &["--json"]].concat())).unwrap();
    let parts = found["parts"].as_array().unwrap();
    let sum: u64 = parts.iter().map(|part| part["parameters"].as_u64().unwrap()).sum();
    assert_eq!(found["parameters"], sum);
    for (key, expected) in
        [("vocabulary", 200), ("d_model", 16), ("layers", 2), ("decoder_layers", 2), ("subsampling", 4)]
    {
        assert_eq!(found[key], expected, "{key}");
    }
    // 200 tokens, 16 wide, and a bias for each.
    let output = parts.iter().find(|part| part["name"] == "output").unwrap();
    assert_eq!(output["parameters"], 200 * 16 + 200);
    let told = tell(&flags);
    assert!(told.contains("3,400") && told.contains("2 x ") && told.contains("decoder.embedding"), "{told}");

    let nothing = [&["model", "info"], SMALL].concat();
    refused(&place, &nothing, "model.vocabulary=N");
    place.train(&["--name", "r", "--steps", "1"]).fine();
    let known = json(&place, &[&nothing[..], &["--json"]].concat());
    let plan: toml::Table = std::fs::read_to_string(place.path("runs/r/plan.toml")).unwrap().parse().unwrap();
    assert_eq!(known["parameters"].as_u64(), plan["parameters"].as_integer().map(|n| n as u64));
}
