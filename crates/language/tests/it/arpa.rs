//! ARPA files.

use std::io::{BufReader, Write};

use flate2::Compression;
use flate2::write::GzEncoder;
use plimsoll_language::{LanguageError, NgramModel};
use proptest::prelude::*;

use crate::fixtures::{check_scores, entries, model, text, written};

fn read(text: &str) -> Result<NgramModel, LanguageError> {
    NgramModel::read_arpa(text.as_bytes())
}

#[test]
fn scores_equal_kenlm() {
    let model = model("small.arpa");
    assert_eq!(model.order(), 3);
    check_scores(&model, "small.scores.tsv");
}

#[test]
fn what_is_written_is_read_again() {
    let original = text("small.arpa");
    let again = written(&model("small.arpa"));
    assert_eq!(entries(&again), entries(&original));
    assert_eq!(written(&read(&again).unwrap()), again);
}

#[test]
fn compressed_text_is_read() {
    let mut zipped = GzEncoder::new(Vec::new(), Compression::fast());
    zipped.write_all(text("small.arpa").as_bytes()).unwrap();
    let zipped = zipped.finish().unwrap();
    check_scores(&NgramModel::read_arpa(zipped.as_slice()).unwrap(), "small.scores.tsv");
    let cut = NgramModel::read_arpa(BufReader::new(&zipped[..zipped.len() / 2]));
    assert!(matches!(cut, Err(LanguageError::Stream(_))), "{cut:?}");
}

#[test]
fn byte_order_mark_at_the_beginning_is_no_text() {
    let model = read(&format!("\u{feff}{TINY}")).unwrap();
    assert_eq!(written(&model), written(&read(TINY).unwrap()));
}

const TINY: &str = "\
\\data\\
ngram 1=4
ngram 2=2

\\1-grams:
-1\t<unk>
-99\t<s>\t-0.5
-0.5\t</s>
-0.25\ta\t-0.125

\\2-grams:
-0.75\t<s> a
-0.1\ta </s>

\\end\\
";

#[test]
fn a_tiny_model_scores_by_hand() {
    let model = read(TINY).unwrap();
    let (first, after) = model.score_word(&model.begin_state(), "a");
    assert_eq!(first, -0.75);
    assert_eq!(model.score_end(&after), -0.1);
    let (second, _) = model.score_word(&after, "a");
    assert_eq!(second, -0.25 - 0.125);
    let (unknown, after) = model.score_word(&after, "b");
    assert_eq!(unknown, -1.125);
    assert!(after.words().is_empty(), "the unknown word begins nothing");
}

#[test]
fn mistakes_have_a_line() {
    let mistakes = [
        ("ngram 2=2", "ngram 3=2", 3, "count of the next order"),
        ("ngram 2=2", "ngram 2=two", 3, "count of the next order"),
        ("-0.25\ta", "-0.25x\ta", 9, "\"-0.25x\" is no number"),
        ("-0.25\ta", "0.25\ta", 9, "above zero"),
        ("-0.25\ta", "NaN\ta", 9, "\"NaN\" is no number"),
        ("-0.25\ta\t-0.125", "-0.25\ta\t-0.125\t1", 9, "more than 1 words"),
        ("-0.25\ta", "-0.25\t<s>", 9, "twice"),
        ("<s> a", "<s> b", 12, "\"b\" is none of the words"),
        ("<s> a", "a", 12, "less than 2 words"),
        ("-0.1\ta </s>", "-0.1\ta </s>\t-1", 13, "highest order"),
        ("ngram 1=4", "ngram 1=5", 11, "there are 4 1-grams, not 5"),
        ("ngram 1=4", "ngram 1=3", 9, "more 1-grams than 3"),
        ("\\2-grams:", "\\3-grams:", 11, "\"\\2-grams:\""),
        ("-0.25\ta", "-0.25\ta\0b", 9, "zero byte"),
        ("\n\\2-grams:", "\0\n\\2-grams:", 10, "zero byte"),
        ("\\end\\", "", 13, "ends before"),
    ];
    for (from, to, expected, part) in mistakes {
        let error = read(&TINY.replacen(from, to, 1)).unwrap_err();
        let LanguageError::Arpa { line, problem } = &error else { panic!("{error:?}") };
        assert!(problem.contains(part), "{error}");
        assert!(*line == expected || part == "ends before", "{error}");
    }
}

#[test]
fn n_grams_that_make_no_model_are_named() {
    let twice = TINY.replace("-0.1\ta </s>", "-0.1\t<s> a");
    assert!(read(&twice).unwrap_err().to_string().contains("\"<s> a\" stands there twice"));
    let text = "\\data\\\nngram 1=3\nngram 2=1\nngram 3=1\n\\1-grams:\n-1\ta\t0\n-1\tb\t0\n-1\t<s>\t0\n\\2-grams:\n-1\ta b\n\
                \\3-grams:\n-1\tb a b\n\\end\\\n";
    assert!(read(text).unwrap_err().to_string().contains("its beginning \"b a\" is none"));
}

#[test]
fn a_missing_ending_gets_its_probability_by_backing_off() {
    // "b a" is missing as the ending of "a b a".
    let text = "\\data\\\nngram 1=3\nngram 2=1\nngram 3=1\n\\1-grams:\n-1\ta\t-0.25\n-2\tb\t-0.5\n-3\t<s>\t0\n\\2-grams:\n\
                -0.5\ta b\t-0.125\n\\3-grams:\n-0.0625\ta b a\n\\end\\\n";
    let model = read(text).unwrap();
    let (_, after_a) = model.score_word(&Default::default(), "a");
    let (_, after_ab) = model.score_word(&after_a, "b");
    assert_eq!(model.score_word(&after_ab, "a").0, -0.0625);
    let (_, after_b) = model.score_word(&Default::default(), "b");
    assert_eq!(model.score_word(&after_b, "a").0, -1.5);
    // Unknown words, which the file does not name.
    assert_eq!(model.score_word(&after_b, "c").0, -100.5);
}

#[test]
fn huge_counts_take_no_memory() {
    let text = "\\data\\\nngram 1=18446744073709551615\nngram 2=18446744073709551615\n\\1-grams:\n-1\ta\n";
    assert!(read(text).unwrap_err().to_string().contains("ends before"));
    let order = (1..=9).map(|order| format!("ngram {order}=1\n")).collect::<String>();
    assert!(read(&format!("\\data\\\n{order}")).unwrap_err().to_string().contains("at most 6"));
    assert!(read(&"x".repeat(100_000)).unwrap_err().to_string().contains("longer than"));
}

proptest! {
    #[test]
    fn any_change_gives_a_model_or_an_error(at in 0usize..5400, byte in any::<u8>(), cut in 0usize..5400) {
        let mut bytes = text("small.arpa").into_bytes();
        let at = at.min(bytes.len() - 1);
        bytes[at] = byte;
        let _ = NgramModel::read_arpa(bytes.as_slice());
        let _ = NgramModel::read_arpa(&bytes[..cut.min(bytes.len())]);
    }
}
