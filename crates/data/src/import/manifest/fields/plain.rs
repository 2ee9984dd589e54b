//! Lines as programs write them: texts without escapes, short numbers, no list and no object inside. They are read several
//! times as fast as by a parser of all JSON.

use std::borrow::Cow;

use memchr::memchr2;

use super::{Fields, Times};

/// Reads a line; `None` for one that is written in another way, or is faulty: a slower reader knows more.
pub(super) fn read(line: &str) -> Option<Fields<'_>> {
    let mut rest = Rest(line.trim_matches([' ', '\t', '\r', '\n']));
    rest.take(b'{')?;
    let (mut id, mut audio, mut text, mut speaker, mut language) = (None, None, None, None, None);
    let (mut offset, mut duration) = (None, None);
    loop {
        rest.skip_blanks();
        let key = rest.text()?;
        rest.skip_blanks();
        rest.take(b':')?;
        rest.skip_blanks();
        let place = match key {
            "id" => Some(&mut id),
            "audio_filepath" => Some(&mut audio),
            "text" => Some(&mut text),
            "speaker" => Some(&mut speaker),
            "lang" => Some(&mut language),
            "offset" | "duration" => {
                let place = if key == "offset" { &mut offset } else { &mut duration };
                // The parser of JSON reads the number, so that it is the same one.
                let number = serde_json::from_str(rest.number()?).ok()?;
                place.replace(number).is_none().then_some(())?;
                None
            }
            "frames" | "tokens" => {
                rest.count()?;
                None
            }
            _ => return None,
        };
        if let Some(place) = place {
            place.replace(Cow::Borrowed(rest.text()?)).is_none().then_some(())?;
        }
        rest.skip_blanks();
        if rest.take(b',').is_none() {
            rest.take(b'}')?;
            break;
        }
    }
    let times = Times::new(offset, duration)?;
    rest.0.is_empty().then_some(Fields { id, audio: audio?, text: text?, speaker, language, times })
}

/// Bytes of a line that are not read.
struct Rest<'a>(&'a str);

impl<'a> Rest<'a> {
    fn skip_blanks(&mut self) {
        if self.0.as_bytes().first() == Some(&b' ') {
            self.0 = self.0.trim_start_matches(' ');
        }
    }

    fn take(&mut self, byte: u8) -> Option<()> {
        (*self.0.as_bytes().first()? == byte).then(|| self.0 = &self.0[1..])
    }

    /// Reads a text without escapes.
    fn text(&mut self) -> Option<&'a str> {
        self.take(b'"')?;
        let bytes = self.0.as_bytes();
        let end = memchr2(b'"', b'\\', bytes)?;
        // JSON has no control characters in texts.
        let is_plain = bytes[..end].iter().fold(bytes[end] == b'"', |plain, &byte| plain & (byte >= b' '));
        let text = &self.0[..end];
        self.0 = &self.0[end + 1..];
        is_plain.then_some(text)
    }

    /// Returns the characters up to the end of a number.
    fn number(&mut self) -> Option<&'a str> {
        let end = self.0.bytes().position(|byte| matches!(byte, b',' | b'}' | b' '))?;
        let (number, rest) = self.0.split_at(end);
        self.0 = rest;
        Some(number)
    }

    /// Reads a number of few digits.
    fn count(&mut self) -> Option<()> {
        let digits = self.number()?.as_bytes();
        let is_plain = digits == b"0" || digits.len() < 16 && digits.first().is_some_and(|first| *first != b'0');
        (is_plain && digits.iter().all(u8::is_ascii_digit)).then_some(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::Line;
    use super::*;

    /// Parts of lines, whole and damaged.
    const PARTS: [&str; 24] = [
        "{",
        "}",
        ",",
        ":",
        " ",
        "\"id\":\"a\"",
        "\"audio_filepath\":\"a.wav\"",
        "\"text\":\"x y\"",
        "\"text\": \"é\"",
        "\"lang\":\"en\"",
        "\"speaker\":\"s\"",
        "\"speaker\":7",
        "\"duration\":1.5",
        "\"duration\":1e999",
        "\"offset\":0.1",
        "\"offset\":-1",
        "\"frames\":12",
        "\"tokens\":012",
        "\"other\":[1]",
        "\"text\":\"\\n\"",
        "\"text\":\"\t\"",
        "\"audio\":\"b\"",
        "\"duration\":null",
        "\"\"",
    ];

    fn about(fields: &Fields<'_>) -> String {
        format!("{fields:?}")
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]
        #[test]
        fn plain_lines_are_read_as_by_the_parser_of_json(
            parts in prop::collection::vec(prop::sample::select(&PARTS[5..]), 0..7),
            extra in prop::option::of((any::<prop::sample::Index>(), prop::sample::select(&PARTS[..]))),
        ) {
            let mut line = format!("{{{}}}", parts.join(", "));
            if let Some((place, part)) = extra {
                let place = place.index(line.len());
                if line.is_char_boundary(place) {
                    line.insert_str(place, part);
                }
            }
            if let Some(plain) = read(&line) {
                let slow = serde_json::from_str::<Line<'_>>(&line).ok().and_then(|line| line.0);
                prop_assert_eq!(slow.as_ref().map(about), Some(about(&plain)), "{}", line);
            }
        }

        #[test]
        fn numbers_are_those_of_the_parser_of_json(seconds in 0.0..1e5f64, digits in 0usize..17) {
            let line = format!("{{\"audio_filepath\":\"a\",\"text\":\"x\",\"duration\":{seconds:.digits$},\"frames\":3}}");
            let slow = serde_json::from_str::<Line<'_>>(&line).unwrap().0.unwrap();
            prop_assert_eq!(about(&read(&line).unwrap()), about(&slow));
        }
    }
}
