//! Runs the program in a temporary folder.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

/// A temporary folder that the program runs in; deleted at the end of the test.
pub(crate) struct TestFolder {
    folder: tempfile::TempDir,
}

/// Flags for a corpus and a model that are small enough for a step in milliseconds, and a schedule that does not depend
/// on the number of steps.
pub(crate) const SMALL: &[&str] = &[
    "--set",
    "data.corpus_utterances=24",
    "--set",
    "data.corpus_speakers=4",
    "--batch-size",
    "6",
    "--d-model",
    "16",
    "--set",
    "model.encoder_layers=1",
    "--set",
    "model.attention_heads=2",
    "--set",
    "training.schedule=constant",
    "--set",
    "training.warmup_steps=3",
];

/// Output and exit code of the program.
#[derive(Debug)]
pub(crate) struct ProgramOutput {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl TestFolder {
    pub(crate) fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: impl AsRef<[u8]>) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
        // Variables of the user must not change the tests.
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("PLIMSOLL_")) {
            command.env_remove(name);
        }
        // Hints name the program as it was typed, and not where this build lies.
        command.arg0("plimsoll");
        command.args(args).current_dir(self.folder.path()).env("NO_COLOR", "1").stdin(Stdio::null());
        command
    }

    pub(crate) fn run(&self, args: &[&str]) -> ProgramOutput {
        self.command(args).output().unwrap().into()
    }

    pub(crate) fn start(&self, args: &[&str]) -> Child {
        self.command(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    /// Runs `plimsoll train` with the flags in `SMALL` and `more`.
    pub(crate) fn train(&self, more: &[&str]) -> ProgramOutput {
        self.run(&[&["train"], SMALL, more].concat())
    }

    pub(crate) fn json(&self, name: &str) -> serde_json::Value {
        serde_json::from_slice(&std::fs::read(self.path(name)).unwrap()).unwrap()
    }
}

impl From<Output> for ProgramOutput {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

impl ProgramOutput {
    /// Asserts exit code 0, and returns the output.
    pub(crate) fn success(self) -> Self {
        assert_eq!(self.code, Some(0), "{self:?}");
        self
    }
}

/// Makes the bytes of a WAV file of silence, with `samples` samples.
pub(crate) fn silence(sample_rate: u32, samples: u32) -> Vec<u8> {
    let mut bytes = std::io::Cursor::new(Vec::new());
    let spec =
        hound::WavSpec { channels: 1, sample_rate, bits_per_sample: 16, sample_format: hound::SampleFormat::Int };
    let mut writer = hound::WavWriter::new(&mut bytes, spec).unwrap();
    (0..samples).for_each(|_| writer.write_sample(0i16).unwrap());
    writer.finalize().unwrap();
    bytes.into_inner()
}

/// Lists the names of the files and folders in a folder, sorted.
pub(crate) fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}
