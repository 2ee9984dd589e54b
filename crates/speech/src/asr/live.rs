//! Transcribes speech while it is spoken.

use plimsoll_core::Seconds;
use plimsoll_language::FusionState;
use plimsoll_text::alignment::TokenSpan;
use plimsoll_text::transcript::Word;

use super::decode::CtcScores;
use super::transcriber::{begin_after, shift};
use super::windows::is_speech;
use super::{LanguageSearch, Search, Transcriber};

/// How a stream is divided. The words of a stream are final after at most `step`, `lookahead` and `pause` together, and the
/// time that a step takes to compute.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LiveOptions {
    /// Sound between two computations.
    pub step: Seconds,
    /// Sound after a frame that is heard before the frame is final.
    pub lookahead: Seconds,
    /// Sound before the newest frames that is computed with them each time.
    pub context: Seconds,
    /// Silence after which a word is final, although no other word follows.
    pub pause: Seconds,
}

impl Default for LiveOptions {
    /// Steps of 0.3 s, a lookahead of 0.5 s, a context of 8 s and a pause of 0.32 s: 1.12 s and the computation.
    fn default() -> Self {
        Self { step: Seconds(0.3), lookahead: Seconds(0.5), context: Seconds(8.0), pause: Seconds(0.32) }
    }
}

impl LiveOptions {
    /// Returns the longest time from the end of a word until it is final, without the time of computing.
    pub fn delay(&self) -> Seconds {
        self.step + self.lookahead + self.pause
    }
}

/// Sound that must be there before the first computation: features are normalized over what was heard.
const FIRST: Seconds = Seconds(1.0);
/// Most sound that one computation adds, when samples come faster than they are spoken.
const MOST: Seconds = Seconds(5.0);
/// Frames in which no word ends become final after this time, as in a language without spaces.
const LONGEST: Seconds = Seconds(4.0);

/// What a stream has brought since the update before.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LiveUpdate {
    /// Words that are final now, with times from the start of the stream.
    pub words: Vec<Word>,
    /// Words after them that may still change.
    pub tentative: Vec<Word>,
    /// Whether a pause follows the final words.
    pub is_pause: bool,
}

/// Transcribes a stream of samples while it comes, with a search of CTC.
///
/// ```no_run
/// use burn::tensor::Device;
/// use plimsoll_speech::asr::{LiveOptions, LiveTranscriber, Search, Transcriber};
///
/// let transcriber = Transcriber::load("runs/asr-1".as_ref(), &Device::flex())?;
/// let mut live = LiveTranscriber::new(&transcriber, Search::Greedy, None, LiveOptions::default());
/// let microphone = || vec![0.0; 1600];
/// for _ in 0..100 {
///     let update = live.push(&microphone());
///     update.words.iter().for_each(|word| print!("{} ", word.text));
/// }
/// live.finish().words.iter().for_each(|word| print!("{} ", word.text));
/// # Ok::<(), plimsoll_speech::ModelError>(())
/// ```
pub struct LiveTranscriber<'a> {
    transcriber: &'a Transcriber,
    search: Search,
    language: Option<&'a LanguageSearch>,
    /// State of the language after the final words.
    state: Option<FusionState>,
    sizes: Sizes,
    /// The newest samples, and the number of samples before them: whole frames.
    samples: Vec<f32>,
    dropped: usize,
    /// Samples that were computed.
    computed: usize,
    /// Final frames whose words are not final, and the number of frames before them.
    pending: Vec<f32>,
    first: usize,
    /// End of the last final word, in seconds.
    said: f64,
    tentative: Vec<Word>,
}

/// [`LiveOptions`] in samples and frames.
struct Sizes {
    frame: usize,
    step: usize,
    lookahead: usize,
    context: usize,
    /// Frames.
    pause: usize,
    first: usize,
    most: usize,
    /// Frames.
    longest: usize,
}

impl Sizes {
    fn new(options: &LiveOptions, transcriber: &Transcriber) -> Self {
        let samples = |length: Seconds| (length.0.max(0.0) * f64::from(transcriber.sample_rate())).round() as usize;
        let frame = transcriber.frame_samples().max(1);
        let frames = |length: Seconds| samples(length).div_ceil(frame).max(1);
        let step = samples(options.step).max(frame);
        // A model that truncates hears no more than this at once.
        let at_once = transcriber.samples_at_once(options.context + MOST).max(4 * frame);
        let most = samples(MOST).max(step).min(at_once / 2);
        let context = samples(options.context).max(samples(options.lookahead) + step).min(at_once - most);
        Self {
            frame,
            step,
            lookahead: samples(options.lookahead),
            context,
            pause: frames(options.pause),
            first: samples(FIRST),
            most,
            longest: frames(LONGEST),
        }
    }
}

impl<'a> LiveTranscriber<'a> {
    /// Begins a stream, whose samples must have the sample rate of `transcriber`.
    ///
    /// # Panics
    /// When `search` needs a decoder, which reads whole utterances.
    pub fn new(
        transcriber: &'a Transcriber,
        search: Search,
        language: Option<&'a LanguageSearch>,
        options: LiveOptions,
    ) -> Self {
        assert!(!search.needs_decoder(), "a decoder reads whole utterances");
        Self {
            transcriber,
            search,
            language,
            state: language.map(|language| language.scorer().start()),
            sizes: Sizes::new(&options, transcriber),
            samples: Vec::new(),
            dropped: 0,
            computed: 0,
            pending: Vec::new(),
            first: 0,
            said: 0.0,
            tentative: Vec::new(),
        }
    }

    /// Returns the length of the stream so far.
    pub fn length(&self) -> Seconds {
        Seconds((self.dropped + self.samples.len()) as f64 / f64::from(self.transcriber.sample_rate()))
    }

    /// Takes samples, and returns what has become final. When samples wait, fewer and longer steps are computed.
    pub fn push(&mut self, samples: &[f32]) -> LiveUpdate {
        let mut update = LiveUpdate::default();
        for part in samples.chunks(self.sizes.most) {
            self.samples.extend_from_slice(part);
            let received = self.dropped + self.samples.len();
            if received >= self.sizes.first && received - self.computed >= self.sizes.step {
                self.compute(false, &mut update);
            }
        }
        update.tentative.clone_from(&self.tentative);
        update
    }

    /// Ends the stream: all its words are final.
    pub fn finish(mut self) -> LiveUpdate {
        let mut update = LiveUpdate::default();
        self.compute(true, &mut update);
        update.is_pause = true;
        update
    }

    /// Computes the frames of all samples that are kept, and makes words final.
    fn compute(&mut self, is_end: bool, update: &mut LiveUpdate) {
        let Sizes { frame, lookahead, context, .. } = self.sizes;
        let received = self.dropped + self.samples.len();
        self.computed = received;
        let scores = self.scores();
        let width = scores.vocabulary();
        let known = self.first + self.pending.len() / width;
        let begin = self.dropped / frame;
        let end = begin + scores.frames();
        let last = if is_end { end } else { (received.saturating_sub(lookahead) / frame).min(end) };
        let row = |frame: usize| frame.saturating_sub(begin) * width;
        if last > known {
            self.pending.extend_from_slice(&scores.log_probs()[row(known)..row(last)]);
        }
        let rest = if end > last { &scores.log_probs()[row(last.max(known))..] } else { &[] };
        let all = CtcScores::new([&self.pending[..], rest].concat(), width);
        self.settle(&all, is_end, update);
        let spare = self.samples.len().saturating_sub(context) / frame * frame;
        self.samples.drain(..spare);
        self.dropped += spare;
    }

    /// Computes the scores of the samples that are kept; blanks where nothing but steady noise is heard, which features that
    /// are normalized by the utterance would make as loud as speech.
    fn scores(&self) -> CtcScores {
        match is_speech(&self.samples, self.transcriber.sample_rate()) {
            true => self.transcriber.log_probs(&self.samples),
            false => CtcScores::silence(self.samples.len() / self.sizes.frame, self.transcriber.vocabulary()),
        }
    }

    /// Searches the words of `scores`, which are those of the pending frames and of frames that may still change. Moves words
    /// that are final to `update`.
    fn settle(&mut self, scores: &CtcScores, is_end: bool, update: &mut LiveUpdate) {
        let width = scores.vocabulary();
        let ready = self.pending.len() / width;
        let tokens = match (self.language, &self.state) {
            (Some(language), Some(state)) => language.best_part(scores, state),
            _ => self.transcriber.search(scores, None, &self.search, None),
        };
        let spans = self.transcriber.spans(scores, &tokens).unwrap_or_default();
        let cut = if is_end { Some((spans.len(), ready)) } else { self.cut(&spans, ready) };
        let (count, frames) = cut.unwrap_or((0, 0));
        let from = self.first as f64 * self.transcriber.frame_length().0;
        // Words on both sides of a pause are never one.
        let is_near = |a: &TokenSpan, b: &TokenSpan| b.first_frame <= a.last_frame + self.sizes.pause;
        let words = |spans: &[TokenSpan]| {
            let mut words: Vec<Word> =
                spans.chunk_by(is_near).flat_map(|spans| self.transcriber.words(spans)).collect();
            words.iter_mut().for_each(|word| shift(word, from));
            words
        };
        let (mut settled, mut tentative) = (words(&spans[..count]), words(&spans[count..]));
        begin_after(&mut settled, self.said);
        self.said = settled.last().map_or(self.said, |word| word.end);
        begin_after(&mut tentative, self.said);
        update.is_pause |= count > 0 && count == spans.len();
        update.words.extend(settled);
        self.tentative = tentative;
        if let (Some(language), Some(state)) = (self.language, self.state) {
            let next = |state, span: &TokenSpan| language.scorer().advance(&state, span.token);
            self.state = spans[..count].iter().try_fold(state, next).or(Some(language.scorer().start()));
        }
        self.pending.drain(..frames * width);
        self.first += frames;
    }

    /// Finds how many tokens are final, and how many frames they end in: tokens before the last beginning of a word in the
    /// first `ready` frames, or all if a pause follows them.
    fn cut(&self, spans: &[TokenSpan], ready: usize) -> Option<(usize, usize)> {
        let Sizes { pause, longest, .. } = self.sizes;
        let Some(last) = spans.last() else {
            // Nothing is said: only the newest frames can still be the beginning of a token.
            return (ready > pause).then(|| (0, ready - pause));
        };
        if last.last_frame + 1 + pause <= ready {
            return Some((spans.len(), ready.min(last.last_frame + 1 + pause / 2)));
        }
        let begins = |place: &usize| {
            let (before, span) = (&spans[place - 1], &spans[*place]);
            let is_apart = span.first_frame > before.last_frame + pause;
            let text = &self.transcriber.texts()[span.token as usize];
            (is_apart || text.starts_with(' ')) && span.first_frame < ready
        };
        let cut = (1..spans.len()).rev().find(begins);
        let is_long = ready > longest;
        let any = || (1..spans.len()).rev().find(|place| spans[*place].first_frame < ready);
        cut.or_else(|| if is_long { any() } else { None }).map(|place| (place, spans[place].first_frame))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_delay_of_the_defaults_is_stated() {
        assert!((LiveOptions::default().delay().0 - 1.12).abs() < 1e-9);
    }
}
