//! `plimsoll data`: corpora as people have them, looked at, counted, and made into lists that train.

use crate::program::{Place, SMALL, names};

/// The built-in corpus in LJSpeech's layout under `mine`, with an utterance whose audio is missing and one without text.
fn mine() -> Place {
    let place = Place::new();
    place.run(&["corpus", "make", "--out", "c", "--utterances", "30", "--speakers", "4"]).fine();
    let lines = std::fs::read_to_string(place.path("c/metadata.csv")).unwrap();
    std::fs::create_dir_all(place.path("mine/wavs")).unwrap();
    for line in lines.lines() {
        let name = format!("wavs/{}.wav", line.split('|').next().unwrap());
        std::fs::copy(place.path("c").join(&name), place.path("mine").join(&name)).unwrap();
    }
    place.write("mine/metadata.csv", lines + "gone|never recorded\ns000-00000x|  \n");
    place
}

#[test]
fn a_folder_becomes_a_list_that_trains() {
    let place = mine();
    let said = place.run(&["data", "import", "mine", "--language", "en", "--out", "list.jsonl"]).fine();
    for expected in
        ["(ljspeech)", "32 utterances listed, 30 usable", "1 not usable: missing file", "1 not usable: no text"]
    {
        assert!(said.out.contains(expected), "{expected}: {}", said.out);
    }
    assert!(said.out.contains("Written to list.jsonl. To train on it: plimsoll train --manifest list.jsonl"));
    let list = std::fs::read_to_string(place.path("list.jsonl")).unwrap();
    assert_eq!(list.lines().count(), 30);
    let first: serde_json::Value = serde_json::from_str(list.lines().next().unwrap()).unwrap();
    assert!(first["audio_filepath"].as_str().unwrap().starts_with("mine/wavs/"), "{first}");
    assert!(first["duration"].as_f64().unwrap() > 0.1 && first["frames"].as_u64().unwrap() > 10, "{first}");
    assert_eq!((first["lang"].as_str(), first["tokens"].as_u64().unwrap() > 2), (Some("en"), true));
    let again = place.run(&["data", "import", "mine", "--out", "list.jsonl"]);
    assert_eq!(again.code, Some(2));
    assert!(again.err.contains("list.jsonl is there already") && again.err.contains("--force"), "{}", again.err);
    place.run(&[&["train", "--manifest", "list.jsonl", "--steps", "1"], SMALL].concat()).fine();
}

#[test]
fn a_folder_is_checked_and_trained_on_as_it_is() {
    let place = mine();
    let too_many = place.run(&["data", "check", "mine"]);
    assert_eq!(too_many.code, Some(2));
    assert!(too_many.err.contains("6.2 % of the utterances cannot be read"), "{}", too_many.err);
    let train = [&["train", "--data", "mine", "--steps", "1"], SMALL].concat();
    let refused = place.run(&train);
    assert_eq!(refused.code, Some(2));
    assert!(refused.err.contains("plimsoll data check mine --all"), "{}", refused.err);
    let allowed = place.run(&[&train[..], &["--set", "data.unusable_share=0.1"]].concat()).fine();
    assert!(allowed.err.contains("2 of 32 utterances of mine cannot be used"), "{}", allowed.err);
    assert_eq!(place.json("runs/asr-1/summary.json")["left_out"].as_array().map(Vec::len), Some(2));
}

#[test]
fn a_script_gets_json_and_a_person_a_page() {
    let place = mine();
    let share = ["--set", "data.unusable_share=0.1"];
    let check = ["data", "check", "mine", "--decode", "--json", "--page", "seen.html", "--set", "data.max_seconds=2"];
    let report = place.run(&[&check[..], &share].concat()).fine();
    let report: serde_json::Value = serde_json::from_str(&report.out).unwrap();
    assert_eq!((report["listed"].as_u64(), report["format"].as_str()), (Some(32), Some("ljspeech")));
    let usable = report["usable"].as_u64().unwrap();
    let too_long = report["unusable"]["too long"].as_u64().unwrap();
    assert_eq!(usable + too_long + 2, 32);
    assert_eq!(report["flaws"].as_array().unwrap().len() as u64, 32 - usable);
    assert_eq!(report["sounds"]["WAV, 16000 Hz, 1 channel"].as_u64(), Some(30));
    let page = std::fs::read_to_string(place.path("seen.html")).unwrap();
    assert!(page.contains("<svg") && page.contains("missing file") && !page.contains("http"), "{page}");
    let stats = place.run(&["data", "stats", "mine"]).fine().out;
    assert!(stats.contains("seconds of an utterance: ") && stats.contains("different characters: "), "{stats}");
}

#[test]
fn what_is_no_corpus_is_told() {
    let place = Place::new();
    place.write("empty/readme.md", "nothing here");
    for (args, told) in [
        (&["data", "check"][..], "no corpus was named"),
        (&["data", "check", "nowhere"], "corpus nowhere does not exist"),
        (&["data", "import", "empty"], "is not a corpus in a known layout"),
        (&["data", "import", "empty", "--format", "kaldy"], "there is no format `kaldy`"),
        (&["data", "import", "empty", "--format", "kaldi"], "is not of the format `kaldi`"),
    ] {
        let said = place.run(args);
        assert_eq!(said.code, Some(2), "{args:?}: {said:?}");
        assert!(said.err.split_whitespace().collect::<Vec<_>>().join(" ").contains(told), "{args:?}: {}", said.err);
    }
}

#[test]
fn features_on_disk_serve_the_next_run_and_change_nothing() {
    let place = Place::new();
    let train = |name: &str, more: &[&str]| place.train(&[&["--name", name, "--steps", "3"], more].concat()).fine();
    let kept = ["--set", "data.cache_dir=kept", "--set", "data.cache_memory=0"];
    train("plain", &[]);
    train("first", &kept);
    let report = place.run(&["data", "cache", "kept", "--json"]).fine().out;
    let report: serde_json::Value = serde_json::from_str(&report).unwrap();
    assert!(report["records"].as_u64().unwrap() >= 24 && report["damaged"].as_array().unwrap().is_empty(), "{report}");
    train("second", &kept);
    let weights = |name: &str| {
        std::fs::read(place.path(&format!("runs/{name}/checkpoints/step-0000003/weights.safetensors"))).unwrap()
    };
    assert!(weights("plain") == weights("first") && weights("first") == weights("second"), "the weights differ");
    place.run(&["data", "cache", "kept", "--clear"]).fine();
    assert!(place.run(&["data", "cache", "kept"]).fine().out.contains("kept: 0 records in 0 files"));
    assert_eq!(place.run(&["data", "cache", "nowhere"]).code, Some(2));
}

#[test]
fn loading_is_measured() {
    let place = Place::new();
    let bench = ["data", "bench", "--json", "--set", "data.cache_dir=kept"];
    let told = place.run(&[&bench[..], SMALL].concat()).fine().out;
    let told: serde_json::Value = serde_json::from_str(&told).unwrap();
    let speeds = told["speeds"].as_array().unwrap();
    assert!(speeds.iter().all(|speed| speed["audio_seconds_per_second"].as_f64().unwrap() > 0.0), "{told}");
    assert_eq!(speeds.last().unwrap()["cached"].as_bool(), Some(true));
}

#[test]
fn utterances_that_are_too_long_are_cut_by_policy_and_named() {
    let place = Place::new();
    let train = |more: &[&str]| {
        place
            .train(&[&["--dry-run", "--set", "data.max_seconds=2", "--set", "data.min_seconds=0"], more].concat())
            .fine()
    };
    let refused = train(&[]);
    assert!(refused.err.contains("utterances: too long"), "{}", refused.err);
    for policy in ["split", "chunk", "truncate"] {
        let said = train(&["--set", &format!("data.too_long={policy}")]);
        assert!(said.err.contains(&format!("are longer than 2s; by `{policy}` they became")), "{}", said.err);
        assert!(!said.err.contains("utterances: too long"), "{}", said.err);
    }
}

#[test]
fn what_is_too_long_to_be_cut_and_cannot_be_read_stops_nothing() {
    let place = Place::new();
    place.run(&["corpus", "make", "--out", "c", "--utterances", "30", "--speakers", "4"]).fine();
    let lines = std::fs::read_to_string(place.path("c/manifest.jsonl")).unwrap();
    let broken = r#"{"audio_filepath": "broken.wav", "text": "one", "duration": 600.0}"#;
    place.write("c/manifest.jsonl", format!("{}\n{broken}\n", lines.trim_end()));
    place.write("c/broken.wav", "not a sound");
    let train = ["train", "--manifest", "c/manifest.jsonl", "--dry-run", "--set", "data.too_long=split"];
    let said = place.run(&[&train[..], SMALL].concat()).fine();
    for expected in ["is too long and cannot be cut: ", "utterances: too long"] {
        assert!(said.err.contains(expected), "{expected}: {}", said.err);
    }
}

#[test]
fn more_broken_files_than_may_be_name_the_key() {
    let place = Place::new();
    place.run(&["corpus", "make", "--out", "c", "--utterances", "24", "--speakers", "4"]).fine();
    for name in names(&place.path("c/wavs")).into_iter().step_by(2) {
        place.write(&format!("c/wavs/{name}"), "not a sound");
    }
    let said = place.run(&[&["train", "--manifest", "c/manifest.jsonl", "--steps", "20"], SMALL].concat());
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.err.contains("data.unusable_share"), "{}", said.err);
}
