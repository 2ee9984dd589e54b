//! Compiling modules with `ptxas`, as the driver's own compiler would.

use std::fs;
use std::path::Path;
use std::process::Command;

/// What `ptxas` makes of a module.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Compiled {
    /// Size of the code.
    pub(crate) code: u64,
    /// Resources by kernel.
    pub(crate) kernels: Vec<(String, Resources)>,
}

/// Resources of a kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Resources {
    /// Registers of a thread.
    pub(crate) registers: u32,
    /// Stack of a thread in bytes.
    pub(crate) stack: u32,
    /// Bytes that a thread stores because registers are missing.
    pub(crate) spills: u32,
    /// Shared memory of a block that the kernel declares.
    pub(crate) shared: u32,
}

impl Resources {
    /// Returns the larger of each resource.
    pub(crate) fn max(self, other: Self) -> Self {
        Self {
            registers: self.registers.max(other.registers),
            stack: self.stack.max(other.stack),
            spills: self.spills.max(other.spills),
            shared: self.shared.max(other.shared),
        }
    }
}

/// Writes the text of a module into a folder, under a name that follows from the text, and returns that name.
pub(crate) fn keep_text(folder: &Path, text: &str) -> std::io::Result<String> {
    let name = format!("{:016x}", fnv(text));
    fs::create_dir_all(folder)?;
    let path = folder.join(format!("{name}.ptx"));
    if !path.exists() {
        write_whole(&path, text.as_bytes())?;
    }
    Ok(name)
}

/// Compiles the module of this name in a folder for an architecture such as `sm_86`. What was compiled before is read.
///
/// # Errors
/// Returns what `ptxas` prints if it refuses the module.
pub(crate) fn compile(ptxas: &Path, folder: &Path, name: &str, architecture: &str) -> Result<Compiled, String> {
    let path = |ending: &str| folder.join(format!("{name}.{ending}"));
    let code = path(&format!("{architecture}.cubin"));
    let log = path(&format!("{architecture}.log"));
    if !code.exists() {
        let part = path(&format!("{architecture}.{}.part", std::process::id()));
        let mut command = Command::new(ptxas);
        command.arg("-v").arg(format!("-arch={architecture}")).arg("-o").arg(&part).arg(path("ptx"));
        let output = command.output().map_err(|error| format!("cannot start {}: {error}", ptxas.display()))?;
        let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        if !output.status.success() {
            return Err(said);
        }
        let kept = write_whole(&log, said.as_bytes()).and_then(|()| fs::rename(&part, &code));
        kept.map_err(|error| format!("cannot write {}: {error}", code.display()))?;
    }
    let size = fs::metadata(&code).map_err(|error| error.to_string())?.len();
    Ok(Compiled { code: size, kernels: resources(&fs::read_to_string(&log).unwrap_or_default()) })
}

/// Writes a file such that no other process sees a part of it.
fn write_whole(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let part = path.with_extension(format!("{}.new", std::process::id()));
    fs::write(&part, bytes)?;
    fs::rename(part, path)
}

/// Reads the resources of kernels from what `ptxas -v` prints.
fn resources(log: &str) -> Vec<(String, Resources)> {
    log.split("Function properties for ").skip(1).map(of_kernel).collect()
}

fn of_kernel(text: &str) -> (String, Resources) {
    let (name, rest) = text.split_once('\n').unwrap_or((text, ""));
    let before = |unit: &str| {
        let (number, _) = rest.split_once(unit)?;
        number.trim_end().rsplit(|char: char| !char.is_ascii_digit()).next()?.parse().ok()
    };
    let number = |unit| before(unit).unwrap_or(0);
    let resources = Resources {
        registers: number(" registers"),
        stack: number(" bytes stack frame"),
        spills: number(" bytes spill stores"),
        shared: number(" bytes smem"),
    };
    (name.trim().to_owned(), resources)
}

/// Hash of a text (FNV-1a), the same in every version of the library.
fn fnv(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resources_are_read_from_the_log() {
        let log = "ptxas info    : 0 bytes gmem\nptxas info    : Compiling entry function 'add' for 'sm_86'\n\
            ptxas info    : Function properties for add\n    24 bytes stack frame, 16 bytes spill stores, 8 bytes spill loads\n\
            ptxas info    : Used 40 registers, used 1 barriers, 1024 bytes smem, 372 bytes cmem[0]\n\
            ptxas info    : Function properties for sub\n    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n\
            ptxas info    : Used 8 registers, 352 bytes cmem[0]\n";
        let add = Resources { registers: 40, stack: 24, spills: 16, shared: 1024 };
        let sub = Resources { registers: 8, ..Resources::default() };
        assert_eq!(resources(log), [("add".to_owned(), add), ("sub".to_owned(), sub)]);
        assert_eq!(resources(""), []);
    }

    #[test]
    fn a_missing_compiler_is_named() {
        let error = compile(Path::new("/no/ptxas"), Path::new("/no"), "a", "sm_80").unwrap_err();
        assert!(error.contains("/no/ptxas"), "{error}");
    }
}
