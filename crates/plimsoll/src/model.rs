//! `plimsoll model info`: prints the size of the model that a configuration describes.

use std::fmt::Write;
use std::process::ExitCode;

use clap::{Args, Subcommand};

use burn::module::{Module, Param};
use burn::tensor::Tensor;
use plimsoll_audio::LogMel;
use plimsoll_config::{ConfigArgs, RunConfig};
use plimsoll_core::{Bytes, Seconds, counted};
use plimsoll_recipes::corpus;
use plimsoll_recipes::data;
use plimsoll_recipes::families::{self, FamilyModel, ModelPlan, family};
use plimsoll_recipes::{Failure, FailureExt, base_tokenizer, features, load_run, trained_parts, with_model};
use plimsoll_tape::{NamedVisitor, count, on_capture_device, walk};
use serde_json::{Value, json};

use crate::environment;
use crate::terminal::Terminal;

/// Bytes of a parameter in fp32.
const WEIGHT_BYTES: u64 = 4;
/// Bytes of a trained parameter beside its value: gradient and both running means of AdamW.
const TRAINED_BYTES: u64 = 3 * WEIGHT_BYTES;

/// Commands of `model`.
#[derive(Debug, Subcommand)]
pub(crate) enum ModelCommand {
    /// Print the size of the model of a configuration, part by part, and the frames and steps of its input and output
    Info(InfoArgs),
}

/// Arguments of `model info`.
#[derive(Debug, Args)]
pub(crate) struct InfoArgs {
    /// Print one JSON object instead of text.
    #[arg(long)]
    pub(crate) json: bool,
    /// The configuration.
    #[command(flatten)]
    pub(crate) config: ConfigArgs,
}

/// Prints the sizes of the model of the configuration in `args`.
pub(crate) fn info(args: &InfoArgs) -> Result<ExitCode, Failure> {
    let loaded = load_run(&args.config, environment(), &Terminal)?;
    for warning in &loaded.warnings {
        eprintln!("warning: {warning}");
    }
    let config = &loaded.config;
    let log_mel = LogMel::new(&features(&config.features)).invalid()?;
    let vocabulary = vocabulary(config)?;
    let model = families::model(config, log_mel.n_mels(), vocabulary);
    let trained = model.trained_parameters(&trained_parts(&config.training))?;
    let sizes = Sizes { trained, ..Sizes::new(model, log_mel, family(config).reads_text()) };
    match args.json {
        true => println!("{:#}", sizes.json()),
        false => print!("{}", sizes.summary()),
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the vocabulary size: as configured, or as training would derive it from its texts; 0 for a vocoder.
fn vocabulary(config: &RunConfig) -> Result<usize, Failure> {
    if let Some(vocabulary) = config.model.vocabulary {
        return Ok(vocabulary as usize);
    }
    if !family(config).reads_text() {
        return Ok(0);
    }
    if let (None, Some(known)) = (&config.data.manifest, base_tokenizer(config)?) {
        return Ok(known.size());
    }
    if config.data.manifest.is_none() && !corpus::exists(&config.data) {
        let message = "the vocabulary size is unknown: there is no corpus to derive it from";
        return Err(Failure::invalid(message, "give --set model.vocabulary=N, or --manifest with a corpus"));
    }
    Ok(data::prepare(config, &Terminal)?.tokenizer.size())
}

/// Number of parameters of a model, in total and by part, with the model itself and the extractor of its features.
struct Sizes {
    model: ModelPlan,
    log_mel: LogMel,
    reads_text: bool,
    parameters: u64,
    /// Number of parameters that are not frozen.
    trained: u64,
    parts: Vec<Part>,
}

/// A part of a model: the parameters whose names begin with `name`.
#[derive(Debug, PartialEq)]
struct Part {
    name: String,
    /// Number of parameters of each block; a part without blocks counts as one block.
    blocks: Vec<u64>,
}

impl Part {
    fn parameters(&self) -> u64 {
        self.blocks.iter().sum()
    }

    /// Formats block count and size as in `12 x 1,522,944` if there are several blocks of equal size; else returns an
    /// empty text.
    fn each(&self) -> String {
        match self.blocks.as_slice() {
            [first, rest @ ..] if !rest.is_empty() && rest.iter().all(|block| block == first) => {
                format!("{} x {}", self.blocks.len(), thousands(*first))
            }
            _ => String::new(),
        }
    }
}

impl Sizes {
    fn new(model: ModelPlan, log_mel: LogMel, reads_text: bool) -> Self {
        let (parameters, counted) =
            on_capture_device(|device| with_model!(&model, model => count_module(model.init_unseeded(device))));
        Self { model, log_mel, reads_text, parameters, trained: parameters, parts: parts(&counted) }
    }

    /// Computes the number of feature frames of `seconds` of audio, and the number of positions over which attention
    /// computes.
    fn frames(&self, seconds: f64) -> (u32, u32) {
        let frames = self.log_mel.frames_in(Seconds(seconds)).0;
        (frames, with_model!(&self.model, model => model.positions(frames)))
    }

    /// Returns the number of tokens; 0 if the model reads no text.
    fn vocabulary(&self) -> usize {
        if self.reads_text { self.model.vocabulary() } else { 0 }
    }

    /// Returns the memory of weights, gradients and optimizer state in training.
    fn training_bytes(&self) -> Bytes {
        Bytes(self.parameters * WEIGHT_BYTES + self.trained * TRAINED_BYTES)
    }

    /// Formats the sizes as JSON.
    fn json(&self) -> Value {
        let Self { parameters, trained, .. } = self;
        let part = |part: &Part| json!({"name": part.name, "parameters": part.parameters()});
        let mut json = json!({
            "parameters": parameters,
            "trained_parameters": trained,
            "parts": self.parts.iter().map(part).collect::<Vec<Value>>(),
            "weights_bytes": parameters * WEIGHT_BYTES,
            "training_bytes": self.training_bytes().0,
            "features": self.model.features(),
            "vocabulary": self.vocabulary(),
            "frames_after_10s": self.frames(10.0).1,
            "frames_after_30s": self.frames(30.0).1,
        });
        let sizes = with_model!(&self.model, model => model.sizes());
        if let (Value::Object(json), Value::Object(sizes)) = (&mut json, sizes) {
            json.extend(sizes);
        }
        json
    }

    /// Formats the sizes as text.
    fn summary(&self) -> String {
        let Self { parameters, trained, parts, .. } = self;
        let (bands, vocabulary) = (self.model.features(), self.vocabulary());
        let positions = with_model!(&self.model, model => model.positions_label());
        let features = self.log_mel.config();
        let hop = Seconds(features.hop_length as f64 / f64::from(features.sample_rate));
        let mut text = format!("  {:<18} {:>18} {:>16}\n", "part", "each", "parameters");
        for part in parts {
            let (each, all) = (part.each(), thousands(part.parameters()));
            let _ = writeln!(text, "  {:<18} {each:>18} {all:>16}", part.name);
        }
        let _ = writeln!(text, "  {:<18} {:>18} {:>16}", "total", "", thousands(*parameters));
        if trained < parameters {
            let _ = writeln!(text, "  {:<18} {:>18} {:>16}", "trained", "", thousands(*trained));
        }
        let (weights, training) = (Bytes(parameters * WEIGHT_BYTES), self.training_bytes());
        text.push('\n');
        let _ = writeln!(text, "  weights     {weights} in fp32");
        let _ = writeln!(
            text,
            "  training    {training} with gradients and both moments of AdamW; activations are not included"
        );
        let _ = writeln!(text, "  features    {bands} mel bands, a frame every {hop}");
        if vocabulary > 0 {
            let _ = writeln!(text, "  vocabulary  {}", counted(thousands(vocabulary as u64), "token"));
        }
        for seconds in [10.0, 30.0] {
            let (before, after) = self.frames(seconds);
            let (before, after) = (thousands(before.into()), thousands(after.into()));
            let _ = writeln!(text, "  {:<11} {}, {after} {positions}", Seconds(seconds), counted(before, "frame"));
        }
        text
    }
}

/// Counts the trainable values of a module: in total, and for each parameter by its name.
fn count_module(module: impl Module) -> (u64, Vec<(String, u64)>) {
    (count(&module), sizes_of(module))
}

/// Lists the name and the number of trainable values of each parameter; the numbers add up to `count`.
fn sizes_of(model: impl Module) -> Vec<(String, u64)> {
    struct Counted(Vec<(String, u64)>);
    impl NamedVisitor for Counted {
        fn parameter<const D: usize>(&mut self, name: &str, param: &Param<Tensor<D>>) {
            let value = param.val();
            if value.is_require_grad() {
                self.0.push((name.into(), value.shape().num_elements() as u64));
            }
        }
    }
    let mut counted = Counted(Vec::new());
    walk(&model, &mut counted);
    counted.0
}

/// Adds up the parameters of each part of a model, in the order of the model.
fn parts(counted: &[(String, u64)]) -> Vec<Part> {
    let mut parts: Vec<Part> = Vec::new();
    for (parameter, count) in counted {
        let (name, block) = part_of(parameter);
        if parts.last().is_none_or(|part| part.name != name) {
            parts.push(Part { name, blocks: Vec::new() });
        }
        let blocks = &mut parts.last_mut().expect("one was pushed if there was none").blocks;
        blocks.resize(blocks.len().max(block + 1), 0);
        blocks[block] += count;
    }
    parts
}

/// Returns the name of the part of the model that a parameter belongs to, and the number of its block in the part.
fn part_of(parameter: &str) -> (String, usize) {
    let fields: Vec<&str> = parameter.split('.').collect();
    // These have parts of their own.
    let depth = if ["decoder", "text", "voice", "vocoder", "discriminators"].contains(&fields[0]) { 2 } else { 1 };
    let (name, inside) = fields.split_at(depth.min(fields.len()));
    let block = inside.first().and_then(|field| field.parse().ok()).unwrap_or(0);
    (name.join("."), block)
}

/// Formats `number` with a comma between groups of three digits.
fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_separated_by_commas() {
        for (number, expected) in
            [(0, "0"), (999, "999"), (1000, "1,000"), (24_770_704, "24,770,704"), (100_000, "100,000")]
        {
            assert_eq!(thousands(number), expected);
        }
    }

    #[test]
    fn parameters_are_summed_by_part_and_block() {
        let named = [
            ("subsampling.layers.0.weight", 9),
            ("subsampling.layers.1.weight", 81),
            ("blocks.0.first.widen.weight", 1000),
            ("blocks.0.first.widen.bias", 4),
            ("blocks.1.first.widen.weight", 1000),
            ("blocks.1.first.widen.bias", 4),
            ("output.weight", 7),
            ("decoder.embedding.weight", 5),
            ("decoder.blocks.0.norm_self.gamma", 2),
            ("decoder.output.weight", 6),
        ];
        let named: Vec<(String, u64)> = named.map(|(name, count)| (name.to_string(), count)).into();
        let found: Vec<(String, u64, String)> =
            parts(&named).into_iter().map(|part| (part.name.clone(), part.parameters(), part.each())).collect();
        let expected = [
            ("subsampling", 90u64, ""),
            ("blocks", 2008, "2 x 1,004"),
            ("output", 7, ""),
            ("decoder.embedding", 5, ""),
            ("decoder.blocks", 2, ""),
            ("decoder.output", 6, ""),
        ];
        assert_eq!(found, expected.map(|(name, count, each)| (name.to_string(), count, each.to_string())));
    }

    /// The parts of KonkaniVani's small model, as published, add up; the running statistics of its batch norms are not
    /// trainable.
    #[test]
    fn parts_sum_to_all_parameters() {
        let model = plimsoll_speech::asr::RecognizerConfig::konkani(128, 6, 3, 200);
        let sizes = Sizes::new(
            ModelPlan::Recognizer(model),
            LogMel::new(&plimsoll_audio::LogMelConfig::default()).unwrap(),
            true,
        );
        assert_eq!(sizes.parameters, 3_189_136);
        assert_eq!(sizes.parts.iter().map(Part::parameters).sum::<u64>(), sizes.parameters);
        let blocks = &sizes.parts.iter().find(|part| part.name == "blocks").unwrap().blocks;
        assert!(blocks.len() == 6 && blocks.iter().all(|block| *block == blocks[0]), "{blocks:?}");
        assert_eq!(sizes.json()["frames_after_10s"], 1001);
    }
}
