//! The pages of docs/commands and the list of `cargo xtask help`, held to the help texts of the program.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use clap::{Command, CommandFactory};

use super::Cli;

/// Width of the help texts on the pages.
const WIDTH: usize = 100;

/// The root of the repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The commands of the program in the order of its help, without `help` itself.
fn commands() -> Vec<Command> {
    let mut program = Cli::command().term_width(WIDTH);
    program.build();
    program.get_subcommands().filter(|command| command.get_name() != "help").cloned().collect()
}

/// The page of a command: its help, and that of each of its own commands.
fn page(command: &Command) -> String {
    let name = command.get_name();
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    let mut text = format!(
        "# plimsoll {name}\n\n{about}.\n\nFrom a clone, write `cargo xtask {name}`. A test writes this page from the program's help.\n"
    );
    section(&mut text, command, &format!("plimsoll {name}"));
    text
}

fn section(text: &mut String, command: &Command, title: &str) {
    let help = command.clone().term_width(WIDTH).render_long_help().to_string();
    let help: Vec<&str> = help.lines().map(str::trim_end).collect();
    let _ = write!(text, "\n## {title}\n\n```text\n{}\n```\n", help.join("\n").trim_end());
    for inner in command.get_subcommands().filter(|inner| inner.get_name() != "help") {
        section(text, inner, &format!("{title} {}", inner.get_name()));
    }
}

/// Compares `found` with the file, or writes the file when `PLIMSOLL_UPDATE_DOCS` is set.
fn hold(path: &Path, found: &str) {
    if std::env::var_os("PLIMSOLL_UPDATE_DOCS").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        return std::fs::write(path, found).unwrap();
    }
    let written = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        written == found,
        "{} is not what the program says: set PLIMSOLL_UPDATE_DOCS=$PWD/docs/configuration.md and test again",
        path.display()
    );
}

#[test]
fn each_command_has_the_page_of_its_help() {
    for command in commands() {
        hold(&root().join(format!("docs/commands/{}.md", command.get_name())), &page(&command));
    }
}

#[test]
fn xtask_help_lists_every_command() {
    let line = |command: &Command| {
        format!("{}\t{}\n", command.get_name(), command.get_about().map(ToString::to_string).unwrap_or_default())
    };
    let lines: String = commands().iter().map(line).collect();
    hold(&root().join("xtask/src/commands.txt"), &lines);
}

#[test]
fn every_help_text_begins_with_a_verb_and_has_no_full_stop() {
    for command in commands() {
        let about = command.get_about().map(ToString::to_string).unwrap_or_default();
        assert!(about.starts_with(char::is_uppercase) && !about.ends_with('.'), "{}: {about}", command.get_name());
    }
}
