//! Tests of frames, and of the keys.

use plimsoll_core::{Bytes, TimeOwner};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{Event, KeyCode, KeyEvent, KeyModifiers};
use ratatui::style::Color;

use super::block::shares;
use super::event_loop::{Answer, answer};
use super::style::letter;
use super::*;
use crate::live::RunView;
use crate::live::tests::{running, running_on_gpu, sample};
use crate::sample::Sample;

const PLAIN: ViewOptions = ViewOptions { ascii: false, no_color: false, help: false, handle_signals: false };

fn ascii() -> ViewOptions {
    ViewOptions { ascii: true, ..PLAIN }
}

#[test]
fn frames_of_a_run_on_a_gpu() {
    let run = running_on_gpu();
    for (width, height) in [(80, 24), (120, 40), (200, 60), (60, 15)] {
        insta::assert_snapshot!(format!("gpu_{width}x{height}"), screen_text(&run, &PLAIN, width, height));
        insta::assert_snapshot!(format!("ascii_{width}x{height}"), screen_text(&run, &ascii(), width, height));
    }
    insta::assert_snapshot!("line_39x9", screen_text(&run, &PLAIN, 39, 9));
    insta::assert_snapshot!("help", screen_text(&run, &ViewOptions { help: true, ..PLAIN }, 100, 24));
}

#[test]
fn frames_without_gpu_and_without_anything() {
    let mut run = running();
    insta::assert_snapshot!("no_sample", screen_text(&run, &PLAIN, 80, 24));
    run.sample(Sample { gpus: Vec::new(), no_gpu: Some("the driver is not installed".into()), ..sample() });
    insta::assert_snapshot!("no_gpu", screen_text(&run, &PLAIN, 80, 24));
    insta::assert_snapshot!("empty", screen_text(&RunView::new("birch"), &PLAIN, 80, 24));
}

#[test]
fn a_missing_value_is_never_zero() {
    let mut run = RunView::new("birch");
    run.sample(Sample { gpus: vec![crate::sample::GpuSample::default()], ..Sample::default() });
    for (options, sign) in [(PLAIN, "–"), (ascii(), "-")] {
        let text = screen_text(&run, &options, 100, 30);
        assert!(text.contains(&format!("had a kernel {sign} (not read)")), "{text}");
        for zero in [" 0 %", " 0 W", " 0 B", " 0 MHz", "0.000"] {
            assert!(!text.contains(zero), "{zero}: {text}");
        }
    }
}

#[test]
fn control_characters_do_not_reach_the_terminal() {
    let mut sample = sample();
    sample.gpus[0].name = "\u{1b}[2Jcard\n".into();
    let mut run = RunView::new("a\u{7}b");
    run.sample(sample);
    for (width, height) in [(30, 5), (80, 24), (160, 50)] {
        let text = screen_text(&run, &PLAIN, width, height);
        assert!(!text.contains(|c: char| c.is_control() && c != '\n'), "{text:?}");
    }
}

#[test]
fn every_size_is_drawn_and_ascii_is_ascii() {
    let run = running_on_gpu();
    for width in (0..=210).step_by(7) {
        for height in (0..=64).step_by(3) {
            for help in [false, true] {
                let text = screen_text(&run, &ViewOptions { help, ..ascii() }, width, height);
                assert!(
                    text.is_ascii() && text.lines().count() <= usize::from(height).max(1),
                    "{width}x{height}: {text}"
                );
            }
        }
    }
}

#[test]
fn colors_are_drawn_only_if_wanted() {
    for (no_color, expected) in [(true, false), (false, true)] {
        let mut terminal = Terminal::new(TestBackend::new(80, 24)).unwrap();
        let options = ViewOptions { no_color, ..PLAIN };
        terminal.draw(|frame| draw(frame, &running(), &options)).unwrap();
        let is_colored = terminal.backend().buffer().content().iter().any(|cell| cell.fg != Color::Reset);
        assert_eq!(is_colored, expected);
    }
}

#[test]
fn a_peak_above_the_plan_is_said() {
    let mut run = running();
    run.set_planned_bytes(Some(Bytes::mib(800)));
    assert!(screen_text(&run, &PLAIN, 100, 24).contains("peak 949 MiB of 800 MiB planned, above the plan"));
}

#[test]
fn keys_quit_and_show_help() {
    let mut options = PLAIN;
    let mut press = |code, modifiers| answer(&Event::Key(KeyEvent::new(code, modifiers)), &mut options);
    assert_eq!(press(KeyCode::Char('q'), KeyModifiers::NONE), Answer::Quit);
    assert_eq!(press(KeyCode::Esc, KeyModifiers::NONE), Answer::Quit);
    assert_eq!(press(KeyCode::Char('c'), KeyModifiers::CONTROL), Answer::Quit);
    assert_eq!(press(KeyCode::Char('c'), KeyModifiers::NONE), Answer::Stay);
    assert_eq!(press(KeyCode::Char('?'), KeyModifiers::SHIFT), Answer::Stay);
    assert!(options.help);
    assert_eq!(answer(&Event::Resize(3, 3), &mut options), Answer::Stay);
}

#[test]
fn options_follow_the_environment() {
    for (vars, expected_ascii, expected_plain) in [
        (&[("LANG", "en_US.UTF-8"), ("TERM", "xterm")][..], false, false),
        (&[("LANG", "C.utf8"), ("NO_COLOR", "1")], false, true),
        (&[("LANG", "en_US.UTF-8"), ("TERM", "dumb")], true, true),
        (&[("LANG", "en_US.UTF-8"), ("LC_ALL", "C"), ("NO_COLOR", "")], true, false),
    ] {
        let options = ViewOptions::from_env(|name| {
            vars.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_string())
        });
        assert_eq!((options.ascii, options.no_color), (expected_ascii, expected_plain), "{vars:?}");
    }
}

#[test]
fn lines_are_divided_and_never_exceeded() {
    let parts = [(1, 1), (1, 3), (2, 9), (0, 5), (1, 4)];
    for height in 0..30 {
        let counts = shares(parts.into_iter(), height);
        assert_eq!(counts.iter().sum::<usize>(), height.min(22), "{height}: {counts:?}");
        assert!(counts.iter().zip(parts).all(|(count, (_, wanted))| *count <= wanted));
    }
}

#[test]
fn every_owner_has_its_letter() {
    let letters: std::collections::BTreeSet<char> = TimeOwner::ALL.into_iter().map(letter).collect();
    assert_eq!(letters.len(), TimeOwner::ALL.len());
}
