//! NIST's CTM.

use super::{Segment, Transcript};

/// Writes one line a word, in order of their starts.
pub(super) fn ctm(transcript: &Transcript, channel: &str) -> String {
    let (recording, channel) = (name(&transcript.recording), name(channel));
    let mut words: Vec<_> = transcript.segments.iter().flat_map(Segment::timed_words).collect();
    words.sort_by(|a, b| a.start.total_cmp(&b.start));
    let mut output = String::new();
    for word in words {
        let (start, duration) = (word.start, word.end - word.start);
        let text = word.text.split_whitespace().collect::<Vec<_>>().join("_");
        output += &format!("{recording} {channel} {start:.3} {duration:.3} {text}");
        if let Some(confidence) = word.confidence.filter(|confidence| confidence.is_finite()) {
            output += &format!(" {confidence:.4}");
        }
        output.push('\n');
    }
    output
}

/// Makes one field of a text: without white space, not empty, and not the start of a comment.
fn name(text: &str) -> String {
    let text = text.split(|c: char| c.is_whitespace() || c.is_control()).collect::<Vec<_>>().join("_");
    if text.is_empty() || text.starts_with(";;") { format!("_{text}") } else { text }
}
