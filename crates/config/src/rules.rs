//! Rules about combinations of keys, and about values that no simple limit of a key can express.

use super::bounds::shortened;
use super::choices::{AttentionChoice, FamilyChoice, NormChoice, PositionsChoice, ScheduleChoice, Task, TextChoice};
use super::schema::RunConfig;

/// A rule that a configuration has to obey.
pub(super) struct Rule {
    /// Keys that the rule is about, the most likely mistake first.
    pub keys: &'static [&'static str],
    /// Function that returns the error message if the configuration breaks the rule.
    pub violation: fn(&RunConfig) -> Option<String>,
}

/// Pairs of keys that exclude each other.
pub(super) const EXCLUSIVE: &[(&str, &str)] = &[
    ("data.batch_size", "data.batch_seconds"),
    ("training.micro_batch", "training.gradient_accumulation_steps"),
    ("training.gradient_accumulation_steps", "data.batch_seconds"),
    ("training.max_memory", "training.max_memory_fraction"),
];

/// Rules that every configuration has to obey.
pub(super) const RULES: &[Rule] = &[
    Rule { keys: &["name"], violation: invalid_name },
    Rule { keys: &["model.d_model", "model.attention_heads"], violation: width_not_divisible_by_heads },
    Rule {
        keys: &["model.text_encoder_dim", "model.text_encoder_heads", "model.d_model"],
        violation: text_encoder_width_invalid,
    },
    Rule { keys: &["model.decoder_dim", "model.decoder_heads", "model.d_model"], violation: decoder_width_invalid },
    Rule { keys: &["model.decoder_layers"], violation: tts_without_decoder },
    Rule { keys: &["model.postnet_layers"], violation: postnet_too_short },
    Rule { keys: &["model.attention"], violation: tts_with_truncation },
    Rule { keys: &["model.conv_kernel"], violation: kernel_even },
    Rule { keys: &["model.text_encoder_kernel"], violation: text_kernel_even },
    Rule { keys: &["model.decoder_kernel"], violation: decoder_kernel_even },
    Rule { keys: &["model.vocoder_kernel"], violation: vocoder_kernel_even },
    Rule { keys: &["model.subsampling"], violation: subsampling_not_power_of_two },
    Rule { keys: &["features.n_mels", "model.subsampling"], violation: too_few_features },
    Rule { keys: &["model.d_model", "model.attention_heads", "model.positions"], violation: width_odd },
    Rule { keys: &["model.conv_norm_groups", "model.d_model"], violation: width_not_divisible_by_groups },
    Rule { keys: &["model.max_attention_sequence_length", "model.attention"], violation: truncation_without_length },
    Rule { keys: &["data.min_seconds", "data.max_seconds"], violation: duration_limits_crossed },
    Rule { keys: &["features.win_length", "features.n_fft"], violation: window_too_long },
    Rule { keys: &["features.hop_length", "features.win_length"], violation: hop_too_long },
    Rule { keys: &["training.micro_batch", "data.batch_size", "data.batch_seconds"], violation: micro_batch_too_large },
    Rule { keys: &["training.gradient_accumulation_steps", "data.batch_size"], violation: batch_too_large },
    Rule { keys: &["model.conv_norm", "training.ema_decay", "device.replicas"], violation: batch_norm_unsupported },
    Rule { keys: &["data.text", "task"], violation: phonemes_without_synthesizer },
    Rule { keys: &["training.final_learning_rate", "training.learning_rate"], violation: final_rate_too_high },
    Rule { keys: &["training.rates"], violation: rate_unreadable },
];

/// Largest factor of the learning rate of a part.
const LARGEST_FACTOR: f64 = 1000.0;

/// Reads an entry of `training.rates`: the beginning of the names of the parameters of a part, and the factor of its learning rate.
pub fn rate_of_part(entry: &str) -> Option<(&str, f64)> {
    let (part, factor) = entry.rsplit_once('=')?;
    let (part, factor) = (part.trim(), factor.trim().parse().ok()?);
    (!part.is_empty() && factor > 0.0 && factor <= LARGEST_FACTOR).then_some((part, factor))
}

fn rate_unreadable(config: &RunConfig) -> Option<String> {
    let wrong = config.training.rates.iter().find(|entry| rate_of_part(entry).is_none())?;
    let wrong = shortened(&format!("{wrong:?}"));
    Some(format!(
        "`training.rates` has {wrong}, expected PART=FACTOR such as \"encoder=0.1\", with a factor above 0 and at most {LARGEST_FACTOR}; \
         `training.freeze` keeps a part as it is"
    ))
}

fn phonemes_without_synthesizer(config: &RunConfig) -> Option<String> {
    (config.data.text == TextChoice::Phonemes && config.task != Task::Tts)
        .then(|| "`data.text` is `phonemes`, which only a synthesizer (`task` = `tts`) reads".into())
}

fn invalid_name(config: &RunConfig) -> Option<String> {
    let name = config.name.as_deref()?;
    let characters = name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
    let valid = characters && name.starts_with(|c: char| c.is_ascii_alphanumeric());
    (!valid).then(|| {
        let name = shortened(&format!("{name:?}"));
        format!("`name` is {name}, expected letters, digits, `-`, `_` and `.`, beginning with a letter or digit")
    })
}

fn width_not_divisible_by_heads(config: &RunConfig) -> Option<String> {
    let (width, heads) = (config.model.d_model, config.model.attention_heads);
    (has_heads(config) && !width.is_multiple_of(heads)).then(|| {
        format!("`model.d_model` is {width}, expected a multiple of `model.attention_heads`, which is {heads}")
    })
}

/// Checks the width of `part` of a TTS model, such as `decoder`: it has to be a multiple of the number of attention
/// heads, and even, as positions are sines and cosines. Returns the error message, or `None` for a possible width.
fn part_width_invalid(config: &RunConfig, part: &str, width: Option<u32>, heads: Option<u32>) -> Option<String> {
    let model = &config.model;
    let (width, heads) = (width.unwrap_or(model.d_model), heads.unwrap_or(model.attention_heads));
    (has_attention_over_text(config) && !(width.is_multiple_of(heads) && width.is_multiple_of(2))).then(|| {
        format!("`model.{part}_dim` is {width}, expected an even number and a multiple of its attention heads, which are {heads}")
    })
}

/// Returns whether `model.d_model` is divided into attention heads: by a recognizer, or by an autoregressive synthesizer.
fn has_heads(config: &RunConfig) -> bool {
    config.task == Task::Asr || has_attention_over_text(config)
}

/// Returns whether the model is an autoregressive synthesizer. One of the parallel family has no attention.
fn has_attention_over_text(config: &RunConfig) -> bool {
    config.task == Task::Tts && config.model.family == FamilyChoice::Autoregressive
}

fn text_encoder_width_invalid(config: &RunConfig) -> Option<String> {
    let model = &config.model;
    part_width_invalid(config, "text_encoder", model.text_encoder_dim, model.text_encoder_heads)
}

fn decoder_width_invalid(config: &RunConfig) -> Option<String> {
    let model = &config.model;
    part_width_invalid(config, "decoder", model.decoder_dim, model.decoder_heads)
}

fn tts_without_decoder(config: &RunConfig) -> Option<String> {
    (config.task == Task::Tts && config.model.decoder_layers == Some(0))
        .then(|| "`model.decoder_layers` is 0, expected at least 1 for tts: the decoder produces the audio".into())
}

fn postnet_too_short(config: &RunConfig) -> Option<String> {
    (config.task == Task::Tts && config.model.postnet_layers == 1)
        .then(|| "`model.postnet_layers` is 1, expected 0 for none, or at least 2".into())
}

fn tts_with_truncation(config: &RunConfig) -> Option<String> {
    (config.task == Task::Tts && config.model.attention == AttentionChoice::Truncate).then(|| {
        "`model.attention` is \"truncate\", expected \"exact\" or \"chunked\" for tts: a cut text would not \
         match its audio; `data.max_text_length` and `data.max_seconds` leave long utterances out"
            .into()
    })
}

/// Returns the error message for the kernel of the key `name` if it is even.
fn even_kernel(name: &str, kernel: u32) -> Option<String> {
    kernel.is_multiple_of(2).then(|| format!("`model.{name}` is {kernel}, expected an odd number"))
}

fn kernel_even(config: &RunConfig) -> Option<String> {
    even_kernel("conv_kernel", config.model.conv_kernel)
}

fn text_kernel_even(config: &RunConfig) -> Option<String> {
    even_kernel("text_encoder_kernel", config.model.text_encoder_kernel)
}

fn decoder_kernel_even(config: &RunConfig) -> Option<String> {
    even_kernel("decoder_kernel", config.model.decoder_kernel)
}

fn vocoder_kernel_even(config: &RunConfig) -> Option<String> {
    even_kernel("vocoder_kernel", config.model.vocoder_kernel)
}

fn subsampling_not_power_of_two(config: &RunConfig) -> Option<String> {
    let factor = config.model.subsampling;
    (!factor.is_power_of_two()).then(|| format!("`model.subsampling` is {factor}, expected 1, 2, 4 or 8"))
}

/// Each halving is a convolution over three neighbors without padding.
fn too_few_features(config: &RunConfig) -> Option<String> {
    let (factor, features) = (config.model.subsampling, config.features.n_mels?);
    let least = (0..factor.max(1).ilog2()).fold(1, |least, _| 2 * least + 1);
    (config.task == Task::Asr && features < least).then(|| {
        format!("`features.n_mels` is {features}, expected at least {least}, as `model.subsampling` is {factor}")
    })
}

fn width_odd(config: &RunConfig) -> Option<String> {
    let model = &config.model;
    let width = model.d_model / model.attention_heads.max(1);
    if model.positions == PositionsChoice::Rotary && !width.is_multiple_of(2) {
        return Some(format!(
            "each attention head has a width of {width} (`model.d_model` / `model.attention_heads`), \
             expected an even width for `model.positions` = \"rotary\""
        ));
    }
    (has_heads(config) && !model.d_model.is_multiple_of(2))
        .then(|| format!("`model.d_model` is {}, expected an even number", model.d_model))
}

fn width_not_divisible_by_groups(config: &RunConfig) -> Option<String> {
    let (groups, width) = (config.model.conv_norm_groups, config.model.d_model);
    (config.model.conv_norm == NormChoice::Group && !width.is_multiple_of(groups)).then(|| {
        format!("`model.conv_norm_groups` is {groups}, expected a divisor of `model.d_model`, which is {width}")
    })
}

fn truncation_without_length(config: &RunConfig) -> Option<String> {
    let model = &config.model;
    match (model.attention, model.max_attention_sequence_length) {
        (AttentionChoice::Truncate, None) => Some(
            "`model.attention` is \"truncate\", expected `model.max_attention_sequence_length`, the length to cut to"
                .into(),
        ),
        (AttentionChoice::Exact | AttentionChoice::Chunked, Some(length)) if config.task == Task::Asr => Some(format!(
            "`model.max_attention_sequence_length` is {length}, expected `model.attention` = \"truncate\" with it; \
             \"chunked\" saves memory without cutting"
        )),
        _ => None,
    }
}

fn duration_limits_crossed(config: &RunConfig) -> Option<String> {
    let (min, max) = (config.data.min_seconds, config.data.max_seconds);
    (min >= max).then(|| format!("`data.min_seconds` is {min}, expected less than `data.max_seconds`, which is {max}"))
}

fn window_too_long(config: &RunConfig) -> Option<String> {
    let (window, points) = (config.features.win_length?, config.features.n_fft?);
    (window > points)
        .then(|| format!("`features.win_length` is {window}, expected at most `features.n_fft`, which is {points}"))
}

fn hop_too_long(config: &RunConfig) -> Option<String> {
    let (hop, window) = (config.features.hop_length?, config.features.win_length?);
    (hop > window)
        .then(|| format!("`features.hop_length` is {hop}, expected at most `features.win_length`, which is {window}"))
}

fn micro_batch_too_large(config: &RunConfig) -> Option<String> {
    let (micro, batch) = (config.training.micro_batch?, config.effective_utterances()?);
    (micro > batch)
        .then(|| format!("`training.micro_batch` is {micro}, expected at most the {batch} utterances of a batch"))
}

fn batch_too_large(config: &RunConfig) -> Option<String> {
    let (steps, batch) = (config.training.gradient_accumulation_steps?, config.data.written_batch_size()?);
    batch.checked_mul(steps).is_none().then(|| {
        format!("`training.gradient_accumulation_steps` is {steps}, and {steps} micro-batches of {batch} utterances are too many")
    })
}

fn batch_norm_unsupported(config: &RunConfig) -> Option<String> {
    let is_batch = config.task == Task::Asr && config.model.conv_norm == NormChoice::Batch;
    let reason = match (config.training.ema_decay.is_some(), config.device.replicas > 1) {
        (true, _) => "`training.ema_decay`, as its statistics are not those of the mean weights",
        (false, true) => "several `device.replicas`, as each would have its own statistics",
        (false, false) => return None,
    };
    is_batch.then(|| format!("`model.conv_norm` is \"batch\", expected \"layer\" or \"group\" with {reason}"))
}

fn final_rate_too_high(config: &RunConfig) -> Option<String> {
    let (last, highest) = (config.training.final_learning_rate, config.training.learning_rate);
    let is_used = !matches!(config.training.schedule, ScheduleChoice::Constant | ScheduleChoice::Noam);
    (is_used && last > highest).then(|| {
        format!(
            "`training.final_learning_rate` is {last:?}, \
             expected at most `training.learning_rate`, which is {highest:?}"
        )
    })
}
