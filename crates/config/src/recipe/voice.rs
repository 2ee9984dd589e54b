//! The recipe of a synthesizer.

use plimsoll_core::{Seconds, counted};

use super::{Choices, CorpusSize, Recipe};
use crate::choices::Task;

/// What a recipe for a synthesizer needs to know of a corpus beside its size, and of this machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VoiceFacts {
    /// Sample rate in Hz of the features: that of most recordings, or what a person sets; `None` for that of the preset.
    pub sample_rate: Option<u32>,
    /// Voice of `espeak-ng` that reads the texts, and where it follows from; `None` if the program is not there, or no voice is known.
    pub phonemes: Option<(String, String)>,
    /// Number of speakers that the corpus names.
    pub speakers: usize,
}

/// Highest sample rate of a recipe in Hz: more is hardly heard, and takes more time.
const RATE: u32 = 22_050;
/// Lowest sample rate of a recipe in Hz.
const LOWEST_RATE: u32 = 8_000;
/// Seconds of speech in a step.
const STEP_SECONDS: f64 = 40.0;
/// Fewest and most utterances in a step.
const BATCH: (f64, f64) = (4.0, 32.0);
/// Steps of a run over half an hour of speech. Over more it has more, in proportion to the root of the hours.
const STEPS: f64 = 3000.0;
/// Fewest and most steps.
const STEPS_RANGE: (f64, f64) = (2000.0, 60_000.0);

impl Recipe {
    /// Chooses the values of a synthesizer for a corpus of this `size` and these `facts`.
    pub fn for_synthesizer(size: &CorpusSize, facts: &VoiceFacts) -> Self {
        let spoken = Seconds(size.seconds.0);
        let batch = size.batch(STEP_SECONDS, BATCH);
        let wanted = (STEPS * (size.hours() / 0.5).sqrt()).round().clamp(STEPS_RANGE.0, STEPS_RANGE.1);
        let mut chosen = Choices::default();
        let mut choose = |key, value: &str, reason| chosen.choose(key, value, reason);
        match &facts.phonemes {
            Some((voice, reason)) => {
                let sounds = "espeak-ng is here: the model need not learn how the language is spelled".into();
                choose("data.text", "\"phonemes\"", sounds);
                choose("data.language", &format!("{voice:?}"), reason.clone());
            }
            None => choose("data.lowercase", "true", "capitals sound as small letters do".into()),
        }
        choose("data.batch_size", &batch.to_string(), format!("about {STEP_SECONDS} s of speech a step"));
        features(facts.sample_rate, &mut choose);
        model(&mut choose);
        voices(facts.speakers, &mut choose);
        if size.asked.is_none() {
            let passes = wanted * batch / size.utterances.max(1) as f64;
            let read = format!("{} over {spoken} of speech", counted(passes.ceil() as u64, "pass"));
            choose("training.steps", &wanted.to_string(), read);
        }
        choose("training.learning_rate", "3e-3", "a small model bears it".into());
        choose("training.warmup_steps", "200", "the rate rises in the first steps".into());
        choose("training.warmup_share", "0.1", "but not for longer than a tenth of the run".into());
        choose("training.weight_decay", "1e-6", "as in the runs that these values come from".into());
        choose("training.ema_decay", "0.998", "the mean of the last weights speaks more clearly than the last".into());
        chosen.watch(size.steps(batch, || wanted), 8.0, 5000.0, "about eight times in the run");
        Self { task: Task::Tts, values: chosen.0, is_whole: true }
    }
}

/// Chooses features: those of the recordings, which can become sound again.
fn features(sample_rate: Option<u32>, choose: &mut impl FnMut(&'static str, &str, String)) {
    choose("features.preset", "\"myxtts\"", "magnitudes, which can become sound again".into());
    let Some(rate) = sample_rate.map(|rate| rate.clamp(LOWEST_RATE, RATE)).filter(|rate| *rate < RATE) else { return };
    let hop = (f64::from(rate) / 80.0).round() as u32;
    choose("features.sample_rate", &rate.to_string(), "as the recordings".into());
    choose("features.hop_length", &hop.to_string(), "a frame each 12.5 ms".into());
    choose("features.win_length", &(4 * hop).to_string(), "50 ms".into());
    choose("features.n_fft", &(4 * hop).next_power_of_two().to_string(), "the next power of two".into());
}

/// Chooses the model.
fn model(choose: &mut impl FnMut(&'static str, &str, String)) {
    choose("model.family", "\"parallel\"", "it learns from minutes of speech, and always ends".into());
    choose("model.d_model", "208", "narrower models speak less clearly, wider ones take more time".into());
    choose("model.text_encoder_layers", "4", "as above".into());
    choose("model.decoder_layers", "6", "as above".into());
    let spoken = "found in the recordings, so that frames are no mean of all ways to speak a text";
    choose("model.prosody_dim", "6", spoken.into());
    choose("model.pitch", "true", "`say --pitch` and `--energy` can change how it speaks".into());
    choose("model.dropout", "0.1", "the corpus is read many times".into());
}

/// Chooses how the voice of a reference is heard.
fn voices(speakers: usize, choose: &mut impl FnMut(&'static str, &str, String)) {
    let many = speakers > 1;
    if many {
        choose("model.voice_links", "true", format!("{} in the corpus", counted(speakers as u64, "voice")));
        choose("model.pitch_harmonics", "true", "so that each voice has its pitch".into());
    }
    let [channels, layers, width] = if many { ["128", "3", "64"] } else { ["64", "2", "32"] };
    choose("model.audio_encoder_dim", channels, "of the encoder of the voice".into());
    choose("model.audio_encoder_layers", layers, "as above".into());
    choose("model.speaker_dim", width, "as above".into());
    choose("model.style_tokens", "0", "the voice alone".into());
}

#[cfg(test)]
mod tests {
    use plimsoll_core::Bytes;

    use super::*;
    use crate::{ConfigArgs, ConfigError, Loaded, RunLength, load_with_recipe};

    fn loaded(utterances: usize, seconds: f64, asked: Option<RunLength>, facts: &VoiceFacts) -> Loaded {
        let size = CorpusSize { utterances, seconds: Seconds(seconds), asked };
        let choose = |_: &Loaded| Ok::<_, ConfigError>(Some(Recipe::for_synthesizer(&size, facts)));
        load_with_recipe(&ConfigArgs::default(), std::iter::empty(), &|| Bytes::gib(8), choose)
            .unwrap_or_else(|error| panic!("{utterances}: {error:?}"))
    }

    #[test]
    fn every_corpus_gets_a_recipe_that_is_a_valid_configuration() {
        let phonemes = Some(("en-us".into(), "as it is set".into()));
        for (utterances, seconds) in [(0, 0.0), (2, 3.0), (434, 1036.0), (13_100, 86_000.0), (90_000, 400_000.0)] {
            for sample_rate in [None, Some(4000), Some(8000), Some(11_025), Some(16_000), Some(22_050), Some(48_000)] {
                for phonemes in [None, phonemes.clone()] {
                    let facts = VoiceFacts { sample_rate, phonemes, speakers: 2 };
                    let loaded = loaded(utterances, seconds, None, &facts);
                    assert_eq!(loaded.chosen(), loaded.recipe.unwrap().chosen());
                }
            }
        }
    }

    #[test]
    fn features_follow_the_recordings_and_no_higher_rate_is_made_up() {
        let features = |rate| {
            let features = loaded(434, 1036.0, None, &VoiceFacts { sample_rate: Some(rate), ..VoiceFacts::default() })
                .config
                .features;
            (features.sample_rate, features.hop_length, features.win_length, features.n_fft)
        };
        assert_eq!(features(8000), (Some(8000), Some(100), Some(400), Some(512)));
        assert_eq!(features(16_000), (Some(16_000), Some(200), Some(800), Some(1024)));
        // Those of the preset, at 22.05 kHz.
        assert_eq!(features(44_100), (None, None, None, None));
    }

    #[test]
    fn several_named_speakers_give_the_voice_ways_of_its_own() {
        let links = |speakers| {
            loaded(434, 1036.0, None, &VoiceFacts { speakers, ..VoiceFacts::default() }).config.model.voice_links
        };
        assert_eq!([0, 1, 2, 200].map(links), [false, false, true, true]);
    }

    #[test]
    fn more_speech_is_learned_from_in_more_steps_and_a_person_decides() {
        let steps = |seconds, asked| loaded(400, seconds, asked, &VoiceFacts::default()).config.training.steps;
        let by_itself = [300.0, 1800.0, 36_000.0].map(|seconds| steps(seconds, None).unwrap());
        assert!(by_itself.is_sorted() && by_itself[2] > 2 * by_itself[1], "{by_itself:?}");
        assert_eq!(steps(1800.0, Some(RunLength::Steps(10))), None, "the flag says it");
    }
}
