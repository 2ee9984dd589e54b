//! The views of the program in a real terminal, which is as it was before after every end that a program can act on.
#![cfg(unix)]

use std::fs::read_dir;
use std::path::Path;

use crate::pane::{Left, Pane};
use crate::program::SMALL;
use crate::tool::wait_for;

/// Starts the program in a window. Its process number is in the file `pid`.
fn start(arguments: &[&str], columns: u16, rows: u16, no_color: bool) -> Option<Pane> {
    let program = env!("CARGO_BIN_EXE_plimsoll");
    let command = format!("sh -c 'echo $$ > pid; exec \"$0\" \"$@\"' '{program}' {}", arguments.join(" "));
    Pane::start(&command, columns, rows, no_color)
}

/// Waits until the window shows `part` in the screen of a view.
fn wait_for_view(pane: &Pane, part: &str) {
    wait_for(part, || (pane.mode() == (true, false) && pane.text().contains(part)).then_some(()));
}

/// Checks what is left of a view: its exit code, and a text without parts of the view.
fn check_left(Left { code, text }: Left, expected: &str) -> String {
    assert_eq!(code, expected, "{text}");
    assert!(!text.contains("where the numbers come from"), "{text}");
    text
}

const MONITOR: [&str; 3] = ["monitor", "--interval", "0.2"];

#[test]
fn the_monitor_fills_windows_of_every_size() {
    for (columns, rows, no_color) in [(80, 24, false), (120, 40, true), (200, 60, false)] {
        let Some(pane) = start(&MONITOR, columns, rows, no_color) else { return };
        wait_for_view(&pane, "q quit");
        wait_for_view(&pane, "CPU");
        assert_eq!(pane.has_colors(), !no_color);
        // The last line of the window has the keys.
        let is_full = |rows: u16| pane.text().lines().nth(usize::from(rows) - 1).is_some_and(|l| l.contains("q quit"));
        assert!(is_full(rows), "{}", pane.text());
        for (columns, rows) in [(100, 30), (80, 24), (160, 50)] {
            pane.resize(columns, rows);
            wait_for("the new size", || is_full(rows).then_some(()));
        }
        pane.press("q");
        check_left(pane.end(), "0");
    }
}

#[test]
fn signals_end_the_monitor_and_leave_a_sane_terminal() {
    for (signal, code) in [("-TERM", "143"), ("-INT", "130"), ("-HUP", "129"), ("-QUIT", "131")] {
        let Some(pane) = start(&MONITOR, 80, 24, false) else { return };
        wait_for_view(&pane, "q quit");
        pane.signal(signal);
        check_left(pane.end(), code);
    }
}

/// Starts a run of many steps with the view of the whole terminal, and waits for its first steps.
fn train(columns: u16, rows: u16) -> Option<Pane> {
    let pane = start(&[&["train", "--ui", "tui", "--steps", "100000"], SMALL].concat(), columns, rows, false)?;
    wait_for_view(&pane, "of 100000");
    Some(pane)
}

/// Returns whether the run in `folder` has a checkpoint.
fn has_checkpoint(folder: &Path) -> bool {
    read_dir(folder.join("runs/asr-1/checkpoints")).is_ok_and(|mut all| all.next().is_some())
}

#[test]
fn signals_stop_a_run_with_a_view_and_leave_a_sane_terminal() {
    for (signal, code) in [("-TERM", "143"), ("-INT", "130"), ("-HUP", "129")] {
        let Some(pane) = train(120, 40) else { return };
        pane.signal(signal);
        wait_for("a checkpoint", || has_checkpoint(pane.folder()).then_some(()));
        let text = check_left(pane.end(), code);
        assert!(text.contains("To continue:"), "{text}");
    }
}

#[test]
fn a_run_whose_terminal_is_gone_ends_with_a_checkpoint() {
    let Some(pane) = train(120, 40) else { return };
    pane.hang_up();
    wait_for("the end of the run", || (!pane.is_running()).then_some(()));
    assert!(has_checkpoint(pane.folder()));
}

#[test]
fn a_second_signal_ends_a_run_at_once_and_leaves_a_sane_terminal() {
    let Some(pane) = train(120, 40) else { return };
    pane.signal("-TERM");
    pane.signal("-TERM");
    check_left(pane.end(), "143");
}

#[test]
fn a_closed_view_leaves_a_run_that_goes_on() {
    let Some(pane) = train(80, 24) else { return };
    pane.resize(200, 60);
    wait_for_view(&pane, "of 100000");
    pane.press("q");
    wait_for("lines after the view", || (!pane.mode().0 && pane.text().contains("training goes on")).then_some(()));
    // The terminal is in its usual mode again, so the key is a signal.
    pane.press("C-c");
    check_left(pane.end(), "130");
}
