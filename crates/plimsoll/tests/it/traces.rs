//! The importer of `chrome://tracing` reads the trace of `profile`, and its slices add up to the record's times.

use std::path::PathBuf;
use std::process::Command;

use serde_json::{Value, json};

use crate::browser::{Browser, Scheme};
use crate::program::{SMALL, TestFolder};
use crate::tool::find_python_with;

/// The viewer is made for a version of custom elements that browsers no longer have. This is enough for its importer.
const CUSTOM_ELEMENTS: &str = "(() => {
  const known = {}, make = document.createElement.bind(document);
  const upgrade = (part, prototype) => {
    Object.setPrototypeOf(part, prototype);
    if (prototype.createdCallback) prototype.createdCallback.call(part);
    return part;
  };
  document.createElement = (tag) => known[tag] ? upgrade(make(tag), known[tag]) : make(tag);
  document.registerElement = (tag, options) => {
    const prototype = known[tag] = (options && options.prototype) || Object.create(HTMLElement.prototype);
    document.querySelectorAll(tag).forEach((part) => upgrade(part, prototype));
    return Object.assign(function () { return document.createElement(tag); }, { prototype });
  };
  document._currentScript = { ownerDocument: document };
  window.CustomElements = { useNative: true, ready: true, takeRecords() {}, instanceof: (part, kind) => part instanceof kind };
})()";

/// Imports `TRACE`, and returns what the viewer understands.
const IMPORT: &str = "(() => {
  const options = new tr.importer.ImportOptions();
  options.showImportWarnings = false;
  const model = new tr.Model();
  new tr.importer.Import(model, options).importTraces([TRACE]);
  const process = model.processes[1];
  const slices = (thread) => thread.sliceGroup.slices.map((slice) => ({
    name: slice.title, owner: slice.args.owner || null, start: slice.start, duration: slice.duration,
    parent: slice.parentSlice ? slice.parentSlice.title : null, open: slice.didNotFinish }));
  return {
    warnings: model.importWarnings.map((warning) => warning.message),
    processes: Object.values(model.processes).map((process) => process.name),
    threads: Object.fromEntries(Object.values(process.threads).map((thread) => [thread.name, slices(thread)])),
    counters: Object.values(process.counters).map((counter) => [counter.name, counter.series[0].samples.length]),
    instants: process.instantEvents.length + Object.values(process.threads)
      .reduce((sum, thread) => sum + thread.sliceGroup.slices.filter((slice) => slice.duration === 0).length, 0),
  };
})()";

/// Returns the trace viewer of Chrome that TensorBoard's plugin for PyTorch brings along.
fn viewer() -> Option<PathBuf> {
    let python = find_python_with("torch_tb_profiler")?;
    let program = "import os, torch_tb_profiler; print(os.path.dirname(torch_tb_profiler.__file__))";
    let output = Command::new(python).args(["-c", program]).output().unwrap();
    let folder = String::from_utf8(output.stdout).unwrap();
    Some(PathBuf::from(folder.trim()).join("static/trace_viewer_full.html"))
}

#[test]
fn the_importer_of_chrome_reads_the_times_of_a_profile() {
    let (Some(viewer), Some(mut browser)) = (viewer(), Browser::start()) else { return };
    let dir = TestFolder::new();
    let args = [&["profile", "--steps", "8", "--json", "--trace", "steps.json"], SMALL].concat();
    let profile: Value = serde_json::from_str(&dir.run(&args).success().stdout).unwrap();
    let page = std::fs::read_to_string(viewer).unwrap();
    dir.write("viewer.html", format!("<!DOCTYPE html><body><script>{CUSTOM_ELEMENTS}</script>{page}"));
    browser.open(&format!("file://{}", dir.path("viewer.html").display()), 1280, Scheme::Light);
    browser.wait_until("typeof tr === 'object' && typeof tr.importer.Import === 'function'");
    let trace = std::fs::read_to_string(dir.path("steps.json")).unwrap();
    let found = browser.value(&IMPORT.replacen("TRACE", &json!(trace).to_string(), 1));

    assert_eq!((&found["warnings"], &found["processes"]), (&json!([]), &json!(["plimsoll profile"])), "{found}");
    let slices = found["threads"]["steps"].as_array().unwrap();
    let is_step = |slice: &&Value| slice["name"].as_str().is_some_and(|name| name.starts_with("step "));
    assert_eq!(slices.iter().filter(is_step).count(), 8);
    assert!(slices.iter().all(|slice| slice["open"] == false), "{found}");
    // Every part of a step lies inside of it.
    for slice in slices.iter().filter(|slice| slice["owner"].is_string()) {
        assert!(slice["parent"].is_string(), "{slice}");
    }
    check_sums(&profile, slices);
    let counters = found["counters"].as_array().unwrap();
    assert!(counters.iter().any(|counter| counter[0].as_str().is_some_and(|name| name.contains("loss"))), "{found}");
}

/// Checks that the steps that the profile measured have its times, owner by owner.
fn check_sums(profile: &Value, slices: &[Value]) {
    let (steps, left_out) = (profile["steps"].as_u64().unwrap(), profile["left_out"].as_u64().unwrap());
    let measured: Vec<String> = (left_out + 1..=left_out + steps).map(|step| format!("step {step}")).collect();
    let times = profile["times"].as_object().unwrap();
    for (owner, seconds) in times {
        let of_owner = slices.iter().filter(|slice| slice["owner"] == owner.as_str());
        let of_owner = of_owner.filter(|slice| measured.iter().any(|step| slice["parent"] == step.as_str()));
        let found: f64 = of_owner.map(|slice| slice["duration"].as_f64().unwrap()).sum();
        // The viewer counts in milliseconds. Slices begin and end at whole microseconds.
        let rounding = 1e-3 * steps as f64 + 1e-3;
        assert!((found - seconds.as_f64().unwrap() * 1e3).abs() <= rounding, "{owner}: {found} ms and not {seconds} s");
    }
    let late = slices.iter().filter(|slice| measured.iter().any(|step| slice["parent"] == step.as_str()));
    for owner in late.filter_map(|slice| slice["owner"].as_str()) {
        assert!(times.contains_key(owner), "{owner} is not in {times:?}");
    }
}
