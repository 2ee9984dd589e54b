//! Tests that docs/commands and the list of `cargo xtask help` equal the help texts of the program, or rewrites them.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use clap::Command;

/// Columns of the help texts on the pages.
const WIDTH: usize = 100;

/// Returns the root of the repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Lists the commands of the program in the order of its help, without `help` itself.
fn commands() -> Vec<Command> {
    let mut program = super::command().term_width(WIDTH);
    program.build();
    program.get_subcommands().filter(|command| command.get_name() != "help").cloned().collect()
}

/// Formats the page of a command: its help, and the help of each of its subcommands.
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

/// Asserts that the file holds `found`, or writes `found` into it when `PLIMSOLL_UPDATE_DOCS` is set.
fn assert_file(path: &Path, found: &str) {
    if std::env::var_os("PLIMSOLL_UPDATE_DOCS").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        return std::fs::write(path, found).unwrap();
    }
    let written = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        written == found,
        "{} differs from the help of the program: set PLIMSOLL_UPDATE_DOCS=$PWD/docs/configuration.md and test again",
        path.display()
    );
}

#[test]
fn command_pages_equal_the_help() {
    for command in commands() {
        assert_file(&root().join(format!("docs/commands/{}.md", command.get_name())), &page(&command));
    }
}

#[test]
fn xtask_help_lists_every_command() {
    let line = |command: &Command| {
        format!("{}\t{}\n", command.get_name(), command.get_about().map(ToString::to_string).unwrap_or_default())
    };
    let lines: String = commands().iter().map(line).collect();
    assert_file(&root().join("xtask/src/commands.txt"), &lines);
}

/// Asserts that the descriptions of `command` and of its subcommands begin with a capital letter and have no full stop,
/// and that the help of each argument begins with a capital letter.
fn check_style(command: &Command) {
    let name = command.get_name();
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    assert!(about.starts_with(char::is_uppercase) && !about.ends_with('.'), "{name}: {about}");
    for argument in command.get_arguments() {
        let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
        assert!(help.starts_with(char::is_uppercase), "{name} {}: {help}", argument.get_id());
    }
    command.get_subcommands().filter(|inner| inner.get_name() != "help").for_each(check_style);
}

#[test]
fn help_texts_begin_with_a_verb_and_have_no_full_stop() {
    commands().iter().for_each(check_style);
}
