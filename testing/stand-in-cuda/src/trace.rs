//! A file with a line for each change of the memory.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use crate::books::{Books, Change};

/// Trace of the memory of all GPUs.
#[derive(Debug)]
pub(crate) struct Trace {
    file: File,
    n_lines: u64,
}

impl Trace {
    /// Creates the file.
    pub(crate) fn create(path: &Path) -> std::io::Result<Self> {
        let mut file = File::create(path)?;
        writeln!(file, "number kind gpu address asked granted held_after asked_after")?;
        Ok(Self { file, n_lines: 0 })
    }

    /// Adds a line. It is written at once, so that the trace of a process that crashes is whole.
    pub(crate) fn add(&mut self, gpu: usize, change: &Change, books: &Books) {
        self.n_lines += 1;
        let Change { kind, address, asked, granted } = change;
        let line = format!(
            "{} {kind} {gpu} {address:#x} {asked} {granted} {} {}\n",
            self.n_lines,
            books.held(),
            books.tally.asked
        );
        if let Err(error) = self.file.write_all(line.as_bytes()) {
            eprintln!("stand-in-cuda: cannot write the trace: {error}");
        }
    }
}
