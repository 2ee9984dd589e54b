//! Files that commands write: never over an existing file, a link or a device, and all with the same errors.

use std::os::unix::fs::{FileTypeExt, symlink};
use std::process::Command;

use crate::program::{ProgramOutput, SMALL, TestFolder, names};
use crate::speaking::SMALL_VOICE;

/// Makes a folder with a recognizer, a synthesizer and a configuration.
fn folder() -> TestFolder {
    let dir = TestFolder::new();
    dir.train(&["--name", "r", "--steps", "1"]).success();
    dir.run(&[&["train"], SMALL_VOICE, &["--name", "v", "--steps", "1"]].concat()).success();
    dir.write(
        "run.toml",
        "[model]\nd_model = 16\nattention_heads = 2\nvocabulary = 40\nencoder_layers = 1\n[data]\nmax_seconds = 4\n[training]\nepochs = 1\n",
    );
    dir
}

/// Command lines that write one file, without the name of the file, which comes last.
const WRITERS: [&[&str]; 8] = [
    &["say", "zero", "--run", "runs/v", "--out"],
    &["say", "zero", "--run", "runs/v", "--out", "/dev/null", "--picture"],
    &["eval", "--run", "runs/r", "--limit", "1", "--table"],
    &["optimize", "--config", "run.toml", "--gpu", "16GiB", "--output"],
    &["memtest", "--config", "run.toml", "--gpu", "16GiB", "--timeline"],
    &["memtest", "--config", "run.toml", "--gpu", "16GiB", "--trace"],
    &["data", "check", "corpus/formant-24x4-seed1", "--page"],
    &["data", "import", "corpus/formant-24x4-seed1", "--out"],
];

fn run(dir: &TestFolder, writer: &[&str], file: &str, more: &[&str]) -> ProgramOutput {
    dir.run(&[writer, &[file], more].concat())
}

/// Every command that writes a file, at every kind of place.
#[test]
fn writers_replace_nothing_unasked_and_leave_nothing_behind() {
    let dir = folder();
    for writer in WRITERS {
        std::fs::remove_dir_all(dir.path("o")).unwrap_or_default();
        dir.write("o/old", "old");
        std::fs::create_dir(dir.path("o/folder")).unwrap();
        symlink("old", dir.path("o/link")).unwrap();
        symlink("gone", dir.path("o/dangling")).unwrap();
        assert!(Command::new("mkfifo").arg(dir.path("o/fifo")).status().unwrap().success());
        let before = names(&dir.path("o"));
        for place in ["o/old", "o/link", "o/dangling", "o/folder", "o/no/file", "o/old/file"] {
            let refused = run(&dir, writer, place, &[]);
            assert_eq!(refused.code, Some(2), "{writer:?} {place}: {refused:?}");
            let is_clear = refused.stderr.contains(place) && refused.stderr.contains("help: ");
            assert!(is_clear && refused.stdout.is_empty(), "{writer:?} {place}: {refused:?}");
        }
        assert_eq!(names(&dir.path("o")), before, "{writer:?}");
        assert_eq!(std::fs::read(dir.path("o/old")).unwrap(), b"old", "{writer:?}");
        run(&dir, writer, "o/new", &[]).success();
        run(&dir, writer, "o/link", &["--force"]).success();
        let new = std::fs::read(dir.path("o/new")).unwrap();
        assert_eq!(std::fs::read(dir.path("o/old")).unwrap().len(), new.len(), "{writer:?}");
        assert!(dir.path("o/link").is_symlink(), "{writer:?}");
        assert_eq!(names(&dir.path("o")).len(), before.len() + 1, "{writer:?}: {:?}", names(&dir.path("o")));
        run(&dir, writer, "/dev/null", &[]).success();
        let full = run(&dir, writer, "/dev/full", &[]);
        assert_eq!(full.code, Some(1), "{writer:?}: {full:?}");
        assert!(full.stderr.contains("cannot write /dev/full"), "{writer:?}: {full:?}");
        // Into a pipe with a reader.
        let reader = Command::new("cat").arg(dir.path("o/fifo")).stdout(std::process::Stdio::piped()).spawn().unwrap();
        run(&dir, writer, "o/fifo", &[]).success();
        assert!(!reader.wait_with_output().unwrap().stdout.is_empty(), "{writer:?}");
        assert!(std::fs::metadata(dir.path("o/fifo")).unwrap().file_type().is_fifo(), "{writer:?}");
    }
}

#[test]
fn dash_streams_to_standard_output_alone() {
    let dir = folder();
    for place in ["-", "/dev/stdout"] {
        let wav = dir.command(&["say", "zero", "--run", "runs/v", "--out", place]).output().unwrap();
        assert!(wav.status.success() && wav.stdout.starts_with(b"RIFF"), "{place}: {wav:?}");
        let reader = hound::WavReader::new(std::io::Cursor::new(&wav.stdout)).unwrap();
        assert_eq!(reader.len() as usize * 2 + 44, wav.stdout.len(), "{place}");
        let text = dir.run(&["optimize", "--config", "run.toml", "--gpu", "16GiB", "--output", place]).success();
        assert!(text.stdout.parse::<toml::Table>().is_ok() && text.stderr.contains("effective batch"), "{text:?}");
        let list = dir.run(&["data", "import", "corpus/formant-24x4-seed1", "--out", place]).success();
        let lines: Vec<serde_json::Value> =
            list.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        // A list without a folder has absolute paths.
        let is_absolute = |line: &serde_json::Value| line["audio_filepath"].as_str().unwrap().starts_with('/');
        assert!(lines.len() == 24 && lines.iter().all(is_absolute), "{list:?}");
    }
    assert!(!dir.path("-").exists());
}

#[test]
fn runs_are_found_by_their_names() {
    let dir = folder();
    for arguments in [
        &["say", "zero", "--run", "v", "--out", "zero.wav"][..],
        &["eval", "--run", "r", "--limit", "1", "--compare", "r"],
        &["eval", "--run", "v", "--limit", "1", "--judge", "r"],
        &["transcribe", "zero.wav", "--run", "r"],
        &["align", "zero.wav", "--text", "zero", "--run", "r"],
        &["export", "--run", "r", "--out", "model"],
        // An exported model is no run, and keeps its path.
        &["transcribe", "zero.wav", "--run", "model"],
    ] {
        let output = dir.run(arguments);
        if arguments[0] == "align" {
            // An alignment with an untrained model may be refused; by the folder it ends in the same way.
            let by_folder = dir.run(&["align", "zero.wav", "--text", "zero", "--run", "runs/r"]);
            assert_eq!((output.code, output.stdout), (by_folder.code, by_folder.stdout), "{:?}", output.stderr);
            assert!(!output.stderr.contains("no run"), "{}", output.stderr);
        } else {
            assert_eq!(output.code, Some(0), "{arguments:?}: {output:?}");
        }
        let missing: Vec<&str> = arguments.iter().map(|text| if *text == "r" { "gone" } else { text }).collect();
        let is_missing = missing != arguments;
        let refused = is_missing.then(|| dir.run(&missing));
        assert!(refused.is_none_or(|refused| refused.code == Some(2)), "{missing:?}");
    }
}

#[test]
fn optimize_writes_keys_that_flags_set() {
    let dir = folder();
    let flags = ["--set", "data.max_seconds=3", "--seed", "5", "--max-memory", "85%", "--backend", "cpu"];
    dir.run(&[&["optimize", "--config", "run.toml", "--gpu", "16GiB", "--output", "less.toml"], &flags[..]].concat())
        .success();
    let text = std::fs::read_to_string(dir.path("less.toml")).unwrap();
    let config = dir.run(&["config", "print", "--config", "less.toml", "--json"]).success().stdout;
    let config: serde_json::Value = serde_json::from_str(&config).unwrap();
    assert!(
        text.contains("max_seconds = ") && text.contains("seed = 5") && text.contains("max_memory_fraction = 0.85"),
        "{text}"
    );
    assert!(!text.contains("backend"), "{text}");
    assert!(config.to_string().contains("0.85"), "{config}");
    // Without a configuration, the built-in one is changed.
    dir.run(&["optimize", "--gpu", "16GiB", "--output", "x.toml"]).success();
    dir.run(&["config", "print", "--config", "x.toml"]).success();
    dir.train(&["--set", "runs_dir=others", "--name", "o", "--steps", "1"]).success();
    let list = dir.run(&["runs", "list", "--set", "runs_dir=others"]).success().stdout;
    assert!(list.contains("\no ") && !list.contains("\nr "), "{list}");
    dir.run(&["runs", "show", "o", "--set", "runs_dir=others"]).success();
    dir.run(&["gpu-info", "--device", "1", "--max-memory", "8GiB"]).success();
    assert_eq!(dir.run(&["gpu-info", "--max-memory", "lots"]).code, Some(2));
    assert_eq!(dir.run(&[&["train", "--device", "3", "--backend", "cpu", "--dry-run"], SMALL].concat()).code, Some(2));
    assert_eq!(dir.run(&["corpus", "make", "--out", "c", "--speakers", "50", "--utterances", "10"]).code, Some(2));
    dir.write("full/metadata.csv", "precious");
    let make = ["corpus", "make", "--out", "full", "--speakers", "2", "--utterances", "4", "--force"];
    let refused = dir.run(&make[..8]);
    assert!(refused.code == Some(2) && refused.stderr.contains("full is not empty"), "{refused:?}");
    assert_eq!(std::fs::read_to_string(dir.path("full/metadata.csv")).unwrap(), "precious");
    dir.run(&make).success();
}
