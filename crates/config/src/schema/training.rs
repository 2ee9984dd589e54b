//! Keys of `[training]`: limits, memory, optimizer, validation and checkpoints.

use std::ops::Bound::{Excluded, Included};
use std::path::PathBuf;

use plimsoll_core::{Bytes, Seconds};
use serde::{Deserialize, Serialize};

use crate::choices::{
    OptimizerChoice, PrecisionChoice, RematChoice, RematWord, ScheduleChoice, StateChoice, SumsChoice, UnfitChoice,
};
use crate::key::Key;
use crate::kind::{Interval, Kind};

section! {
    /// When to stop, how much memory to use, and how to optimize, validate and save.
    TrainingConfig, "training." {
        /// Run, or folder of an exported model, whose weights a new run begins with. Model, features and tokens follow it unless
        /// they are set. Default: random weights.
        from: Option<PathBuf> = None, Kind::Path;
        /// Stop after this many passes over the data. `epochs`, `steps` and `max_time` are limits, and the first one
        /// reached ends the run. `epochs` or `steps` on the command line replace both of a file. Without any limit: 70 passes
        /// for `asr`, 200 for `tts`, 1000 for `vocoder`.
        epochs: Option<u32> = None, Kind::count(1);
        /// Least number of optimizer steps of a run that `training.epochs` ends: with a small corpus, more passes are made until
        /// it is reached. `epochs` or `steps` on the command line replace it.
        min_steps: Option<u64> = None, Kind::long_count(1);
        /// Stop after this many optimizer steps.
        steps: Option<u64> = None, Kind::long_count(1);
        /// Stop after this much training time.
        max_time: Option<Seconds> = None, Kind::Time(Interval::POSITIVE);
        /// TTS: share of the training time in which a vocoder is trained after the voice, with the same recordings, features and
        /// memory; 0 for none. `say` speaks with it. `training.max_time` is the time of both.
        vocoder_share: f64 = 0.0, Kind::Number(Interval(Included(0.0), Excluded(1.0)));
        /// Micro-batch size: the number of utterances computed at once. Default: as many as fit into memory.
        micro_batch: Option<u32> = None, Kind::count(1);
        /// Number of micro-batches per step, in place of `training.micro_batch`. Each has `data.batch_size` utterances, so a step
        /// has their product. Default: `data.batch_size` utterances in as few micro-batches as fit into memory.
        gradient_accumulation_steps: Option<u32> = None, Kind::count(1);
        /// Largest amount of device memory to use. Default: no limit.
        max_memory: Option<Bytes> = None, Kind::Memory(Bytes::mib(1));
        /// Largest share of the device's memory to use, in place of `training.max_memory`. Default: no limit.
        max_memory_fraction: Option<f64> = None, Kind::Number(Interval(Excluded(0.0), Included(1.0)));
        /// What happens to an utterance that does not fit into memory even alone: `skip` leaves it out of its step and reports
        /// it, `stop` ends the run.
        does_not_fit: UnfitChoice = UnfitChoice::Skip, Kind::OneOf(UnfitChoice::NAMES);
        /// Number format to compute in. `auto` is the fastest safe one: `bf16` on NVIDIA GPUs since Ampere, `fp16` on Volta and
        /// Turing, `fp32` on other devices.
        precision: PrecisionChoice = PrecisionChoice::Auto, Kind::OneOf(PrecisionChoice::NAMES);
        /// Rematerialization: blocks that compute their activations again in the backward pass and do not store them. Saves
        /// memory, costs time: `none`, `half` (every second block), `all`, or a number of blocks. `auto` takes as few as memory
        /// allows, for each length of batches.
        remat: RematChoice = RematChoice::AUTO, Kind::OneOfOrInteger(RematWord::NAMES, 0, 1024);
        /// Largest amount of memory for the activations of a micro-batch. As few blocks as needed are rematerialized, as with
        /// `training.remat` = `auto`. Default: what memory allows.
        remat_budget: Option<Bytes> = None, Kind::Memory(Bytes::mib(1));
        /// Whether unused memory of a GPU is returned to the driver every `training.memory_cleanup_interval` steps. Default: only
        /// if the pools hold more than was planned, and after a step that ran out of memory.
        enable_memory_cleanup: Option<bool> = None, Kind::Bool;
        /// Number of steps after which memory may be returned; see `training.enable_memory_cleanup`.
        memory_cleanup_interval: u64 = 10, Kind::long_count(1);
        /// Whether a run on a GPU first takes some steps of the largest batches with a copy of the model, to measure their memory and
        /// to plan by it. The next start of the same run on the same GPU knows the result.
        measure_memory: bool = true, Kind::Bool;
        /// Highest learning rate, reached at the end of the warm-up.
        learning_rate: f64 = 1.5e-3, Kind::Number(Interval(Excluded(0.0), Included(1000.0)));
        /// Number of steps in which the learning rate rises from zero to `training.learning_rate`.
        warmup_steps: u64 = 200, Kind::long_count(0);
        /// Largest share of the steps of the run that the warm-up may be: a short run has a shorter one. Default: no limit.
        warmup_share: Option<f64> = None, Kind::Number(Interval(Excluded(0.0), Included(1.0)));
        /// How the learning rate changes after the warm-up: `constant`, `cosine`, `inverse_sqrt`, `noam` (the same curve as
        /// `inverse_sqrt`) or `plateau` (falls when validation no longer improves). `cosine` ends with
        /// the run: a limit of time becomes a number of steps as soon as the first steps are measured.
        schedule: ScheduleChoice = ScheduleChoice::Cosine, Kind::OneOf(ScheduleChoice::NAMES);
        /// Learning rate at the last step of `cosine`, and the lowest one of `plateau`.
        final_learning_rate: f64 = 1e-5, Kind::Number(Interval::NOT_NEGATIVE);
        /// Number of validations in a row without a better score after which `training.schedule` = `plateau` lowers the
        /// learning rate.
        plateau_patience: u32 = 3, Kind::count(1);
        /// Factor by which `plateau` multiplies the learning rate.
        plateau_factor: f64 = 0.5, Kind::Number(Interval(Excluded(0.0), Excluded(1.0)));
        /// Stop after this many validations in a row without a better score. Default: never.
        early_stopping: Option<u32> = None, Kind::count(1);
        /// Decay of a running mean of the weights, such as 0.999. The mean is what is validated and saved. Default: no mean.
        ema_decay: Option<f64> = None, Kind::Number(Interval(Excluded(0.0), Excluded(1.0)));
        /// Parts of the model that are not trained, as prefixes of parameter names, such as `blocks.0` or `blocks.*`;
        /// `plimsoll model info` lists the parts.
        freeze: Vec<String> = Vec::new(), Kind::Texts;
        /// Parts of the model that learn at a rate of their own, as `PART=FACTOR`: their learning rate is the factor times
        /// that of the schedule. `encoder=0.1` is a tenth for all parameters whose names begin with `encoder`; where several
        /// fit, the last counts.
        rates: Vec<String> = Vec::new(), Kind::Texts;
        /// Train adapters of this rank beside the weights of linear layers (LoRA), and no weights. They need no gradient and no optimizer
        /// state for the weights. Default: the weights are trained.
        lora_rank: Option<u32> = None, Kind::Integer(1, 1024);
        /// LoRA: factor of the adapters, times their rank. Default: twice the rank.
        lora_alpha: Option<f64> = None, Kind::Number(Interval::POSITIVE);
        /// LoRA: layers that get an adapter: paths, their beginnings or ends, and `*` for any text, such as `attention.project` or
        /// `decoder.*`. Default: all linear layers.
        lora_targets: Vec<String> = Vec::new(), Kind::Texts;
        /// LoRA: parts that are trained besides, as prefixes of parameter names, such as `output` for new tokens.
        lora_also: Vec<String> = Vec::new(), Kind::Texts;
        /// Optimizer: `adamw`, `lion` (needs about a fifth of AdamW's learning rate) or `sgd`.
        optimizer: OptimizerChoice = OptimizerChoice::AdamW, Kind::OneOf(OptimizerChoice::NAMES);
        /// Where the optimizer keeps its state: `full` (fp32 on the device), `8bit` (8 bits on the device, a quarter of the memory)
        /// or `host` (fp32 in host memory, slower). `auto` is `full`, or `host` if a GPU holds the run only so.
        optimizer_state: StateChoice = StateChoice::Auto, Kind::OneOf(StateChoice::NAMES);
        /// SGD: momentum.
        momentum: f64 = 0.9, Kind::Number(Interval::BELOW_ONE);
        /// Weight decay. AdamW and Lion subtract it from the weights directly; SGD adds it to the gradient, as PyTorch does.
        weight_decay: f64 = 0.01, Kind::Number(Interval::NOT_NEGATIVE);
        /// First beta of AdamW (decay of the mean gradient) and of Lion.
        beta_1: f64 = 0.9, Kind::Number(Interval::BELOW_ONE);
        /// Second beta of AdamW (decay of the mean squared gradient) and of Lion.
        beta_2: f64 = 0.98, Kind::Number(Interval::BELOW_ONE);
        /// AdamW: small number that prevents a division by zero.
        epsilon: f64 = 1e-8, Kind::Number(Interval::POSITIVE);
        /// Largest norm of the gradient of a step; a longer gradient is scaled down to it.
        clip_norm: f64 = 5.0, Kind::Number(Interval::POSITIVE);
        /// How the processes of a run add their gradients: `library` (as the MPI library does, which knows the network: inside of
        /// each machine first, then between machines) or `ordered` (in the order of the processes, with the bits of
        /// `device.replicas`, and several times slower). By `library` a run repeated with as many processes gave the same bits
        /// with Open MPI; the standard of MPI does not promise it.
        sums: SumsChoice = SumsChoice::Library, Kind::OneOf(SumsChoice::NAMES);
        /// Number of steps between validations; 0 validates at the end of each epoch.
        validation_interval: u64 = 0, Kind::long_count(0);
        /// TTS: number of held-out sentences to synthesize at each validation. Audio and pictures go to the folder `samples` of
        /// the run.
        samples: u32 = 3, Kind::count(0);
        /// Number of steps between checkpoints.
        checkpoint_interval: u64 = 200, Kind::long_count(1);
        /// Number of checkpoints to keep, the newest ones.
        keep_checkpoints: u32 = 3, Kind::count(1);
        /// Number of checkpoints to keep in addition for their validation scores, the best ones.
        keep_best: u32 = 1, Kind::count(1);
        /// Number of steps between lines of the log.
        log_interval: u64 = 10, Kind::long_count(1);
        /// Whether the output of each layer and its gradient are read back, so that a step whose loss or gradient is infinite or
        /// NaN names the layer where that began. Steps then take much longer, above all on a GPU.
        debug: bool = false, Kind::Bool;
    }
}
