//! The words a configuration may choose from: tasks, backends, presets, precisions, schedules.

use serde::{Deserialize, Serialize};

/// Writes an enum whose variants are words of the configuration, so that a word stands in one place only.
macro_rules! words {
    ($(#[$about:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident = $word:literal,)+ }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
        pub enum $name {
            $($(#[$doc])* #[serde(rename = $word)] $variant,)+
        }

        impl $name {
            /// Every word, in the order of the documentation.
            pub const WORDS: &'static [&'static str] = &[$($word),+];

            /// The word a configuration writes.
            pub fn word(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)+
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.word())
            }
        }
    };
}

words! {
    /// What is learned.
    Task {
        /// Speech recognition: from sound to text.
        #[default]
        Asr = "asr",
        /// Text-to-speech: from text to sound.
        Tts = "tts",
    }
}

words! {
    /// What the tokens of a text are.
    TokenizerChoice {
        /// Its characters.
        #[default]
        Characters = "char",
        /// Pieces of words, learned from the texts.
        Bpe = "bpe",
    }
}

words! {
    /// How numbers in texts are read.
    NumbersChoice {
        /// Digit by digit.
        #[default]
        AsWritten = "as_written",
        /// As the words that say them in English.
        English = "english",
    }
}

words! {
    /// What becomes of utterances that are too long.
    TooLongChoice {
        /// They are left out and counted.
        #[default]
        Refuse = "refuse",
        /// They are cut where it is quiet, their text by how long there is sound.
        Split = "split",
        /// They are cut into equal parts, their text as well.
        Chunk = "chunk",
        /// What is too much is cut off, with about as much text.
        Truncate = "truncate",
    }
}

words! {
    /// How far a frame is from the true one.
    MelLossChoice {
        /// The absolute difference.
        #[default]
        L1 = "l1",
        /// Half its square below one, the absolute difference above.
        Huber = "huber",
    }
}

words! {
    /// The kind of device that trains.
    BackendChoice {
        /// The best one that this program was built for and finds.
        #[default]
        Auto = "auto",
        /// The processor.
        Cpu = "cpu",
        /// An NVIDIA card through CUDA.
        Cuda = "cuda",
        /// Any card through WebGPU.
        Wgpu = "wgpu",
    }
}

words! {
    /// Whose audio features to compute.
    FeaturePreset {
        /// Our own.
        #[default]
        Plimsoll = "plimsoll",
        /// Those of KonkaniVani.
        Konkani = "konkani",
        /// Those of ESPnet.
        Espnet = "espnet",
        /// Those of NeMo.
        Nemo = "nemo",
        /// Those of Whisper.
        Whisper = "whisper",
        /// Those of XTTS.
        Xtts = "xtts",
        /// Those of MyXTTS.
        Myxtts = "myxtts",
    }
}

words! {
    /// The numbers to train in, as asked for: `auto` is settled when the device is known.
    PrecisionChoice {
        /// The fastest that the device computes safely.
        #[default]
        Auto = "auto",
        /// 32 bits everywhere.
        Fp32 = "fp32",
        /// 16 bits with the range of fp32.
        Bf16 = "bf16",
        /// 16 bits with a small range, under a loss scale.
        Fp16 = "fp16",
    }
}

words! {
    /// Which blocks compute their activations a second time instead of keeping them.
    RematChoice {
        /// None: everything is kept.
        #[default]
        None = "none",
        /// Every second block.
        Half = "half",
        /// Every block.
        All = "all",
    }
}

words! {
    /// How the learning rate moves after the warm-up.
    Schedule {
        /// It stays.
        Constant = "constant",
        /// It falls along half a cosine to the final rate.
        #[default]
        Cosine = "cosine",
        /// It falls with the square root of the steps.
        InverseSqrt = "inverse_sqrt",
        /// The same curve by the name of its first user; its highest rate is `training.learning_rate`.
        Noam = "noam",
        /// It stays, and falls whenever validations no longer get better.
        Plateau = "plateau",
    }
}

words! {
    /// How parameters move against their gradient.
    OptimizerChoice {
        /// AdamW: each value at a speed of its own.
        #[default]
        AdamW = "adamw",
        /// Lion: every value at the same speed, with half of AdamW's state; it wants about a fifth of its learning rate.
        Lion = "lion",
        /// Stochastic gradient descent with momentum.
        Sgd = "sgd",
    }
}

words! {
    /// Where and in what numbers an optimizer keeps what it remembers.
    StateChoice {
        /// In fp32, on the device.
        #[default]
        Full = "full",
        /// In 8 bits, on the device: a quarter of the memory.
        Eight = "8bit",
        /// In fp32 in host memory: nothing on a card, and slower.
        Host = "host",
    }
}

words! {
    /// What becomes of an utterance that does not fit into memory alone, whatever is tried.
    UnfitChoice {
        /// It is left out of its step, and told.
        #[default]
        Skip = "skip",
        /// The run stops.
        Stop = "stop",
    }
}

words! {
    /// How an encoder knows positions.
    PositionsChoice {
        /// Sinusoids are added to the input.
        #[default]
        Absolute = "absolute",
        /// Attention knows the distance of every two frames.
        Relative = "relative",
        /// Queries and keys are rotated by their place.
        Rotary = "rotary",
    }
}

words! {
    /// What the norm inside a convolution takes its mean and variance over.
    NormChoice {
        /// The channels of a frame.
        #[default]
        Layer = "layer",
        /// Groups of channels over an utterance.
        Group = "group",
        /// Each channel over a batch.
        Batch = "batch",
    }
}

words! {
    /// Where the norms of a decoder stand.
    DecoderNormChoice {
        /// Before what they serve.
        #[default]
        Pre = "pre",
        /// After the residual.
        Post = "post",
    }
}

words! {
    /// How attention deals with long utterances.
    AttentionChoice {
        /// Everything at once: memory grows with the square of the length.
        #[default]
        Exact = "exact",
        /// The same result from a chunk of queries at a time: memory grows with the length.
        Chunked = "chunked",
        /// Utterances are cut, and every cut is counted.
        Truncate = "truncate",
    }
}
