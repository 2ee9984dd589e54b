//! The scenario: the GPUs that the library reports, read from a text file.

use std::collections::BTreeMap;
use std::str::{FromStr, SplitWhitespace};

/// Number that stands for "not available" in the list of processes.
const NOT_AVAILABLE: u64 = u64::MAX;

/// Machine that the library reports.
#[derive(Debug, Default)]
pub(crate) struct Scenario {
    /// Version of the driver.
    pub(crate) driver: String,
    /// Version of CUDA, such as 13000.
    pub(crate) cuda: i32,
    /// GPUs in the order of their indices.
    pub(crate) gpus: Vec<Gpu>,
    /// Codes that functions without a GPU return.
    pub(crate) failures: BTreeMap<String, u32>,
}

/// GPU that the library reports.
#[derive(Debug, Default)]
pub(crate) struct Gpu {
    /// Identifier.
    pub(crate) uuid: String,
    /// Product name.
    pub(crate) name: String,
    /// Memory of the whole GPU.
    pub(crate) memory: Option<Memory>,
    /// Numbers by name: of a fact with a selector, such as `clock 1`, the name has the selector.
    pub(crate) numbers: BTreeMap<String, u64>,
    /// MIG instances by slot; a slot may be empty.
    pub(crate) instances: Vec<Option<(String, Memory)>>,
    /// Processes on the GPU.
    pub(crate) processes: Vec<Process>,
    /// GPM metrics by number. A GPU without any does not support GPM.
    pub(crate) metrics: BTreeMap<u32, f64>,
    /// Codes that functions return for this GPU.
    pub(crate) failures: BTreeMap<String, u32>,
}

/// Memory in bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Memory {
    pub(crate) total: u64,
    pub(crate) reserved: u64,
    pub(crate) free: u64,
}

/// Process on a GPU.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Process {
    pub(crate) is_graphics: bool,
    pub(crate) pid: u32,
    pub(crate) memory: u64,
}

impl Gpu {
    /// Returns the code that `function` returns for this GPU instead of an answer.
    pub(crate) fn failure(&self, function: &str) -> Option<u32> {
        self.failures.get(function).or_else(|| self.failures.get("*")).copied()
    }
}

impl FromStr for Scenario {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut scenario = Self::default();
        for (line, number) in text.lines().zip(1..) {
            let line = line.split('#').next().unwrap_or_default();
            let mut words = line.split_whitespace();
            if let Some(key) = words.next() {
                scenario.add(key, &mut words).ok_or_else(|| format!("line {number} is not understood: {line}"))?;
            }
        }
        Ok(scenario)
    }
}

impl Scenario {
    /// Adds a line; `None` if it is not understood.
    fn add(&mut self, key: &str, words: &mut SplitWhitespace<'_>) -> Option<()> {
        match (key, self.gpus.last_mut()) {
            ("gpu", _) => {
                let uuid = words.next()?.to_owned();
                let name = words.collect::<Vec<_>>().join(" ");
                self.gpus.push(Gpu { uuid, name, ..Gpu::default() });
            }
            ("driver", None) => self.driver = words.next()?.to_owned(),
            ("cuda", None) => self.cuda = number(words)?,
            ("fail", None) => {
                self.failures.insert(words.next()?.to_owned(), number(words)?);
            }
            (_, Some(gpu)) => gpu.add(key, words)?,
            _ => return None,
        }
        words.next().is_none().then_some(())
    }
}

impl Gpu {
    fn add(&mut self, key: &str, words: &mut SplitWhitespace<'_>) -> Option<()> {
        match key {
            "fail" => {
                self.failures.insert(words.next()?.to_owned(), number(words)?);
            }
            "memory" => self.memory = Some(memory(words)?),
            "instance" => {
                let instance = match words.next()? {
                    "-" => None,
                    uuid => Some((uuid.to_owned(), memory(words)?)),
                };
                self.instances.push(instance);
            }
            "process" => self.processes.push(process(words)?),
            "gpm" => {
                self.metrics.insert(number(words)?, number(words)?);
            }
            "utilization" => {
                self.numbers.insert("utilization".into(), number(words)?);
                self.numbers.insert("memory-utilization".into(), number(words)?);
            }
            "clock" | "clock-max" | "pcie" | "ecc" => {
                let name = format!("{key} {}", words.next()?);
                self.numbers.insert(name, number(words)?);
            }
            "power" | "power-limit" | "temperature" | "throttle" | "mig" => {
                self.numbers.insert(key.into(), number(words)?);
            }
            _ => return None,
        }
        Some(())
    }
}

fn number<T: FromStr>(words: &mut SplitWhitespace<'_>) -> Option<T> {
    words.next()?.parse().ok()
}

fn mib(words: &mut SplitWhitespace<'_>) -> Option<u64> {
    number::<u64>(words)?.checked_mul(1 << 20)
}

fn memory(words: &mut SplitWhitespace<'_>) -> Option<Memory> {
    Some(Memory { total: mib(words)?, reserved: mib(words)?, free: mib(words)? })
}

fn process(words: &mut SplitWhitespace<'_>) -> Option<Process> {
    let is_graphics = match words.next()? {
        "compute" => false,
        "graphics" => true,
        _ => return None,
    };
    let pid = match words.next()? {
        "self" => std::process::id(),
        pid => pid.parse().ok()?,
    };
    let memory = match words.next()? {
        "-" => NOT_AVAILABLE,
        mib => mib.parse::<u64>().ok()?.checked_mul(1 << 20)?,
    };
    Some(Process { is_graphics, pid, memory })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_the_readme_is_a_scenario() {
        let readme = include_str!("../README.md");
        let example = readme.split("```text").nth(1).unwrap().split("```").next().unwrap();
        let scenario: Scenario = example.parse().unwrap();
        assert_eq!((scenario.driver.as_str(), scenario.failures["nvmlInit_v2"]), ("580.82.07", 9));
        let gpu = &scenario.gpus[0];
        assert_eq!((gpu.name.as_str(), gpu.numbers["clock 1"], gpu.metrics[&2]), ("NVIDIA H200", 1785, 87.5));
        assert_eq!((gpu.failure("nvmlDeviceGetTemperature"), gpu.failure("nvmlDeviceGetName")), (Some(4), Some(15)));
    }

    #[test]
    fn a_wrong_line_is_named() {
        for line in
            ["power 1", "gpu", "gpu G A\npower x", "gpu G A\npower 1 2", "gpu G A\nspeed 1", "gpu G A\nprocess x 1 1"]
        {
            let error = line.parse::<Scenario>().unwrap_err();
            assert!(error.starts_with(&format!("line {} is not understood", line.lines().count())), "{error}");
        }
    }
}
