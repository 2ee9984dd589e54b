//! What a person may write: every section and key, with its meaning, type, default and limits, on one page.

use std::ops::Bound::{Excluded, Included};
use std::path::PathBuf;

use plimsoll_core::{Bytes, Seconds};
use serde::{Deserialize, Serialize};

use super::choices::{
    AttentionChoice, BackendChoice, DecoderNormChoice, FeaturePreset, MelLossChoice, NormChoice, NumbersChoice,
    OptimizerChoice, PositionsChoice, PrecisionChoice, RematChoice, Schedule, StateChoice, Task, TokenizerChoice,
    TooLongChoice, UnfitChoice,
};
use super::key::Key;
use super::kind::{Interval, Kind};

/// Writes one section: the struct that serde reads, its defaults, and its rows in the table of keys.
///
/// Three lists of seventy keys would drift apart; one page that says everything about a key cannot.
macro_rules! section {
    (
        $(#[doc = $about:literal])+
        $name:ident, $prefix:literal {
            $($(#[doc = $doc:literal])+ $field:ident: $type:ty = $default:expr, $kind:expr;)+
        }
        $({ $(#[doc = $part_doc:literal] $part:ident: $part_type:ty,)+ })?
    ) => {
        $(#[doc = $about])+
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[serde(default, deny_unknown_fields)]
        pub struct $name {
            $($(#[doc = $doc])+ pub $field: $type,)+
            $($(#[doc = $part_doc] pub $part: $part_type,)+)?
        }

        impl $name {
            /// What the section is for.
            pub(super) const ABOUT: &'static str = concat!($($about),+).trim_ascii();
            /// Its rows in the table of keys.
            pub(super) const KEYS: &'static [Key] = &[$(Key {
                name: concat!($prefix, stringify!($field)),
                about: concat!($($doc),+).trim_ascii(),
                kind: $kind,
            }),+];
        }

        impl Default for $name {
            fn default() -> Self {
                Self {
                    $($field: $default,)+
                    $($($part: Default::default(),)+)?
                }
            }
        }
    };
}

section! {
    /// The run as a whole.
    RunConfig, "" {
        /// Name of the run and of its folder: letters, digits, `-`, `_` and `.`; made up when not given.
        name: Option<String> = None, Kind::Text;
        /// What is learned: speech recognition or text-to-speech.
        task: Task = Task::Asr, Kind::OneOf(Task::WORDS);
        /// Where all randomness starts: the same seed gives the same run.
        seed: u64 = 17, Kind::long_count(0);
        /// The folder that holds the folders of the runs.
        runs_dir: PathBuf = "runs".into(), Kind::Path;
    }
    {
        /// The device that trains.
        device: DeviceConfig,
        /// The utterances and how they become batches.
        data: DataConfig,
        /// The audio features.
        features: FeaturesConfig,
        /// The distortions of a recogniser's training audio.
        augment: AugmentConfig,
        /// The network.
        model: ModelConfig,
        /// The training itself.
        training: TrainingConfig,
    }
}

section! {
    /// The device that trains.
    DeviceConfig, "device." {
        /// Kind of device; `auto` takes the best one that the program was built for and finds.
        backend: BackendChoice = BackendChoice::Auto, Kind::OneOf(BackendChoice::WORDS);
        /// Which of several devices, counted from 0.
        index: u32 = 0, Kind::count(0);
        /// How many train together, each with its part of every batch: CUDA cards from `device.index` on, or, to try it,
        /// replicas that share the CPU.
        replicas: u32 = 1, Kind::Whole(1, 64);
    }
}

section! {
    /// Where the utterances come from and how they become batches.
    DataConfig, "data." {
        /// Corpus to train on, a folder or a list in any layout that `plimsoll data import` reads; without one the built-in
        /// corpus is made under `data.corpus_dir`.
        manifest: Option<PathBuf> = None, Kind::Path;
        /// Where relative paths to audio start, instead of the list's folder.
        audio_root: Option<PathBuf> = None, Kind::Path;
        /// Largest share of utterances that may be unusable (no audio, no text, lines that make no sense, files that turn out
        /// to be broken) before a run stops; up to that they are left out, counted and named.
        unusable_share: f64 = 0.05, Kind::Number(Interval(Included(0.0), Included(1.0)));
        /// Folder of the built-in corpus.
        corpus_dir: PathBuf = "corpus".into(), Kind::Path;
        /// Utterances of the built-in corpus.
        corpus_utterances: u32 = 1600, Kind::count(1);
        /// Voices of the built-in corpus.
        corpus_speakers: u32 = 40, Kind::count(1);
        /// Only so many of the built-in corpus's words, the first of their list; the first ten are the digits.
        corpus_words: Option<u32> = None, Kind::count(1);
        /// Whether the built-in corpus is recorded without rooms and noise, as voices for synthesis are.
        corpus_studio: bool = false, Kind::Switch;
        /// Seed of the built-in corpus, apart from the run's so that runs can share a corpus.
        corpus_seed: u64 = 1, Kind::long_count(0);
        /// Corpus to validate on, in any of these layouts; without one a share of the training utterances is kept back.
        validation_manifest: Option<PathBuf> = None, Kind::Path;
        /// Share of the utterances kept back for validation when there is no list of them.
        validation_share: f64 = 0.1, Kind::Number(Interval(Excluded(0.0), Excluded(0.9)));
        /// Effective batch in utterances, whatever the card; 16 when neither this nor `data.batch_seconds` is given.
        batch_size: Option<u32> = None, Kind::count(1);
        /// Effective batch as audio time; excludes `data.batch_size`.
        batch_seconds: Option<Seconds> = None, Kind::Time(Interval::POSITIVE);
        /// Threads that read and prepare audio; with `auto`, or when not given, one, and another whenever training had to wait for data.
        num_workers: Option<u32> = None, Kind::Whole(1, 1024);
        /// Batches prepared ahead in host memory; with `auto`, or when not given, two for each thread, and up to 16 if training still waits.
        prefetch_buffer_size: Option<u32> = None, Kind::Whole(1, 1024);
        /// Batches arranged by length together: a larger window pads less and shuffles less. A seventh of the epoch when not
        /// given, from 16 to 150.
        shuffle_window: Option<u32> = None, Kind::count(1);
        /// Padded lengths are multiples of this many frames, so that few shapes occur.
        frame_grid: u32 = 16, Kind::count(1);
        /// Most shapes of frames and tokens: lengths are padded to levels drawn from the data, as each new shape is compiled and
        /// tuned for on a GPU. As many as come when not given, which costs a CPU nothing.
        shapes: Option<u32> = None, Kind::count(1);
        /// Shorter utterances are left out and counted.
        min_seconds: Seconds = Seconds(0.1), Kind::Time(Interval::NOT_NEGATIVE);
        /// The longest utterance; `data.too_long` says what becomes of longer ones.
        max_seconds: Seconds = Seconds(30.0), Kind::Time(Interval::POSITIVE);
        /// What becomes of utterances that are longer: they are left out; or cut where it is quiet, or into equal parts, with their
        /// text in proportion; or cut short. Each is counted and named.
        too_long: TooLongChoice = TooLongChoice::Refuse, Kind::OneOf(TooLongChoice::WORDS);
        /// Utterances with longer texts, in characters, are left out and counted.
        max_text_length: Option<u32> = None, Kind::count(1);
        /// How much of another utterance of the same voice a synthesiser hears before it speaks.
        reference_seconds: Seconds = Seconds(2.0), Kind::Time(Interval::POSITIVE);
        /// Host memory for features that are kept between epochs.
        cache_memory: Bytes = Bytes::gib(1), Kind::Memory(Bytes(0));
        /// Folder in which features are kept from one run to the next, for corpora that do not fit into memory; none are kept
        /// when not given. Several runs can share it.
        cache_dir: Option<PathBuf> = None, Kind::Path;
        /// Most that this folder may take; the oldest goes first.
        cache_size: Bytes = Bytes::gib(50), Kind::Memory(Bytes(0));
        /// Whether features in it are rounded to 16 bits, which halves them.
        cache_half: bool = false, Kind::Switch;
        /// Whether texts are put in lower case.
        lowercase: bool = false, Kind::Switch;
        /// How numbers in texts are read: as written, digit by digit, or as the words that say them in English. The model
        /// remembers it, so that whatever it is given later is read alike.
        numbers: NumbersChoice = NumbersChoice::AsWritten, Kind::OneOf(NumbersChoice::WORDS);
        /// What the tokens of a text are: its characters, or pieces of words that are learned from the training texts.
        tokenizer: TokenizerChoice = TokenizerChoice::Characters, Kind::OneOf(TokenizerChoice::WORDS);
        /// Tokens for `data.tokenizer` = `bpe`.
        bpe_size: u32 = 500, Kind::Whole(5, 1_000_000);
        /// Tokens from a file instead: the `model.json` of another model, or a Hugging Face `tokenizer.json` with BPE.
        tokenizer_file: Option<PathBuf> = None, Kind::Path;
    }
}

section! {
    /// How sound becomes the numbers a model sees.
    FeaturesConfig, "features." {
        /// Whose features to compute; the keys below override single numbers of it.
        preset: FeaturePreset = FeaturePreset::Plimsoll, Kind::OneOf(FeaturePreset::WORDS);
        /// Samples a second; audio at another rate is resampled.
        sample_rate: Option<u32> = None, Kind::Whole(1000, 384_000);
        /// Points of the Fourier transform.
        n_fft: Option<u32> = None, Kind::Whole(16, 65_536);
        /// Samples under one window.
        win_length: Option<u32> = None, Kind::Whole(1, 65_536);
        /// Samples from one frame to the next.
        hop_length: Option<u32> = None, Kind::Whole(1, 65_536);
        /// Mel bands of a frame.
        n_mels: Option<u32> = None, Kind::Whole(1, 1024);
    }
}

section! {
    /// How a recogniser's training audio is distorted, so that it does not learn it by heart.
    AugmentConfig, "augment." {
        /// Whether anything below happens.
        enabled: bool = true, Kind::Switch;
        /// Stretches of time blanked in each utterance.
        time_masks: u32 = 2, Kind::count(0);
        /// Longest such stretch, in frames.
        time_mask_frames: u32 = 25, Kind::count(0);
        /// Largest share of an utterance that one such stretch covers.
        time_mask_share: f64 = 0.1, Kind::Number(Interval(Included(0.0), Included(1.0)));
        /// Frequency bands blanked in each utterance.
        frequency_masks: u32 = 2, Kind::count(0);
        /// Widest such band, in mel bands.
        frequency_mask_bins: u32 = 8, Kind::count(0);
        /// Speeds to draw from, 1 being the recording's own.
        speeds: Vec<f64> = vec![1.0], Kind::Numbers(Interval(Included(0.5), Included(2.0)));
        /// Share of utterances that get noise under them; their features are computed anew each time.
        noise_share: f64 = 0.0, Kind::Number(Interval(Included(0.0), Included(1.0)));
        /// How far speech is above that noise at least, in decibels.
        noise_least_db: f64 = 10.0, Kind::Number(Interval(Included(-20.0), Included(100.0)));
        /// And at most.
        noise_most_db: f64 = 30.0, Kind::Number(Interval(Included(-20.0), Included(100.0)));
        /// Utterances become louder or softer by up to so many decibels; where features are normalised it makes no difference.
        gain_db: f64 = 0.0, Kind::Number(Interval(Included(0.0), Included(100.0)));
    }
}

section! {
    /// The size of the network.
    ModelConfig, "model." {
        /// Width of the model; a multiple of `model.attention_heads`.
        d_model: u32 = 96, Kind::Whole(1, 65_536);
        /// Encoder blocks.
        encoder_layers: u32 = 3, Kind::Whole(1, 1024);
        /// Attention heads of each block.
        attention_heads: u32 = 4, Kind::Whole(1, 1024);
        /// Frames under the convolution of each block; odd, so that it has a middle.
        conv_kernel: u32 = 15, Kind::Whole(1, 1023);
        /// Width of the feed-forward layers, in multiples of `model.d_model`.
        feed_forward_multiplier: u32 = 4, Kind::Whole(1, 64);
        /// Frames that become one before the first block: 2, 4 or 8 by convolutions, or 1 to keep every frame.
        subsampling: u32 = 4, Kind::Whole(1, 8);
        /// Channels of the convolutions that reduce the frames.
        subsampling_channels: u32 = 32, Kind::Whole(1, 65_536);
        /// How the encoder knows positions: sinusoids added to its input, distances, or rotations inside attention.
        positions: PositionsChoice = PositionsChoice::Absolute, Kind::OneOf(PositionsChoice::WORDS);
        /// What the norm inside the convolutions looks at; `batch` makes results depend on the micro-batch.
        conv_norm: NormChoice = NormChoice::Layer, Kind::OneOf(NormChoice::WORDS);
        /// Groups of channels for `model.conv_norm` = `group`.
        conv_norm_groups: u32 = 8, Kind::count(1);
        /// Whether the encoder's input is scaled by the root of its width.
        scale_input: bool = true, Kind::Switch;
        /// How attention deals with long utterances; the first two give the same result.
        attention: AttentionChoice = AttentionChoice::Exact, Kind::OneOf(AttentionChoice::WORDS);
        /// Queries that `model.attention` = `chunked` takes at a time.
        attention_chunk: u32 = 64, Kind::count(1);
        /// Frames after subsampling that `model.attention` = `truncate` keeps of an utterance; every cut is counted.
        max_attention_sequence_length: Option<u32> = None, Kind::count(1);
        /// Blocks of the decoder: none for a recogniser when not given, which then learns CTC alone, and 3 for a
        /// synthesiser.
        decoder_layers: Option<u32> = None, Kind::Whole(0, 1024);
        /// Width of the decoder's feed-forward layers, in multiples of `model.d_model`.
        decoder_feed_forward_multiplier: u32 = 4, Kind::Whole(1, 64);
        /// Where the decoder's norms stand: before what they serve, or after the residual.
        decoder_norm: DecoderNormChoice = DecoderNormChoice::Pre, Kind::OneOf(DecoderNormChoice::WORDS);
        /// Share of CTC in the loss of a model with a decoder; cross-entropy has the rest.
        ctc_weight: f64 = 0.3, Kind::Number(Interval(Included(0.0), Included(1.0)));
        /// Share of each label that the decoder's loss spreads over the vocabulary.
        label_smoothing: f64 = 0.1, Kind::Number(Interval::BELOW_ONE);
        /// Width of the outputs, at least the letters of the training texts and four; just these when not given.
        vocabulary: Option<u32> = None, Kind::Whole(5, 1_000_000);
        /// Share of activations dropped in training.
        dropout: f64 = 0.1, Kind::Number(Interval::BELOW_ONE);
        /// Width of a synthesiser's text encoder; `model.d_model` when not given.
        text_encoder_dim: Option<u32> = None, Kind::count(2);
        /// Blocks of a synthesiser's text encoder.
        text_encoder_layers: u32 = 3, Kind::Whole(1, 1024);
        /// Attention heads of a synthesiser's text encoder; `model.attention_heads` when not given.
        text_encoder_heads: Option<u32> = None, Kind::Whole(1, 1024);
        /// Width of a synthesiser's decoder; `model.d_model` when not given.
        decoder_dim: Option<u32> = None, Kind::count(2);
        /// Attention heads of a synthesiser's decoder; `model.attention_heads` when not given.
        decoder_heads: Option<u32> = None, Kind::Whole(1, 1024);
        /// Channels of the convolutions that hear a voice; `model.d_model` when not given.
        audio_encoder_dim: Option<u32> = None, Kind::count(1);
        /// Convolutions that hear a voice.
        audio_encoder_layers: u32 = 3, Kind::Whole(1, 64);
        /// Width of what is known of a speaker.
        speaker_dim: u32 = 64, Kind::count(1);
        /// Styles that a synthesiser learns beside speakers; 0 for none.
        style_tokens: u32 = 10, Kind::count(0);
        /// Width of the layers that hear the last frame; the decoder's when not given.
        prenet_dim: Option<u32> = None, Kind::count(1);
        /// Share of them that is dropped, in training and in synthesis: what is forgotten has to come from the text.
        prenet_dropout: f64 = 0.5, Kind::Number(Interval::BELOW_ONE);
        /// Convolutions that refine the frames; 0 for none.
        postnet_layers: u32 = 3, Kind::Whole(0, 64);
        /// Channels of these; the decoder's width when not given.
        postnet_channels: Option<u32> = None, Kind::count(1);
        /// Frames that a synthesiser says in one step.
        reduction_factor: u32 = 3, Kind::Whole(1, 64);
        /// How far a frame is from the true one.
        mel_loss: MelLossChoice = MelLossChoice::L1, Kind::OneOf(MelLossChoice::WORDS);
        /// How much stopping weighs in the loss beside the frames.
        stop_loss_weight: f64 = 1.0, Kind::Number(Interval::NOT_NEGATIVE);
        /// How much a stop weighs beside going on, which is seen far more often.
        stop_positive_weight: f64 = 5.0, Kind::Number(Interval::POSITIVE);
        /// How much attention off the diagonal weighs in the loss; 0 lets it look where it likes.
        guided_attention_weight: f64 = 1.0, Kind::Number(Interval::NOT_NEGATIVE);
        /// How broad that diagonal is, as a share of the utterance.
        guided_attention_sigma: f64 = 0.2, Kind::Number(Interval(Excluded(0.0), Included(1.0)));
    }
}

section! {
    /// How long to train, in how much memory, how fast.
    TrainingConfig, "training." {
        /// Stops after this many passes over the data; of `epochs`, `steps` and `max_time` the first reached counts.
        epochs: Option<u32> = None, Kind::count(1);
        /// Stops after this many steps.
        steps: Option<u64> = None, Kind::long_count(1);
        /// Stops after this much time.
        max_time: Option<Seconds> = None, Kind::Time(Interval::POSITIVE);
        /// Utterances computed at once; derived from the memory when not given.
        micro_batch: Option<u32> = None, Kind::count(1);
        /// Micro-batches of a step; excludes `training.micro_batch`, and is derived when neither is given.
        gradient_accumulation_steps: Option<u32> = None, Kind::count(1);
        /// Most device memory to use.
        max_memory: Option<Bytes> = None, Kind::Memory(Bytes::mib(1));
        /// Most device memory to use, as a share of what the device has; excludes `training.max_memory`.
        max_memory_fraction: Option<f64> = None, Kind::Number(Interval(Excluded(0.0), Included(1.0)));
        /// What becomes of an utterance that does not fit into memory even alone, with every effort.
        does_not_fit: UnfitChoice = UnfitChoice::Skip, Kind::OneOf(UnfitChoice::WORDS);
        /// Numbers to compute in; `auto` takes the fastest that the device computes safely.
        precision: PrecisionChoice = PrecisionChoice::Auto, Kind::OneOf(PrecisionChoice::WORDS);
        /// Blocks that compute their activations a second time instead of keeping them: less memory for more time.
        remat: RematChoice = RematChoice::None, Kind::OneOf(RematChoice::WORDS);
        /// Highest learning rate, reached at the end of the warm-up.
        learning_rate: f64 = 1.5e-3, Kind::Number(Interval::POSITIVE);
        /// Steps in which the learning rate rises from zero.
        warmup_steps: u64 = 200, Kind::long_count(0);
        /// How the learning rate moves after the warm-up.
        schedule: Schedule = Schedule::Cosine, Kind::OneOf(Schedule::WORDS);
        /// Learning rate that a falling schedule ends at.
        final_learning_rate: f64 = 1e-5, Kind::Number(Interval::NOT_NEGATIVE);
        /// Validations without a better score before `training.schedule` = `plateau` lowers the rate.
        plateau_patience: u32 = 3, Kind::count(1);
        /// What it multiplies the rate by then, down to `training.final_learning_rate`.
        plateau_factor: f64 = 0.5, Kind::Number(Interval(Excluded(0.0), Excluded(1.0)));
        /// Stops after so many validations in a row that found nothing better; never when not given.
        early_stopping: Option<u32> = None, Kind::count(1);
        /// How slowly a mean of the weights follows them, such as 0.999; it is what is validated and kept. None when not given.
        ema_decay: Option<f64> = None, Kind::Number(Interval(Excluded(0.0), Excluded(1.0)));
        /// Parts of the model that keep their values, by the beginnings of their parameters' names; `plimsoll model info`
        /// names the parts.
        freeze: Vec<String> = Vec::new(), Kind::Texts;
        /// How parameters move against their gradient.
        optimizer: OptimizerChoice = OptimizerChoice::AdamW, Kind::OneOf(OptimizerChoice::WORDS);
        /// Where and in what numbers the optimizer keeps what it remembers of each parameter.
        optimizer_state: StateChoice = StateChoice::Full, Kind::OneOf(StateChoice::WORDS);
        /// Momentum of stochastic gradient descent.
        momentum: f64 = 0.9, Kind::Number(Interval::BELOW_ONE);
        /// Weight decay: of AdamW and Lion apart from the gradient, of stochastic gradient descent as PyTorch has it.
        weight_decay: f64 = 0.01, Kind::Number(Interval::NOT_NEGATIVE);
        /// First momentum of AdamW.
        beta_1: f64 = 0.9, Kind::Number(Interval::BELOW_ONE);
        /// Second momentum of AdamW.
        beta_2: f64 = 0.98, Kind::Number(Interval::BELOW_ONE);
        /// Keeps AdamW from dividing by zero.
        epsilon: f64 = 1e-8, Kind::Number(Interval::POSITIVE);
        /// Largest norm of a step's whole gradient; a longer one is scaled down.
        clip_norm: f64 = 5.0, Kind::Number(Interval::POSITIVE);
        /// Steps from one validation to the next; 0 validates after each epoch.
        validation_interval: u64 = 0, Kind::long_count(0);
        /// Held-out sentences that a synthesiser says into files at each validation, with pictures.
        samples: u32 = 3, Kind::count(0);
        /// Steps from one checkpoint to the next.
        checkpoint_interval: u64 = 200, Kind::long_count(1);
        /// Checkpoints kept, the newest ones.
        keep_checkpoints: u32 = 3, Kind::count(1);
        /// Checkpoints kept beside them for their scores, the best ones.
        keep_best: u32 = 1, Kind::count(1);
        /// Steps from one line of the log to the next.
        log_interval: u64 = 10, Kind::long_count(1);
    }
}

impl DataConfig {
    /// Utterances of an effective batch when neither `batch_size` nor `batch_seconds` is given.
    pub const UTTERANCES: u32 = 16;

    /// The effective batch in utterances, or nothing where it is counted in seconds.
    pub fn effective_utterances(&self) -> Option<u32> {
        match self.batch_seconds {
            Some(_) => None,
            None => Some(self.batch_size.unwrap_or(Self::UTTERANCES)),
        }
    }
}
