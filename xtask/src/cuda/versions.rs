//! Versions of NVIDIA's driver and of CUDA, read from what the driver prints.

use std::fmt;

/// Version of CUDA that a driver supports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct CudaVersion {
    pub(super) major: u32,
    pub(super) minor: u32,
}

impl fmt::Display for CudaVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// First driver branch of each CUDA version (NVIDIA, CUDA Toolkit Release Notes, table "CUDA Toolkit and Corresponding
/// Driver Versions"), newest first.
const BRANCHES: [(u32, CudaVersion); 11] = [
    (580, CudaVersion { major: 13, minor: 0 }),
    (575, CudaVersion { major: 12, minor: 9 }),
    (570, CudaVersion { major: 12, minor: 8 }),
    (560, CudaVersion { major: 12, minor: 6 }),
    (555, CudaVersion { major: 12, minor: 5 }),
    (550, CudaVersion { major: 12, minor: 4 }),
    (545, CudaVersion { major: 12, minor: 3 }),
    (535, CudaVersion { major: 12, minor: 2 }),
    (530, CudaVersion { major: 12, minor: 1 }),
    (525, CudaVersion { major: 12, minor: 0 }),
    (450, CudaVersion { major: 11, minor: 0 }),
];

/// Returns the CUDA version that a driver of this version supports at least; `None` for a driver before CUDA 11.
pub(super) fn cuda_of_driver(driver: &str) -> Option<CudaVersion> {
    let branch: u32 = driver.split('.').next()?.parse().ok()?;
    BRANCHES.iter().find(|(first, _)| branch >= *first).map(|(_, cuda)| *cuda)
}

/// Finds the driver's version in the text of `/proc/driver/nvidia/version`.
pub(super) fn driver_of_module(text: &str) -> Option<String> {
    let line = text.lines().find(|line| line.starts_with("NVRM version:"))?;
    let (_, after) = line.split_once("Kernel Module")?;
    after.split_whitespace().find(|word| is_driver(word)).map(str::to_owned)
}

/// Finds the driver's version in the name of its library, such as `libcuda.so.550.54.15`.
pub(super) fn driver_of_library(file_name: &str) -> Option<String> {
    let version = file_name.strip_prefix("libcuda.so.")?;
    is_driver(version).then(|| version.to_owned())
}

/// Finds the versions of the driver and of CUDA in the output of `nvidia-smi`.
pub(super) fn of_smi(text: &str) -> (Option<String>, Option<CudaVersion>) {
    let driver = value_after(text, "Driver Version:").filter(|word| is_driver(word)).map(str::to_owned);
    // Newer drivers print the version of their user-mode part.
    let cuda = ["CUDA Version:", "CUDA UMD Version:"].iter().find_map(|label| cuda(value_after(text, label)?));
    (driver, cuda)
}

fn value_after<'a>(text: &'a str, label: &str) -> Option<&'a str> {
    text.split_once(label)?.1.split_whitespace().next()
}

fn cuda(text: &str) -> Option<CudaVersion> {
    let (major, minor) = text.split_once('.')?;
    Some(CudaVersion { major: major.parse().ok()?, minor: minor.parse().ok()? })
}

/// Returns whether `text` has the form of a driver's version: two or three numbers, the first of three digits.
fn is_driver(text: &str) -> bool {
    let parts: Vec<&str> = text.split('.').collect();
    let is_number = |part: &&str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    matches!(parts.len(), 2 | 3) && parts.iter().all(is_number) && parts[0].len() == 3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drivers_support_the_version_of_their_branch() {
        let mut last = None;
        for branch in 100..1000 {
            let cuda = cuda_of_driver(&format!("{branch}.54.15"));
            assert!(cuda >= last, "a newer driver supports no less: {branch}");
            last = cuda;
        }
        for (driver, expected) in [
            ("390.157", None),
            ("470.256.02", Some("11.0")),
            ("525.60.13", Some("12.0")),
            ("535.183.01", Some("12.2")),
            ("550.54.15", Some("12.4")),
            ("570.86.10", Some("12.8")),
            ("580.82.07", Some("13.0")),
            ("", None),
            ("unknown", None),
        ] {
            assert_eq!(cuda_of_driver(driver).map(|cuda| cuda.to_string()).as_deref(), expected, "{driver}");
        }
    }

    #[test]
    fn the_module_names_its_version() {
        let check = |text: &str, expected: Option<&str>| {
            assert_eq!(driver_of_module(text).as_deref(), expected, "{text}");
        };
        check(
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024\nGCC version: 12.2.0\n",
            Some("550.54.15"),
        );
        check(
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.10  Release Build  (root@host)\n",
            Some("570.86.10"),
        );
        check("NVRM version: NVIDIA UNIX x86_64 Kernel Module  390.157  Wed\n", Some("390.157"));
        check("GCC version: 12.2.0\n", None);
        check("", None);
    }

    #[test]
    fn the_library_names_its_version() {
        for (name, expected) in [
            ("libcuda.so.550.54.15", Some("550.54.15")),
            ("libcuda.so.390.157", Some("390.157")),
            ("libcuda.so.1", None),
            ("libcuda.so.1.1", None),
            ("libcuda.so", None),
            ("libcudart.so.550.54.15", None),
        ] {
            assert_eq!(driver_of_library(name).as_deref(), expected, "{name}");
        }
    }

    #[test]
    fn smi_prints_both_versions() {
        let page = "\
| NVIDIA-SMI 550.54.15              Driver Version: 550.54.15      CUDA Version: 12.4     |
|-----------------------------------------+------------------------+----------------------|";
        assert_eq!(of_smi(page), (Some("550.54.15".into()), Some(CudaVersion { major: 12, minor: 4 })));
        let newer = "| NVIDIA-SMI 590.44.01  Driver Version: 590.44.01  CUDA UMD Version: 13.1 |";
        assert_eq!(of_smi(newer).1, Some(CudaVersion { major: 13, minor: 1 }));
        assert_eq!(of_smi("Driver Version: 550.54.15 CUDA Version: N/A").1, None);
        assert_eq!(
            of_smi("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver."),
            (None, None)
        );
    }
}
