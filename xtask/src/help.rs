//! The text of `cargo xtask help`.

use std::process::ExitCode;

/// Commands of the program in the order of `plimsoll --help`, a line each: the name, a tab, the description.
///
/// The list is a file, since the help must not need a build of the program. A test of the program compares the two
/// lists.
const COMMANDS: &str = include_str!("commands.txt");

const BEGINNING: &str = "\
Plimsoll trains speech models on the local GPU or on the CPU.

Start with these two:
  cargo xtask train             train; without options, a small recognizer on speech that the program makes itself
  cargo xtask test              run the tests

Commands of the program (add --help to any of them for its options):
";

const END: &str = "
Commands for work on the code:
  test [--long] [ARGS]          run every test; ARGS go to the runner (a name, -p CRATE)
  test --paper-gpu              train for a few steps on a GPU that does not exist (with the CUDA build)
  tidy [PATH]                   check the rules that no compiler knows; PATH shows one file or folder
  ci [--cuda | --mpi]           run all that must pass before a change goes in, cheapest first; with --cuda check only
                                the types and lints of the build with CUDA, with --mpi only test the build with MPI
  ci --image [cpu|cuda]         build the image of the Dockerfile by buildah, and train in it
  cuda check [--json]           list what a build with CUDA and its runs need, and what is missing here
  cuda setup [--llvm auto|download|debian] [--libdevice auto|pip|PATH] [--dry-run] [--json]
                                make it: LLVM for the build, libdevice for the runs (docs/gpu.md)
  bench [NAME [ARGS]]           run a measurement, or list them
  paper-gpu [--gpu NAME|SIZE] [OPTIONS] -- COMMAND...
                                run the program on a GPU that does not exist, to measure its memory;
                                `--soak` trains for a long time through faults
  sample-docs [--seed S] [--count N]
                                print doc comments drawn at random, to judge their language
  help                          print this text

Where to run: --backend auto|cpu|cuda|wgpu, with the commands that compute.
  auto (the default) takes CUDA when an NVIDIA driver answers, and the CPU otherwise.
  The first CUDA build takes half an hour; --backend cpu starts in the meantime. Before it: cargo xtask cuda setup

A run keeps all it makes in runs/<name>/: its plan, its records, its checkpoints and its report.
The map of the code is docs/ARCHITECTURE.md.
";

/// Prints the help.
pub(crate) fn print() -> ExitCode {
    print!("{}", text());
    ExitCode::SUCCESS
}

fn text() -> String {
    let lines = commands().map(|(name, about)| format!("  {name:<29} {}\n", uncapitalized(about)));
    format!("{BEGINNING}{}{END}", lines.collect::<String>())
}

fn commands() -> impl Iterator<Item = (&'static str, &'static str)> {
    COMMANDS.lines().filter_map(|line| line.split_once('\t'))
}

/// Returns whether the program has the command `name`.
pub(crate) fn is_command(name: &str) -> bool {
    name == "help" || commands().any(|(known, _)| known == name)
}

/// Returns the command, of the program or of xtask, that `name` was meant for: one that differs in a letter or two.
pub(crate) fn nearest(name: &str) -> Option<&'static str> {
    let own = ["test", "tidy", "ci", "cuda", "bench", "paper-gpu", "sample-docs", "help"];
    let all = commands().map(|(known, _)| known).chain(own);
    let near = all.map(|known| (distance(name, known), known)).min_by_key(|(distance, _)| *distance)?;
    (near.0 <= 2 && near.0 < name.chars().count() as u32).then_some(near.1)
}

/// Counts the letters to insert, remove, replace or swap with their neighbor, to make `b` of `a`.
fn distance(a: &str, b: &str) -> u32 {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows: Vec<Vec<u32>> = vec![(0..=b.len() as u32).collect()];
    for i in 1..=a.len() {
        let mut row = vec![i as u32];
        for j in 1..=b.len() {
            let mut least =
                (rows[i - 1][j] + 1).min(row[j - 1] + 1).min(rows[i - 1][j - 1] + u32::from(a[i - 1] != b[j - 1]));
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                least = least.min(rows[i - 2][j - 2] + 1);
            }
            row.push(least);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}

fn uncapitalized(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| first.to_lowercase().chain(chars).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_list_is_a_command() {
        for line in COMMANDS.lines() {
            let (name, about) = line.split_once('\t').expect("a name, a tab and a text");
            assert!(name.chars().all(|char| char.is_ascii_lowercase() || char == '-'), "{name}");
            assert!(about.starts_with(|char: char| char.is_uppercase()) && !about.ends_with('.'), "{about}");
        }
        assert_eq!(commands().count(), COMMANDS.lines().count());
    }

    #[test]
    fn misspelled_commands_get_the_nearest_one() {
        for (typed, meant) in [
            ("trian", Some("train")),
            ("tran", Some("train")),
            ("trainn", Some("train")),
            ("optimizr", Some("optimize")),
            ("tests", Some("test")),
            ("gpuinfo", Some("gpu-info")),
            ("frobnicate", None),
            ("x", None),
        ] {
            assert_eq!(nearest(typed), meant, "{typed}");
        }
        assert!(is_command("train") && is_command("gpu-info") && !is_command("trian"));
    }

    #[test]
    fn help_lists_every_command_in_120_columns() {
        let text = text();
        for (name, _) in commands() {
            assert!(text.contains(&format!("\n  {name} ")), "{name}");
        }
        assert!(text.lines().all(|line| line.len() <= 120), "{text}");
    }
}
