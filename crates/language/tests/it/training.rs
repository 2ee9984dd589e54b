//! Training equals `lmplz`.

use plimsoll_language::{LanguageError, TrainOptions, TrainProgress, Unit, train, train_with};

use crate::fixtures::{entries, model, text, written};

/// Trains on the text of the fixtures and compares every n-gram with the file of lmplz.
fn check(name: &str, options: &TrainOptions) {
    let text = text("train.txt");
    let (trained, _) = train(text.lines(), options).unwrap();
    let (found, expected) = (entries(&written(&trained)), entries(&written(&model(name))));
    assert_eq!(found.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>(), "{name}");
    for (gram, expected) in &expected {
        let found = found[gram];
        let far = (found.0 - expected.0).abs().max((found.1 - expected.1).abs());
        assert!(far < 1e-4, "{name}: \"{gram}\" is {found:?} and not {expected:?}");
    }
}

#[test]
fn equals_lmplz_at_every_order() {
    for (name, order) in [("words1", 1), ("words2", 2), ("words3", 3), ("words6", 6)] {
        check(&format!("{name}.arpa.gz"), &TrainOptions::new(order));
    }
}

#[test]
fn equals_lmplz_with_pruning() {
    check("words3-pruned.arpa.gz", &TrainOptions::new(3).with_prune([0, 0, 1]));
    check("words4-pruned-words.arpa.gz", &TrainOptions::new(4).with_prune([1, 1, 2]));
}

#[test]
fn equals_lmplz_with_characters() {
    let options = TrainOptions::new(5).with_unit(Unit::Characters).with_prune([0, 0, 0, 1]);
    check("characters5.arpa.gz", &options);
}

#[test]
fn probabilities_sum_to_one() {
    let text = text("train.txt");
    for prune in [vec![], vec![0, 1, 2], vec![2]] {
        let (model, _) = train(text.lines(), &TrainOptions::new(3).with_prune(prune)).unwrap();
        let mut states = vec![model.begin_state(), Default::default()];
        for word in ["ka", "lo", "unheard"] {
            states.extend(states.clone().iter().map(|state| model.score_word(state, word).1));
        }
        let words: Vec<String> = model.words().map(str::to_owned).collect();
        for state in states {
            let sum: f64 = (0..words.len() as u32)
                .filter(|&id| words[id as usize] != "<s>")
                .map(|id| 10f64.powf(f64::from(model.score(&state, id).0)))
                .sum();
            assert!((sum - 1.0).abs() < 1e-4, "{sum}");
        }
    }
}

#[test]
fn reports_discounts_and_progress() {
    let text = text("train.txt");
    let mut orders = Vec::new();
    let mut progress = |progress: TrainProgress| {
        if let TrainProgress::Estimated { order, .. } = progress {
            orders.push(order);
        }
    };
    let (_, report) = train_with(text.lines(), &TrainOptions::new(2), &mut progress).unwrap();
    assert_eq!(orders, [1, 2]);
    assert_eq!(report.n_sentences, 500);
    assert!(report.fallback_orders.is_empty());
    // As lmplz prints them for this text.
    for (found, expected) in report.discounts.iter().flatten().zip([0.192982, 1.44622, 2.64912, 0.648501, 1.06495]) {
        assert!((found - expected).abs() < 1e-4, "{found} and not {expected}");
    }
}

#[test]
fn refuses_what_it_cannot_train() {
    let refused = |options: &TrainOptions, texts: &[&str]| match train(texts, options) {
        Err(LanguageError::Training(problem)) => problem,
        other => panic!("{other:?}"),
    };
    assert!(refused(&TrainOptions::new(0), &["a"]).contains("order"));
    assert!(refused(&TrainOptions::new(7), &["a"]).contains("order"));
    assert!(refused(&TrainOptions::new(2).with_prune([1, 0]), &["a"]).contains("thresholds"));
    assert!(refused(&TrainOptions::new(2), &[]).contains("no sentence"));
    let mut strict = TrainOptions::new(2);
    strict.discount_fallback = None;
    assert!(refused(&strict, &["a b"]).contains("adjusted count"));
}

#[test]
fn special_words_are_left_out() {
    let (model, report) = train(["<s> a b </s>", "a <unk> c"], &TrainOptions::new(2)).unwrap();
    assert_eq!((report.n_tokens, report.n_special), (4, 3));
    assert_eq!(model.words().count(), 6);
}

#[test]
fn an_empty_sentence_counts() {
    let (model, _) = train(["", "a"], &TrainOptions::new(3)).unwrap();
    assert!(model.score_sentence("").is_finite());
}
