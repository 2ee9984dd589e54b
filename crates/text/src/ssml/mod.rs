//! Texts for speech synthesis with SSML's common tags.
//!
//! | tag | effect |
//! |---|---|
//! | `<speak>` | the root; a text without it is plain text |
//! | `<break time="500ms"/>`, `<break strength="strong"/>` | a pause; `none`, `x-weak`, `weak`, `medium`, `strong`, `x-strong` last 0, 0.1, 0.25, 0.5, 1 and 1.5 seconds |
//! | `<prosody rate="120%" pitch="+2st" volume="-6dB">` | factors of the rate, semitones, decibels; nested tags add up |
//! | `<say-as interpret-as="characters">` | also `spell-out`, `cardinal`, `number`, `ordinal`, `date` and `currency`, if a language is given |
//! | `<p>`, `<s>` | a paragraph and a sentence: a pause of 0.75 and 0.4 seconds to what is next to it |
//! | `<sub alias="...">` | the alias is spoken instead of the content |
//!
//! Other tags have no effect on their content; each is named in a warning, as is each value that is not understood.
//!
//! ```
//! use plimsoll_text::Language;
//! use plimsoll_text::ssml::{Part, parse};
//!
//! let text = r#"<speak>Wait <break time="500ms"/> <prosody rate="slow">for <say-as interpret-as="ordinal">3</say-as></prosody></speak>"#;
//! let speech = parse(text, Some(Language::English))?;
//! let Part::Span(last) = &speech.parts[2] else { panic!() };
//! assert_eq!((last.text.as_str(), last.rate), ("for third", 0.75));
//! assert_eq!(speech.parts[1], Part::Pause { seconds: 0.5 });
//! assert_eq!(parse("1 < 2 & 3", None)?.text(), "1 < 2 & 3");
//! # Ok::<(), plimsoll_text::ssml::SsmlError>(())
//! ```

mod parser;
mod prosody;
mod say_as;
mod speech;
#[cfg(test)]
mod tests;

pub use parser::{SsmlError, parse};
pub use speech::{Part, Span, Speech};
