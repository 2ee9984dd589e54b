//! A trained vocoder and the rounds of Griffin-Lim behind it, which bring its sound nearer to the log-mels.

use plimsoll_audio::{Refinement, Vocoder, VocoderError};
use rayon::prelude::*;

use super::{NeuralVocoder, VocoderStream};

/// A trained vocoder whose sound is brought nearer to its log-mels by some rounds of Griffin-Lim.
///
/// The network knows the harmonics and the phases, which log-mels do not have; the rounds take the levels from the log-mels, which
/// the network only estimates. After a short training both together are nearer to recordings than either of them.
#[derive(Debug)]
pub struct RefinedVocoder {
    network: NeuralVocoder,
    rounds: Vocoder,
}

impl RefinedVocoder {
    /// Default number of rounds.
    pub const ROUNDS: usize = 16;

    /// Puts [`ROUNDS`](Self::ROUNDS) rounds behind `network`.
    ///
    /// # Errors
    /// When the features of `network` cannot be turned into sound by Griffin-Lim.
    pub fn new(network: NeuralVocoder) -> Result<Self, VocoderError> {
        let rounds = Vocoder::new(&network.config().features)?.with_iterations(Self::ROUNDS);
        Ok(Self { network, rounds })
    }

    /// Sets the number of rounds. Default: [`ROUNDS`](Self::ROUNDS). Without rounds the sound stays as the network made it.
    #[must_use]
    pub fn with_rounds(self, rounds: usize) -> Self {
        Self { rounds: self.rounds.with_iterations(rounds), ..self }
    }

    /// Returns the network, whose sound is not refined.
    pub fn network(&self) -> &NeuralVocoder {
        &self.network
    }

    /// Returns the samples, between -1 and 1, of whole log-mels `[t, m]`, computed in chunks of `chunk` frames, which bounds
    /// the memory.
    ///
    /// # Panics
    /// If `chunk` is 0, or `mels` end inside a frame.
    pub fn waveform(&self, mels: &[f32], chunk: usize) -> Vec<f32> {
        refine(&self.rounds, mels, &self.network.waveform(mels, chunk), chunk)
    }

    /// Returns the [`waveform`](Self::waveform) of each of `mels`. The rounds of several utterances run at the same time.
    ///
    /// # Panics
    /// If `chunk` is 0, or an utterance ends inside a frame.
    pub fn waveforms(&self, mels: &[&[f32]], chunk: usize) -> Vec<Vec<f32>> {
        let sounds: Vec<Vec<f32>> = mels.iter().map(|mels| self.network.waveform(mels, chunk)).collect();
        mels.par_iter().zip(&sounds).map(|(mels, sound)| refine(&self.rounds, mels, sound, chunk)).collect()
    }

    /// Starts an utterance that becomes sound in chunks of `chunk` frames while its log-mels arrive.
    ///
    /// # Panics
    /// If `chunk` is 0.
    pub fn stream(&self, chunk: usize) -> RefinedStream<'_> {
        let (network, refinement) = (VocoderStream::new(&self.network, chunk), Refinement::new(&self.rounds, chunk));
        let features = &self.network.config().features;
        RefinedStream { network, refinement, mels: Vec::new(), width: features.n_mels, hop: features.hop_length }
    }
}

/// Returns the samples, between -1 and 1, of `sound` refined by the iterations of `rounds`, in chunks of `chunk` frames.
pub(super) fn refine(rounds: &Vocoder, mels: &[f32], sound: &[f32], chunk: usize) -> Vec<f32> {
    let mut refinement = Refinement::new(rounds, chunk);
    let mut samples = refinement.push(mels, sound);
    samples.extend(refinement.finish());
    // Louder than full scale would be cut off by a file.
    let loudest = samples.iter().fold(1f32, |most, sample| most.max(sample.abs()));
    samples.iter_mut().for_each(|sample| *sample /= loudest);
    samples
}

/// Turns log-mels into refined sound while they arrive. The chunks do not change the sound.
#[derive(Debug)]
pub struct RefinedStream<'a> {
    network: VocoderStream<'a>,
    refinement: Refinement<'a>,
    /// Log-mels whose sound the network has not computed yet.
    mels: Vec<f32>,
    /// Mel channels of a frame.
    width: usize,
    /// Samples of a frame.
    hop: usize,
}

impl RefinedStream<'_> {
    /// Returns the most frames that are waiting to become sound after [`push`](Self::push): the delay.
    pub fn delay_frames(&self) -> usize {
        // Rarely reached, because both wait for whole chunks.
        self.network.delay_frames() + self.refinement.delay_frames()
    }

    /// Takes the next log-mels, whole frames one after the other, and returns the samples that are complete. Few of them may
    /// lie outside of the range between -1 and 1.
    ///
    /// # Panics
    /// If `mels` end inside a frame.
    pub fn push(&mut self, mels: &[f32]) -> Vec<f32> {
        self.mels.extend_from_slice(mels);
        let sound = self.network.push(mels);
        let complete = sound.len() / self.hop * self.width;
        let samples = self.refinement.push(&self.mels[..complete], &sound);
        self.mels.drain(..complete);
        samples
    }

    /// Ends the utterance and returns its last samples.
    pub fn finish(self) -> Vec<f32> {
        let Self { network, mut refinement, mels, .. } = self;
        let sound = network.finish();
        let mut samples = refinement.push(&mels, &sound);
        samples.extend(refinement.finish());
        samples
    }
}
