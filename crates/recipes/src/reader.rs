//! A trained recognizer on a device, which turns samples into text.

use std::path::Path;

use burn::tensor::Device;
use plimsoll_audio::AudioStream;
use plimsoll_config::DeviceConfig;
use plimsoll_config::choices::BackendChoice;
use plimsoll_core::Samples;
use plimsoll_speech::ModelFolder;
use plimsoll_speech::asr::decode::CtcScores;
use plimsoll_speech::asr::{
    LanguageSearch, LiveOptions, LiveTranscriber, LongOptions, LongScores, LongTranscriber, Search, TimedTranscription,
    Transcriber,
};

use crate::device::TrainingDevice;
use crate::error::{Failure, FailureExt};
use crate::language::{LanguageSettings, TunedSearch};
use crate::reporter::{Level, Progress, Reporter};

/// A trained recognizer on a device, with its decoding search.
pub struct Reader {
    transcriber: Transcriber,
    /// Search with which samples are decoded to text, unless there is a language model.
    pub search: Search,
    language: Option<LanguageSearch>,
}

impl Reader {
    /// Loads the model in `folder`, which is the folder of a run or of an exported model, onto `device`. Reports a warning if
    /// the weights may not be the best of the run.
    ///
    /// # Errors
    /// If the folder holds no recognizer, or if the model does not support `search`.
    pub fn load(folder: &Path, search: Search, device: &Device, reporter: &dyn Reporter) -> Result<Self, Failure> {
        let transcriber = Transcriber::load(folder, device).invalid()?;
        transcriber.warnings().iter().for_each(|text| reporter.line(Level::Warning, text));
        if !transcriber.supports(&search) {
            let message = format!("the model in {} has no attention decoder", folder.display());
            return Err(Failure::invalid(message, "use `--search greedy` or `--search prefix-beam`"));
        }
        Ok(Self { transcriber, search, language: None })
    }

    /// Searches with a language model, hotwords or a lexicon by `settings`; without any of them nothing changes.
    ///
    /// # Errors
    /// If a file cannot be read, or the search is one of the attention decoder.
    pub fn with_language(self, settings: &LanguageSettings) -> Result<Self, Failure> {
        let language = settings.search(self.transcriber.tokenizer())?;
        if language.is_some() && matches!(self.search, Search::Attention { .. } | Search::Rescore { .. }) {
            let message =
                "a language model, hotwords and a lexicon work with CTC, and with CTC and the decoder together";
            return Err(Failure::invalid(message, "leave out --search, or give --search prefix-beam or joint"));
        }
        let search = match (&language, self.search) {
            (None, search) | (Some(_), search @ Search::Joint { .. }) => search,
            // Without the decoder, the search with a language is a prefix beam.
            (Some(_), _) => Search::PrefixBeam { width: settings.width },
        };
        Ok(Self { language, search, ..self })
    }

    /// Returns the sample rate in Hz that [`text`](Self::text) expects.
    pub fn sample_rate(&self) -> u32 {
        self.transcriber.sample_rate()
    }

    /// Transcribes mono `samples`. Reports a warning if the model's length policy cuts the end of so long a recording.
    pub fn text(&self, samples: &[f32], reporter: &dyn Reporter) -> String {
        self.warn_if_cut(samples, reporter);
        match &self.language {
            Some(_) => self.transcriber.transcribe_timed(samples, &self.search, self.language.as_ref()).text,
            None => self.transcriber.transcribe(samples, &self.search),
        }
    }

    /// Transcribes mono `samples` with the times of the words, in seconds from the first sample. Reports a warning if the
    /// model's length policy cuts the end.
    pub fn timed(&self, samples: &[f32], reporter: &dyn Reporter) -> TimedTranscription {
        self.warn_if_cut(samples, reporter);
        self.transcriber.transcribe_timed(samples, &self.search, self.language.as_ref())
    }

    /// Computes the scores of CTC of a recording of any length, in parts. Returns the length of the recording in seconds, too.
    /// `progress` counts seconds.
    ///
    /// # Errors
    /// If the recording cannot be read.
    pub fn listen(&self, file: &Path, progress: &dyn Progress) -> Result<(CtcScores, f64), Failure> {
        let mut audio = AudioStream::open(file, self.sample_rate()).invalid()?;
        let mut scores = LongScores::new(&self.transcriber, LongOptions::for_model(&self.transcriber));
        let (mut block, mut count) = (Vec::new(), 0);
        while audio.read(&mut block).invalid()? {
            count += block.len() as u64;
            scores.push(&block);
            block.clear();
            progress.set(count / u64::from(self.sample_rate()));
        }
        Ok((scores.finish(), Samples(count).at(self.sample_rate()).0))
    }

    /// Begins a recording of any length, which is transcribed in parts.
    pub fn long(&self) -> LongTranscriber<'_> {
        let options = LongOptions::for_model(&self.transcriber);
        LongTranscriber::new(&self.transcriber, self.search, self.language.as_ref(), options)
    }

    /// Begins a stream that is transcribed while it comes.
    ///
    /// # Errors
    /// If the search needs the attention decoder, which reads whole utterances.
    pub fn live(&self, options: LiveOptions) -> Result<LiveTranscriber<'_>, Failure> {
        if self.search.needs_decoder() {
            let message = "the attention decoder reads whole utterances, and a stream has none";
            return Err(Failure::invalid(message, "leave out --search, or give --search prefix-beam"));
        }
        Ok(LiveTranscriber::new(&self.transcriber, self.search, self.language.as_ref(), options))
    }

    /// Returns the recognizer.
    pub fn transcriber(&self) -> &Transcriber {
        &self.transcriber
    }

    /// Returns the character error rate on the held-out utterances of the training, of the search that is used by default;
    /// `None` where it is not known.
    pub fn held_out_error(folder: &Path) -> Option<f64> {
        let tuned = TunedSearch::read(folder).ok().flatten();
        let by_search = tuned.map(|tuned| if tuned.helps { tuned.with_language[0] } else { tuned.greedy[0] });
        by_search.or_else(|| ModelFolder(folder).checkpoint_store().ok()?.newest_state().ok()??.best)
    }

    fn warn_if_cut(&self, samples: &[f32], reporter: &dyn Reporter) {
        let length = Samples(samples.len() as u64).at(self.sample_rate());
        if self.transcriber.truncates(length) {
            let text = format!("the model's length policy truncates a recording of {length}: the end is cut");
            reporter.line(Level::Warning, &text);
        }
    }
}

/// Opens the device for `backend`: auto, cpu, cuda or wgpu.
///
/// # Errors
/// If `backend` is none of these, the program was built without it, or no such device opens.
pub fn device(backend: &str) -> Result<Device, Failure> {
    let backend = match backend {
        "auto" => BackendChoice::Auto,
        "cpu" => BackendChoice::Cpu,
        "cuda" => BackendChoice::Cuda,
        "wgpu" => BackendChoice::Wgpu,
        other => return Err(Failure::invalid(format!("there is no backend `{other}`"), "use auto, cpu, cuda or wgpu")),
    };
    let device = TrainingDevice::choose(&DeviceConfig { backend, ..DeviceConfig::default() })?;
    device.open()?;
    Ok(device.device)
}
