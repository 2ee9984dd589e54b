//! Conversion of words to a sequence of articulation targets with their lengths.

use crate::lexicon::Word;
use crate::phone::{Formants, Frication, Manner, Phone};
use crate::random::{log_normal, uniform};
use crate::voice::Voice;
use plimsoll_core::Key;
use std::ops::Range;

/// Number of frames per second of targets and parameter tracks.
pub(super) const FRAME_RATE: f32 = 200.0;

/// Articulation target: parameter values that the vocal tract moves towards.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Target {
    /// Formants in hertz, scaled to the speaker.
    pub(super) formants: Formants,
    /// Opening of the nose, from 0 to 1.
    pub(super) nasal: f32,
    /// Level of the glottal pulses.
    pub(super) voicing: f32,
    /// Level of breath noise through the whole vocal tract.
    pub(super) aspiration: f32,
    /// Level of frication noise, made in the mouth.
    pub(super) frication: f32,
    /// Center frequency of the frication noise in hertz.
    pub(super) peak: f32,
    /// Bandwidth of the frication noise in hertz.
    pub(super) width: f32,
}

/// Articulation target and its length.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Segment {
    /// Articulation target of the segment.
    pub(super) target: Target,
    /// Length of the segment in frames.
    pub(super) n_frames: usize,
}

/// All articulation targets of a sentence, in order.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct TargetSequence {
    /// Segments of the sentence, from the silence before to the silence after it.
    pub(super) segments: Vec<Segment>,
    /// Range of frames of every word.
    pub(super) words: Vec<Range<usize>>,
    /// Middle frame of the first vowel of every word, where the accent of the word falls.
    pub(super) accents: Vec<usize>,
}

impl TargetSequence {
    /// Computes the articulation targets of a sentence in the voice `voice`.
    pub(super) fn new(words: &[&Word], voice: &Voice, key: Key) -> Self {
        let pace = voice.pace * log_normal(key.with("pace"), 0.10 * voice.variability);
        let targets = Self { segments: Vec::new(), words: Vec::new(), accents: Vec::new() };
        let mut builder = SequenceBuilder { targets, voice, pace, n_frames: 0 };
        builder.silence(uniform(key.with("lead"), 0.06, 0.20));
        builder.hesitation(key.with("before"));
        for (place, word) in words.iter().enumerate() {
            let key = key.with("word").at(place as u64);
            if place > 0 {
                builder.hesitation(key.with("between"));
            }
            // The last word is longer, as in real sentences.
            let lengthening = if place + 1 == words.len() { 1.25 } else { 1.0 };
            builder.word(word, lengthening, key);
        }
        builder.hesitation(key.with("after"));
        builder.silence(uniform(key.with("trail"), 0.06, 0.20));
        builder.targets
    }

    /// Returns the number of frames of all segments together.
    pub(super) fn n_frames(&self) -> usize {
        self.segments.iter().map(|s| s.n_frames).sum()
    }
}

struct SequenceBuilder<'a> {
    targets: TargetSequence,
    voice: &'a Voice,
    pace: f32,
    n_frames: usize,
}

impl SequenceBuilder<'_> {
    fn silence(&mut self, secs: f32) {
        self.push(secs, Target::silent(SCHWA));
    }

    /// Adds a sound between words that the text does not contain: a pause, a breath or an `mm`; mostly adds nothing.
    fn hesitation(&mut self, key: Key) {
        if self.voice.is_reading() {
            return;
        }
        let secs = |low: f32, high: f32| uniform(key.with("secs"), low, high);
        let rest = Target::silent(SCHWA);
        let loudness = uniform(key.with("loudness"), 0.3, 0.9);
        match key.with("kind").below(17) {
            0 | 1 => self.silence(secs(0.05, 0.25)),
            2 | 3 => {
                self.push(secs(0.10, 0.25), rest.with_aspiration(loudness));
                self.silence(0.04);
            }
            4 | 5 => {
                self.silence(0.04);
                self.push(secs(0.10, 0.25), Target { nasal: 1.0, ..rest.with_voicing(loudness) });
                self.silence(0.04);
            }
            _ => {}
        }
    }

    fn word(&mut self, word: &Word, lengthening: f32, key: Key) {
        let start = self.n_frames;
        let mut accent = None;
        let loudness = log_normal(key.with("loudness"), 0.25 * self.voice.variability);
        for (place, phone) in word.phones.iter().enumerate() {
            let key = key.with("phone").at(place as u64);
            let context = Context { word, place, stressed: accent.is_none(), voice: self.voice, key };
            let before = self.n_frames;
            let length = self.pace * lengthening * log_normal(key.with("length"), 0.18 * self.voice.variability);
            for (secs, target) in parts(phone, &context) {
                self.push(secs * length, target.scaled(loudness));
            }
            if phone.manner == Manner::Vowel {
                accent.get_or_insert((before + self.n_frames) / 2);
            }
        }
        self.targets.words.push(start..self.n_frames);
        self.targets.accents.push(accent.unwrap_or(start));
    }

    fn push(&mut self, secs: f32, target: Target) {
        let n_frames = (secs * FRAME_RATE).round().max(1.0) as usize;
        self.targets.segments.push(Segment { target, n_frames });
        self.n_frames += n_frames;
    }
}

impl Target {
    fn silent(formants: Formants) -> Self {
        Self { formants, nasal: 0.0, voicing: 0.0, aspiration: 0.0, frication: 0.0, peak: 4000.0, width: 2000.0 }
    }

    fn with_voicing(self, voicing: f32) -> Self {
        Self { voicing, ..self }
    }

    fn with_aspiration(self, aspiration: f32) -> Self {
        Self { aspiration, ..self }
    }

    fn scaled(self, loudness: f32) -> Self {
        Self {
            voicing: self.voicing * loudness,
            aspiration: self.aspiration * loudness,
            frication: self.frication * loudness,
            ..self
        }
    }

    fn with_frication(self, noise: Frication, voice: &Voice) -> Self {
        let peak = noise.peak.map_or(self.formants[1] * 1.05, |peak| voice.high(peak).min(7000.0));
        Self { frication: noise.level * voice.hiss, peak, width: noise.width, ..self }
    }
}

/// Context of a phone, which changes its articulation targets: its word and position in the word, its stress, the
/// voice, and the key of its random variation.
struct Context<'a> {
    word: &'a Word,
    place: usize,
    /// Whether the phone is before the end of the word's first vowel; in this lexicon the first vowel bears the stress.
    stressed: bool,
    voice: &'a Voice,
    key: Key,
}

impl Context<'_> {
    fn before(&self, manner: Manner) -> bool {
        self.place > 0 && self.word.phones[self.place - 1].manner == manner
    }

    fn is_last(&self) -> bool {
        self.place + 1 == self.word.phones.len()
    }

    /// Returns whether the phone is an r that the speaker drops: after a vowel, where no vowel follows.
    fn is_silent_r(&self, phone: &Phone) -> bool {
        let follows = |next: &&Phone| next.manner == Manner::Vowel;
        let before_vowel = self.word.phones.get(self.place + 1).is_some_and(follows);
        phone.name == "r" && !self.voice.rhotic && self.before(Manner::Vowel) && !before_vowel
    }

    /// Varies the formants of `phone` by a small random deviation, because speakers never reach a target exactly.
    fn varied(&self, phone: &Phone, formants: Formants) -> Formants {
        let formants = self.voice.formants(phone, formants);
        [0, 1, 2].map(|i| formants[i] * log_normal(self.key.with("aim").at(i as u64), 0.03))
    }

    /// Computes the formants of a vowel, moved towards a schwa if the vowel is not stressed.
    fn vowel(&self, phone: &Phone, formants: Formants) -> Formants {
        let vowel_reduction = if self.stressed { 0.0 } else { self.voice.vowel_reduction };
        self.varied(phone, [0, 1, 2].map(|i| formants[i] + vowel_reduction * (SCHWA[i] - formants[i])))
    }
}

/// Formants of the schwa, the vowel of the neutral tongue position, in hertz.
const SCHWA: Formants = [480.0, 1450.0, 2450.0];

/// Returns the articulation targets of one phone, each after its usual length in seconds; empty for a dropped r.
///
/// The level of each manner relative to a vowel follows the amplitudes in Klatt (1980), rounded.
fn parts(phone: &Phone, context: &Context<'_>) -> Vec<(f32, Target)> {
    let still = Target::silent(coarticulated(phone, context));
    let secs = phone.secs;
    let voicing = |level: f32| if phone.voiced { level } else { 0.0 };
    let with_frication = |level: f32| still.with_voicing(voicing(level)).with_frication(phone.frication, context.voice);
    match phone.manner {
        _ if context.is_silent_r(phone) => vec![],
        Manner::Vowel => {
            let start = Target::silent(context.vowel(phone, phone.from)).with_voicing(1.0);
            let end = Target::silent(context.vowel(phone, phone.to)).with_voicing(1.0);
            vec![(secs * 0.45, start), (secs * 0.55, end)]
        }
        Manner::Approximant => vec![(secs, still.with_voicing(0.7))],
        Manner::Nasal => vec![(secs, Target { nasal: 1.0, ..still.with_voicing(0.6) })],
        Manner::Breath => vec![(secs, still.with_aspiration(0.8))],
        Manner::Fricative => vec![(secs, with_frication(0.4))],
        Manner::Affricate => vec![(secs, still.with_voicing(voicing(0.15))), (0.065, with_frication(0.3))],
        Manner::Stop => {
            let mut parts = vec![(secs, still.with_voicing(voicing(0.15)))];
            if context.is_last()
                && context.voice.restrain(context.key.with("release").unit() as f32, 0.5) > context.voice.release
            {
                return parts;
            }
            parts.push((0.012, with_frication(0.2)));
            // After an s the glottis closes early, and no breath follows.
            if !phone.voiced && !context.before(Manner::Fricative) {
                parts.push((0.030, still.with_aspiration(0.6)));
            }
            parts
        }
    }
}

/// Computes the formants at the start of a phone; the second formant moves towards the second formant of the nearest
/// vowel in the word.
fn coarticulated(phone: &Phone, context: &Context<'_>) -> Formants {
    let own = context.varied(phone, phone.from);
    let (voice, (before, after)) = (context.voice, context.word.phones.split_at(context.place));
    let vowel = |phone: &&&Phone| phone.manner == Manner::Vowel;
    let after = after.iter().find(vowel).map(|p| voice.formants(p, p.from));
    let before = || before.iter().rev().find(vowel).map(|p| voice.formants(p, p.to));
    let Some(vowel) = after.or_else(before) else { return own };
    // The first formant shows the closure of the mouth, so it moves only for breath; the third moves half as much.
    let coarticulation =
        [if phone.manner == Manner::Breath { 1.0 } else { 0.0 }, phone.coarticulation, phone.coarticulation * 0.5];
    [0, 1, 2].map(|i| own[i] + coarticulation[i] * (vowel[i] - own[i]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lexicon::Lexicon;

    #[test]
    fn words_follow_each_other_inside_the_sequence() {
        let words: Vec<&Word> = Lexicon::english().words().iter().take(12).collect();
        let targets = TargetSequence::new(&words, &Voice::new(1, 1), Key::new(1));
        assert_eq!(targets.words.len(), words.len());
        assert!(targets.words.windows(2).all(|w| w[0].end <= w[1].start));
        assert!(targets.words[0].start > 0 && targets.words[11].end < targets.n_frames());
        assert!(targets.words.iter().zip(&targets.accents).all(|(word, accent)| word.contains(accent)));
    }
}
