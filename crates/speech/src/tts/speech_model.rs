//! What pipelines and evaluations need of a synthesizer, of either family.

use burn::module::Module;
use burn::tensor::{Device, Tensor};
use plimsoll_core::{Grid, HostBatch, HostSample, Key, SampleId};
use plimsoll_tape::{Noise, Pass, Task, TensorBatch};

use super::parallel::{ParallelConfig, ParallelSynthesizer};
use super::{
    Alignment, GeneratedMels, GenerationDetail, GenerationOptions, LengthBounds, MelNormalization, Synthesizer,
    SynthesizerConfig,
};
use crate::ModelKind;

/// A text to generate: its tokens and its id, from which random numbers follow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpeechText {
    /// Tokens of the text.
    pub tokens: Vec<u32>,
    /// Id of the text.
    pub id: SampleId,
}

/// A synthesizer: it generates log-mels of texts in a voice.
pub trait SpeechModel: Send {
    /// Returns the number of features in a frame.
    fn features(&self) -> usize;

    /// Returns the limits of the generated length.
    fn length_bounds(&self) -> LengthBounds;

    /// Returns the maximum number of frames of a reference that are encoded at once.
    fn reference_frames(&self) -> usize;

    /// Returns the device of the model.
    fn device(&self) -> Device;

    /// Returns whether the model can speak faster and slower.
    fn has_rate(&self) -> bool;

    /// Returns whether the model can speak higher, lower, louder and softer.
    fn has_pitch(&self) -> bool;

    /// Returns whether the model decides frame by frame when speech ends, and may fail to; other models predict its length.
    fn decides_end(&self) -> bool;

    /// Encodes reference log-mels `[references, frames, mel bands]` to voices `[references, 1, voice width]`. `lengths`
    /// has the number of valid frames of each reference.
    fn encode_voice(&self, references: Tensor<3>, lengths: &[u32]) -> Tensor<3>;

    /// Encodes the voices of a batch, `[utterances, 1, voice width]`, from its references or, without references, from
    /// its utterances.
    fn voices(&self, batch: &TensorBatch) -> Tensor<3>;

    /// Generates the log-mels of `texts` in `voices` `[texts, 1, voice width]`, all in one batch. The result of a text does
    /// not depend on the other texts.
    fn generate(&self, texts: &[SpeechText], voices: Tensor<3>, options: GenerationOptions) -> Vec<GeneratedMels>;

    /// Computes which token each frame of `generated` came from. The other arguments are those of the generation.
    fn alignment(
        &self,
        text: &SpeechText,
        generated: &GeneratedMels,
        voice: Tensor<3>,
        options: GenerationOptions,
    ) -> Alignment;
}

/// A synthesizer that can be trained.
pub trait SpeechTask: SpeechModel + Task<Batch = HostBatch, Tensors = TensorBatch> {
    /// Computes the sums of the losses of `batch` by name, as training does but without dropout of training. `key` gives the
    /// random numbers of a model that has any in generation.
    fn evaluation_losses(&self, batch: &TensorBatch, key: Key) -> Vec<(&'static str, Tensor<1>)>;
}

/// The configuration of a synthesizer, of either family.
pub trait SpeechConfig: ModelKind + Copy + 'static {
    /// Type of the model.
    type Model: SpeechTask + 'static;

    /// Makes a model with weights that follow from `key` and the configuration only.
    fn init_model(&self, device: &Device, key: Key) -> Self::Model;

    /// Makes a model with weights that follow no seed, to load weights from a file or to count parameters.
    fn init_model_unseeded(&self, device: &Device) -> Self::Model;

    /// Returns the statistics of the training data that are part of the configuration.
    fn statistics(&self) -> (MelNormalization, LengthBounds);
}

impl SpeechConfig for SynthesizerConfig {
    type Model = Synthesizer;

    fn init_model(&self, device: &Device, key: Key) -> Synthesizer {
        self.init(device, key)
    }

    fn init_model_unseeded(&self, device: &Device) -> Synthesizer {
        self.init_unseeded(device)
    }

    fn statistics(&self) -> (MelNormalization, LengthBounds) {
        (self.normalization, self.length_bounds)
    }
}

impl SpeechConfig for ParallelConfig {
    type Model = ParallelSynthesizer;

    fn init_model(&self, device: &Device, key: Key) -> ParallelSynthesizer {
        self.init(device, key)
    }

    fn init_model_unseeded(&self, device: &Device) -> ParallelSynthesizer {
        self.init_unseeded(device)
    }

    fn statistics(&self) -> (MelNormalization, LengthBounds) {
        (self.normalization, self.length_bounds)
    }
}

impl SpeechModel for Synthesizer {
    fn features(&self) -> usize {
        self.config().features
    }

    fn length_bounds(&self) -> LengthBounds {
        self.config().length_bounds
    }

    fn reference_frames(&self) -> usize {
        self.config().voice.reference_frames
    }

    fn device(&self) -> Device {
        device_of(self)
    }

    fn has_rate(&self) -> bool {
        false
    }

    fn has_pitch(&self) -> bool {
        false
    }

    fn decides_end(&self) -> bool {
        true
    }

    fn encode_voice(&self, references: Tensor<3>, lengths: &[u32]) -> Tensor<3> {
        Synthesizer::encode_voice(self, references, lengths, &Pass::plain())
    }

    fn voices(&self, batch: &TensorBatch) -> Tensor<3> {
        self.batch_voices(batch, &Pass::plain())
    }

    fn generate(&self, texts: &[SpeechText], voices: Tensor<3>, options: GenerationOptions) -> Vec<GeneratedMels> {
        let tokens: Vec<Vec<u32>> = texts.iter().map(|text| text.tokens.clone()).collect();
        let ids: Vec<SampleId> = texts.iter().map(|text| text.id).collect();
        Synthesizer::generate(self, &tokens, &ids, voices, options.key)
    }

    /// Computes the attention over the text during the generation, by teacher forcing with the generated frames.
    fn alignment(
        &self,
        text: &SpeechText,
        generated: &GeneratedMels,
        voice: Tensor<3>,
        options: GenerationOptions,
    ) -> Alignment {
        let GenerationDetail::BeforePostnet(frames) = &generated.detail else {
            return Alignment::from_durations(&[]);
        };
        let own_frames = HostSample {
            id: text.id,
            name: String::new(),
            features: frames.clone(),
            tokens: text.tokens.clone(),
            reference: Vec::new(),
        };
        let batch = HostBatch::collate(&[own_frames], self.config().features, &Grid::default());
        let batch = TensorBatch::send(&batch.expect("generated frames are whole"), &device_of(self));
        let prenet_noise = Noise::new(options.key, &batch.ids);
        let weights = self.attention_weights_in(&batch, voice, &prenet_noise);
        Alignment::from_attention(&weights, self.config().reduction)
    }
}

impl SpeechTask for Synthesizer {
    fn evaluation_losses(&self, batch: &TensorBatch, key: Key) -> Vec<(&'static str, Tensor<1>)> {
        let prenet_noise = Noise::new(key, &batch.ids);
        let guided = self.config().loss.guide_weight > 0.0;
        self.losses(self.teacher_forced(batch, guided, &prenet_noise, &Pass::inference()))
    }
}

impl SpeechModel for ParallelSynthesizer {
    fn features(&self) -> usize {
        self.config().features
    }

    fn length_bounds(&self) -> LengthBounds {
        self.config().length_bounds
    }

    fn reference_frames(&self) -> usize {
        self.config().voice.reference_frames
    }

    fn device(&self) -> Device {
        device_of(self)
    }

    fn has_rate(&self) -> bool {
        true
    }

    fn has_pitch(&self) -> bool {
        self.config().pitch.is_some()
    }

    fn decides_end(&self) -> bool {
        false
    }

    fn encode_voice(&self, references: Tensor<3>, lengths: &[u32]) -> Tensor<3> {
        ParallelSynthesizer::encode_voice(self, references, lengths, &Pass::plain())
    }

    fn voices(&self, batch: &TensorBatch) -> Tensor<3> {
        self.batch_voices(batch, &Pass::plain())
    }

    fn generate(&self, texts: &[SpeechText], voices: Tensor<3>, options: GenerationOptions) -> Vec<GeneratedMels> {
        let tokens: Vec<Vec<u32>> = texts.iter().map(|text| text.tokens.clone()).collect();
        ParallelSynthesizer::generate(self, &tokens, voices, &options)
    }

    /// Returns the durations of the generation.
    fn alignment(&self, _: &SpeechText, generated: &GeneratedMels, _: Tensor<3>, _: GenerationOptions) -> Alignment {
        match &generated.detail {
            // The first duration is that of the start token, which is no token of the text.
            GenerationDetail::Durations(frames) => Alignment::from_durations(frames),
            GenerationDetail::BeforePostnet(_) => Alignment::from_durations(&[]),
        }
    }
}

impl SpeechTask for ParallelSynthesizer {
    fn evaluation_losses(&self, batch: &TensorBatch, _: Key) -> Vec<(&'static str, Tensor<1>)> {
        self.losses(self.aligned(batch, &Pass::inference()))
    }
}

fn device_of<M: Module>(model: &M) -> Device {
    model.devices().into_iter().next().expect("a model has parameters")
}
