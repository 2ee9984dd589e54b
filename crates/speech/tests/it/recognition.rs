//! Every search gives valid texts, and searches with the same definition give the same text.

use std::num::NonZeroUsize;

use burn::tensor::{Device, Tensor, TensorData, Tolerance};
use plimsoll_core::Key;
use plimsoll_layers::{LengthPolicy, Lengths};
use plimsoll_speech::asr::decode::{CtcScores, ctc_prefix_beam};
use plimsoll_speech::asr::{Recognizer, RecognizerConfig, Search};
use plimsoll_tape::Pass;

fn model(length: LengthPolicy) -> Recognizer {
    let config = RecognizerConfig { kernel: 5, length, ..RecognizerConfig::recommended(16, 1, 2, 12) };
    config.init(&Device::flex(), Key::new(6))
}

fn features(frames: usize) -> Tensor<3> {
    let values: Vec<f32> = (0..2 * frames * 80).map(|i| Key::new(7).at(i as u64).unit() as f32 * 4.0 - 2.0).collect();
    Tensor::from_data(TensorData::new(values, [2, frames, 80]), &Device::flex())
}

fn searches() -> Vec<Search> {
    let width = NonZeroUsize::new(4).unwrap();
    Search::NAMES.iter().map(|name| Search::from_name(name, width, 0.4, 0.1).unwrap()).collect()
}

#[test]
fn every_search_decodes_every_length() {
    let model = model(LengthPolicy::Exact);
    for search in searches() {
        for lengths in [[1, 7], [40, 60], [60, 3]] {
            let texts = model.recognize(features(60), &lengths, &search);
            assert_eq!(texts.len(), 2, "{search:?}");
            // A text has at most as many tokens as frames, and no special tokens.
            for (text, length) in texts.iter().zip(lengths) {
                assert!(text.len() <= length.div_ceil(4) as usize, "{search:?}: {text:?} in {length} frames");
                assert!(text.iter().all(|&token| token != 0 && token < 12), "{search:?}: {text:?}");
            }
        }
    }
}

/// A recording of more than 256 positions is attended to in parts.
#[test]
fn attention_in_parts_gives_the_same_scores() {
    let model = model(LengthPolicy::Exact);
    let lengths = Lengths::new(vec![1400, 1111], 1400);
    let encode = |pass: Pass| {
        let (encoded, _) = model.encode(features(1400), &lengths, &pass);
        (model.ctc_logits(&encoded, &pass), encoded.lengths.each().to_vec())
    };
    let ((whole, valid), (parts, _)) = (encode(Pass::plain()), encode(Pass::inference()));
    assert!(valid.iter().all(|&positions| positions > 256), "{valid:?}");
    for (utterance, &positions) in valid.iter().enumerate() {
        let [whole, parts] = [&whole, &parts]
            .map(|scores| scores.clone().narrow(0, utterance, 1).narrow(1, 0, positions as usize).into_data());
        whole.assert_approx_eq::<f32>(&parts, Tolerance::rel_abs(1e-4, 1e-4));
    }
}

#[test]
fn other_utterances_do_not_change_the_text() {
    let model = model(LengthPolicy::Exact);
    for search in searches() {
        let both = model.recognize(features(60), &[33, 60], &search);
        let alone = model.recognize(features(60).narrow(0, 0, 1).narrow(1, 0, 33), &[33], &search);
        assert_eq!(both[0], alone[0], "{search:?}");
    }
}

/// The decoder's cached scores, computed token by token, equal its scores of the whole text at once.
#[test]
fn rescoring_orders_by_its_definition() {
    let model = model(LengthPolicy::Exact);
    let (frames, width) = (48, NonZeroUsize::new(5).unwrap());
    let x = features(frames).narrow(0, 0, 1);
    let (encoded, _) = model.encode(x.clone(), &Lengths::new(vec![48], 48), &Pass::plain());
    let logits = model.ctc_logits(&encoded, &Pass::plain());
    let scores = CtcScores::from_logits(logits.into_data().try_into_vec().unwrap(), 12);
    let decoder = model.decoder().unwrap();
    let by_definition = |tokens: &[u32], ctc: f64| {
        let logits = decoder.forward(&[tokens.to_vec()], &encoded, &Pass::plain());
        let log_probs = burn::tensor::activation::log_softmax(logits, 2).into_data().try_into_vec::<f32>().unwrap();
        let target = tokens.iter().copied().chain([3]);
        let attention: f64 =
            target.enumerate().map(|(index, token)| f64::from(log_probs[index * 12 + token as usize])).sum();
        0.3 * ctc + 0.7 * attention
    };
    let candidates = ctc_prefix_beam(&scores, width);
    let best = candidates
        .iter()
        .max_by(|a, b| by_definition(&a.tokens, a.score).total_cmp(&by_definition(&b.tokens, b.score)));
    let found = model.recognize(x, &[48], &Search::Rescore { width, ctc_weight: 0.3 });
    assert_eq!(found[0], best.unwrap().tokens);
}

#[test]
fn truncating_policy_reports_cuts_and_chunking_changes_nothing() {
    let number = |n| std::num::NonZeroU32::new(n).unwrap();
    let encoded = |length| {
        let model = model(length);
        let (encoded, cut) = model.encode(features(60), &Lengths::new(vec![60, 20], 60), &Pass::plain());
        (encoded.frames.into_data().try_into_vec::<f32>().unwrap(), encoded.lengths.each().to_vec(), cut)
    };
    let (exact, lengths, cut) = encoded(LengthPolicy::Exact);
    assert_eq!((lengths, cut), (vec![14, 4], vec![]));
    let (chunked, _, _) = encoded(LengthPolicy::Chunked(number(3)));
    let apart = exact.iter().zip(&chunked).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    assert!(apart < 1e-5, "{apart}");
    let (_, lengths, cut) = encoded(LengthPolicy::Truncate(number(6)));
    assert_eq!((lengths, cut), (vec![6, 4], vec![0]));
}
