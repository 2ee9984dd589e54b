//! Tests of damaged and hostile segments.

use std::io::Write;

use proptest::prelude::*;
use xxhash_rust::xxh3::xxh3_64;

use super::super::record::{HEADER, Header};
use super::*;

/// Checks that each of the first `records` records is intact or missing, that missing records can be stored again, and
/// that the next store finds them. Returns the numbers of the intact records.
fn check(folder: &TempDir, records: u64) -> Vec<u64> {
    let store = open_with(folder, u64::MAX);
    let mut found = Vec::new();
    for n in 0..records {
        match store.get(key(n)) {
            None => store.put(key(n), &values(n)),
            Some(values_found) => {
                assert_eq!(bits(&values_found), bits(&values(n)), "{n}");
                found.push(n);
            }
        }
    }
    let again = open_with(folder, u64::MAX);
    for n in 0..records {
        assert_eq!(store.get(key(n)), Some(values(n)));
        assert_eq!(again.get(key(n)), Some(values(n)));
    }
    found
}

fn with_bytes(segment: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = fs::read(segment).unwrap();
    change(&mut bytes);
    fs::write(segment, bytes).unwrap();
}

#[test]
fn a_flipped_byte_costs_one_record_that_is_written_again() {
    let (folder, segment) = filled(4);
    let whole = fs::read(&segment).unwrap();
    // Records of 1, 2, 3 and 4 values.
    let third = 2 * HEADER + 16..3 * HEADER + 32;
    for at in third {
        with_bytes(&segment, |bytes| bytes[at] ^= 0x10);
        let store = open(&folder);
        let found: Vec<u64> = (0..4).filter(|&n| store.get(key(n)).is_some()).collect();
        assert_eq!((found, store.counts().damaged, store.counts().misses), (vec![0, 1, 3], 1, 1), "at {at}");
        drop(store);
        assert_eq!(check(&folder, 4), [0, 1, 3], "at {at}");
        assert_eq!(check(&folder, 4), [0, 1, 2, 3], "at {at}");
        segments(&folder)[1..].iter().for_each(|more| fs::remove_file(more).unwrap());
        fs::write(&segment, &whole).unwrap();
    }
}

#[test]
fn a_truncated_segment_keeps_all_earlier_records() {
    let (folder, segment) = filled(4);
    let whole = fs::read(&segment).unwrap();
    let ends: Vec<usize> = (1..=4).map(|n| n * HEADER + [8, 16, 32, 48][n - 1]).collect();
    assert_eq!(ends[3], whole.len());
    for length in 0..whole.len() {
        fs::write(&segment, &whole[..length]).unwrap();
        let earlier = ends.iter().filter(|&&end| end <= length).count() as u64;
        let torn = length > 0 && !ends.contains(&length);
        assert_eq!(open(&folder).counts().damaged, u64::from(torn), "{length}");
        assert_eq!(check(&folder, 4), (0..earlier).collect::<Vec<_>>(), "{length}");
        segments(&folder)[1..].iter().for_each(|more| fs::remove_file(more).unwrap());
    }
}

#[test]
fn a_file_that_shrinks_while_it_is_open_is_a_miss() {
    let (folder, segment) = filled(4);
    let store = open(&folder);
    assert!(store.get(key(3)).is_some());
    File::options().write(true).open(&segment).unwrap().set_len(70).unwrap();
    let found: Vec<u64> = (0..4).filter(|&n| store.get(key(n)).is_some()).collect();
    assert_eq!((found, store.counts().damaged), (vec![0], 3));
}

#[test]
fn a_record_in_writing_is_no_damage() {
    let folder = TempDir::new().unwrap();
    let writing = open(&folder);
    writing.put(key(0), &values(0));
    let [segment] = segments(&folder).try_into().unwrap();
    let half = &record::values_record(key(1), &values(1), StorePrecision::F32)[..50];
    File::options().append(true).open(&segment).unwrap().write_all(half).unwrap();
    let damaged = || (open(&folder).counts().damaged, survey(folder.path(), &|_| {}).unwrap().damaged.len());
    assert_eq!(damaged(), (0, 0));
    assert_eq!(open(&folder).get(key(0)), Some(values(0)));
    drop(writing);
    assert_eq!(damaged(), (1, 1));
}

#[test]
fn impossible_lengths_are_rejected() {
    for count in [6, 1 << 20, 1 << 40, 1 << 61, (1 << 62) - 8, 1 << 62, u64::MAX] {
        let (folder, segment) = filled(3);
        with_bytes(&segment, |bytes| {
            // With a correct checksum, as only malice makes it.
            bytes[24..32].copy_from_slice(&count.to_le_bytes());
            let sum = xxh3_64(&bytes[..40]);
            bytes[40..48].copy_from_slice(&sum.to_le_bytes());
        });
        assert!(!check(&folder, 3).contains(&0), "{count}");
    }
}

#[test]
fn foreign_files_cost_little() {
    let (folder, _) = filled(2);
    let foreign = |name: &str| File::create(folder.path().join(name)).unwrap();
    // A tebibyte of zeros, which takes no space on most disks, and magic numbers without records.
    foreign("00000000-1-0123456789abcdef.plimsoll").set_len(1 << 40).unwrap();
    foreign("18446744073709551615-1-0123456789abcdef.plimsoll").write_all(&b"PLMS\x01\0\0\0".repeat(100_000)).unwrap();
    fs::create_dir(folder.path().join("00000003-1-0123456789abcdef.plimsoll")).unwrap();
    std::os::unix::fs::symlink("/dev/zero", folder.path().join("00000004-1-0123456789abcdef.plimsoll")).unwrap();
    let ignored = ["1-1-0123456789abcdef.plimsoll", "00000001-1-0123456789abcdef", "00000001-1.plimsoll", ".plimsoll"];
    ignored.iter().for_each(|name| foreign(name).write_all(b"mine").unwrap());
    assert_eq!(segments(&folder).len(), 3);
    assert_eq!(check(&folder, 3), [0, 1]);
    clear(folder.path()).unwrap();
    ignored.iter().for_each(|name| assert!(folder.path().join(name).is_file()));
}

#[derive(Clone, Debug)]
enum Edit {
    Insert(usize, Vec<u8>),
    Replace(usize, Vec<u8>),
    Remove(usize, usize),
    /// Copies a range of the segment to another offset in the segment: start of the range, its length, new offset.
    Repeat(usize, usize, usize),
}

fn edits() -> impl Strategy<Value = Vec<Edit>> {
    let bytes = || prop::collection::vec(any::<u8>(), 1..100);
    let place = 0usize..2_000;
    let edit = prop_oneof![
        (place.clone(), bytes()).prop_map(|(at, bytes)| Edit::Insert(at, bytes)),
        // Multiples of the alignment, behind which the search finds records again.
        (place.clone(), 1usize..20, any::<u8>()).prop_map(|(at, n, byte)| Edit::Insert(at, vec![byte; 8 * n])),
        (place.clone(), bytes()).prop_map(|(at, bytes)| Edit::Replace(at, bytes)),
        (place.clone(), 1usize..200).prop_map(|(at, length)| Edit::Remove(at, length)),
        (place.clone(), 1usize..200, place).prop_map(|(from, length, at)| Edit::Repeat(from, length, at)),
    ];
    prop::collection::vec(edit, 1..5)
}

fn apply(edit: Edit, bytes: &mut Vec<u8>) {
    let within = |at: usize| at.min(bytes.len());
    match edit {
        Edit::Insert(at, new) => drop(bytes.splice(within(at)..within(at), new)),
        Edit::Replace(at, new) => drop(bytes.splice(within(at)..within(at + new.len()), new)),
        Edit::Remove(at, length) => drop(bytes.drain(within(at)..within(at + length))),
        Edit::Repeat(from, length, at) => {
            let copied = bytes[within(from)..within(from + length)].to_vec();
            drop(bytes.splice(within(at)..within(at), copied));
        }
    }
}

proptest! {
    #[test]
    fn records_of_edited_segments_are_right_or_missing(edits in edits()) {
        let (folder, segment) = filled(15);
        with_bytes(&segment, |bytes| edits.into_iter().for_each(|edit| apply(edit, bytes)));
        let report = survey(folder.path(), &|_| {}).unwrap();
        prop_assert_eq!(report.bytes, Bytes(size(&folder)));
        check(&folder, 15);
    }

    #[test]
    fn no_record_is_larger_than_its_file(
        count in any::<u64>(), form in 0u16..5, shift in 0u32..64, room in 0u64..1_000, payload in 0usize..100,
    ) {
        let mut bytes = record::values_record(key(1), &vec![0.5; payload], StorePrecision::F32);
        bytes[6..8].copy_from_slice(&form.to_le_bytes());
        bytes[24..32].copy_from_slice(&(count >> shift).to_le_bytes());
        let sum = xxh3_64(&bytes[..40]);
        bytes[40..48].copy_from_slice(&sum.to_le_bytes());
        prop_assert!(Header::read(&bytes, room).is_none_or(|header| header.size <= room));
        if let Some(Payload::Values(values)) = record::open(&bytes, key(1)) {
            prop_assert!(2 * values.len() <= bytes.len());
        }
    }
}
