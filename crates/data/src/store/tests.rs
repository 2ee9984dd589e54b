//! Tests of the store: stored features are read back, and damage to files never gives wrong features.

mod hostile;

use std::fs::File;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use half::f16;
use tempfile::TempDir;

use super::*;
use plimsoll_core::error_chain;

fn config(limit: u64, precision: StorePrecision) -> StoreConfig {
    StoreConfig { limit: Bytes(limit), precision }
}

fn open_with(folder: &TempDir, limit: u64) -> Store {
    Store::open(folder.path(), &config(limit, StorePrecision::F32)).unwrap()
}

fn open(folder: &TempDir) -> Store {
    open_with(folder, 1 << 30)
}

fn key(n: u64) -> StoreKey {
    StoreKey::new(&[b"test", &n.to_le_bytes()])
}

/// Returns values that depend on `n`, and whose number depends on `n`.
fn values(n: u64) -> Vec<f32> {
    (0..n % 7 + 1).map(|index| n as f32 + index as f32 / 7.0).collect()
}

/// Creates a folder with records 0 to `count`, in one segment.
fn filled(count: u64) -> (TempDir, PathBuf) {
    let folder = TempDir::new().unwrap();
    let store = open(&folder);
    (0..count).for_each(|n| store.put(key(n), &values(n)));
    let [segment] = segments(&folder).try_into().unwrap();
    (folder, segment)
}

fn segments(folder: &TempDir) -> Vec<PathBuf> {
    folder::list(folder.path()).unwrap().into_iter().map(|segment| segment.path).collect()
}

fn size(folder: &TempDir) -> u64 {
    folder::total(&folder::list(folder.path()).unwrap())
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

#[test]
fn keys_depend_on_the_boundaries_of_parts() {
    let lists: [&[&[u8]]; 6] = [&[b"ab", b"c"], &[b"a", b"bc"], &[b"abc"], &[b"abc", b""], &[b""], &[]];
    let keys: std::collections::HashSet<StoreKey> = lists.iter().map(|parts| StoreKey::new(parts)).collect();
    assert_eq!(keys.len(), lists.len());
    assert_eq!(StoreKey::new(&[b"ab", b"c"]), StoreKey::new(lists[0]));
}

#[test]
fn values_in_32_bits_come_back_exactly() {
    let folder = TempDir::new().unwrap();
    let all = [0.1, -0.0, f32::NAN, f32::INFINITY, f32::MIN_POSITIVE / 2.0, f32::MAX];
    let store = open(&folder);
    (0..=6).for_each(|n| store.put(key(n), &all[..n as usize]));
    for store in [store, open(&folder)] {
        (0..=6).for_each(|n| assert_eq!(bits(&store.get(key(n)).unwrap()), bits(&all[..n as usize])));
        assert_eq!(store.get(key(7)), None);
        let StoreCounts { records, hits, misses, damaged, .. } = store.counts();
        assert_eq!((records, hits, misses, damaged), (7, 7, 1, 0));
    }
}

#[test]
fn values_in_16_bits_come_back_rounded() {
    let folder = TempDir::new().unwrap();
    let store = Store::open(folder.path(), &config(1 << 30, StorePrecision::F16)).unwrap();
    let fitting: Vec<f32> = (0..3_001).map(|n| (n as f32 - 1_500.0).powi(3) / 6e4).chain([65_504.0, 1e-9]).collect();
    store.put(key(0), &fitting);
    assert!(size(&folder) < 2 * fitting.len() as u64 + 64);
    for (found, value) in store.get(key(0)).unwrap().into_iter().zip(&fitting) {
        assert!((found - value).abs() <= (value.abs() / 2048.0).max(1.0 / (1 << 25) as f32), "{found} for {value}");
        assert_eq!(found, f16::from_f32(*value).to_f32());
    }
    for (n, special) in (1..).zip([65_504.1, -1e9, f32::INFINITY, f32::NAN]) {
        let values = [0.1, special];
        store.put(key(n), &values);
        assert_eq!(bits(&store.get(key(n)).unwrap()), bits(&values));
    }
}

#[test]
fn new_records_are_found_and_keys_written_once() {
    let folder = TempDir::new().unwrap();
    // Segments of 256 bytes.
    let store = open_with(&folder, 4096);
    for n in 0..20 {
        store.put(key(n), &values(n));
        store.put(key(n), &values(n));
        assert_eq!(store.get(key(n)), Some(values(n)));
    }
    assert!(segments(&folder).len() > 4);
    let again = open_with(&folder, 4096);
    for store in [&store, &again] {
        (0..20).for_each(|n| assert_eq!(store.get(key(n)), Some(values(n))));
        assert_eq!((store.counts().records, store.counts().bytes), (20, Bytes(size(&folder))));
    }
    assert_eq!((store.counts().written, again.counts().written), (20, 0));
    again.put(key(3), &values(3));
    assert_eq!(again.counts().written, 0);
}

#[test]
fn threads_and_stores_share_a_folder() {
    let folder = TempDir::new().unwrap();
    // Small segments, so that both stores start new ones all the time.
    let stores = [open_with(&folder, 1 << 17), open_with(&folder, 1 << 17)];
    std::thread::scope(|scope| {
        for (number, store) in (0..).zip(&stores) {
            for thread in 0..2 {
                scope.spawn(move || {
                    for n in 0..200 {
                        // Every second record is shared by all threads, the others belong to one thread.
                        let n = if n % 2 == 0 { n } else { 1_000 * (2 * number + thread + 1) + n };
                        assert!(store.get(key(n)).is_none_or(|found| found == values(n)));
                        store.put(key(n), &values(n));
                        assert_eq!(store.get(key(n)), Some(values(n)));
                    }
                });
            }
        }
    });
    for store in &stores {
        let StoreCounts { records, written, damaged, rejected, .. } = store.counts();
        assert_eq!((records, written, damaged, rejected), (300, 300, 0, 0));
    }
    drop(stores);
    let all = open_with(&folder, 1 << 17);
    let own = (1..=4).flat_map(|thread| (0..100).map(move |n| 1_000 * thread + 2 * n + 1));
    (0..100).map(|n| 2 * n).chain(own).for_each(|n| assert_eq!(all.get(key(n)), Some(values(n))));
    assert_eq!((all.counts().records, all.counts().damaged), (500, 0));
}

#[test]
fn the_limit_is_kept_by_deleting_the_oldest_segments() {
    let folder = TempDir::new().unwrap();
    // A record of 848 bytes fills a segment; 19 of them fit.
    let (limit, long) = (16 << 10, [0.5; 200]);
    let found =
        |store: &Store, range: std::ops::Range<u64>| -> Vec<u64> { range.filter(|&n| store.has(key(n))).collect() };
    let store = open_with(&folder, limit);
    (0..22).for_each(|n| store.put(key(n), &long));
    assert_eq!((store.counts().rejected, store.counts().written, size(&folder)), (3, 19, 19 * 848));
    // A smaller record still fits.
    store.put(key(50), &[1.0; 8]);
    assert_eq!((store.counts().rejected, store.counts().written), (3, 20));
    drop(store);
    for (n, path) in (0..).zip(segments(&folder)) {
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000 + n);
        File::options().write(true).open(path).unwrap().set_modified(time).unwrap();
    }
    let (store, other) = (open_with(&folder, limit), open_with(&folder, limit));
    assert!(store.get(key(1)).is_some() && other.get(key(3)).is_some());
    (100..103).for_each(|n| store.put(key(n), &long));
    assert_eq!(found(&store, 0..6), [1, 3, 5]);
    assert_eq!(store.counts().rejected, 0);
    assert!(size(&folder) <= limit && store.counts().bytes == Bytes(size(&folder)));
    // The other store can still read deleted segments that it has open, and this one has its new records.
    assert_eq!(other.get(key(0)).as_deref(), Some(&long[..]));
    (100..103).for_each(|n| assert_eq!(store.get(key(n)).as_deref(), Some(&long[..])));
    drop((store, other));
    // Used segments count as new, and so do written ones.
    let smaller = open_with(&folder, 5 * 848);
    assert!(size(&folder) <= 5 * 848);
    assert_eq!(found(&smaller, 0..200), [1, 3, 100, 101, 102]);
    smaller.put(key(300), &[0.0; 5_000]);
    assert_eq!(smaller.counts().rejected, 1);
}

#[test]
fn a_failing_disk_is_no_error_once_open() {
    let folder = TempDir::new().unwrap();
    let store = open(&folder);
    fs::remove_dir_all(folder.path()).unwrap();
    (0..3).for_each(|n| store.put(key(n), &values(n)));
    assert_eq!(store.get(key(0)), None);
    let StoreCounts { written, rejected, misses, .. } = store.counts();
    assert_eq!((written, rejected, misses), (0, 0, 1));

    fs::create_dir(folder.path()).unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    let errors = [
        Store::open(&file, &config(1, StorePrecision::F16)).err().unwrap(),
        Store::open(file.join("below"), &config(1, StorePrecision::F16)).err().unwrap(),
        survey(folder.path().join("none"), &|_| {}).unwrap_err(),
        clear(folder.path().join("none")).unwrap_err(),
    ];
    let text = errors.map(|error| error_chain(&error).replace(&folder.path().display().to_string(), "FOLDER"));
    insta::assert_snapshot!(text.join("\n"), @"
    cannot create the folder FOLDER/file for stored features: File exists (os error 17)
    cannot create the folder FOLDER/file/below for stored features: Not a directory (os error 20)
    cannot read stored features in FOLDER/none: No such file or directory (os error 2)
    cannot read stored features in FOLDER/none: No such file or directory (os error 2)
    ");
}

#[test]
fn content_hashes_depend_on_content_and_not_on_names() {
    let folder = TempDir::new().unwrap();
    let [a, b] = ["a", "b"].map(|name| folder.path().join(name));
    let write = |path: &Path, text: &[u8], seconds| {
        fs::write(path, text).unwrap();
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        File::options().write(true).open(path).unwrap().set_modified(time).unwrap();
    };
    let store = open(&folder);
    write(&a, b"one", 1_000);
    write(&b, b"one", 2_000);
    let one = store.content_hash(&a).unwrap();
    assert_eq!(store.content_hash(&b).unwrap(), one);
    assert_eq!((store.counts().written, store.counts().misses), (2, 0));
    store.put(key(1), &values(1));
    let report = survey(folder.path(), &|_| {}).unwrap();
    assert_eq!((report.records, report.hashes), (3, 2));
    // Remembered by size and time, in this store and the next; the content is not read again.
    write(&a, b"two", 1_000);
    assert_eq!([&store, &open(&folder)].map(|store| store.content_hash(&a).unwrap()), [one, one]);
    for (text, seconds) in [(&b"two"[..], 1_001), (b"three", 1_000)] {
        write(&a, text, seconds);
        assert_ne!(store.content_hash(&a).unwrap(), one);
    }
    // A file that may be changing, and a store with no room.
    let full = open_with(&folder, 0);
    fs::write(&b, b"two").unwrap();
    let two = full.content_hash(&b).unwrap();
    fs::write(&b, b"six").unwrap();
    assert_ne!(full.content_hash(&b).unwrap(), two);
    assert!(store.content_hash(&folder.path().join("none")).is_err() && store.content_hash(folder.path()).is_err());
}

#[test]
fn a_survey_finds_damage_and_clearing_keeps_segments_in_writing() {
    let (folder, segment) = filled(5);
    fs::write(folder.path().join("notes.txt"), "mine").unwrap();
    let store = open(&folder);
    (10..13).for_each(|n| store.put(key(n), &values(n)));
    let mut bytes = fs::read(&segment).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&segment, &bytes).unwrap();

    let seen = std::cell::RefCell::new(Vec::new());
    let report = survey(folder.path(), &|bytes| seen.borrow_mut().push(bytes)).unwrap();
    assert_eq!((report.segments, report.records, report.bytes), (2, 7, Bytes(size(&folder))));
    let [DamagedRecord { segment: damaged, offset }] = report.damaged.as_slice() else { panic!("{report:?}") };
    assert_eq!((damaged, *offset), (&segment, bytes.len() as u64 - 72));
    assert!(seen.borrow().is_sorted() && seen.borrow().last() == Some(&report.bytes.0));

    assert_eq!(clear(folder.path()).unwrap(), Bytes(bytes.len() as u64));
    assert_eq!(store.get(key(11)), Some(values(11)));
    assert_eq!((store.get(key(1)), segments(&folder).len()), (Some(values(1)), 1));
    drop(store);
    assert!(clear(folder.path()).unwrap() > Bytes(0));
    assert_eq!((size(&folder), folder.path().join("notes.txt").is_file()), (0, true));
    assert_eq!(survey(folder.path(), &|_| {}).unwrap(), StoreReport::default());
}
