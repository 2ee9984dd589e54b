//! The cases of `memtest --verify`.

use std::num::NonZeroU32;

use plimsoll_core::{Choice, Key, Precision, Remat};
use plimsoll_recipes::families::ModelPlan;
use plimsoll_speech::asr::{DecoderConfig, RecognizerConfig};
use plimsoll_speech::audio::{LogMelConfig, MelAxis};
use plimsoll_speech::tts::{ParallelConfig, SynthesizerConfig};
use plimsoll_speech::vocoder::{VocoderConfig, VocoderTaskConfig};
use plimsoll_speech::whisper::WhisperConfig;
use plimsoll_tape::lora::{Lora, TrainedParts};
use serde::{Deserialize, Serialize};

use super::case::MICRO_BATCHES;

/// Case of `memtest --verify`: a model, the shape of its micro-batches, and the settings of their computation.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Case {
    pub(super) name: String,
    pub(super) model: Model,
    /// Parts of the model that are trained.
    pub(super) parts: TrainedParts,
    /// Number of utterances, frames and tokens of a micro-batch.
    pub(super) shape: (u32, u32, u32),
    pub(super) choice: Choice,
    /// Number of micro-batches per step.
    pub(super) micro_batches: u32,
}

/// A [`ModelPlan`] that a process can read again: in JSON it has the name of its kind.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Model {
    Recognizer(RecognizerConfig),
    Whisper(WhisperConfig),
    Synthesizer(SynthesizerConfig),
    Parallel(ParallelConfig),
    Vocoder(VocoderTaskConfig),
}

impl From<ModelPlan> for Model {
    fn from(plan: ModelPlan) -> Self {
        match plan {
            ModelPlan::Recognizer(model) => Self::Recognizer(model),
            ModelPlan::Whisper(model) => Self::Whisper(model),
            ModelPlan::Synthesizer(model) => Self::Synthesizer(model),
            ModelPlan::Parallel(model) => Self::Parallel(model),
            ModelPlan::Vocoder(model) => Self::Vocoder(model),
        }
    }
}

impl Model {
    /// Returns the plan of the model.
    pub(super) fn plan(&self) -> ModelPlan {
        match self.clone() {
            Self::Recognizer(model) => ModelPlan::Recognizer(model),
            Self::Whisper(model) => ModelPlan::Whisper(model),
            Self::Synthesizer(model) => ModelPlan::Synthesizer(model),
            Self::Parallel(model) => ModelPlan::Parallel(model),
            Self::Vocoder(model) => ModelPlan::Vocoder(model),
        }
    }
}

/// Levels of rematerialization in the matrix.
const REMATS: [Remat; 3] = [Remat::None, Remat::Half, Remat::All];

/// Lists the cases: each kind of model in three sizes, two shapes (a vocoder in one) and four choices, which are levels of
/// rematerialization, attention whole and in chunks, fp32 and bf16; and each kind with frozen parts and with adapters.
pub(super) fn matrix() -> Vec<Case> {
    let mut cases = Vec::new();
    let choices = |offset: usize| {
        let chunk = |on: bool| if on { NonZeroU32::new(32) } else { None };
        let precision = |low: bool| if low { Precision::Bf16 } else { Precision::Fp32 };
        [0, 1, 2, 3].map(|index| Choice {
            remat: REMATS[(index + offset) % 3],
            attention_chunk: chunk((index + offset / 2) % 2 == 1),
            precision: precision(index == 3),
        })
    };
    for (size, (width, layers)) in [(96, 3), (128, 4), (192, 6)].into_iter().enumerate() {
        for (batch, (utterances, frames, tokens)) in [(3, 500, 40), (8, 260, 22)].into_iter().enumerate() {
            for choice in choices(size + batch) {
                let model = Model::Recognizer(recognizer(width, layers, 100));
                let name = format!("asr {width}/{layers}");
                cases.push(Case {
                    name,
                    model,
                    parts: TrainedParts::default(),
                    shape: (utterances, frames, tokens),
                    choice,
                    micro_batches: MICRO_BATCHES,
                });
                let (name, model) = (format!("whisper {width}/{layers}"), Model::Whisper(whisper(width, layers)));
                let shape = (utterances, frames, tokens);
                cases.push(Case {
                    name,
                    model,
                    parts: TrainedParts::default(),
                    shape,
                    choice,
                    micro_batches: MICRO_BATCHES,
                });
                let model = Model::Synthesizer(SynthesizerConfig::recommended(80, 100, width, layers));
                let name = format!("tts {width}/{layers}");
                cases.push(Case {
                    name,
                    model,
                    parts: TrainedParts::default(),
                    shape: (utterances, frames, tokens),
                    choice,
                    micro_batches: MICRO_BATCHES,
                });
                let model = Model::Parallel(ParallelConfig::recommended(80, 100, width, layers));
                let (name, shape) = (format!("parallel tts {width}/{layers}"), (utterances, frames, tokens));
                cases.push(Case {
                    name,
                    model,
                    parts: TrainedParts::default(),
                    shape,
                    choice,
                    micro_batches: MICRO_BATCHES,
                });
            }
        }
        // A vocoder has no attention.
        for choice in choices(size).map(|choice| Choice { attention_chunk: None, ..choice }) {
            cases.push(vocoder_case(width, layers, choice));
        }
    }
    cases.extend(frozen_cases());
    cases.extend(adapted_cases());
    cases
}

/// Parts that are frozen in cases, for each kind of model: what is computed first, what is computed last, and nearly all.
const FROZEN: [(&str, [&[&str]; 3]); 5] = [
    ("asr", [&["subsampling", "blocks.0", "blocks.1"], &["decoder", "output"], &["subsampling", "blocks"]]),
    ("whisper", [&["encoder"], &["decoder.blocks"], &["encoder", "decoder.embedding"]]),
    ("tts", [&["text", "voice"], &["decoder.blocks", "postnet"], &["text", "voice", "decoder"]]),
    ("parallel tts", [&["embedding", "text_blocks", "voice"], &["frame_blocks"], &["text_blocks", "frame_blocks"]]),
    ("vocoder", [&["vocoder.embedding", "vocoder.blocks.0"], &["discriminators"], &["vocoder.blocks"]]),
];

/// Lists cases of each kind of model with frozen parts.
fn frozen_cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (kind, frozen) in FROZEN {
        for (parts, remat) in frozen.into_iter().zip(REMATS).chain(frozen.into_iter().rev().zip(REMATS)) {
            let choice = Choice { remat, ..Choice::default() };
            let (shape, model) = small_case(kind);
            let (name, frozen) = (format!("{kind} frozen {}", parts.join(" ")), parts.iter().map(ToString::to_string));
            let parts = TrainedParts { frozen: frozen.collect(), ..TrainedParts::default() };
            cases.push(Case { name, model, parts, shape, choice, micro_batches: MICRO_BATCHES });
        }
    }
    cases
}

/// Lists cases of each kind of model with adapters: beside all linear layers, and beside some, with a part that is trained besides.
fn adapted_cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (kind, targets, also) in [
        ("asr", "blocks.*.attention", "output"),
        ("whisper", "attention.project", "decoder.positions"),
        ("tts", "decoder.*", "postnet"),
        ("parallel tts", "*_blocks.*", "output"),
        ("vocoder", "vocoder.blocks", "vocoder.phase"),
    ] {
        for remat in REMATS {
            for is_whole in [true, false] {
                let list = |name: &str| if is_whole { Vec::new() } else { vec![name.to_owned()] };
                let rank = if is_whole { 4 } else { 8 };
                let lora = Lora { rank, alpha: 8.0, targets: list(targets), also: list(also) };
                let parts = TrainedParts { lora: Some(lora), ..TrainedParts::default() };
                let ((shape, model), choice) = (small_case(kind), Choice { remat, ..Choice::default() });
                let name = format!("{kind} adapters of rank {rank}");
                cases.push(Case { name, model, parts, shape, choice, micro_batches: MICRO_BATCHES });
            }
        }
    }
    cases
}

/// Returns the shape and the model of a small case of a kind of model.
fn small_case(kind: &str) -> ((u32, u32, u32), Model) {
    let vocoder = vocoder_case(96, 3, Choice::default());
    match kind {
        "asr" => ((6, 260, 22), Model::Recognizer(recognizer(96, 3, 100))),
        "whisper" => ((6, 260, 22), Model::Whisper(whisper(96, 3))),
        "tts" => ((6, 260, 22), Model::Synthesizer(SynthesizerConfig::recommended(80, 100, 96, 3))),
        "vocoder" => (vocoder.shape, vocoder.model),
        _ => ((6, 260, 22), Model::Parallel(ParallelConfig::recommended(80, 100, 96, 3))),
    }
}

/// Makes the case of a vocoder that learns from crops of half a second.
fn vocoder_case(width: usize, layers: usize, choice: Choice) -> Case {
    let features = LogMelConfig {
        sample_rate: 16_000,
        win_length: 800,
        hop_length: 200,
        ..LogMelConfig::preset("myxtts").expect("a known preset")
    };
    let task = VocoderTaskConfig::recommended(features);
    let vocoder = VocoderConfig { dim: width, layers, ..task.vocoder.clone() };
    let (model, shape) = (Model::Vocoder(VocoderTaskConfig { vocoder, ..task.clone() }), (4, task.crop as u32, 1));
    Case {
        name: format!("vocoder {width}/{layers}"),
        model,
        parts: TrainedParts::default(),
        shape,
        choice,
        micro_batches: MICRO_BATCHES,
    }
}

/// Lists the cases for a GPU. They are fewer, because the GPU backend can be a CPU with a software driver.
pub(super) fn gpu_cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (size, (width, layers)) in [(96, 3), (160, 4)].into_iter().enumerate() {
        let models = [
            ("asr", Model::Recognizer(recognizer(width, layers, 100))),
            ("whisper", Model::Whisper(whisper(width, layers))),
            ("tts", Model::Synthesizer(SynthesizerConfig::recommended(80, 100, width, layers))),
            ("parallel tts", Model::Parallel(ParallelConfig::recommended(80, 100, width, layers))),
        ];
        for (kind, model) in models {
            for (index, remat) in REMATS.into_iter().enumerate() {
                let (utterances, frames, tokens) = [(4, 320, 24), (8, 200, 16)][(index + size) % 2];
                let attention_chunk = NonZeroU32::new([0, 32][index % 2]);
                let choice = Choice { remat, attention_chunk, ..Choice::default() };
                let (name, model) = (format!("{kind} {width}/{layers}"), model.clone());
                cases.push(Case {
                    name,
                    model,
                    parts: TrainedParts::default(),
                    shape: (utterances, frames, tokens),
                    choice,
                    micro_batches: MICRO_BATCHES,
                });
            }
        }
        for remat in REMATS {
            cases.push(vocoder_case(width, layers, Choice { remat, ..Choice::default() }));
        }
    }
    cases
}

/// Returns a recognizer of this width and number of layers, with fewer subsampling channels than `recommended` to stay
/// small.
fn recognizer(width: usize, layers: usize, vocabulary: usize) -> RecognizerConfig {
    let config = RecognizerConfig::recommended(width, layers, layers / 2, vocabulary);
    RecognizerConfig { subsampling_channels: width.min(128), ..config }
}

/// Returns a Whisper model of this width and number of layers, with a window of 6 s and few tokens to stay small.
fn whisper(width: usize, layers: usize) -> WhisperConfig {
    let tiny = WhisperConfig::named("tiny").expect("a published size");
    WhisperConfig {
        vocabulary: 600,
        d_model: width,
        heads: 4,
        encoder_layers: layers,
        decoder_layers: layers,
        positions: 300,
        text_positions: 64,
        ..tiny
    }
}

/// Makes cases of random sizes, equal in every run.
pub(super) fn random_cases(count: u32) -> Vec<Case> {
    let case = |index: u32| {
        let key = Key::new(2026).at(u64::from(index));
        let draw = |name: &str, from: u64, to: u64| from + key.with(name).below(to - from + 1);
        let width = 16 * draw("width", 5, 14) as usize;
        let layers = draw("layers", 2, 8) as usize;
        let (utterances, frames) = (draw("utterances", 2, 9) as u32, draw("frames", 150, 700) as u32);
        let tokens = draw("tokens", 5, u64::from(frames / 8)) as u32;
        let choice = Choice {
            remat: REMATS[draw("remat", 0, 2) as usize],
            attention_chunk: NonZeroU32::new([0, 24, 48][draw("chunk", 0, 2) as usize]),
            precision: [Precision::Fp32, Precision::Bf16][draw("precision", 0, 1) as usize],
        };
        let shape = (utterances, frames, tokens);
        let vocabulary = draw("vocabulary", 30, 900) as usize;
        if index % 3 == 2 {
            let many_voices = draw("links", 0, 1) == 1;
            let axis = LogMelConfig::preset("myxtts").map(|features| MelAxis::of(&features));
            let model = Model::Parallel(ParallelConfig {
                decoder_kernel: 1 + 2 * draw("kernel", 1, 8) as usize,
                voice_links: many_voices,
                prosody_dim: if many_voices { 6 } else { 0 },
                pitch: axis.filter(|_| many_voices),
                pitch_harmonics: many_voices && draw("harmonics", 0, 1) == 1,
                ..ParallelConfig::recommended(80, vocabulary, width, layers)
            });
            let name = format!("parallel tts {width}/{layers}");
            return Case { name, model, parts: TrainedParts::default(), shape, choice, micro_batches: MICRO_BATCHES };
        }
        if index.is_multiple_of(2) {
            let config = recognizer(width, layers, vocabulary);
            let decoder = config.decoder.map(|decoder| DecoderConfig { layers: 1 + layers / 3, ..decoder });
            let kernel = 1 + 2 * draw("kernel", 2, 15) as usize;
            let model = Model::Recognizer(RecognizerConfig { decoder, kernel, ..config });
            return Case {
                name: format!("asr {width}/{layers}"),
                model,
                parts: TrainedParts::default(),
                shape,
                choice,
                micro_batches: MICRO_BATCHES,
            };
        }
        let config = SynthesizerConfig::recommended(80, vocabulary, width, layers);
        let config = SynthesizerConfig {
            reduction: draw("reduction", 1, 4) as usize,
            postnet_layers: [0, 2, 3, 5][draw("postnet", 0, 3) as usize],
            ..config
        };
        let model = Model::Synthesizer(config);
        Case {
            name: format!("tts {width}/{layers}"),
            model,
            parts: TrainedParts::default(),
            shape,
            choice,
            micro_batches: MICRO_BATCHES,
        }
    };
    (0..count).map(case).collect()
}

/// Makes cases of random sizes for a GPU, equal in every run. They are larger than those for the CPU, and of any width.
pub(super) fn random_gpu_cases(count: u32) -> Vec<Case> {
    let case = |index: u32| {
        let key = Key::new(2027).at(u64::from(index));
        let draw = |name: &str, from: u64, to: u64| from + key.with(name).below(to - from + 1);
        let width = 64 << draw("width", 0, 4);
        let layers = draw("layers", 2, 8) as usize;
        let (utterances, frames) = (draw("utterances", 1, 33) as u32, draw("frames", 64, 1600) as u32);
        let tokens = draw("tokens", 5, u64::from(frames / 8).max(6)) as u32;
        let choice = Choice {
            remat: REMATS[draw("remat", 0, 2) as usize],
            attention_chunk: NonZeroU32::new([0, 0, 64, 100][draw("chunk", 0, 3) as usize]),
            precision: [Precision::Fp32, Precision::Bf16, Precision::Fp16][draw("precision", 0, 2) as usize],
        };
        let vocabulary = draw("vocabulary", 30, 1200) as usize;
        let (kind, model) = match index % 3 {
            0 => ("asr", Model::Recognizer(RecognizerConfig::recommended(width, layers, layers / 2, vocabulary))),
            1 => ("tts", Model::Synthesizer(SynthesizerConfig::recommended(80, vocabulary, width, layers))),
            _ => ("parallel tts", Model::Parallel(ParallelConfig::recommended(80, vocabulary, width, layers))),
        };
        let (name, shape) = (format!("{kind} {width}/{layers}"), (utterances, frames, tokens));
        Case { name, model, parts: TrainedParts::default(), shape, choice, micro_batches: MICRO_BATCHES }
    };
    (0..count).map(case).collect()
}
