//! SVG elements of a picture.

use std::fmt::Write;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;

use super::colors::palette;

/// Font size of the text beside ticks, in pixels.
pub(super) const TEXT_SIZE: f64 = 11.0;
/// Color of text.
pub(super) const INK: &str = "#222";
/// Color of less important text, of lines and of frames.
pub(super) const PALE_INK: &str = "#666";
/// Fonts of browsers and Linux distributions that cover many scripts.
const FONTS: &str = "system-ui, 'Segoe UI', 'Noto Sans', 'DejaVu Sans', sans-serif";

/// Rectangle of the picture, in pixels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Frame {
    pub(super) x: f64,
    pub(super) y: f64,
    pub(super) width: f64,
    pub(super) height: f64,
}

impl Frame {
    pub(super) fn bottom(self) -> f64 {
        self.y + self.height
    }
}

/// How a text of the picture is drawn.
#[derive(Clone, Copy, Debug)]
pub(super) struct Text {
    pub(super) size: f64,
    pub(super) bold: bool,
    pub(super) anchor: Anchor,
    pub(super) color: &'static str,
    /// Whether the text is rotated to run from bottom to top.
    pub(super) upwards: bool,
}

impl Default for Text {
    fn default() -> Self {
        Self { size: TEXT_SIZE, bold: false, anchor: Anchor::Start, color: INK, upwards: false }
    }
}

/// Point of a text that lies at its position: its start, its middle or its end.
#[derive(Clone, Copy, Debug)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

/// SVG page under construction.
#[derive(Default)]
pub(super) struct Svg {
    body: String,
}

impl Svg {
    pub(super) fn text(&mut self, x: f64, y: f64, text: &str, style: Text) {
        if text.is_empty() {
            return;
        }
        let place = if style.upwards {
            format!(r#"transform="translate({} {}) rotate(-90)""#, px(x), px(y))
        } else {
            format!(r#"x="{}" y="{}""#, px(x), px(y))
        };
        let anchor = match style.anchor {
            Anchor::Start => "",
            Anchor::Middle => r#" text-anchor="middle""#,
            Anchor::End => r#" text-anchor="end""#,
        };
        let bold = if style.bold { r#" font-weight="600""# } else { "" };
        let (size, color, text) = (style.size, style.color, escape(text));
        let _ = writeln!(self.body, r#"<text {place} font-size="{size}" fill="{color}"{anchor}{bold}>{text}</text>"#);
    }

    pub(super) fn line(&mut self, x1: f64, y1: f64, x2: f64, y2: f64) {
        let [x1, y1, x2, y2] = [x1, y1, x2, y2].map(px);
        let _ = writeln!(self.body, r#"<path d="M{x1} {y1}L{x2} {y2}" stroke="{PALE_INK}" stroke-width="0.75"/>"#);
    }

    /// Draws the outline of a rectangle.
    pub(super) fn frame(&mut self, Frame { x, y, width, height }: Frame) {
        let [x, y, width, height] = [x, y, width, height].map(px);
        let place = format!(r#"x="{x}" y="{y}" width="{width}" height="{height}""#);
        let _ = writeln!(self.body, r#"<rect {place} fill="none" stroke="{PALE_INK}" stroke-width="0.75"/>"#);
    }

    /// Draws palette entries as an image with `columns` entries per row, the first row at the top.
    pub(super) fn image(&mut self, Frame { x, y, width, height }: Frame, cells: &[u8], columns: usize) {
        let rows = cells.len() / columns;
        // Cells smaller than a pixel are averaged: pixelated rendering would drop some of them.
        let small = columns as f64 > width || rows as f64 > height;
        let rendering = if small { "auto" } else { "pixelated" };
        let data = BASE64_STANDARD.encode(png(cells, columns, rows));
        let [x, y, width, height] = [x, y, width, height].map(px);
        let place = format!(r#"x="{x}" y="{y}" width="{width}" height="{height}" preserveAspectRatio="none""#);
        let style = format!("image-rendering: {rendering}");
        let _ = writeln!(self.body, r#"<image {place} style="{style}" href="data:image/png;base64,{data}"/>"#);
    }

    /// Returns the whole SVG file. `title` is for screen readers.
    pub(super) fn page(self, width: f64, height: f64, title: &str) -> String {
        let (body, title, width, height) = (self.body, escape(title), px(width), px(height));
        format!(
            r##"<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}"
  role="img" font-family="{FONTS}">
<title>{title}</title>
<rect width="{width}" height="{height}" rx="6" fill="#fff"/>
{body}</svg>
"##
        )
    }
}

fn png(cells: &[u8], columns: usize, rows: usize) -> Vec<u8> {
    let [width, height] = [columns, rows].map(|side| u32::try_from(side).expect("a heat map fits into memory"));
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, width, height);
    encoder.set_color(png::ColorType::Indexed);
    encoder.set_palette(palette());
    let written = encoder.write_header().and_then(|mut writer| writer.write_image_data(cells));
    written.expect("writing to memory cannot fail");
    bytes
}

/// Rounds a length to a tenth of a pixel.
fn px(length: f64) -> f64 {
    (length * 10.0).round() / 10.0
}

/// Estimates the width of `text` at the font size `size`, in pixels. Fonts differ, so the estimate is rather too large
/// than too small.
pub(super) fn text_width(text: &str, size: f64) -> f64 {
    // Digits and most letters of alphabets and Indic scripts are narrower than the first share; symbols and Han are square.
    let shares = text.chars().map(|character| if character < '\u{1100}' { 0.64 } else { 1.0 });
    shares.sum::<f64>() * size
}

/// Truncates `text`, printed at the font size `size`, to `width` pixels; an ellipsis marks the cut.
pub(super) fn fitted(text: &str, width: f64, size: f64) -> String {
    if text_width(text, size) <= width {
        return text.into();
    }
    let mut room = width - size;
    let fits = |character: &char| {
        room -= text_width(character.encode_utf8(&mut [0; 4]), size);
        room >= 0.0
    };
    text.chars().take_while(fits).chain(['…']).collect()
}

/// Escapes `text` for XML and replaces control characters, because XML does not allow most of them.
fn escape(text: &str) -> String {
    let mut escaped = String::new();
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            // Unicode has a visible symbol for each.
            '\0'..'\u{20}' => escaped.extend(char::from_u32(0x2400 + u32::from(character))),
            '\u{7f}'..'\u{a0}' | '\u{fffe}' | '\u{ffff}' => escaped.push('\u{fffd}'),
            _ => escaped.push(character),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_escaped() {
        let check = |text, expected: &str| assert_eq!(escape(text), expected);
        check("<&>\"'", "&lt;&amp;&gt;&quot;'");
        check("नमस्ते سلام ", "नमस्ते سلام ");
        check("a\nb\0\u{9f}", "a␊b␀\u{fffd}");
    }

    #[test]
    fn text_is_truncated_to_fit() {
        assert_eq!(fitted("short", 100.0, 12.0), "short");
        assert_eq!(fitted("much too long", 60.0, 12.0), "much t…");
        assert_eq!(fitted("ab", 1.0, 12.0), "…");
    }
}
