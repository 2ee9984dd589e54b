//! Modules in PTX: their version, their architecture, and the kernels with what each takes.

use crate::flows::written_parameters;

/// Module in PTX.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PtxModule {
    /// Version of PTX, such as 83.
    pub(crate) version: u32,
    /// Target as written, such as `sm_90a`.
    pub(crate) target: String,
    /// Kernels.
    pub(crate) entries: Vec<Entry>,
}

/// Kernel of a module.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Entry {
    /// Name.
    pub(crate) name: String,
    /// Parameters in order.
    pub(crate) parameters: Vec<Parameter>,
    /// Most threads of a block.
    pub(crate) max_threads: u32,
}

/// Parameter of a kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Parameter {
    /// Size in bytes.
    pub(crate) size: usize,
    /// Whether the kernel writes through it, as far as its text shows.
    pub(crate) is_written: bool,
}

/// PTX versions by the first version of CUDA whose driver loads them, the newest first.
const VERSIONS: [(i32, u32); 15] = [
    (13030, 93),
    (13020, 92),
    (13010, 91),
    (13000, 90),
    (12090, 88),
    (12080, 87),
    (12050, 85),
    (12040, 84),
    (12030, 83),
    (12020, 82),
    (12010, 81),
    (12000, 80),
    (11080, 78),
    (11070, 77),
    (11000, 70),
];

impl PtxModule {
    /// Reads a module; `None` if it has no version or no target.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let text = without_comments(text);
        let version = text.split_once(".version")?.1.split_whitespace().next()?;
        let (major, minor) = version.split_once('.')?;
        let target = text.split_once(".target")?.1.trim_start();
        let target = target.split(|char: char| !char.is_ascii_alphanumeric() && char != '_').next()?;
        capability(target)?;
        Some(Self {
            version: major.parse::<u32>().ok()? * 10 + minor.parse::<u32>().ok()?,
            target: target.to_owned(),
            entries: text.split(".entry").skip(1).filter_map(entry).collect(),
        })
    }

    /// Returns whether the driver of a version of CUDA loads it.
    pub(crate) fn is_known_to(&self, driver: i32) -> bool {
        let newest = VERSIONS.iter().find(|(first, _)| driver >= *first).map_or(0, |(_, ptx)| *ptx);
        self.version <= newest
    }

    /// Returns whether GPUs of this compute capability can run it. Code for the features of one architecture runs on
    /// that one alone.
    pub(crate) fn runs_on(&self, gpu: u32) -> bool {
        let is_specific = self.is_specific();
        capability(&self.target).is_some_and(|target| if is_specific { target == gpu } else { target <= gpu })
    }

    /// Returns whether it is for the features of one architecture.
    pub(crate) fn is_specific(&self) -> bool {
        self.target.ends_with(|char: char| char.is_ascii_alphabetic())
    }
}

fn capability(target: &str) -> Option<u32> {
    target.strip_prefix("sm_")?.trim_end_matches(|char: char| char.is_ascii_alphabetic()).parse().ok()
}

fn without_comments(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("/*") {
        out.push_str(&rest[..at]);
        rest = rest[at..].split_once("*/").map_or("", |(_, after)| after);
    }
    out.push_str(rest);
    out.lines().flat_map(|line| [line.split("//").next().unwrap_or_default(), "\n"]).collect()
}

/// Reads a kernel from the text after `.entry`.
fn entry(text: &str) -> Option<Entry> {
    let text = text.trim_start();
    let (name, rest) = text.split_at(text.find(|char: char| char == '(' || char == '{' || char.is_whitespace())?);
    let (head, body) = rest.split_once('{')?;
    let list = head.split_once('(').and_then(|(_, rest)| rest.split_once(')')).map_or("", |(list, _)| list);
    let mut parameters: Vec<Parameter> = list
        .split(',')
        .filter(|text| text.contains(".param"))
        .map(|text| Parameter { size: parameter_size(text), is_written: false })
        .collect();
    for number in written_parameters(name, body) {
        parameters.get_mut(number).into_iter().for_each(|parameter| parameter.is_written = true);
    }
    Some(Entry { name: name.to_owned(), parameters, max_threads: max_threads(head).unwrap_or(1024) })
}

/// Returns the size of a parameter, such as `.param .align 8 .b8 name[16]`.
fn parameter_size(text: &str) -> usize {
    let width = text.split_whitespace().find_map(|word| match word.trim_start_matches('.') {
        "u64" | "s64" | "b64" | "f64" => Some(8),
        "u32" | "s32" | "b32" | "f32" => Some(4),
        "u16" | "s16" | "b16" | "f16" => Some(2),
        "u8" | "s8" | "b8" => Some(1),
        _ => None,
    });
    let length = text.split_once('[').and_then(|(_, rest)| rest.split(']').next()?.trim().parse().ok());
    width.unwrap_or(0) * length.unwrap_or(1)
}

/// Returns the product of the sizes after `.maxntid`.
fn max_threads(head: &str) -> Option<u32> {
    let sizes = head.split_once(".maxntid")?.1.split('.').next()?;
    sizes.split(',').map(|size| size.trim().parse::<u32>().ok()).product()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "//\n.version 7.4 /* a\n.version 9 */\n.target sm_80, debug\n.address_size 64\n
        .visible .entry add( .param .u64 add_param_0,\n .param .f32 add_param_1 // )\n,
        .param .align 8 .b8 add_param_2[24]\n) .maxntid 16, 8, 1 .minnctapersm 1\n{ ret; }\n
        .visible .entry none()\n{ ret;\n }\n.entry bare { ret; }";

    #[test]
    fn kernels_are_read_with_their_parameters() {
        let module = PtxModule::parse(TEXT).unwrap();
        assert_eq!((module.version, module.target.as_str()), (74, "sm_80"));
        let found: Vec<(&str, Vec<usize>, u32)> = module
            .entries
            .iter()
            .map(|entry| {
                let sizes = entry.parameters.iter().map(|parameter| parameter.size).collect();
                (entry.name.as_str(), sizes, entry.max_threads)
            })
            .collect();
        assert_eq!(found, [("add", vec![8, 4, 24], 128), ("none", vec![], 1024), ("bare", vec![], 1024)]);
    }

    #[test]
    fn modules_run_on_their_gpus() {
        let check = |target: &str, gpu, expected| {
            let module = PtxModule::parse(&format!(".version 8.3\n.target {target}\n")).unwrap();
            assert_eq!(module.runs_on(gpu), expected, "{target} on {gpu}");
        };
        check("sm_80", 86, true);
        check("sm_86", 80, false);
        check("sm_90a", 90, true);
        check("sm_90a", 100, false);
        let module = PtxModule::parse(TEXT).unwrap();
        assert!(module.is_known_to(12000) && !module.is_known_to(11000) && !module.is_known_to(10000));
        for wrong in ["", ".version 8.3", ".target sm_80", ".version x\n.target sm_80", ".version 8.0\n.target gpu"] {
            assert_eq!(PtxModule::parse(wrong), None, "{wrong}");
        }
    }
}
