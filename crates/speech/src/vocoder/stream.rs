//! A vocoder in chunks: sound while frames arrive, with a bounded delay.

use burn::module::Module;
use burn::tensor::{Device, Tensor, TensorData};

use super::NeuralVocoder;

/// Turns log-mels into sound while they arrive.
///
/// It computes one chunk of frames at a time, together with the frames around it that the samples depend on. The samples
/// therefore equal those of the whole utterance, up to the rounding of sums. A frame becomes sound when a chunk and
/// [`VocoderConfig::context_frames`](super::VocoderConfig::context_frames) frames have come after the begin of its chunk.
///
/// ```
/// use burn::tensor::Device;
/// use plimsoll_audio::LogMelConfig;
/// use plimsoll_core::Key;
/// use plimsoll_speech::vocoder::{VocoderConfig, VocoderStream};
///
/// let features = LogMelConfig::preset("myxtts").expect("a known preset");
/// let vocoder = VocoderConfig { dim: 8, layers: 1, ..VocoderConfig::recommended(features) }.init(&Device::flex(), Key::new(1));
/// let mut stream = VocoderStream::new(&vocoder, 16);
/// let mut samples = stream.push(&vec![-4.0; 80 * 30]);
/// samples.extend(stream.finish());
/// assert_eq!(samples.len(), 30 * 256);
/// ```
#[derive(Debug)]
pub struct VocoderStream<'a> {
    vocoder: &'a NeuralVocoder,
    device: Device,
    /// Frames of a chunk.
    chunk: usize,
    /// Log-mels from frame `first` on.
    mels: Vec<f32>,
    /// Number of the first frame that is kept.
    first: usize,
    /// Number of frames that have become sound.
    done: usize,
}

impl NeuralVocoder {
    /// Returns the samples of whole log-mels `[t, m]`, computed in chunks of `chunk` frames, which bounds the memory.
    ///
    /// # Panics
    /// If `chunk` is 0, or `mels` end inside a frame.
    pub fn waveform(&self, mels: &[f32], chunk: usize) -> Vec<f32> {
        let mut stream = VocoderStream::new(self, chunk);
        let mut samples = stream.push(mels);
        samples.extend(stream.finish());
        samples
    }
}

impl<'a> VocoderStream<'a> {
    /// Starts an utterance that becomes sound in chunks of `chunk` frames.
    ///
    /// # Panics
    /// If `chunk` is 0.
    pub fn new(vocoder: &'a NeuralVocoder, chunk: usize) -> Self {
        assert!(chunk > 0, "a chunk has at least one frame");
        let device = vocoder.devices().into_iter().next().expect("a vocoder has weights");
        Self { vocoder, device, chunk, mels: Vec::new(), first: 0, done: 0 }
    }

    /// Returns the most frames that are waiting to become sound after [`push`](Self::push): the delay.
    pub fn delay_frames(&self) -> usize {
        self.chunk + self.vocoder.config().context_frames() - 1
    }

    /// Takes the next log-mels, whole frames one after the other, and returns the samples that are complete.
    ///
    /// # Panics
    /// If `mels` end inside a frame.
    pub fn push(&mut self, mels: &[f32]) -> Vec<f32> {
        let width = self.vocoder.config().features.n_mels;
        assert!(mels.len().is_multiple_of(width), "{} values are not whole frames of {width}", mels.len());
        self.mels.extend_from_slice(mels);
        let (all, context) = (self.frames(), self.vocoder.config().context_frames());
        let mut samples = Vec::new();
        while self.done + self.chunk + context <= all {
            samples.extend(self.compute(self.chunk));
        }
        samples
    }

    /// Ends the utterance and returns its last samples.
    pub fn finish(mut self) -> Vec<f32> {
        let all = self.frames();
        let mut samples = Vec::new();
        while self.done < all {
            samples.extend(self.compute(self.chunk.min(all - self.done)));
        }
        samples
    }

    /// Returns the number of frames that have arrived.
    fn frames(&self) -> usize {
        self.first + self.mels.len() / self.vocoder.config().features.n_mels
    }

    /// Computes the samples of the next `count` frames, and drops the frames that no later sample depends on.
    fn compute(&mut self, count: usize) -> Vec<f32> {
        let config = self.vocoder.config();
        let (width, hop, context) = (config.features.n_mels, config.features.hop_length, config.context_frames());
        let until = (self.done + count + context).min(self.frames());
        let mels = self.mels[..(until - self.first) * width].to_vec();
        let mels = Tensor::from_data(TensorData::new(mels, [1, until - self.first, width]), &self.device);
        let samples = self.vocoder.generate(mels).narrow(1, (self.done - self.first) * hop, count * hop);
        self.done += count;
        let first = self.done.saturating_sub(context);
        self.mels.drain(..(first - self.first) * width);
        self.first = first;
        samples.into_data().convert::<f32>().try_into_vec().expect("converted to f32")
    }
}
