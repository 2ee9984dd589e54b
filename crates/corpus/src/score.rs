//! From words to a score: one target after another, each with its length, as a musician would write them down.

use super::draw::{between, factor};
use super::lexicon::Word;
use super::phone::{Formants, Frication, Manner, Phone};
use super::voice::Voice;
use plimsoll_core::Key;
use std::ops::Range;

/// Frames a second in which targets are told to the synthesiser.
pub(super) const FRAME_RATE: f32 = 200.0;

/// What the vocal tract aims at.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Target {
    /// Formants in hertz, in the speaker's throat.
    pub(super) formants: Formants,
    /// How open the nose is, from 0 to 1.
    pub(super) nasal: f32,
    /// Loudness of the glottis.
    pub(super) voicing: f32,
    /// Loudness of breath through the whole tract.
    pub(super) aspiration: f32,
    /// Loudness of noise made in the mouth.
    pub(super) frication: f32,
    /// Where that noise is loudest, in hertz.
    pub(super) peak: f32,
    /// How wide it is, in hertz.
    pub(super) width: f32,
}

/// A target and how long it is held.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Segment {
    /// What to aim at.
    pub(super) target: Target,
    /// For how many frames.
    pub(super) n_frames: usize,
}

/// Everything there is to say, in order.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Score {
    /// Targets one after another, from leading to trailing silence.
    pub(super) segments: Vec<Segment>,
    /// The frames of every word.
    pub(super) words: Vec<Range<usize>>,
    /// The frame in the middle of every word's first vowel, where its accent falls.
    pub(super) accents: Vec<usize>,
}

impl Score {
    /// Writes the score of a sentence as this voice would say it.
    pub(super) fn write(words: &[&Word], voice: &Voice, key: Key) -> Self {
        let pace = voice.pace * factor(key.with("pace"), 0.10 * voice.freedom);
        let score = Self { segments: Vec::new(), words: Vec::new(), accents: Vec::new() };
        let mut writer = Writer { score, voice, pace, n_frames: 0 };
        writer.silence(between(key.with("lead"), 0.06, 0.20));
        writer.unspoken(key.with("before"));
        for (place, word) in words.iter().enumerate() {
            let key = key.with("word").at(place as u64);
            if place > 0 {
                writer.unspoken(key.with("between"));
            }
            // The last word is drawn out, as in real sentences.
            let stretch = if place + 1 == words.len() { 1.25 } else { 1.0 };
            writer.word(word, stretch, key);
        }
        writer.unspoken(key.with("after"));
        writer.silence(between(key.with("trail"), 0.06, 0.20));
        writer.score
    }

    /// Frames in all.
    pub(super) fn n_frames(&self) -> usize {
        self.segments.iter().map(|s| s.n_frames).sum()
    }
}

struct Writer<'a> {
    score: Score,
    voice: &'a Voice,
    pace: f32,
    n_frames: usize,
}

impl Writer<'_> {
    fn silence(&mut self, secs: f32) {
        self.push(secs, Target::silent(SCHWA));
    }

    /// What is heard beside the words, and in no text: mostly nothing, else a pause, a breath or an `mm`.
    fn unspoken(&mut self, key: Key) {
        if self.voice.reads() {
            return;
        }
        let secs = |low: f32, high: f32| between(key.with("secs"), low, high);
        let rest = Target::silent(SCHWA);
        let loudness = between(key.with("loudness"), 0.3, 0.9);
        match key.with("kind").below(17) {
            0 | 1 => self.silence(secs(0.05, 0.25)),
            2 | 3 => {
                self.push(secs(0.10, 0.25), rest.breathed(loudness));
                self.silence(0.04);
            }
            4 | 5 => {
                self.silence(0.04);
                self.push(secs(0.10, 0.25), Target { nasal: 1.0, ..rest.voiced(loudness) });
                self.silence(0.04);
            }
            _ => {}
        }
    }

    fn word(&mut self, word: &Word, stretch: f32, key: Key) {
        let start = self.n_frames;
        let mut accent = None;
        let loudness = factor(key.with("loudness"), 0.25 * self.voice.freedom);
        for (place, phone) in word.phones.iter().enumerate() {
            let key = key.with("phone").at(place as u64);
            let context = Context { word, place, stressed: accent.is_none(), voice: self.voice, key };
            let before = self.n_frames;
            let length = self.pace * stretch * factor(key.with("length"), 0.18 * self.voice.freedom);
            for (secs, target) in parts(phone, &context) {
                self.push(secs * length, target.scaled(loudness));
            }
            if phone.manner == Manner::Vowel {
                accent.get_or_insert((before + self.n_frames) / 2);
            }
        }
        self.score.words.push(start..self.n_frames);
        self.score.accents.push(accent.unwrap_or(start));
    }

    fn push(&mut self, secs: f32, target: Target) {
        let n_frames = (secs * FRAME_RATE).round().max(1.0) as usize;
        self.score.segments.push(Segment { target, n_frames });
        self.n_frames += n_frames;
    }
}

impl Target {
    fn silent(formants: Formants) -> Self {
        Self { formants, nasal: 0.0, voicing: 0.0, aspiration: 0.0, frication: 0.0, peak: 4000.0, width: 2000.0 }
    }

    fn voiced(self, voicing: f32) -> Self {
        Self { voicing, ..self }
    }

    fn breathed(self, aspiration: f32) -> Self {
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

    fn hissing(self, noise: Frication, voice: &Voice) -> Self {
        let peak = noise.peak.map_or(self.formants[1] * 1.05, |peak| voice.high(peak).min(7000.0));
        Self { frication: noise.level * voice.hiss, peak, width: noise.width, ..self }
    }
}

/// Where a phone stands, and who says it.
struct Context<'a> {
    word: &'a Word,
    place: usize,
    /// Whether no vowel of the word came before: in our words the first one bears the stress.
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

    /// Whether this is an r that the speaker swallows: after a vowel, where no other vowel follows.
    fn is_silent_r(&self, phone: &Phone) -> bool {
        let follows = |next: &&Phone| next.manner == Manner::Vowel;
        let before_vowel = self.word.phones.get(self.place + 1).is_some_and(follows);
        phone.name == "r" && !self.voice.rhotic && self.before(Manner::Vowel) && !before_vowel
    }

    /// These formants of `phone` as they come out this time: nobody hits a target twice.
    fn aimed(&self, phone: &Phone, formants: Formants) -> Formants {
        let formants = self.voice.formants(phone, formants);
        [0, 1, 2].map(|i| formants[i] * factor(self.key.with("aim").at(i as u64), 0.03))
    }

    /// The formants of a vowel, drawn towards a schwa where it is not stressed.
    fn vowel(&self, phone: &Phone, formants: Formants) -> Formants {
        let slur = if self.stressed { 0.0 } else { self.voice.slur };
        self.aimed(phone, [0, 1, 2].map(|i| formants[i] + slur * (SCHWA[i] - formants[i])))
    }
}

/// Where the tongue rests.
const SCHWA: Formants = [480.0, 1450.0, 2450.0];

/// The targets of one phone with their usual seconds.
///
/// Loudness of each manner relative to a vowel is after the amplitudes in Klatt (1980), rounded.
fn parts(phone: &Phone, context: &Context<'_>) -> Vec<(f32, Target)> {
    let still = Target::silent(leant(phone, context));
    let secs = phone.secs;
    let voicing = |level: f32| if phone.voiced { level } else { 0.0 };
    let hissing = |level: f32| still.voiced(voicing(level)).hissing(phone.frication, context.voice);
    match phone.manner {
        _ if context.is_silent_r(phone) => vec![],
        Manner::Vowel => {
            let start = Target::silent(context.vowel(phone, phone.from)).voiced(1.0);
            let end = Target::silent(context.vowel(phone, phone.to)).voiced(1.0);
            vec![(secs * 0.45, start), (secs * 0.55, end)]
        }
        Manner::Approximant => vec![(secs, still.voiced(0.7))],
        Manner::Nasal => vec![(secs, Target { nasal: 1.0, ..still.voiced(0.6) })],
        Manner::Breath => vec![(secs, still.breathed(0.8))],
        Manner::Fricative => vec![(secs, hissing(0.4))],
        Manner::Affricate => vec![(secs, still.voiced(voicing(0.15))), (0.065, hissing(0.3))],
        Manner::Stop => {
            let mut parts = vec![(secs, still.voiced(voicing(0.15)))];
            if context.is_last()
                && context.voice.held(context.key.with("release").unit() as f32, 0.5) > context.voice.release
            {
                return parts;
            }
            parts.push((0.012, hissing(0.2)));
            // After an s the glottis closes in time, and no breath follows.
            if !phone.voiced && !context.before(Manner::Fricative) {
                parts.push((0.030, still.breathed(0.6)));
            }
            parts
        }
    }
}

/// Formants at the start of a phone, its second leaning to the vowel that is nearest in the word.
fn leant(phone: &Phone, context: &Context<'_>) -> Formants {
    let own = context.aimed(phone, phone.from);
    let (voice, (before, after)) = (context.voice, context.word.phones.split_at(context.place));
    let vowel = |phone: &&&Phone| phone.manner == Manner::Vowel;
    let after = after.iter().find(vowel).map(|p| voice.formants(p, p.from));
    let before = || before.iter().rev().find(vowel).map(|p| voice.formants(p, p.to));
    let Some(vowel) = after.or_else(before) else { return own };
    // The first formant tells how closed the mouth is, so it leans only for breath; the third leans half as much.
    let lean = [if phone.manner == Manner::Breath { 1.0 } else { 0.0 }, phone.lean, phone.lean * 0.5];
    [0, 1, 2].map(|i| own[i] + lean[i] * (vowel[i] - own[i]))
}

#[cfg(test)]
mod tests {
    use super::super::lexicon::Lexicon;
    use super::*;

    #[test]
    fn words_follow_one_another_inside_the_score() {
        let words: Vec<&Word> = Lexicon::english().words().iter().take(12).collect();
        let score = Score::write(&words, &Voice::of(1, 1), Key::new(1));
        assert_eq!(score.words.len(), words.len());
        assert!(score.words.windows(2).all(|w| w[0].end <= w[1].start));
        assert!(score.words[0].start > 0 && score.words[11].end < score.n_frames());
        assert!(score.words.iter().zip(&score.accents).all(|(word, accent)| word.contains(accent)));
    }
}
