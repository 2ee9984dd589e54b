//! Tests of the checkpoints.

use std::io;

use plimsoll_core::error_chain;

use super::*;
use crate::StateData;

fn tensors(value: f32) -> Vec<NamedTensor> {
    vec![NamedTensor { name: "w".into(), shape: vec![1], values: vec![value] }]
}

fn snapshot(step: u64, best: Option<u64>) -> Snapshot {
    let best_scores = best.map(|step| (step, 0.5, 0.0)).into_iter().collect();
    let state = RunState { step, best_step: best, best_scores, ..RunState::default() };
    let optimizer = vec![StateTensor { name: "w.mean".into(), shape: vec![1], data: StateData::F32(vec![0.5]) }];
    Snapshot { state, weights: tensors(step as f32), optimizer, ema: None }
}

fn store_of(steps: &[u64], keep: usize, best: Option<u64>) -> (tempfile::TempDir, CheckpointStore) {
    let folder = tempfile::tempdir().unwrap();
    let store = CheckpointStore::new(folder.path().join("checkpoints"), keep);
    for &step in steps {
        store.save(&snapshot(step, best)).unwrap();
    }
    (folder, store)
}

#[test]
fn the_newest_is_read_and_the_best_is_kept() {
    let (_folder, store) = store_of(&[1, 2, 3, 4], 2, Some(1));
    assert_eq!(store.steps().unwrap(), [1, 3, 4]);
    let (newest, damaged) = store.newest().unwrap();
    assert_eq!((newest.state.step, newest.weights, damaged.len()), (4, tensors(4.0), 0));
    assert_eq!(store.best().unwrap().0.state.step, 1);
}

#[test]
fn a_damaged_checkpoint_is_skipped_for_the_one_before() {
    for file in [WEIGHTS, OPTIMIZER, STATE, SUMS] {
        let (_folder, store) = store_of(&[1, 2], 2, None);
        let path = store.folder().join("step-0000002").join(file);
        let mut bytes = fs::read(&path).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        fs::write(&path, bytes).unwrap();
        let (newest, damaged) = store.newest().unwrap();
        assert_eq!(newest.state.step, 1, "{file}");
        assert!(damaged[0].to_string().contains("is damaged"), "{}", damaged[0]);
    }
}

#[test]
fn an_interrupted_write_leaves_no_checkpoint() {
    let (_folder, store) = store_of(&[1], 2, None);
    let left = [".partial-step-0000002", ".gone-step-0000000"].map(|name| store.folder().join(name));
    left.iter().for_each(|path| fs::create_dir(path).unwrap());
    assert_eq!(store.newest().unwrap().0.state.step, 1);
    store.save(&snapshot(3, None)).unwrap();
    assert!(left.iter().all(|path| !path.exists()));
    let empty = CheckpointStore::new("nowhere", 1).newest().unwrap_err();
    assert_eq!(empty.to_string(), "no checkpoint in nowhere");
}

#[test]
fn a_checkpoint_in_place_of_the_best_is_named() {
    let damage = |store: &CheckpointStore, step| fs::write(store.folder().join(folder_name(step)).join(WEIGHTS), "x");
    let found = |store: &CheckpointStore| {
        let (checkpoint, doubts) = store.best().unwrap();
        (checkpoint.state.step, doubts.iter().map(|doubt| error_chain(doubt)).collect::<Vec<String>>())
    };
    // The best is damaged, or its folder is gone.
    for is_gone in [false, true] {
        let (_folder, store) = store_of(&[1, 2, 3], 3, Some(1));
        assert_eq!(found(&store), (1, Vec::new()));
        match is_gone {
            true => fs::remove_dir_all(store.folder().join(folder_name(1))).unwrap(),
            false => damage(&store, 1).unwrap(),
        }
        let (step, doubts) = found(&store);
        assert_eq!((step, doubts.len()), (3, 1));
        assert!(doubts[0].contains("of step 1, cannot be read; using that of step 3"), "{doubts:?}");
        assert!(doubts[0].contains("step-0000001"), "the file is named: {doubts:?}");
    }
    // A newer checkpoint, which knew more scores, is damaged.
    let (_folder, store) = store_of(&[1, 2, 3], 3, Some(1));
    damage(&store, 3).unwrap();
    let (step, doubts) = found(&store);
    assert!(step == 1 && doubts.len() == 1 && doubts[0].contains("up to step 2"), "{step}: {doubts:?}");
}

#[test]
fn a_checkpoint_moved_aside_is_recovered() {
    let (_folder, store) = store_of(&[1], 1, None);
    // The state after a kill between the two renames.
    fs::rename(store.folder().join("step-0000001"), store.folder().join(".aside-step-0000001")).unwrap();
    assert_eq!(store.newest().unwrap().0.weights, tensors(1.0));
    store.save(&snapshot(2, Some(1))).unwrap();
    assert_eq!(store.steps().unwrap(), [1, 2]);
    assert_eq!(store.best().unwrap().0.weights, tensors(1.0));
    // A second save of the same step replaces the first.
    store.save(&Snapshot { weights: tensors(9.0), ..snapshot(2, Some(1)) }).unwrap();
    assert_eq!(store.newest().unwrap().0.weights, tensors(9.0));
}

/// A disk that fails after a given number of bytes per file, as a full disk does.
#[derive(Debug)]
struct Full(usize);

impl Disk for Full {
    fn write(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let room = bytes.len().min(self.0);
        fs::write(path, &bytes[..room])?;
        if room < bytes.len() { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }
}

#[test]
fn a_full_disk_keeps_old_checkpoints_and_leaves_no_partial_files() {
    let (_folder, store) = store_of(&[1], 1, None);
    for room in [0, 50, 200] {
        let error = store.clone().with_disk(Full(room)).save(&snapshot(2, None)).unwrap_err();
        assert!(error.to_string().starts_with("cannot access"), "{error}");
        assert_eq!(store.newest().unwrap().0.state.step, 1);
        assert_eq!(fs::read_dir(store.folder()).unwrap().count(), 1, "room for {room} bytes");
    }
}

#[test]
fn average_is_the_mean_of_the_values() {
    let folder = tempfile::tempdir().unwrap();
    let store = CheckpointStore::new(folder.path(), 3).with_keep_best(2);
    for step in 1..=5 {
        let mut snapshot = snapshot(step, Some(1));
        snapshot.state.best_scores = vec![(1, 0.1, 0.0), (2, 0.2, 0.0)];
        store.save(&snapshot).unwrap();
    }
    assert_eq!(store.steps().unwrap(), [1, 2, 3, 4, 5]);
    for (pick, mean, steps) in [
        (CheckpointSelection::Last(2), 4.5, vec![5, 4]),
        (CheckpointSelection::Best(2), 1.5, vec![1, 2]),
        (CheckpointSelection::Last(1), 5.0, vec![5]),
    ] {
        assert_eq!(store.average(pick).unwrap(), (tensors(mean), steps), "{pick:?}");
    }
    let mut other = snapshot(6, None);
    other.weights[0].name = "v".into();
    store.save(&other).unwrap();
    let error = store.average(CheckpointSelection::Last(2)).unwrap_err().to_string();
    assert!(error.starts_with("`v` is not in all of the checkpoints"), "{error}");
}

/// Changes the text of the state of `step`, and its checksum.
fn rewrite_state(store: &CheckpointStore, step: u64, change: impl Fn(String) -> String) {
    let folder = store.folder().join(folder_name(step));
    let text = change(fs::read_to_string(folder.join(STATE)).unwrap());
    fs::write(folder.join(STATE), &text).unwrap();
    let mut sums: BTreeMap<String, String> = serde_json::from_slice(&fs::read(folder.join(SUMS)).unwrap()).unwrap();
    sums.insert(STATE.into(), checksum(text.as_bytes()));
    fs::write(folder.join(SUMS), serde_json::to_vec(&sums).unwrap()).unwrap();
}

#[test]
fn a_checkpoint_of_another_version_is_refused() {
    let (_folder, store) = store_of(&[1], 1, None);
    rewrite_state(&store, 1, |text| text.replace("\"format\": 3", "\"format\": 1"));
    let error = store.newest().unwrap_err().to_string();
    assert!(error.ends_with("has format 1, and this version reads 2 to 3"), "{error}");
    assert_eq!(store.newest_state().unwrap_err().to_string(), error);
}

#[test]
fn a_checkpoint_without_an_identity_is_read() {
    let (_folder, store) = store_of(&[1], 1, None);
    rewrite_state(&store, 1, |text| {
        let mut state: serde_json::Value = serde_json::from_str(&text).unwrap();
        let fields = state.as_object_mut().unwrap();
        ["run", "fingerprint", "extra_steps"].iter().for_each(|field| drop(fields.remove(*field).unwrap()));
        fields["format"] = 2.into();
        state.to_string()
    });
    let read = store.for_run("").newest().unwrap().0;
    assert_eq!((read.state.run.as_str(), read.state.fingerprint.len()), ("", 0));
}

/// Saves checkpoints of the run `run`, which has the same shapes as every other run here.
fn run_of(run: &str, steps: &[u64]) -> (tempfile::TempDir, CheckpointStore) {
    let folder = tempfile::tempdir().unwrap();
    let store = CheckpointStore::new(folder.path().join("checkpoints"), 9).for_run(run);
    for &step in steps {
        let mut snapshot = snapshot(step, Some(steps[0]));
        snapshot.state.run = run.into();
        store.save(&snapshot).unwrap();
    }
    (folder, store)
}

fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

#[test]
fn checkpoints_of_other_runs_and_renamed_checkpoints_are_refused() {
    let (_other_folder, other) = run_of("other", &[1, 2, 3, 5]);
    for (from, to) in [(2, 2), (3, 3), (5, 5), (1, 9)] {
        let (_folder, store) = run_of("mine", &[1, 2, 3]);
        let target = store.folder().join(folder_name(to));
        let _ = fs::remove_dir_all(&target);
        copy_folder(&other.folder().join(folder_name(from)), &target);
        let is_seen = to >= 3;
        let found = store.newest();
        assert_eq!(found.is_err(), is_seen, "{from} as {to}");
        let reason = if from == to { "it was written by another run" } else { "it was written at step 1" };
        if is_seen {
            assert_eq!(store.newest_state().unwrap_err().to_string(), found.unwrap_err().to_string());
        }
        let error = store.read(to).unwrap_err().to_string();
        assert!(error.contains("does not belong there") && error.ends_with(reason), "{error}");
        let average = store.clone().for_run("mine").average(CheckpointSelection::Last(9)).unwrap_err();
        assert!(matches!(average, CheckpointError::Foreign { .. }), "{average}");
    }
    let (_folder, store) = run_of("mine", &[1, 2, 3]);
    fs::rename(store.folder().join(folder_name(2)), store.folder().join(folder_name(7))).unwrap();
    let error = store.newest().unwrap_err().to_string();
    assert!(error.ends_with("step-0000007 does not belong there: it was written at step 2"), "{error}");
}

#[test]
fn files_of_two_checkpoints_are_not_one_checkpoint() {
    let (_other_folder, other) = run_of("other", &[1, 2]);
    for file in [WEIGHTS, STATE] {
        let (_folder, store) = run_of("mine", &[1, 2]);
        let (from, to) = (other.folder().join(folder_name(1)), store.folder().join(folder_name(2)));
        fs::copy(from.join(file), to.join(file)).unwrap();
        let read = |path: &Path| -> BTreeMap<String, String> {
            serde_json::from_slice(&fs::read(path.join(SUMS)).unwrap()).unwrap()
        };
        // Also with the checksum of the copied file.
        let mut sums = read(&to);
        sums.insert(file.into(), read(&from)[file].clone());
        fs::write(to.join(SUMS), serde_json::to_vec(&sums).unwrap()).unwrap();
        assert!(store.read(2).is_err(), "{file}");
    }
}

#[test]
fn a_moved_or_copied_run_is_read() {
    let (folder, store) = run_of("mine", &[1, 2]);
    let moved = folder.path().join("moved");
    fs::rename(store.folder(), &moved).unwrap();
    let store = CheckpointStore::new(moved, 1).for_run("mine");
    assert_eq!(store.newest().unwrap().0.state.step, 2);
    assert_eq!(store.newest_state().unwrap().unwrap().step, 2);
    assert_eq!(store.best().unwrap().0.state.step, 1);
}
