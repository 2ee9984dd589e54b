//! What the program says is true: no blank success, no file under another format's name, no damaged model without a word.

use crate::program::{SMALL, TestFolder, silence};
use crate::using::{CORPUS, recording, trained};

#[test]
fn a_damaged_export_is_refused_by_every_reader() {
    let dir = trained();
    dir.run(&["export", "--run", "runs/r", "--out", "m"]).success();
    let path = dir.path("m/model.safetensors");
    let mut bytes = std::fs::read(&path).unwrap();
    let half = bytes.len() / 2;
    bytes[half..half + 400].fill(0);
    std::fs::write(&path, bytes).unwrap();
    let (sound, list) = (recording(&dir), format!("{CORPUS}/manifest.jsonl"));
    dir.write("words.txt", "one two\n");
    for args in [
        &["transcribe", &sound, "--run", "m"][..],
        &["eval", "--run", "m", "--manifest", &list],
        &["eval", "--run", "runs/r", "--compare", "m"],
        &["align", &sound, "one two", "--run", "m"],
        &["data", "segment", &sound, "words.txt", "--run", "m", "--out", "cut"],
    ] {
        let output = dir.run(args);
        assert_eq!(output.code, Some(2), "{args:?}: {output:?}");
        assert!(output.stderr.contains("damaged: its checksum does not match"), "{args:?}: {output:?}");
    }
}

#[test]
fn nothing_found_is_said() {
    let dir = trained();
    dir.write("still/a.wav", silence(16_000, 16_000));
    dir.write("still/b.wav", silence(16_000, 16_000));
    // No text has this word.
    dir.write("words.txt", "qqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqq\n");
    let find = |args: &[&str]| {
        dir.run(&[&["transcribe", "--run", "runs/r", "--lexicon", "words.txt"], args].concat()).success()
    };
    for args in [&["still/a.wav"][..], &["still/a.wav", "--json"], &["still/a.wav", "--format", "srt"], &["still"]] {
        let output = find(args);
        assert!(output.stderr.contains("note: no words found in "), "{args:?}: {output:?}");
        assert!(output.stderr.contains(" % CER"), "{args:?}: {output:?}");
    }
    let two = find(&["still"]);
    assert!(two.stderr.contains("2 of 2 recordings, such as still/a.wav"), "{two:?}");
    // Standard input is empty.
    let empty = dir.run(&["transcribe", "-", "--run", "runs/r"]);
    assert_eq!(empty.code, Some(1), "{empty:?}");
    assert!(empty.stderr.contains("standard input is empty"), "{empty:?}");
}

#[test]
fn a_file_has_the_format_of_its_name() {
    let dir = trained();
    let sound = recording(&dir);
    for args in [
        &["say", "one", "--run", "runs/r", "--out", "a.mp3"][..],
        &["say", "one", "--run", "runs/r", "--out", "a.wav", "--format", "flac"],
        &["say", "one", "--run", "runs/r", "--picture", "a.png"],
        &["align", &sound, "one", "--run", "runs/r", "--out", "a.srt", "--format", "json"],
        &["report", "r", "--out", "a.pdf"],
        &["eval", "--run", "runs/r", "--table", "a.csv"],
        &["lm", "train", "a.txt", "--out", "a.json"],
        &["data", "import", CORPUS, "--out", "a.csv"],
        &["optimize", "--gpu", "16GiB", "--output", "a.yaml"],
    ] {
        let output = dir.run(args);
        assert_eq!(output.code, Some(2), "{args:?}: {output:?}");
        assert!(output.stderr.contains("name a file that ends in ."), "{args:?}: {output:?}");
    }
    dir.run(&["align", &sound, "one", "--run", "runs/r", "--min-score", "-1000", "--out", "a.srt"]).success();
    let subtitles = std::fs::read_to_string(dir.path("a.srt")).unwrap();
    assert!(subtitles.starts_with("1\n00:"), "{subtitles}");
}

#[test]
fn lists_are_no_text() {
    let dir = TestFolder::new();
    let row = r#"{"audio_filepath": "a.wav", "text": "hello there"}"#;
    dir.write("a.jsonl", format!("{row}\n{row}\n"));
    dir.write("b.json", format!("[\n{row}\n]\n"));
    dir.write("c.csv", "file,text\na.wav,hello there\n");
    for list in ["a.jsonl", "b.json", "c.csv"] {
        let output = dir.run(&["lm", "train", list, "--out", "a.lm"]);
        assert_eq!(output.code, Some(2), "{list}: {output:?}");
        assert!(
            output.stderr.contains("list of utterances") && output.stderr.contains("lm train --data"),
            "{output:?}"
        );
    }
    dir.write("d.txt", "{laughs} hello\n[music] there\n");
    dir.run(&["lm", "train", "d.txt", "--out", "a.lm"]).success();
}

#[test]
fn a_local_file_that_is_missing_is_no_fault_of_the_model() {
    let dir = trained();
    let sound = recording(&dir);
    let missing = dir.run(&["transcribe", &sound, "--run", "runs/r", "--lm", "texts.lm"]);
    assert_eq!(missing.code, Some(2));
    assert!(missing.stderr.contains("cannot read texts.lm"), "{missing:?}");
    std::fs::remove_file(dir.path("runs/r/texts.lm")).unwrap();
    let of_model = dir.run(&["transcribe", &sound, "--run", "runs/r", "--lm", "corpus"]);
    assert!(of_model.stderr.contains("no language model of its training texts"), "{of_model:?}");
}

#[test]
fn a_mistyped_corpus_gets_the_nearest_name() {
    let dir = trained();
    let train = |data: &str| dir.run(&["train", "--data", data, "--dry-run"]).stderr;
    let near = train(&format!("{CORPUS}/manifst.jsonl"));
    assert!(near.contains(&format!("did you mean {CORPUS}/manifest.jsonl?")), "{near}");
    let far = train("nowhere/at/all");
    assert!(far.contains("there is no folder nowhere"), "{far}");
    assert!(!near.contains("moved") && !far.contains("moved"));
}

#[test]
fn tables_fit_a_screen() {
    let dir = trained();
    let list = dir.run(&["runs", "list"]).success().stdout;
    assert!(list.lines().all(|line| line.chars().count() <= 110), "{list}");
    let rows: Vec<String> = std::fs::read_to_string(dir.path(&format!("{CORPUS}/manifest.jsonl")))
        .unwrap()
        .lines()
        .map(String::from)
        .collect();
    dir.write(&format!("{CORPUS}/five.jsonl"), rows[..5].join("\n"));
    let few = dir.run(&["data", "check", &format!("{CORPUS}/five.jsonl")]).success().stdout;
    assert!(few.lines().count() < 12, "{few}");
    let all = dir.run(&["data", "check", CORPUS]).success().stdout;
    assert!(all.lines().count() < 40, "{all}");
    let page = dir.run(&["monitor", "--once", "--interval", "0.2"]).success().stdout;
    assert!(!page.contains("q quit") && !page.contains("\n\n\n"), "{page}");
}

#[test]
fn the_doctor_knows_the_size_of_a_checkpoint() {
    let dir = TestFolder::new();
    let flags = [SMALL, &["--set", "model.vocabulary=40"]].concat();
    let output = dir.run(&[&["doctor", "--json"], &flags[..]].concat());
    let size = |width: &str| {
        let width = format!("model.d_model={width}");
        let flags = [&flags[..], &["--set", &width]].concat();
        let output = dir.run(&[&["doctor", "--json"], &flags[..]].concat());
        let text =
            output.stdout.split("a checkpoint takes ").nth(1).map(|rest| rest.split('"').next().unwrap().to_owned());
        text.unwrap_or_else(|| panic!("{}", output.stdout))
    };
    assert!(output.stdout.contains("a checkpoint takes ") && !output.stdout.contains("512 MiB"), "{output:?}");
    assert_ne!(size("32"), size("64"));
}

/// A run that was begun when more could be left out is evaluated and goes on, with a warning.
#[test]
fn a_run_of_an_older_rule_goes_on() {
    let dir = TestFolder::new();
    let limits = ["--set", "data.max_seconds=2.7", "--set", "data.unusable_share=1", "--name", "r", "--steps", "2"];
    dir.train(&limits).success();
    let config = std::fs::read_to_string(dir.path("runs/r/config.toml")).unwrap();
    let stricter: Vec<String> = config
        .lines()
        .map(|line| if line.starts_with("unusable_share") { "unusable_share = 0.05".into() } else { line.into() })
        .collect();
    dir.write("runs/r/config.toml", stricter.join("\n"));
    for args in [&["eval", "--run", "runs/r"][..], &["train", "--resume", "runs/r", "--steps", "3"]] {
        let output = dir.run(args).success();
        assert!(output.stderr.contains("too long"), "{args:?}: {}", output.stderr);
    }
    assert_eq!(dir.train(&["--set", "data.max_seconds=2.7", "--dry-run"]).code, Some(2));
}

/// Options that change nothing are mistakes, and a run can be named without its flag.
#[test]
fn an_option_without_effect_is_refused() {
    let dir = trained();
    let sound = recording(&dir);
    let refused = |args: &[&str], named: &str| {
        let output = dir.run(args);
        assert_eq!(output.code, Some(2), "{args:?}: {output:?}");
        assert!(output.stderr.contains(&format!("{named} has no effect")), "{args:?}: {output:?}");
    };
    for (flags, named) in [
        (&["--search", "greedy", "--width", "5"][..], "--width"),
        (&["--search", "greedy", "--lm", "corpus"], "--search"),
        (&["--search", "prefix-beam", "--ctc-weight", "0.5"], "--ctc-weight"),
        (&["--lm", "none", "--lm-weight", "0.5"], "--lm-weight"),
        (&["--hotword-weight", "3", "--lm", "none"], "--hotword-weight"),
    ] {
        refused(&[&["transcribe", &sound, "--run", "runs/r"], flags].concat(), named);
        refused(&[&["eval", "runs/r", "--limit", "1"], flags].concat(), named);
    }
    let named = dir.run(&["eval", "runs/r", "--limit", "2", "--json"]).success().stdout;
    for flag in [&["eval", "--run", "runs/r"][..], &["eval", "r"]] {
        let output = dir.run(&[flag, &["--limit", "2", "--json"]].concat()).success();
        let scores = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap()["cer"].clone();
        assert_eq!(scores(&output.stdout), scores(&named), "{flag:?}");
    }
    // A corpus of the same name is no run.
    dir.write("r/manifest.jsonl", "");
    dir.run(&["eval", "r", "--limit", "1"]).success();
    dir.run(&["monitor", "r", "--once"]).success();
    std::fs::remove_dir_all(dir.path("r")).unwrap();
    assert_eq!(dir.run(&["eval", "runs/r", "--run", "runs/r"]).code, Some(2));
    assert_eq!(dir.run(&["eval"]).code, Some(2));
    dir.run(&["export", "r", "--out", "m"]).success();
    dir.run(&["monitor", "r", "--once"]).success();
    assert_eq!(dir.run(&["profile", "r", "--config", "none.toml"]).code, Some(2));
}

/// The shipped configurations have vocabularies of 200 and more tokens, of which letters need about 30.
#[test]
fn a_vocabulary_wider_than_the_texts_outputs_none_of_the_rest() {
    for decoder in [&[][..], &["--set", "model.decoder_layers=1"]] {
        let dir = TestFolder::new();
        let wide = ["--name", "r", "--steps", "4", "--set", "model.vocabulary=300"];
        dir.train(&[&wide, decoder].concat()).success();
        let sound = recording(&dir);
        let searches: &[&[&str]] = match decoder.is_empty() {
            true => &[&["--lm", "none"], &["--search", "prefix-beam", "--lm", "none"], &["--lm", "corpus"]],
            false => {
                &[&["--lm", "corpus"], &["--search", "attention"], &["--search", "joint"], &["--search", "rescore"]]
            }
        };
        for search in searches {
            let output = dir.run(&[&["transcribe", &sound, "--run", "runs/r", "--json"], *search].concat()).success();
            assert!(!output.stdout.contains(char::REPLACEMENT_CHARACTER), "{search:?}: {}", output.stdout);
        }
        dir.run(&["align", &sound, "one two", "--run", "runs/r", "--json"]);
        dir.run(&["eval", "r", "--limit", "2"]).success();
    }
}

#[test]
fn a_warm_up_as_long_as_the_run_is_said() {
    let dir = TestFolder::new();
    let seen = |more: &[&str]| {
        let settings = ["--set", "training.schedule=cosine", "--set", "training.warmup_steps=300"];
        dir.train(&[&["--dry-run"], &settings[..], more].concat()).success().stderr
    };
    let said = "the warm-up takes 300 steps and the run ends after 40, so the learning rate ends at";
    assert!(seen(&["--steps", "40"]).contains(said), "{}", seen(&["--steps", "40"]));
    for fine in [&["--steps", "301"][..], &["--steps", "4"], &["--steps", "40", "--set", "training.warmup_share=0.1"]] {
        assert!(!seen(fine).contains("the warm-up takes"), "{fine:?}: {}", seen(fine));
    }
}
