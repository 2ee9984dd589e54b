//! Words with times, language models, and corpora in shards.

use plimsoll_audio::{read_audio, write_wav};
use serde_json::Value;

use crate::program::{TestFolder, names};

const CORPUS: &str = "corpus/formant-24x4-seed1";

/// Makes a folder with the run `r` of a recognizer, after two steps.
fn trained() -> TestFolder {
    let dir = TestFolder::new();
    dir.train(&["--name", "r", "--steps", "2"]).success();
    dir
}

/// Joins recordings into one of at least `seconds`, and returns it with their texts.
fn joined(dir: &TestFolder, seconds: f64) -> (Vec<f32>, String) {
    let manifest = std::fs::read_to_string(dir.path(&format!("{CORPUS}/manifest.jsonl"))).unwrap();
    let (mut samples, mut texts) = (Vec::new(), Vec::new());
    for line in manifest.lines().cycle() {
        let line: Value = serde_json::from_str(line).unwrap();
        let file = dir.path(CORPUS).join(line["audio_filepath"].as_str().unwrap());
        samples.extend(read_audio(&file, 16_000).unwrap().samples);
        texts.push(line["text"].as_str().unwrap().to_string());
        if samples.len() as f64 >= seconds * 16_000.0 {
            break;
        }
    }
    (samples, texts.join("\n"))
}

#[test]
fn a_long_recording_is_aligned_with_its_text_in_one_piece() {
    let dir = trained();
    let (samples, text) = joined(&dir, 310.0);
    write_wav(&dir.path("talk.wav"), &samples, 16_000).unwrap();
    dir.write("talk.txt", &text);
    let align = ["align", "talk.wav", "--run", "runs/r", "--text-file", "talk.txt", "--min-score"];
    let aligned = json(&dir, &[&align[..], &["-1000"]].concat());
    let found = words(&aligned);
    let spoken: Vec<&str> = found.iter().map(|(word, ..)| word.as_str()).collect();
    assert_eq!(spoken, text.split_whitespace().collect::<Vec<_>>());
    assert!(found.windows(2).all(|pair| pair[0].2 <= pair[1].1 + 1e-9), "{found:?}");
    assert!(found.last().unwrap().2 > 200.0 && aligned["seconds"].as_f64().unwrap() > 310.0);
    // A model of two steps is sure of nothing.
    let refused = dir.run(&[&align[..], &["-0.01"]].concat());
    assert!(refused.code == Some(2) && refused.stderr.contains("says none of these words"), "{refused:?}");
    assert!(refused.stderr.contains(&format!("left out: {} words of {}", spoken.len(), spoken.len())), "{refused:?}");
}

fn recordings(dir: &TestFolder) -> Vec<String> {
    names(&dir.path(CORPUS).join("wavs")).iter().map(|name| format!("{CORPUS}/wavs/{name}")).collect()
}

fn json(dir: &TestFolder, args: &[&str]) -> Value {
    serde_json::from_str(&dir.run(args).success().stdout).unwrap()
}

/// Returns the words of a transcript in order, with start and end.
fn words(transcript: &Value) -> Vec<(String, f64, f64)> {
    let segments = transcript["segments"].as_array().unwrap().iter();
    let word = |word: &Value| {
        (word["text"].as_str().unwrap().into(), word["start"].as_f64().unwrap(), word["end"].as_f64().unwrap())
    };
    segments.flat_map(|segment| segment["words"].as_array().unwrap().iter().map(word).collect::<Vec<_>>()).collect()
}

#[test]
fn a_known_text_gets_times_in_every_format() {
    let dir = trained();
    let manifest = std::fs::read_to_string(dir.path(&format!("{CORPUS}/manifest.jsonl"))).unwrap();
    let line: Value = serde_json::from_str(manifest.lines().next().unwrap()).unwrap();
    let audio = format!("{CORPUS}/{}", line["audio_filepath"].as_str().unwrap());
    let text = line["text"].as_str().unwrap();
    let aligned = json(&dir, &["align", &audio, text, "--run", "runs/r"]);
    let found = words(&aligned);
    let spoken: Vec<&str> = found.iter().map(|(word, ..)| word.as_str()).collect();
    assert_eq!(spoken.join(" "), text);
    let seconds = aligned["seconds"].as_f64().unwrap();
    let mut last = 0.0;
    for (word, start, end) in &found {
        assert!(last <= *start && start < end && *end <= seconds + 0.1, "{word}: {start} to {end} of {seconds}");
        last = *end;
    }
    let shouted = json(&dir, &["align", &audio, &format!("“{}”!", text.to_uppercase()), "--run", "runs/r"]);
    let times = |words: &[(String, f64, f64)]| words.iter().map(|(_, start, end)| (*start, *end)).collect::<Vec<_>>();
    assert_eq!(times(&words(&shouted)), times(&found));
    assert!(words(&shouted)[0].0.starts_with('“') && words(&shouted).last().unwrap().0.ends_with("”!"));
    for format in ["text", "srt", "vtt", "ctm", "textgrid"] {
        let out = dir.run(&["align", &audio, text, "--run", "runs/r", "--format", format]).success().stdout;
        let first = text.split(' ').next().unwrap();
        assert!(out.contains(first), "{format}: {out}");
    }
    for (args, expected) in [
        (&["align", &audio, "", "--run", "runs/r"][..], "the text is empty"),
        (&["align", &audio, "बरें", "--run", "runs/r"], "knows no character"),
        (&["align", "nowhere.wav", text, "--run", "runs/r"], "nowhere.wav"),
        (&["align", &audio, &text.repeat(99), "--run", "runs/r"], "frames"),
        (&["align", &audio, text, "--run", "runs/r", "--format", "doc"], "there is no format `doc`"),
    ] {
        let refused = dir.run(args);
        assert!(refused.code == Some(2) && refused.stderr.contains(expected), "{args:?}: {refused:?}");
    }
}

#[test]
fn transcripts_are_written_beside_each_other() {
    let dir = trained();
    let recordings = recordings(&dir);
    let [first, second] = [recordings[0].as_str(), recordings[1].as_str()];
    let args = ["transcribe", first, second, "--run", "runs/r", "--format", "vtt"];
    let refused = dir.run(&args);
    assert!(refused.code == Some(2) && refused.stderr.contains("--out-dir"), "{refused:?}");
    dir.run(&[&args[..], &["--out-dir", "t"]].concat()).success();
    assert_eq!(names(&dir.path("t")).len(), 2);
    let written = std::fs::read_to_string(dir.path("t").join(&names(&dir.path("t"))[0])).unwrap();
    assert!(written.starts_with("WEBVTT"), "{written}");
    assert_eq!(dir.run(&[&args[..], &["--out-dir", "t"]].concat()).code, Some(2));
    dir.run(&[&args[..], &["--out-dir", "t", "--force"]].concat()).success();
}

#[test]
fn a_lexicon_and_a_language_model_decide_the_words() {
    let dir = trained();
    let recordings = recordings(&dir);
    let audio = recordings[0].as_str();
    dir.write("words.txt", "zero\n");
    let text = |more: &[&str]| {
        let args = [&["transcribe", audio, "--run", "runs/r", "--json"], more].concat();
        json(&dir, &args)["text"].as_str().unwrap().to_string()
    };
    // A model of two steps knows nothing: its words are those that it may say.
    assert!(text(&["--lexicon", "words.txt"]).split_whitespace().all(|word| word == "zero"));
    // The corpus has the words of ten digits and few others: a model of words makes words.
    let manifest = std::fs::read_to_string(dir.path(&format!("{CORPUS}/manifest.jsonl"))).unwrap();
    let known = text(&["--lm", "corpus", "--search", "prefix-beam", "--width", "20"]);
    assert!(known.split_whitespace().all(|word| manifest.contains(word)), "{known}");

    dir.write("two.txt", "zero one\n");
    let spelled = ["lm", "train", "two.txt", "--characters", "--order", "2", "--json", "--out"];
    dir.run(&[&spelled[..], &["c.arpa"]].concat()).success();
    assert_eq!(json(&dir, &["lm", "info", "c.arpa", "--json"])["unit"], "characters");
    dir.write("lines.txt", "one two three\none two\n\n");
    let trained = json(&dir, &["lm", "train", "lines.txt", "--out", "m.lm", "--order", "2", "--json"]);
    assert_eq!((&trained["order"], &trained["sentences"]), (&2.into(), &2.into()));
    dir.run(&["lm", "train", "lines.txt", "--out", "m.arpa", "--order", "2"]).success();
    let perplexity =
        |model: &str| json(&dir, &["lm", "perplexity", model, "lines.txt", "--json"])["perplexity"].as_f64();
    assert!((perplexity("m.lm").unwrap() - perplexity("m.arpa").unwrap()).abs() < 1e-3);
    assert_eq!(json(&dir, &["lm", "info", "m.arpa", "--json"])["order"], 2);
    text(&["--lm", "m.lm", "--hotwords", "one, two"]);
    let found = json(&dir, &["eval", "--run", "runs/r", "--lm", "m.lm", "--json"]);
    assert!(found["details"]["words"]["high"].is_number(), "{found}");
    assert!(dir.run(&["eval", "--run", "runs/r", "--details"]).success().stdout.contains("95 % intervals"));
    for (args, expected) in [
        (&["transcribe", audio, "--run", "runs/r", "--lm", "nowhere.lm"][..], "nowhere.lm"),
        (&["transcribe", audio, "--run", "runs/r", "--lm", "lines.txt"], "lines.txt"),
        (&["transcribe", audio, "--run", "runs/r", "--lm", "m.lm", "--lm-weight", "-1"], "--lm-weight"),
        (&["lm", "train", "nowhere.txt"], "nowhere.txt"),
        (&["lm", "train", "lines.txt", "--order", "9"], "9"),
        (&["lm", "train", "lines.txt", "--out", "m.lm"], "exists already"),
    ] {
        let refused = dir.run(args);
        assert!(refused.code == Some(2) && refused.stderr.contains(expected), "{args:?}: {refused:?}");
    }
}

#[test]
fn a_language_takes_part_in_the_joint_search() {
    let dir = TestFolder::new();
    dir.train(&["--name", "d", "--steps", "2", "--set", "model.decoder_layers=1"]).success();
    let recordings = recordings(&dir);
    dir.write("words.txt", "zero\n");
    let args = ["transcribe", recordings[0].as_str(), "--run", "runs/d", "--search"];
    let joint = [&args[..], &["joint", "--lm", "corpus", "--lexicon", "words.txt", "--width", "4", "--json"]].concat();
    let found = json(&dir, &joint);
    assert!(found["text"].as_str().unwrap().split_whitespace().all(|word| word == "zero"), "{found}");
    let refused = dir.run(&[&args[..], &["rescore", "--lm", "corpus"]].concat());
    assert!(refused.code == Some(2) && refused.stderr.contains("joint"), "{refused:?}");
}

#[test]
fn two_recognizers_are_compared_on_the_same_utterances() {
    let dir = trained();
    dir.train(&["--name", "other", "--steps", "30"]).success();
    let compared = json(&dir, &["eval", "--run", "runs/r", "--compare", "runs/other", "--json"]);
    let alone = json(&dir, &["eval", "--run", "runs/other", "--json"]);
    assert_eq!((&compared["other"]["cer"], &compared["other"]["wer"]), (&alone["cer"], &alone["wer"]));
    let difference = compared["cer"].as_f64().unwrap() - alone["cer"].as_f64().unwrap();
    let found = &compared["comparison"]["characters"];
    assert!((found["difference"].as_f64().unwrap() - difference).abs() < 1e-9, "{found}");
    assert!(
        found["low"].as_f64() <= found["difference"].as_f64() && found["difference"].as_f64() <= found["high"].as_f64()
    );
    let itself = json(&dir, &["eval", "--run", "runs/r", "--compare", "runs/r", "--json"]);
    let found = &itself["comparison"]["characters"];
    assert_eq!([&found["low"], &found["difference"], &found["high"]].map(Value::as_f64), [Some(0.0); 3]);
    let text = dir.run(&["eval", "--run", "runs/r", "--compare", "runs/r"]).success().stdout;
    assert!(text.contains("(A) beside") && text.contains("no certain difference"), "{text}");
}

#[test]
fn models_are_written_compressed_and_count_unknown_words() {
    let dir = TestFolder::new();
    dir.write("texts.txt", "\u{feff}a b\nb a\n");
    dir.run(&["lm", "train", "texts.txt", "--order", "2", "--out", "m.arpa.gz"]).success();
    dir.run(&["lm", "train", "texts.txt", "--order", "2", "--out", "m.lm"]).success();
    assert_eq!(std::fs::read(dir.path("m.arpa.gz")).unwrap()[..2], [0x1f, 0x8b]);
    dir.write("new.txt", "a z\n");
    let read = |model: &str| json(&dir, &["lm", "perplexity", model, "new.txt", "--json"]);
    let (packed, plain) = (read("m.arpa.gz"), read("m.lm"));
    assert_eq!((packed["words"].as_u64(), packed["unknown_words"].as_u64()), (Some(3), Some(1)));
    let of = |found: &Value, key: &str| found[key].as_f64().unwrap();
    assert!((of(&packed, "perplexity") / of(&plain, "perplexity") - 1.0).abs() < 1e-3, "{packed} {plain}");
    assert!(of(&packed, "known_perplexity") < of(&packed, "perplexity"));
}

#[test]
fn a_packed_corpus_trains_to_the_same_weights() {
    let dir = trained();
    for format in ["webdataset", "shar", "parquet"] {
        let out = format!("shards-{format}");
        let args = ["data", "pack", CORPUS, "--out", &out, "--to", format, "--shard-size", "1MiB", "--json"];
        let packed = json(&dir, &args);
        assert_eq!((&packed["utterances"], &packed["left_out"]), (&24.into(), &Value::Array(Vec::new())), "{packed}");
        let checked = json(&dir, &["data", "check", &out, "--json"]);
        assert_eq!(checked["usable"], 24, "{checked}");
        dir.train(&["--name", format, "--manifest", &out, "--steps", "1"]).success();
    }
}
