//! `plimsoll data`: corpora in several layouts are checked, counted, and imported as lists that train.

use crate::program::{SMALL, TestFolder, names};

/// Share of unusable utterances that a tenth of a corpus may have.
const SHARE: &str = "data.unusable_share=0.1";

/// Makes a folder with the built-in corpus in LJSpeech's layout under `mine`; one utterance has no audio file and one
/// has no text.
fn folder_with_corpus() -> TestFolder {
    let dir = TestFolder::new();
    dir.run(&["corpus", "make", "--out", "c", "--utterances", "30", "--speakers", "4"]).success();
    let lines = std::fs::read_to_string(dir.path("c/metadata.csv")).unwrap();
    std::fs::create_dir_all(dir.path("mine/wavs")).unwrap();
    for line in lines.lines() {
        let name = format!("wavs/{}.wav", line.split('|').next().unwrap());
        std::fs::copy(dir.path("c").join(&name), dir.path("mine").join(&name)).unwrap();
    }
    dir.write("mine/metadata.csv", lines + "gone|never recorded\ns000-00000x|  \n");
    dir
}

#[test]
fn import_writes_list_that_trains() {
    let dir = folder_with_corpus();
    let output =
        dir.run(&["data", "import", "mine", "--language", "en", "--out", "list.jsonl", "--set", SHARE]).success();
    for expected in
        ["(ljspeech)", "32 utterances listed, 30 usable", "1 not usable: missing file", "1 not usable: no text"]
    {
        assert!(output.stdout.contains(expected), "{expected}: {}", output.stdout);
    }
    assert!(output.stdout.contains("Written to list.jsonl. To train on it: plimsoll train --manifest list.jsonl"));
    let list = std::fs::read_to_string(dir.path("list.jsonl")).unwrap();
    assert_eq!(list.lines().count(), 30);
    let first: serde_json::Value = serde_json::from_str(list.lines().next().unwrap()).unwrap();
    assert!(first["audio_filepath"].as_str().unwrap().starts_with("mine/wavs/"), "{first}");
    assert!(first["duration"].as_f64().unwrap() > 0.1 && first["frames"].as_u64().unwrap() > 10, "{first}");
    assert_eq!((first["lang"].as_str(), first["tokens"].as_u64().unwrap() > 2), (Some("en"), true));
    let again = dir.run(&["data", "import", "mine", "--out", "list.jsonl"]);
    assert_eq!(again.code, Some(2));
    assert!(again.stderr.contains("list.jsonl exists already") && again.stderr.contains("--force"), "{}", again.stderr);
    dir.run(&[&["train", "--manifest", "list.jsonl", "--steps", "1"], SMALL].concat()).success();
}

/// Two of 32 utterances cannot be used: more than a run accepts by default.
#[test]
fn commands_that_leave_out_a_part_end_with_one_exit_code() {
    let dir = folder_with_corpus();
    let commands: [&[&str]; 4] = [
        &["data", "check", "mine"],
        &["data", "import", "mine", "--out", "list.jsonl", "--force"],
        &["data", "pack", "mine", "--out", "shards"],
        &["train", "--data", "mine", "--dry-run"],
    ];
    for command in commands {
        let small = if command[0] == "train" { SMALL } else { &[] };
        for (more, code) in [(&[][..], 2), (&["--set", SHARE][..], 0)] {
            std::fs::remove_dir_all(dir.path("shards")).unwrap_or_default();
            let output = dir.run(&[command, small, more].concat());
            assert_eq!(output.code, Some(code), "{command:?} {more:?}: {output:?}");
            assert!(code == 0 || output.stderr.contains("data.unusable_share"), "{}", output.stderr);
            // What is usable is written all the same.
            assert!(command[1] != "pack" || names(&dir.path("shards")).len() == 1);
        }
    }
    assert_eq!(std::fs::read_to_string(dir.path("list.jsonl")).unwrap().lines().count(), 30);
    for name in [&b"bad.wav"[..], b"good.wav"] {
        let name = String::from_utf8_lossy(name).into_owned();
        let audio = std::fs::read(dir.path("mine/wavs").join(&names(&dir.path("mine/wavs"))[0])).unwrap();
        dir.write(&format!("two/{name}"), if name == "bad.wav" { b"no sound".to_vec() } else { audio });
    }
    dir.train(&["--name", "r", "--steps", "1"]).success();
    assert_eq!(dir.run(&["transcribe", "two", "--run", "runs/r"]).code, Some(2));
}

#[test]
fn folder_is_checked_and_trained_without_import() {
    let dir = folder_with_corpus();
    let too_many = dir.run(&["data", "check", "mine"]);
    assert_eq!(too_many.code, Some(2));
    assert!(too_many.stderr.contains("6.2 % of the utterances cannot be used"), "{}", too_many.stderr);
    let train = [&["train", "--data", "mine", "--steps", "1"], SMALL].concat();
    let refused = dir.run(&train);
    assert_eq!(refused.code, Some(2));
    assert!(refused.stderr.contains("plimsoll data check mine --all"), "{}", refused.stderr);
    let allowed = dir.run(&[&train[..], &["--set", "data.unusable_share=0.1"]].concat()).success();
    assert!(allowed.stderr.contains("2 of 32 utterances of mine cannot be used"), "{}", allowed.stderr);
    assert_eq!(dir.json("runs/asr-1/summary.json")["left_out"].as_array().map(Vec::len), Some(2));
}

#[test]
fn check_writes_json_and_page() {
    let dir = folder_with_corpus();
    let share = ["--set", "data.unusable_share=1"];
    let check = ["data", "check", "mine", "--decode", "--json", "--page", "seen.html", "--set", "data.max_seconds=2"];
    let report = dir.run(&[&check[..], &share].concat()).success();
    let report: serde_json::Value = serde_json::from_str(&report.stdout).unwrap();
    assert_eq!((report["listed"].as_u64(), report["format"].as_str()), (Some(32), Some("ljspeech")));
    let usable = report["usable"].as_u64().unwrap();
    let too_long = report["unusable"]["too long"].as_u64().unwrap();
    assert_eq!(usable + too_long + 2, 32);
    assert_eq!(report["flaws"].as_array().unwrap().len() as u64, 32 - usable);
    assert_eq!(report["sounds"]["WAV, 16000 Hz, 1 channel"].as_u64(), Some(30));
    let page = std::fs::read_to_string(dir.path("seen.html")).unwrap();
    assert!(page.contains("<svg") && page.contains("missing file") && !page.contains("http"), "{page}");
    let stats = dir.run(&["data", "stats", "mine"]).success().stdout;
    assert!(stats.contains("seconds per utterance: ") && stats.contains("different characters: "), "{stats}");
}

#[test]
fn check_and_import_decide_by_one_rule() {
    let dir = TestFolder::new();
    dir.run(&["corpus", "make", "--out", "c", "--utterances", "6", "--speakers", "2"]).success();
    let made = std::fs::read_to_string(dir.path("c/manifest.jsonl")).unwrap();
    let first: serde_json::Value = serde_json::from_str(made.lines().next().unwrap()).unwrap();
    let audio = first["audio_filepath"].as_str().unwrap();
    let dense = serde_json::json!({"id": "dense", "audio_filepath": audio, "text": "word ".repeat(400)}).to_string();
    dir.write("c/dense.jsonl", &dense);
    dir.write("c/some.jsonl", format!("{made}{dense}\n"));
    let share = ["--set", "data.unusable_share=1"];
    for (list, limit) in [
        ("dense", "data.max_seconds=30"),
        ("some", "data.max_seconds=30"),
        ("some", "data.max_seconds=2"),
        ("some", "data.max_seconds=0.2"),
        ("some", "data.max_text_length=3"),
    ] {
        let list = format!("c/{list}.jsonl");
        let limits = ["--set", limit, "--set", "data.min_seconds=0.1"];
        let check = dir.run(&[&["data", "check", &list, "--json"], &limits[..], &share].concat());
        let checked: serde_json::Value = serde_json::from_str(&check.stdout).unwrap();
        let import = dir.run(
            &[&["data", "import", &list, "--json", "--out", "c/out.jsonl", "--force"], &limits[..], &share].concat(),
        );
        assert_eq!(check.code, import.code, "{list} {limit}: {} {}", check.stderr, import.stderr);
        let imported: serde_json::Value = serde_json::from_str(&import.stdout).unwrap();
        assert_eq!(checked, imported, "{list} {limit}");
        assert!(checked["rule"].as_str().unwrap().contains("(data.max_seconds), with enough audio"), "{checked}");
        let usable = checked["usable"].as_u64().unwrap();
        if usable == 0 {
            assert_eq!(check.code, Some(2));
            assert!(check.stderr.contains("none of the utterances can be used"), "{}", check.stderr);
            assert!(!dir.path("c/out.jsonl").exists());
        } else {
            let list = std::fs::read_to_string(dir.path("c/out.jsonl")).unwrap();
            assert_eq!(list.lines().count() as u64, usable);
            std::fs::remove_file(dir.path("c/out.jsonl")).unwrap();
        }
    }
}

#[cfg(unix)]
#[test]
fn special_files_and_names_cost_only_their_utterances() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    let dir = folder_with_corpus();
    let audio = dir.path("mine/wavs").join(&names(&dir.path("mine/wavs"))[0]);
    std::fs::create_dir(dir.path("mixed")).unwrap();
    for name in [&b"good.wav"[..], b"caf\xe9.wav"] {
        let file = dir.path("mixed").join(OsStr::from_bytes(name));
        std::fs::copy(&audio, &file).unwrap();
        std::fs::write(file.with_extension("txt"), "one").unwrap();
    }
    let pipe = dir.path("mixed/pipe.wav");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    dir.write("mixed/pipe.txt", "one");
    let check = dir.run(&["data", "check", "mixed", "--set", "data.unusable_share=0.9"]).success();
    assert!(check.stdout.contains("pipe.wav: it is a named pipe, not a file"), "{}", check.stdout);
    let before = names(&dir.path("."));
    let import =
        dir.run(&["data", "import", "mixed", "--out", "list.jsonl", "--set", "data.unusable_share=0.9"]).success();
    assert!(check.stdout.contains("3 utterances listed, 1 usable"), "{}", check.stdout);
    for expected in
        ["3 utterances listed, 1 usable", "it is a named pipe, not a file", "is not UTF-8", "caf\u{fffd}.wav"]
    {
        assert!(import.stdout.contains(expected), "{expected}: {}", import.stdout);
    }
    assert_eq!(names(&dir.path(".")).len(), before.len() + 1);
    let refused = dir.run(&["data", "check", "mixed/pipe.wav"]);
    assert_eq!(refused.code, Some(2));
    assert!(refused.stderr.contains("it is a named pipe, not a file"), "{}", refused.stderr);
}

#[test]
fn folder_of_relative_paths_is_named() {
    let dir = folder_with_corpus();
    let wavs = names(&dir.path("mine/wavs"));
    let lines = |line: &dyn Fn(&String) -> String| wavs.iter().map(line).collect::<String>();
    std::fs::create_dir_all(dir.path("recipe/data/train")).unwrap();
    std::fs::rename(dir.path("mine/wavs"), dir.path("recipe/wavs")).unwrap();
    dir.write("recipe/data/train/wav.scp", lines(&|wav| format!("{wav} wavs/{wav}\n")));
    dir.write("recipe/data/train/text", lines(&|wav| format!("{wav} one\n")));
    let check = dir.run(&["data", "check", "recipe/data/train"]);
    assert_eq!(check.code, Some(2));
    assert!(check.stdout.contains("recipe: --audio-root "), "{}", check.stdout);
    let train = dir.run(&[&["train", "--data", "recipe/data/train", "--dry-run"], SMALL].concat());
    assert_eq!(train.code, Some(2));
    assert!(train.stderr.contains("data.audio_root="), "{}", train.stderr);
    dir.run(&["data", "check", "recipe/data/train", "--audio-root", "recipe"]).success();
}

#[test]
fn unknown_corpora_are_refused() {
    let dir = TestFolder::new();
    dir.write("empty/readme.md", "nothing here");
    for (args, expected) in [
        (&["data", "check"][..], "no corpus was named"),
        (&["data", "check", "nowhere"], "corpus nowhere does not exist"),
        (&["data", "import", "empty"], "is not a corpus in a known layout"),
        (&["data", "import", "empty", "--format", "kaldy"], "there is no format `kaldy`"),
        (&["data", "import", "empty", "--format", "kaldi"], "is not of the format `kaldi`"),
    ] {
        let output = dir.run(args);
        assert_eq!(output.code, Some(2), "{args:?}: {output:?}");
        assert!(
            output.stderr.split_whitespace().collect::<Vec<_>>().join(" ").contains(expected),
            "{args:?}: {}",
            output.stderr
        );
    }
}

#[test]
fn cached_features_keep_weights() {
    let dir = TestFolder::new();
    let train = |name: &str, more: &[&str]| dir.train(&[&["--name", name, "--steps", "3"], more].concat()).success();
    let kept = ["--set", "data.cache_dir=kept", "--set", "data.cache_memory=0"];
    train("plain", &[]);
    train("first", &kept);
    let report = dir.run(&["data", "cache", "kept", "--json"]).success().stdout;
    let report: serde_json::Value = serde_json::from_str(&report).unwrap();
    assert!(report["records"].as_u64().unwrap() >= 24 && report["damaged"].as_array().unwrap().is_empty(), "{report}");
    train("second", &kept);
    let weights = |name: &str| {
        std::fs::read(dir.path(&format!("runs/{name}/checkpoints/step-0000003/weights.safetensors"))).unwrap()
    };
    assert!(weights("plain") == weights("first") && weights("first") == weights("second"), "the weights differ");
    dir.run(&["data", "cache", "kept", "--clear"]).success();
    assert!(dir.run(&["data", "cache", "kept"]).success().stdout.contains("kept: 0 records in 0 files"));
    assert_eq!(dir.run(&["data", "cache", "nowhere"]).code, Some(2));
}

#[test]
fn a_filled_cache_has_what_a_run_needs() {
    let dir = TestFolder::new();
    let fill = |more: &[&str]| {
        let args = [&["data", "cache", "kept", "--fill", "--json"], SMALL, more].concat();
        let report = dir.run(&args).success().stdout;
        serde_json::from_str::<serde_json::Value>(&report).unwrap()
    };
    let number = |report: &serde_json::Value, name: &str| report[name].as_u64().unwrap();
    let speeds = ["--set", "augment.speeds=[0.9,1.0]"];
    let parts: Vec<_> = (1..=3).map(|part| fill(&[&["--part", &format!("{part}/3")], &speeds[..]].concat())).collect();
    let sum = |name: &str| parts.iter().map(|part| number(part, name)).sum::<u64>();
    let (all, records) = (sum("utterances"), sum("computed"));
    assert!(all >= 24 && (all + 1..2 * all).contains(&records), "each at two speeds, but those to validate: {parts:?}");
    // All parts together are the whole.
    let again = fill(&speeds);
    assert_eq!((number(&again, "utterances"), number(&again, "computed")), (all, 0), "{again}");
    assert_eq!(number(&again, "found"), records, "{again}");
    let kept = ["--set", "data.cache_dir=kept", "--set", "data.cache_memory=0"];
    dir.train(&[&["--name", "run", "--steps", "2"], &kept[..], &speeds[..]].concat()).success();
    let report = dir.run(&["data", "cache", "kept", "--json"]).success().stdout;
    let report: serde_json::Value = serde_json::from_str(&report).unwrap();
    // Of audio that is older than two seconds, the cache keeps a hash, too.
    let features = number(&report, "records") - number(&report, "hashes");
    assert_eq!(features, records, "the run computed features: {report}");
    // A cache that is too small, and a command that makes no sense.
    let small = ["data", "cache", "tiny", "--fill", "--set", "data.cache_size=64KiB"];
    let output = dir.run(&[&small[..], SMALL].concat());
    assert!(output.code == Some(2) && output.stderr.contains("did not fit into 64 KiB"), "{output:?}");
    for wrong in [&["--part", "4/3"][..], &["--clear"], &["--set", "task=vocoder"]] {
        assert_eq!(dir.run(&[&["data", "cache", "kept", "--fill"], wrong].concat()).code, Some(2), "{wrong:?}");
    }
    assert_eq!(dir.run(&["data", "cache", "--fill"]).code, Some(2));
}

#[test]
fn bench_measures_loading() {
    let dir = TestFolder::new();
    let bench = ["data", "bench", "--json", "--set", "data.cache_dir=kept"];
    let report = dir.run(&[&bench[..], SMALL].concat()).success().stdout;
    let report: serde_json::Value = serde_json::from_str(&report).unwrap();
    let speeds = report["speeds"].as_array().unwrap();
    assert!(speeds.iter().all(|speed| speed["audio_seconds_per_second"].as_f64().unwrap() > 0.0), "{report}");
    assert_eq!(speeds.last().unwrap()["cached"].as_bool(), Some(true));
}

#[test]
fn too_long_utterances_follow_policy() {
    let dir = TestFolder::new();
    dir.run(&["corpus", "make", "--out", "c", "--utterances", "24", "--speakers", "4"]).success();
    let limits = ["--manifest", "c/manifest.jsonl", "--set", "data.max_seconds=2", "--set", "data.min_seconds=0"];
    let train = |more: &[&str]| dir.train(&[&["--dry-run"], &limits[..], more].concat()).success();
    // What limits leave out is judged like what is damaged.
    let refused = dir.train(&[&["--dry-run"], &limits[..]].concat());
    assert_eq!(refused.code, Some(2), "{refused:?}");
    for expected in ["17 too long (the first: ", "data.too_long=split", "data.max_seconds", "data.unusable_share"] {
        assert!(refused.stderr.contains(expected), "{expected}: {}", refused.stderr);
    }
    let allowed = train(&["--set", "data.unusable_share=1"]);
    assert!(allowed.stderr.contains("utterances: too long"), "{}", allowed.stderr);
    for policy in ["split", "chunk", "truncate"] {
        let output = train(&["--set", &format!("data.too_long={policy}")]);
        assert!(output.stderr.contains(&format!("are longer than 2s; by `{policy}` they became")), "{}", output.stderr);
        assert!(!output.stderr.contains("utterances: too long"), "{}", output.stderr);
    }
}

#[test]
fn unreadable_too_long_utterance_does_not_stop_run() {
    let dir = TestFolder::new();
    dir.run(&["corpus", "make", "--out", "c", "--utterances", "30", "--speakers", "4"]).success();
    let lines = std::fs::read_to_string(dir.path("c/manifest.jsonl")).unwrap();
    let broken = r#"{"audio_filepath": "broken.wav", "text": "one", "duration": 600.0}"#;
    dir.write("c/manifest.jsonl", format!("{}\n{broken}\n", lines.trim_end()));
    dir.write("c/broken.wav", "not a sound");
    let train = ["train", "--manifest", "c/manifest.jsonl", "--dry-run", "--set", "data.too_long=split"];
    let output = dir.run(&[&train[..], SMALL].concat()).success();
    for expected in ["is too long and cannot be cut: ", "1 utterance: too long"] {
        assert!(output.stderr.contains(expected), "{expected}: {}", output.stderr);
    }
}

#[test]
fn too_many_broken_files_stop_run_and_name_key() {
    let dir = TestFolder::new();
    dir.run(&["corpus", "make", "--out", "c", "--utterances", "24", "--speakers", "4"]).success();
    for name in names(&dir.path("c/wavs")).into_iter().step_by(2) {
        dir.write(&format!("c/wavs/{name}"), "not a sound");
    }
    let output = dir.run(&[&["train", "--manifest", "c/manifest.jsonl", "--steps", "20"], SMALL].concat());
    assert_eq!(output.code, Some(1), "{output:?}");
    assert!(output.stderr.contains("data.unusable_share"), "{}", output.stderr);
}
