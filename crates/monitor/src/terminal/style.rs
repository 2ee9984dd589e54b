//! Colors, characters and texts of values.

use plimsoll_core::TimeOwner;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};

use super::options::ViewOptions;
use crate::live::EventLevel;
use crate::sample::Reading;

/// Look of a view, from its options.
#[derive(Clone, Copy)]
pub(super) struct Look {
    pub(super) ascii: bool,
    is_colored: bool,
}

impl Look {
    pub(super) fn new(options: &ViewOptions) -> Self {
        Self { ascii: options.ascii, is_colored: !options.no_color }
    }

    fn colored(self, color: Color) -> Style {
        if self.is_colored { Style::new().fg(color) } else { Style::new() }
    }

    /// Returns the style of a part of the time bar. The colors are those of Okabe and Ito, which most people with a color
    /// deficiency can tell apart (<https://jfly.uni-koeln.de/color/>); the bar has letters too.
    pub(super) fn owner(self, owner: TimeOwner) -> Style {
        let [r, g, b] = match owner {
            TimeOwner::Compute => [0, 158, 115],
            TimeOwner::Data | TimeOwner::Transfer | TimeOwner::Replicas => [230, 159, 0],
            TimeOwner::Submit | TimeOwner::Read => [86, 180, 233],
            TimeOwner::Optimizer | TimeOwner::Compile => [0, 114, 178],
            TimeOwner::Checkpoint | TimeOwner::Validation | TimeOwner::Record => [204, 121, 167],
            TimeOwner::Retry | TimeOwner::OtherProcess | TimeOwner::Throttled => [213, 94, 0],
            _ => [153, 153, 153],
        };
        self.colored(Color::Rgb(r, g, b))
    }

    pub(super) fn level(self, level: EventLevel) -> Style {
        match level {
            EventLevel::Info => Style::new(),
            EventLevel::Warning => self.colored(Color::Yellow),
            EventLevel::Error => self.colored(Color::Red),
        }
    }

    pub(super) fn title(self) -> Style {
        self.colored(Color::Cyan)
    }

    pub(super) fn strong(self) -> Style {
        if self.is_colored { Style::new().add_modifier(Modifier::BOLD) } else { Style::new() }
    }

    /// Returns the sign of a missing value.
    pub(super) fn missing(self) -> &'static str {
        if self.ascii { "-" } else { "–" }
    }

    /// Formats a value; the sign of a missing value for `None`.
    pub(super) fn value<T>(self, value: Option<T>, format: impl FnOnce(T) -> String) -> String {
        value.map_or_else(|| self.missing().into(), format)
    }

    /// Formats a reading; the sign of a missing value with its reason if it is missing.
    pub(super) fn reading<T>(self, reading: &Reading<T>, format: impl FnOnce(&T) -> String) -> String {
        match (reading.value(), reading.why_missing()) {
            (Some(value), _) => format(value),
            (None, Some(why)) => format!("{} ({why})", self.missing()),
            (None, None) => self.missing().into(),
        }
    }

    /// Replaces what the character set of the terminal does not have.
    pub(super) fn text(self, text: &str) -> String {
        if !self.ascii {
            return text.into();
        }
        let ascii = text.replace('°', "").replace(['–', '—'], "-").replace('…', "~");
        ascii.chars().map(|c| if c.is_ascii() { c } else { '?' }).collect()
    }

    /// Starts a line with its name.
    pub(super) fn named(self, name: &str, rest: impl Into<String>) -> Line<'static> {
        Line::from(vec![Span::styled(format!("{name:<NAME_WIDTH$}"), self.title()), Span::raw(self.text(&rest.into()))])
    }
}

impl Look {
    /// Breaks a text into lines of at most `width` characters after words. The first line starts with its name.
    pub(super) fn wrapped(self, name: &str, text: &str, width: usize) -> Vec<Line<'static>> {
        let rows = wrap(&self.text(text), width.saturating_sub(NAME_WIDTH));
        let name = |row: usize| if row == 0 { name } else { "" };
        rows.into_iter().enumerate().map(|(row, text)| self.named(name(row), text)).collect()
    }
}

/// Breaks a text into rows of at most `width` characters after words. A longer word has a row of its own.
pub(super) fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut rows = vec![String::new()];
    for word in text.split(' ') {
        let row = rows.last_mut().expect("there is a row");
        if row.is_empty() {
            row.push_str(word);
        } else if row.chars().count() + 1 + word.chars().count() <= width {
            *row += &format!(" {word}");
        } else {
            rows.push(word.into());
        }
    }
    rows
}

/// Width of the names at the start of lines.
pub(super) const NAME_WIDTH: usize = 9;

/// Returns the letter of an owner in the time bar.
pub(super) fn letter(owner: TimeOwner) -> char {
    match owner {
        TimeOwner::Data => 'D',
        TimeOwner::Transfer => 'T',
        TimeOwner::Submit => 'Q',
        TimeOwner::Compute => 'C',
        TimeOwner::Read => 'R',
        TimeOwner::Optimizer => 'O',
        TimeOwner::Replicas => 'W',
        TimeOwner::Checkpoint => 'S',
        TimeOwner::Validation => 'V',
        TimeOwner::Compile => 'K',
        TimeOwner::Retry => 'M',
        TimeOwner::OtherProcess => 'P',
        TimeOwner::Throttled => 'H',
        TimeOwner::Record => 'L',
        _ => '?',
    }
}

/// Formats a share of 0 to 1.
pub(super) fn percent(share: &f64) -> String {
    format!("{:.0} %", share * 100.0)
}
