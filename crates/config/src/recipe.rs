//! Recipes: the values of keys that follow from a corpus, or from the model that a run begins with, each with its reason.

mod voice;

use std::fmt::Write as _;

use plimsoll_core::{Seconds, counted};

use super::choices::Task;
pub use voice::VoiceFacts;

/// What the sizes of a corpus are.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CorpusSize {
    /// Number of utterances.
    pub utterances: usize,
    /// Total duration of the utterances.
    pub seconds: Seconds,
    /// Length that a person asks for; `None` if the recipe chooses it.
    pub asked: Option<RunLength>,
}

/// Length of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RunLength {
    /// Number of optimizer steps.
    Steps(u64),
    /// Number of passes over the corpus.
    Passes(u32),
}

/// A value that a recipe chose for a key.
#[derive(Clone, Debug, PartialEq)]
pub struct ChosenValue {
    /// Full name of the key.
    pub key: &'static str,
    /// Value, as TOML.
    pub value: String,
    /// Why this value was chosen.
    pub reason: String,
    /// Whether the model that the run begins with decides it.
    pub is_of_model: bool,
}

/// Values of keys for one corpus. Every layer above it overrides them: a file, environment, flags.
#[derive(Clone, Debug, PartialEq)]
pub struct Recipe {
    task: Task,
    values: Vec<ChosenValue>,
    /// Whether it replaces the built-in file of its task, and does not only change it.
    is_whole: bool,
}

/// Seconds of speech in a step. Half as many in twice the steps came to the same.
const STEP_SECONDS: f64 = 30.0;
/// Fewest and most utterances in a step.
const BATCH: (f64, f64) = (4.0, 64.0);
/// Hours of speech that a run reads of a corpus of one hour. Of more it reads more, in proportion to the root of its hours:
/// 31 passes over one hour, 18 over three, 10 over ten. Measured at 1.6 hours alone, where 18 passes still left errors to
/// unlearn; the root is a guess.
const HOURS_READ: f64 = 31.0;
/// Fewest and most passes.
const PASSES: (f64, f64) = (4.0, 200.0);
/// Hours of speech from which other speeds are not worth their time. Not measured.
const MANY_HOURS: f64 = 20.0;
/// Hours of speech from which a twentieth is enough for validation.
const ENOUGH_TO_JUDGE: f64 = 1.0;

impl CorpusSize {
    /// Returns the hours of speech, more than none.
    fn hours(&self) -> f64 {
        (self.seconds.0 / 3600.0).max(1e-3)
    }

    /// Returns the number of utterances of mean length in so many `seconds` of speech, within `range`.
    fn batch(&self, seconds: f64, range: (f64, f64)) -> f64 {
        let mean = self.seconds.0 / self.utterances.max(1) as f64;
        (seconds / mean.max(0.1)).round().clamp(range.0, range.1)
    }

    /// Returns the number of steps of `batch` utterances: what a person asks for, or else what the recipe wants.
    fn steps(&self, batch: f64, wanted: impl Fn() -> f64) -> f64 {
        let steps = match self.asked {
            Some(RunLength::Steps(steps)) => return steps as f64,
            Some(RunLength::Passes(passes)) => self.utterances as f64 * f64::from(passes) / batch,
            None => wanted(),
        };
        steps.max(1.0)
    }
}

/// The values that a recipe has chosen so far.
#[derive(Default)]
struct Choices(Vec<ChosenValue>);

impl Choices {
    fn choose(&mut self, key: &'static str, value: &str, reason: String) {
        self.0.push(ChosenValue { key, value: value.into(), reason, is_of_model: false });
    }

    /// Chooses how often a run of so many `steps` is looked at: so many `times`, which `often` says in words, but after at most `most` steps.
    fn watch(&mut self, steps: f64, times: f64, most: f64, often: &str) {
        let interval = (steps / times).clamp(20.0, most).round();
        let often = if interval < steps { often } else { "the run ends before, with a validation" };
        self.choose("training.validation_interval", &interval.to_string(), often.into());
        self.choose("training.checkpoint_interval", &interval.to_string(), "with each validation".into());
        self.choose("training.log_interval", "50", "a line now and then".into());
    }
}

impl Recipe {
    /// Chooses the values of a recognizer for a corpus of this `size`.
    pub fn for_recognizer(size: &CorpusSize) -> Self {
        let (hours, batch) = (size.hours(), size.batch(STEP_SECONDS, BATCH));
        let passes = (HOURS_READ / hours.sqrt()).round().clamp(PASSES.0, PASSES.1);
        let spoken = Seconds(size.seconds.0);
        let mut chosen = Choices::default();
        let mut choose = |key, value: &str, reason| chosen.choose(key, value, reason);
        let text = "capitals and punctuation cannot be heard; data.punctuation and data.lowercase change it";
        choose("data.lowercase", "true", text.into());
        choose("data.punctuation", "false", "as above".into());
        if hours >= ENOUGH_TO_JUDGE {
            let reason = "a twentieth of an hour is enough to judge by".into();
            choose("data.validation_share", "0.05", reason);
        }
        let many_steps =
            format!("about {STEP_SECONDS} s of speech a step; half as many in twice the steps came to the same");
        choose("data.batch_size", &batch.to_string(), many_steps);
        let local = "convolutions learn more from few hours than attention, in less time";
        choose("model.encoder", "\"convolution\"", local.into());
        choose("model.d_model", "128", "wider blocks learned no more in the same number of steps".into());
        choose("model.encoder_layers", "6", "as above".into());
        choose("model.conv_kernel", "9", "360 ms, about a syllable".into());
        choose("model.feed_forward_multiplier", "3", "as in the runs that these values come from".into());
        choose("model.dropout", "0.1", "the corpus is read many times".into());
        let same = "a pause before or after the words changes little in them";
        choose("features.preset", "\"spoken\"", same.into());
        choose("features.n_mels", "40", "80 bands learned no more, and take longer".into());
        choose("model.subsampling_channels", "16", "a linear layer instead learned less".into());
        if hours < MANY_HOURS {
            let reason = format!("{spoken} of speech become three times as many ways to say it");
            choose("augment.speeds", "[0.9, 1.0, 1.1]", reason);
        }
        choose("augment.time_masks", "2", "what is missing must be guessed from the rest".into());
        choose("augment.time_mask_frames", "20", "as above".into());
        choose("augment.frequency_masks", "2", "as above".into());
        choose("augment.frequency_mask_bins", "7", "as above".into());
        let read = format!("{} of {spoken}: {:.0} hours are read", counted(passes as u64, "pass"), passes * hours);
        choose("training.epochs", &passes.to_string(), read);
        choose("training.learning_rate", "3e-3", "a small model bears it".into());
        choose("training.warmup_steps", "300", "the rate rises in the first steps".into());
        choose("training.warmup_share", "0.1", "but not for longer than a tenth of the run".into());
        let steps = size.steps(batch, || size.utterances as f64 * passes / batch);
        chosen.watch(steps, 10.0, 2000.0, "about ten times in the run");
        Self { task: Task::Asr, values: chosen.0, is_whole: true }
    }

    /// Makes the recipe of a run that goes on with a trained model of `task`: the values `of_model` that describe the model, and
    /// those of training a recognizer for a corpus of this `size`. What it leaves open is that of the built-in file.
    pub fn for_trained_model(task: Task, of_model: Vec<ChosenValue>, size: Option<&CorpusSize>) -> Self {
        let is_of_model = |key: &str| of_model.iter().any(|value| value.key == key) || key.starts_with("model.");
        let of_corpus = size.filter(|_| task == Task::Asr).map(Self::for_recognizer);
        let is_whole = of_corpus.is_some();
        let mut values = of_corpus.map_or_else(Vec::new, |recipe| recipe.values);
        values.retain(|value| !is_of_model(value.key) && !value.key.starts_with("features."));
        Self { task, values: of_model.into_iter().chain(values).collect(), is_whole }
    }

    /// Returns whether the recipe replaces the built-in file of its task, and does not only change it.
    pub(super) fn is_whole(&self) -> bool {
        self.is_whole
    }

    /// Returns the task of the model.
    pub(super) fn task(&self) -> Task {
        self.task
    }

    /// Lists the chosen values.
    pub fn chosen(&self) -> &[ChosenValue] {
        &self.values
    }

    /// Writes the recipe as a configuration file.
    pub(super) fn to_toml(&self) -> String {
        let mut text = format!("task = \"{}\"\n", self.task);
        for ChosenValue { key, value, reason, .. } in &self.values {
            writeln!(text, "{key} = {value} # {reason}").expect("a text can be written to");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_corpus_gets_a_recipe_that_is_a_valid_configuration() {
        for (utterances, seconds) in
            [(0, 0.0), (2, 3.0), (300, 1100.0), (1700, 5800.0), (40_000, 360_000.0), (9, 20_000.0)]
        {
            let size = CorpusSize { utterances, seconds: Seconds(seconds), asked: None };
            let text = Recipe::for_recognizer(&size).to_toml();
            let args = crate::ConfigArgs::default();
            let choose = |_: &crate::Loaded| Ok::<_, crate::ConfigError>(Some(Recipe::for_recognizer(&size)));
            let loaded = crate::load_with_recipe(&args, std::iter::empty(), &|| plimsoll_core::Bytes::gib(8), choose);
            let loaded = loaded.unwrap_or_else(|error| panic!("{utterances}: {error:?}\n{text}"));
            assert_eq!(loaded.chosen(), loaded.recipe.unwrap().chosen());
        }
    }

    /// A run that a person makes shorter or longer is validated as often.
    #[test]
    fn validations_follow_the_length_that_is_asked_for() {
        let interval = |asked| {
            let size = CorpusSize { utterances: 600, seconds: Seconds(1800.0), asked };
            let recipe = Recipe::for_recognizer(&size);
            let chosen = recipe.chosen().iter().find(|chosen| chosen.key == "training.validation_interval").unwrap();
            (chosen.value.parse::<u64>().unwrap(), chosen.reason.clone())
        };
        // Batches of ten.
        assert_eq!(interval(None).0, 264);
        assert_eq!(interval(Some(RunLength::Steps(4000))).0, 400);
        assert_eq!(interval(Some(RunLength::Passes(10))).0, 60);
        let (steps, reason) = interval(Some(RunLength::Steps(15)));
        assert!(steps == 20 && reason.starts_with("the run ends before"), "{reason}");
    }

    #[test]
    fn more_hours_are_read_fewer_times_but_longer() {
        let read = |hours: f64| {
            let utterances = (hours * 1000.0) as usize;
            let size = CorpusSize { utterances, seconds: Seconds(hours * 3600.0), asked: None };
            let recipe = Recipe::for_recognizer(&size);
            let of =
                |key| recipe.chosen().iter().find(|chosen| chosen.key == key).unwrap().value.parse::<f64>().unwrap();
            of("training.epochs")
        };
        let passes = [0.3, 1.0, 3.0, 10.0].map(read);
        assert_eq!(passes, [57.0, 31.0, 18.0, 10.0]);
    }
}
