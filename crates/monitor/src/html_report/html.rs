//! Text of HTML: escaped texts, tables and folded parts.

use std::fmt::Write;

/// Escapes `text` for HTML, both between tags and in a quoted attribute. Control characters become spaces, and so do
/// marks that reverse the direction of the text after them.
pub(super) fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => safe.push(' '),
            c if c.is_control() => safe.push(' '),
            c => safe.push(c),
        }
    }
    safe
}

/// Escapes at most `count` characters of `text`; an ellipsis stands for the rest.
pub(super) fn clipped(text: &str, count: usize) -> String {
    match text.char_indices().nth(count) {
        Some((end, _)) => escaped(&text[..end]) + "…",
        None => escaped(text),
    }
}

/// Makes a table, which scrolls by itself, also with the keyboard. Cells and titles are HTML; the first column is the
/// heading of its row. `caption` names the table for readers who do not see it.
pub(super) fn table(caption: &str, class: &str, titles: &[String], rows: &[Vec<String>]) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let mut html = format!(
        "<div class=\"scroll\" role=\"region\" tabindex=\"0\" aria-label=\"{0}\"><table class=\"{class}\">",
        escaped(caption)
    );
    if titles.iter().any(|title| !title.is_empty()) {
        html += "<thead><tr>";
        for title in titles {
            let _ = write!(html, "<th scope=\"col\">{title}</th>");
        }
        html += "</tr></thead>";
    }
    html += "<tbody>";
    for row in rows {
        html += "<tr>";
        for (column, cell) in row.iter().enumerate() {
            let _ = match column {
                0 => write!(html, "<th scope=\"row\">{cell}</th>"),
                _ => write!(html, "<td>{cell}</td>"),
            };
        }
        html += "</tr>\n";
    }
    html + "</tbody></table></div>\n"
}

/// Makes a part that a reader can unfold. `title` and `body` are HTML.
pub(super) fn folded(title: &str, body: &str) -> String {
    format!("<details><summary>{title}</summary>\n{body}</details>\n")
}

/// Makes a section with a heading; nothing for an empty `body`.
pub(super) fn section(id: &str, title: &str, body: &str) -> String {
    match body.trim().is_empty() {
        true => String::new(),
        false => format!("<section id=\"{id}\">\n<h2>{title}</h2>\n{body}</section>\n"),
    }
}

/// Makes a small note below a table or a plot; nothing for an empty `text`, which is HTML.
pub(super) fn note(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!("<p class=\"note\">{text}</p>\n") }
}

/// Formats a number with about three significant digits, without trailing zeros.
pub(super) fn number(value: f64) -> String {
    let size = value.abs();
    if !value.is_finite() {
        return "–".into();
    }
    if size != 0.0 && !(1e-3..1e6).contains(&size) {
        let text = format!("{value:.2e}");
        let (digits, power) = text.split_once('e').unwrap_or((&text, "0"));
        return format!("{}e{power}", trimmed(digits));
    }
    let decimals = if size == 0.0 { 0 } else { (2 - size.log10().floor() as i32).clamp(0, 6) as usize };
    trimmed(&format!("{value:.decimals$}")).into()
}

/// Formats a count with a thin space between groups of three digits, from five digits on.
pub(super) fn grouped(count: u64) -> String {
    let digits = count.to_string();
    if digits.len() < 5 {
        return digits;
    }
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push('\u{202f}');
        }
        text.push(digit);
    }
    text
}

/// Formats a share from 0 to 1 as a percentage that no line break divides.
pub(super) fn percent(share: f64) -> String {
    let share = share * 100.0;
    match share {
        _ if !share.is_finite() => "–".into(),
        _ if share != 0.0 && share.abs() < 0.1 => "&lt;\u{a0}0.1\u{a0}%".into(),
        _ if share.abs() < 9.95 => format!("{share:.1}\u{a0}%"),
        _ => format!("{share:.0}\u{a0}%"),
    }
}

fn trimmed(digits: &str) -> &str {
    if digits.contains('.') { digits.trim_end_matches('0').trim_end_matches('.') } else { digits }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_text_becomes_plain_text() {
        for (text, expected) in [
            ("<script>alert('a')</script>", "&lt;script&gt;alert(&#39;a&#39;)&lt;/script&gt;"),
            ("\" onload=\"x", "&quot; onload=&quot;x"),
            ("a\u{1b}[31m\u{202e}b", "a [31m b"),
            ("grün 語", "grün 語"),
        ] {
            assert_eq!(escaped(text), expected);
        }
        assert_eq!((clipped("語語語", 2), clipped("<a", 1)), ("語語…".into(), "&lt;…".into()));
    }

    #[test]
    fn long_counts_have_groups() {
        let counts = [0, 9999, 10_000, 632_567, 1_234_567];
        assert_eq!(counts.map(grouped), ["0", "9999", "10\u{202f}000", "632\u{202f}567", "1\u{202f}234\u{202f}567"]);
    }

    #[test]
    fn numbers_have_three_digits() {
        for (value, expected) in [
            (0.0, "0"),
            (1234.56, "1235"),
            (12.345, "12.3"),
            (0.05, "0.05"),
            (-2.5, "-2.5"),
            (2.5e-4, "2.5e-4"),
            (3.0e9, "3e9"),
            (100.0, "100"),
            (f64::NAN, "–"),
        ] {
            assert_eq!(number(value), expected);
        }
    }
}
