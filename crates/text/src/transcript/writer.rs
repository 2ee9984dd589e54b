//! Writes a transcript segment by segment, so that hours of speech need not be kept.

use super::cues::CueStream;
use super::subtitles::{VTT_HEADER, srt_cue, vtt_cue};
use super::{Segment, Transcript, TranscriptFormat};

/// Writes a transcript whose segments come one after the other, in order.
///
/// The parts together are what [`Transcript::write`] makes of all segments. Only a TextGrid is kept until the end, because its
/// head has the number of its intervals.
///
/// ```
/// use plimsoll_text::transcript::{Segment, TranscriptFormat, TranscriptWriter, Word};
///
/// let mut writer = TranscriptWriter::new(TranscriptFormat::Ctm, "a1", 2.0);
/// let mut text = writer.begin();
/// text += &writer.push(&Segment::new(vec![Word::new("good", 0.5, 0.8)]));
/// text += &writer.push(&Segment::new(vec![Word::new("day", 0.8, 1.25)]));
/// text += &writer.finish();
/// assert_eq!(text, "a1 1 0.500 0.300 good\na1 1 0.800 0.450 day\n");
/// ```
pub struct TranscriptWriter {
    format: TranscriptFormat,
    /// The transcript, with the segments of a TextGrid and without others.
    transcript: Transcript,
    cues: CueStream,
    written: usize,
}

impl TranscriptWriter {
    /// Begins the transcript of a recording of `seconds`.
    pub fn new(format: TranscriptFormat, recording: impl Into<String>, seconds: f64) -> Self {
        let transcript = Transcript { recording: recording.into(), seconds, ..Transcript::default() };
        Self { format, transcript, cues: CueStream::new(seconds), written: 0 }
    }

    /// Returns what stands before the first segment.
    pub fn begin(&self) -> String {
        match self.format {
            TranscriptFormat::Vtt => VTT_HEADER.into(),
            TranscriptFormat::Json => self.json_ends().0,
            _ => String::new(),
        }
    }

    /// Returns what can be written with one more segment.
    pub fn push(&mut self, segment: &Segment) -> String {
        let alone = || Transcript { segments: vec![segment.clone()], ..self.transcript.clone() };
        match self.format {
            TranscriptFormat::Text => alone().to_text(),
            TranscriptFormat::Ctm => alone().to_ctm("1"),
            TranscriptFormat::Json => {
                let text = json_segment(&alone().to_json());
                self.written += 1;
                if self.written == 1 { text } else { format!(",{text}") }
            }
            TranscriptFormat::Srt => {
                let number = |cue| {
                    self.written += 1;
                    srt_cue(self.written, &cue)
                };
                self.cues.push(segment).into_iter().map(number).collect()
            }
            TranscriptFormat::Vtt => self.cues.push(segment).iter().map(vtt_cue).collect(),
            TranscriptFormat::TextGrid => {
                self.transcript.segments.push(segment.clone());
                String::new()
            }
        }
    }

    /// Returns what stands after the last segment.
    pub fn finish(mut self) -> String {
        match self.format {
            TranscriptFormat::Text | TranscriptFormat::Ctm => String::new(),
            TranscriptFormat::Json if self.written == 0 => self.transcript.to_json()[self.json_ends().0.len()..].into(),
            TranscriptFormat::Json => self.json_ends().1,
            TranscriptFormat::Srt => self.cues.finish().map_or_else(String::new, |cue| srt_cue(self.written + 1, &cue)),
            TranscriptFormat::Vtt => self.cues.finish().map_or_else(String::new, |cue| vtt_cue(&cue)),
            TranscriptFormat::TextGrid => self.transcript.to_textgrid(),
        }
    }

    /// Returns what stands before and after the segments in JSON.
    fn json_ends(&self) -> (String, String) {
        let whole = self.transcript.to_json();
        // The list of segments is last: `"segments": []`.
        let (before, _) = whole.rsplit_once(']').unwrap_or((&whole, ""));
        (before.to_owned(), "\n  ]\n}\n".into())
    }
}

/// Returns the segment in the JSON of a transcript with one segment, with the line break and the spaces before it.
fn json_segment(json: &str) -> String {
    let (_, from) = json.split_once("\"segments\": [").unwrap_or(("", json));
    from.rsplit_once("\n  ]").map_or(from, |(segment, _)| segment).to_owned()
}
