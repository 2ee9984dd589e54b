//! Praat's TextGrid in the long format.

use super::span::{Milliseconds, printable};
use super::{Segment, Transcript, Word};

type Interval = (Milliseconds, String);

/// Writes the tiers of each speaker. The intervals of a tier cover the whole time without gaps.
pub(super) fn write(transcript: &Transcript) -> String {
    let mut speakers: Vec<Option<&str>> = Vec::new();
    for segment in &transcript.segments {
        if !speakers.contains(&segment.speaker.as_deref()) {
            speakers.push(segment.speaker.as_deref());
        }
    }
    if speakers.is_empty() {
        speakers.push(None);
    }
    let mut tiers: Vec<(String, Vec<Interval>)> = Vec::new();
    for speaker in speakers {
        let of_speaker = |segment: &&Segment| segment.speaker.as_deref() == speaker;
        let mut segments: Vec<&Segment> = transcript.segments.iter().filter(of_speaker).collect();
        segments.sort_by(|a, b| a.start.total_cmp(&b.start));
        let name = |tier: &str| speaker.map_or_else(|| tier.to_owned(), |speaker| format!("{tier} - {speaker}"));
        let words: Vec<Word> = segments.iter().flat_map(|segment| segment.timed_words()).collect();
        let characters: Vec<Interval> = words.iter().flat_map(characters).collect();
        let segments = segments.iter().map(|s| (Milliseconds::new(s.start, s.end), s.text.clone())).collect();
        let words = words.into_iter().map(|w| (Milliseconds::new(w.start, w.end), w.text)).collect();
        tiers.push((name("segments"), ordered(segments)));
        tiers.push((name("words"), ordered(words)));
        if !characters.is_empty() {
            tiers.push((name("characters"), ordered(characters)));
        }
    }
    let ends = tiers.iter().flat_map(|(_, intervals)| intervals.last()).map(|(span, _)| span.end);
    let end = ends.chain([Milliseconds::new(0.0, transcript.seconds).end]).max().unwrap_or(1);
    print(&tiers, end)
}

fn characters(word: &Word) -> impl Iterator<Item = Interval> {
    word.characters.iter().map(|c| (Milliseconds::new(c.start, c.end), c.text.to_string()))
}

/// Moves intervals so that none begins before the end of the one before it.
fn ordered(mut intervals: Vec<Interval>) -> Vec<Interval> {
    let mut last = 0;
    for (span, _) in &mut intervals {
        *span = span.after(last);
        last = span.end;
    }
    intervals
}

fn print(tiers: &[(String, Vec<Interval>)], end: u64) -> String {
    let end_text = seconds(end);
    let mut output = format!(
        "File type = \"ooTextFile\"\nObject class = \"TextGrid\"\n\nxmin = 0 \nxmax = {end_text} \ntiers? <exists> \nsize = {} \nitem []: \n",
        tiers.len()
    );
    for (place, (name, intervals)) in tiers.iter().enumerate() {
        let intervals = without_gaps(intervals, end);
        output += &format!(
            "    item [{}]:\n        class = \"IntervalTier\" \n        name = \"{}\" \n        xmin = 0 \n        xmax = {end_text} \n        intervals: size = {} \n",
            place + 1,
            quoted(name),
            intervals.len()
        );
        for (place, (span, text)) in intervals.iter().enumerate() {
            output += &format!(
                "        intervals [{}]:\n            xmin = {} \n            xmax = {} \n            text = \"{}\" \n",
                place + 1,
                seconds(span.start),
                seconds(span.end),
                quoted(text)
            );
        }
    }
    output
}

/// Fills gaps with intervals without text, up to `end`.
fn without_gaps(intervals: &[Interval], end: u64) -> Vec<Interval> {
    let mut filled: Vec<Interval> = Vec::new();
    let mut last = 0;
    let mut silence = |filled: &mut Vec<Interval>, until: u64, next: u64| {
        if until > last {
            filled.push((Milliseconds { start: last, end: until }, String::new()));
        }
        last = next;
    };
    for (span, text) in intervals {
        silence(&mut filled, span.start, span.end);
        filled.push((*span, text.clone()));
    }
    silence(&mut filled, end, end);
    filled
}

fn seconds(milliseconds: u64) -> String {
    (milliseconds as f64 / 1000.0).to_string()
}

/// Doubles quotation marks, as Praat does, and removes line breaks.
fn quoted(text: &str) -> String {
    let text: Vec<String> = text.split_whitespace().map(printable).collect();
    text.join(" ").replace('"', "\"\"")
}
