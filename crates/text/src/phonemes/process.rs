//! A running `espeak-ng`, which reads lines and writes their phonemes.

use std::io::{self, BufRead, BufReader, ErrorKind, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use super::PhonemeError;
use super::runs::{LAST_WORD, line};

/// A running program.
pub(super) struct Process {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    /// Phonemes of [`LAST_WORD`].
    last: String,
}

impl Process {
    /// Starts `program` with `voice`.
    pub(super) fn start(program: &str, voice: &str) -> Result<Self, PhonemeError> {
        // A name that looks like an option would be one.
        let is_name = voice.chars().all(|one| one.is_alphanumeric() || "-_+/".contains(one)) && !voice.starts_with('-');
        if !is_name || voice.is_empty() {
            return Err(PhonemeError::NoVoice(voice.into()));
        }
        let mut command = Command::new(program);
        command.args(["-q", "--ipa", "-b", "1", "-v", voice]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().map_err(|error| {
            let reason = match error.kind() {
                ErrorKind::NotFound => "it is not installed, or not in PATH".into(),
                _ => error.to_string(),
            };
            PhonemeError::NotStarted(reason)
        })?;
        let input = child.stdin.take().expect("the input is a pipe");
        let output = BufReader::new(child.stdout.take().expect("the output is a pipe"));
        let mut process = Self { child, input, output, last: String::new() };
        // It ends at once if it does not know the voice.
        process.last = match process.write(LAST_WORD).and_then(|()| process.clause()) {
            Ok(last) if !last.is_empty() => last,
            _ => return Err(PhonemeError::NoVoice(voice.into())),
        };
        Ok(process)
    }

    /// Returns the phonemes of `words`, with the program for the next words if it can go on.
    pub(super) fn read(mut self, words: &str) -> Result<(Option<Self>, String), PhonemeError> {
        let line = line(words);
        if line.is_empty() {
            return Ok((Some(self), String::new()));
        }
        let failed = |error: io::Error| PhonemeError::Failed { words: line.clone(), reason: error.to_string() };
        self.write(&line).and_then(|()| self.write(LAST_WORD)).map_err(failed)?;
        let mut clauses = Vec::new();
        loop {
            match self.clause().map_err(failed)? {
                clause if clause == self.last => break,
                clause if clause.is_empty() => (),
                clause => clauses.push(clause),
            }
        }
        // Words without a phoneme are rare. They may sound like the last word, and then its own line is still to come.
        let goes_on = !clauses.is_empty();
        Ok((goes_on.then_some(self), clauses.join(" ")))
    }

    /// Ends the program, as if it had failed.
    #[cfg(test)]
    pub(super) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    fn write(&mut self, line: &str) -> io::Result<()> {
        self.input.write_all(format!("{line}\n").as_bytes())
    }

    /// Reads the phonemes of one clause.
    fn clause(&mut self) -> io::Result<String> {
        let mut text = String::new();
        match self.output.read_line(&mut text)? {
            0 => Err(io::Error::new(ErrorKind::UnexpectedEof, "it ended")),
            _ => Ok(without_languages(&text)),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It has no work of value, and may be gone already.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// Removes the names of languages, as in `(en)`, that the program writes where a word is read in another language, and doubled white space.
fn without_languages(phonemes: &str) -> String {
    let mut rest = phonemes;
    let mut kept = String::new();
    while let Some((before, after)) = rest.split_once('(') {
        kept.push_str(before);
        rest = after.split_once(')').map_or("", |(_, after)| after);
    }
    kept.push_str(rest);
    kept.split_whitespace().collect::<Vec<_>>().join(" ")
}
