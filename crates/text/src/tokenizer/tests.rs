//! Tests of characters, trained pieces and languages, from text to ids and back.

use std::fs;

use proptest::prelude::*;
use tempfile::TempDir;

use super::*;

/// Sentences in three scripts, many of whose words share pieces.
const TEXTS: [&str; 9] = [
    "the newest and the widest",
    "lower  and  lowest, newer and new",
    "the low wide road",
    "देव बरें करूं",
    "देव बरो दीस दिवं",
    "सगळें बरें आसा",
    "سلام دنیا",
    "سلام بر همه",
    "می‌خواهم به دنیا سلام کنم",
];

fn json(tokenizer: &Tokenizer) -> String {
    serde_json::to_string(tokenizer).unwrap()
}

/// Checks that a saved tokenizer can be read from text and from a JSON value, and then encodes texts as before.
fn check_saved(tokenizer: &Tokenizer) {
    let read: Tokenizer = serde_json::from_str(&json(tokenizer)).unwrap();
    assert_eq!(&read, tokenizer);
    assert_eq!(&serde_json::from_value::<Tokenizer>(serde_json::to_value(tokenizer).unwrap()).unwrap(), tokenizer);
    assert_eq!(read.names(), tokenizer.names());
    assert_eq!(read.languages(), tokenizer.languages());
    for text in TEXTS {
        assert_eq!(read.encode_lossy(text), tokenizer.encode_lossy(text));
    }
}

/// Checks that `text` is decoded unchanged from ids that are in use and not reserved.
fn check_round_trip(tokenizer: &Tokenizer, text: &str) {
    let ids = tokenizer.encode(text).unwrap();
    assert_eq!(tokenizer.decode(&ids), normalize(text, Case::Keep));
    assert!(ids.iter().all(|&id| id >= 4 && (id as usize) < tokenizer.size()));
    assert_eq!(tokenizer.encode_lossy(text), (ids, 0));
    assert!(tokenizer.unknown_characters(text).is_empty());
}

#[test]
fn a_tokenizer_can_be_shared_between_threads() {
    fn check<T: Send + Sync + Clone + 'static>() {}
    check::<Tokenizer>();
}

#[test]
fn characters_match_the_character_tokenizer() {
    let tokenizer = Tokenizer::characters(TEXTS);
    let before = CharTokenizer::from_texts(TEXTS);
    assert_eq!(json(&tokenizer), serde_json::to_string(&before).unwrap());
    assert_eq!(tokenizer.size(), before.size());
    for text in TEXTS {
        assert_eq!(tokenizer.encode(text).unwrap(), before.encode(text).unwrap());
        check_round_trip(&tokenizer, text);
    }
    assert_eq!(tokenizer.encode_lossy("देव x😀"), before.encode_lossy("देव x😀"));
    let ids = [0, 1, 2, 3, 4, 5, 99, 1000];
    assert_eq!(tokenizer.decode(&ids), before.decode(&ids));
    let old: Tokenizer = serde_json::from_str(r#"{"characters": [" ", "b", "a"]}"#).unwrap();
    assert_eq!(old.names(), ["<blank>", "<unk>", "<sos>", "<eos>", " ", "b", "a"]);
    check_saved(&tokenizer);
}

#[test]
fn pieces_are_trained_in_the_order_of_their_frequency() {
    let tokenizer = Tokenizer::bpe(["low low low lower", "newest  newest", "lowest"], 18).unwrap();
    assert_eq!(tokenizer.names()[4..13], [" ", "e", "l", "n", "o", "r", "s", "t", "w"]);
    // Of `l` after a space, `lo` and `ow`, five times each, the first has the lower ids.
    assert_eq!(tokenizer.names()[13..], [" l", "ow", " low", "es", "est"]);
    check_saved(&tokenizer);
}

#[test]
fn pieces_of_every_script_are_decoded_unchanged() {
    for size in [60, 80, 120, 100_000] {
        let tokenizer = Tokenizer::bpe(TEXTS, size).unwrap();
        assert!(tokenizer.size() <= size);
        assert!(size > 120 || tokenizer.size() == size);
        for text in TEXTS {
            check_round_trip(&tokenizer, text);
            assert!(tokenizer.encode(text).unwrap().len() <= text.chars().count() + 1);
        }
        // Words apart, backwards and empty: the pieces are not limited to the training texts.
        for text in ["", " ", "new", "wide lowest", "دنیا دیو", "दिवं देव", "tsewen"] {
            check_round_trip(&tokenizer, text);
        }
        check_saved(&tokenizer);
    }
}

#[test]
fn a_word_has_the_same_pieces_at_every_position() {
    let tokenizer = Tokenizer::bpe(TEXTS, 100_000).unwrap();
    let [word, twice] = ["बरें", "बरें बरें"].map(|text| tokenizer.encode(text).unwrap());
    assert_eq!(word.len(), 1);
    assert_eq!(twice, [word[0], word[0]]);
    // With all merges made every word is one piece, and none is longer than a word.
    assert_eq!(tokenizer.encode(TEXTS[1]).unwrap().len(), 6);
    assert!(tokenizer.names().iter().all(|name| name.rfind(' ').is_none_or(|place| place == 0)));
}

#[test]
fn training_on_no_texts_gives_a_usable_tokenizer() {
    let tokenizer = Tokenizer::bpe([""; 0], usize::MAX).unwrap();
    assert_eq!(tokenizer.names()[4..], [" "]);
    assert_eq!(tokenizer.encode_lossy("ab"), (vec![4, 1, 1], 2));
    check_saved(&tokenizer);
}

#[test]
fn an_unknown_character_is_reported_and_counted() {
    for tokenizer in [Tokenizer::characters(["abc abc"]), Tokenizer::bpe(["abc abc"], 20).unwrap()] {
        let error = tokenizer.encode("abकb").unwrap_err();
        assert_eq!(error.to_string(), "the character `क` (U+0915) in \"abकb\" is not in the vocabulary");
        let (ids, unknown) = tokenizer.encode_lossy("x abcकक cba\u{2581}");
        assert_eq!(unknown, 4);
        assert_eq!(ids.iter().filter(|&&id| id == Tokenizer::UNKNOWN).count(), 4);
        assert_eq!(tokenizer.decode(&ids), "\u{fffd} abc\u{fffd}\u{fffd} cba\u{fffd}");
        assert_eq!(tokenizer.unknown_characters("x abकक cba\u{2581}"), ['x', 'क', '\u{2581}'].into());
    }
}

#[test]
fn language_ids_come_after_all_others() {
    for tokenizer in [Tokenizer::characters(TEXTS), Tokenizer::bpe(TEXTS, 100).unwrap()] {
        let alone = tokenizer.size() as u32;
        let ids = tokenizer.encode(TEXTS[0]).unwrap();
        assert_eq!((tokenizer.languages(), tokenizer.language("en")), (&[][..], None));
        let with = tokenizer.clone().with_languages(["kok", "fa", "en", "fa"].map(String::from));
        assert_ne!(with, tokenizer);
        assert_eq!(with.languages(), ["en", "fa", "kok"]);
        assert_eq!(
            ["en", "fa", "kok", "de"].map(|name| with.language(name)),
            [Some(alone), Some(alone + 1), Some(alone + 2), None]
        );
        assert_eq!(with.size(), alone as usize + 3);
        assert_eq!(with.names()[alone as usize..], ["[en]", "[fa]", "[kok]"]);
        assert_eq!(with.names().len(), with.size());
        assert_eq!(with.encode(TEXTS[0]).unwrap(), ids);
        // They are dropped like the other special ids; ids past them are unknown.
        let silent = [&[0, 2, alone + 2][..], &ids, &[alone, 3, 0]].concat();
        assert_eq!(with.decode(&silent), TEXTS[0]);
        assert_eq!(with.decode(&[&ids[..], &[alone + 3]].concat()), format!("{}\u{fffd}", TEXTS[0]));
        assert!(json(&with).ends_with(r#","languages":["en","fa","kok"]}"#));
        check_saved(&with);
        assert_eq!(with.with_languages([]), tokenizer);
    }
}

#[test]
fn pieces_and_merges_are_saved() {
    let tokenizer = Tokenizer::bpe(["aa aa"], 7).unwrap();
    assert_eq!(json(&tokenizer), r#"{"bpe":{"pieces":[" ","a"," a"],"merges":[[" ","a"]]}}"#);
    assert_eq!(tokenizer.encode("aa a").unwrap(), [6, 5, 6]);
}

#[test]
fn too_few_ids_are_refused() {
    let error = Tokenizer::bpe(["ab", "ca"], 7).unwrap_err();
    assert_eq!(
        error.to_string(),
        "a BPE vocabulary of 7 ids is too small: the texts have 4 different characters, so at least 8 ids are needed"
    );
    assert_eq!(Tokenizer::bpe(["ab", "ca"], 8).unwrap().size(), 8);
}

#[test]
fn invalid_files_are_refused_with_a_reason() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("vocabulary.json");
    assert!(matches!(Tokenizer::from_file(&path), Err(TextError::File { .. })));
    for (wrong, cause) in [
        ("{", "EOF"),
        ("{}", "a vocabulary needs exactly one of `characters`, `bpe` and `hugging_face`"),
        (r#"{"characters": ["a"], "bpe": {"pieces": [], "merges": []}}"#, "exactly one of"),
        (r#"{"characters": ["a", "a"]}"#, "lists `a` twice"),
        (r#"{"characters": ["a"], "language": []}"#, "unknown field `language`"),
        (r#"{"bpe": {"pieces": ["a"], "merges": [], "size": 1}}"#, "unknown field `size`"),
        (r#"{"bpe": {"pieces": ["a", "b", "a"], "merges": []}}"#, "lists the piece `a` twice"),
        (r#"{"bpe": {"pieces": ["a", "ab"], "merges": [["a", "b"]]}}"#, "the merge of `a` and `b` needs a piece"),
        (r#"{"bpe": {"pieces": ["a", "b"], "merges": [["a", "b"]]}}"#, "the merge of `a` and `b` needs a piece"),
    ] {
        fs::write(&path, wrong).unwrap();
        let error = Tokenizer::from_file(&path).unwrap_err();
        assert!(error.to_string().ends_with("vocabulary.json is not a vocabulary file"), "{error}");
        let TextError::Json { source, .. } = error else { panic!("{error}") };
        assert!(source.to_string().contains(cause), "{wrong}: {source}");
    }
}

#[test]
fn files_of_this_crate_are_read() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("vocabulary.json");
    CharTokenizer::from_texts(TEXTS).write(&path).unwrap();
    assert_eq!(Tokenizer::from_file(&path).unwrap(), Tokenizer::characters(TEXTS));
    let pieces = Tokenizer::bpe(TEXTS, 100).unwrap().with_languages(["fa".into()]);
    fs::write(&path, json(&pieces)).unwrap();
    assert_eq!(Tokenizer::from_file(&path).unwrap(), pieces);
}

/// Generates twenty thousand sentences of one to eight words from a lexicon of two thousand words, common words first
/// as in speech.
fn sentences() -> Vec<String> {
    let mut state = 1u64;
    let mut draw = move |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let syllables = ["ba", "cu", "do", "fe", "gi", "la", "mo", "ne", "ri", "su", "ta", "vo"];
    let lexicon: Vec<String> =
        (0..2000).map(|_| (0..=draw(4)).map(|_| syllables[draw(12) as usize]).collect()).collect();
    let mut word = || lexicon[(draw(2000) * draw(2000) / 2000) as usize].as_str();
    (0..20_000u64).map(|number| (0..=number % 8).map(|_| word()).collect::<Vec<_>>().join(" ")).collect()
}

#[test]
fn training_is_reproducible() {
    let mut texts = sentences();
    let start = std::time::Instant::now();
    let tokenizer = Tokenizer::bpe(&texts, 500).unwrap();
    println!("500 pieces of {} sentences in {:?}", texts.len(), start.elapsed());
    assert_eq!(tokenizer.size(), 500);
    texts.reverse();
    assert_eq!(json(&Tokenizer::bpe(&texts, 500).unwrap()), json(&tokenizer));
    let start = std::time::Instant::now();
    let ids: usize = texts.iter().map(|text| tokenizer.encode(text).unwrap().len()).sum();
    let characters: usize = texts.iter().map(|text| text.chars().count()).sum();
    println!("{characters} characters are {ids} ids, in {:?}", start.elapsed());
    assert!(2 * ids < characters);
}

/// Generates a few words of few characters, so that many pairs are equally frequent.
fn words() -> impl Strategy<Value = Vec<String>> {
    prop::collection::vec("[abcदेسل ]{0,12}", 0..12)
}

proptest! {
    #[test]
    fn training_characters_are_decoded_unchanged(text in any::<String>()) {
        check_round_trip(&Tokenizer::characters([&text]), &text);
    }

    #[test]
    fn training_texts_are_decoded_unchanged(text in any::<String>(), more in 0usize..20) {
        // Composing may split a character in two.
        let characters = normalize(&text, Case::Keep);
        let minimum = 5 + characters.chars().filter(|character| !character.is_whitespace()).collect::<BTreeSet<_>>().len();
        check_round_trip(&Tokenizer::bpe([&text], minimum + more).unwrap(), &text);
    }

    #[test]
    fn pieces_do_not_depend_on_the_order_of_texts(
        (texts, other) in words().prop_flat_map(|texts| (Just(texts.clone()), Just(texts).prop_shuffle())),
        more in 0usize..30,
    ) {
        let tokenizer = Tokenizer::bpe(&texts, 13 + more).unwrap();
        prop_assert_eq!(json(&tokenizer), json(&Tokenizer::bpe(&texts, 13 + more).unwrap()));
        prop_assert_eq!(json(&tokenizer), json(&Tokenizer::bpe(&other, 13 + more).unwrap()));
    }

    #[test]
    fn pieces_encode_other_texts(texts in words(), text in "[abcदेسل ]{0,20}", unknown in "[xyz]{0,3}") {
        let trained = texts.iter().map(String::as_str).chain(["abcदेسل"]);
        let tokenizer = Tokenizer::bpe(trained, 30).unwrap();
        check_round_trip(&tokenizer, &text);
        let (ids, count) = tokenizer.encode_lossy(&format!("{text}{unknown}{text}"));
        prop_assert_eq!(count, unknown.len());
        let expected = format!("{text}{}{text}", "\u{fffd}".repeat(count));
        prop_assert_eq!(tokenizer.decode(&ids), normalize(&expected, Case::Keep));
    }
}

#[test]
fn the_tokenizer_replaces_numbers_by_words() {
    let texts = ["thirty point two or so"];
    let plain = Tokenizer::characters(texts);
    assert_eq!(plain.unknown_characters("30 or so"), BTreeSet::from(['0', '3']));
    let tokenizer = plain.clone().with_numbers(Numbers::English);
    check_saved(&tokenizer);
    assert!(json(&tokenizer).contains("\"numbers\":\"english\""));
    assert!(!json(&plain).contains("numbers"), "files of earlier versions do not change");
    assert_eq!(tokenizer.decode(&tokenizer.encode("30.2 or ३०").unwrap()), "thirty point two or thirty");
    assert_eq!(tokenizer.encode_lossy("30"), (plain.encode("thirty").unwrap(), 0));
    assert!(tokenizer.unknown_characters("30").is_empty());
}

#[test]
fn a_language_id_is_added_only_when_the_tokenizer_has_languages() {
    let plain = Tokenizer::characters(["ab"]);
    assert_eq!(plain.with_language_and_end(vec![4, 5], Some("en")), [4, 5, 3]);
    let several = plain.with_languages(["mr".to_string(), "en".to_string()]);
    let ids = several.with_language_and_end(vec![4, 5], Some("mr"));
    assert_eq!(ids, [several.language("mr").unwrap(), 4, 5, 3]);
    for language in [None, Some("xx")] {
        assert_eq!(several.with_language_and_end(vec![4], language), [Tokenizer::UNKNOWN, 4, 3]);
    }
}

#[test]
fn hostile_vocabulary_files_give_short_errors() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tokenizer.json");
    let long = "x".repeat(1 << 20);
    for text in [
        "[".repeat(1 << 20),
        format!("{{\"characters\": \"{long}\"}}"),
        format!("{{\"{long}\": 1}}"),
        format!("{{\"characters\": [], \"languages\": [{{\"{long}\": 1}}]}}"),
    ] {
        fs::write(&path, text).unwrap();
        let error = Tokenizer::from_file(&path).unwrap_err();
        let cause = std::error::Error::source(&error).map(ToString::to_string);
        assert!(cause.is_some_and(|cause| cause.len() < 1000));
    }
    fs::File::create(&path).unwrap().set_len(1 << 40).unwrap();
    assert!(matches!(Tokenizer::from_file(&path), Err(TextError::TooLarge { .. })));
    let unknown = Tokenizer::characters(["y"]).encode(&long).unwrap_err().to_string();
    assert!(unknown.len() < 500, "{} bytes", unknown.len());
}
