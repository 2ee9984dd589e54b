//! The options of `cargo xtask paper-gpu`.

use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::Result;

use super::misuse;

/// Most GPUs of a machine.
const MOST_GPUS: u32 = 8;

/// Names of the options.
const NAMES: [&str; 8] = ["--gpu", "--sm", "--count", "--others", "--books", "--ptxas", "--scenario", "--program"];

/// What the person asks for.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Options {
    /// Name of a GPU, or the size of its memory.
    pub(super) gpu: Option<String>,
    /// Compute capability, such as 86.
    pub(super) sm: Option<u32>,
    pub(super) count: Option<u32>,
    /// Memory of other processes in bytes.
    pub(super) others: Option<u64>,
    pub(super) books: Option<PathBuf>,
    /// NVIDIA's assembler, which then compiles each kernel.
    pub(super) ptxas: Option<PathBuf>,
    pub(super) scenario: Option<PathBuf>,
    pub(super) program: Option<PathBuf>,
    /// Arguments of the program.
    pub(super) command: Vec<OsString>,
}

impl Options {
    /// Reads the arguments: options, `--`, and those of the program.
    pub(super) fn parse(args: &[OsString]) -> Result<Self> {
        let mut options = Self::default();
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            if arg == "--" {
                options.command = args.cloned().collect();
                return options.check();
            }
            let text = arg.to_string_lossy();
            let (name, value) =
                text.split_once('=').map_or((&*text, None), |(name, value)| (name, Some(value.to_owned())));
            if !NAMES.contains(&name) {
                return Err(misuse(format!("there is no option `{name}`")));
            }
            let next = || args.next().filter(|next| *next != "--").map(|next| next.to_string_lossy().into_owned());
            let value = value.or_else(next).ok_or_else(|| misuse(format!("`{name}` needs a value")))?;
            options.set(name, &value)?;
        }
        Err(misuse("the command of the program comes after `--`".into()))
    }

    fn set(&mut self, name: &str, value: &str) -> Result<()> {
        let wrong = || misuse(format!("`{name}` cannot be `{value}`"));
        match name {
            "--gpu" => self.gpu = Some(value.to_owned()),
            "--sm" => self.sm = Some(value.parse().ok().filter(|sm| (50..200).contains(sm)).ok_or_else(wrong)?),
            "--count" => {
                self.count =
                    Some(value.parse().ok().filter(|count| (1..=MOST_GPUS).contains(count)).ok_or_else(wrong)?);
            }
            "--others" => self.others = Some(size(value).ok_or_else(wrong)?),
            "--books" => self.books = Some(std::path::absolute(value)?),
            "--ptxas" => self.ptxas = Some(std::path::absolute(value)?),
            "--scenario" => self.scenario = Some(value.into()),
            "--program" => self.program = Some(std::path::absolute(value)?),
            _ => unreachable!("the names are listed"),
        }
        Ok(())
    }

    fn check(self) -> Result<Self> {
        let describes = self.gpu.is_some() || self.sm.is_some() || self.count.is_some() || self.others.is_some();
        if self.scenario.is_some() && describes {
            return Err(misuse("`--scenario` describes the whole machine, and needs no other option about it".into()));
        }
        Ok(self)
    }
}

/// Reads a size with its unit, such as `8GiB` or `12GB`.
pub(super) fn size(text: &str) -> Option<u64> {
    let digits = text.find(|char: char| !char.is_ascii_digit() && char != '.')?;
    let (number, unit) = text.split_at(digits);
    let unit: u64 = match unit.trim().to_ascii_lowercase().as_str() {
        "k" | "kib" => 1 << 10,
        "m" | "mib" => 1 << 20,
        "g" | "gib" => 1 << 30,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        _ => return None,
    };
    Some((number.parse::<f64>().ok()? * unit as f64) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Options, String> {
        let args: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
        Options::parse(&args).map_err(|error| error.to_string())
    }

    #[test]
    fn options_stand_before_the_command() {
        let options = parse("--gpu=t4 --sm 75 --count 2 --others 1.5GiB -- train --gpu cpu -- x").unwrap();
        assert_eq!((options.gpu.as_deref(), options.sm, options.count), (Some("t4"), Some(75), Some(2)));
        assert_eq!(options.others, Some(3 << 29));
        assert_eq!(options.command, ["train", "--gpu", "cpu", "--", "x"]);
        assert_eq!(parse("--").unwrap(), Options::default());
    }

    #[test]
    fn wrong_options_are_named() {
        for (line, part) in [
            ("", "after `--`"),
            ("train", "there is no option `train`"),
            ("--gpu -- train", "`--gpu` needs a value"),
            ("--count 9 --", "`--count` cannot be `9`"),
            ("--sm x --", "`--sm` cannot be `x`"),
            ("--others 5 --", "`--others` cannot be `5`"),
            ("--speed 3 --", "there is no option `--speed`"),
            ("--scenario a --gpu t4 --", "describes the whole machine"),
        ] {
            let error = parse(line).unwrap_err();
            assert!(error.contains(part), "{line}: {error}");
        }
    }

    #[test]
    fn sizes_have_units() {
        assert_eq!(
            ["8GiB", "12gb", "1.5 GiB", "512m"].map(size),
            [8 << 30, 12_000_000_000, 3 << 29, 512 << 20].map(Some)
        );
        assert_eq!(["8", "GiB", "8TB", "x8GiB"].map(size), [None; 4]);
    }
}
