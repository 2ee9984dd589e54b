//! A real terminal shows what the view draws, and is as it was before after every end that a program can act on.

use std::env::{current_exe, var, var_os};
use std::fs::{remove_file, rename, write};
use std::path::PathBuf;
use std::process::id;
use std::sync::Arc;
use std::thread::{sleep, spawn};
use std::time::{Duration, SystemTime};

use plimsoll_monitor::Timestamp;
use plimsoll_monitor::terminal::{Update, ViewOptions, run_terminal, screen_text};

use crate::made_up::view;
use crate::pane::{Left, Pane};
use crate::tool::wait_for;

/// Variable of the process of this test that is the program in a window.
const IN_WINDOW: &str = "MONITOR_TEST_PANE";

/// Is the program in the window if a test has started it, and does nothing otherwise.
#[test]
fn a_program_shows_a_run() {
    let Some(folder) = var_os(IN_WINDOW).map(PathBuf::from) else { return };
    let state = Arc::new(view(60));
    let source = move || {
        // A program has a number that can be read as soon as its view is open.
        write(folder.join("pid.new"), id().to_string()).unwrap();
        rename(folder.join("pid.new"), folder.join("pid")).unwrap();
        assert!(!folder.join("panic").exists(), "a fault of the program");
        if remove_file(folder.join("thread")).is_ok() {
            let faulty = spawn(|| panic!("a fault of a thread"));
            assert!(faulty.join().is_err());
        }
        if rename(folder.join("wait"), folder.join("is_waiting")).is_ok() {
            while folder.join("is_waiting").exists() {
                sleep(Duration::from_millis(1));
            }
        }
        Update::State(state.clone())
    };
    let options = ViewOptions { handle_signals: true, ..ViewOptions::from_env(|name| var(name).ok()) };
    run_terminal(source, options).unwrap();
}

/// Starts the view in a window, and waits until the window shows exactly what the view draws.
fn start(columns: u16, rows: u16, no_color: bool) -> Option<Pane> {
    let program = current_exe().unwrap();
    let command =
        format!("{IN_WINDOW}=\"$PWD\" '{}' --exact terminal::a_program_shows_a_run --nocapture", program.display());
    let pane = Pane::start(&command, columns, rows, no_color)?;
    check_shown(&pane, columns, rows);
    assert_eq!(pane.has_colors(), !no_color);
    Some(pane)
}

fn check_shown(pane: &Pane, columns: u16, rows: u16) {
    let mut run = view(60);
    run.set_now(Timestamp::from(SystemTime::now()).0);
    let expected = screen_text(&run, &ViewOptions::default(), columns, rows);
    assert!(expected.contains("step 60 of 128"), "{expected}");
    wait_for(&format!("{columns}x{rows}:\n{expected}"), || {
        (pane.mode() == (true, false) && pane.text().trim_end() == expected.trim_end()).then_some(())
    });
}

#[test]
fn keys_end_the_view_and_leave_a_sane_terminal() {
    for (columns, rows, no_color, key) in
        [(80, 24, true, "q"), (80, 24, false, "q"), (120, 40, false, "Escape"), (200, 60, false, "C-c")]
    {
        let Some(pane) = start(columns, rows, no_color) else { return };
        pane.press("?");
        wait_for("the help", || pane.text().contains("? back").then_some(()));
        pane.press("?");
        check_shown(&pane, columns, rows);
        pane.press(key);
        let Left { code, text } = pane.end();
        assert_eq!(code, "0", "{key}: {text}");
        assert!(!text.contains("computing"), "no part of the view is left: {text}");
    }
}

#[test]
fn a_view_fills_a_window_that_changes_its_size() {
    let Some(pane) = start(80, 24, false) else { return };
    for (columns, rows) in [(200, 60), (120, 40), (40, 12), (80, 24)] {
        pane.resize(columns, rows);
        check_shown(&pane, columns, rows);
    }
    // Below 40x10 a line is left.
    pane.resize(39, 9);
    wait_for("one line", || (pane.text().trim_end().lines().count() == 1).then_some(()));
    pane.press("q");
    assert_eq!(pane.end().code, "0");
}

#[test]
fn a_key_is_not_lost_when_the_window_changes_its_size() {
    let Some(pane) = start(80, 24, false) else { return };
    for round in 0..6 {
        let has_help = round % 2 == 0;
        // A busy program finds both at once.
        write(pane.folder().join("wait"), "").unwrap();
        wait_for("a busy program", || (!pane.folder().join("wait").exists()).then_some(()));
        pane.resize(80 + round % 2, 24);
        pane.press("?");
        remove_file(pane.folder().join("is_waiting")).unwrap();
        wait_for("the help or the view", || (pane.text().contains("? back") == has_help).then_some(()));
    }
    pane.press("q");
    assert_eq!(pane.end().code, "0");
}

#[test]
fn signals_end_the_view_and_leave_a_sane_terminal() {
    for (signal, code) in [("-TERM", "143"), ("-INT", "130"), ("-HUP", "129")] {
        let Some(pane) = start(80, 24, false) else { return };
        pane.signal(signal);
        let left = pane.end();
        assert_eq!(left.code, code, "{signal}: {}", left.text);
    }
}

#[test]
fn a_view_ends_with_its_terminal() {
    let Some(pane) = start(80, 24, false) else { return };
    pane.hang_up();
    wait_for("the end of the program", || (!pane.is_running()).then_some(()));
}

#[test]
fn a_panic_leaves_a_sane_terminal_and_its_message() {
    let Some(pane) = start(120, 40, false) else { return };
    write(pane.folder().join("panic"), "").unwrap();
    let Left { code, text } = pane.end();
    assert_eq!(code, "101", "{text}");
    assert!(text.contains("a fault of the program"), "{text}");
}

#[test]
fn a_panic_of_a_thread_is_readable_after_a_view_that_goes_on() {
    let Some(pane) = start(120, 40, false) else { return };
    write(pane.folder().join("thread"), "").unwrap();
    wait_for("the fault", || (!pane.folder().join("thread").exists()).then_some(()));
    check_shown(&pane, 120, 40);
    pane.press("q");
    let Left { code, text } = pane.end();
    assert_eq!(code, "0", "{text}");
    assert!(text.contains("a fault of a thread"), "{text}");
}
