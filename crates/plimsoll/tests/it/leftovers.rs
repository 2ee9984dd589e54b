//! Accidents with files: a full disk, a signal, a run folder that is deleted, paths that are no files, and silent recordings.
//! Nothing half stays, and nothing hangs.

use std::fs;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGINT, SIGTERM};

use crate::program::{ProgramOutput, SMALL, TestFolder, names};
use crate::speaking::SMALL_VOICE;
use crate::stopping::{signal, wait_for_lines};

/// Longest time to wait for a program; far longer than any machine needs.
const PATIENCE: Duration = Duration::from_secs(300);

/// Waits for the end of `child`, which must not hang.
fn wait(mut child: Child, what: &str) -> ProgramOutput {
    let start = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if start.elapsed() > PATIENCE {
            child.kill().unwrap();
            panic!("{what} hangs");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    child.wait_with_output().unwrap().into()
}

/// Lists all files and folders below `folder`.
fn tree(folder: &Path) -> Vec<String> {
    let mut all = Vec::new();
    for name in names(folder) {
        let path = folder.join(&name);
        if path.is_dir() && !path.is_symlink() {
            all.extend(tree(&path).into_iter().map(|below| format!("{name}/{below}")));
        }
        all.push(name);
    }
    all.sort();
    all
}

/// Runs the program where no file can grow beyond a number of blocks, as on a disk that is full.
fn limited(dir: &TestFolder, blocks: u32, args: &[&str]) -> ProgramOutput {
    let inner = dir.command(args);
    let script = format!("ulimit -f {blocks}; exec \"$0\" \"$@\"");
    let mut shell = Command::new("sh");
    shell.args(["-c", &script]).arg(inner.get_program()).args(args);
    shell.current_dir(dir.path("")).env("NO_COLOR", "1").stdin(Stdio::null());
    shell.output().unwrap().into()
}

/// Makes a folder with a corpus, a run of a recognizer, and texts.
fn folder() -> TestFolder {
    let dir = TestFolder::new();
    dir.run(&["corpus", "make", "--out", "c", "--utterances", "24", "--speakers", "4"]).success();
    dir.train(&["--name", "r", "--steps", "1", "--manifest", "c/manifest.jsonl"]).success();
    let texts: String = (0..4000).map(|n| format!("one{n} two{} three{}\n", n % 999, n % 77)).collect();
    dir.write("texts.txt", texts);
    dir
}

/// Every command that writes, on disks that are full after more and more bytes.
#[test]
fn full_disks_leave_nothing_half() {
    let dir = folder();
    let writers: [&[&str]; 6] = [
        &["corpus", "make", "--out", "made/new", "--utterances", "4", "--speakers", "2"],
        &["data", "import", "c", "--out", "list.jsonl"],
        &["data", "pack", "c", "--out", "shards/new"],
        &["export", "--run", "runs/r", "--out", "model/new"],
        &["lm", "train", "texts.txt", "--out", "model.lm"],
        &["lm", "train", "texts.txt", "--out", "model.arpa"],
    ];
    for writer in writers {
        let before = tree(&dir.path(""));
        let mut failures = 0;
        for blocks in (0..16).map(|power| (1 << power) - 1) {
            let output = limited(&dir, blocks, writer);
            if output.code == Some(0) {
                break;
            }
            failures += 1;
            assert_eq!(output.code, Some(1), "{writer:?} {blocks}: {output:?}");
            assert_eq!(tree(&dir.path("")), before, "{writer:?} {blocks}: {output:?}");
        }
        assert!(failures > 0, "{writer:?} needs no disk");
        assert!(tree(&dir.path("")).len() > before.len(), "{writer:?}");
    }
}

/// A run either leaves no folder, or one that can be resumed, without drafts.
#[test]
fn runs_on_full_disks_leave_no_folder_or_one_that_goes_on() {
    let dir = folder();
    let train = |name: &str, blocks: u32| {
        let named = ["--name", name, "--steps", "2", "--manifest", "c/manifest.jsonl"];
        limited(&dir, blocks, &[&["train"], SMALL, &named].concat())
    };
    let before = tree(&dir.path(""));
    let mut kept = 0;
    for (number, blocks) in [0, 1, 2, 4, 8, 12, 16, 24, 32, 64, 128].into_iter().enumerate() {
        let name = format!("n{number}");
        let output = train(&name, blocks);
        let run = dir.path(&format!("runs/{name}"));
        if output.code == Some(0) {
            break;
        }
        assert_eq!(output.code, Some(1), "{blocks}: {output:?}");
        if run.exists() {
            kept += 1;
            let half: Vec<String> = tree(&run)
                .into_iter()
                .filter(|path| path.rsplit('/').next().unwrap().starts_with('.') && path != ".lock")
                .collect();
            assert!(half.is_empty(), "{blocks}: {half:?} {output:?}");
            assert!(run.join("config.toml").exists(), "{blocks}: {:?} {output:?}", tree(&run));
            fs::remove_dir_all(&run).unwrap();
        }
        assert_eq!(tree(&dir.path("")), before, "{blocks}: {output:?}");
    }
    assert!(kept < 11, "no run was refused before it began");
}

/// A pipe that no process writes to in place of each file of a run: resuming it ends, and says what is wrong or does without it.
#[test]
fn pipes_among_the_files_of_a_run_hang_nothing() {
    let dir = folder();
    let files = tree(&dir.path("runs/r")).into_iter().filter(|file| dir.path("runs/r").join(file).is_file());
    for (number, file) in files.enumerate() {
        let copy = format!("runs/p{number}");
        let run = |program: &str, args: &[&str]| assert!(Command::new(program).args(args).status().unwrap().success());
        run("cp", &["-r", dir.path("runs/r").to_str().unwrap(), dir.path(&copy).to_str().unwrap()]);
        let pipe = dir.path(&copy).join(&file);
        fs::remove_file(&pipe).unwrap();
        run("mkfifo", &[pipe.to_str().unwrap()]);
        let mut command = dir.command(&["train", "--resume", &copy, "--steps", "2"]);
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let output = wait(child, &file);
        assert!(matches!(output.code, Some(0..=2)), "{file}: {output:?}");
    }
}

/// Waits until `path` exists, sends `number` to `child` and returns how it ended.
fn stop_when(mut child: Child, is_there: impl Fn() -> bool, number: i32, what: &str) -> ProgramOutput {
    let start = Instant::now();
    while !is_there() {
        let ended = child.try_wait().unwrap();
        assert!(ended.is_none() && start.elapsed() < PATIENCE, "{what}: {ended:?}");
        std::thread::sleep(Duration::from_millis(2));
    }
    signal(&child, number);
    wait(child, what)
}

#[test]
fn signals_leave_nothing_half() {
    let dir = TestFolder::new();
    // A recording of an hour that takes no room on the disk, in as many utterances as last for minutes.
    dir.write("long.wav", crate::program::silence(16_000, 0));
    let samples = 3600 * 16_000u32;
    let mut header = fs::read(dir.path("long.wav")).unwrap();
    header[4..8].copy_from_slice(&(36 + 2 * samples).to_le_bytes());
    header[40..44].copy_from_slice(&(2 * samples).to_le_bytes());
    dir.write("long.wav", &header);
    fs::File::options().write(true).open(dir.path("long.wav")).unwrap().set_len(44 + 2 * u64::from(samples)).unwrap();
    let line = |n: u32| {
        serde_json::json!({"id": n.to_string(), "audio_filepath": "long.wav", "offset": n % 3000, "duration": 20, "text": n.to_string()})
            .to_string()
    };
    dir.write("list.jsonl", (0..3000).map(|n| line(n) + "\n").collect::<String>());
    let before = tree(&dir.path(""));
    let makers: [(&[&str], &str); 2] = [
        (&["corpus", "make", "--out", "made", "--utterances", "100000"], "made"),
        (&["data", "pack", "list.jsonl", "--out", "shards"], ".shards"),
    ];
    for (args, place) in makers {
        for number in [SIGTERM, SIGINT] {
            let is_there = || names(&dir.path("")).iter().any(|name| name.starts_with(place));
            let output = stop_when(dir.start(args), is_there, number, place);
            assert_eq!(output.code, None, "{args:?}: a signal ends it: {output:?}");
            assert_eq!(tree(&dir.path("")), before, "{args:?}");
        }
    }
}

/// A run whose folder is deleted or moved ends with an error, and makes no new half of it.
#[test]
fn run_without_its_folder_ends() {
    let dir = TestFolder::new();
    for accident in ["deleted", "moved", "replaced"] {
        let interval = ["--set", "training.checkpoint_interval=4", "--steps", "1000000", "--name", accident];
        let mut child = dir.start(&[&["train"], SMALL, &interval].concat());
        let run = dir.path(&format!("runs/{accident}"));
        wait_for_lines(&mut child, &run.join("metrics.jsonl"), 8);
        match accident {
            "deleted" => {
                // A checkpoint may be written at the moment.
                for _ in 0..100 {
                    if fs::remove_dir_all(&run).is_ok() {
                        break;
                    }
                }
            }
            _ => fs::rename(&run, dir.path("runs/elsewhere")).unwrap(),
        }
        if accident == "replaced" {
            dir.train(&["--name", accident, "--steps", "1"]).success();
        }
        let new = run.exists().then(|| tree(&run));
        let output = wait(child, accident);
        assert_eq!(output.code, Some(1), "{accident}: {output:?}");
        let words = output.stderr.split([' ', '\n', '│']).filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ");
        assert!(
            words.contains("was deleted, moved or replaced while the run trained"),
            "{accident}: {}",
            output.stderr
        );
        assert_eq!(run.exists().then(|| tree(&run)), new, "{accident}");
        if accident != "deleted" {
            let resume = ["train", "--resume", "runs/elsewhere", "--steps", "1000"];
            let lines = fs::read_to_string(dir.path("runs/elsewhere/metrics.jsonl")).unwrap().lines().count();
            let steps = (lines + 100).to_string();
            dir.run(&[&resume[..4], &[&steps]].concat()).success();
            fs::remove_dir_all(dir.path("runs/elsewhere")).unwrap();
        }
    }
}

/// Every path that a person can name, as something that is no file.
#[test]
fn paths_that_are_no_files_are_refused_at_once() {
    let dir = folder();
    dir.run(&[&["train"], SMALL_VOICE, &["--name", "v", "--steps", "1"]].concat()).success();
    assert!(Command::new("mkfifo").arg(dir.path("pipe")).status().unwrap().success());
    let _listener = UnixListener::bind(dir.path("socket")).unwrap();
    let wav = format!("c/wavs/{}", names(&dir.path("c/wavs"))[0]);
    let readers: [&[&str]; 22] = [
        &["train", "--dry-run", "--config", "PATH"],
        &["train", "--dry-run", "--manifest", "PATH"],
        &["train", "--dry-run", "--set", "data.tokenizer_file=PATH"],
        &["train", "--dry-run", "--set", "data.validation_manifest=PATH"],
        &["train", "--resume", "PATH"],
        &["memtest", "--config", "PATH", "--gpu", "8GiB"],
        &["optimize", "--config", "PATH", "--gpu", "8GiB", "--output", "out.toml"],
        &["config", "print", "--config", "PATH"],
        &["data", "check", "PATH"],
        &["data", "check", "c", "--vocabulary", "PATH"],
        &["data", "import", "PATH", "--out", "out.jsonl"],
        &["transcribe", "PATH", "--run", "runs/r"],
        &["transcribe", &wav, "--run", "runs/r", "--lm", "PATH"],
        &["transcribe", &wav, "--run", "runs/r", "--lexicon", "PATH"],
        &["align", &wav, "--run", "runs/r", "--text-file", "PATH"],
        &["say", "--run", "runs/v", "--file", "PATH"],
        &["say", "one", "--run", "runs/v", "--speaker", "PATH", "--out", "out.wav"],
        &["say", "one", "--run", "runs/v", "--vocoder", "PATH", "--out", "out.wav"],
        &["lm", "train", "PATH", "--out", "out.lm"],
        &["lm", "info", "PATH"],
        &["export", "--run", "PATH", "--out", "out"],
        &["monitor", "--replay", "PATH", "--json"],
    ];
    let before = tree(&dir.path(""));
    for reader in readers {
        for path in ["pipe", "socket", "/dev/zero", "texts.txt/below"] {
            let args: Vec<String> = reader.iter().map(|arg| arg.replace("PATH", path)).collect();
            let args: Vec<&str> = args.iter().map(String::as_str).collect();
            let output = wait(dir.start(&args), &args.join(" "));
            assert_eq!(output.code, Some(2), "{args:?}: {output:?}");
            assert!(!output.stderr.contains("panicked"), "{args:?}: {output:?}");
        }
    }
    assert_eq!(tree(&dir.path("")), before);
    // What the shell opened is a stream that ends, not a place where nothing comes.
    let streamed = "printf 'one two\\n' | \"$0\" lm train /dev/stdin --out streamed.lm";
    let status = Command::new("sh")
        .args(["-c", streamed])
        .arg(dir.command(&[]).get_program())
        .current_dir(dir.path(""))
        .status();
    assert!(status.unwrap().success());
}

/// Replaces the samples of a recording by zeros.
fn silence(path: &Path) {
    let mut bytes = fs::read(path).unwrap();
    bytes[44..].fill(0);
    fs::write(path, bytes).unwrap();
}

#[test]
fn silent_recordings_are_left_out_and_named() {
    let dir = TestFolder::new();
    dir.run(&["corpus", "make", "--out", "c", "--utterances", "40", "--speakers", "4"]).success();
    let wavs = names(&dir.path("c/wavs"));
    // Of two voices, one of which at least is trained on.
    [7, 17].iter().for_each(|&n: &usize| silence(&dir.path("c/wavs").join(&wavs[n])));
    let check = dir.run(&["data", "check", "c"]).success();
    assert!(check.stdout.contains("40 utterances listed, 38 usable"), "{}", check.stdout);
    assert!(check.stdout.contains("2 not usable: silence"), "{}", check.stdout);
    assert!(check.stdout.contains(wavs[7].trim_end_matches(".wav")), "{}", check.stdout);
    let import = dir.run(&["data", "import", "c", "--out", "list.jsonl"]).success();
    assert!(import.stdout.contains("40 utterances listed, 38 usable"), "{}", import.stdout);
    for task in [SMALL, SMALL_VOICE] {
        let name = if task == SMALL { "asr" } else { "tts" };
        let share = ["--set", "data.unusable_share=0.2"];
        let run = [&["--manifest", "c/manifest.jsonl", "--epochs", "1", "--name", name], &share[..]].concat();
        let output = dir.run(&[&["train"], task, &run].concat()).success();
        assert!(output.stderr.contains("is silent"), "{name}: {}", output.stderr);
        let left_out = dir.json(&format!("runs/{name}/summary.json"))["left_out"].to_string();
        assert!(left_out.contains("silent"), "{name}: {left_out}");
    }
    wavs.iter().for_each(|name| silence(&dir.path("c/wavs").join(name)));
    assert_eq!(dir.run(&["data", "check", "c"]).code, Some(2));
    let output = dir.run(&[&["train"], SMALL, &["--manifest", "c/manifest.jsonl", "--steps", "9"]].concat());
    assert!(output.code != Some(0) && output.stderr.contains("silent"), "{output:?}");
}
