//! What a recipe for a synthesizer needs to know of a corpus: how its recordings are sampled, and the language of its texts.

use std::collections::HashSet;

use plimsoll_audio::audio_info;
use plimsoll_config::choices::TextChoice;
use plimsoll_config::{Loaded, VoiceFacts};
use plimsoll_data::utterances::Utterances;
use plimsoll_text::{PhonemeError, Phonemizer};
use whatlang::{Lang, detect};

/// Number of recordings whose sample rate is looked at.
const PROBED: usize = 32;
/// Number of texts from which the language is found, and of parts that must not disagree.
const TEXTS: usize = 400;
const PARTS: usize = 4;
/// Fewest bytes of text from which the language is found.
const TEXT_BYTES_MIN: usize = 400;

/// Languages whose script leaves out vowels or has signs for whole words, in the codes of corpora: `espeak-ng` guesses too much there.
const NOT_READ: &[&str] = &[
    "ar", "ara", "arb", "ckb", "cmn", "fa", "fas", "hak", "he", "heb", "ja", "jpn", "pes", "ps", "sd", "ug", "ur",
    "urd", "yue", "zh", "zho",
];

/// Voice of `espeak-ng` for each language that is found in texts. Not those of [`NOT_READ`], and not those whose script is nearly
/// that of sounds and serves many languages that look alike, as Devanagari does.
const VOICES: &[(Lang, &str)] = &[
    (Lang::Eng, "en-us"),
    (Lang::Deu, "de"),
    (Lang::Fra, "fr-fr"),
    (Lang::Spa, "es"),
    (Lang::Por, "pt"),
    (Lang::Ita, "it"),
    (Lang::Cat, "ca"),
    (Lang::Ron, "ro"),
    (Lang::Nld, "nl"),
    (Lang::Swe, "sv"),
    (Lang::Dan, "da"),
    (Lang::Nob, "nb"),
    (Lang::Fin, "fi"),
    (Lang::Est, "et"),
    (Lang::Lav, "lv"),
    (Lang::Lit, "lt"),
    (Lang::Hun, "hu"),
    (Lang::Tur, "tr"),
    (Lang::Ell, "el"),
    (Lang::Rus, "ru"),
    (Lang::Ukr, "uk"),
    (Lang::Bul, "bg"),
    (Lang::Srp, "sr"),
    (Lang::Hrv, "hr"),
    (Lang::Slv, "sl"),
    (Lang::Slk, "sk"),
    (Lang::Ces, "cs"),
    (Lang::Pol, "pl"),
    (Lang::Kat, "ka"),
    (Lang::Hye, "hy"),
    (Lang::Ben, "bn"),
    (Lang::Guj, "gu"),
    (Lang::Pan, "pa"),
    (Lang::Tam, "ta"),
    (Lang::Tel, "te"),
    (Lang::Kan, "kn"),
    (Lang::Mal, "ml"),
    (Lang::Kor, "ko"),
    (Lang::Vie, "vi"),
    (Lang::Ind, "id"),
    (Lang::Epo, "eo"),
];

/// Finds the facts of a corpus and of this machine, as far as `loaded` leaves them to be found.
pub(crate) fn voice_facts(utterances: &Utterances, loaded: &Loaded) -> VoiceFacts {
    let features = &loaded.config.features;
    let rate = features.sample_rate.filter(|_| loaded.is_set("features.sample_rate"));
    let sample_rate = match (loaded.is_set("features.preset"), rate) {
        // Its own.
        (true, _) => None,
        (false, Some(rate)) => Some(rate),
        (false, None) => recorded_rate(utterances),
    };
    let data = &loaded.config.data;
    let speakers = utterances.iter().filter_map(|utterance| utterance.speaker).collect::<HashSet<_>>().len();
    let reads_letters = loaded.is_set("data.text") && data.text == TextChoice::Characters;
    if reads_letters || data.tokenizer_file.is_some() {
        return VoiceFacts { sample_rate, phonemes: None, speakers };
    }
    let phonemes = match &data.language {
        // A name that no voice has is an error of the person, who is to read it.
        Some(voice) => Some((voice.clone(), "as it is set".to_owned())).filter(|_| is_installed(voice)),
        None => espeak_voice(utterances).filter(|(voice, _)| Phonemizer::new(voice.as_str()).check().is_ok()),
    };
    VoiceFacts { sample_rate, phonemes, speakers }
}

fn is_installed(voice: &str) -> bool {
    !matches!(Phonemizer::new(voice).check(), Err(PhonemeError::NotStarted(_)))
}

/// Returns the middle of the sample rates of some recordings; `None` if none can be read.
fn recorded_rate(utterances: &Utterances) -> Option<u32> {
    let step = utterances.len().div_ceil(PROBED).max(1);
    let probed = (0..utterances.len()).step_by(step);
    let mut rates: Vec<u32> =
        probed.filter_map(|index| Some(audio_info(utterances.get(index).audio).ok()?.rate)).collect();
    rates.sort_unstable();
    rates.get(rates.len().saturating_sub(1) / 2).copied()
}

/// Returns the voice of `espeak-ng` for a corpus, and where it follows from; `None` if the language is not known, or there are several.
fn espeak_voice(utterances: &Utterances) -> Option<(String, String)> {
    let mut languages = utterances.iter().map(|utterance| utterance.language);
    let first = languages.next()?;
    if languages.any(|language| language != first) {
        return None;
    }
    let Some(language) = first else { return found_language(utterances) };
    let language = language.to_lowercase().replace('_', "-");
    let code = language.split('-').next().unwrap_or_default().to_owned();
    if NOT_READ.contains(&code.as_str()) {
        return None;
    }
    // `en-us` is a voice, `de-de` is not, and `de` is.
    let has_voice = |voice: &&String| Phonemizer::new(voice.as_str()).check().is_ok();
    let voice = [&language, &code].into_iter().find(has_voice)?;
    Some((voice.clone(), "the language of the corpus".into()))
}

/// Finds the language of texts from all parts of a corpus; `None` if they are too short to be sure, of several languages, or of one without
/// a voice.
fn found_language(utterances: &Utterances) -> Option<(String, String)> {
    let step = utterances.len().div_ceil(TEXTS).max(1);
    let texts: Vec<&str> = (0..utterances.len()).step_by(step).map(|index| utterances.get(index).text).collect();
    let language = |texts: &[&str]| {
        let text = texts.join("\n");
        let found = detect(&text).filter(|found| text.len() >= TEXT_BYTES_MIN && found.is_reliable());
        found.map(|found| found.lang())
    };
    let whole = language(&texts)?;
    let part = texts.len().div_ceil(PARTS).max(1);
    if texts.chunks(part).filter_map(language).any(|found| found != whole) {
        return None;
    }
    let (_, voice) = VOICES.iter().find(|(language, _)| *language == whole)?;
    Some(((*voice).into(), format!("the texts seem to be {}", whole.eng_name())))
}

#[cfg(test)]
mod tests {
    use plimsoll_data::Utterance;

    use super::*;

    fn corpus(texts: &[&str], language: Option<&str>) -> Utterances {
        let utterance = |text: &&str| {
            let language = language.map(str::to_owned);
            Utterance { id: (*text).into(), text: (*text).into(), language, ..Utterance::default() }
        };
        texts.iter().map(utterance).collect()
    }

    const ENGLISH: &str =
        "Please enter the number of the person whom you would like to call, and then press the pound key. ";
    const GERMAN: &str =
        "Bitte geben Sie die Nummer der Person ein, die Sie anrufen möchten, und drücken Sie danach eine Taste. ";

    fn found(texts: &[&str]) -> Option<String> {
        found_language(&corpus(texts, None)).map(|(voice, _)| voice)
    }

    #[test]
    fn the_language_is_what_all_texts_are_beyond_doubt() {
        let (english, german) = (ENGLISH.repeat(5), GERMAN.repeat(5));
        assert_eq!(found(&[&english]).as_deref(), Some("en-us"));
        assert_eq!(found(&[&german, &german]).as_deref(), Some("de"));
        assert_eq!(found(&[&english, &english, &english, &german]), None);
        // Too little to be sure, and no text at all.
        assert_eq!(found(&["seven two nine"]), None);
        assert_eq!(found(&[]), None);
    }

    #[test]
    fn a_corpus_of_two_languages_or_of_a_script_without_sounds_is_read_as_written() {
        let parts = [corpus(&["a"], Some("en")), corpus(&["b"], Some("de"))];
        let mixed: Vec<Utterance> = parts.iter().flat_map(|part| part.iter().map(Utterance::from)).collect();
        assert_eq!(espeak_voice(&mixed.into_iter().collect()), None);
        for language in ["ja", "zh-CN", "ar", "he_IL", "yue"] {
            assert_eq!(espeak_voice(&corpus(&["a"], Some(language))), None, "{language}");
        }
    }
}
