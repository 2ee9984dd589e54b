//! Utterances that are too long to be learned at once, and recordings that are too long to be heard at once.

use plimsoll_core::Seconds;

use crate::utterance::Utterance;
use plimsoll_audio::{AudioError, Stretch, read_audio_stretch};

/// What becomes of an utterance that is longer than a model can take.
///
/// Where one is cut, nobody knows which words were said before: they are divided by how long there is sound, which is right
/// to a word or two. A recogniser with attention learns from that, and from a few of them any does; a corpus that is long
/// throughout should be aligned instead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TooLong {
    /// It is left out.
    #[default]
    Refuse,
    /// It is cut where it is quiet.
    Split,
    /// It is cut into equal parts.
    Chunk,
    /// What is too much is cut off.
    Truncate,
}

/// How long it must be quiet: shorter than the pause between two words, longer than a closed consonant.
const PAUSE: Seconds = Seconds(0.1);

/// Samples a second at which silence is looked for: what is quiet is so at any rate.
const RATE: u32 = 8_000;

/// Sound this far below the loudest tenth of a second counts as none, 40 dB.
const SOUNDING: f32 = 1e-4;

impl TooLong {
    /// `utterance` in parts no longer than `longest`; nothing where it is to be left out. One that is short enough is its
    /// own part.
    ///
    /// Parts are called as the utterance, with `#1`, `#2` and so on. Audio is read for [`TooLong::Split`] alone.
    pub fn fit(self, utterance: &Utterance, longest: Seconds) -> Result<Vec<Utterance>, AudioError> {
        let parts = (utterance.duration.0 / longest.0.max(f64::MIN_POSITIVE)).ceil();
        if utterance.duration <= longest {
            return Ok(vec![utterance.clone()]);
        }
        match self {
            Self::Refuse => Ok(Vec::new()),
            Self::Truncate => {
                let share = longest.0 / utterance.duration.0;
                let text = divided(&utterance.text, &[share]).swap_remove(0);
                Ok(vec![Utterance { duration: longest, text, ..utterance.clone() }])
            }
            Self::Chunk => {
                let ends: Vec<f64> = (1..=parts as usize).map(|part| part as f64 / parts).collect();
                Ok(pieces(utterance, &ends, &ends))
            }
            Self::Split => {
                let stretch = Stretch { offset: utterance.offset, duration: Some(utterance.duration) };
                let samples = read_audio_stretch(&utterance.audio, stretch, RATE)?.samples;
                let places = cuts_at_silence(&samples, RATE, longest);
                let length = samples.len().max(1) as f64;
                let ends: Vec<f64> = places.iter().map(|&place| place as f64 / length).collect();
                Ok(pieces(utterance, &ends, &sounding(&samples, &places)))
            }
        }
    }
}

/// The parts of an utterance that end at `ends`, shares of its length, and have its text up to `texts`, shares of that.
fn pieces(utterance: &Utterance, ends: &[f64], texts: &[f64]) -> Vec<Utterance> {
    let Utterance { id, offset, duration, .. } = utterance;
    let mut start = 0.0;
    let texts = divided(&utterance.text, texts);
    let piece = |((place, &end), text): ((usize, &f64), String)| {
        let from = std::mem::replace(&mut start, end);
        Utterance {
            id: format!("{id}#{}", place + 1),
            offset: Seconds(offset.0 + from * duration.0),
            duration: Seconds((end - from) * duration.0),
            text,
            ..utterance.clone()
        }
    };
    ends.iter().enumerate().zip(texts).map(piece).collect()
}

/// How much of all sound has been heard at each of `places`, as shares; the last is all of it.
fn sounding(samples: &[f32], places: &[usize]) -> Vec<f64> {
    let window = (PAUSE.0 * f64::from(RATE)) as usize;
    let power: Vec<f32> = samples.chunks(window).map(|part| part.iter().map(|x| x * x).sum()).collect();
    let loudest = power.iter().fold(0f32, |most, &value| most.max(value));
    let heard = |end: usize| power[..end.div_ceil(window)].iter().filter(|&&value| value > loudest * SOUNDING).count();
    let all = heard(samples.len()).max(1) as f64;
    places.iter().map(|&place| if place == samples.len() { 1.0 } else { heard(place) as f64 / all }).collect()
}

/// `text` cut at shares of its letters, between words where it has any.
fn divided(text: &str, shares: &[f64]) -> Vec<String> {
    let letters: Vec<(usize, char)> = text.char_indices().collect();
    let spaces: Vec<usize> = (0..letters.len()).filter(|&place| letters[place].1.is_whitespace()).collect();
    let nearest = |share: f64| -> usize {
        let wanted = (share * letters.len() as f64).round() as usize;
        let between = spaces.iter().copied().chain([0, letters.len()]).min_by_key(|place| place.abs_diff(wanted));
        // A script without spaces is cut between any two letters.
        if spaces.is_empty() { wanted.min(letters.len()) } else { between.unwrap_or(letters.len()) }
    };
    let byte = |place: usize| letters.get(place).map_or(text.len(), |letter| letter.0);
    let mut start = 0;
    let cut = |&share: &f64| {
        let end = byte(nearest(share)).max(start);
        text[std::mem::replace(&mut start, end)..end].trim().to_owned()
    };
    shares.iter().map(cut).collect()
}

/// Where `samples` are cut into stretches no longer than `longest`, each in the middle of the quietest tenth of a second of its
/// second half; the last place is their end.
pub fn cuts_at_silence(samples: &[f32], rate: u32, longest: Seconds) -> Vec<usize> {
    let count = |time: Seconds| ((time.0 * f64::from(rate)) as usize).max(1);
    let (most, mut places, mut start) = (count(longest), Vec::new(), 0);
    while samples.len() - start > most {
        start += quietest(&samples[start..start + most], count(PAUSE).min(most));
        places.push(start);
    }
    places.push(samples.len());
    places
}

/// The middle of the quietest `pause` samples in the second half of `samples`.
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

    /// Sixty seconds with a pause from the 21st second to the 22nd and one in the 45th, called `a`.
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

    fn told(parts: &[Utterance]) -> Vec<String> {
        let told = |part: &Utterance| format!("{} {:.1}+{:.1} {}", part.id, part.offset.0, part.duration.0, part.text);
        parts.iter().map(told).collect()
    }

    #[test]
    fn each_policy_does_what_it_says() {
        let folder = TempDir::new().unwrap();
        let utterance = long(&folder, "one two three four five six seven eight");
        let fit = |policy: TooLong, longest: f64| told(&policy.fit(&utterance, Seconds(longest)).unwrap());
        assert!(fit(TooLong::Refuse, 30.0).is_empty());
        assert_eq!(fit(TooLong::Truncate, 30.0), ["a 0.0+30.0 one two three four"]);
        assert_eq!(
            fit(TooLong::Chunk, 25.0),
            ["a#1 0.0+20.0 one two three", "a#2 20.0+20.0 four five six", "a#3 40.0+20.0 seven eight"]
        );
        let split = TooLong::Split.fit(&utterance, Seconds(30.0)).unwrap();
        assert_eq!(split.len(), 3, "{split:?}");
        assert!((21.0..22.0).contains(&split[0].duration.0) && (44.5..44.8).contains(&split[2].offset.0), "{split:?}");
        let text: Vec<&str> = split.iter().map(|part| part.text.as_str()).collect();
        assert_eq!(text.join(" "), utterance.text);
        assert_eq!(fit(TooLong::Refuse, 60.0).len(), 1);
    }

    #[test]
    fn a_script_without_spaces_is_divided_too() {
        assert_eq!(divided("二つの長い文", &[0.5, 1.0]), ["二つの", "長い文"]);
        assert_eq!(divided("नमस्ते दुनिया", &[0.4, 1.0]), ["नमस्ते", "दुनिया"]);
        assert_eq!(divided("", &[0.5, 1.0]), ["", ""]);
    }

    #[test]
    fn recordings_are_cut_in_their_pauses_and_lose_nothing() {
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
        fn parts_are_short_enough_and_together_the_whole(
            words in prop::collection::vec("[a-zà-ü]{1,8}", 0..40), seconds in 1.0..600.0f64, longest in 1.0..40.0f64,
        ) {
            let utterance = Utterance {
                id: "x".into(), audio: "x.wav".into(), offset: Seconds(3.0), duration: Seconds(seconds),
                text: words.join(" "), speaker: None, language: None,
            };
            let parts = TooLong::Chunk.fit(&utterance, Seconds(longest)).unwrap();
            let total: f64 = parts.iter().map(|part| part.duration.0).sum();
            prop_assert!((total - seconds).abs() < 1e-6);
            prop_assert!(parts.iter().all(|part| part.duration.0 <= longest + 1e-9));
            let letters = |text: &str| text.split_whitespace().collect::<String>();
            let texts: Vec<&str> = parts.iter().map(|part| part.text.as_str()).collect();
            prop_assert_eq!(letters(&texts.concat()), letters(&utterance.text));
        }

        #[test]
        fn cuts_go_forward(samples in prop::collection::vec(-1.0f32..1.0, 0..3_000), longest in 0.001..2.0f64) {
            let cuts = cuts_at_silence(&samples, 1_000, Seconds(longest));
            prop_assert!(cuts.is_sorted() && *cuts.last().unwrap() == samples.len());
            let most = ((longest * 1_000.0) as usize).max(1);
            prop_assert!([0].iter().chain(&cuts).zip(&cuts).all(|(from, to)| to - from <= most));
        }
    }
}
