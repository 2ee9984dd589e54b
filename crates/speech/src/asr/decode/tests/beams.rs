//! Tests of the searches that use the attention decoder.

use plimsoll_language::{FusionOptions, Hotwords, LanguageScorer, TrainOptions, train};

use super::*;

/// Makes scores in which each frame allows only the listed tokens, with equal probability.
fn only(vocabulary: usize, frames: &[&[usize]]) -> CtcScores {
    let cell = |frame: &[usize], token| if frame.contains(&token) { -(frame.len() as f32).ln() } else { IMPOSSIBLE };
    CtcScores::new(
        frames.iter().flat_map(|frame| (0..vocabulary).map(|token| cell(frame, token))).collect(),
        vocabulary,
    )
}

#[test]
fn every_search_reads_a_certain_path() {
    let cases: [(&[&[usize]], &[u32]); 7] = [
        (&[], &[]),
        (&[&[0]], &[]),
        (&[&[1]], &[1]),
        (&[&[1], &[1]], &[1]),
        (&[&[1], &[0], &[1]], &[1, 1]),
        (&[&[0], &[1], &[1], &[0], &[1], &[2], &[2], &[0]], &[1, 1, 2]),
        (&[&[2], &[1], &[2]], &[2, 1, 2]),
    ];
    for (path, text) in cases {
        let scores = only(VOCABULARY, path);
        let expected = [Hypothesis { tokens: text.to_vec(), score: 0.0 }];
        assert_eq!(ctc_best_path(&scores), text);
        assert_eq!(ctc_prefix_beam(&scores, width(1)), expected);
        assert_eq!(ctc_prefix_beam(&scores, unlimited()), expected);
        let ctc_alone = BeamOptions { ctc_weight: 1.0, ..options(width(2), 9) };
        assert_eq!(joint_beam(&scores, &mut ToyDecoder::new(1), &ctc_alone), expected);
    }
}

#[test]
fn equal_scores_have_a_fixed_order() {
    let scores = CtcScores::new(vec![-(4f32.ln()); 3 * 4], 4);
    assert_eq!(ctc_best_path(&scores), Vec::<u32>::new());
    let found = ctc_prefix_beam(&scores, unlimited());
    // Six paths collapse to each single token; of equal scores the lower token comes first.
    assert_eq!(found[..3].iter().map(|h| h.tokens.clone()).collect::<Vec<_>>(), [[1], [2], [3]]);
    assert_eq!(found, ctc_prefix_beam(&scores, unlimited()));
    // In the first frame four prefixes have equal scores; the prefix that was in the beam before stays.
    assert_eq!(ctc_prefix_beam(&scores, width(1))[0].tokens, Vec::<u32>::new());
    let equal = || ScriptedDecoder::new(|_: &[u32]| vec![-(5f32.ln()); VOCABULARY]);
    let found = attention_beam(&mut equal(), &options(width(3), 4));
    assert_eq!(found[0].tokens, Vec::<u32>::new());
    assert_eq!(found, attention_beam(&mut equal(), &options(width(3), 4)));
}

#[test]
fn impossible_scores_give_the_empty_text_at_minus_infinity() {
    let nothing = [Hypothesis { tokens: Vec::new(), score: f64::NEG_INFINITY }];
    for value in [IMPOSSIBLE, f32::NAN] {
        for scores in [CtcScores::new(vec![value; 10], 5), CtcScores::from_logits(vec![value; 10], 5)] {
            assert_eq!(ctc_best_path(&scores), Vec::<u32>::new());
            assert_eq!(ctc_prefix_beam(&scores, width(3)), nothing);
            assert_eq!(joint_beam(&scores, &mut ToyDecoder::new(1), &options(width(3), 5)), nothing);
        }
        let mut silent = ScriptedDecoder::new(|_: &[u32]| vec![value; VOCABULARY]);
        assert_eq!(attention_beam(&mut silent, &options(width(3), 5)), nothing);
    }
    assert_eq!(rescore(Vec::new(), &mut ToyDecoder::new(1), &options(width(3), 5)), nothing);
}

/// Compares the result of a beam wider than the number of texts with the scores of all texts, with and without CTC.
fn check_wide(seed: u64, scores: &CtcScores, options: &BeamOptions) {
    let toy = || ToyDecoder { sos: options.sos, eos: options.eos, ..ToyDecoder::new(seed) };
    let by_ctc = every_text(scores);
    let ranked = |is_joint: bool| {
        let options = BeamOptions { ctc_weight: if is_joint { options.ctc_weight } else { 0.0 }, ..options.clone() };
        let score = |tokens: Vec<u32>| {
            let ctc = by_ctc.get(&tokens).copied().unwrap_or(f64::NEG_INFINITY);
            let attention = toy().log_prob(&tokens);
            (definition(&options, ctc, attention, tokens.len()), tokens)
        };
        texts_up_to(options.length_max, options.sos, options.eos).into_iter().map(score).collect::<Vec<_>>()
    };
    let checks =
        [(ranked(true), joint_beam(scores, &mut toy(), options)), (ranked(false), attention_beam(&mut toy(), options))];
    for (expected, found) in checks {
        let best = expected.iter().max_by(|a, b| a.0.total_cmp(&b.0)).unwrap();
        assert!(
            sorted(&found) && found[0].tokens == best.1 && close(found[0].score, best.0),
            "{best:?} {:?}",
            found[0]
        );
        for hypothesis in found {
            let (exact, _) = expected.iter().find(|(_, tokens)| *tokens == hypothesis.tokens).unwrap();
            assert!(close(hypothesis.score, *exact), "{hypothesis:?} should have {exact}");
        }
    }
}

#[test]
fn a_wide_beam_finds_what_its_definition_ranks_first() {
    for seed in 0..30 {
        let scores = text_scores(seed, 4);
        for (ctc_weight, length_bonus, normalize_length, length_max, sos) in [
            (0.3, 0.0, false, 4, SOS),
            (0.3, 0.0, false, 2, SOS),
            (0.5, 0.7, false, 4, SOS),
            (0.5, -0.5, false, 4, SOS),
            (0.9, 0.0, true, 4, SOS),
            (0.4, 0.3, true, 3, SOS),
            (0.0, 0.0, false, 4, SOS),
            (1.0, 0.0, false, 4, SOS),
            (0.3, 0.0, false, 0, SOS),
            (0.3, 0.2, false, 4, EOS),
        ] {
            let wide = options(unlimited(), length_max);
            check_wide(seed, &scores, &BeamOptions { ctc_weight, length_bonus, normalize_length, sos, ..wide });
        }
    }
}

#[test]
fn joint_beam_with_weight_0_or_1_is_attention_or_ctc_alone() {
    for seed in 0..30 {
        let scores = text_scores(seed, 5);
        for narrow in [1, 2, 5, 1000] {
            let attention = BeamOptions { ctc_weight: 0.0, ..options(width(narrow), 5) };
            let found = joint_beam(&scores, &mut ToyDecoder::new(seed), &attention);
            assert_eq!(found, attention_beam(&mut ToyDecoder::new(seed), &attention));
        }
        let ctc = BeamOptions { ctc_weight: 1.0, ..options(unlimited(), 5) };
        let found = &joint_beam(&scores, &mut ToyDecoder::new(seed), &ctc)[0];
        let expected = &ctc_prefix_beam(&scores, unlimited())[0];
        assert!(found.tokens == expected.tokens && close(found.score, expected.score), "{found:?} {expected:?}");
    }
}

#[test]
fn a_narrow_beam_is_never_above_a_wide_one() {
    for seed in 0..50 {
        let scores = text_scores(seed, 5);
        let joint = |width| joint_beam(&scores, &mut ToyDecoder::new(seed), &options(width, 5))[0].score;
        let attention = |width| attention_beam(&mut ToyDecoder::new(seed), &options(width, 5))[0].score;
        for narrow in 1..5 {
            assert!(joint(width(narrow)) <= joint(unlimited()) + TOLERANCE, "seed {seed}");
            assert!(attention(width(narrow)) <= attention(unlimited()) + TOLERANCE, "seed {seed}");
        }
    }
}

#[test]
fn zero_frames_or_zero_length_give_the_empty_text() {
    let toy = ToyDecoder::new(7);
    let empty = Hypothesis { tokens: Vec::new(), score: 0.7 * toy.log_prob(&[]) };
    let scores = CtcScores::new(Vec::new(), VOCABULARY);
    assert_eq!(joint_beam(&scores, &mut ToyDecoder::new(7), &options(width(3), 9)), [empty]);
    let empty = Hypothesis { tokens: Vec::new(), score: toy.log_prob(&[]) };
    assert_eq!(attention_beam(&mut ToyDecoder::new(7), &options(width(3), 0)), [empty]);
}

#[test]
fn a_vocabulary_of_two_has_only_the_empty_text() {
    let smallest = BeamOptions::new(1, 1, 5);
    let scores = CtcScores::new([0.5f32, 0.5, 0.5, 0.5].map(f32::ln).to_vec(), 2);
    let scripted = || ScriptedDecoder::new(|_: &[u32]| [0.25f32, 0.75].map(f32::ln).to_vec());
    let found = joint_beam(&scores, &mut scripted(), &smallest);
    assert!(found.len() == 1 && found[0].tokens.is_empty());
    assert!((found[0].score - (0.3 * 0.25f64.ln() + 0.7 * 0.75f64.ln())).abs() < 1e-6, "{found:?}");
    assert_eq!(attention_beam(&mut scripted(), &smallest)[0].tokens, Vec::<u32>::new());
}

/// Makes a decoder that predicts token 1 with near certainty until there are `length` tokens, then the end token.
fn counts_to(length: usize) -> impl Fn(&[u32]) -> Vec<f32> {
    move |text| {
        let end = if text.len() < length { 1e-9f32 } else { 1.0 - 1e-9 };
        [1e-30, 1.0 - end + 1e-9, 1e-12, 1e-30, end].map(f32::ln).to_vec()
    }
}

#[test]
fn search_stops_when_no_hypothesis_can_win() {
    for (length_bonus, normalize_length, calls_max) in [(0.0, false, 6), (0.5, false, 12), (0.0, true, 12)] {
        let mut decoder = ScriptedDecoder::new(counts_to(5));
        let options = BeamOptions { length_bonus, normalize_length, ..options(width(4), 1000) };
        let found = attention_beam(&mut decoder, &options);
        assert_eq!(found[0].tokens, [1; 5]);
        assert!(decoder.1 <= calls_max, "{} calls with a bonus of {length_bonus}", decoder.1);
    }
}

#[test]
fn open_hypotheses_are_closed_at_the_length_limit() {
    let never = counts_to(1000);
    let found = attention_beam(&mut ScriptedDecoder::new(&never), &options(width(1), 3));
    assert!(found.len() == 1 && found[0].tokens == [1; 3] && (found[0].score - 1e-9f64.ln()).abs() < 1e-5, "{found:?}");
}

#[test]
fn rescoring_matches_its_definition() {
    for seed in 0..30 {
        for (ctc_weight, length_bonus, normalize_length) in [(0.3, 0.0, false), (1.0, 0.0, false), (0.0, 0.4, true)] {
            let options = BeamOptions { ctc_weight, length_bonus, normalize_length, ..options(width(10), 0) };
            let candidates = ctc_prefix_beam(&text_scores(seed, 5), width(12));
            let longest = candidates.iter().map(|c| c.tokens.len()).max().unwrap();
            let mut toy = ToyDecoder { allows_duplicates: true, ..ToyDecoder::new(seed) };
            let found = rescore(candidates.clone(), &mut toy, &options);
            assert!(sorted(&found) && found.len() == candidates.len() && toy.calls == longest + 1);
            for Hypothesis { tokens, score } in found {
                let ctc = candidates.iter().find(|c| c.tokens == tokens).unwrap().score;
                let expected = definition(&options, ctc, toy.log_prob(&tokens), tokens.len());
                assert!(close(score, expected), "{tokens:?}: {score} and {expected}");
            }
        }
    }
}

#[test]
fn a_weight_of_zero_ignores_minus_infinity() {
    let scores = only(12, &[&[9], &[0], &[9], &[8]]);
    // The decoder prefers low tokens; token 9 is impossible for it.
    let against =
        || ScriptedDecoder::new(|_: &[u32]| (0..12).map(|x| if x == 9 { IMPOSSIBLE } else { -(x as f32) }).collect());
    let ctc_alone = BeamOptions { ctc_weight: 1.0, width: width(1), ..BeamOptions::new(10, 11, 9) };
    let text = Hypothesis { tokens: vec![9, 9, 8], score: 0.0 };
    assert_eq!(joint_beam(&scores, &mut against(), &ctc_alone), std::slice::from_ref(&text));
    assert_eq!(rescore(vec![text.clone()], &mut against(), &ctc_alone), [text]);
    let unheard = Hypothesis { tokens: vec![1], score: f64::NEG_INFINITY };
    let attention_alone = BeamOptions { ctc_weight: 0.0, ..ctc_alone };
    let expected = Hypothesis { tokens: vec![1], score: -12.0 };
    assert_eq!(rescore(vec![unheard], &mut against(), &attention_alone), [expected]);
}

/// A language over the two text tokens of the toys, in which `a` follows `b`.
fn language(alpha: f64, beta: f64) -> LanguageScorer {
    let (model, _) = train(["b a b a", "b a"], &TrainOptions::new(2)).unwrap();
    let options = FusionOptions::default().with_weights(alpha, beta);
    LanguageScorer::new(&["", " a", " b", "", ""][..], &options).with_model(model)
}

#[test]
fn a_wide_joint_beam_with_a_language_finds_what_its_definition_ranks_first() {
    for seed in 0..30 {
        let scores = text_scores(seed, 4);
        let by_ctc = every_text(&scores);
        for (ctc_weight, alpha, beta) in [(0.3, 0.5, 1.5), (0.7, 2.0, 0.0), (1.0, 1.0, -1.0), (0.0, 1.0, 0.5)] {
            let options = BeamOptions { ctc_weight, ..options(unlimited(), 4) };
            let language = language(alpha, beta).with_hotwords(Hotwords::new(["a"], 0.5));
            let score = |tokens: &Vec<u32>| {
                let ctc = by_ctc.get(tokens).copied().unwrap_or(f64::NEG_INFINITY);
                let state =
                    tokens.iter().fold(language.start(), |state, &token| language.advance(&state, token).unwrap());
                let added = language.finish(&state).unwrap().score();
                definition(&options, ctc, ToyDecoder::new(seed).log_prob(tokens), tokens.len()) + added
            };
            let texts = texts_up_to(4, SOS, EOS);
            let best = texts.iter().max_by(|a, b| score(a).total_cmp(&score(b))).unwrap();
            let found = fused_joint_beam(&scores, &mut ToyDecoder::new(seed), &options, &language);
            assert!(sorted(&found) && found[0].tokens == *best, "{best:?} {:?}", found[0]);
            assert!(found.iter().all(|one| close(one.score, score(&one.tokens))), "{found:?}");
        }
    }
}

#[test]
fn a_language_that_adds_nothing_changes_no_joint_search() {
    for seed in 0..10 {
        let scores = text_scores(seed, 6);
        let nothing = LanguageScorer::new(&["", "a", "b", "", ""][..], &FusionOptions::default());
        let options = options(width(3), 6);
        let found = fused_joint_beam(&scores, &mut ToyDecoder::new(seed), &options, &nothing);
        let expected = joint_beam(&scores, &mut ToyDecoder::new(seed), &options);
        assert_eq!((&found[0].tokens, found[0].score), (&expected[0].tokens, expected[0].score));
    }
}
