//! Keys that accept a fixed set of words, each set as an enum: tasks, backends, presets, precisions, schedules.

use serde::{Deserialize, Serialize};

/// Defines an enum whose variants are the accepted words of a key, so that each word is written in one place only.
macro_rules! choice {
    ($(#[$about:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident = $word:literal,)+ }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
        pub enum $name {
            $($(#[$doc])* #[serde(rename = $word)] $variant,)+
        }

        impl $name {
            /// Every accepted word, in the order of the documentation.
            pub const NAMES: &'static [&'static str] = &[$($word),+];
            /// Every variant, in the order of [`NAMES`](Self::NAMES).
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// Returns the word that selects this variant in a configuration.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)+
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.as_str())
            }
        }
    };
}

choice! {
    /// Task that a model is trained for.
    Task {
        /// Speech recognition: audio to text.
        #[default]
        Asr = "asr",
        /// Text-to-speech: text to audio.
        Tts = "tts",
        /// Vocoder: log-mel features to audio.
        Vocoder = "vocoder",
    }
}

choice! {
    /// What a synthesizer reads of a text.
    TextChoice {
        /// The characters, as they are written.
        #[default]
        Characters = "characters",
        /// The phonemes, as the program `espeak-ng` reads the text.
        Phonemes = "phonemes",
    }
}

choice! {
    /// Kind of the blocks in a recognizer's encoder.
    EncoderChoice {
        /// Conformer blocks: attention beside convolutions.
        #[default]
        Conformer = "conformer",
        /// ConvNeXt blocks: convolutions alone.
        Convolution = "convolution",
    }
}

choice! {
    /// Kind of tokens that a text is split into.
    TokenizerChoice {
        /// Each character is a token.
        #[default]
        Characters = "char",
        /// Byte-pair encoding: parts of words, learned from the training texts.
        Bpe = "bpe",
    }
}

choice! {
    /// Treatment of numbers in texts.
    NumbersChoice {
        /// Keeps digits: each digit is a character like any other.
        #[default]
        AsWritten = "as_written",
        /// Replaces numbers by English words.
        English = "english",
    }
}

choice! {
    /// Treatment of utterances that are longer than `data.max_seconds`.
    TooLongChoice {
        /// Leaves long utterances out and counts them.
        #[default]
        Refuse = "refuse",
        /// Cuts long utterances at silences, and their text in proportion to the sound in each part.
        Split = "split",
        /// Cuts long utterances into equal parts, and their text as well.
        Chunk = "chunk",
        /// Drops the end of long utterances, and an equal share of their text.
        Truncate = "truncate",
    }
}

choice! {
    /// Family of a synthesizer or a recognizer.
    FamilyChoice {
        /// All frames at once, from predicted durations.
        #[default]
        Parallel = "parallel",
        /// A few frames after the other, by attention over the text.
        Autoregressive = "autoregressive",
        /// A recognizer: Whisper.
        Whisper = "whisper",
    }
}

choice! {
    /// Loss between a predicted frame and the true frame.
    MelLossChoice {
        /// The absolute difference.
        #[default]
        L1 = "l1",
        /// The Huber loss: half the squared difference below 1, the absolute difference minus a half above.
        Huber = "huber",
    }
}

choice! {
    /// Backend that computes.
    BackendChoice {
        /// CUDA if the program was built with it, otherwise the CPU.
        #[default]
        Auto = "auto",
        /// Computes on the CPU.
        Cpu = "cpu",
        /// An NVIDIA GPU through CUDA.
        Cuda = "cuda",
        /// Any GPU through WebGPU.
        Wgpu = "wgpu",
    }
}

choice! {
    /// Use of the pool that a GPU's memory management keeps for lasting tensors, such as weights.
    PersistentMemoryChoice {
        /// Only for tensors that ask for it.
        #[default]
        Enabled = "enabled",
        /// Also for tensors as large as one that asked for it.
        SizeMatch = "size-match",
        /// For no tensor.
        Disabled = "disabled",
    }
}

choice! {
    /// Way in which the pools of a CUDA device take memory from the driver.
    CudaAllocatorChoice {
        /// In step with the GPU's work. Takes no memory beyond the pools.
        #[default]
        Sync = "sync",
        /// In the order of the stream, without waiting. The driver may keep more memory.
        Async = "async",
    }
}

choice! {
    /// The order in which the processes of a run add their gradients.
    SumsChoice {
        /// The order of the MPI library: inside of each machine first, then between machines.
        #[default]
        Library = "library",
        /// The order of the processes, so that a run of processes has the bits of a run of replicas.
        Ordered = "ordered",
    }
}

choice! {
    /// How many kernels a GPU tries for an operation that meets new sizes.
    TuningChoice {
        /// The fewest: sizes that are close share a choice.
        Minimal = "minimal",
        /// The default of Burn.
        #[default]
        Balanced = "balanced",
        /// More, for closer sizes.
        Extensive = "extensive",
        /// All, for each size.
        Full = "full",
    }
}

choice! {
    /// System whose definition of features is used.
    FeaturePreset {
        /// Plimsoll's own features.
        #[default]
        Plimsoll = "plimsoll",
        /// Plimsoll's features, normalized over the frames with speech, so that pauses change little in the words.
        Spoken = "spoken",
        /// KonkaniVani's features.
        Konkani = "konkani",
        /// ESPnet's features.
        Espnet = "espnet",
        /// NeMo's features.
        Nemo = "nemo",
        /// Whisper's features.
        Whisper = "whisper",
        /// Whisper's features, with silence after the recording, as Whisper hears it in its window.
        WhisperPadded = "whisper-padded",
        /// XTTS's features.
        Xtts = "xtts",
        /// MyXTTS's features, which can be turned back into audio.
        Myxtts = "myxtts",
    }
}

choice! {
    /// Format of numbers in computations, as requested; `auto` is resolved once the device is known.
    PrecisionChoice {
        /// The fastest format that is safe on the device.
        #[default]
        Auto = "auto",
        /// 32 bits everywhere.
        Fp32 = "fp32",
        /// Brain floating point: 16 bits with the range of fp32.
        Bf16 = "bf16",
        /// Half precision: 16 bits with a small range, so that the loss is scaled.
        Fp16 = "fp16",
    }
}

choice! {
    /// Word that selects the blocks that compute their activations again in the backward pass instead of storing them.
    RematWord {
        /// As few blocks as memory allows, chosen for each length of batches.
        #[default]
        Auto = "auto",
        /// Stores the activations of all blocks.
        None = "none",
        /// Computes every second block again.
        Half = "half",
        /// Computes every block again.
        All = "all",
    }
}

/// Blocks that compute their activations again in the backward pass instead of storing them: a word or a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(untagged)]
pub enum RematChoice {
    /// A word.
    Word(RematWord),
    /// The number of blocks, from the first one on.
    Blocks(u32),
}

impl RematChoice {
    /// As few blocks as memory allows, chosen for each length of batches.
    pub const AUTO: Self = Self::Word(RematWord::Auto);
}

impl Default for RematChoice {
    fn default() -> Self {
        Self::AUTO
    }
}

impl std::fmt::Display for RematChoice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Word(word) => word.fmt(f),
            Self::Blocks(blocks) => blocks.fmt(f),
        }
    }
}

choice! {
    /// Schedule of the learning rate after the warm-up.
    ScheduleChoice {
        /// Keeps the rate at `training.learning_rate`.
        Constant = "constant",
        /// Lowers the rate along half a cosine to `training.final_learning_rate`.
        #[default]
        Cosine = "cosine",
        /// Lowers the rate with the inverse square root of the step.
        InverseSqrt = "inverse_sqrt",
        /// The curve of `inverse_sqrt` under its original name; its highest rate is `training.learning_rate`.
        Noam = "noam",
        /// Keeps the rate, and lowers it by a factor whenever validation no longer improves.
        Plateau = "plateau",
    }
}

choice! {
    /// Optimizer that updates the weights.
    OptimizerChoice {
        /// AdamW: each weight has its own step size.
        #[default]
        AdamW = "adamw",
        /// Lion: all weights have the same step size. Half the state of AdamW; needs about a fifth of its learning
        /// rate.
        Lion = "lion",
        /// Stochastic gradient descent with momentum.
        Sgd = "sgd",
    }
}

choice! {
    /// Place and number format of the optimizer's state.
    StateChoice {
        /// fp32: on the device, or in host memory if the run fits only so.
        #[default]
        Auto = "auto",
        /// fp32, on the device.
        Full = "full",
        /// 8 bits, on the device: a quarter of the memory of fp32.
        Eight = "8bit",
        /// fp32, in host memory: takes no device memory, and is slower.
        Host = "host",
    }
}

choice! {
    /// Treatment of an utterance that does not fit into memory even alone.
    UnfitChoice {
        /// Leaves the utterance out of its step, and reports it.
        #[default]
        Skip = "skip",
        /// Stops the run.
        Stop = "stop",
    }
}

choice! {
    /// Position encoding of an encoder.
    PositionsChoice {
        /// Adds sinusoids to the encoder's input.
        #[default]
        Absolute = "absolute",
        /// Attention by the distance between frames.
        Relative = "relative",
        /// Rotates queries and keys by their position.
        Rotary = "rotary",
    }
}

choice! {
    /// Values over which the normalization inside a convolution takes its mean and variance.
    NormChoice {
        /// Normalizes over the channels of a frame.
        #[default]
        Layer = "layer",
        /// Normalizes over groups of channels of an utterance.
        Group = "group",
        /// Normalizes each channel over a batch.
        Batch = "batch",
    }
}

choice! {
    /// Place of the normalization in a decoder block.
    DecoderNormChoice {
        /// Normalizes before each sublayer.
        #[default]
        Pre = "pre",
        /// Normalizes after the residual sum.
        Post = "post",
    }
}

choice! {
    /// Computation of attention over long utterances.
    AttentionChoice {
        /// Exact attention: all frames at once, or a chunk of queries at a time where memory is short.
        #[default]
        Auto = "auto",
        /// Computes attention over all frames at once: memory grows with the square of the length.
        Exact = "exact",
        /// Computes exact attention for a chunk of queries at a time: memory grows with the length.
        Chunked = "chunked",
        /// Cuts long utterances, and counts each cut.
        Truncate = "truncate",
    }
}
