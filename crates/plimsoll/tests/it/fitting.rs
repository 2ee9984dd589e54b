//! Whether a run fits, before it runs: verdicts, files, changed configurations, and what is refused.

use serde_json::Value;

use crate::program::Place;

/// A small recogniser, so that a debug build answers at once.
const TOY: &[&str] = &["--set", "model.vocabulary=40", "--set", "data.max_seconds=8"];

fn verdict(place: &Place, more: &[&str]) -> (Option<i32>, Value) {
    let said = place.run(&[&["memtest", "--json"], TOY, more].concat());
    (said.code, serde_json::from_str(&said.out).unwrap_or_else(|error| panic!("{error}: {said:?}")))
}

#[test]
fn every_card_gets_a_verdict_with_its_plan() {
    let place = Place::new();
    let (code, found) = verdict(&place, &["--gpu", "rtx 3060", "--gpu", "8GiB"]);
    assert_eq!(code, Some(0));
    let cards = found["cards"].as_array().unwrap();
    assert_eq!(cards.len(), 2);
    for card in cards {
        assert_eq!(card["fits"], true);
        let (peak, budget) = (card["peak_bytes"].as_u64().unwrap(), card["budget_bytes"].as_u64().unwrap());
        assert!(peak <= budget);
        let buckets = card["plan"]["buckets"].as_array().unwrap();
        assert_eq!(buckets.len(), 5);
        for bucket in buckets {
            let number = |key: &str| bucket[key].as_u64().unwrap();
            let whole = bucket["bucket"]["utterances"].as_u64().unwrap();
            assert!(number("peak") <= peak && number("micro_batch") * number("accumulation") >= whole, "{bucket}");
        }
        let owners: u64 = card["owners"].as_object().unwrap().values().map(|bytes| bytes.as_u64().unwrap()).sum();
        assert_eq!(owners + card["slack_bytes"].as_u64().unwrap(), peak);
        assert!(card["phases"]["backward"].is_u64() && card["phases"]["optimizer"].is_u64());
    }
}

#[test]
fn what_does_not_fit_ends_with_3_and_says_what_would_help() {
    let place = Place::new();
    let (code, found) = verdict(&place, &["--gpu", "560MiB", "--set", "training.micro_batch=8"]);
    assert_eq!(code, Some(3));
    let card = &found["cards"][0];
    assert_eq!((&card["fits"], &card["plan"]), (&Value::Bool(false), &Value::Null));
    assert_eq!(card["change"]["kind"], "micro_batch", "{card}");
    let said = place.run(&[&["memtest", "--gpu", "560MiB", "--set", "training.micro_batch=8"], TOY].concat());
    assert!(said.out.contains("the cheapest change that would make it fit: compute "), "{said:?}");
}

#[test]
fn a_step_is_drawn_as_a_page_and_for_perfetto() {
    let place = Place::new();
    let args = ["memtest", "--gpu", "t4", "--verbose", "--timeline", "step.html", "--trace", "step.json"];
    let said = place.run(&[&args, TOY].concat()).fine();
    assert!(said.out.contains("at the peak of the worst length:") && said.out.contains("activations"), "{said:?}");
    let page = std::fs::read_to_string(place.path("step.html")).unwrap();
    assert!(page.starts_with("<!doctype html>") || page.starts_with("<!DOCTYPE html>"), "{}", &page[..40]);
    assert!(page.contains("T4") && !page.contains("http"));
    assert!(place.json("step.json")["traceEvents"].as_array().unwrap().len() > 20);
}

#[test]
fn what_cannot_be_asked_is_refused() {
    let place = Place::new();
    for (args, expected) in [
        (&["memtest", "--gpu", "t44"][..], "no GPU is called `t44`"),
        (&["memtest", "--gpu", "0GiB"], "has no memory to plan"),
        (&["memtest", "--batch", "3"], "--verify"),
        (&["memtest", "--verify", "--batch", "0"], "a case needs utterances, frames and tokens"),
        (&["memtest", "--config", "missing.toml"], "missing.toml"),
        (&["optimize", "--config", "missing.toml", "--output", "o.toml"], "cannot read missing.toml"),
    ] {
        let said = place.run(args);
        assert_eq!(said.code, Some(2), "{args:?}: {said:?}");
        assert!(said.err.contains(expected), "{args:?}: {said:?}");
    }
}

#[test]
fn a_step_is_predicted_within_a_few_percent_of_what_it_needs() {
    let place = Place::new();
    let args =
        ["memtest", "--verify", "--batch", "3", "--frames", "400", "--tokens", "30", "--remat", "half", "--json"];
    let said = place.run(&[&args, TOY].concat()).fine();
    let found: Value = serde_json::from_str(&said.out).unwrap();
    let case = &found["cases"][0];
    let bytes = |key: &str| case[key].as_f64().unwrap();
    let error = bytes("predicted_bytes") / bytes("measured_bytes") - 1.0;
    // The matrix and its lines are in docs/LOG.md; this small one has more of what is no tensor.
    assert!(error.abs() < 0.04, "{case}");
    assert!(bytes("fixed_bytes") > 0.0 && bytes("fixed_bytes") < bytes("measured_bytes"));
}

#[test]
fn a_configuration_is_changed_until_it_fits_and_says_why() {
    let place = Place::new();
    place.write(
        "run.toml",
        "# mine\n[data]\nbatch_size = 64\nmax_seconds = 20\n\n[model]\nd_model = 256\nvocabulary = 40\n\n[training]\nepochs = 1\n",
    );
    let said = place.run(&["optimize", "--config", "run.toml", "--output", "less.toml", "--gpu", "3GiB"]).fine();
    assert!(said.out.contains("the effective batch as it was") && said.out.contains("+ micro_batch = "), "{said:?}");
    let text = std::fs::read_to_string(place.path("less.toml")).unwrap();
    assert!(text.starts_with("# mine\n[data]\nbatch_size = 64\n") && text.contains("# optimize: "), "{text}");
    let fits = place.run(&["memtest", "--config", "less.toml", "--gpu", "3GiB"]);
    assert_eq!(fits.code, Some(0), "{fits:?}");
    let refused = place.run(&["optimize", "--config", "run.toml", "--output", "none.toml", "--gpu", "530MiB"]);
    assert_eq!(refused.code, Some(3), "{refused:?}");
    assert!(!place.path("none.toml").exists() && refused.err.contains("does not fit"), "{refused:?}");
}

#[test]
fn shipped_configurations_fit_the_cards_they_are_for() {
    let place = Place::new();
    let configs = concat!(env!("CARGO_MANIFEST_DIR"), "/../../configs");
    for task in ["asr", "tts"] {
        for (tier, cards) in [
            ("standard", &["rtx 3090", "24GiB"][..]),
            ("memory_optimized", &["t4", "16GiB", "rtx 3060", "12GiB"]),
            ("extreme_memory_optimized", &["rtx 4060", "8GiB"]),
        ] {
            let file = format!("{configs}/{task}/{tier}.toml");
            let mut args = vec!["memtest", "--json", "--config", &file];
            cards.iter().for_each(|card| args.extend(["--gpu", card]));
            let said = place.run(&args);
            assert_eq!(said.code, Some(0), "{task}/{tier}: {said:?}");
        }
    }
}

#[test]
fn the_configuration_for_what_is_here_is_chosen_by_itself() {
    let place = Place::new();
    let said = place.run(&["config", "print", "--config", "auto", "--task", "tts", "--json"]).fine();
    let found: Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!(found["config"]["task"], "tts");
    assert!(found["from"]["training.remat"].as_str().unwrap().contains("configs/tts/"), "{}", found["from"]);
}

#[test]
fn what_is_here_is_told() {
    let place = Place::new();
    let said = place.run(&["gpu-info"]).fine();
    assert!(said.out.contains("host: ") && said.out.contains("card"), "{said:?}");
    let found: Value = serde_json::from_str(&place.run(&["gpu-info", "--json"]).fine().out).unwrap();
    assert!(found["host"]["memory"].as_u64().unwrap() > 0, "{found}");
}
