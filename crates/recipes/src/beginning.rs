//! What a run begins with: the model of another run, or an exported one, in place of random weights.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use burn::module::Module;
use plimsoll_audio::LogMelConfig;
use plimsoll_config::choices::{NumbersChoice, Task, TextChoice};
use plimsoll_config::{ChosenValue, CorpusSize, Recipe, RunConfig};
use plimsoll_core::counted;
use plimsoll_speech::ModelFolder;
use plimsoll_tape::{NamedTensor, collect};
use plimsoll_text::{Numbers, Tokenizer};
use serde::Serialize;

use crate::error::{Failure, FailureExt};
use crate::families::{ModelFacts, ModelPlan, family, family_of};
use crate::features::{feature_keys, features};
use crate::parameters::shapes_of;
use crate::run_names::named_run;

/// How the weights of a model became those of another.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Begun {
    /// Folder of the model that the run begins with.
    pub from: PathBuf,
    /// Number of tensors of parameters that were taken.
    pub taken: usize,
    /// Number of all tensors of parameters.
    pub all: usize,
    /// Tokens that the model did not have.
    pub new_tokens: Vec<String>,
    /// Keys whose values differ from those of the model: key, its value, the value now.
    pub changed: Vec<(String, String, String)>,
    /// Parameters of the new model that the other does not have.
    pub new: Vec<String>,
    /// Parameters of the other model that the new one does not have.
    pub unused: Vec<String>,
}

/// Most names that a line lists.
const NAMED: usize = 8;

impl std::fmt::Display for Begun {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { from, taken, all, new_tokens, changed, new, unused } = self;
        write!(f, "{}: {taken} of {}", from.display(), counted(all, "tensor"))?;
        if !new_tokens.is_empty() {
            write!(f, "; {}: {}", counted(new_tokens.len(), "new token"), short(new_tokens))?;
        }
        if !changed.is_empty() {
            let texts: Vec<String> = changed.iter().map(|(key, old, now)| format!("`{key}` {old} -> {now}")).collect();
            write!(f, "; changed: {}", short(&texts))?;
        }
        if !new.is_empty() {
            write!(f, "; begin at random: {}", short(new))?;
        }
        if !unused.is_empty() {
            write!(f, "; not used: {}", short(unused))?;
        }
        Ok(())
    }
}

fn short(names: &[String]) -> String {
    let first = names.iter().take(NAMED).map(|name| if name == " " { "a space".into() } else { name.clone() });
    let more = if names.len() > NAMED { format!(" and {} more", names.len() - NAMED) } else { String::new() };
    first.collect::<Vec<String>>().join(", ") + &more
}

/// Returns the folder of the model that a run of `config` begins with; `None` if it begins at random.
///
/// # Errors
/// If there is no such model.
pub(crate) fn base_folder(config: &RunConfig) -> Result<Option<PathBuf>, Failure> {
    let Some(named) = &config.training.from else { return Ok(None) };
    if named.as_os_str().is_empty() {
        return Err(Failure::invalid("`training.from` is empty", "name a run or an exported model, or leave it out"));
    }
    let folder = named_run(named);
    if !folder.exists() {
        return Err(Failure::no_run(named, &config.runs_dir));
    }
    Ok(Some(folder))
}

/// Reads the facts of the model that a run of `config` begins with; `None` if it begins at random.
///
/// # Errors
/// If there is no such model, or it is of another family than the run.
pub(crate) fn base_facts(config: &RunConfig) -> Result<Option<ModelFacts>, Failure> {
    base_folder(config)?.map(|folder| family(config).facts(&folder)).transpose()
}

/// Returns the recipe of a run that begins with the model in `folder`, for a corpus of this `size`, if it is a person's own. `asked`
/// is the task that a person asks for.
///
/// # Errors
/// If the folder has no model that this version trains.
pub(crate) fn recipe(folder: &Path, size: Option<&CorpusSize>, asked: Option<Task>) -> Result<Recipe, Failure> {
    let family = family_of(ModelFolder(folder))?;
    if let Some(other) = asked.filter(|asked| *asked != family.task()) {
        let message =
            format!("{} holds a model of the task `{}`, and not of `{other}`", folder.display(), family.task());
        return Err(Failure::invalid(message, "leave the task out: it follows the model"));
    }
    let facts = family.facts(folder)?;
    let reason = format!("as the model in {}", folder.display());
    let of_features = feature_keys(&facts.features).ok_or_else(|| {
        let message = format!("the features of the model in {} are of no preset", folder.display());
        Failure::invalid(message, "train on with the version of Plimsoll that trained it")
    })?;
    let mut keys = facts.model.keys(&facts.features);
    keys.extend(of_features);
    if let Some(tokenizer) = &facts.tokenizer {
        let (is_cased, is_punctuated) = tokenizer.cased_and_punctuated();
        // Phonemes have no capitals, and the texts that they are made of have.
        if tokenizer.phonemes().is_none() {
            keys.push(("data.lowercase", (!is_cased).to_string()));
        }
        keys.push(("data.punctuation", is_punctuated.to_string()));
        let steps: Vec<String> = tokenizer.normalizer().steps().iter().map(|step| format!("\"{step}\"")).collect();
        if !steps.is_empty() {
            keys.push(("data.normalize", format!("[{}]", steps.join(", "))));
        }
        if let Some(phonemes) = tokenizer.phonemes() {
            keys.push(("data.text", format!("\"{}\"", TextChoice::Phonemes)));
            keys.push(("data.language", format!("{:?}", phonemes.voice())));
        }
        if tokenizer.numbers() == Numbers::English {
            keys.push(("data.numbers", format!("\"{}\"", NumbersChoice::English)));
        }
    }
    let value =
        |(key, value): (&'static str, String)| ChosenValue { key, value, reason: reason.clone(), is_of_model: true };
    let values = keys.into_iter().map(value).chain(family.going_on(&facts.model, size)).collect();
    Ok(Recipe::for_trained_model(family.task(), values, size))
}

/// Returns the tokenizer of the model that a run of `config` begins with; `None` if it begins at random, or the model reads no text.
///
/// # Errors
/// If there is no such model.
pub fn base_tokenizer(config: &RunConfig) -> Result<Option<Tokenizer>, Failure> {
    Ok(base_facts(config)?.and_then(|facts| facts.tokenizer))
}

/// Returns `module`, the model `plan` with initial weights, with the weights of the model that a run of `config` begins with; unchanged
/// if it begins at random. `tokenizer` is that of the run.
///
/// Weights are taken by name. A token has the weights of the token of its name; a new one those of a mean token.
///
/// # Errors
/// If the weights cannot be read, or a parameter has another size than that of its name.
pub(crate) fn begin<M: Module>(
    module: M,
    plan: &ModelPlan,
    tokenizer: &Tokenizer,
    config: &RunConfig,
) -> Result<M, Failure> {
    let Some(base) = Base::read(config)? else { return Ok(module) };
    let tokens = tokenizer.names();
    let mut values = collect(&module);
    base.compare(&shapes_of(&module), plan, &tokens)?;
    for value in &mut values {
        let Some(found) = base.weights.get(&value.name) else {
            if plan.begins_at_zero(&value.name) {
                value.values.fill(0.0);
            }
            continue;
        };
        match plan.token_axis(&value.name) {
            Some(axis) => base.take_rows(value, found, axis, &tokens),
            None => value.values.clone_from(&found.values),
        }
    }
    plimsoll_tape::apply(module, values).failed()
}

/// Returns how a run of `config` takes the weights of the model that it begins with, and reasons why they may not be the best; `None`
/// if it begins at random. `module` is the model `plan` on any device.
///
/// # Errors
/// As for [`begin`].
pub(crate) fn begun<M: Module>(
    module: &M,
    plan: &ModelPlan,
    tokenizer: &Tokenizer,
    config: &RunConfig,
) -> Result<Option<(Begun, Vec<String>)>, Failure> {
    let Some(base) = Base::read(config)? else { return Ok(None) };
    let begun = base.compare(&shapes_of(module), plan, &tokenizer.names())?;
    let changed = match base_facts(config)? {
        Some(facts) => changed(&facts, plan, &features(&config.features)),
        None => Vec::new(),
    };
    Ok(Some((Begun { changed, ..begun }, base.warnings)))
}

/// Lists the keys that differ between a model and the plan of another.
fn changed(facts: &ModelFacts, plan: &ModelPlan, now: &LogMelConfig) -> Vec<(String, String, String)> {
    let all = |model: &ModelPlan, features: &LogMelConfig| {
        let mut keys = model.keys(features);
        keys.extend(feature_keys(features).unwrap_or_default());
        keys
    };
    let after = all(plan, now);
    let differs = |(key, old): (&'static str, String)| {
        let (_, now) = after.iter().find(|(other, _)| *other == key)?;
        (*now != old).then(|| (key.to_owned(), old, now.clone()))
    };
    all(&facts.model, &facts.features).into_iter().filter_map(differs).collect()
}

/// Model that a run begins with.
struct Base {
    folder: PathBuf,
    weights: HashMap<String, NamedTensor>,
    /// Names of its tokens.
    tokens: Vec<String>,
    /// Reasons why its weights may not be the best.
    warnings: Vec<String>,
}

impl Base {
    fn read(config: &RunConfig) -> Result<Option<Self>, Failure> {
        let Some(folder) = base_folder(config)? else { return Ok(None) };
        let tokens = base_tokenizer(config)?.map(|tokenizer| tokenizer.names()).unwrap_or_default();
        let (weights, warnings) = family(config).weights(&folder)?;
        let left_out = if ModelFolder(&folder).checkpoints().exists() { "" } else { family(config).exported_without() };
        let named = |weight: NamedTensor| {
            let name = format!("{left_out}{}", weight.name);
            (name.clone(), NamedTensor { name, ..weight })
        };
        let weights = weights.into_iter().map(named).collect();
        Ok(Some(Self { folder, weights, tokens, warnings }))
    }

    /// Compares the weights with the parameters of a model, which have these names and `shapes`.
    fn compare(&self, shapes: &[(String, Vec<usize>)], plan: &ModelPlan, tokens: &[String]) -> Result<Begun, Failure> {
        let known: HashSet<&String> = self.tokens.iter().collect();
        let is_new = |token: &&String| !known.contains(token);
        let mut begun = Begun {
            from: self.folder.clone(),
            all: shapes.len(),
            new_tokens: if self.tokens.is_empty() {
                Vec::new()
            } else {
                tokens.iter().filter(is_new).cloned().collect()
            },
            ..Begun::default()
        };
        for (name, wanted) in shapes {
            let Some(found) = self.weights.get(name) else {
                begun.new.push(name.clone());
                continue;
            };
            let mut comparable = found.shape.clone();
            if let Some(axis) = plan.token_axis(name).filter(|axis| *axis < comparable.len().min(wanted.len())) {
                comparable[axis] = wanted[axis];
            }
            if comparable != *wanted {
                let (found, folder) = (&found.shape, self.folder.display());
                let message =
                    format!("`{name}` has the sizes {found:?} in {folder}, and {wanted:?} in this configuration");
                let help = "leave out the keys of [model] and [features]: they follow that model";
                return Err(Failure::invalid(message, help));
            }
            begun.taken += 1;
        }
        if begun.taken == 0 {
            let message = format!("the weights in {} have no tensor of this model", self.folder.display());
            return Err(Failure::invalid(message, "name a run or an exported model of the same family"));
        }
        let is_unused = |name: &&String| !shapes.iter().any(|(known, _)| known == *name);
        begun.unused = self.weights.keys().filter(is_unused).cloned().collect();
        begun.unused.sort();
        Ok(begun)
    }

    /// Gives `value` the entries of `found` along `axis` for the tokens that both have, and their mean for new tokens.
    fn take_rows(&self, value: &mut NamedTensor, found: &NamedTensor, axis: usize, tokens: &[String]) {
        let outer: usize = value.shape[..axis].iter().product();
        let inner: usize = value.shape[axis + 1..].iter().product();
        let (wide, old) = (value.shape[axis], found.shape[axis]);
        let places: HashMap<&String, usize> = self.tokens.iter().zip(0..old).collect();
        // Reserved tokens are no text: a new character is like the others.
        let texts = RESERVED.min(old)..self.tokens.len().min(old);
        for row in 0..outer {
            for (place, token) in tokens.iter().enumerate().take(wide) {
                for column in 0..inner {
                    let at = |place: usize| found.values[(row * old + place) * inner + column];
                    value.values[(row * wide + place) * inner + column] = match places.get(token) {
                        Some(place) => at(*place),
                        None if texts.is_empty() => continue,
                        None => texts.clone().map(at).sum::<f32>() / texts.len() as f32,
                    };
                }
            }
        }
    }
}

/// Number of reserved tokens, which every tokenizer begins with.
const RESERVED: usize = Tokenizer::RESERVED_IDS;

#[cfg(test)]
mod tests {
    use burn::tensor::Device;
    use plimsoll_config::{ConfigArgs, ConfigError, Loaded, load, load_with_recipe};
    use plimsoll_core::{Bytes, Key};
    use plimsoll_speech::asr::RecognizerConfig;

    use super::*;
    use crate::families;

    /// Lists every shipped configuration, and the built-in ones.
    fn configurations() -> Vec<RunConfig> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../config/configs");
        let mut files = Vec::new();
        for task in ["asr", "tts", "vocoder", "."] {
            let folder = std::fs::read_dir(root.join(task)).unwrap();
            files.extend(folder.map(|file| file.unwrap().path()).filter(|path| path.extension().is_some()));
        }
        assert!(files.len() > 20, "{files:?}");
        let read = |path: PathBuf| {
            let args = ConfigArgs { config: Some(path), ..ConfigArgs::default() };
            load(&args, std::iter::empty(), &|| Bytes::gib(8)).unwrap().config
        };
        let mut all: Vec<RunConfig> = files.into_iter().map(read).collect();
        // What no shipped configuration has.
        let with = |text: &str| {
            let set = text.split(' ').map(String::from).collect();
            load(&ConfigArgs { set, ..ConfigArgs::default() }, std::iter::empty(), &|| Bytes::gib(8)).unwrap().config
        };
        all.push(with("model.conv_norm=group model.conv_norm_groups=4 model.positions=rotary model.decoder_layers=2"));
        all.push(with("model.attention=truncate model.max_attention_sequence_length=90 model.decoder_norm=post"));
        all.push(with("model.attention=chunked model.attention_chunk=32 model.conv_norm=batch features.n_mels=31"));
        all.push(with(
            "model.family=whisper model.decoder_layers=2 features.preset=whisper-padded features.n_mels=128",
        ));
        all.push(with(
            "model.family=whisper model.attention=chunked model.attention_chunk=64 model.audio_positions=200",
        ));
        all.push(with("task=tts model.family=autoregressive model.reduction_factor=3 model.mel_loss=huber"));
        all.push(with(
            "task=tts model.family=parallel model.voice_links=true model.pitch=true model.pitch_harmonics=true",
        ));
        all
    }

    /// The keys of a model make the same model again.
    #[test]
    fn keys_of_a_model_describe_it() {
        for config in configurations() {
            let bands = features(&config.features).n_mels;
            let model = families::model(&config, bands, 30);
            let wanted = features(&config.features);
            let mut keys = model.keys(&wanted);
            keys.extend(feature_keys(&wanted).unwrap());
            let value = |(key, value)| ChosenValue { key, value, reason: String::new(), is_of_model: true };
            let recipe = Recipe::for_trained_model(config.task, keys.into_iter().map(value).collect(), None);
            let choose = |_: &Loaded| Ok::<_, ConfigError>(Some(recipe));
            let again = load_with_recipe(&ConfigArgs::default(), std::iter::empty(), &|| Bytes::gib(8), choose);
            let again = again.unwrap_or_else(|error| panic!("{error:?}")).config;
            let found = families::model(&again, features(&again.features).n_mels, 30);
            assert_eq!(serde_json::to_value(&found).unwrap(), serde_json::to_value(&model).unwrap());
            assert_eq!(features(&again.features), features(&config.features));
            assert_eq!(family(&again).kind(), family(&config).kind());
        }
    }

    #[test]
    fn weights_are_taken_by_name_and_tokens_by_theirs() {
        let plan = |tokens: &[&str]| RecognizerConfig {
            layers: 1,
            vocabulary: tokens.len(),
            ..RecognizerConfig::konkani(16, 1, 1, tokens.len())
        };
        let (old, new) = (["<b>", "<u>", "<s>", "<e>", "a", "b"], ["<b>", "<u>", "<s>", "<e>", "c", "b", "a"]);
        let weights: Vec<NamedTensor> = collect(&plan(&old).init(&Device::flex(), Key::new(1)));
        let names = |tokens: &[&str]| tokens.iter().map(|token| (*token).to_string()).collect::<Vec<String>>();
        let base = Base {
            folder: "old".into(),
            weights: weights.iter().map(|weight| (weight.name.clone(), weight.clone())).collect(),
            tokens: names(&old),
            warnings: Vec::new(),
        };
        let (config, tokens) = (plan(&new), names(&new));
        let model = ModelPlan::Recognizer(config);
        let module = config.init(&Device::flex(), Key::new(2));
        let begun = base.compare(&shapes_of(&module), &model, &tokens).unwrap();
        assert_eq!((begun.taken, begun.all, &begun.new_tokens[..]), (weights.len(), weights.len(), &names(&["c"])[..]));
        assert_eq!(begun.to_string(), format!("old: {0} of {0} tensors; 1 new token: c", weights.len()));
        for initial in collect(&module) {
            let (found, mut value) = (&base.weights[&initial.name], initial.clone());
            let Some(axis) = model.token_axis(&initial.name) else { continue };
            base.take_rows(&mut value, found, axis, &tokens);
            // Entries of a token, whose axis is the last or the first.
            let entry = |tensor: &NamedTensor, place: usize| -> Vec<f32> {
                let inner: usize = tensor.shape[axis + 1..].iter().product();
                let wide = tensor.shape[axis];
                let is_of = |index: &usize| index / inner % wide == place;
                (0..tensor.values.len()).filter(is_of).map(|index| tensor.values[index]).collect()
            };
            for (to, from) in [(0, 0), (1, 1), (2, 2), (3, 3), (5, 5), (6, 4)] {
                assert_eq!(entry(&value, to), entry(found, from), "{}", initial.name);
            }
            let mean = entry(found, 4).into_iter().zip(entry(found, 5)).map(|(a, b)| (a + b) / 2.0);
            assert_eq!(entry(&value, 4), mean.collect::<Vec<f32>>(), "{}", initial.name);
        }
        // A wider model is refused by name.
        let wide = RecognizerConfig::konkani(32, 1, 1, new.len()).init(&Device::flex(), Key::new(2));
        let failure = base.compare(&shapes_of(&wide), &model, &tokens).unwrap_err();
        assert!(failure.to_string().contains("has the sizes"), "{failure}");
    }
}
