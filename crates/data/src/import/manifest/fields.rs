//! Fields of a line of a manifest that is written as usual, without a copy of its texts.

use std::borrow::Cow;
use std::fmt;

use plimsoll_core::Seconds;
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::Value;

use super::{AUDIO, TEXT};
use crate::import::builder::MAX_SECONDS;

mod plain;

/// Fields of one line. `read` gives them only where a slower reader, which knows all spellings, would read the same.
#[derive(Debug, Default)]
pub(super) struct Fields<'a> {
    pub(super) id: Option<Cow<'a, str>>,
    pub(super) audio: Cow<'a, str>,
    pub(super) text: Cow<'a, str>,
    pub(super) speaker: Option<Cow<'a, str>>,
    pub(super) language: Option<Cow<'a, str>>,
    pub(super) times: Times,
}

/// Start and duration of an utterance.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Times {
    pub(super) offset: Seconds,
    pub(super) duration: Option<Seconds>,
}

impl<'a> Fields<'a> {
    /// Reads a line; `None` for a line that is written in another way, or is faulty.
    pub(super) fn read(line: &'a str) -> Option<Self> {
        plain::read(line).or_else(|| serde_json::from_str::<Line<'a>>(line).ok()?.0)
    }
}

struct Line<'a>(Option<Fields<'a>>);

/// Key of a line.
enum Key {
    Id,
    Audio,
    Text,
    Speaker,
    Language,
    Offset,
    Duration,
    /// Another name of one of these, of which one must be chosen, or the channel.
    Synonym,
    Unknown,
}

/// Keys that the slower reader knows, beside those that are read here.
const SYNONYMS: [&str; 5] = ["speaker_id", "language", "locale", "channel", "channel_selector"];

struct Borrowed<'a>(Cow<'a, str>);

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Borrowed(name) = Borrowed::deserialize(deserializer)?;
        Ok(match &*name {
            "id" => Self::Id,
            "audio_filepath" => Self::Audio,
            "text" => Self::Text,
            "speaker" => Self::Speaker,
            "lang" => Self::Language,
            "offset" => Self::Offset,
            "duration" => Self::Duration,
            name if AUDIO.contains(&name) || TEXT.contains(&name) || SYNONYMS.contains(&name) => Self::Synonym,
            _ => Self::Unknown,
        })
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Borrowed<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;
        impl<'de> Visitor<'de> for Text {
            type Value = Borrowed<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text")
            }

            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(Borrowed(Cow::Borrowed(text)))
            }

            fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
                Ok(Borrowed(Cow::Owned(text.to_owned())))
            }
        }
        deserializer.deserialize_str(Text)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Line<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object;
        impl<'de> Visitor<'de> for Object {
            type Value = Line<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<M: MapAccess<'de>>(self, map: M) -> Result<Self::Value, M::Error> {
                fields(map).map(Line)
            }
        }
        deserializer.deserialize_map(Object)
    }
}

/// Reads an object. A value of another type than usual is an error, as is a faulty line; `None` for an unusual key.
fn fields<'de, M: MapAccess<'de>>(mut map: M) -> Result<Option<Fields<'de>>, M::Error> {
    let (mut id, mut audio, mut text, mut speaker, mut language) = (None, None, None, None, None);
    let (mut offset, mut duration) = (None, None);
    let mut is_usual = true;
    while let Some(key) = map.next_key::<Key>()? {
        let place = match key {
            Key::Id => &mut id,
            Key::Audio => &mut audio,
            Key::Text => &mut text,
            Key::Speaker => &mut speaker,
            Key::Language => &mut language,
            Key::Offset | Key::Duration => {
                let place = if matches!(key, Key::Offset) { &mut offset } else { &mut duration };
                // Of equal keys, the last counts; the slower reader knows.
                is_usual &= place.replace(map.next_value::<f64>()?).is_none();
                continue;
            }
            Key::Synonym => {
                is_usual = false;
                map.next_value::<IgnoredAny>()?;
                continue;
            }
            Key::Unknown => {
                // Read as a value, so that the same lines are faulty.
                map.next_value::<Value>()?;
                continue;
            }
        };
        is_usual &= place.replace(map.next_value::<Borrowed<'de>>()?.0).is_none();
    }
    let (Some(audio), Some(text), Some(times)) = (audio, text, Times::new(offset, duration)) else { return Ok(None) };
    Ok(is_usual.then_some(Fields { id, audio, text, speaker, language, times }))
}

impl Times {
    /// Returns `None` for a number that is no time.
    fn new(offset: Option<f64>, duration: Option<f64>) -> Option<Self> {
        let is_time = |time: &Option<f64>| time.is_none_or(|time| (0.0..=MAX_SECONDS).contains(&time));
        let times = Self { offset: Seconds(offset.unwrap_or_default()), duration: duration.map(Seconds) };
        (is_time(&offset) && is_time(&duration)).then_some(times)
    }
}
