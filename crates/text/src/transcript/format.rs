//! Names of the formats of a transcript.

use std::fmt;
use std::str::FromStr;

/// Format in which a transcript is written.
///
/// ```
/// use plimsoll_text::transcript::TranscriptFormat;
/// assert_eq!("srt".parse(), Ok(TranscriptFormat::Srt));
/// assert_eq!("str".parse::<TranscriptFormat>().unwrap_err().to_string(),
///     "there is no format `str`; the formats are text, json, srt, vtt, ctm, textgrid");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum TranscriptFormat {
    /// Plain text, one segment a line.
    #[default]
    Text,
    /// JSON with all times and confidences.
    Json,
    /// SubRip subtitles.
    Srt,
    /// WebVTT subtitles.
    Vtt,
    /// NIST's CTM, one word a line.
    Ctm,
    /// Praat's TextGrid, long format.
    TextGrid,
}

/// Error: a name is not the name of a format.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no format `{0}`; the formats are text, json, srt, vtt, ctm, textgrid")]
pub struct UnknownFormat(String);

impl TranscriptFormat {
    /// All formats.
    pub const ALL: [Self; 6] = [Self::Text, Self::Json, Self::Srt, Self::Vtt, Self::Ctm, Self::TextGrid];

    /// Returns the name of the format in lower case.
    pub fn name(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Json => "json",
            Self::Srt => "srt",
            Self::Vtt => "vtt",
            Self::Ctm => "ctm",
            Self::TextGrid => "textgrid",
        }
    }

    /// Returns whether a file in this format says when something was said.
    pub fn has_times(self) -> bool {
        self != Self::Text
    }

    /// Returns the usual extension of a file in this format.
    pub fn extension(self) -> &'static str {
        match self {
            Self::Text => "txt",
            Self::TextGrid => "TextGrid",
            other => other.name(),
        }
    }
}

impl FromStr for TranscriptFormat {
    type Err = UnknownFormat;

    fn from_str(name: &str) -> Result<Self, UnknownFormat> {
        Self::ALL.into_iter().find(|format| format.name() == name).ok_or_else(|| UnknownFormat(name.into()))
    }
}

impl fmt::Display for TranscriptFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
