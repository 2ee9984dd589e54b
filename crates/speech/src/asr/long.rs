//! Transcribes recordings of any length in bounded memory.

use plimsoll_core::Seconds;
use plimsoll_text::transcript::Segment;

use super::decode::CtcScores;
use super::pending::PendingFrames;
use super::transcriber::{begin_after, each_time, shift};
use super::windows::{WindowSizes, Windows};
use super::{LanguageSearch, Search, Transcriber};

/// How a long recording is divided.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LongOptions {
    /// Longest part that is computed at once, context included. A recording that is not longer is one part.
    pub longest: Seconds,
    /// Sound before and after a part that the encoder hears, too, where no pause ends it.
    pub context: Seconds,
}

impl Default for LongOptions {
    /// Parts of 30 s, the default of `data.max_seconds` in training, with 3 s of context where no pause is.
    fn default() -> Self {
        Self { longest: Seconds(30.0), context: Seconds(3.0) }
    }
}

impl LongOptions {
    /// Parts that are no longer than what `transcriber` has learned from, and than the default.
    pub fn for_model(transcriber: &Transcriber) -> Self {
        let usual = Self::default();
        let learned = transcriber.longest_learned().unwrap_or(usual.longest);
        Self { longest: Seconds(learned.0.min(usual.longest.0)), ..usual }
    }
}

/// Longest part whose text is searched at once.
const SEARCHED: Seconds = Seconds(30.0);
/// Length of the quietest place of a pause.
const QUIET: Seconds = Seconds(0.1);

/// Transcribes a recording of any length that comes in blocks.
///
/// The encoder computes parts that end in pauses, which the recognizer finds itself: so it hears what it would hear if
/// somebody had cut the recording into utterances. Where it finds no pause, parts overlap and meet where it is quiet, and
/// each frame has heard at least the context on both sides. The text is then searched in these frames, in segments that end
/// with a longer pause, so words on both sides of a pause are never one. A recording that fits into one part is one
/// segment. The memory depends on [`LongOptions`], not on the recording.
///
/// ```no_run
/// use burn::tensor::Device;
/// use plimsoll_audio::AudioStream;
/// use plimsoll_speech::asr::{LongOptions, LongTranscriber, Search, Transcriber};
///
/// let transcriber = Transcriber::load("runs/asr-1".as_ref(), &Device::flex())?;
/// let mut audio = AudioStream::open("day.flac", transcriber.sample_rate())?;
/// let mut long = LongTranscriber::new(&transcriber, Search::Greedy, None, LongOptions::default());
/// let mut samples = Vec::new();
/// while audio.read(&mut samples)? {
///     long.push(&samples).iter().for_each(|segment| println!("{}", segment.text));
///     samples.clear();
/// }
/// long.finish().iter().for_each(|segment| println!("{}", segment.text));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct LongTranscriber<'a> {
    transcriber: &'a Transcriber,
    search: Search,
    language: Option<&'a LanguageSearch>,
    windows: Windows,
    pending: PendingFrames,
    /// Most frames whose text is searched at once.
    frames_at_once: usize,
    /// End of the last word so far, in seconds.
    said: f64,
}

impl<'a> LongTranscriber<'a> {
    /// Begins a recording, whose samples must have the sample rate of `transcriber`.
    ///
    /// # Panics
    /// When the model does not support `search`.
    pub fn new(
        transcriber: &'a Transcriber,
        search: Search,
        language: Option<&'a LanguageSearch>,
        options: LongOptions,
    ) -> Self {
        assert!(transcriber.supports(&search), "the model has no decoder for {search:?}");
        let pending = PendingFrames::new(transcriber, search.needs_decoder());
        let longest = transcriber.samples_at_once(options.longest);
        // A decoder, too, has learned from no more than this.
        let searched =
            if search.needs_decoder() { longest } else { transcriber.samples_at_once(SEARCHED).max(longest) };
        let frames_at_once = (searched / transcriber.frame_samples()).max(2);
        let windows = windows(transcriber, options);
        Self { transcriber, search, language, windows, pending, frames_at_once, said: 0.0 }
    }

    /// Takes samples, and returns the segments that are finished. Segments without text are left out.
    pub fn push(&mut self, samples: &[f32]) -> Vec<Segment> {
        self.pending.push(samples, &mut self.windows, self.transcriber);
        let mut segments = Vec::new();
        while self.pending.count() > self.frames_at_once {
            segments.extend(self.next_segment());
        }
        segments
    }

    /// Ends the recording, and returns the last segments.
    pub fn finish(mut self) -> Vec<Segment> {
        let length = self.windows.received() as f64 / f64::from(self.transcriber.sample_rate());
        self.pending.finish(&self.windows, self.transcriber);
        let mut segments = Vec::new();
        while self.pending.count() > 0 {
            segments.extend(self.next_segment());
        }
        segments.into_iter().map(|segment| within(segment, length)).collect()
    }

    /// Searches the text of the frames before the first pause; of all, in a recording of one part.
    fn next_segment(&mut self) -> Option<Segment> {
        let (all, most) = (self.pending.count(), self.frames_at_once);
        let is_one_part = self.pending.is_one_part();
        let end = if is_one_part { None } else { self.pending.first_pause() };
        let cut =
            end.filter(|end| *end <= most).unwrap_or_else(|| if all > most { self.pending.pause(most) } else { all });
        self.segment(cut)
    }

    /// Searches the text of the first `count` pending frames; nothing if there is none.
    fn segment(&mut self, count: usize) -> Option<Segment> {
        let frame = self.transcriber.frame_length().0;
        let (from, to) = (self.pending.first() as f64 * frame, (self.pending.first() + count) as f64 * frame);
        let (scores, encoded) = self.pending.take(count);
        let tokens = self.transcriber.search(&scores, encoded.as_ref(), &self.search, self.language);
        let text = self.transcriber.tokenizer().decode(&tokens);
        let mut words = self.transcriber.timed(&scores, &tokens);
        words.iter_mut().for_each(|word| shift(word, from));
        begin_after(&mut words, self.said);
        self.said = words.last().map_or(self.said, |word| word.end);
        let segment = match words.is_empty() {
            // Without times of words, those of the frames.
            true => Segment { text, start: from, end: to, ..Segment::default() },
            false => Segment { text, ..Segment::new(words) },
        };
        (!segment.text.trim().is_empty()).then_some(segment)
    }
}

/// Computes the scores of CTC for a recording of any length that comes in blocks, in the parts of [`LongTranscriber`].
///
/// All scores are kept: of a vocabulary of 40 tokens, an hour has 15 MB.
pub struct LongScores<'a> {
    transcriber: &'a Transcriber,
    windows: Windows,
    pending: PendingFrames,
}

impl<'a> LongScores<'a> {
    /// Begins a recording, whose samples must have the sample rate of `transcriber`.
    pub fn new(transcriber: &'a Transcriber, options: LongOptions) -> Self {
        Self { transcriber, windows: windows(transcriber, options), pending: PendingFrames::new(transcriber, false) }
    }

    /// Takes samples.
    pub fn push(&mut self, samples: &[f32]) {
        self.pending.push(samples, &mut self.windows, self.transcriber);
    }

    /// Ends the recording, and returns its scores.
    pub fn finish(mut self) -> CtcScores {
        self.pending.finish(&self.windows, self.transcriber);
        let count = self.pending.count();
        self.pending.take(count).0
    }
}

/// Makes the windows of a recording.
fn windows(transcriber: &Transcriber, options: LongOptions) -> Windows {
    let count = |length: Seconds| (length.0 * f64::from(transcriber.sample_rate())) as usize;
    let (frame, longest) = (transcriber.frame_samples(), transcriber.samples_at_once(options.longest));
    Windows::new(WindowSizes { frame, longest, context: count(options.context), quiet: count(QUIET) })
}

/// Cuts the times of a segment at the end of the recording, which the last frame can reach beyond.
fn within(mut segment: Segment, end: f64) -> Segment {
    let cut = |time: &mut f64| *time = time.min(end);
    segment.words.iter_mut().for_each(|word| each_time(word, cut));
    [&mut segment.start, &mut segment.end].into_iter().for_each(cut);
    segment
}
