//! Times in the texts of Whisper: which tokens may follow each other, and the segments that they divide a window into.

use super::config::RESERVED;

/// Seconds between two neighboring times.
const STEP: f64 = 0.02;

/// Rules of a text with times. A time begins the text and ends each segment; where one segment ends and the next begins, two
/// stand side by side. Times never go back.
#[derive(Clone, Copy, Debug)]
pub(super) struct TimeRules {
    /// First id of a time.
    pub(super) first: u32,
    /// Latest time with which a text may begin.
    pub(super) latest_first: u32,
    /// Id that ends a text.
    pub(super) end: u32,
}

impl TimeRules {
    /// Forbids in `scores`, the log-probabilities of the token after `said`, what may not follow. If all times together are likelier than
    /// each other token, a time follows.
    pub(super) fn apply(&self, said: &[u32], scores: &mut [f32]) {
        let all = scores.len();
        let row = |id: u32| (id as usize).saturating_sub(RESERVED).min(all);
        let (first, end) = (row(self.first), row(self.end));
        let is_time = |id: &u32| *id >= self.first;
        let is_after_time = said.last().is_some_and(is_time);
        let opens_segment = is_after_time && said.len().checked_sub(2).is_none_or(|place| is_time(&said[place]));
        if said.is_empty() {
            scores[..first].fill(f32::NEG_INFINITY);
            scores[row(self.latest_first.saturating_add(1))..].fill(f32::NEG_INFINITY);
        } else if opens_segment {
            scores[first..].fill(f32::NEG_INFINITY);
        } else if is_after_time {
            scores[..end].fill(f32::NEG_INFINITY);
        }
        if let Some(&latest) = said.iter().rfind(|id| is_time(id)) {
            // The next segment may begin where this one ends; a segment has a length.
            let ends_segment = is_after_time && !opens_segment;
            scores[first..row(latest + u32::from(!ends_segment))].fill(f32::NEG_INFINITY);
        }
        let (texts, times) = scores.split_at_mut(first);
        let likeliest = texts.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let most = times.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let sum: f32 = times.iter().map(|score| (score - most).exp()).sum();
        if most > f32::NEG_INFINITY && most + sum.ln() > likeliest {
            texts.fill(f32::NEG_INFINITY);
        }
    }
}

/// A part of a window, with its times in seconds after the start of the window.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct TimedPart {
    /// Tokens of the text, without times.
    pub(super) tokens: Vec<u32>,
    pub(super) start: f64,
    pub(super) end: f64,
}

/// Where the window after another one begins.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Next {
    /// After so many seconds of the window, where the last whole segment ends and another one was begun.
    At(f64),
    /// After the window: its last segment ends in it.
    Behind,
    /// It is not known: the model said no end.
    Unknown,
}

/// Divides what was said in a window of `seconds` at its times, the first of which has the id `first`. Also returns where the next window
/// begins. In the last window of a recording, what begins in the last `rest` seconds belongs to it.
pub(super) fn divide(said: &[u32], first: u32, seconds: f64, rest: f64) -> (Vec<TimedPart>, Next) {
    let is_time = |id: &u32| *id >= first;
    let time = |id: u32| (f64::from(id - first) * STEP).min(seconds);
    let part = |part: &[u32], [start, end]: [f64; 2]| TimedPart {
        tokens: part.iter().copied().filter(|id| !is_time(id)).collect(),
        start,
        end: end.max(start),
    };
    let ends_in_one = matches!(said, [.., before, last] if !is_time(before) && is_time(last));
    let pairs = (1..said.len()).filter(|&place| is_time(&said[place - 1]) && is_time(&said[place]));
    let mut ends: Vec<usize> = pairs.collect();
    if ends.is_empty() {
        let begin = said.first().copied().filter(is_time).map_or(0.0, time);
        let end = said.iter().copied().rfind(is_time).filter(|&last| last > first && time(last) > begin);
        let is_over = end.is_some() || said.iter().all(is_time);
        let next = if is_over { Next::Behind } else { Next::Unknown };
        return (vec![part(said, [begin, end.map_or(seconds, time)])], next);
    }
    ends.extend(ends_in_one.then_some(said.len()));
    let starts = std::iter::once(0).chain(ends.iter().copied());
    let parts = starts.zip(&ends).map(|(start, &end)| {
        let ids = &said[start..end];
        let times = [ids.first(), ids.last()].map(|id| id.copied().filter(is_time).map_or(0.0, time));
        part(ids, times)
    });
    let last = ends.last().map_or(0.0, |&end| said[end - 1].checked_sub(first).map_or(0.0, |_| time(said[end - 1])));
    let mut parts: Vec<TimedPart> = parts.filter(|part| !part.tokens.is_empty()).collect();
    if ends_in_one || last <= 0.0 {
        return (parts, Next::Behind);
    }
    if seconds - last > rest {
        return (parts, Next::At(last));
    }
    let tail = ends.last().map_or(&[][..], |&end| &said[end..]);
    parts.extend(Some(part(tail, [last, seconds])).filter(|part| !part.tokens.is_empty()));
    (parts, Next::Behind)
}

#[cfg(test)]
mod tests {
    use safetensors::SafeTensors;

    use super::*;

    /// Random beginnings of texts and random scores (`fixtures/whisper_times.py`).
    #[test]
    fn the_same_tokens_are_left_as_by_transformers() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/data/whisper_times.safetensors");
        let bytes = std::fs::read(path).unwrap();
        let file = SafeTensors::deserialize(&bytes).unwrap();
        let words = |name: &str| -> Vec<[u8; 4]> {
            file.tensor(name).unwrap().data().chunks_exact(4).map(|word| word.try_into().unwrap()).collect()
        };
        let [said, left] =
            ["said", "left"].map(|name| words(name).into_iter().map(i32::from_le_bytes).collect::<Vec<_>>());
        let scores: Vec<f32> = words("scores").into_iter().map(f32::from_le_bytes).collect();
        let id = |row: usize| (row + RESERVED) as u32;
        let (end, first, all, longest) = (20, 26, 60, 9);
        let rules = TimeRules { first: id(first), latest_first: id(first + 10), end: id(end) };
        for ((said, scores), left) in said.chunks(longest).zip(scores.chunks(all)).zip(left.chunks(all)) {
            let said: Vec<u32> = said.iter().filter(|row| **row >= 0).map(|&row| id(row as usize)).collect();
            let total: f32 = scores.iter().map(|score| score.exp()).sum();
            let mut found: Vec<f32> = scores.iter().map(|score| score - total.ln()).collect();
            rules.apply(&said, &mut found);
            // What is in no text is left out before.
            for row in (0..=end).chain(first..all) {
                assert_eq!(found[row].is_finite(), left[row] == 1, "row {row} after {said:?}");
            }
        }
    }

    /// First time of these tests.
    const FIRST: u32 = 100;

    fn parts(said: &[u32], seconds: f64) -> (Vec<(Vec<u32>, f64, f64)>, Next) {
        let (parts, next) = divide(said, FIRST, seconds, 0.0);
        (parts.into_iter().map(|part| (part.tokens, part.start, part.end)).collect(), next)
    }

    #[test]
    fn a_window_is_divided_where_two_times_meet() {
        // One segment to its own end: all is heard.
        assert_eq!(parts(&[100, 7, 8, 150], 30.0), (vec![(vec![7, 8], 0.0, 1.0)], Next::Behind));
        // Two whole ones, and the text is over.
        let whole = vec![(vec![7], 0.5, 1.0), (vec![8, 9], 1.5, 2.0)];
        assert_eq!(parts(&[125, 7, 150, 175, 8, 9, 200], 30.0), (whole, Next::Behind));
        // One that was begun is heard again, and so is what follows the last.
        let one = vec![(vec![7], 0.0, 1.0)];
        assert_eq!(parts(&[100, 7, 150, 150, 8, 9], 30.0), (one.clone(), Next::At(1.0)));
        assert_eq!(parts(&[100, 7, 150, 150], 30.0), (one, Next::At(1.0)));
    }

    #[test]
    fn what_begins_at_the_end_of_the_last_window_belongs_to_it() {
        let said = [100, 7, 150, 150, 8];
        let found = divide(&said, FIRST, 1.4, 0.5);
        let tail = TimedPart { tokens: vec![8], start: 1.0, end: 1.4 };
        assert_eq!((found.0.last(), found.1), (Some(&tail), Next::Behind));
        assert_eq!(divide(&said, FIRST, 1.6, 0.5).1, Next::At(1.0));
        // Nothing was said there.
        let (parts, next) = divide(&said[..4], FIRST, 1.4, 0.5);
        assert_eq!((parts.len(), next), (1, Next::Behind));
    }

    #[test]
    fn a_text_with_few_times_or_none_is_the_whole_window() {
        assert_eq!(parts(&[7, 8], 3.0), (vec![(vec![7, 8], 0.0, 3.0)], Next::Unknown));
        assert_eq!(parts(&[100, 7, 8], 3.0), (vec![(vec![7, 8], 0.0, 3.0)], Next::Unknown));
        assert_eq!(parts(&[150, 7, 8], 3.0), (vec![(vec![7, 8], 1.0, 3.0)], Next::Unknown));
        assert_eq!(parts(&[], 3.0), (vec![(vec![], 0.0, 3.0)], Next::Behind));
        // Nothing was said, or the times lie behind the end of the recording.
        assert_eq!(parts(&[100, 100], 3.0), (vec![], Next::Behind));
        assert_eq!(parts(&[150, 7, 1000], 3.0), (vec![(vec![7], 1.0, 3.0)], Next::Behind));
    }

    /// Every window ends with at least one step forward and within itself, whatever was said.
    #[test]
    fn windows_always_go_on() {
        let mut state = 1_u64;
        let mut draw = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        for _ in 0..5000 {
            let said: Vec<u32> = (0..draw(12)).map(|_| (95 + draw(30)) as u32).collect();
            let seconds = 0.1 + draw(8) as f64 / 10.0;
            let rest = draw(2) as f64 / 2.0;
            let (parts, next) = divide(&said, FIRST, seconds, rest);
            let is_forward = !matches!(next, Next::At(next) if next <= 0.0 || next > seconds);
            assert!(is_forward, "{said:?}: {next:?} of {seconds}");
            for part in parts {
                assert!(part.start <= part.end && part.end <= seconds, "{said:?}: {part:?}");
                assert!(part.tokens.iter().all(|&token| token < FIRST));
            }
        }
    }
}
