//! Wrong input of every kind: one clear message, the right exit code, no panic, no back trace.

use crate::program::{Place, SMALL, Said, silence};

/// Runs `args` in `place` and returns what was said, checked for manners.
fn refused(place: &Place, args: &[&str], code: i32) -> String {
    let said: Said = place.run(args);
    assert_eq!(said.code, Some(code), "{args:?}: {said:?}");
    for rude in ["panicked", "stack backtrace", "RUST_BACKTRACE", "src/"] {
        assert!(!said.err.contains(rude), "{args:?}: {}", said.err);
    }
    assert!(said.out.is_empty(), "{args:?}: {}", said.out);
    said.err
}

/// A place with things that are wrong in it, and one small run that is right.
fn wrong_place() -> Place {
    let place = Place::new();
    let line = |file: &str, text: &str| format!("{{\"audio_filepath\": \"{file}\", \"text\": \"{text}\"}}\n");
    place.write("empty.jsonl", "");
    place.write("garbage.jsonl", line("silent.wav", "x") + "not json\n");
    place.write("keyless.jsonl", "{\"audio\": \"a.wav\"}\n");
    place.write("missing.jsonl", line("nowhere.wav", "x"));
    place.write("broken.wav", b"RIFF\x10\x00\x00\x00WAVEfmt \x00\x00");
    place.write("text.wav", "this is no sound");
    place.write("broken.jsonl", line("broken.wav", "x"));
    place.write("silent.wav", silence(16_000, 1600));
    place.write("long_text.jsonl", line("silent.wav", "a very long text for a tenth of a second of sound"));
    place.write("twice.jsonl", line("silent.wav", "a") + &line("silent.wav", "b"));
    place.write("textless.jsonl", line("silent.wav", "  "));
    place.write("a_file", "");
    place.write("bad.toml", "[training\nsteps = 3");
    place.write("misspelt.toml", "[training]\nlearning_rat = 0.1\nsteps = 5\n");
    place.write("config.ini", "steps = 3");
    place.write("runs/taken/plan.toml", "");
    place.write("runs/no_checkpoint/config.toml", "[training]\nsteps = 5\n");
    place.write("runs/no_checkpoint/model.json", "{}");
    place.write("runs/no_checkpoint/checkpoints/step-0000003/state.json", "{}");
    place
}

#[test]
fn every_mistake_gets_one_message() {
    let place = wrong_place();
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
        let told = refused(&place, args, 2);
        // What is done on the way to the mistake is no part of the message.
        let told: Vec<&str> = told
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
        page += &format!("$ plimsoll {}\n{}\n\n", args.join(" "), told.join("\n").trim_end());
    }
    insta::assert_snapshot!(page);
}

#[test]
fn a_trained_model_refuses_what_is_no_recording() {
    let place = wrong_place();
    place.train(&["--name", "r", "--steps", "1"]).fine();
    for file in ["nowhere.wav", "text.wav", "broken.wav", "a_file"] {
        let told = refused(&place, &["transcribe", file, "--run", "runs/r"], 2);
        assert!(told.contains(file), "{told}");
    }
    // Three milliseconds are a recording all the same.
    place.write("short.wav", silence(16_000, 48));
    place.run(&["transcribe", "short.wav", "--run", "runs/r"]).fine();
    place.write("runs/r/checkpoints/step-0000001/weights.safetensors", "nonsense");
    let told = refused(&place, &["transcribe", "silent.wav", "--run", "runs/r"], 2);
    assert!(told.contains("weights.safetensors is damaged"), "{told}");
}

#[test]
fn any_rate_is_read_and_two_hours_are_left_out_by_count() {
    let place = Place::new();
    place.run(&["corpus", "make", "--out", "c", "--utterances", "24", "--speakers", "4"]).fine();
    let manifest = std::fs::read_to_string(place.path("c/manifest.jsonl")).unwrap();
    // Two hours that take no room on the disk: a header, and a hole.
    let mut long = silence(16_000, 0);
    let bytes = 2 * 3600 * 16_000 * 2_u32;
    long[4..8].copy_from_slice(&(bytes + 36).to_le_bytes());
    let data = long.len() - 4;
    long[data..].copy_from_slice(&bytes.to_le_bytes());
    place.write("c/long.wav", &long);
    let file = std::fs::File::options().write(true).open(place.path("c/long.wav")).unwrap();
    file.set_len(u64::from(bytes) + long.len() as u64).unwrap();
    let textless = manifest.lines().next().unwrap().replacen("\"text\":\"", "\"text\":\"\",\"spoken\":\"", 1);
    let line = "{\"audio_filepath\": \"long.wav\", \"text\": \"on and on\"}\n".to_string();
    place.write("c/odd.jsonl", manifest.clone() + &line + &textless.replace("s000-00000\"", "other\"") + "\n");
    let small = &SMALL[4..];
    let told =
        place.run(&[&["train", "--manifest", "c/odd.jsonl", "--dry-run", "--steps", "1"], small].concat()).fine();
    assert!(told.err.contains("1 utterances: ") && told.err.contains("left out"), "{told:?}");
    place.run(&[&["train", "--manifest", "c/manifest.jsonl", "--name", "r", "--steps", "1"], small].concat()).fine();
    for rate in [8_000, 11_025, 44_100, 48_000, 96_000] {
        place.write("other.wav", silence(rate, rate / 2));
        place.run(&["transcribe", "other.wav", "--run", "runs/r"]).fine();
    }
}

#[test]
fn the_weights_of_another_model_are_refused_by_name() {
    let place = Place::new();
    for (name, width) in [("narrow", "model.d_model=16"), ("wide", "model.d_model=24")] {
        place.train(&["--name", name, "--steps", "1", "--set", width]).fine();
        place.run(&["export", "--run", &format!("runs/{name}"), "--out", name]).fine();
    }
    std::fs::copy(place.path("wide/model.safetensors"), place.path("narrow/model.safetensors")).unwrap();
    place.write("silent.wav", silence(16_000, 1600));
    let told = refused(&place, &["transcribe", "silent.wav", "--run", "narrow"], 2);
    assert!(told.contains("in the weights and"), "{told}");
}
