//! The scenarios of both libraries for one machine.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::catalog::{self, Gpu};
use super::options::{Options, size};
use super::{hash, misuse};

/// GPU that a plain call stands in for.
const GPU: &str = "3060";
/// Version of CUDA, and a driver that came with it.
const CUDA: u32 = 12090;
const DRIVER: &str = "575.57.08";
/// A driver of CUDA 13.
const DRIVER_OF_13: &str = "580.65.06";
/// Number of the process that stands for all others.
const OTHER_PROCESS: u32 = 4242;

/// Kernels that take long. With even times, CubeCL takes convolutions without columns, which take less memory than
/// those that it takes on GPUs.
const SLOW: &str = "direct_conv2d,conv_transpose2d_direct";

/// Keys that decide which kernels CubeCL chooses.
const CHOICES: [&str; 7] = ["driver", "slow", "read", "gpu", "memory", "capability", "multiprocessors"];

/// Scenarios of both libraries.
#[derive(Debug)]
pub(super) struct Scenarios {
    /// Of `testing/stand-in-cuda`.
    pub(super) cuda: String,
    /// Of `testing/stand-in-nvml`.
    pub(super) nvml: String,
    /// Name that follows from both.
    pub(super) name: String,
    /// Name that follows from what decides the choices of kernels.
    pub(super) choices: String,
}

impl Scenarios {
    /// Makes the scenarios of a machine. `kernels` is the folder for kernels that `ptxas` compiles.
    pub(super) fn new(options: &Options, kernels: &Path) -> Result<Self> {
        let machine = match &options.scenario {
            Some(path) => {
                std::fs::read_to_string(path).with_context(|| format!("cannot read the scenario {}", path.display()))?
            }
            None => machine(options)?,
        };
        let line = |key: &str, path: &Option<PathBuf>| {
            path.as_ref().map(|path| format!("{key} {}\n", path.display())).unwrap_or_default()
        };
        let (books, mut ptxas) = (line("books", &options.books), line("ptxas", &options.ptxas));
        if !ptxas.is_empty() {
            ptxas += &line("ptx", &Some(kernels.to_owned()));
        }
        let cuda = format!("{books}{ptxas}{machine}");
        let nvml = nvml(&machine);
        let choices: String = lines(&machine)
            .filter(|(key, _)| CHOICES.contains(key))
            .map(|(key, value)| format!("{key} {value}\n"))
            .collect();
        Ok(Self { name: hash(&format!("{cuda}{nvml}")), choices: hash(&choices), cuda, nvml })
    }
}

/// Writes the scenario of the CUDA driver.
fn machine(options: &Options) -> Result<String> {
    let text = options.gpu.as_deref().unwrap_or(GPU);
    let unknown = || {
        misuse(format!("no GPU is called `{text}`; there are sizes such as 8GiB, and {}", catalog::names().join(", ")))
    };
    let Gpu { name, nominal, usable, capability, multiprocessors, .. } = catalog::find(text).ok_or_else(unknown)?;
    let capability = options.sm.unwrap_or(capability);
    let mut out = format!("driver {CUDA}\nslow {SLOW}\n");
    for number in 0..options.count.unwrap_or(1) {
        out += &format!("gpu NVIDIA {name}\nuuid GPU-5a0d1000-0000-4000-8000-{number:012}\n");
        out += &format!("memory {usable}  # of {nominal}\ncapability {}.{}\n", capability / 10, capability % 10);
        if let Some(count) = multiprocessors {
            out += &format!("multiprocessors {count}\n");
        }
        if let Some(others) = options.others {
            out += &format!("others {others}\n");
        }
    }
    Ok(out)
}

/// Writes the scenario of the management library for the GPUs of a scenario of the CUDA driver.
fn nvml(machine: &str) -> String {
    let value = |key: &str| lines(machine).find(|(found, _)| *found == key).map(|(_, value)| value);
    let cuda = value("driver").and_then(|cuda| cuda.parse().ok()).unwrap_or(CUDA);
    let driver = if cuda >= 13000 { DRIVER_OF_13 } else { DRIVER };
    let mut out = format!("driver {driver}\ncuda {cuda}\n");
    let gpus = machine.split("\ngpu ").skip(1).map(|gpu| gpu.split_once('\n').unwrap_or((gpu, "")));
    for (number, (name, facts)) in gpus.enumerate() {
        let value = |key: &str| lines(facts).find(|(found, _)| *found == key).map(|(_, value)| value);
        let bytes = |key: &str| value(key).and_then(|text| text.parse().ok().or_else(|| size(text))).unwrap_or(0);
        // The driver keeps the rest of the nominal memory for itself.
        let nominal = facts.lines().find_map(|line| line.strip_prefix("memory ")?.split_once("# of ")?.1.parse().ok());
        let (memory, others) = (bytes("memory") >> 20, bytes("others") >> 20);
        let total = nominal.map_or(memory, |bytes: u64| bytes >> 20);
        let uuid = value("uuid").map_or_else(|| uuid(number), str::to_owned);
        let name = name.split('#').next().unwrap_or_default().trim();
        out += &format!("gpu {uuid} {name}\nmemory {total} {} {}\n", total - memory, memory.saturating_sub(others));
        if others > 0 {
            out += &format!("process compute {OTHER_PROCESS} {others}\n");
        }
    }
    out
}

/// Returns the identifier that `testing/stand-in-cuda` gives a GPU without one: the bytes `stand-in-cuda-0`, and its
/// number.
fn uuid(number: usize) -> String {
    format!("GPU-7374616e-642d-696e-2d63-7564612d30{number:02x}")
}

/// Returns the keys and values of a scenario, without comments.
fn lines(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.lines().filter_map(|line| {
        let line = line.split('#').next().unwrap_or_default().trim();
        line.split_once(char::is_whitespace).map(|(key, value)| (key, value.trim()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scenarios(options: &Options) -> Scenarios {
        Scenarios::new(options, Path::new("/k")).unwrap()
    }

    #[test]
    fn both_libraries_describe_one_machine() {
        let options = Options {
            gpu: Some("t4".into()),
            count: Some(2),
            others: Some(1 << 30),
            books: Some("/b".into()),
            ..Options::default()
        };
        let found = scenarios(&options);
        assert!(found.cuda.starts_with("books /b\ndriver 12090\nslow "), "{}", found.cuda);
        let gpu = |number: u32| {
            format!(
                "gpu NVIDIA T4\nuuid GPU-5a0d1000-0000-4000-8000-{number:012}\nmemory 15633680957  # of 17179869184\n\
                 capability 7.5\nmultiprocessors 40\nothers 1073741824\n"
            )
        };
        assert!(found.cuda.ends_with(&(gpu(0) + &gpu(1))), "{}", found.cuda);
        let gpu = |number: u32| {
            format!(
                "gpu GPU-5a0d1000-0000-4000-8000-{number:012} NVIDIA T4\nmemory 16384 1475 13885\n\
                 process compute 4242 1024\n"
            )
        };
        assert_eq!(found.nvml, format!("driver 575.57.08\ncuda 12090\n{}{}", gpu(0), gpu(1)));
    }

    #[test]
    fn a_scenario_of_ones_own_is_followed() {
        let machine = "driver 13000\n# one\ngpu My GPU # name\nmemory 4GiB\nothers 1GiB\ngpu B\nmemory 2GiB";
        let expected = format!(
            "driver 580.65.06\ncuda 13000\ngpu {} My GPU\nmemory 4096 0 3072\nprocess compute 4242 1024\n\
             gpu {} B\nmemory 2048 0 2048\n",
            "GPU-7374616e-642d-696e-2d63-7564612d3000", "GPU-7374616e-642d-696e-2d63-7564612d3001"
        );
        assert_eq!(nvml(machine), expected);
    }

    #[test]
    fn choices_follow_from_the_gpu_and_not_from_other_processes() {
        let with = |others, gpu: &str, count| {
            scenarios(&Options { others, gpu: Some(gpu.into()), count: Some(count), ..Options::default() })
        };
        let (alone, shared, other) = (with(None, "t4", 1), with(Some(1 << 30), "t4", 1), with(None, "3060", 1));
        assert_eq!(alone.choices, shared.choices);
        assert_ne!(alone.name, shared.name);
        assert_ne!(alone.choices, other.choices);
    }

    #[test]
    fn kernels_are_compiled_where_the_assembler_is_named() {
        let found = scenarios(&Options { ptxas: Some("/bin/ptxas".into()), ..Options::default() });
        assert!(found.cuda.starts_with("ptxas /bin/ptxas\nptx /k\ndriver "), "{}", found.cuda);
        assert_eq!(found.choices, scenarios(&Options::default()).choices);
    }

    #[test]
    fn unknown_gpus_are_refused_with_the_known_ones() {
        let options = Options { gpu: Some("voodoo".into()), ..Options::default() };
        let error = Scenarios::new(&options, Path::new("/k")).unwrap_err();
        assert!(error.to_string().contains("RTX 3060 12GB, "), "{error}");
    }
}
