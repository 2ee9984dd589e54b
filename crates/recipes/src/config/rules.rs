//! The rules that bind several keys, as a table.

use super::choices::{AttentionChoice, NormChoice, PositionsChoice, Schedule, Task};
use super::schema::RunConfig;

/// A rule between keys, or one that no simple limit of a key can say.
pub(super) struct Rule {
    /// The keys it is about, the likeliest culprit first.
    pub keys: &'static [&'static str],
    /// What to say when it is broken.
    pub broken: fn(&RunConfig) -> Option<String>,
}

/// Keys that exclude each other.
pub(super) const EXCLUSIVE: &[(&str, &str)] = &[
    ("data.batch_size", "data.batch_seconds"),
    ("training.micro_batch", "training.gradient_accumulation_steps"),
    ("training.max_memory", "training.max_memory_fraction"),
];

/// Every rule.
pub(super) const RULES: &[Rule] = &[
    Rule { keys: &["name"], broken: name_is_no_folder },
    Rule { keys: &["training.max_time", "training.steps", "training.epochs"], broken: never_stops },
    Rule { keys: &["model.d_model", "model.attention_heads"], broken: heads_do_not_divide },
    Rule {
        keys: &["model.text_encoder_dim", "model.text_encoder_heads", "model.d_model"],
        broken: text_heads_do_not_divide,
    },
    Rule { keys: &["model.decoder_dim", "model.decoder_heads", "model.d_model"], broken: decoder_heads_do_not_divide },
    Rule { keys: &["model.decoder_layers"], broken: synthesiser_has_no_decoder },
    Rule { keys: &["model.postnet_layers"], broken: postnet_is_too_short },
    Rule { keys: &["model.attention"], broken: synthesiser_truncates },
    Rule { keys: &["model.conv_kernel"], broken: kernel_has_no_middle },
    Rule { keys: &["model.subsampling"], broken: subsampling_is_no_power },
    Rule { keys: &["model.d_model", "model.attention_heads", "model.positions"], broken: positions_have_no_pairs },
    Rule { keys: &["model.conv_norm_groups", "model.d_model"], broken: groups_do_not_divide },
    Rule { keys: &["model.max_attention_sequence_length", "model.attention"], broken: cut_without_truncation },
    Rule { keys: &["data.min_seconds", "data.max_seconds"], broken: nothing_is_long_enough },
    Rule { keys: &["features.win_length", "features.n_fft"], broken: window_is_too_long },
    Rule { keys: &["features.hop_length", "features.win_length"], broken: hop_leaves_gaps },
    Rule { keys: &["training.micro_batch", "data.batch_size", "data.batch_seconds"], broken: micro_batch_is_too_large },
    Rule {
        keys: &["training.gradient_accumulation_steps", "data.batch_size", "data.batch_seconds"],
        broken: too_many_micro_batches,
    },
    Rule { keys: &["model.conv_norm", "training.ema_decay", "device.replicas"], broken: statistics_are_shared },
    Rule { keys: &["training.final_learning_rate", "training.learning_rate"], broken: rate_ends_above },
];

fn name_is_no_folder(config: &RunConfig) -> Option<String> {
    let name = config.name.as_deref()?;
    let letters = name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
    let fine = letters && name.starts_with(|c: char| c.is_ascii_alphanumeric());
    (!fine).then(|| {
        format!("`name` is {name:?}, expected letters, digits, `-`, `_` and `.`, beginning with a letter or digit")
    })
}

fn never_stops(config: &RunConfig) -> Option<String> {
    let training = &config.training;
    let stops = training.epochs.is_some() || training.steps.is_some() || training.max_time.is_some();
    (!stops).then(|| {
        "nothing says when training stops, expected `training.epochs`, `training.steps` or `training.max_time`".into()
    })
}

fn heads_do_not_divide(config: &RunConfig) -> Option<String> {
    let (width, heads) = (config.model.d_model, config.model.attention_heads);
    (!width.is_multiple_of(heads)).then(|| {
        format!("`model.d_model` is {width}, expected a multiple of `model.attention_heads`, which is {heads}")
    })
}

/// Of a synthesiser's part: its width and its heads fit each other, and positions come in pairs.
fn part_does_not_fit(config: &RunConfig, part: &str, width: Option<u32>, heads: Option<u32>) -> Option<String> {
    let model = &config.model;
    let (width, heads) = (width.unwrap_or(model.d_model), heads.unwrap_or(model.attention_heads));
    (config.task == Task::Tts && !(width.is_multiple_of(heads) && width.is_multiple_of(2))).then(|| {
        format!("`model.{part}_dim` is {width}, expected an even multiple of its attention heads, which are {heads}")
    })
}

fn text_heads_do_not_divide(config: &RunConfig) -> Option<String> {
    let model = &config.model;
    part_does_not_fit(config, "text_encoder", model.text_encoder_dim, model.text_encoder_heads)
}

fn decoder_heads_do_not_divide(config: &RunConfig) -> Option<String> {
    let model = &config.model;
    part_does_not_fit(config, "decoder", model.decoder_dim, model.decoder_heads)
}

fn synthesiser_has_no_decoder(config: &RunConfig) -> Option<String> {
    (config.task == Task::Tts && config.model.decoder_layers == Some(0))
        .then(|| "`model.decoder_layers` is 0, expected at least 1: the decoder is what speaks".into())
}

fn postnet_is_too_short(config: &RunConfig) -> Option<String> {
    (config.task == Task::Tts && config.model.postnet_layers == 1)
        .then(|| "`model.postnet_layers` is 1, expected 0 for none, or at least 2".into())
}

fn synthesiser_truncates(config: &RunConfig) -> Option<String> {
    (config.task == Task::Tts && config.model.attention == AttentionChoice::Truncate).then(|| {
        "`model.attention` is \"truncate\", expected \"exact\" or \"chunked\" for tts: a text without its end does \
         not belong to its sound; `data.max_text_length` and `data.max_seconds` leave long utterances out"
            .into()
    })
}

fn kernel_has_no_middle(config: &RunConfig) -> Option<String> {
    let kernel = config.model.conv_kernel;
    kernel.is_multiple_of(2).then(|| format!("`model.conv_kernel` is {kernel}, expected an odd number"))
}

fn subsampling_is_no_power(config: &RunConfig) -> Option<String> {
    let factor = config.model.subsampling;
    (!factor.is_power_of_two()).then(|| format!("`model.subsampling` is {factor}, expected 1, 2, 4 or 8"))
}

fn positions_have_no_pairs(config: &RunConfig) -> Option<String> {
    let model = &config.model;
    let width = model.d_model / model.attention_heads.max(1);
    if model.positions == PositionsChoice::Rotary && !width.is_multiple_of(2) {
        return Some(format!("heads are {width} wide, expected an even width for `model.positions` = \"rotary\""));
    }
    (!model.d_model.is_multiple_of(2)).then(|| format!("`model.d_model` is {}, expected an even number", model.d_model))
}

fn groups_do_not_divide(config: &RunConfig) -> Option<String> {
    let (groups, width) = (config.model.conv_norm_groups, config.model.d_model);
    (config.model.conv_norm == NormChoice::Group && !width.is_multiple_of(groups)).then(|| {
        format!("`model.conv_norm_groups` is {groups}, expected a divisor of `model.d_model`, which is {width}")
    })
}

fn cut_without_truncation(config: &RunConfig) -> Option<String> {
    let model = &config.model;
    match (model.attention, model.max_attention_sequence_length) {
        (AttentionChoice::Truncate, None) => {
            Some("`model.attention` is \"truncate\", expected a `model.max_attention_sequence_length` to cut to".into())
        }
        (AttentionChoice::Exact | AttentionChoice::Chunked, Some(length)) => Some(format!(
            "`model.max_attention_sequence_length` is {length}, expected `model.attention` = \"truncate\" beside it: \
             nothing is cut unasked, and \"chunked\" saves the memory without cutting"
        )),
        _ => None,
    }
}

fn nothing_is_long_enough(config: &RunConfig) -> Option<String> {
    let (least, most) = (config.data.min_seconds, config.data.max_seconds);
    (least >= most)
        .then(|| format!("`data.min_seconds` is {least}, expected less than `data.max_seconds`, which is {most}"))
}

fn window_is_too_long(config: &RunConfig) -> Option<String> {
    let (window, points) = (config.features.win_length?, config.features.n_fft?);
    (window > points)
        .then(|| format!("`features.win_length` is {window}, expected at most `features.n_fft`, which is {points}"))
}

fn hop_leaves_gaps(config: &RunConfig) -> Option<String> {
    let (hop, window) = (config.features.hop_length?, config.features.win_length?);
    (hop > window)
        .then(|| format!("`features.hop_length` is {hop}, expected at most `features.win_length`, which is {window}"))
}

fn micro_batch_is_too_large(config: &RunConfig) -> Option<String> {
    let (micro, batch) = (config.training.micro_batch?, config.data.effective_utterances()?);
    (micro > batch)
        .then(|| format!("`training.micro_batch` is {micro}, expected at most the {batch} utterances of a batch"))
}

fn too_many_micro_batches(config: &RunConfig) -> Option<String> {
    let (steps, batch) = (config.training.gradient_accumulation_steps?, config.data.effective_utterances()?);
    (steps > batch).then(|| {
        format!("`training.gradient_accumulation_steps` is {steps}, expected at most the {batch} utterances of a batch")
    })
}

fn statistics_are_shared(config: &RunConfig) -> Option<String> {
    let is_batch = config.task == Task::Asr && config.model.conv_norm == NormChoice::Batch;
    let with = match (config.training.ema_decay.is_some(), config.device.replicas > 1) {
        (true, _) => "a mean of the weights (`training.ema_decay`)",
        (false, true) => "several replicas (`device.replicas`)",
        (false, false) => return None,
    };
    is_batch.then(|| {
        format!(
            "`model.conv_norm` is \"batch\", expected \"layer\" or \"group\" with {with}: its statistics are not theirs"
        )
    })
}

fn rate_ends_above(config: &RunConfig) -> Option<String> {
    let (last, highest) = (config.training.final_learning_rate, config.training.learning_rate);
    (!matches!(config.training.schedule, Schedule::Constant | Schedule::Noam) && last > highest).then(|| {
        format!(
            "`training.final_learning_rate` is {last:?}, \
             expected at most `training.learning_rate`, which is {highest:?}"
        )
    })
}
