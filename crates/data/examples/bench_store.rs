//! What keeping features on disk costs for each utterance, beside computing them (number of records as argument).
//!
//! Medians for ten seconds of speech, from the page cache; what this process has written comes through a buffer, what
//! it found when it opened the store is mapped.

use std::error::Error;
use std::hint::black_box;
use std::time::Instant;

use plimsoll_audio::{LogMel, LogMelConfig};
use plimsoll_core::Bytes;
use plimsoll_data::{Store, StoreConfig, StoreKey, StoreNumbers};

fn main() -> Result<(), Box<dyn Error>> {
    let records: u64 = std::env::args().nth(1).map_or(Ok(500), |records| records.parse())?;
    let log_mel = LogMel::new(&LogMelConfig::default())?;
    let sound: Vec<f32> = (0..160_000).map(|n| (n as f32 * 0.37).sin() * 0.1).collect();
    let features = log_mel.extract(&sound);
    println!("{records} records of {} values, microseconds for each:", features.len());
    tell("computing", each(records, |_| drop(black_box(log_mel.extract(black_box(&sound))))));
    for numbers in [StoreNumbers::F16, StoreNumbers::F32] {
        let folder = tempfile::tempdir()?;
        let config = StoreConfig { limit: Bytes::gib(8), numbers };
        let key = |n: u64| StoreKey::of(&[&n.to_le_bytes()]);
        let get = |store: &Store| each(records, |n| assert!(black_box(store.get(key(n))).is_some(), "it was put"));
        let store = Store::open(folder.path(), &config)?;
        tell(&format!("{numbers:?}: put"), each(records, |n| store.put(key(n), &features)));
        tell(&format!("{numbers:?}: get, into a buffer"), get(&store));
        drop(store);
        let start = Instant::now();
        let store = Store::open(folder.path(), &config)?;
        tell(&format!("{numbers:?}: opening again"), microseconds(start) / records.max(1) as f64);
        tell(&format!("{numbers:?}: get, mapped"), get(&store));
        tell(&format!("{numbers:?}: get, mapped, once more"), get(&store));
    }
    Ok(())
}

fn tell(what: &str, time: f64) {
    println!("{what:<28} {time:6.1}");
}

fn microseconds(since: Instant) -> f64 {
    1e6 * since.elapsed().as_secs_f64()
}

/// The median: the machine may be doing other things.
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
