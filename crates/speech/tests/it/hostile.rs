//! Damaged and hostile descriptions of models: every number of `model.json` is changed to numbers that no program wrote.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use burn::tensor::Device;
use plimsoll_audio::LogMelConfig;
use plimsoll_core::Key;
use plimsoll_layers::NormKind;
use plimsoll_speech::asr::{DecoderConfig, RecognizerConfig, RecognizerMetadata, Search, Transcriber};
use plimsoll_speech::tts::{
    LengthBounds, SpeechOptions, SpeechPipeline, SynthesizerConfig, SynthesizerMetadata, VoiceConfig,
};
use plimsoll_speech::{ModelError, ModelFolder};
use plimsoll_tape::collect;
use plimsoll_text::Tokenizer;
use plimsoll_train::write_weights;
use serde_json::{Value, json};

/// Lists the paths of all numbers in `value`.
fn numbers(value: &Value, path: &str, found: &mut Vec<String>) {
    match value {
        Value::Number(_) => found.push(path.into()),
        Value::Object(fields) => {
            fields.iter().for_each(|(name, value)| numbers(value, &format!("{path}/{name}"), found));
        }
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(index, value)| numbers(value, &format!("{path}/{index}"), found));
        }
        _ => {}
    }
}

/// Changes each number of the model in `folder`, and checks that `load` gives an error or a model that works. Returns how
/// many changes were refused.
fn check_each_number(folder: &Path, load: &dyn Fn() -> Result<(), ModelError>) -> usize {
    let file = ModelFolder(folder).metadata_file();
    let whole: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    let mut paths = Vec::new();
    numbers(&whole, "", &mut paths);
    assert!(paths.len() > 20, "{paths:?}");
    load().unwrap();
    let values =
        ["0", "1", "3", "-1", "2.5", "512", "1000000000000000000", "1e300", "1e999", "NaN", "null", "\"4\"", "[4]"];
    let mut refused = 0;
    for path in &paths {
        for value in values {
            let mut changed = whole.clone();
            *changed.pointer_mut(path).unwrap() = json!("HERE");
            let text = changed.to_string().replace("\"HERE\"", value);
            std::fs::write(&file, text).unwrap();
            let result = catch_unwind(AssertUnwindSafe(load));
            let Ok(result) = result else { panic!("{path} = {value} panics") };
            if let Err(error) = result {
                refused += 1;
                assert!(error.to_string().len() < 500, "{path} = {value}: {error}");
            }
        }
    }
    refused
}

fn noise(samples: usize) -> Vec<f32> {
    (0..samples).map(|n| Key::new(1).at(n as u64).unit() as f32 - 0.5).collect()
}

#[test]
fn hostile_recognizers_are_errors() {
    let folder = tempfile::tempdir().unwrap();
    let tokenizer = Tokenizer::characters(["abc"]);
    let features = LogMelConfig { n_mels: 20, ..LogMelConfig::default() };
    let decoder = DecoderConfig {
        layers: 1,
        feed_forward_multiplier: 2,
        norm_first: true,
        ctc_weight: 0.3,
        label_smoothing: 0.1,
    };
    let config = RecognizerConfig {
        features: 20,
        heads: 2,
        kernel: 5,
        subsampling_channels: 4,
        feed_forward_multiplier: 2,
        norm: NormKind::Group(4),
        decoder: Some(decoder),
        ..RecognizerConfig::recommended(8, 1, 1, tokenizer.size())
    };
    let device = Device::flex();
    RecognizerMetadata::new(config, features, tokenizer).write(folder.path()).unwrap();
    let weights = ModelFolder(folder.path()).exported_weights();
    write_weights(&weights, &collect(&config.init(&device, Key::new(1)))).unwrap();
    let samples = noise(4_000);
    let refused = check_each_number(folder.path(), &|| {
        let transcriber = Transcriber::load(folder.path(), &device)?;
        transcriber.transcribe(&samples, &Search::Greedy);
        Ok(())
    });
    assert!(refused > 150, "{refused}");
}

#[test]
fn hostile_synthesizers_are_errors() {
    let folder = tempfile::tempdir().unwrap();
    let tokenizer = Tokenizer::characters(["abc"]);
    let features = LogMelConfig { n_mels: 20, ..LogMelConfig::preset("myxtts").unwrap() };
    let small = SynthesizerConfig::recommended(20, tokenizer.size(), 8, 1);
    let config = SynthesizerConfig {
        text_heads: 2,
        decoder_heads: 2,
        voice: VoiceConfig { style_heads: 2, style_tokens: 2, ..small.voice },
        length_bounds: LengthBounds { frames_per_token_min: 1.0, frames_per_token_max: 2.0, tokens_max: 20 },
        ..small
    };
    let device = Device::flex();
    SynthesizerMetadata::new(config, features, tokenizer).write(folder.path()).unwrap();
    let weights = ModelFolder(folder.path()).exported_weights();
    write_weights(&weights, &collect(&config.init(&device, Key::new(1)))).unwrap();
    let samples = noise(8_000);
    let refused = check_each_number(folder.path(), &|| {
        let pipeline = SpeechPipeline::load(folder.path(), &device)?;
        if let Ok(voice) = pipeline.encode_voice(&samples) {
            let _ = pipeline.synthesize("ab", &voice, &SpeechOptions::default(), &mut |_, _| {});
        }
        Ok(())
    });
    assert!(refused > 350, "{refused}");
}

#[test]
fn large_descriptions_are_not_read() {
    let folder = tempfile::tempdir().unwrap();
    let file = ModelFolder(folder.path()).metadata_file();
    std::fs::write(&file, "[".repeat(1 << 20)).unwrap();
    let error = RecognizerMetadata::read(folder.path()).unwrap_err();
    assert!(matches!(error, ModelError::Format { .. }) && error.to_string().len() < 500, "{error}");
    std::fs::File::create(&file).unwrap().set_len(1 << 40).unwrap();
    assert!(matches!(RecognizerMetadata::read(folder.path()).unwrap_err(), ModelError::TooLarge { .. }));
}
