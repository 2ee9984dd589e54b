//! Transcribes recordings of any length in bounded memory.

use burn::tensor::Tensor;
use plimsoll_core::Seconds;
use plimsoll_layers::Lengths;
use plimsoll_text::transcript::Segment;

use super::decode::CtcScores;
use super::transcriber::{begin_after, each_time, shift};
use super::windows::{Window, WindowSizes, Windows};
use super::{EncodedAudio, LanguageSearch, Search, Transcriber};

/// How a long recording is divided.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LongOptions {
    /// Longest part that is computed at once, context included, and longest part whose text is searched at once. A recording
    /// that is not longer is one part.
    pub longest: Seconds,
    /// Sound before and after each part that the encoder hears, too.
    pub context: Seconds,
}

impl Default for LongOptions {
    /// Parts of 30 s, the default of `data.max_seconds` in training, with 3 s of context on both sides.
    fn default() -> Self {
        Self { longest: Seconds(30.0), context: Seconds(3.0) }
    }
}

/// Pause that ends a segment of a long recording.
const BETWEEN: Seconds = Seconds(0.6);
/// Largest sample of a part that counts as silent: the noise of 16 bits, without any sound.
const SILENCE: f32 = 1e-4;
/// Length of the pause that is searched for a cut.
const PAUSE: Seconds = Seconds(0.1);

/// Transcribes a recording of any length that comes in blocks.
///
/// The encoder computes parts that overlap, and gives its frames as if there were no parts. They meet where it is quiet, and
/// each frame has heard at least the context on both sides. The text is then searched in these frames, in segments that end
/// with a pause of the frames, so words on both sides of a pause are never one. A recording that fits into one part is one
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
        let pending = PendingFrames::new(search.needs_decoder());
        let longest = transcriber.samples_at_once(options.longest);
        let frames_at_once = (longest / transcriber.frame_samples()).max(2);
        let windows = windows(transcriber, options);
        Self { transcriber, search, language, windows, pending, frames_at_once, said: 0.0 }
    }

    /// Takes samples, and returns the segments that are finished. Segments without text are left out.
    pub fn push(&mut self, samples: &[f32]) -> Vec<Segment> {
        self.windows.push(samples);
        while let Some(window) = self.windows.next() {
            self.pending.compute(&window, self.transcriber);
        }
        let mut segments = Vec::new();
        while self.pending.count() > self.frames_at_once {
            segments.extend(self.next_segment());
        }
        segments
    }

    /// Ends the recording, and returns the last segments.
    pub fn finish(mut self) -> Vec<Segment> {
        let length = self.windows.received() as f64 / f64::from(self.transcriber.sample_rate());
        if self.windows.received() > 0 {
            self.pending.compute(&self.windows.last(), self.transcriber);
        }
        let mut segments = Vec::new();
        while self.pending.count() > 0 {
            segments.extend(self.next_segment());
        }
        segments.into_iter().map(|segment| within(segment, length)).collect()
    }

    /// Searches the text of the frames before the first pause; of all, in a recording of one part.
    fn next_segment(&mut self) -> Option<Segment> {
        let (all, most) = (self.pending.count(), self.frames_at_once);
        let pause = ((BETWEEN.0 / self.transcriber.frame_length().0).ceil() as usize).max(1);
        let is_one_part = self.pending.first == 0 && all <= most;
        let end = if is_one_part { None } else { self.pending.first_pause(pause) };
        let cut =
            end.filter(|end| *end <= most).unwrap_or_else(|| if all > most { self.pending.pause(most) } else { all });
        self.segment(cut)
    }

    /// Searches the text of the first `count` pending frames; nothing if there is none.
    fn segment(&mut self, count: usize) -> Option<Segment> {
        let frame = self.transcriber.frame_length().0;
        let (from, to) = (self.pending.first as f64 * frame, (self.pending.first + count) as f64 * frame);
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
        Self { transcriber, windows: windows(transcriber, options), pending: PendingFrames::new(false) }
    }

    /// Takes samples.
    pub fn push(&mut self, samples: &[f32]) {
        self.windows.push(samples);
        while let Some(window) = self.windows.next() {
            self.pending.compute(&window, self.transcriber);
        }
    }

    /// Ends the recording, and returns its scores.
    pub fn finish(mut self) -> CtcScores {
        if self.windows.received() > 0 {
            self.pending.compute(&self.windows.last(), self.transcriber);
        }
        CtcScores::new(self.pending.log_probs, self.pending.vocabulary)
    }
}

/// Makes the windows of a recording.
fn windows(transcriber: &Transcriber, options: LongOptions) -> Windows {
    let count = |length: Seconds| (length.0 * f64::from(transcriber.sample_rate())) as usize;
    let (frame, longest) = (transcriber.frame_samples(), transcriber.samples_at_once(options.longest));
    Windows::new(WindowSizes { frame, longest, context: count(options.context), pause: count(PAUSE) })
}

/// Cuts the times of a segment at the end of the recording, which the last frame can reach beyond.
fn within(mut segment: Segment, end: f64) -> Segment {
    let cut = |time: &mut f64| *time = time.min(end);
    segment.words.iter_mut().for_each(|word| each_time(word, cut));
    [&mut segment.start, &mut segment.end].into_iter().for_each(cut);
    segment
}

/// Frames whose text is not searched yet.
pub(super) struct PendingFrames {
    /// Number of the first frame in the recording.
    first: usize,
    log_probs: Vec<f32>,
    vocabulary: usize,
    /// Output of the encoder `[1, frames, model width]`, if a decoder reads it.
    encoded: Option<Vec<Tensor<3>>>,
}

impl PendingFrames {
    fn new(is_encoded: bool) -> Self {
        Self { first: 0, log_probs: Vec::new(), vocabulary: 1, encoded: is_encoded.then(Vec::new) }
    }

    /// Computes the frames of the core of `window`.
    fn compute(&mut self, window: &Window<'_>, transcriber: &Transcriber) {
        if self.is_silent(window) {
            let all = window.samples.len() / transcriber.frame_samples();
            return self.add_silence(window.taken.unwrap_or(all.saturating_sub(window.skipped)));
        }
        let (encoded, scores) = transcriber.score(window.samples);
        let left = scores.frames().saturating_sub(window.skipped);
        let count = window.taken.map_or(left, |taken| taken.min(left));
        if count == 0 {
            return;
        }
        self.vocabulary = scores.vocabulary();
        let from = window.skipped * self.vocabulary;
        self.log_probs.extend_from_slice(&scores.log_probs()[from..from + count * self.vocabulary]);
        if let Some(all) = &mut self.encoded {
            all.push(encoded.frames.narrow(1, window.skipped, count));
        }
    }

    /// Returns whether a part of a long recording has no sound at all. Hours of it need not be computed.
    fn is_silent(&self, window: &Window<'_>) -> bool {
        let knows_the_model = self.vocabulary > 1 && self.encoded.is_none();
        knows_the_model && window.samples.iter().all(|sample| sample.abs() < SILENCE)
    }

    /// Adds frames in which nothing is said.
    fn add_silence(&mut self, count: usize) {
        let end = self.log_probs.len() + count * self.vocabulary;
        for frame in (self.log_probs.len()..end).step_by(self.vocabulary) {
            self.log_probs.resize(frame + self.vocabulary, f32::NEG_INFINITY);
            self.log_probs[frame] = 0.0;
        }
    }

    fn count(&self) -> usize {
        self.log_probs.len() / self.vocabulary
    }

    fn row(&self, frame: usize) -> &[f32] {
        &self.log_probs[frame * self.vocabulary..][..self.vocabulary]
    }

    /// Returns whether the blank is the likeliest token of a frame.
    fn is_blank(&self, frame: usize) -> bool {
        self.row(frame)[1..].iter().all(|value| *value < self.row(frame)[0])
    }

    /// Finds the middle of the first pause of at least `length` frames that something is said before and after.
    fn first_pause(&self, length: usize) -> Option<usize> {
        let begin = (0..self.count()).find(|&frame| !self.is_blank(frame))?;
        let mut start = begin;
        for frame in begin..self.count() {
            if self.is_blank(frame) {
                continue;
            }
            if frame - start > length {
                return Some(start + (frame - start) / 2);
            }
            start = frame + 1;
        }
        None
    }

    /// Finds the middle of the longest pause in the second half of the first `most` frames: of frames in which the blank is
    /// the likeliest token. Without a pause it is the frame with the likeliest blank.
    fn pause(&self, most: usize) -> usize {
        let (mut best, mut run) = (0..0, most / 2..most / 2);
        for frame in most / 2..most {
            run = if self.is_blank(frame) { run.start..frame + 1 } else { frame + 1..frame + 1 };
            if run.len() > best.len() {
                best = run.clone();
            }
        }
        let likeliest = || (most / 2..most).max_by(|&a, &b| self.row(a)[0].total_cmp(&self.row(b)[0])).unwrap_or(most);
        (if best.is_empty() { likeliest() } else { best.start + best.len() / 2 }).max(1)
    }

    /// Removes the first `count` frames, and returns them.
    fn take(&mut self, count: usize) -> (CtcScores, Option<EncodedAudio>) {
        self.first += count;
        let rest = self.log_probs.split_off(count * self.vocabulary);
        let scores = CtcScores::new(std::mem::replace(&mut self.log_probs, rest), self.vocabulary);
        let encoded = self.encoded.as_mut().map(|all| {
            let whole = Tensor::cat(std::mem::take(all), 1);
            let frames = whole.dims()[1];
            if count < frames {
                all.push(whole.clone().narrow(1, count, frames - count));
            }
            EncodedAudio { frames: whole.narrow(1, 0, count), lengths: Lengths::new(vec![count as u32], count) }
        });
        (scores, encoded)
    }
}
