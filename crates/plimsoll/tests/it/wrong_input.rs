//! Wrong input: one message, the right exit code, no panic, no backtrace.

use crate::program::{ProgramOutput, SMALL, TestFolder, silence};

/// Runs the program, asserts the exit code, no panic and no output, and returns the error message.
fn refused(dir: &TestFolder, args: &[&str], code: i32) -> String {
    let output: ProgramOutput = dir.run(args);
    assert_eq!(output.code, Some(code), "{args:?}: {output:?}");
    for unwanted in ["panicked", "stack backtrace", "RUST_BACKTRACE", "src/"] {
        assert!(!output.stderr.contains(unwanted), "{args:?}: {}", output.stderr);
    }
    assert!(output.stdout.is_empty(), "{args:?}: {}", output.stdout);
    output.stderr
}

/// Makes a folder with damaged and missing inputs of every kind.
fn folder_with_wrong_input() -> TestFolder {
    let dir = TestFolder::new();
    let line = |file: &str, text: &str| format!("{{\"audio_filepath\": \"{file}\", \"text\": \"{text}\"}}\n");
    dir.write("empty.jsonl", "");
    dir.write("garbage.jsonl", line("silent.wav", "x") + "not json\n");
    dir.write("keyless.jsonl", "{\"audio\": \"a.wav\"}\n");
    dir.write("missing.jsonl", line("nowhere.wav", "x"));
    dir.write("broken.wav", b"RIFF\x10\x00\x00\x00WAVEfmt \x00\x00");
    dir.write("text.wav", "this is no sound");
    dir.write("broken.jsonl", line("broken.wav", "x"));
    dir.write("silent.wav", silence(16_000, 1600));
    dir.write("long_text.jsonl", line("silent.wav", "a very long text for a tenth of a second of sound"));
    dir.write("twice.jsonl", line("silent.wav", "a") + &line("silent.wav", "b"));
    dir.write("textless.jsonl", line("silent.wav", "  "));
    dir.write("a_file", "");
    dir.write("bad.toml", "[training\nsteps = 3");
    dir.write("misspelt.toml", "[training]\nlearning_rat = 0.1\nsteps = 5\n");
    dir.write("config.ini", "steps = 3");
    dir.write("runs/taken/plan.toml", "");
    dir.write("runs/no_checkpoint/config.toml", "[training]\nsteps = 5\n");
    dir.write("runs/no_checkpoint/model.json", "{}");
    dir.write("runs/no_checkpoint/checkpoints/step-0000003/state.json", "{}");
    dir
}

#[test]
fn every_mistake_gets_one_message() {
    let dir = folder_with_wrong_input();
    let mut page = String::new();
    let small_corpus = &SMALL[..4];
    for args in [
        &["train", "--config", "nowhere.toml"][..],
        &["train", "--config", "bad.toml"],
        &["train", "--config", "misspelt.toml"],
        &["train", "--config", "config.ini"],
        &["train", "--set", "training.steps=many"],
        &["train", "--set", "trainin.steps=3"],
        &["train", "--set", "steps"],
        &["train", "--batch-size", "-4"],
        &["train", "--backend", "tpu"],
        &["train", "--backend", "wgpu", "--manifest", "empty.jsonl"],
        &["train", "--max-memory", "lots"],
        &["train", "--task", "tts", "--set", "features.preset=whisper"],
        &["train", "--precision", "fp8"],
        &["train", "--d-model", "30"],
        &["train", "--manifest", "nowhere.jsonl"],
        &["train", "--manifest", "empty.jsonl"],
        &["train", "--manifest", "garbage.jsonl"],
        &["train", "--manifest", "keyless.jsonl"],
        &["train", "--manifest", "missing.jsonl"],
        &["train", "--manifest", "broken.jsonl"],
        &["train", "--manifest", "long_text.jsonl"],
        &["train", "--manifest", "textless.jsonl"],
        &["train", "--manifest", "twice.jsonl"],
        &[&["train", "--name", "taken"], small_corpus].concat(),
        &[&["train", "--set", "runs_dir=a_file"], small_corpus].concat(),
        &["train", "--resume", "runs/nowhere"],
        &[&["train", "--resume", "runs/no_checkpoint"], small_corpus].concat(),
        &["transcribe", "nowhere.wav", "--run", "runs/nowhere"],
        &["transcribe", "text.wav", "--run", "runs/taken"],
        &["transcribe", "text.wav", "--run", "runs/no_checkpoint"],
        &["transcribe", "runs", "--run", "runs/taken"],
        &["corpus", "make", "--out", "c", "--utterances", "0"],
        &["corpus", "make", "--out", "c", "--speakers", "0"],
        &["corpus", "make", "--out", "a_file"],
        &["frobnicate"],
    ] {
        let message = refused(&dir, args, 2);
        // Output of the work before the mistake is not part of the message.
        let message: Vec<&str> = message
            .lines()
            .filter(|line| {
                !line.starts_with("No data was given") && !line.contains("voices,") && !line.starts_with("  ")
                    || line.starts_with("  ×")
                    || line.starts_with("  │")
                    || line.starts_with("  ╰")
                    || line.starts_with("  help")
            })
            .filter(|line| !line.starts_with("What will happen"))
            .collect();
        page += &format!("$ plimsoll {}\n{}\n\n", args.join(" "), message.join("\n").trim_end());
    }
    insta::assert_snapshot!(page);
}

#[test]
fn transcribe_refuses_damaged_files() {
    let dir = folder_with_wrong_input();
    dir.train(&["--name", "r", "--steps", "1"]).success();
    for file in ["nowhere.wav", "text.wav", "broken.wav", "a_file"] {
        let message = refused(&dir, &["transcribe", file, "--run", "runs/r"], 2);
        assert!(message.contains(file), "{message}");
    }
    // Three milliseconds are accepted.
    dir.write("short.wav", silence(16_000, 48));
    dir.run(&["transcribe", "short.wav", "--run", "runs/r"]).success();
    dir.write("runs/r/checkpoints/step-0000001/weights.safetensors", "nonsense");
    let message = refused(&dir, &["transcribe", "silent.wav", "--run", "runs/r"], 2);
    assert!(message.contains("weights.safetensors is damaged"), "{message}");
}

#[test]
fn all_sample_rates_are_read_and_two_hours_are_left_out() {
    let dir = TestFolder::new();
    dir.run(&["corpus", "make", "--out", "c", "--utterances", "24", "--speakers", "4"]).success();
    let manifest = std::fs::read_to_string(dir.path("c/manifest.jsonl")).unwrap();
    // A sparse file: two hours of audio that take no space on the disk.
    let mut long = silence(16_000, 0);
    let bytes = 2 * 3600 * 16_000 * 2_u32;
    long[4..8].copy_from_slice(&(bytes + 36).to_le_bytes());
    let data = long.len() - 4;
    long[data..].copy_from_slice(&bytes.to_le_bytes());
    dir.write("c/long.wav", &long);
    let file = std::fs::File::options().write(true).open(dir.path("c/long.wav")).unwrap();
    file.set_len(u64::from(bytes) + long.len() as u64).unwrap();
    let textless = manifest.lines().next().unwrap().replacen("\"text\":\"", "\"text\":\"\",\"spoken\":\"", 1);
    let line = "{\"audio_filepath\": \"long.wav\", \"text\": \"on and on\"}\n".to_string();
    dir.write("c/odd.jsonl", manifest.clone() + &line + &textless.replace("s000-00000\"", "other\"") + "\n");
    let small = &SMALL[4..];
    let odd = ["train", "--manifest", "c/odd.jsonl", "--dry-run", "--steps", "1", "--set", "data.unusable_share=0.1"];
    let output = dir.run(&[&odd[..], small].concat()).success();
    assert!(output.stderr.contains("1 utterance: ") && output.stderr.contains("left out"), "{output:?}");
    dir.run(&[&["train", "--manifest", "c/manifest.jsonl", "--name", "r", "--steps", "1"], small].concat()).success();
    for rate in [8_000, 11_025, 44_100, 48_000, 96_000] {
        dir.write("other.wav", silence(rate, rate / 2));
        dir.run(&["transcribe", "other.wav", "--run", "runs/r"]).success();
    }
}

#[test]
fn weights_of_another_model_are_refused() {
    let dir = TestFolder::new();
    for (name, width) in [("narrow", "model.d_model=16"), ("wide", "model.d_model=24")] {
        dir.train(&["--name", name, "--steps", "1", "--set", width]).success();
        dir.run(&["export", "--run", &format!("runs/{name}"), "--out", name]).success();
    }
    std::fs::copy(dir.path("wide/model.safetensors"), dir.path("narrow/model.safetensors")).unwrap();
    dir.write("silent.wav", silence(16_000, 1600));
    let message = refused(&dir, &["transcribe", "silent.wav", "--run", "narrow"], 2);
    assert!(message.contains("in the weights and"), "{message}");
}
