//! Turns recordings into text with a Whisper model.

use std::path::Path;

use burn::module::Module;
use burn::tensor::{Device, Tensor};
use plimsoll_audio::LogMel;
use plimsoll_core::{Grid, HostBatch, HostSample, SampleId, Seconds};
use plimsoll_tape::{Pass, Task};
use plimsoll_text::Tokenizer;
use plimsoll_text::transcript::Segment;

use super::hugging_face::{read_metadata, weights};
use super::times::{Next, TimedPart, divide};
use super::{Generation, Whisper, WhisperMetadata};
use crate::ModelError;
use crate::asr::Search;
use crate::asr::windows::quietest;

/// What begins in this last part of a recording is not heard a second time.
const REST: Seconds = Seconds(0.5);
/// Number of windows in a row without times after which a model is not asked for them any more: one that was trained on texts without
/// times may never say any.
const WITHOUT_TIMES: usize = 2;
/// Length of the quietest place at which a long recording is cut.
const QUIET: Seconds = Seconds(0.2);

/// A Whisper model with its features and its tokenizer.
///
/// ```no_run
/// use burn::tensor::{Device, Tensor};
/// use plimsoll_speech::asr::Search;
/// use plimsoll_speech::whisper::WhisperTranscriber;
///
/// let transcriber = WhisperTranscriber::load("whisper-tiny".as_ref(), None, &Device::flex())?;
/// let silence = vec![0.0; transcriber.sample_rate() as usize];
/// println!("{}", transcriber.transcribe(&silence, &Search::Greedy));
/// # Ok::<(), plimsoll_speech::ModelError>(())
/// ```
pub struct WhisperTranscriber {
    model: Whisper,
    log_mel: LogMel,
    tokenizer: Tokenizer,
    generation: Generation,
    device: Device,
    warnings: Vec<String>,
}

impl WhisperTranscriber {
    /// Loads the best checkpoint of the run in `folder`, the exported model in it, or the model of Hugging Face. Texts are in
    /// `language`, or in the language that the model was trained with last.
    ///
    /// # Errors
    /// When `folder` holds no Whisper model, or its files are damaged, or it has no such language; see [`ModelError`].
    pub fn load(folder: &Path, language: Option<&str>, device: &Device) -> Result<Self, ModelError> {
        let metadata = read_metadata(folder)?;
        let (weights, warnings) = weights(folder)?;
        let init = |device: &Device| metadata.model.init_unseeded(device);
        plimsoll_tape::on_capture_device(|device| plimsoll_tape::check_shapes(&init(device), &weights))?;
        let model = plimsoll_tape::apply(init(device), weights)?;
        Ok(Self { warnings, ..Self::new(model, &metadata, language, folder)? })
    }

    /// Makes a transcriber with a model that is already in memory. What it may not say is read from the files of `folder`.
    ///
    /// # Errors
    /// [`ModelError::Features`] when the configuration of the features is invalid, [`ModelError::Foreign`] when the tokenizer is none
    /// of Whisper or has no such language.
    pub fn new(
        model: Whisper,
        metadata: &WhisperMetadata,
        language: Option<&str>,
        folder: &Path,
    ) -> Result<Self, ModelError> {
        let foreign = |reason: String| ModelError::Foreign { folder: folder.into(), reason };
        let tokenizer = metadata.tokenizer.clone();
        let is_english = tokenizer.languages().is_empty();
        let tokenizer = match language {
            None => tokenizer,
            Some("en") if is_english => tokenizer,
            Some(language) if is_english => {
                return Err(foreign(format!("it is for English alone, and not for `{language}`")));
            }
            Some(language) if !tokenizer.has_whisper_language(language) => {
                return Err(foreign(format!("it has no language `{language}`")));
            }
            Some(language) => tokenizer.with_languages([language.to_owned()]),
        };
        let generation = Generation::new(&tokenizer, None, folder)
            .ok_or_else(|| foreign("its tokenizer has no tokens of Whisper, such as <|startoftranscript|>".into()))?;
        // Without autodiff: nothing is kept for a backward pass.
        let model = if model.devices().iter().any(Device::is_autodiff) { model.valid() } else { model };
        let device = model.devices().into_iter().next().expect("a model has parameters");
        let log_mel = LogMel::new(&metadata.features)?;
        Ok(Self { model, log_mel, tokenizer, generation, device, warnings: Vec::new() })
    }

    /// Returns the reasons why the loaded weights may not be the best of the run; empty if they are.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Returns the tokenizer of the model.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// Returns the sample rate in Hz that [`transcribe`](Self::transcribe) expects.
    pub fn sample_rate(&self) -> u32 {
        self.log_mel.config().sample_rate
    }

    /// Returns the number of samples that are heard at once.
    pub fn window(&self) -> usize {
        self.model.config().frames() * self.log_mel.config().hop_length
    }

    /// Transcribes one recording of any length: mono samples from -1 to 1 at [`sample_rate`](Self::sample_rate). One that is longer than a
    /// window is cut where it is quiet.
    pub fn transcribe(&self, samples: &[f32], search: &Search) -> String {
        let mut long = LongWhisper::new(self, *search);
        let mut segments = long.push(samples);
        segments.extend(long.finish());
        segments.into_iter().map(|segment| segment.text).collect::<Vec<String>>().join(" ")
    }

    /// Returns whether the model can say when something was said.
    pub fn has_times(&self) -> bool {
        self.model.has_times(&self.generation)
    }

    /// Transcribes at most one window.
    fn window_text(&self, samples: &[f32], search: &Search) -> String {
        let texts = self.model.generate(self.encoded(samples), &self.generation, search);
        self.tokenizer.decode(&texts[0]).trim().to_owned()
    }

    /// Transcribes at most one window into segments with times in it. Also returns after how many samples the next window begins; `None` if
    /// the model does not say where a segment ends, and this is not the last window.
    fn window_segments(&self, samples: &[f32], search: &Search, is_last: bool) -> (Vec<Segment>, Option<usize>) {
        let texts = self.model.generate_with_times(self.encoded(samples), &self.generation, search);
        let rate = f64::from(self.sample_rate());
        let rest = if is_last { REST.0 } else { 0.0 };
        let (parts, next) = divide(&texts[0], self.generation.first_time, samples.len() as f64 / rate, rest);
        let segment = |part: TimedPart| {
            let text = self.tokenizer.decode(&part.tokens).trim().to_owned();
            (!text.is_empty()).then(|| Segment { text, start: part.start, end: part.end, ..Segment::default() })
        };
        let next = match next {
            Next::At(seconds) => Some(((seconds * rate).round() as usize).clamp(1, samples.len())),
            Next::Unknown if !is_last => None,
            Next::Behind | Next::Unknown => Some(samples.len()),
        };
        (parts.into_iter().filter_map(segment).collect(), next)
    }

    /// Encodes at most one window.
    fn encoded(&self, samples: &[f32]) -> Tensor<3> {
        let features = self.log_mel.extract(samples);
        let name = String::new();
        let sample = HostSample { id: SampleId(0), name, features, tokens: Vec::new(), reference: Vec::new() };
        let batch = HostBatch::collate(&[sample], self.log_mel.n_mels(), &Grid::default()).expect("whole frames");
        let features = self.model.windows(&Whisper::send(&batch, &self.device));
        self.model.encode(features, &Pass::inference())
    }
}

/// Transcribes a recording of any length that comes in blocks, window after window. A window ends where it is quietest in its second
/// half; [`with_times`](Self::with_times), where the last whole segment ends in it, if the model says so.
pub struct LongWhisper<'a> {
    transcriber: &'a WhisperTranscriber,
    search: Search,
    has_times: bool,
    samples: Vec<f32>,
    /// Samples before `samples`.
    dropped: usize,
    /// Number of windows in a row of which the model did not say where a segment ends.
    without_times: usize,
}

impl<'a> LongWhisper<'a> {
    /// Begins a recording, whose samples must have the sample rate of `transcriber`.
    pub fn new(transcriber: &'a WhisperTranscriber, search: Search) -> Self {
        Self { transcriber, search, has_times: false, samples: Vec::new(), dropped: 0, without_times: 0 }
    }

    /// Lets the model say when each segment was said, if it can. Without times a segment is a whole window.
    #[must_use]
    pub fn with_times(self) -> Self {
        Self { has_times: self.transcriber.has_times(), ..self }
    }

    /// Takes samples, and returns the segments that are finished. Segments without text are left out.
    pub fn push(&mut self, samples: &[f32]) -> Vec<Segment> {
        self.samples.extend_from_slice(samples);
        let window = self.transcriber.window();
        let mut segments = Vec::new();
        while self.samples.len() > window {
            if self.has_times && self.without_times < WITHOUT_TIMES {
                if let Some(timed) = self.timed_segments(window, false) {
                    self.without_times = 0;
                    segments.extend(timed);
                    continue;
                }
                self.without_times += 1;
            }
            segments.extend(self.segment_to_pause(window));
        }
        segments
    }

    /// Transcribes up to the quietest place in the second half of the first `window` samples, without times of the model.
    fn segment_to_pause(&mut self, window: usize) -> Option<Segment> {
        let rate = f64::from(self.transcriber.sample_rate());
        let (half, hop) = (window / 2, self.transcriber.log_mel.config().hop_length);
        let end = half + quietest(&self.samples[half..window], (QUIET.0 * rate) as usize, hop);
        self.segment(end)
    }

    /// Ends the recording, and returns the last segments.
    pub fn finish(&mut self) -> Vec<Segment> {
        if !self.has_times {
            let rest = self.samples.len();
            return if rest == 0 { Vec::new() } else { self.segment(rest).into_iter().collect() };
        }
        let mut segments = Vec::new();
        while !self.samples.is_empty() {
            segments.extend(self.timed_segments(self.samples.len(), true).into_iter().flatten());
        }
        segments
    }

    /// Transcribes the first `count` samples with times; `None` if the model does not say where a segment ends in them.
    fn timed_segments(&mut self, count: usize, is_last: bool) -> Option<Vec<Segment>> {
        let (mut segments, next) = self.transcriber.window_segments(&self.samples[..count], &self.search, is_last);
        let next = next?;
        let before = self.dropped as f64 / f64::from(self.transcriber.sample_rate());
        for segment in &mut segments {
            segment.start += before;
            segment.end += before;
        }
        self.samples.drain(..next);
        self.dropped += next;
        Some(segments)
    }

    fn segment(&mut self, count: usize) -> Option<Segment> {
        let rate = f64::from(self.transcriber.sample_rate());
        let text = self.transcriber.window_text(&self.samples[..count], &self.search);
        let (start, end) = (self.dropped as f64 / rate, (self.dropped + count) as f64 / rate);
        self.samples.drain(..count);
        self.dropped += count;
        (!text.is_empty()).then(|| Segment { text, start, end, ..Segment::default() })
    }
}
