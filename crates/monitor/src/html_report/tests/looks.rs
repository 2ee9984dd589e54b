//! Tests of what a reader sees: the order of the page, one meaning for each color, and nothing cut or empty.

use std::collections::BTreeMap;

use super::super::plan::MemoryOwner;
use super::*;
use crate::owner_colors::OWNER_VARIABLES;

/// Smallest distance of two colors with different meanings, in OKLab; the distance of black and white is 1.
const DISTANCE_MIN: f64 = 0.055;
/// Smallest contrast of a line with the paper, by WCAG 2.
const LINE_CONTRAST: f64 = 3.0;
/// Smallest contrast of a text with the paper, by WCAG 2.
const TEXT_CONTRAST: f64 = 4.5;

fn validated(step: u64, loss: f64) -> Event {
    let scores = vec![
        Measure::share("cer", "character error rate", 0.25),
        Measure::share("wer", "word error rate", 0.5),
        Measure::number("loss", "loss for each token", loss),
    ];
    Event::Validated { step, epoch: 0, scores, seconds: 1.0, best: true, peak_bytes: Bytes::mib(10) }
}

/// Writes a recognizer's run of 60 steps, with a validation after each 20, an evaluation and a recording.
fn write_recognizer(folder: &Path, losses: [f64; 3]) {
    let mut events: Vec<Event> = (1..=60).map(|number| Event::Step(step(number))).collect();
    for (place, loss) in losses.into_iter().enumerate().rev() {
        events.insert((place + 1) * 20, validated((place as u64 + 1) * 20, loss));
    }
    events.push(Event::LeftOut { samples: vec![Skipped { name: "book-7".into(), reason: "silent".into() }] });
    write(folder, &events);
    let plan = "task = \"asr\"\nparameters = 1048576\n[data]\nvalidation_utterances = 47\n[training.schedule]\n\
                total = 18446744073709551615\n[memory]\naround = 104857600\nsharing = 1\n[memory.plan]\npeak = 167772160\n\
                fixed = 16777216\n[memory.plan.state]\nbits = 64\n";
    fs::write(folder.join("plan.toml"), plan).unwrap();
    let corpus = folder.join("corpus");
    fs::create_dir_all(&corpus).unwrap();
    fs::write(corpus.join("a.ogg"), "sound").unwrap();
    fs::write(folder.join("outside.ogg"), "secret").unwrap();
    let manifest = format!("[data]\nmanifest = {}\n", Value::from(corpus.join("list.jsonl").to_str().unwrap()));
    fs::write(folder.join("config.toml"), manifest).unwrap();
    let example = |name: &str, output: &str| Example {
        name: name.into(),
        truth: "she read the letter".into(),
        output: output.into(),
    };
    let examples = vec![
        example("a.ogg", "she red letter"),
        example("../outside.ogg", ""),
        example("b.ogg", "she read the letter"),
    ];
    let scores = vec![Measure::share("cer", "character error rate", 0.25)];
    Summary { complete: true, steps: 60, scores, examples, ..Summary::default() }.write(folder).unwrap();
}

const EVALUATION: &str = r#"{"utterances": 47, "search": {"kind": "greedy"}, "unknown": [],
    "worst": [{"name": "a.ogg", "truth": "one two", "heard": "won two", "cer": 0.4}],
    "details": {"correct_utterances": 12, "resampled": "speakers", "drawn": 9,
        "characters": {"rate": 0.25, "low": 0.2, "high": 0.3125}, "words": {"rate": 0.5, "low": 0.45, "high": 0.55},
        "speakers": [{"name": "<ada>", "utterances": 7, "words": {"hits": 3, "substitutions": 1}}],
        "lengths": [{"name": "2 to 5 s", "utterances": 40, "words": {"hits": 1, "deletions": 1}}],
        "confused_words": [{"reference": "two", "hypothesis": "too", "count": 3}, {"reference": "a", "hypothesis": "o", "count": 1}],
        "deleted_words": [{"text": "the", "count": 5, "occurrences": 9}]}}"#;

fn recognizer(losses: [f64; 3], evaluation: Option<&str>) -> RunData {
    let folder = tempfile::tempdir().unwrap();
    write_recognizer(folder.path(), losses);
    if let Some(text) = evaluation {
        fs::write(folder.path().join("evaluation.json"), text).unwrap();
    }
    RunData::read(folder.path()).unwrap()
}

/// Returns the texts between `from` and the next `to`.
fn between<'a>(html: &'a str, from: &str, to: &str) -> Vec<&'a str> {
    html.split(from).skip(1).map(|part| part.split(to).next().unwrap()).collect()
}

/// Returns the part of the page that a reader sees.
fn body(html: &str) -> &str {
    html.split_once("<body>").unwrap().1.split("<script").next().unwrap()
}

#[test]
fn a_page_begins_with_the_score_and_whether_the_run_overfits() {
    let (html, _) = page_of(&[recognizer([2.0, 1.5, 1.8], None)]);
    let lines = between(body(&html), "<p class=\"", "</p>");
    assert!(
        lines[0].starts_with("verdict\">Character error rate <b>25.00\u{a0}%</b> on 47 held-out utterances"),
        "{lines:?}"
    );
    assert!(
        lines[1].starts_with("fit warn\">It overfits since step 40: the validation loss rose from 1.500 to 1.800"),
        "{lines:?}"
    );
    assert!(lines[1].contains("Its character error rate was best later, after step 60"), "{lines:?}");
    assert_eq!(html.matches("class=\"band overfits\"").count(), 1);
    let (html, _) = page_of(&[recognizer([2.0, 1.5, 1.4], None)]);
    assert!(html.contains("<p class=\"fit\">It does not overfit") && !html.contains("class=\"band overfits\""));
    let (html, _) = page_of(&[run_of(&[Event::Step(step(1)), Event::Step(step(2))])]);
    assert!(html.contains("No score yet") && html.contains("Whether it overfits is not known"));
}

#[test]
fn sections_are_in_the_order_of_the_questions_of_a_reader() {
    let run = recognizer([2.0, 1.5, 1.8], Some(EVALUATION));
    for runs in [&[run.clone()][..], &[run.clone(), run]] {
        let (html, _) = page_of(runs);
        let sections = between(&html, "<section id=\"", "\"");
        let expected = ["examples", "errors", "learning", "time", "memory", "events", "configuration", "setup"];
        assert_eq!(sections, expected);
        // The links lead to all of them.
        assert_eq!(between(&html, "<a href=\"#", "\""), expected);
        // What a reader cannot change any more is folded.
        for section in between(&html, "<section id=\"setup\">", "</section>") {
            assert!(section.contains("<details>") && !section.split("<details>").next().unwrap().contains("<table"));
        }
    }
}

#[test]
fn no_chart_has_fewer_than_two_points() {
    let one = |events: &[Event]| page_of(&[run_of(events)]).0;
    let two_steps = [Event::Step(step(1)), Event::Step(step(2)), validated(2, 1.0)];
    for html in [one(&two_steps[..1]), one(&two_steps), one(&[validated(1, 1.0)])] {
        for figure in between(&html, "<figure class=\"plot", "</figure>")
            .into_iter()
            .filter(|figure| !figure.starts_with(" ledger"))
        {
            // A line with two ends, or more.
            let lines = between(figure, "<polyline", ">");
            let drawn = lines
                .iter()
                .filter(|line| line.contains("bold"))
                .filter(|line| between(line, "points=\"", "\"")[0].split_whitespace().count() > 1);
            assert!(drawn.count() > 0, "{figure}");
        }
        assert!(!html.contains("<b>Character error rate</b>"), "one validation is no curve");
    }
    // A chart of one value is a sentence.
    let steps: Vec<Event> =
        (1..=40).map(|number| Event::Step(StepEvent { micro_batches: 2, ..step(number) })).collect();
    assert!(one(&steps).contains("Micro-batches of a step: always 2."));
}

#[test]
fn nothing_is_cut_and_nothing_is_empty() {
    let (html, _) = page_of(&[recognizer([2.0, 1.5, 1.8], Some(EVALUATION)), run_of(&[])]);
    for empty in [
        "<p></p>",
        "class=\"note\"></p>",
        "<td></td>",
        "<h2></h2>",
        "<dd></dd>",
        "<figcaption></figcaption>",
        "class=\"plots\"></div>",
    ] {
        assert!(!html.contains(empty), "{empty}");
    }
    for section in between(&html, "<section id=\"", "</section>") {
        let (_, content) = section.split_once("</h2>").unwrap();
        assert!(
            content.contains("<p") || content.contains("<t") || content.contains("<figure") || content.contains("<d"),
            "{section}"
        );
    }
    for cutting in ["overflow: hidden", "text-overflow", "line-clamp", "overflow-x: hidden", "overflow-y"] {
        assert!(!STYLE.contains(cutting), "{cutting}");
    }
    // The longest label of the program is whole in its tile and above its curve.
    let label = "distance of frames whose durations, or the frames before them, are the true ones";
    let scores = || vec![Measure::number("distance", "distance", 1.0), Measure::number("mel", label, 2.0)];
    let validated =
        |step| Event::Validated { step, epoch: 0, scores: scores(), seconds: 1.0, best: true, peak_bytes: Bytes(0) };
    let events: Vec<Event> = (1..=4).flat_map(|number| [Event::Step(step(number)), validated(number)]).collect();
    let (html, _) = page_of(&[run_of(&events)]);
    assert!(html.contains(&format!("<dt>{label}</dt>")));
}

#[test]
fn errors_of_a_recognizer_are_shown_with_their_recordings() {
    let (html, _) = page_of(&[recognizer([2.0, 1.5, 1.4], Some(EVALUATION))]);
    let errors = between(&html, "<section id=\"errors\">", "</section>")[0];
    for part in [
        "CER <b>25.0\u{a0}%</b> (20.0 to 31.2\u{a0}%), WER <b>50.0\u{a0}%</b>",
        "drawn over 9 speakers",
        "&lt;ada&gt;",
        "<th scope=\"row\">2 to 5 s</th><td>40</td>",
        "<th scope=\"row\">two</th><td><ins>too</ins></td><td>3</td>",
        "<th scope=\"row\">the</th><td>5 <small>of 9</small></td>",
        "<del>one</del>",
        "CER 40\u{a0}%",
        "<audio",
    ] {
        assert!(errors.contains(part), "{part}: {errors}");
    }
    assert!(!errors.contains("<ins>o</ins>"), "a confusion that happened once is no pattern");
    // The recording of an example and of the worst utterance; a name does not reach out of the corpus.
    assert_eq!(html.matches("src=\"data:audio/ogg;base64,c291bmQ=\"").count(), 2);
    assert_eq!(html.matches("<audio").count(), 2);
    assert!(!html.contains("c2VjcmV0") && !html.contains("plimsoll eval"));
    let examples = between(&html, "<section id=\"examples\">", "</section>")[0];
    for part in [
        "she <del>read</del> <del>the</del> letter",
        "she <ins>red</ins> letter",
        "<small>nothing</small>",
        "without an error",
    ] {
        assert!(examples.contains(part), "{part}: {examples}");
    }
    for broken in ["", "{", "[]", "{\"utterances\": -1}", "{\"utterances\": 0}"] {
        let (html, _) = page_of(&[recognizer([2.0, 1.5, 1.4], Some(broken))]);
        assert!(!html.contains("id=\"errors\"") && html.contains("plimsoll eval --run "), "{broken}");
    }
    let (html, _) = page_of(&[recognizer([2.0, 1.5, 1.4], Some("{\"utterances\": 2, \"details\": {\"drawn\": 2}}"))]);
    assert!(html.contains("too few for intervals"));
}

#[test]
fn memory_is_shown_by_owner_against_the_plan() {
    let (html, _) = page_of(&[recognizer([2.0, 1.5, 1.4], None)]);
    let memory = between(&html, "<section id=\"memory\">", "</section>")[0];
    assert!(memory.contains("The peak was <b>149 MiB</b>, <b>57\u{a0}%</b> of the 260 MiB planned."), "{memory}");
    // The weights, the gradients, the state and the rest at each step, and the plan above them.
    for (owner, count) in
        [(MemoryOwner::Weights, 60), (MemoryOwner::Optimizer, 60), (MemoryOwner::Rest, 60), (MemoryOwner::Step, 0)]
    {
        let class = format!("class=\"memory m{}\"", owner as usize);
        assert_eq!(memory.matches(&class).count(), count, "{owner:?}");
    }
    assert_eq!(memory.matches("class=\"limit c12\"").count(), 1);
    for part in [
        "weights",
        "gradients",
        "optimizer state",
        "activations and batches",
        "the process beside the steps",
        "planned peak",
    ] {
        assert!(memory.contains(part), "{part}");
    }
}

/// Returns the colors of one scheme by name, of a style sheet and of the owners of time.
fn colors(is_dark: bool) -> BTreeMap<String, [f64; 3]> {
    let mut all = BTreeMap::new();
    for sheet in [STYLE, &OWNER_VARIABLES] {
        let (light, dark) = sheet.split_once("@media (prefers-color-scheme: dark)").unwrap();
        for part in if is_dark { dark.split("\n}\n").next().unwrap() } else { light }.split("--").skip(1) {
            let Some((name, rest)) = part.split_once(": #") else { continue };
            let code: String = rest.chars().take_while(char::is_ascii_hexdigit).collect();
            let parts = [0, 2, 4].map(|at| u8::from_str_radix(&code[at..at + 2], 16).unwrap());
            all.insert(name.to_string(), parts.map(|value| f64::from(value) / 255.0));
        }
    }
    all
}

fn linear(color: [f64; 3]) -> [f64; 3] {
    color.map(|v| if v <= 0.04045 { v / 12.92 } else { ((v + 0.055) / 1.055).powf(2.4) })
}

fn contrast(a: [f64; 3], b: [f64; 3]) -> f64 {
    let [a, b] = [a, b].map(linear).map(|[red, green, blue]| 0.2126 * red + 0.7152 * green + 0.0722 * blue);
    (a.max(b) + 0.05) / (a.min(b) + 0.05)
}

/// Converts a color to OKLab (Ottosson, 2020), in which equal distances look equally different.
fn oklab(color: [f64; 3]) -> [f64; 3] {
    let mix = |color: [f64; 3], rows: [[f64; 3]; 3]| rows.map(|row| (0..3).map(|at| row[at] * color[at]).sum::<f64>());
    let to_cones = [
        [0.412_221_470_8, 0.536_332_536_3, 0.051_445_992_9],
        [0.211_903_498_2, 0.680_699_545_1, 0.107_396_956_6],
        [0.088_302_461_9, 0.281_718_837_6, 0.629_978_700_5],
    ];
    let to_lab = [
        [0.210_454_255_3, 0.793_617_785_0, -0.004_072_046_8],
        [1.977_998_495_1, -2.428_592_205_0, 0.450_593_709_9],
        [0.025_904_037_1, 0.782_771_766_2, -0.808_675_766_0],
    ];
    mix(mix(linear(color), to_cones).map(f64::cbrt), to_lab)
}

#[test]
fn each_color_has_one_meaning() {
    for is_dark in [false, true] {
        let all = colors(is_dark);
        assert_eq!(all.len(), 6 + 2 + 3 + 8 + 6 + TimeOwner::ALL.len(), "{:?}", all.keys());
        // A page of one run has no colors of runs, and a page of several has no owners of memory. Paper, text and lines of
        // a table are no marks.
        let is_mark = |name: &str| !["bg", "panel", "text", "soft", "line", "hatch"].contains(&name);
        let is_run = |name: &str| name.len() == 2 && name.starts_with('r');
        let never_together =
            |a: &str, b: &str| is_run(a) && (b.starts_with("m-") || ["run", "limit", "whole"].contains(&b));
        let marks: Vec<_> = all.iter().filter(|(name, _)| is_mark(name)).collect();
        for (place, (a, one)) in marks.iter().enumerate() {
            for (b, other) in &marks[place + 1..] {
                let [one, other] = [oklab(**one), oklab(**other)];
                let distance = (0..3).map(|at| (one[at] - other[at]).powi(2)).sum::<f64>().sqrt();
                let fine = distance >= DISTANCE_MIN || never_together(a, b) || never_together(b, a);
                assert!(fine, "{a} and {b} look alike: {distance:.3}, dark: {is_dark}");
            }
        }
        for (name, color) in &all {
            let least = match name.as_str() {
                "text" | "soft" | "warn" | "bad" => TEXT_CONTRAST,
                name if is_run(name)
                    || ["run", "limit", "whole", "o-validation", "o-other_process"].contains(&name) =>
                {
                    LINE_CONTRAST
                }
                _ => continue,
            };
            for ground in ["bg", "panel"] {
                let found = contrast(*color, all[ground]);
                assert!(found >= least, "{name} on {ground}: {found:.2}, dark: {is_dark}");
            }
        }
    }
}

#[test]
fn each_color_class_is_for_one_meaning() {
    // Each class of a curve or an owner has a color of its own; a curve shares that of the same owner of time.
    let mut users: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (class, rest) in STYLE
        .match_indices(" { --c: var(")
        .chain(STYLE.match_indices(" { --o: var("))
        .map(|(at, found)| (STYLE[..at].rsplit(['.', ' ', '\n']).next().unwrap(), &STYLE[at + found.len()..]))
    {
        users.entry(rest.split(')').next().unwrap()).or_default().push(class);
    }
    assert_eq!(users.values().map(Vec::len).sum::<usize>(), 13 + MemoryOwner::ALL.len());
    assert!(users.values().all(|classes| classes.len() == 1), "{users:?}");
    assert_eq!(users["--o-validation"], ["c9"]);
    assert_eq!(users["--o-other_process"], ["c11"]);
    assert_eq!(users["--o-optimizer"], ["m2"]);
    assert_eq!(MemoryOwner::ALL.map(|owner| owner as usize), [0, 1, 2, 3, 4, 5, 6]);
    // Errors are `bad`, what needs attention is `warn`, and nothing else is.
    let users_of = |color: &str| STYLE.lines().filter(|line| line.contains(&format!("var(--{color})"))).count();
    assert_eq!((users_of("bad"), users_of("warn"), users_of("o-throttled")), (3, 2, 1));
}

#[test]
fn charts_and_tables_are_readable_without_sight() {
    let (html, _) = page_of(&[recognizer([2.0, 1.5, 1.4], Some(EVALUATION))]);
    let labels = between(&html, "role=\"img\" aria-label=\"", "\"");
    assert!(labels.len() > 2 && labels.iter().any(|label| label.starts_with("Loss; training: from ")), "{labels:?}");
    assert!(labels.iter().any(|label| label.starts_with("Time by owner: computing ")), "{labels:?}");
    assert_eq!(html.matches("<svg viewBox").count(), labels.len());
    assert_eq!(html.matches("<table").count(), html.matches("role=\"region\" tabindex=\"0\" aria-label=\"").count());
    assert_eq!(html.matches("<audio").count(), html.matches("<audio controls preload=\"none\" aria-label=\"").count());
    // Each axis says what it is.
    assert!(between(&html, "class=\"xname\">", "<").iter().all(|name| !name.is_empty()));
    assert_eq!(html.matches("<h1>").count(), 1);
}
