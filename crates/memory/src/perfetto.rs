//! A timeline as a trace file for `ui.perfetto.dev` and `chrome://tracing`.
//!
//! The format is the Chrome trace event format in its object form. The format has only time, so a moment becomes a
//! microsecond.

use serde_json::{Map, Value, json};

use crate::profile::{Level, MemoryProfile, OWNERS, owner_name, phase_name};
use crate::timeline::{Owner, Timeline};

/// Largest number of counter events in a trace. It keeps the file near 2 MB at any number of moments.
const COUNTERS_MAX: usize = 10_000;

/// Id of the only process in the trace. The title is stored as the name of this process, because the format has no
/// other field for a title.
const PROCESS: u32 = 1;
const THREAD: u32 = 1;

/// Writes `timeline` as a trace in JSON: counters of each owner and of the total, the phases, and a mark at the peak.
///
/// Beyond 10,000 moments only the highest moment of each of 10,000 columns is kept, so the peak is always kept.
pub fn perfetto_trace(title: &str, timeline: &Timeline) -> String {
    let profile = MemoryProfile::new(timeline);
    let peak = profile.peak();
    let columns = profile.columns(COUNTERS_MAX);
    let owners: Vec<Owner> =
        OWNERS.into_iter().filter(|&owner| columns.iter().any(|column| column.highest.stack.of(owner).0 > 0)).collect();
    let mut events = vec![name("process_name", title), name("thread_name", "phases")];
    events.extend(timeline.phases.iter().map(|span| {
        let duration = span.end.saturating_sub(span.start);
        let name = phase_name(span.phase);
        json!({ "ph": "X", "pid": PROCESS, "tid": THREAD, "name": name, "ts": span.start, "dur": duration })
    }));
    let mut last = None;
    for column in &columns {
        // A counter keeps its value until its next event, so only changes are written.
        if last.replace(column.highest.stack) != Some(column.highest.stack) {
            events.extend(counters(&column.highest, &owners));
        }
    }
    // Without this event the trace would end at the last change.
    let end = Level { moment: profile.moments(), stack: last.unwrap_or_default() };
    events.extend(counters(&end, &owners));
    events.push(json!({
        "ph": "i", "s": "p", "pid": PROCESS, "tid": THREAD, "ts": peak.moment,
        "name": format!("peak {}", peak.stack.total()), "args": bytes(&peak, &owners),
    }));
    let about = json!({ "title": title, "unit": "1 us is one moment", "moments": profile.moments() });
    json!({ "traceEvents": events, "displayTimeUnit": "ms", "otherData": about }).to_string()
}

fn name(what: &str, name: &str) -> Value {
    json!({ "ph": "M", "pid": PROCESS, "tid": THREAD, "name": what, "args": { "name": name } })
}

/// Makes two counter events: one with all owners, which is drawn as a stack, and one with the total.
fn counters(level: &Level, owners: &[Owner]) -> [Value; 2] {
    let event =
        |name: &str, args: Value| json!({ "ph": "C", "pid": PROCESS, "name": name, "ts": level.moment, "args": args });
    [event("memory", bytes(level, owners)), event("total", json!({ "bytes": level.stack.total().0 }))]
}

fn bytes(level: &Level, owners: &[Owner]) -> Value {
    let of = |&owner: &Owner| (owner_name(owner).to_string(), Value::from(level.stack.of(owner).0));
    Value::Object(owners.iter().map(of).collect::<Map<_, _>>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::tests::random_timeline;

    fn events(trace: &str, kind: &str) -> Vec<Value> {
        let trace: Value = serde_json::from_str(trace).unwrap();
        let events = trace["traceEvents"].as_array().unwrap();
        events.iter().filter(|event| event["ph"] == kind).cloned().collect()
    }

    #[test]
    fn trace_of_a_million_moments_is_small_and_keeps_the_peak() {
        let timeline = random_timeline(7, 200_000, 1_000_000);
        let peak = MemoryProfile::new(&timeline).peak();
        let trace = perfetto_trace("large", &timeline);
        assert!(trace.len() < 5_000_000, "{} bytes", trace.len());
        let counters = events(&trace, "C");
        let totals = counters.iter().filter(|event| event["name"] == "total");
        let highest = totals.max_by_key(|event| event["args"]["bytes"].as_u64()).unwrap();
        assert_eq!(highest["args"]["bytes"], peak.stack.total().0);
        let marks = events(&trace, "i");
        assert_eq!((marks.len(), &marks[0]["ts"]), (1, &Value::from(peak.moment)));
        assert_eq!(marks[0]["args"]["weights"], peak.stack.of(Owner::Weights).0);
    }

    #[test]
    fn trace_of_few_moments_is_exact() {
        let timeline = random_timeline(3, 50, 40);
        let profile = MemoryProfile::new(&timeline);
        let trace = perfetto_trace("a \"small\" </script> one", &timeline);
        let counters = events(&trace, "C");
        let totals: Vec<&Value> = counters.iter().filter(|event| event["name"] == "total").collect();
        for moment in 0..40 {
            let current = totals.iter().rfind(|event| event["ts"].as_u64().unwrap() <= moment as u64).unwrap();
            assert_eq!(current["args"]["bytes"], profile.at(moment).total().0);
        }
        let phases = events(&trace, "X");
        assert_eq!(
            phases.iter().map(|event| event["name"].as_str().unwrap()).collect::<Vec<_>>(),
            ["forward", "backward", "optimizer"]
        );
        assert_eq!((&phases[1]["ts"], &phases[1]["dur"]), (&Value::from(13), &Value::from(23)));
        assert_eq!(events(&trace, "M")[0]["args"]["name"], "a \"small\" </script> one");
    }

    #[test]
    fn empty_timeline_gives_a_trace() {
        let trace = perfetto_trace("", &Timeline::default());
        assert_eq!(events(&trace, "C").len(), 2);
    }
}
