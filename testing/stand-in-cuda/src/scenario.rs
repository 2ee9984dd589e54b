//! The scenario: the machine that the library stands in for, read from a text file.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::str::{FromStr, SplitWhitespace};

use crate::errors::Code;
use crate::size;

mod gpu;

pub(crate) use gpu::{AllocationFailures, GpuFacts};

/// Machine that the library stands in for.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Scenario {
    /// Version of CUDA that the driver supports, such as 12090.
    pub(crate) driver: i32,
    /// Unit of memory that the driver takes from a GPU.
    pub(crate) grain: u64,
    /// Unit of memory that the pool of asynchronous allocations takes from a GPU.
    pub(crate) pool_grain: u64,
    /// Whether a read returns what was copied there, instead of zeros.
    pub(crate) keeps_contents: bool,
    /// Whether the memory for the stacks of spilling kernels is taken from the GPU.
    pub(crate) holds_stacks: bool,
    /// Path of `ptxas`, which compiles each module.
    pub(crate) ptxas: Option<PathBuf>,
    /// Folder of the texts of modules and of what `ptxas` makes of them.
    pub(crate) ptx: Option<PathBuf>,
    /// Parts of the names of kernels that take a long time.
    pub(crate) slow: Vec<String>,
    /// File of the books.
    pub(crate) books: Option<FilePattern>,
    /// File of the trace.
    pub(crate) trace: Option<FilePattern>,
    /// Functions that fail.
    pub(crate) failures: BTreeMap<String, FunctionFailure>,
    /// GPUs in the order of their numbers.
    pub(crate) gpus: Vec<GpuFacts>,
}

/// Failure of a function.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct FunctionFailure {
    /// Code that the function returns.
    pub(crate) code: Code,
    /// Number of the first call that fails, from 1.
    pub(crate) from_call: u64,
}

/// Path of a file, in which `%p` stands for the number of the process.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct FilePattern(String);

impl FilePattern {
    /// Returns the path of the file of this process.
    pub(crate) fn path(&self) -> PathBuf {
        self.0.replace("%p", &std::process::id().to_string()).into()
    }
}

impl Default for Scenario {
    fn default() -> Self {
        Self {
            driver: 12090,
            grain: 2 << 20,
            pool_grain: 32 << 20,
            keeps_contents: false,
            holds_stacks: false,
            ptxas: None,
            ptx: None,
            slow: Vec::new(),
            books: None,
            trace: None,
            failures: BTreeMap::new(),
            gpus: Vec::new(),
        }
    }
}

impl FromStr for Scenario {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut scenario = Self::default();
        for (line, number) in text.lines().zip(1..) {
            let line = line.split('#').next().unwrap_or_default();
            let mut words = Words(line.split_whitespace());
            if let Some(key) = words.0.next() {
                let read = scenario.add(key, &mut words).and_then(|()| words.end());
                read.map_err(|Mistake(expected)| format!("line {number}: `{}` is not {expected}", line.trim()))?;
            }
        }
        scenario.check()?;
        Ok(scenario)
    }
}

impl Scenario {
    fn add(&mut self, key: &str, words: &mut Words<'_>) -> Result<(), Mistake> {
        if key == "gpu" {
            self.gpus.push(GpuFacts::new(words.rest("`gpu NAME`")?));
            return Ok(());
        }
        match self.gpus.last_mut() {
            Some(gpu) => gpu.add(key, words),
            None => self.add_fact(key, words),
        }
    }

    fn add_fact(&mut self, key: &str, words: &mut Words<'_>) -> Result<(), Mistake> {
        match key {
            "driver" => self.driver = words.number("`driver VERSION`, such as 12090")?,
            "grain" => self.grain = words.grain("`grain SIZE` with a power of two from 64KiB on")?,
            "pool-grain" => self.pool_grain = words.grain("`pool-grain SIZE` with a power of two from 64KiB on")?,
            "read" => self.keeps_contents = words.choice(["zeros", "kept"], "`read zeros` or `read kept`")?,
            "stacks" => self.holds_stacks = words.choice(["counted", "held"], "`stacks counted` or `stacks held`")?,
            "ptxas" => self.ptxas = Some(words.rest("`ptxas FILE`")?.into()),
            "ptx" => self.ptx = Some(words.rest("`ptx FOLDER`")?.into()),
            "slow" => self.slow = words.list("`slow PART,PART`, parts of names of kernels")?,
            "books" => self.books = Some(FilePattern(words.rest("`books FILE`")?)),
            "trace" => self.trace = Some(FilePattern(words.rest("`trace FILE`")?)),
            "fail" => {
                let expected = "`fail FUNCTION CODE` or `fail FUNCTION CODE CALL`";
                let (function, code) = (words.word(expected)?.to_owned(), words.code(expected)?);
                let from_call = words.number_or(1, expected)?;
                self.failures.insert(function, FunctionFailure { code, from_call });
            }
            _ => return Err(Mistake("a key of the machine; the keys of a GPU come after a line `gpu NAME`")),
        }
        Ok(())
    }

    /// Checks what concerns several lines.
    fn check(&self) -> Result<(), String> {
        if self.ptxas.is_some() && self.ptx.is_none() {
            return Err("`ptxas` needs a line `ptx FOLDER` for what it makes".into());
        }
        if self.gpus.len() > MAX_GPUS {
            return Err(format!("there are {} GPUs, and {MAX_GPUS} at most", self.gpus.len()));
        }
        let no_memory = self.gpus.iter().find(|gpu| gpu.memory == 0);
        no_memory.map_or(Ok(()), |gpu| Err(format!("the GPU `{}` needs a line `memory SIZE`", gpu.name)))
    }
}

/// Most GPUs of a machine.
const MAX_GPUS: usize = 16;

/// What a line should have been.
#[derive(Debug)]
pub(crate) struct Mistake(&'static str);

/// Words of a line after the key. Each method takes the form of the line for the message about a mistake.
pub(crate) struct Words<'a>(SplitWhitespace<'a>);

impl Words<'_> {
    fn word(&mut self, expected: &'static str) -> Result<&str, Mistake> {
        self.0.next().ok_or(Mistake(expected))
    }

    fn rest(&mut self, expected: &'static str) -> Result<String, Mistake> {
        let rest = self.0.by_ref().collect::<Vec<_>>().join(" ");
        if rest.is_empty() { Err(Mistake(expected)) } else { Ok(rest) }
    }

    fn number<T: FromStr>(&mut self, expected: &'static str) -> Result<T, Mistake> {
        self.word(expected)?.parse().map_err(|_| Mistake(expected))
    }

    fn number_or<T: FromStr>(&mut self, otherwise: T, expected: &'static str) -> Result<T, Mistake> {
        self.0.next().map_or(Ok(otherwise), |word| word.parse().map_err(|_| Mistake(expected)))
    }

    /// Reads a code other than the one of success.
    fn code(&mut self, expected: &'static str) -> Result<Code, Mistake> {
        self.number(expected).and_then(|code| if code > 0 { Ok(code) } else { Err(Mistake(expected)) })
    }

    /// Reads a number that counts from 1.
    fn ordinal(&mut self, expected: &'static str) -> Result<u64, Mistake> {
        self.number(expected).and_then(|number| if number > 0 { Ok(number) } else { Err(Mistake(expected)) })
    }

    fn size(&mut self, expected: &'static str) -> Result<u64, Mistake> {
        size::parse(self.word(expected)?).ok_or(Mistake(expected))
    }

    fn grain(&mut self, expected: &'static str) -> Result<u64, Mistake> {
        let is_grain = |size: &u64| size.is_power_of_two() && *size >= 64 << 10;
        self.size(expected).and_then(|size| Some(size).filter(is_grain).ok_or(Mistake(expected)))
    }

    /// Returns whether the word is the second of two.
    fn choice(&mut self, choices: [&str; 2], expected: &'static str) -> Result<bool, Mistake> {
        let word = self.word(expected)?;
        choices.iter().position(|choice| *choice == word).map(|place| place == 1).ok_or(Mistake(expected))
    }

    fn list(&mut self, expected: &'static str) -> Result<Vec<String>, Mistake> {
        let parts: Vec<String> = self.word(expected)?.split(',').map(str::to_owned).collect();
        if parts.iter().any(String::is_empty) { Err(Mistake(expected)) } else { Ok(parts) }
    }

    fn end(&mut self) -> Result<(), Mistake> {
        self.0.next().map_or(Ok(()), |_| Err(Mistake("understood to its end")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_the_readme_is_a_scenario() {
        let readme = include_str!("../README.md");
        let example = readme.split("```text").nth(1).unwrap().split("```").next().unwrap();
        let scenario: Scenario = example.parse().unwrap();
        assert_eq!((scenario.driver, scenario.grain, scenario.keeps_contents), (12090, 2 << 20, true));
        assert_eq!(scenario.slow, ["direct_conv2d", "conv_transpose2d_direct"]);
        assert_eq!(scenario.failures["cuMemcpyDtoHAsync_v2"], FunctionFailure { code: 719, from_call: 200 });
        let gpu = &scenario.gpus[0];
        assert_eq!((gpu.name.as_str(), gpu.capability, gpu.multiprocessors), ("NVIDIA GeForce RTX 3060", 86, Some(28)));
        assert_eq!((gpu.memory >> 20, gpu.others, &gpu.others_at), (11909, 256 << 20, &vec![(400, 2 << 30)]));
        let expected =
            AllocationFailures { at: vec![7, 12], every: Some(500), above: Some(4 << 30), chance: Some((0.001, 42)) };
        assert_eq!((&gpu.allocation_failures, &gpu.launch_failures), (&expected, &BTreeMap::from([(1000, 700)])));
        assert_eq!(scenario.gpus[1].name, "NVIDIA GeForce RTX 3060");
    }

    #[test]
    fn a_wrong_line_is_named_with_its_right_form() {
        let check = |text: &str, expected: &str| {
            let error = text.parse::<Scenario>().unwrap_err();
            assert!(error.starts_with(&format!("line {}: ", text.lines().count())), "{error}");
            assert!(error.contains(expected), "{error}");
        };
        check("memory 1GiB", "after a line `gpu NAME`");
        check("gpu", "`gpu NAME`");
        check("driver twelve", "`driver VERSION`");
        check("grain 3MiB", "power of two");
        check("read some", "`read kept`");
        check("slow a,,b", "PART,PART");
        check("fail cuInit", "`fail FUNCTION CODE`");
        check("fail cuInit 0", "`fail FUNCTION CODE`");
        check("fail cuInit 1 2 3", "understood to its end");
        check("gpu A\nmemory lots", "`memory SIZE`");
        check("gpu A\nmemory 1GiB 2GiB", "understood to its end");
        check("gpu A\ncapability 86", "`capability MAJOR.MINOR`");
        check("gpu A\nuuid GPU-1", "`uuid GPU-");
        check("gpu A\nothers-at 0 1GiB", "`others-at NUMBER SIZE`");
        check("gpu A\nfail-allocation 1 x", "`fail-allocation NUMBER...`");
        check("gpu A\nfail-allocation-chance 2 1", "`fail-allocation-chance");
        check("gpu A\nfail-launch 3", "`fail-launch NUMBER CODE`");
        check("gpu A\ndriver 12090", "a key of a GPU");
    }

    #[test]
    fn lines_that_belong_together_are_checked() {
        let check = |text: &str, expected: &str| {
            assert!(text.parse::<Scenario>().unwrap_err().contains(expected), "{text}");
        };
        check("gpu A", "needs a line `memory SIZE`");
        check("ptxas /bin/ptxas", "`ptx FOLDER`");
        check(&"gpu A\nmemory 1GiB\n".repeat(17), "17 GPUs");
    }

    #[test]
    fn a_pattern_names_a_file_for_each_process() {
        let path = FilePattern("/tmp/a-%p.json".into()).path();
        assert_eq!(path, PathBuf::from(format!("/tmp/a-{}.json", std::process::id())));
    }
}
