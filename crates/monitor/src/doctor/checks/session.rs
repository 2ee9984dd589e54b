//! Checks of the user's session: temporary files, character set and terminal.

use std::io::Write;
use std::path::Path;

use plimsoll_core::Bytes;

use super::findings::Findings;
use super::temp_file::TempFile;
use crate::doctor::check::Outcome;
use crate::doctor::facts::{DiskSpace, MachineFacts};

/// Least free space for temporary files: compiled kernels and archives go there first.
const TEMP_FREE_MIN: Bytes = Bytes::mib(256);

/// Checks that the folder for temporary files can be written.
pub(super) fn temp_folder(facts: &MachineFacts) -> Outcome {
    let folder = &facts.temp_folder;
    judge_temp(folder, write_probe(folder), DiskSpace::read(folder).map(|space| space.free))
}

fn write_probe(folder: &Path) -> std::io::Result<()> {
    TempFile::create(folder)?.file.write_all(b"check")
}

pub(super) fn judge_temp(folder: &Path, written: std::io::Result<()>, free: Option<Bytes>) -> Outcome {
    let mut findings = Findings::default();
    findings.detail("free", free.map(|bytes| bytes.0));
    let shown = folder.display();
    let fix = "set TMPDIR to a folder that can be written and has space";
    if let Err(error) = written {
        findings.fail(format!("cannot write to {shown}: {error}"), fix);
    } else if let Some(free) = free.filter(|free| *free < TEMP_FREE_MIN) {
        findings.warn(format!("{shown} has {free} free"), fix);
    }
    findings.or(Outcome::pass(format!("{shown} can be written")))
}

/// Checks that texts and tables print as they should.
pub(super) fn terminal(facts: &MachineFacts) -> Outcome {
    if cfg!(windows) {
        return Outcome::skip("Windows has no such variables");
    }
    let mut findings = Findings::default();
    let terminal = facts.variable("TERM").unwrap_or_default();
    findings.detail("term", terminal);
    // The first that is set and not empty decides (POSIX, Environment Variables, section 8.2).
    let names = ["LC_ALL", "LC_CTYPE", "LANG"];
    let set = names.iter().find_map(|name| Some((*name, facts.variable(name).filter(|value| !value.is_empty())?)));
    let is_utf8 = |value: &str| ["UTF-8", "UTF8"].iter().any(|name| value.to_ascii_uppercase().contains(name));
    match set {
        Some((_, value)) if is_utf8(value) => {}
        Some((name, value)) => {
            let text = format!("{name} is `{value}`, which is not UTF-8: texts of other languages may print wrong");
            findings.warn(text, format!("set {name}=C.UTF-8"));
        }
        None => {
            findings.warn("no character set is chosen: texts of other languages may print wrong", "set LANG=C.UTF-8");
        }
    }
    let note = if ["", "dumb"].contains(&terminal) { ", a terminal without colors" } else { "" };
    findings.or(Outcome::pass(format!("UTF-8{note}")))
}
