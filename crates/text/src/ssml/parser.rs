//! Parser of SSML, over the events of an XML reader that expands no entities of a document.

use quick_xml::escape::resolve_predefined_entity;
use quick_xml::events::{BytesRef, BytesStart, Event};
use quick_xml::{Reader, XmlVersion};

use super::prosody::{Prosody, strength, time};
use super::say_as::say_as;
use super::speech::Speech;
use crate::spoken::Language;

/// Longest document in bytes.
const MOST_BYTES: usize = 1 << 20;
/// Most tags inside each other.
const MOST_DEPTH: usize = 64;
/// Pause next to a paragraph, and next to a sentence.
const PARAGRAPH_SECONDS: f64 = 0.75;
const SENTENCE_SECONDS: f64 = 0.4;

/// Error in an SSML document.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SsmlError {
    /// The document is not well-formed XML.
    #[error("the SSML is not well-formed at byte {place}")]
    Xml {
        /// Byte at which the reader stopped.
        place: u64,
        /// Error of the reader.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A tag is still open at the end.
    #[error("the tag `{0}` is not closed")]
    NotClosed(String),
    /// The document defines a document type, which may define entities.
    #[error("the SSML has a document type (`<!DOCTYPE`), which is not accepted")]
    DocumentType,
    /// An entity is not one of XML's own.
    #[error("the entity `&{0};` is unknown; only &amp; &lt; &gt; &quot; &apos; and numbers are accepted")]
    UnknownEntity(String),
    /// The document is too long.
    #[error("the SSML has {bytes} bytes; at most {most} are accepted")]
    TooLong {
        /// Length of the document.
        bytes: usize,
        /// Largest accepted length.
        most: usize,
    },
    /// Too many tags are inside each other.
    #[error("more than {most} tags are inside each other")]
    TooDeep {
        /// Largest accepted number.
        most: usize,
    },
}

/// Parses SSML. A text that does not begin with the tag `speak`, or with an XML declaration, is plain text.
///
/// `language` is the language of `say-as`; without it only letters are spelled.
///
/// # Errors
/// When the document is not well-formed, defines entities, or is too long or too deep.
pub fn parse(text: &str, language: Option<Language>) -> Result<Speech, SsmlError> {
    let mut speech = Speech::default();
    let start = text.trim_start();
    let is_root = |rest: &str| rest.starts_with(|c: char| c.is_whitespace() || matches!(c, '>' | '/'));
    if !(start.strip_prefix("<speak").is_some_and(is_root) || start.starts_with("<?xml")) {
        speech.push_text(text, Prosody::USUAL);
        return Ok(speech);
    }
    if text.len() > MOST_BYTES {
        return Err(SsmlError::TooLong { bytes: text.len(), most: MOST_BYTES });
    }
    let mut parser = Parser { speech, language, open: Vec::new(), text: String::new(), is_separated: false };
    parser.read(start)?;
    Ok(parser.finished())
}

/// An open tag, and what it means for the text inside.
#[derive(Clone)]
struct Open {
    name: String,
    prosody: Prosody,
    /// Whether an alias is spoken instead of the text inside.
    is_silent: bool,
    /// How the text inside is read, and where it begins in the text that waits.
    say_as: Option<(String, usize)>,
}

struct Parser {
    speech: Speech,
    language: Option<Language>,
    open: Vec<Open>,
    /// Text that waits for the end of its span.
    text: String,
    /// Whether the last part is a pause between sentences, which does not end a speech.
    is_separated: bool,
}

impl Parser {
    fn read(&mut self, text: &str) -> Result<(), SsmlError> {
        let mut reader = Reader::from_str(text);
        loop {
            let event = reader.read_event();
            let place = reader.buffer_position();
            let wrong = |source: quick_xml::Error| SsmlError::Xml { place, source: Box::new(source) };
            match event.map_err(wrong)? {
                Event::Start(tag) => self.start(&tag, place)?,
                Event::Empty(tag) => {
                    self.start(&tag, place)?;
                    self.end();
                }
                Event::End(_) => self.end(),
                Event::Text(text) => self.push(&text),
                Event::CData(text) => self.push(&text),
                Event::GeneralRef(entity) => self.entity(&entity)?,
                Event::DocType(_) => return Err(SsmlError::DocumentType),
                Event::Comment(_) | Event::Decl(_) | Event::PI(_) => {}
                Event::Eof => break,
            }
        }
        match self.open.last() {
            Some(open) => Err(SsmlError::NotClosed(open.name.clone())),
            None => Ok(()),
        }
    }

    fn push(&mut self, text: &str) {
        if !self.open.last().is_some_and(|open| open.is_silent) {
            self.text.push_str(text);
        }
    }

    fn entity(&mut self, entity: &BytesRef<'_>) -> Result<(), SsmlError> {
        let name: &str = entity;
        let unknown = || SsmlError::UnknownEntity(name.to_owned());
        match entity.resolve_char_ref().map_err(|_| unknown())? {
            Some(character) => self.push(character.encode_utf8(&mut [0; 4])),
            None => self.push(resolve_predefined_entity(name).ok_or_else(unknown)?),
        }
        Ok(())
    }

    fn start(&mut self, tag: &BytesStart<'_>, place: u64) -> Result<(), SsmlError> {
        if self.open.len() >= MOST_DEPTH {
            return Err(SsmlError::TooDeep { most: MOST_DEPTH });
        }
        let mut attributes: Vec<(String, String)> = Vec::new();
        for attribute in tag.attributes() {
            let wrong = |source: Box<dyn std::error::Error + Send + Sync>| SsmlError::Xml { place, source };
            let attribute = attribute.map_err(|error| wrong(Box::new(error)))?;
            let value = attribute.normalized_value(XmlVersion::Explicit1_0).map_err(|error| wrong(Box::new(error)))?;
            attributes.push((attribute.key.local_name().as_ref().to_owned(), value.trim().to_owned()));
        }
        let name = tag.local_name().as_ref().to_owned();
        let (prosody, is_silent) =
            self.open.last().map_or((Prosody::USUAL, false), |open| (open.prosody, open.is_silent));
        let mut inner = Open { name, prosody, is_silent, say_as: None };
        if !is_silent {
            self.take_effect(&mut inner, &attributes);
        }
        self.open.push(inner);
        Ok(())
    }

    /// Does what a tag says, and changes the way in which its content is spoken.
    fn take_effect(&mut self, inner: &mut Open, attributes: &[(String, String)]) {
        let value = |name: &str| attributes.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str());
        match inner.name.as_str() {
            "speak" => {}
            "p" => self.separate(PARAGRAPH_SECONDS),
            "s" => self.separate(SENTENCE_SECONDS),
            "break" => self.pause(value("time"), value("strength")),
            "prosody" => {
                self.flush();
                for (key, value) in attributes {
                    match inner.prosody.with(key, value) {
                        Some(prosody) => inner.prosody = prosody,
                        None => self.speech.warn(format!("`{key}=\"{value}\"` of `prosody` is ignored")),
                    }
                }
            }
            "say-as" => match value("interpret-as") {
                Some(kind) => inner.say_as = Some((kind.to_owned(), self.text.len())),
                None => self.speech.warn("`say-as` without `interpret-as` is ignored".into()),
            },
            "sub" => match value("alias") {
                Some(alias) => {
                    self.text.push_str(alias);
                    inner.is_silent = true;
                }
                None => self.speech.warn("`sub` without `alias` is ignored".into()),
            },
            name => self.speech.warn(format!("the tag `{name}` is ignored")),
        }
    }

    fn end(&mut self) {
        let Some(open) = self.open.last() else { return };
        if let Some((kind, start)) = &open.say_as {
            // A break or prosody inside has used the text before it.
            let text = self.text.split_off((*start).min(self.text.len()));
            let read = say_as(kind, &text, self.language);
            if read.is_none() {
                self.speech
                    .warn(format!("`interpret-as=\"{kind}\"` is ignored: it is unknown, or not for this language"));
            }
            self.text.push_str(&read.unwrap_or(text));
        }
        match self.open.last().map_or("", |open| open.name.as_str()) {
            "prosody" => self.flush(),
            "p" => self.separate(PARAGRAPH_SECONDS),
            "s" => self.separate(SENTENCE_SECONDS),
            _ => {}
        }
        self.open.pop();
        if self.open.is_empty() {
            self.flush();
        }
    }

    /// Makes a span of the text that waits.
    fn flush(&mut self) {
        let prosody = self.open.last().map_or(Prosody::USUAL, |open| open.prosody);
        let text = std::mem::take(&mut self.text);
        self.is_separated &= !self.speech.push_text(&text, prosody);
    }

    fn separate(&mut self, seconds: f64) {
        self.flush();
        self.is_separated |= self.speech.separate(seconds);
    }

    fn pause(&mut self, length: Option<&str>, kind: Option<&str>) {
        self.flush();
        let seconds = match (length, kind) {
            (Some(length), _) => time(length),
            (None, Some(kind)) => strength(kind),
            (None, None) => strength("medium"),
        };
        match seconds {
            Some(seconds) => {
                self.speech.push_pause(seconds);
                self.is_separated &= seconds <= 0.0;
            }
            None => self.speech.warn(format!("the break `{}` is ignored", length.or(kind).unwrap_or_default())),
        }
    }

    fn finished(mut self) -> Speech {
        self.flush();
        if self.is_separated {
            self.speech.parts.pop();
        }
        self.speech
    }
}
