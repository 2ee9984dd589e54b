//! Model files of the crate's own format.

use std::fs;

use plimsoll_language::{LanguageError, NgramModel, Quantization, Unit};
use proptest::prelude::*;

use crate::fixtures::{check_scores, entries, model, written};

#[test]
fn a_saved_model_scores_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.lm");
    model("small.arpa").with_unit(Unit::Characters).save(&path, Quantization::None).unwrap();
    let opened = NgramModel::open(&path).unwrap();
    check_scores(&opened, "small.scores.tsv");
    assert_eq!(opened.unit(), Unit::Characters);
    assert_eq!(written(&opened), written(&model("small.arpa")));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "no draft is left");
}

#[test]
fn quantized_numbers_come_near() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.lm");
    let exact = model("words6.arpa.gz");
    exact.save(&path, Quantization::Bits8).unwrap();
    let quantized = NgramModel::open(&path).unwrap();
    let exact_path = folder.path().join("exact.lm");
    exact.save(&exact_path, Quantization::None).unwrap();
    assert!(fs::metadata(&path).unwrap().len() * 2 < fs::metadata(&exact_path).unwrap().len() * 3);
    let (found, expected) = (entries(&written(&quantized)), entries(&written(&exact)));
    assert_eq!(found.len(), expected.len());
    let errors = expected.iter().map(|(gram, expected)| f64::from((found[gram].0 - expected.0).abs()));
    let mean = errors.sum::<f64>() / expected.len() as f64;
    assert!(mean < 0.005, "{mean}");
    // A quantized model can be saved again, and a model of one word stays as it is.
    quantized.save(&exact_path, Quantization::None).unwrap();
    assert_eq!(written(&NgramModel::open(&exact_path).unwrap()), written(&quantized));
    for name in ["words1.arpa.gz", "words2.arpa.gz"] {
        model(name).save(&path, Quantization::Bits8).unwrap();
        assert_eq!(NgramModel::open(&path).unwrap().counts(), model(name).counts());
    }
}

#[test]
fn an_open_model_stays_when_its_file_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.lm");
    model("small.arpa").save(&path, Quantization::None).unwrap();
    let opened = NgramModel::open(&path).unwrap();
    model("words1.arpa.gz").save(&path, Quantization::None).unwrap();
    check_scores(&opened, "small.scores.tsv");
    assert_eq!(NgramModel::open(&path).unwrap().order(), 1);
}

fn saved() -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.lm");
    model("small.arpa").save(&path, Quantization::None).unwrap();
    fs::read(&path).unwrap()
}

fn open(bytes: &[u8]) -> Result<NgramModel, LanguageError> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.lm");
    fs::write(&path, bytes).unwrap();
    NgramModel::open(&path)
}

#[test]
fn another_version_is_refused_by_name() {
    let mut bytes = saved();
    bytes[16] = 2;
    assert!(matches!(open(&bytes), Err(LanguageError::Unsupported(problem)) if problem.contains("version 2")));
    assert!(open(b"").is_err());
    assert!(open(b"\\data\\").is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn truncated_and_changed_files_are_refused(at in any::<prop::sample::Index>(), change in 1u8..) {
        let mut bytes = saved();
        let at = at.index(bytes.len());
        prop_assert!(open(&bytes[..at]).is_err());
        bytes[at] ^= change;
        prop_assert!(open(&bytes).is_err());
    }
}
