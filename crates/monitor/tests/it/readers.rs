//! Readers of other people read the same numbers from our files as we have written into them.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use plimsoll_monitor::TensorBoardFile;
use plimsoll_monitor::live::RunView;
use plimsoll_monitor::serve::prometheus_text;
use serde_json::{Value, from_slice, json};

use crate::made_up::{sample, view};
use crate::tool::find_python_with;

/// Prints the curves as lists of steps and values, and the texts. JSON has no NaN, so values are texts.
const READ_CURVES: &str = "
import json, sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
events = EventAccumulator(sys.argv[1], size_guidance={'scalars': 0, 'tensors': 0})
events.Reload()
curves = {tag: [[e.step, repr(e.value)] for e in events.Scalars(tag)] for tag in events.Tags()['scalars']}
texts = {tag: [[e.step, e.tensor_proto.string_val[0].decode()] for e in events.Tensors(tag)] for tag in events.Tags()['tensors']}
print(json.dumps({'curves': curves, 'texts': texts}))
";

/// Prints the families of a text: their kinds and their samples. Values are texts, which keep their last bit.
const READ_METRICS: &str = "
import json, sys
from prometheus_client.parser import text_string_to_metric_families
text = sys.stdin.buffer.read().decode()
print(json.dumps([[f.type, [[s.name, list(s.labels.items()), repr(s.value), s.timestamp] for s in f.samples]] for f in text_string_to_metric_families(text)]))
";

/// Runs a Python program, and returns the JSON that it prints.
fn run(python: &Path, program: &str, argument: &Path, input: &str) -> Value {
    let mut command = Command::new(python);
    command.args(["-c", program]).arg(argument).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut process = command.spawn().unwrap();
    process.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = process.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    from_slice(&output.stdout).unwrap()
}

fn value(step: u64) -> f64 {
    match step {
        3 => f64::NAN,
        4 => f64::INFINITY,
        5 => -0.0,
        // Larger than all numbers of single precision.
        6 => 1e300,
        step => 10.0 / step as f64,
    }
}

/// Returns the bits of a number without its sign, which NaN need not keep.
fn without_sign(number: f32) -> u32 {
    number.abs().to_bits()
}

#[test]
fn tensorboard_reads_equal_curves_and_texts() {
    let Some(python) = find_python_with("tensorboard") else { return };
    let folder = tempfile::tempdir().unwrap();
    // The second file is that of a run that was resumed after step 6.
    for (after, last) in [(0, 10), (6, 14)] {
        let mut file = TensorBoardFile::create(folder.path(), after).unwrap();
        for step in after + 1..=last {
            let sign = if after == 0 { 1.0 } else { -1.0 };
            file.scalar("train/loss", step, value(step) * sign).unwrap();
            file.scalar("Größe/ü", step << 32, value(step) * sign).unwrap();
        }
        file.text("note", last, &format!("**to** step {last}: häl")).unwrap();
    }
    let read = run(&python, READ_CURVES, folder.path(), "");
    let curves = read["curves"].as_object().unwrap();
    assert_eq!(curves.keys().collect::<Vec<_>>(), ["Größe/ü", "train/loss"]);
    let points = curves["train/loss"].as_array().unwrap();
    assert_eq!(points.len(), 14);
    for (point, step) in points.iter().zip(1u64..) {
        let expected = if step <= 6 { value(step) } else { -value(step) } as f32;
        let found: f64 = point[1].as_str().unwrap().parse().unwrap();
        assert_eq!(point[0], step);
        assert_eq!(without_sign(found as f32), without_sign(expected), "step {step}: {point}");
        assert!(found.is_nan() || found.is_sign_negative() == expected.is_sign_negative(), "step {step}: {point}");
    }
    let steps: Vec<u64> =
        curves["Größe/ü"].as_array().unwrap().iter().map(|point| point[0].as_u64().unwrap()).collect();
    assert!(steps.ends_with(&[14 << 32]), "{steps:?}");
    assert_eq!(read["texts"]["note"].as_array().unwrap().last(), Some(&json!([14, "**to** step 14: häl"])));
}

/// Returns our own lines: the value by everything before it.
fn lines(text: &str) -> BTreeMap<&str, f64> {
    let samples = text.lines().filter(|line| !line.starts_with('#'));
    samples.map(|line| line.rsplit_once(' ').unwrap()).map(|(name, value)| (name, value.parse().unwrap())).collect()
}

#[test]
fn the_client_of_prometheus_reads_equal_metrics() {
    let Some(python) = find_python_with("prometheus_client") else { return };
    let mut hostile = RunView::new("a \"name\" with \\ and {b=\"c\"}, ü 7");
    hostile.sample(sample());
    for state in [RunView::default(), view(0), view(99), hostile] {
        let text = prometheus_text(&state);
        let (mut ours, read) = (lines(&text), run(&python, READ_METRICS, Path::new(""), &text));
        for family in read.as_array().unwrap() {
            assert!(["counter", "gauge"].iter().any(|kind| family[0] == *kind), "{family}");
            for sample in family[1].as_array().unwrap() {
                let escaped = |text: &Value| text.as_str().unwrap().replace('\\', "\\\\").replace('"', "\\\"");
                let labels = sample[1].as_array().unwrap();
                let labels: Vec<String> = labels
                    .iter()
                    .map(|pair| format!("{}=\"{}\"", pair[0].as_str().unwrap(), escaped(&pair[1])))
                    .collect();
                let braces = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
                let name = format!("{}{braces}", sample[0].as_str().unwrap());
                let value: f64 = sample[2].as_str().unwrap().parse().unwrap();
                assert_eq!(ours.remove(&*name), Some(value), "{name}");
                assert!(sample[3].is_null(), "{name} has a time");
            }
        }
        assert!(ours.is_empty(), "not read: {ours:?}");
    }
}
