//! Binary files of KenLM.

use std::fs;

use plimsoll_language::{LanguageError, NgramModel, Quantization};
use proptest::prelude::*;

use crate::fixtures::{check_scores, entries, model, path, text, written};

const NAMES: [&str; 5] = ["probing", "trie", "quantized", "array", "quantized-array"];

fn open(bytes: &[u8]) -> Result<NgramModel, LanguageError> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.bin");
    fs::write(&path, bytes).unwrap();
    NgramModel::open(&path)
}

#[test]
fn every_kind_scores_as_kenlm() {
    for name in NAMES {
        let model = NgramModel::open(path(&format!("{name}.bin"))).unwrap();
        assert_eq!((model.order(), model.words().count()), (3, 32), "{name}");
        check_scores(&model, &format!("{name}.scores.tsv"));
    }
}

#[test]
fn a_trie_lists_its_n_grams() {
    for name in ["trie", "array"] {
        let model = NgramModel::open(path(&format!("{name}.bin"))).unwrap();
        assert_eq!(entries(&written(&model)), entries(&text("small.arpa")), "{name}");
        let folder = tempfile::tempdir().unwrap();
        model.save(folder.path().join("model.lm"), Quantization::None).unwrap();
        check_scores(&NgramModel::open(folder.path().join("model.lm")).unwrap(), "small.scores.tsv");
    }
    let probing = NgramModel::open(path("probing.bin")).unwrap();
    assert!(matches!(probing.write_arpa(Vec::new()), Err(LanguageError::Unsupported(_))));
}

#[test]
fn any_file_opens_by_its_first_bytes() {
    check_scores(&NgramModel::open(path("small.arpa")).unwrap(), "small.scores.tsv");
    assert_eq!(NgramModel::open(path("words2.arpa.gz")).unwrap().counts(), model("words2.arpa.gz").counts());
    assert!(NgramModel::open(path("missing.bin")).is_err());
}

#[test]
fn what_is_not_supported_is_named() {
    let bytes = fs::read(path("trie.bin")).unwrap();
    let changed = |at: usize, byte: u8| {
        let mut bytes = bytes.clone();
        bytes[at] = byte;
        open(&bytes).unwrap_err().to_string()
    };
    assert!(changed(49, b'4').contains("other than 5"));
    assert!(changed(68, 0).contains("another kind of machine"));
    assert!(changed(96, 1).contains("rest costs"));
    assert!(changed(96, 9).contains("data structure 9"));
    assert!(changed(100, 0).contains("without its words"));
    assert!(changed(88, 7).contains("order 7"));
    assert!(open(&bytes[..bytes.len() - 1]).is_ok(), "the last byte only ends the last word");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn truncated_and_changed_files_do_not_panic(
        kind in 0usize..5,
        at in any::<prop::sample::Index>(),
        in_header in 0usize..140,
        value in any::<u8>(),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut bytes = fs::read(path(&format!("{}.bin", NAMES[kind]))).unwrap();
        let try_all = |bytes: &[u8]| {
            if let Ok(model) = open(bytes) {
                let _ = model.write_arpa(Vec::new());
                model.score_sentence("ka lo mi unheard ka lo");
                let mut state = model.begin_state();
                for id in 0..40 {
                    state = model.score(&state, id).1;
                }
            }
        };
        try_all(&bytes[..cut.index(bytes.len())]);
        let at = at.index(bytes.len());
        bytes[at] = value;
        try_all(&bytes);
        bytes[in_header] = value;
        try_all(&bytes);
    }
}
