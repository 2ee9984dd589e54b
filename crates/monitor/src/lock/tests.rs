//! Tests of the lock, with real files and the locks of this machine.

use super::*;

/// Returns the text of a lock file of a process on another machine.
fn foreign() -> String {
    let here = LockHolder::current().to_text();
    here.replace(&format!("\"pid\":{}", std::process::id()), "\"pid\":4242").replace("\"boot\":\"", "\"boot\":\"other ")
}

#[test]
fn lock_has_one_holder_and_names_it() {
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(RunLock::is_held(folder.path()), None);
    for _ in 0..3 {
        let lock = RunLock::take(folder.path()).unwrap();
        assert_eq!(RunLock::is_held(folder.path()), Some(true));
        let refused = RunLock::take(folder.path()).unwrap_err().to_string();
        let process = format!("is in use by process {} on ", std::process::id());
        assert!(refused.contains(&process) && refused.ends_with(" UTC"), "{refused}");
        drop(lock);
        assert_eq!(RunLock::is_held(folder.path()), Some(false));
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

/// Every kind of holder, with every answer of the disk: only a lock that is held, or a fresh sign of life of a process that
/// this machine cannot ask for, keeps the folder.
#[test]
fn dead_holders_do_not_keep_the_lock() {
    let own = LockHolder::current();
    let other = LockHolder::from_text(foreign().as_bytes()).unwrap();
    let (fresh, old) = (SILENCE / 2, SILENCE * 2);
    for (holder, answer, age, expected) in [
        (None, OsLock::Taken, fresh, false),
        (None, OsLock::Unsupported, fresh, false),
        (Some(&own), OsLock::Busy, old, true),
        (Some(&own), OsLock::Taken, fresh, false),
        (Some(&own), OsLock::Unsupported, fresh, true),
        (Some(&own), OsLock::Unsupported, old, false),
        (Some(&other), OsLock::Busy, old, true),
        (Some(&other), OsLock::Taken, fresh, true),
        (Some(&other), OsLock::Taken, old, false),
        (Some(&other), OsLock::Unsupported, fresh, true),
        (Some(&other), OsLock::Unsupported, old, false),
    ] {
        assert_eq!(is_alive(holder, answer, || Ok(age)).unwrap(), expected, "{holder:?} {answer:?} {age:?}");
    }
}

#[test]
fn process_on_another_machine_holds_lock_until_it_falls_silent() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(FILE);
    fs::write(&path, foreign()).unwrap();
    let refused = RunLock::take(folder.path()).unwrap_err().to_string();
    assert!(refused.contains("is in use by process 4242 on "), "{refused}");
    assert_eq!(RunLock::is_held(folder.path()), Some(true));
    let file = File::options().write(true).open(&path).unwrap();
    file.set_modified(SystemTime::now() - SILENCE * 2).unwrap();
    assert_eq!(RunLock::is_held(folder.path()), Some(false));
    RunLock::take(folder.path()).unwrap();
}

#[test]
fn damaged_lock_file_of_dead_process_is_replaced() {
    for text in ["", "{", "null", "{\"host\":3}", "\u{0}\u{0}"] {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(FILE), text).unwrap();
        assert_eq!(RunLock::is_held(folder.path()), Some(false), "{text:?}");
        let _lock = RunLock::take(folder.path()).unwrap();
        assert!(read(&mut File::open(folder.path().join(FILE)).unwrap()).unwrap().is_some());
    }
}

#[test]
fn folder_that_cannot_be_locked_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let missing = RunLock::take(&folder.path().join("nowhere")).unwrap_err().to_string();
    assert!(missing.starts_with("cannot access "), "{missing}");
}

#[test]
fn lock_knows_its_own_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(FILE);
    let lock = RunLock::take(folder.path()).unwrap();
    assert!(!lock.is_replaced(folder.path()));
    let own = fs::read(&path).unwrap();
    // Of another run, of a run that has ended, and its own again.
    for (text, is_replaced) in [(foreign().into_bytes(), true), (Vec::new(), true), (own, false)] {
        fs::write(&path, text).unwrap();
        assert_eq!(lock.is_replaced(folder.path()), is_replaced);
    }
    fs::remove_file(&path).unwrap();
    assert!(!lock.is_replaced(folder.path()));
}
