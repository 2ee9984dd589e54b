//! Folders of Hugging Face with a Whisper model: reading one, and writing one that `transformers` loads.

use std::collections::HashMap;
use std::io::Write;
use std::path::Path;

use plimsoll_audio::LogMelConfig;
use plimsoll_core::replace_file;
use plimsoll_layers::LengthPolicy;
use plimsoll_tape::NamedTensor;
use plimsoll_text::Tokenizer;
use plimsoll_train::{read_weights, write_weights};
use serde_json::{Value, json};

use super::config::RESERVED;
use super::names::{given, taken};
use super::{WhisperConfig, WhisperMetadata};
use crate::metadata::{HUGGING_FACE as CONFIG, read_json};
use crate::{ModelError, ModelFolder, ModelKind};

/// Name of the file with the weights.
const WEIGHTS: &str = "model.safetensors";
/// Name of the list of the files with the weights, where they are several.
const INDEX: &str = "model.safetensors.index.json";
/// Name of the file with the tokens.
const TOKENIZER: &str = "tokenizer.json";
/// Name of the file that says how texts are generated.
pub const GENERATION_CONFIG: &str = "generation_config.json";
/// Number of tokens from which a published model is one for many languages.
const MULTILINGUAL: usize = 51_865;

/// Reads what `folder` says of its model, whether it is a folder of ours or of Hugging Face.
///
/// # Errors
/// [`ModelError::Foreign`] with what is missing or not supported, and the errors of [`WhisperMetadata::read`].
pub fn read_metadata(folder: &Path) -> Result<WhisperMetadata, ModelError> {
    if !ModelFolder(folder).is_hugging_face() {
        return WhisperMetadata::read(folder);
    }
    let foreign = |reason: String| ModelError::Foreign { folder: folder.into(), reason };
    let described = read_json(&folder.join(CONFIG))?;
    let model = model_of(&described).map_err(foreign)?;
    for (name, alternative) in [(TOKENIZER, None), (WEIGHTS, Some(INDEX))] {
        let is_there = |name: &str| folder.join(name).is_file();
        if !is_there(name) && !alternative.is_some_and(is_there) {
            return Err(foreign(missing(folder, name)));
        }
    }
    let tokenizer = Tokenizer::from_file(folder.join(TOKENIZER))
        .map_err(|error| foreign(format!("its {TOKENIZER} cannot be read: {}", plimsoll_core::error_chain(&error))))?;
    if tokenizer.whisper_frame(None).is_none() {
        return Err(foreign(format!("its {TOKENIZER} has no tokens of Whisper, such as <|startoftranscript|>")));
    }
    if tokenizer.size() > model.vocabulary {
        let (tokens, rows) = (tokenizer.size() - RESERVED, model.vocabulary - RESERVED);
        return Err(foreign(format!("its {TOKENIZER} has {tokens} tokens, and its {CONFIG} says {rows}")));
    }
    let generation = if folder.join(GENERATION_CONFIG).is_file() {
        read_json(&folder.join(GENERATION_CONFIG))?
    } else {
        Value::Null
    };
    let rows = model.vocabulary - RESERVED;
    let is_multilingual = generation["is_multilingual"].as_bool().unwrap_or(rows >= MULTILINGUAL);
    let named = generation["language"].as_str().filter(|_| is_multilingual).unwrap_or("en");
    let language = code_of(named).to_owned();
    if is_multilingual && !tokenizer.has_whisper_language(&language) && language != "en" {
        return Err(foreign(format!(
            "its {GENERATION_CONFIG} names the language `{named}`: write the code of its token there, such as `de`"
        )));
    }
    let language = Some(language).filter(|name| tokenizer.has_whisper_language(name));
    let languages = language.filter(|_| is_multilingual);
    let features = LogMelConfig::preset("whisper-padded").expect("a preset of the audio crate");
    let features = LogMelConfig { n_mels: model.features, ..features };
    model.check().map_err(|source| ModelError::Impossible { path: folder.join(CONFIG), source })?;
    Ok(WhisperMetadata::new(model, features, tokenizer.with_languages(languages)))
}

/// Reads the weights in `folder`, a run, an exported model or a folder of Hugging Face, with warnings as of
/// [`ModelFolder::weights`].
///
/// # Errors
/// [`ModelError::Weights`] when a file is missing or damaged, [`ModelError::Foreign`] when it has not the tensors of its
/// description.
pub fn weights(folder: &Path) -> Result<(Vec<NamedTensor>, Vec<String>), ModelError> {
    if !ModelFolder(folder).is_hugging_face() {
        return ModelFolder(folder).weights();
    }
    let model = read_metadata(folder)?.model;
    let mut tensors = HashMap::new();
    for file in weight_files(folder)? {
        let named = |tensor: NamedTensor| {
            let name = tensor.name.strip_prefix("model.").unwrap_or(&tensor.name).to_owned();
            (name, tensor)
        };
        tensors.extend(read_weights(&folder.join(file))?.into_iter().map(named));
    }
    let foreign = |reason: String| ModelError::Foreign { folder: folder.into(), reason };
    Ok((taken(tensors, &model).map_err(foreign)?, Vec::new()))
}

/// Writes the model with these weights into `folder` as `transformers` reads it. What may not be said is copied from the files of
/// `from`.
///
/// # Errors
/// [`ModelError::Io`] or [`ModelError::Weights`] when a file cannot be written.
pub fn write_hugging_face(
    folder: &Path,
    metadata: &WhisperMetadata,
    weights: &[NamedTensor],
    from: &Path,
) -> Result<(), ModelError> {
    write_weights(&folder.join(WEIGHTS), &given(weights, &metadata.model))?;
    let write = |name: &str, value: &Value| {
        let path = folder.join(name);
        let text = serde_json::to_string_pretty(value).expect("a value is plain data") + "\n";
        replace_file(&path, |file| file.write_all(text.as_bytes())).map_err(|source| ModelError::Io { path, source })
    };
    let frame = metadata.tokenizer.whisper_frame(None);
    let id = |id: u32| id.saturating_sub(RESERVED as u32);
    let (start, end) = frame.as_ref().map_or((0, 0), |frame| (id(frame.begin[0]), id(frame.end)));
    write(CONFIG, &config_of(&metadata.model, start, end))?;
    if let Some(file) = metadata.tokenizer.hugging_face_file() {
        write(TOKENIZER, file)?;
        let special = "<|endoftext|>";
        let tokenizer = json!({
            "tokenizer_class": "WhisperTokenizer",
            "bos_token": special, "eos_token": special, "unk_token": special, "pad_token": special,
            "model_max_length": metadata.model.text_positions,
        });
        write("tokenizer_config.json", &tokenizer)?;
    }
    write("preprocessor_config.json", &features_of(metadata))?;
    let mut generation = match from.join(GENERATION_CONFIG) {
        path if path.is_file() => read_json(&path)?,
        _ => json!({ "decoder_start_token_id": start, "eos_token_id": end, "pad_token_id": end }),
    };
    let languages = metadata.tokenizer.languages();
    let english = languages.iter().find(|name| *name == "en");
    if let Some(language) = english.or(languages.first()) {
        generation["language"] = format!("<|{language}|>").into();
    }
    write(GENERATION_CONFIG, &generation)
}

/// Names of languages in words, as `transformers` accepts them too, with their codes.
const NAMES: [(&str, &str); 30] = [
    ("arabic", "ar"),
    ("bulgarian", "bg"),
    ("catalan", "ca"),
    ("chinese", "zh"),
    ("croatian", "hr"),
    ("czech", "cs"),
    ("danish", "da"),
    ("dutch", "nl"),
    ("english", "en"),
    ("finnish", "fi"),
    ("french", "fr"),
    ("german", "de"),
    ("greek", "el"),
    ("hebrew", "he"),
    ("hindi", "hi"),
    ("hungarian", "hu"),
    ("indonesian", "id"),
    ("italian", "it"),
    ("japanese", "ja"),
    ("korean", "ko"),
    ("norwegian", "no"),
    ("polish", "pl"),
    ("portuguese", "pt"),
    ("romanian", "ro"),
    ("russian", "ru"),
    ("spanish", "es"),
    ("swedish", "sv"),
    ("turkish", "tr"),
    ("ukrainian", "uk"),
    ("vietnamese", "vi"),
];

/// Returns the code of a language that is a code, a token such as `<|de|>`, or a name in words.
fn code_of(name: &str) -> &str {
    let name = name.trim_matches(['<', '|', '>']);
    let known = NAMES.iter().find(|(word, _)| word.eq_ignore_ascii_case(name));
    known.map_or(name, |(_, code)| code)
}

/// Describes a model, whose texts begin and end with these ids of its file.
fn config_of(model: &WhisperConfig, start: u32, end: u32) -> Value {
    let inner = model.d_model * model.feed_forward_multiplier;
    json!({
        "architectures": ["WhisperForConditionalGeneration"],
        "model_type": "whisper",
        "is_encoder_decoder": true,
        "activation_function": "gelu",
        "scale_embedding": false,
        "num_mel_bins": model.features,
        "vocab_size": model.vocabulary - RESERVED,
        "d_model": model.d_model,
        "encoder_layers": model.encoder_layers,
        "decoder_layers": model.decoder_layers,
        "encoder_attention_heads": model.heads,
        "decoder_attention_heads": model.heads,
        "encoder_ffn_dim": inner,
        "decoder_ffn_dim": inner,
        "max_source_positions": model.positions,
        "max_target_positions": model.text_positions,
        "dropout": model.dropout,
        "decoder_start_token_id": start,
        "eos_token_id": end,
        "pad_token_id": end,
        "bos_token_id": end,
        "torch_dtype": "float32",
    })
}

/// Describes the features of a model.
fn features_of(metadata: &WhisperMetadata) -> Value {
    let features = &metadata.features;
    let window = metadata.model.frames() * features.hop_length;
    json!({
        "feature_extractor_type": "WhisperFeatureExtractor",
        "processor_class": "WhisperProcessor",
        "feature_size": features.n_mels,
        "sampling_rate": features.sample_rate,
        "hop_length": features.hop_length,
        "n_fft": features.n_fft,
        "chunk_length": window / features.sample_rate as usize,
        "n_samples": window,
        "nb_max_frames": metadata.model.frames(),
        "padding_side": "right",
        "padding_value": 0.0,
        "return_attention_mask": false,
    })
}

/// Says which file is missing in `folder`, and why another one does not replace it.
fn missing(folder: &Path, name: &str) -> String {
    let needed = format!("it needs {CONFIG}, {WEIGHTS} and {TOKENIZER}, and has no {name}");
    let pickle =
        ["pytorch_model.bin", "pytorch_model.bin.index.json"].into_iter().find(|file| folder.join(file).is_file());
    match pickle {
        Some(pickle) if name == WEIGHTS => format!(
            "{needed}; its {pickle} is a pickle, which can run any program, so it is not read: save the model with `safe_serialization=True`"
        ),
        _ => needed,
    }
}

/// Lists the names of the files with weights in `folder`.
fn weight_files(folder: &Path) -> Result<Vec<String>, ModelError> {
    if folder.join(WEIGHTS).is_file() || !folder.join(INDEX).is_file() {
        return Ok(vec![WEIGHTS.into()]);
    }
    let index = read_json(&folder.join(INDEX))?;
    let files = index["weight_map"].as_object().into_iter().flat_map(|map| map.values()).filter_map(Value::as_str);
    // A file beside the list, and no other place.
    let mut files: Vec<String> = files.filter(|file| !file.contains(['/', '\\'])).map(String::from).collect();
    files.sort_unstable();
    files.dedup();
    Ok(files)
}

/// Maps a description of Hugging Face to the configuration; the error says what is not supported.
fn model_of(file: &Value) -> Result<WhisperConfig, String> {
    let kind = file["model_type"].as_str().unwrap_or("unknown");
    if kind != WhisperConfig::KIND {
        return Err(format!("its {CONFIG} names the model type `{kind}`, and only `whisper` is read"));
    }
    let number = |name: &str| -> Result<usize, String> {
        let found = file[name].as_u64().filter(|number| *number <= u32::MAX.into());
        found.map(|number| number as usize).ok_or_else(|| format!("its {CONFIG} has no number `{name}`"))
    };
    let same = |a: &str, b: &str| -> Result<usize, String> {
        let (first, second) = (number(a)?, number(b)?);
        match first == second {
            true => Ok(first),
            false => Err(format!("`{a}` is {first} and `{b}` {second}, and a model with both equal is read")),
        }
    };
    let activation = file["activation_function"].as_str().unwrap_or("gelu");
    if activation != "gelu" {
        return Err(format!("its activation is `{activation}`, and `gelu` is read"));
    }
    if file["scale_embedding"].as_bool() == Some(true) {
        return Err("it scales its embedding, which Whisper does not".into());
    }
    let (d_model, inner) = (number("d_model")?, same("encoder_ffn_dim", "decoder_ffn_dim")?);
    if d_model == 0 || !inner.is_multiple_of(d_model) {
        return Err(format!("`encoder_ffn_dim` is {inner}, which is no multiple of the width {d_model}"));
    }
    Ok(WhisperConfig {
        features: number("num_mel_bins")?,
        vocabulary: number("vocab_size")? + RESERVED,
        d_model,
        heads: same("encoder_attention_heads", "decoder_attention_heads")?,
        encoder_layers: number("encoder_layers")?,
        decoder_layers: number("decoder_layers")?,
        feed_forward_multiplier: inner / d_model,
        positions: number("max_source_positions")?,
        text_positions: number("max_target_positions")?,
        length: LengthPolicy::Exact,
        dropout: file["dropout"].as_f64().unwrap_or(0.0),
    })
}
