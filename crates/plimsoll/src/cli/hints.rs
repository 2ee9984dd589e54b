//! Hints for flags that do not exist: the key that they mean, or no hint.

use std::ffi::OsString;

use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, CommandFactory, Error};
use plimsoll_config::{flag_hint, nearest_key, nearest_word};

use super::Cli;

/// Replaces the hint of an error about an unknown flag by a better one. `args` is the command line.
///
/// Clap compares letters, and finds `--max-memory` near `--pin-memory`. The flag of another program is often the name of a
/// key, which `--set` sets.
pub(crate) fn with_hint(mut error: Error, args: &[OsString]) -> Error {
    let (ErrorKind::UnknownArgument, Some(ContextValue::String(flag))) =
        (error.kind(), error.get(ContextKind::InvalidArg).cloned())
    else {
        return error;
    };
    let Some(name) = flag.strip_prefix("--").map(|name| name.split('=').next().unwrap_or(name).replace('-', "_"))
    else {
        return error;
    };
    error.remove(ContextKind::SuggestedArg);
    error.remove(ContextKind::Suggested);
    // It names the flag that clap found, which is the wrong one.
    error.remove(ContextKind::Usage);
    let command = command_of(args);
    let flags: Vec<String> =
        command.get_arguments().filter_map(|arg| arg.get_long()).map(|long| long.replace('-', "_")).collect();
    let takes_keys = flags.iter().any(|flag| flag == "set");
    // The exact name of a key before a flag that is like it: `--text-encoder-layers` is not `--encoder-layers`.
    let is_flag = flags.contains(&name);
    let hint = flag_hint(&name).filter(|_| takes_keys && !is_flag).or_else(|| {
        match nearest_word(&name, flags.iter().map(String::as_str)) {
            Some(near) => Some(format!("did you mean `--{}`?", near.replace('_', "-"))),
            None if takes_keys => {
                nearest_key(&name).map(|key| format!("`--set {key}=VALUE` sets the key of that name"))
            }
            None => None,
        }
    });
    if let Some(hint) = hint {
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![StyledStr::from(hint)]));
    }
    error
}

/// Returns the command that `args` name, with all of its flags.
fn command_of(args: &[OsString]) -> Command {
    let mut command = Cli::command();
    command.build();
    for arg in args.iter().skip(1).filter_map(|arg| arg.to_str()) {
        if let Some(inner) = command.find_subcommand(arg) {
            command = inner.clone();
        }
    }
    command
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    fn message(line: &str) -> String {
        let args: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        with_hint(Cli::try_parse_from(&args).unwrap_err(), &args).to_string()
    }

    /// The keys of the configurations of another system, written as flags.
    #[test]
    fn keys_of_another_system_get_a_hint_as_flags() {
        let keys = "text_encoder_dim text_encoder_layers audio_encoder_dim audio_encoder_layers decoder_dim decoder_layers \
                    max_attention_sequence_length enable_gradient_checkpointing batch_size num_workers prefetch_buffer_size \
                    shuffle_buffer_multiplier enable_xla mixed_precision pin_memory gradient_accumulation_steps \
                    max_memory_fraction enable_memory_cleanup memory_cleanup_interval enable_graph_mode \
                    enable_xla_compilation enable_eager_debug";
        for key in keys.split_whitespace() {
            for command in ["train", "memtest", "optimize"] {
                let flag = format!("--{}", key.replace('_', "-"));
                let args: Vec<OsString> = ["plimsoll", command, &flag].iter().map(OsString::from).collect();
                let Err(error) = Cli::try_parse_from(&args) else { continue };
                if error.kind() == ErrorKind::UnknownArgument {
                    let found = with_hint(error, &args).to_string();
                    assert!(found.contains("tip: `--set ") || found.contains("tip: leave it out: "), "{key}: {found}");
                }
            }
        }
    }

    #[test]
    fn unknown_flags_get_a_hint_near_in_meaning_or_none() {
        for (line, expected) in [
            ("plimsoll train --stesp 3", Some("did you mean `--steps`?")),
            ("plimsoll train --batch_size 3", Some("did you mean `--batch-size`?")),
            ("plimsoll train --num_workers=3", Some("`--set data.num_workers=VALUE`")),
            ("plimsoll train --attention-heads 3", Some("`--set model.attention_heads=VALUE`")),
            ("plimsoll optimize --learning_rate 3", Some("`--set training.learning_rate=VALUE`")),
            ("plimsoll runs list --jason", Some("did you mean `--json`?")),
            ("plimsoll gpu-info --device 0 --stesp 1", Some("did you mean `--steps`?")),
            ("plimsoll train --pin_memory", Some("leave it out: the next batch is sent")),
            ("plimsoll train --pin-memory true", Some("leave it out: the next batch is sent")),
            ("plimsoll train --enable_xla", Some("leave it out: kernels are always fused")),
            ("plimsoll train --text_encoder_layers 4", Some("`--set model.text_encoder_layers=VALUE`")),
            ("plimsoll train --enable_gradient_checkpointing", Some("`--set training.remat=all` does that")),
            ("plimsoll train --enable_eager_debug", Some("`--set training.debug=VALUE`")),
            ("plimsoll transcribe a.wav --run r --num_workers 3", None),
        ] {
            let found = message(line);
            assert!(found.contains("unexpected argument"), "{line}: {found}");
            assert!(!found.contains("--max-memory") && !found.contains("Usage"), "{line}: {found}");
            match expected {
                Some(hint) => assert!(found.contains(hint), "{line}: {found}"),
                None => assert!(!found.contains("tip:"), "{line}: {found}"),
            }
        }
    }
}
