//! Cuts utterances that are too long for a model, and recordings that are too long for one pass.

use plimsoll_core::Seconds;

use crate::utterance::Utterance;
use plimsoll_audio::{AudioError, AudioSegment, read_audio_segment};

/// Policy for utterances that are longer than the limit.
///
/// The words before a cut are not known, so the text is divided in proportion to the sound on each side, with an error
/// of a word or two. A recognizer with attention can learn from such texts, and a few of them harm no recognizer. A
/// corpus of mostly long utterances should be aligned instead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LengthPolicy {
    /// Leave the long utterance out. The default.
    #[default]
    Refuse,
    /// Cut the long utterance in its quietest places. Reads the audio.
    Split,
    /// Cut the long utterance into equal parts.
    Chunk,
    /// Keep the beginning of the long utterance, and drop the rest with its share of the text.
    Truncate,
}

/// Length of the quiet place for a cut: shorter than the pause between two words, longer than the closure of a
/// consonant.
const PAUSE: Seconds = Seconds(0.1);

/// Sample rate for finding quiet places, in Hz. Low, because loudness does not depend on the rate.
const RATE: u32 = 8_000;

/// Power up to which a tenth of a second counts as silent, as a share of the power of the loudest tenth of a second in
/// the utterance: 40 dB below it.
const SILENT_POWER: f32 = 1e-4;

impl LengthPolicy {
    /// Divides `utterance` into parts not longer than `longest`: no parts for [`Refuse`](Self::Refuse), the utterance
    /// itself where it is short enough.
    ///
    /// The ids of parts are the id of the utterance with `#1`, `#2` and so on.
    ///
    /// # Errors
    /// When the audio cannot be read, which only [`Split`](Self::Split) does.
    pub fn apply(self, utterance: &Utterance, longest: Seconds) -> Result<Vec<Utterance>, AudioError> {
        let parts = (utterance.duration.0 / longest.0.max(f64::MIN_POSITIVE)).ceil();
        if utterance.duration <= longest {
            return Ok(vec![utterance.clone()]);
        }
        match self {
            Self::Refuse => Ok(Vec::new()),
            Self::Truncate => {
                let share = longest.0 / utterance.duration.0;
                let text = split_text(&utterance.text, &[share]).swap_remove(0);
                Ok(vec![Utterance { duration: longest, text, ..utterance.clone() }])
            }
            Self::Chunk => {
                let ends: Vec<f64> = (1..=parts as usize).map(|part| part as f64 / parts).collect();
                Ok(parts_of(utterance, &ends, &ends))
            }
            Self::Split => {
                let stretch = AudioSegment { offset: utterance.offset, duration: Some(utterance.duration) };
                let samples = read_audio_segment(&utterance.audio, stretch, RATE)?.samples;
                let cuts = cuts_at_silence(&samples, RATE, longest);
                let length = samples.len().max(1) as f64;
                let ends: Vec<f64> = cuts.iter().map(|&cut| cut as f64 / length).collect();
                Ok(parts_of(utterance, &ends, &sound_shares(&samples, &cuts)))
            }
        }
    }
}

/// Cuts an utterance into parts. `ends` holds the end of the audio of each part and `texts` the end of its text, as
/// shares of the whole from 0 to 1.
fn parts_of(utterance: &Utterance, ends: &[f64], texts: &[f64]) -> Vec<Utterance> {
    let Utterance { id, offset, duration, .. } = utterance;
    let mut start = 0.0;
    let texts = split_text(&utterance.text, texts);
    let part = |((part_idx, &end), text): ((usize, &f64), String)| {
        let from = std::mem::replace(&mut start, end);
        Utterance {
            id: format!("{id}#{}", part_idx + 1),
            offset: Seconds(offset.0 + from * duration.0),
            duration: Seconds((end - from) * duration.0),
            text,
            ..utterance.clone()
        }
    };
    ends.iter().enumerate().zip(texts).map(part).collect()
}

/// Computes for each of `cuts`, which are indices into `samples`, the share of the non-silent tenths of a second that
/// lies before the cut; 1 for a cut at the end of `samples`.
fn sound_shares(samples: &[f32], cuts: &[usize]) -> Vec<f64> {
    let window = (PAUSE.0 * f64::from(RATE)) as usize;
    let power: Vec<f32> = samples.chunks(window).map(|part| part.iter().map(|x| x * x).sum()).collect();
    let loudest = power.iter().fold(0f32, |most, &value| most.max(value));
    let sounding =
        |end: usize| power[..end.div_ceil(window)].iter().filter(|&&value| value > loudest * SILENT_POWER).count();
    let all = sounding(samples.len()).max(1) as f64;
    cuts.iter().map(|&cut| if cut == samples.len() { 1.0 } else { sounding(cut) as f64 / all }).collect()
}

/// Cuts `text` into one part for each of `shares`: the end of the part, as a share of the characters of `text`. Cuts
/// lie between words where the text has spaces.
fn split_text(text: &str, shares: &[f64]) -> Vec<String> {
    let characters: Vec<(usize, char)> = text.char_indices().collect();
    let spaces: Vec<usize> = (0..characters.len()).filter(|&idx| characters[idx].1.is_whitespace()).collect();
    let nearest = |share: f64| -> usize {
        let wanted = (share * characters.len() as f64).round() as usize;
        let between = spaces.iter().copied().chain([0, characters.len()]).min_by_key(|idx| idx.abs_diff(wanted));
        // A text without spaces is cut between any two characters.
        if spaces.is_empty() { wanted.min(characters.len()) } else { between.unwrap_or(characters.len()) }
    };
    let byte = |idx: usize| characters.get(idx).map_or(text.len(), |character| character.0);
    let mut start = 0;
    let cut = |&share: &f64| {
        let end = byte(nearest(share)).max(start);
        text[std::mem::replace(&mut start, end)..end].trim().to_owned()
    };
    shares.iter().map(cut).collect()
}

/// Finds the ends of parts of `samples` not longer than `longest`, as indices; the last index is the end of the
/// samples.
///
/// Each part ends in the middle of the quietest tenth of a second in the second half of the longest possible part.
pub fn cuts_at_silence(samples: &[f32], rate: u32, longest: Seconds) -> Vec<usize> {
    let count = |time: Seconds| ((time.0 * f64::from(rate)) as usize).max(1);
    let (max, mut ends, mut start) = (count(longest), Vec::new(), 0);
    while samples.len() - start > max {
        start += quietest(&samples[start..start + max], count(PAUSE).min(max));
        ends.push(start);
    }
    ends.push(samples.len());
    ends
}

/// Finds the index of the middle of the quietest `pause` samples in the second half of `samples`.
fn quietest(samples: &[f32], pause: usize) -> usize {
    let loudness = |start: usize| samples[start..start + pause].iter().map(|x| x * x).sum::<f32>();
    let starts = (samples.len() / 2..=samples.len() - pause).step_by(pause.div_ceil(4));
    let quietest = starts.map(|start| (loudness(start), start)).min_by(|a, b| a.0.total_cmp(&b.0));
    quietest.map_or(samples.len(), |(_, start)| (start + pause.div_ceil(2)).max(1))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tempfile::TempDir;

    use super::*;
    use crate::testing::{tone, write_wav};

    /// Writes an utterance `a` of sixty seconds with a pause from the 21st second to the 22nd and a pause in the 45th.
    fn long(folder: &TempDir, text: &str) -> Utterance {
        let mut samples = tone(300.0, 60.0, RATE);
        for pause in [21.0..22.0, 44.5..44.8] {
            let place = |seconds: f64| (seconds * f64::from(RATE)) as usize;
            samples[place(pause.start)..place(pause.end)].fill(0.0);
        }
        let audio = folder.path().join("a.wav");
        write_wav(&audio, &samples, RATE);
        let (id, text) = ("a".into(), text.into());
        Utterance { id, audio, offset: Seconds(0.0), duration: Seconds(60.0), text, speaker: None, language: None }
    }

    fn described(parts: &[Utterance]) -> Vec<String> {
        let describe =
            |part: &Utterance| format!("{} {:.1}+{:.1} {}", part.id, part.offset.0, part.duration.0, part.text);
        parts.iter().map(describe).collect()
    }

    #[test]
    fn each_policy_cuts_audio_and_text() {
        let folder = TempDir::new().unwrap();
        let utterance = long(&folder, "one two three four five six seven eight");
        let cut = |policy: LengthPolicy, longest: f64| described(&policy.apply(&utterance, Seconds(longest)).unwrap());
        assert!(cut(LengthPolicy::Refuse, 30.0).is_empty());
        assert_eq!(cut(LengthPolicy::Truncate, 30.0), ["a 0.0+30.0 one two three four"]);
        assert_eq!(
            cut(LengthPolicy::Chunk, 25.0),
            ["a#1 0.0+20.0 one two three", "a#2 20.0+20.0 four five six", "a#3 40.0+20.0 seven eight"]
        );
        let split = LengthPolicy::Split.apply(&utterance, Seconds(30.0)).unwrap();
        assert_eq!(split.len(), 3, "{split:?}");
        assert!((21.0..22.0).contains(&split[0].duration.0) && (44.5..44.8).contains(&split[2].offset.0), "{split:?}");
        let text: Vec<&str> = split.iter().map(|part| part.text.as_str()).collect();
        assert_eq!(text.join(" "), utterance.text);
        assert_eq!(cut(LengthPolicy::Refuse, 60.0).len(), 1);
    }

    #[test]
    fn texts_without_spaces_are_split_too() {
        assert_eq!(split_text("二つの長い文", &[0.5, 1.0]), ["二つの", "長い文"]);
        assert_eq!(split_text("नमस्ते दुनिया", &[0.4, 1.0]), ["नमस्ते", "दुनिया"]);
        assert_eq!(split_text("", &[0.5, 1.0]), ["", ""]);
    }

    #[test]
    fn recordings_are_cut_in_their_pauses() {
        let mut samples: Vec<f32> = (0..50_000).map(|i| if i % 2 == 0 { 0.5 } else { -0.5 }).collect();
        samples[21_000..21_300].fill(0.0);
        let cuts = cuts_at_silence(&samples, 1_000, Seconds(30.0));
        assert!(cuts.len() == 2 && (21_000..21_300).contains(&cuts[0]) && cuts[1] == 50_000, "{cuts:?}");
        for seconds in [0, 1, 30] {
            assert_eq!(cuts_at_silence(&samples[..seconds * 1_000], 1_000, Seconds(30.0)), [seconds * 1_000]);
        }
    }

    proptest! {
        #[test]
        fn parts_are_short_and_together_complete(
            words in prop::collection::vec("[a-zà-ü]{1,8}", 0..40), seconds in 1.0..600.0f64, longest in 1.0..40.0f64,
        ) {
            let utterance = Utterance {
                id: "x".into(), audio: "x.wav".into(), offset: Seconds(3.0), duration: Seconds(seconds),
                text: words.join(" "), speaker: None, language: None,
            };
            let parts = LengthPolicy::Chunk.apply(&utterance, Seconds(longest)).unwrap();
            let total: f64 = parts.iter().map(|part| part.duration.0).sum();
            prop_assert!((total - seconds).abs() < 1e-6);
            prop_assert!(parts.iter().all(|part| part.duration.0 <= longest + 1e-9));
            let without_spaces = |text: &str| text.split_whitespace().collect::<String>();
            let texts: Vec<&str> = parts.iter().map(|part| part.text.as_str()).collect();
            prop_assert_eq!(without_spaces(&texts.concat()), without_spaces(&utterance.text));
        }

        #[test]
        fn cuts_are_in_order_and_parts_short(samples in prop::collection::vec(-1.0f32..1.0, 0..3_000), longest in 0.001..2.0f64) {
            let cuts = cuts_at_silence(&samples, 1_000, Seconds(longest));
            prop_assert!(cuts.is_sorted() && *cuts.last().unwrap() == samples.len());
            let most = ((longest * 1_000.0) as usize).max(1);
            prop_assert!([0].iter().chain(&cuts).zip(&cuts).all(|(from, to)| to - from <= most));
        }
    }
}
