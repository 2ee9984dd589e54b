//! Measures the time of storing, reading and computing the features of one utterance. The argument is the number of
//! records.
//!
//! Times are medians for ten seconds of speech, from the page cache. Records that this process has written are read
//! into a buffer; records that it found when it opened the store are mapped.

use std::error::Error;
use std::hint::black_box;
use std::time::Instant;

use plimsoll_audio::{LogMel, LogMelConfig};
use plimsoll_core::Bytes;
use plimsoll_data::store::{Store, StoreConfig, StoreKey, StorePrecision};

fn main() -> Result<(), Box<dyn Error>> {
    let records: u64 = std::env::args().nth(1).map_or(Ok(500), |records| records.parse())?;
    let log_mel = LogMel::new(&LogMelConfig::default())?;
    let sound: Vec<f32> = (0..160_000).map(|n| (n as f32 * 0.37).sin() * 0.1).collect();
    let features = log_mel.extract(&sound);
    println!("{records} records of {} values, microseconds for each:", features.len());
    print("computing", each(records, |_| drop(black_box(log_mel.extract(black_box(&sound))))));
    for precision in [StorePrecision::F16, StorePrecision::F32] {
        let folder = tempfile::tempdir()?;
        let config = StoreConfig { limit: Bytes::gib(8), precision };
        let key = |n: u64| StoreKey::new(&[&n.to_le_bytes()]);
        let get =
            |store: &Store| each(records, |n| assert!(black_box(store.get(key(n))).is_some(), "the record was stored"));
        let store = Store::open(folder.path(), &config)?;
        print(&format!("{precision:?}: put"), each(records, |n| store.put(key(n), &features)));
        print(&format!("{precision:?}: get, into a buffer"), get(&store));
        drop(store);
        let start = Instant::now();
        let store = Store::open(folder.path(), &config)?;
        print(&format!("{precision:?}: opening again"), microseconds(start) / records.max(1) as f64);
        print(&format!("{precision:?}: get, mapped"), get(&store));
        print(&format!("{precision:?}: get, mapped, once more"), get(&store));
    }
    Ok(())
}

fn print(what: &str, time: f64) {
    println!("{what:<28} {time:6.1}");
}

fn microseconds(since: Instant) -> f64 {
    1e6 * since.elapsed().as_secs_f64()
}

/// Measures the median time of `work` in microseconds: less sensitive to other work on the machine than the mean.
fn each(records: u64, work: impl Fn(u64)) -> f64 {
    let timed = |n| {
        let start = Instant::now();
        work(n);
        microseconds(start)
    };
    let mut times: Vec<f64> = (0..records.max(1)).map(timed).collect();
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}
