//! Archive of a report for someone else, without secrets.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;
use plimsoll_core::replace_file;
use serde_json::Value;

use super::redact::Redactor;
use super::report::DoctorReport;

/// Names of environment variables that an archive holds. `*` stands for any end.
const VARIABLES: [&str; 20] = [
    "CUDA_DEVICE_ORDER",
    "CUDA_HOME",
    "CUDA_PATH",
    "CUDA_VISIBLE_DEVICES",
    "HIP_*",
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
    "LD_LIBRARY_PATH",
    "NCCL_*",
    "NVIDIA_*",
    "OMP_NUM_THREADS",
    "PLIMSOLL_*",
    "RAYON_NUM_THREADS",
    "ROCR_*",
    "RUST_BACKTRACE",
    "RUST_LOG",
    "SLURM_*",
    "TERM",
    "ZE_*",
];
/// Folder in which the kernel module of the NVIDIA driver describes itself.
const DRIVER_FOLDER: &str = "/proc/driver/nvidia";

/// Reason why an archive cannot be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BundleError {
    /// The name of the file does not say a known format.
    #[error("`{}` does not end in `.tar.gz` or `.tgz`", path.display())]
    Format {
        /// Path of the archive.
        path: PathBuf,
    },
    /// The archive cannot be built or written.
    #[error("cannot write `{}`", path.display())]
    Write {
        /// Path of the archive.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
}

/// Writes a file whole or not at all. A link stays, and a device or a pipe is written to.
fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    match std::fs::metadata(path) {
        Ok(found) if !found.is_file() => std::fs::write(path, bytes),
        Ok(_) => replace_file(&path.canonicalize()?, |file| file.write_all(bytes)),
        Err(_) => replace_file(path, |file| file.write_all(bytes)),
    }
}

impl DoctorReport {
    /// Writes the report, selected environment variables and the driver's description of itself into a `.tar.gz`
    /// archive, without secrets, and without the names of user, host and home folder. See [`Redactor`].
    ///
    /// # Errors
    /// If the file name has another ending, or if the file cannot be written.
    pub fn bundle(&self, path: &Path) -> Result<(), BundleError> {
        let text = |word: std::ffi::OsString| word.to_string_lossy().into_owned();
        let variables = std::env::vars_os().map(|(key, value)| (text(key), text(value))).collect();
        self.write_bundle(path, &Redactor::from_env(), &variables, Path::new(DRIVER_FOLDER))
    }

    pub(super) fn write_bundle(
        &self,
        path: &Path,
        redactor: &Redactor,
        variables: &BTreeMap<String, String>,
        driver: &Path,
    ) -> Result<(), BundleError> {
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
        if ![".tar.gz", ".tgz"].iter().any(|end| name.ends_with(end)) {
            return Err(BundleError::Format { path: path.into() });
        }
        let mut files = self.redacted_files(redactor).map_err(io::Error::from);
        if let Ok(files) = &mut files {
            files.push(("environment.txt".into(), environment(redactor, variables)));
            let driver = driver_files(driver).into_iter().map(|(name, text)| (name, redactor.text(&text)));
            files.extend(driver);
        }
        let archive = files.and_then(|files| archive(&files, self.time as u64));
        let written = archive.and_then(|bytes| write(path, &bytes));
        written.map_err(|source| BundleError::Write { path: path.into(), source })
    }

    fn redacted_files(&self, redactor: &Redactor) -> Result<Vec<(String, String)>, serde_json::Error> {
        let clean = self.redacted(redactor);
        let json = serde_json::to_string_pretty(&clean)?;
        Ok(vec![("report.json".into(), json), ("report.txt".into(), clean.page(false))])
    }

    /// Returns the report without secrets in its findings. Words of the program, such as `pass`, stay as they are.
    fn redacted(&self, redactor: &Redactor) -> Self {
        let mut clean = self.clone();
        for outcome in clean.checks.iter_mut().map(|check| &mut check.outcome) {
            outcome.finding = redactor.text(&outcome.finding);
            outcome.fix = outcome.fix.as_deref().map(|fix| redactor.text(fix));
            let details = redactor.json(Value::Object(std::mem::take(&mut outcome.details)));
            outcome.details = details.as_object().cloned().unwrap_or_default();
        }
        if let Some(machine) = &mut clean.machine {
            machine.no_gpu = machine.no_gpu.as_deref().map(|why| redactor.text(why));
        }
        clean
    }
}

/// Formats the variables that an archive may hold, one in each line.
fn environment(redactor: &Redactor, variables: &BTreeMap<String, String>) -> String {
    let is_listed = |name: &str| {
        VARIABLES.iter().any(|entry| match entry.strip_suffix('*') {
            Some(start) => name.starts_with(start),
            None => name == *entry,
        })
    };
    let listed = variables.iter().filter(|(name, _)| is_listed(name));
    listed.map(|(name, value)| format!("{name}={}\n", redactor.variable(name, value).escape_debug())).collect()
}

/// Reads the driver's description of itself, and its modules. Files that cannot be read are left out.
fn driver_files(folder: &Path) -> Vec<(String, String)> {
    let mut paths = vec![folder.join("version"), folder.join("params")];
    let gpus = std::fs::read_dir(folder.join("gpus")).into_iter().flatten().flatten();
    paths.extend(gpus.map(|gpu| gpu.path().join("information")));
    let read = |path: PathBuf| {
        let name = path.strip_prefix(folder).ok()?.to_string_lossy().replace([':', '/'], "-");
        Some((format!("driver/{name}.txt"), std::fs::read_to_string(path).ok()?))
    };
    let mut files: Vec<(String, String)> = paths.into_iter().filter_map(read).collect();
    if !files.is_empty() {
        let modules = std::fs::read_to_string("/proc/modules").unwrap_or_default();
        let modules = modules.lines().filter(|line| line.contains("nvidia")).map(|line| format!("{line}\n"));
        files.push(("driver/modules.txt".into(), modules.collect()));
    }
    files
}

fn archive(files: &[(String, String)], time: u64) -> io::Result<Vec<u8>> {
    let mut archive = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::default()));
    for (name, text) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(text.len() as u64);
        header.set_mode(0o644);
        header.set_mtime(time);
        archive.append_data(&mut header, format!("plimsoll-doctor/{name}"), text.as_bytes())?;
    }
    archive.into_inner()?.finish()
}
