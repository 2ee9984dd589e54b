//! Tests of runs and of the process; those with the real program run where it is installed.

use proptest::prelude::*;

use super::*;

/// Returns a phonemizer, or `None` where `espeak-ng` is not installed.
fn installed(voice: &str) -> Option<Phonemizer> {
    let phonemizer = Phonemizer::new(voice);
    match phonemizer.check() {
        Err(PhonemeError::NotStarted(_)) => None,
        checked => {
            checked.unwrap();
            Some(phonemizer)
        }
    }
}

#[test]
fn marks_between_words_are_kept_once_and_marks_inside_belong_to_the_word() {
    let words = Run::Words;
    let mark = Run::Mark;
    assert_eq!(runs("Press 3.5, please..."), [words("Press 3.5"), mark(','), words("please"), mark('.')]);
    assert_eq!(runs("\"Who?\" - he said"), [words("\"Who"), mark('?'), words("\" - he said")]);
    assert_eq!(runs("... well"), [words("well")]);
    assert_eq!(runs(" -- () "), []);
    assert_eq!(runs("क्या? हाँ।"), [words("क्या"), mark('?'), words("हाँ"), mark('।')]);
}

proptest! {
    #[test]
    fn runs_lose_no_letter(text in "\\PC{0,900}") {
        let letters = |text: &str| text.chars().filter(|one| one.is_alphanumeric()).collect::<String>();
        let kept: String = runs(&text).iter().map(|run| match run {
            Run::Words(words) => (*words).to_owned(),
            Run::Mark(_) => String::new(),
        }).collect();
        prop_assert_eq!(letters(&kept), letters(&text));
    }
}

#[test]
fn a_program_that_is_missing_and_a_voice_that_is_missing_have_their_own_messages() {
    let missing = Process::start("no-program-of-this-name", "en").err().unwrap();
    assert_eq!(
        missing.to_string(),
        "the program `espeak-ng`, which makes phonemes of texts, cannot be started: it is not installed, or not in PATH"
    );
    for voice in ["", "-v", "--stdin", "a b", "en;ls"] {
        assert_eq!(Phonemizer::new(voice).check(), Err(PhonemeError::NoVoice(voice.into())));
    }
    if installed("en-us").is_some() {
        assert_eq!(Phonemizer::new("xx-nowhere").check(), Err(PhonemeError::NoVoice("xx-nowhere".into())));
    }
}

#[test]
fn a_program_that_ends_is_started_again() {
    let Some(phonemizer) = installed("en-us") else { return };
    let read = phonemizer.apply("one two").unwrap();
    {
        let mut shared = phonemizer.shared();
        shared.known.clear();
        shared.idle.iter_mut().for_each(Process::kill);
    }
    assert_eq!(phonemizer.apply("one two").unwrap(), read);
}

#[test]
fn texts_become_phonemes_with_their_marks() {
    let Some(phonemizer) = installed("en-us") else { return };
    let text = phonemizer.apply("Hello, \"world\"! It is 3.5 - no?").unwrap();
    assert_eq!(text.chars().filter(|one| ",!?".contains(*one)).collect::<String>(), ",!?");
    assert!(text.starts_with("həlˈoʊ, "), "{text}");
    assert!(!text.contains(['(', '"', '-', '3']), "{text}");
    // A word of another language, an empty text, and white space.
    assert!(!phonemizer.apply("Привет मित्र").unwrap().contains('('));
    assert_eq!(phonemizer.apply("").unwrap(), "");
    assert_eq!(phonemizer.apply(" \n\t").unwrap(), "");
    // A line of a thousand words, and a word of a thousand letters.
    let long = "one ".repeat(1000);
    assert_eq!(phonemizer.apply(&long).unwrap().split(' ').count(), 1000);
    assert!(!phonemizer.apply(&"a".repeat(1000)).unwrap().is_empty());
}

#[test]
fn a_text_has_the_same_phonemes_after_any_other() {
    let (Some(one), Some(other)) = (installed("en-us"), installed("en-us")) else { return };
    let texts = [
        "the read book",
        "plimsollplimsoll",
        "read",
        "plímsollplimsoll",
        "a\nb",
        "x; y",
        "1,000,000 and 1e9",
        "the read book",
    ];
    let first: Vec<String> = texts.iter().map(|text| one.apply(text).unwrap()).collect();
    for (text, phonemes) in texts.iter().zip(&first).rev() {
        assert_eq!(&other.apply(text).unwrap(), phonemes, "{text}");
    }
}

#[test]
fn a_phonemizer_is_saved_by_its_voice() {
    let saved = serde_json::to_string(&Phonemizer::new("de")).unwrap();
    assert_eq!(saved, r#"{"espeak_voice":"de"}"#);
    assert_eq!(serde_json::from_str::<Phonemizer>(&saved).unwrap(), Phonemizer::new("de"));
}
