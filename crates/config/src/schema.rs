//! Every section and key of a configuration, with its meaning, type, default and limits.

/// Defines one section from one list: the struct that serde reads, its defaults, and its rows in the table of keys.
///
/// A doc comment of a key is its help text: `config print` and docs/configuration.md show it. It ends with a full stop and
/// has no `|`, which would end a cell of the Markdown table.
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
            /// Help text of the section.
            pub(crate) const ABOUT: &'static str = concat!($($about),+).trim_ascii();
            /// Rows of the section in the table of keys.
            pub(crate) const KEYS: &'static [Key] = &[$(Key {
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

mod data;
mod model;
mod training;

use std::ops::Bound::Included;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::choices::{BackendChoice, CudaAllocatorChoice, FeaturePreset, PersistentMemoryChoice, Task, TuningChoice};
use super::key::Key;
use super::kind::{Interval, Kind};

pub use data::DataConfig;
pub use model::ModelConfig;
pub use training::TrainingConfig;

section! {
    /// Keys of the whole run.
    RunConfig, "" {
        /// Name of the run and of its folder: letters, digits, `-`, `_` and `.`. Default: the task and the first free
        /// number, such as `asr-1`.
        name: Option<String> = None, Kind::Text;
        /// What to train: `asr` (speech recognition), `tts` (text-to-speech) or `vocoder` (sound from log-mels).
        task: Task = Task::Asr, Kind::OneOf(Task::NAMES);
        /// Seed of all random numbers. On the same machine the same seed gives the same run.
        seed: u64 = 17, Kind::long_count(0);
        /// Folder for runs: each run has a folder of its own in it.
        runs_dir: PathBuf = "runs".into(), Kind::Path;
    }
    {
        /// The device that trains.
        device: DeviceConfig,
        /// The utterances and how they become batches.
        data: DataConfig,
        /// The audio features.
        features: FeaturesConfig,
        /// The random changes to a recognizer's training audio.
        augment: AugmentConfig,
        /// The model.
        model: ModelConfig,
        /// The training.
        training: TrainingConfig,
    }
}

impl RunConfig {
    /// Returns the effective batch size in utterances, the data of one optimizer step; `None` if it is given as audio time.
    ///
    /// With `training.gradient_accumulation_steps`, a step has that many micro-batches of `data.batch_size` utterances.
    pub fn effective_utterances(&self) -> Option<u32> {
        let micro_batches = self.training.gradient_accumulation_steps.unwrap_or(1);
        self.data.written_batch_size().map(|utterances| utterances.saturating_mul(micro_batches))
    }

    /// Returns the size of a micro-batch in utterances, if the configuration fixes it.
    pub fn fixed_micro_batch(&self) -> Option<u32> {
        let accumulated = self.training.gradient_accumulation_steps.and(self.data.written_batch_size());
        self.training.micro_batch.or(accumulated)
    }

    /// Returns whether the configuration limits the memory of the run.
    pub fn limits_memory(&self) -> bool {
        self.training.max_memory.is_some() || self.training.max_memory_fraction.is_some()
    }
}

section! {
    /// The device that trains.
    DeviceConfig, "device." {
        /// Backend to compute with. `auto` is `cuda` if the program was built with CUDA, otherwise `cpu`.
        backend: BackendChoice = BackendChoice::Auto, Kind::OneOf(BackendChoice::NAMES);
        /// Number of the device, counted from 0, if there are several.
        index: u32 = 0, Kind::count(0);
        /// Number of devices that train together, each on its share of every batch: the CUDA GPUs from `device.index` on. On
        /// the CPU all replicas share the processor, which is only useful to try this out.
        replicas: u32 = 1, Kind::Integer(1, 64);
        /// Use of the pool for lasting tensors on a GPU: `enabled` (only for tensors that ask for it), `size-match` (also for
        /// tensors as large as one of those) or `disabled`. A plan of memory assumes `enabled`.
        persistent_memory: PersistentMemoryChoice = PersistentMemoryChoice::Enabled,
            Kind::OneOf(PersistentMemoryChoice::NAMES);
        /// Way in which pools take memory from the CUDA driver: `sync` (in step with the GPU's work) or `async` (without
        /// waiting; the driver may keep more memory). A plan of memory assumes `sync`.
        cuda_allocator: CudaAllocatorChoice = CudaAllocatorChoice::Sync, Kind::OneOf(CudaAllocatorChoice::NAMES);
        /// How many kernels a GPU tries when an operation meets new sizes: `minimal` (starts fastest), `balanced`, `extensive` or
        /// `full`. The fastest kernel is used from then on. Only a program that was built with the feature `tuning` tries
        /// kernels; that takes minutes at the first start.
        tuning: TuningChoice = TuningChoice::Balanced, Kind::OneOf(TuningChoice::NAMES);
        /// Whether compiled kernels of a GPU are kept on disk. A second start then takes seconds.
        /// They are in `plimsoll/kernels` in the cache folder of the user; `doctor` shows the file.
        kernel_cache: bool = true, Kind::Bool;
    }
}

section! {
    /// How audio becomes features: the log-mel frames that a model reads or predicts.
    FeaturesConfig, "features." {
        /// Definition of the features, named after the system that uses it. The keys below replace single numbers of it.
        preset: FeaturePreset = FeaturePreset::Plimsoll, Kind::OneOf(FeaturePreset::NAMES);
        /// Sample rate in hertz; audio at another rate is resampled. Default: the preset's.
        sample_rate: Option<u32> = None, Kind::Integer(1000, 384_000);
        /// Length of the Fourier transform, in samples. Default: the preset's.
        n_fft: Option<u32> = None, Kind::Integer(16, 65_536);
        /// Length of the window, in samples. Default: the preset's.
        win_length: Option<u32> = None, Kind::Integer(1, 65_536);
        /// Distance from one frame to the next, in samples. Default: the preset's.
        hop_length: Option<u32> = None, Kind::Integer(1, 65_536);
        /// Mel bands per frame. Default: the preset's.
        n_mels: Option<u32> = None, Kind::Integer(1, 1024);
    }
}

section! {
    /// Random changes to a recognizer's training audio, against overfitting. A synthesizer's audio is never changed.
    AugmentConfig, "augment." {
        /// Whether any of the changes below are made.
        enabled: bool = true, Kind::Bool;
        /// Time masks per utterance. A masked stretch of frames is replaced by the utterance's mean.
        time_masks: u32 = 2, Kind::count(0);
        /// Longest time mask, in frames.
        time_mask_frames: u32 = 25, Kind::count(0);
        /// Longest time mask, as a share of the utterance. A mask obeys both limits.
        time_mask_share: f64 = 0.1, Kind::Number(Interval(Included(0.0), Included(1.0)));
        /// Frequency masks per utterance. A masked range of mel bands is replaced by the utterance's mean.
        frequency_masks: u32 = 2, Kind::count(0);
        /// Widest frequency mask, in mel bands.
        frequency_mask_bins: u32 = 8, Kind::count(0);
        /// Speeds to choose from at random for each utterance; 1 is the recorded speed.
        speeds: Vec<f64> = vec![1.0], Kind::Numbers(Interval(Included(0.5), Included(2.0)));
        /// Share of utterances that get added noise. The features of these are computed again in each epoch.
        noise_share: f64 = 0.0, Kind::Number(Interval(Included(0.0), Included(1.0)));
        /// Lowest signal-to-noise ratio of the added noise, in decibels.
        noise_least_db: f64 = 10.0, Kind::Number(Interval(Included(-20.0), Included(100.0)));
        /// Highest signal-to-noise ratio of the added noise, in decibels.
        noise_most_db: f64 = 30.0, Kind::Number(Interval(Included(-20.0), Included(100.0)));
        /// Largest random change of the volume, up or down, in decibels. Has no effect if the features are normalized.
        gain_db: f64 = 0.0, Kind::Number(Interval(Included(0.0), Included(100.0)));
    }
}
