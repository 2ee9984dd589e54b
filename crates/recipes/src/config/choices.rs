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

            /// The word that selects this variant in a configuration.
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
    /// What a model is trained for.
    Task {
        /// Speech recognition: audio to text.
        #[default]
        Asr = "asr",
        /// Text-to-speech: text to audio.
        Tts = "tts",
    }
}

choice! {
    /// The tokens of a text.
    TokenizerChoice {
        /// Each character is a token.
        #[default]
        Characters = "char",
        /// Byte-pair encoding: parts of words, learned from the training texts.
        Bpe = "bpe",
    }
}

choice! {
    /// How numbers in texts are read.
    NumbersChoice {
        /// Digit by digit, each digit a character like others.
        #[default]
        AsWritten = "as_written",
        /// Replaced by English words.
        English = "english",
    }
}

choice! {
    /// What happens to utterances that are longer than `data.max_seconds`.
    TooLongChoice {
        /// They are left out and counted.
        #[default]
        Refuse = "refuse",
        /// They are cut at silences, and their text in proportion to the sound in each part.
        Split = "split",
        /// They are cut into equal parts, and so is their text.
        Chunk = "chunk",
        /// Their end is dropped, and the same share of their text.
        Truncate = "truncate",
    }
}

choice! {
    /// The loss between a predicted frame and the true one.
    MelLossChoice {
        /// The absolute difference.
        #[default]
        L1 = "l1",
        /// The Huber loss: half the squared difference below 1, the absolute difference minus a half above.
        Huber = "huber",
    }
}

choice! {
    /// The backend to compute with.
    BackendChoice {
        /// CUDA if the program was built with it, otherwise the CPU.
        #[default]
        Auto = "auto",
        /// The CPU.
        Cpu = "cpu",
        /// An NVIDIA GPU through CUDA.
        Cuda = "cuda",
        /// Any GPU through WebGPU.
        Wgpu = "wgpu",
    }
}

choice! {
    /// The system whose definition of features is used.
    FeaturePreset {
        /// Plimsoll's own features.
        #[default]
        Plimsoll = "plimsoll",
        /// KonkaniVani's features.
        Konkani = "konkani",
        /// ESPnet's features.
        Espnet = "espnet",
        /// NeMo's features.
        Nemo = "nemo",
        /// Whisper's features.
        Whisper = "whisper",
        /// XTTS's features.
        Xtts = "xtts",
        /// MyXTTS's features, which can be turned back into audio.
        Myxtts = "myxtts",
    }
}

choice! {
    /// The number format to compute in, as requested; `auto` is resolved once the device is known.
    PrecisionChoice {
        /// The fastest format that is safe on the device.
        #[default]
        Auto = "auto",
        /// 32 bits everywhere.
        Fp32 = "fp32",
        /// 16 bits with the range of fp32.
        Bf16 = "bf16",
        /// 16 bits with a small range, so that the loss is scaled.
        Fp16 = "fp16",
    }
}

choice! {
    /// The blocks that compute their activations again in the backward pass and do not store them.
    RematChoice {
        /// No block: all activations are stored.
        #[default]
        None = "none",
        /// Every second block.
        Half = "half",
        /// Every block.
        All = "all",
    }
}

choice! {
    /// How the learning rate changes after the warm-up.
    ScheduleChoice {
        /// It stays at `training.learning_rate`.
        Constant = "constant",
        /// It falls along half a cosine to `training.final_learning_rate`.
        #[default]
        Cosine = "cosine",
        /// It falls with the inverse square root of the step.
        InverseSqrt = "inverse_sqrt",
        /// The curve of `inverse_sqrt` under its original name; its highest rate is `training.learning_rate`.
        Noam = "noam",
        /// It stays constant, and falls by a factor whenever validation no longer improves.
        Plateau = "plateau",
    }
}

choice! {
    /// The optimizer.
    OptimizerChoice {
        /// AdamW: each weight has its own step size.
        #[default]
        AdamW = "adamw",
        /// Lion: all weights have the same step size. Half the state of AdamW; needs about a fifth of its learning rate.
        Lion = "lion",
        /// Stochastic gradient descent with momentum.
        Sgd = "sgd",
    }
}

choice! {
    /// Where the optimizer keeps its state, and in which number format.
    StateChoice {
        /// In fp32, on the device.
        #[default]
        Full = "full",
        /// In 8 bits, on the device: a quarter of the memory.
        Eight = "8bit",
        /// In fp32, in host memory: takes no device memory, and is slower.
        Host = "host",
    }
}

choice! {
    /// What happens to an utterance that does not fit into memory even alone.
    UnfitChoice {
        /// It is left out of its step, and reported.
        #[default]
        Skip = "skip",
        /// The run stops.
        Stop = "stop",
    }
}

choice! {
    /// How an encoder represents positions.
    PositionsChoice {
        /// Sinusoids are added to its input.
        #[default]
        Absolute = "absolute",
        /// Attention uses the distance between frames.
        Relative = "relative",
        /// Queries and keys are rotated by their position.
        Rotary = "rotary",
    }
}

choice! {
    /// What the normalization inside a convolution takes its mean and variance over.
    NormChoice {
        /// The channels of a frame.
        #[default]
        Layer = "layer",
        /// Groups of channels of an utterance.
        Group = "group",
        /// Each channel over a batch.
        Batch = "batch",
    }
}

choice! {
    /// The place of a decoder's normalization.
    DecoderNormChoice {
        /// Before each sublayer.
        #[default]
        Pre = "pre",
        /// After the residual sum.
        Post = "post",
    }
}

choice! {
    /// How attention is computed over long utterances.
    AttentionChoice {
        /// All at once: memory grows with the square of the length.
        #[default]
        Exact = "exact",
        /// The same result, computed for a chunk of queries at a time: memory grows with the length.
        Chunked = "chunked",
        /// Long utterances are cut, and each cut is counted.
        Truncate = "truncate",
    }
}
