//! Outputs that cannot be written: pipes without a reader, full devices and closed files never end in a panic.

use std::fs::File;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::program::{SMALL, TestFolder};
use crate::speaking::SMALL_VOICE;

/// A way in which an output cannot be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Broken {
    /// A pipe whose reader has ended.
    Pipe,
    /// A device that is always full.
    Full,
    /// A file that is not open.
    Closed,
}

/// Standard output or standard error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stream {
    Out,
    Error,
}

/// Every command, with arguments that make it print. `train` and `say` come with arguments that write files, too.
const COMMANDS: [&[&str]; 44] = [
    &["--help"],
    &["--version"],
    &["train", "--help"],
    &["frobnicate"],
    &["scale", "--run", "runs/r"],
    &["train", "--resume", "runs/r", "--steps", "2"],
    &["train", "--resume", "runs/r", "--steps", "2", "--dry-run"],
    &["train", "--config", "nowhere.toml"],
    &["transcribe", "wavs", "--run", "runs/r"],
    &["transcribe", "wavs", "--run", "runs/r", "--json", "-vv"],
    &["transcribe", "wavs", "--run", "runs/r", "--format", "srt", "--out-dir", "subtitles", "--force"],
    &["align", "--help"],
    &["lm", "train", "lines.txt", "--out", "lines.lm", "--force"],
    &["lm", "info", "nowhere.lm"],
    // A second time the folder is not empty.
    &["data", "pack", "--help"],
    &["transcribe", "nowhere.wav", "--run", "runs/r"],
    &["say", "zero", "--run", "runs/v", "--force"],
    &["say", "--file", "lines.txt", "--run", "runs/v", "--force"],
    &["eval", "--run", "runs/r", "--limit", "1"],
    &["export", "--run", "runs/r", "--out", "model", "--force"],
    &["runs", "list"],
    &["runs", "show", "r"],
    &["runs", "compare", "r", "v"],
    &["report", "r", "v", "--out", "runs.html", "--force"],
    &["report", "r", "--out", "-"],
    &["monitor", "--once", "--interval", "0.2", "--run", "r"],
    &["monitor", "--once", "--interval", "0.2", "--json"],
    &["profile", "--config", "run.toml", "--data", "c/manifest.jsonl", "--steps", "3", "--json"],
    &["advise", "--run", "r"],
    &["advise", "--run", "r", "--output", "advised.toml", "--force"],
    // The exit codes of these two depend on the machine at the moment.
    &["stress", "--help"],
    &["prove", "--help"],
    &["doctor", "--help"],
    &["model", "info", "--config", "run.toml"],
    &["memtest", "--config", "run.toml", "--gpu", "16GiB"],
    &["optimize", "--config", "run.toml", "--gpu", "16GiB", "--output", "less.toml", "--force"],
    &["gpu-info"],
    &["data", "import", "wavs/..", "--out", "list.jsonl", "--force"],
    &["data", "check", "wavs/..", "--page", "page.html", "--force"],
    &["data", "stats", "wavs/.."],
    &["data", "cache", "kept", "--clear"],
    &["corpus", "make", "--out", "made", "--utterances", "2", "--force"],
    &["config", "print"],
    &["config", "path"],
];

/// Runs the program with one of its outputs broken.
fn run_broken(dir: &TestFolder, args: &[&str], stream: Stream, broken: Broken) -> Output {
    let mut command = match broken {
        Broken::Closed => {
            let inner = dir.command(args);
            let close = if stream == Stream::Out { ">&-" } else { "2>&-" };
            let mut shell = Command::new("sh");
            shell.args(["-c", &format!("exec \"$0\" \"$@\" {close}")]).arg(inner.get_program()).args(args);
            shell.current_dir(dir.path("")).env("NO_COLOR", "1");
            shell
        }
        _ => dir.command(args),
    };
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let end = || match broken {
        Broken::Pipe => Some(Stdio::from(std::io::pipe().unwrap().1)),
        Broken::Full => Some(Stdio::from(File::options().write(true).open("/dev/full").unwrap())),
        Broken::Closed => None,
    };
    match (stream, end()) {
        (Stream::Out, Some(end)) => _ = command.stdout(end),
        (Stream::Error, Some(end)) => _ = command.stderr(end),
        (_, None) => {}
    }
    let child = command.spawn().unwrap();
    // The command holds copies of the ends.
    drop(command);
    child.wait_with_output().unwrap()
}

fn folder() -> TestFolder {
    let dir = TestFolder::new();
    dir.run(&["corpus", "make", "--out", "c", "--utterances", "24", "--speakers", "4"]).success();
    let listed = [&["train", "--manifest", "c/manifest.jsonl"], &SMALL[4..]].concat();
    dir.run(&[&listed[..], &["--name", "r", "--steps", "1"]].concat()).success();
    dir.run(&[&["train"], SMALL_VOICE, &["--name", "v", "--steps", "1"]].concat()).success();
    dir.write(
        "run.toml",
        "[model]\nd_model = 16\nattention_heads = 2\nvocabulary = 40\nencoder_layers = 1\n[data]\nmax_seconds = 4\n[training]\nepochs = 1\n",
    );
    dir.write("lines.txt", "zero\none\n");
    std::fs::create_dir(dir.path("kept")).unwrap();
    std::os::unix::fs::symlink("c/wavs", dir.path("wavs")).unwrap();
    dir
}

/// Checks one command with one broken output against what it does with whole outputs.
fn check(dir: &TestFolder, args: &[&str], stream: Stream, broken: Broken, whole: &Output) {
    let found = run_broken(dir, args, stream, broken);
    let text = String::from_utf8_lossy(&found.stderr).into_owned() + &String::from_utf8_lossy(&found.stdout);
    let place = format!("{args:?} {stream:?} {broken:?}: {found:?}");
    assert!(found.status.code() != Some(101) && found.status.signal().is_none(), "{place}");
    assert!(!text.contains("panicked") && !text.contains("Broken pipe"), "{place}");
    let has_file = args.contains(&"--file") || (args[0] == "advise" && args.contains(&"--output"));
    let goes_on = (args[0] == "train" && !args.contains(&"--help")) || has_file;
    let expected = match (stream, broken) {
        (Stream::Error, _) | (_, Broken::Closed) => whole.status.code(),
        _ if whole.stdout.is_empty() || goes_on => whole.status.code(),
        (Stream::Out, Broken::Pipe) => Some(141),
        (Stream::Out, Broken::Full) => Some(1),
    };
    assert_eq!(found.status.code(), expected, "{place}");
}

#[test]
fn every_command_is_listed() {
    for line in include_str!("../../../../xtask/src/commands.txt").lines() {
        let name = line.split('\t').next().unwrap();
        assert!(COMMANDS.iter().any(|args| args[0] == name), "{name}");
    }
}

/// Every command, with each output broken in every way: no panic, no signal, and the exit code of the command or of its lost
/// output.
#[test]
fn broken_outputs_never_panic() {
    break_outputs(&COMMANDS[..COMMANDS.len() / 2]);
}

#[test]
fn broken_outputs_of_further_commands_never_panic() {
    break_outputs(&COMMANDS[COMMANDS.len() / 2..]);
}

fn break_outputs(commands: &[&[&str]]) {
    let dir = folder();
    let next = AtomicUsize::new(0);
    let work = || {
        while let Some(args) = commands.get(next.fetch_add(1, Ordering::Relaxed)) {
            let whole = dir.command(args).output().unwrap();
            assert!(whole.status.code().is_some_and(|code| code <= 2), "{args:?}: {whole:?}");
            for stream in [Stream::Out, Stream::Error] {
                for broken in [Broken::Pipe, Broken::Full, Broken::Closed] {
                    check(&dir, args, stream, broken, &whole);
                }
            }
        }
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(work)).collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
}

/// A reader that takes the beginning: the rest of the work is not done, and nothing is said about it.
#[test]
fn reader_that_ends_early_ends_transcription_quietly() {
    let dir = folder();
    let program = dir.command(&[]).get_program().to_string_lossy().into_owned();
    let script = format!(
        "{program} transcribe wavs --run runs/r | head -c1; {program} train --resume runs/r --steps 3 2>&1 | head -3"
    );
    let output = Command::new("sh").args(["-c", &script]).current_dir(dir.path("")).output().unwrap();
    assert!(output.stderr.is_empty(), "{output:?}");
    assert!(dir.path("runs/r/checkpoints/step-0000003").is_dir(), "training did not go on: {output:?}");
}
