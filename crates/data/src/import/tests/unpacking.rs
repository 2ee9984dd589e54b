//! Tests of compressed shards.

use std::io::Read as _;
use std::time::{Duration, SystemTime};

use plimsoll_core::Bytes;

use super::*;
use crate::unpack::UnpackFolder;
use crate::utterances::UtteranceRef;
use crate::{Issue, IssueKind, Manifest};
use plimsoll_audio::AudioSource;

/// Content of a tar file with five utterances.
fn tar() -> Vec<u8> {
    fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/data/containers/text.tar")).unwrap()
}

fn into(folder: &TempDir, limit: Bytes) -> ImportOptions {
    let unpack = Some(UnpackFolder { path: folder.path().join("unpacked"), limit });
    ImportOptions { unpack, ..ImportOptions::default() }
}

/// Returns the shards in the folder.
fn unpacked(folder: &TempDir) -> Vec<std::path::PathBuf> {
    let files = fs::read_dir(folder.path().join("unpacked")).into_iter().flatten();
    let mut files: Vec<_> =
        files.map(|file| file.unwrap().path()).filter(|path| path.extension().is_some_and(|e| e == "tar")).collect();
    files.sort();
    files
}

#[test]
fn compressed_shards_are_read_like_plain_ones_and_unpacked_once() {
    let (tar, cache) = (tar(), TempDir::new().unwrap());
    let (options, packed) = (into(&cache, Bytes::gib(1)), compressed(&tar));
    let seen = |manifest: &Manifest| -> Vec<(String, String, Vec<u8>)> {
        let of = |u: UtteranceRef<'_>| {
            let mut audio = Vec::new();
            AudioSource::from_path(u.audio).open().unwrap().read_to_end(&mut audio).unwrap();
            (u.id.to_owned(), u.text.to_owned(), audio)
        };
        manifest.utterances.iter().map(of).collect()
    };
    let plain = write(&[("a.tar", &tar)]);
    let plain = seen(&Manifest::read(plain.path()).unwrap());
    let (mut before, time) = (None, SystemTime::now());
    for name in ["a.tar.gz", "a.tgz", "A.TAR.GZ", "a.tar"] {
        let folder = TempDir::new().unwrap();
        let file = folder.path().join(name);
        fs::write(&file, &packed).unwrap();
        fs::File::options().write(true).open(&file).unwrap().set_modified(time).unwrap();
        for path in [folder.path().to_path_buf(), folder.path().join(name)] {
            let manifest = Manifest::read_with(&path, &options).unwrap();
            assert_eq!(manifest.issues, [], "{name}");
            assert_eq!(seen(&manifest), plain, "{name}");
            // Every name and place has the content of the first.
            let files: Vec<_> = unpacked(&cache).into_iter().map(|file| (fs::read(&file).unwrap(), file)).collect();
            assert_eq!(files.len(), 1);
            assert_eq!(before.get_or_insert_with(|| files.clone()), &files);
        }
    }
    let both = write(&[("a.tar", &tar), ("a.tar.gz", &tar)]);
    assert_eq!(Manifest::read_with(both.path(), &options).unwrap().utterances.len(), 5);
    let pattern = write(&[("x-0.tar.gz", &tar), ("x-1.tar.gz", &tar)]);
    let manifest = Manifest::read_with(pattern.path().join("x-{0..1}.tar.gz"), &options).unwrap();
    assert_eq!((manifest.utterances.len(), manifest.utterances.get(9).id), (10, "x-1/utt-4"));
}

#[test]
fn a_damaged_shard_gives_what_lies_before_the_damage() {
    let packed = compressed(&tar());
    for end in (0..packed.len()).step_by(packed.len() / 40) {
        let (folder, cache) = (TempDir::new().unwrap(), TempDir::new().unwrap());
        fs::write(folder.path().join("a.tar.gz"), &packed[..end]).unwrap();
        match import(folder.path(), &into(&cache, Bytes::gib(1))) {
            // At its end a shard has only zeros and a checksum.
            Ok(listing) => assert!(listing.entries.len() == 5 || !listing.issues.is_empty(), "{end}"),
            Err(error) => assert!(matches!(error, ImportError::NotReadable { .. }), "{end}: {error}"),
        }
    }
}

/// Of an archive with incompressible content, a changed bit is seen by the checksum alone.
#[test]
fn a_changed_bit_is_an_issue_at_each_start() {
    let mut packed = GzEncoder::new(Vec::new(), Compression::none());
    packed.write_all(&tar()).unwrap();
    let packed = packed.finish().unwrap();
    let cache = TempDir::new().unwrap();
    for place in (1000..packed.len() - 9000).step_by(997) {
        let mut damaged = packed.clone();
        damaged[place] ^= 4;
        let folder = TempDir::new().unwrap();
        fs::write(folder.path().join("a.tar.gz"), &damaged).unwrap();
        for start in ["first", "second"] {
            let listing = import(folder.path(), &into(&cache, Bytes::gib(1))).unwrap();
            let is_damage = |issue: &Issue| {
                matches!(issue.kind, IssueKind::DamagedShard { .. } | IssueKind::UnreadableShard { .. })
            };
            assert!(listing.issues.iter().any(is_damage), "{place} {start}: {:?}", listing.issues);
        }
    }
}

/// Shards that this process reads stay. Of the others those go whose last use is the longest ago, and nothing else.
#[test]
fn the_folder_keeps_its_limit_and_drops_what_was_not_used_for_longest() {
    let (tar, cache) = (tar(), TempDir::new().unwrap());
    let size = tar.len() as u64;
    let folder = cache.path().join("unpacked");
    fs::create_dir(&folder).unwrap();
    let hash = |digit: &str| folder.join(digit.repeat(32) + ".tar");
    let foreign = ["my recording.wav", "0123.tar", "important.tar.gz"].map(|name| folder.join(name));
    for (path, days) in foreign.iter().map(|path| (path.clone(), 9)).chain([(hash("a"), 5), (hash("b"), 1)]) {
        fs::write(&path, &tar).unwrap();
        let time = SystemTime::now() - Duration::from_secs(days * 86_400);
        fs::File::options()
            .write(true)
            .open(&path)
            .unwrap()
            .set_times(fs::FileTimes::new().set_accessed(time))
            .unwrap();
    }
    let options = into(&cache, Bytes(3 * size + 8192));
    // Zeros behind the end of a tar file are no content.
    let corpus = |zeros: usize| write(&[("a.tar.gz", &[&tar[..], &vec![0; 512 * zeros]].concat())]);
    let read = |corpus: &TempDir| import(corpus.path(), &options).map(|listing| listing.entries.len());
    let first = corpus(0);
    assert_eq!(read(&first).unwrap(), 5);
    assert!(hash("a").exists() && hash("b").exists());
    assert_eq!(read(&corpus(1)).unwrap(), 5);
    assert!(!hash("a").exists() && hash("b").exists());
    assert_eq!(read(&corpus(2)).unwrap(), 5);
    assert!(!hash("b").exists());
    // This process reads what is left.
    let error = plimsoll_core::error_chain(&read(&corpus(3)).unwrap_err());
    assert!(error.contains("and may hold"), "{error}");
    assert_eq!(read(&first).unwrap(), 5);
    assert!(foreign.iter().all(|path| path.exists()));
    // A corpus that is larger than the limit deletes nothing.
    let before = unpacked(&cache);
    assert!(import(corpus(4).path(), &into(&cache, Bytes(1000))).is_err());
    assert_eq!(unpacked(&cache), before);
}

/// A download that broke off and was fetched again, with equal ends.
#[test]
fn a_mended_shard_is_unpacked_anew() {
    let cache = TempDir::new().unwrap();
    let mut packed = GzEncoder::new(Vec::new(), Compression::none());
    packed.write_all(&[&tar()[..], &vec![0; 400_000]].concat()).unwrap();
    let whole = packed.finish().unwrap();
    let mut broken = whole.clone();
    broken[70_000..120_000].fill(7);
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("a.tar.gz");
    let read = || import(folder.path(), &into(&cache, Bytes::gib(1))).unwrap().issues.len();
    fs::write(&file, &broken).unwrap();
    let past = SystemTime::now() - Duration::from_secs(60);
    fs::File::options().write(true).open(&file).unwrap().set_modified(past).unwrap();
    assert_eq!(read(), 1);
    fs::write(&file, &whole).unwrap();
    assert_eq!(read(), 0);
    // gzip takes other bytes behind the end for no part of the file.
    fs::write(&file, [&whole[..], b"bytes that are no header of gzip"].concat()).unwrap();
    assert_eq!(read(), 0);
}

#[test]
fn an_archive_of_another_layout_is_named() {
    let cache = TempDir::new().unwrap();
    let mut builder = tar::Builder::new(Vec::new());
    for (name, content) in [("s/1/2/1-2-0.flac", "f"), ("s/1/2/1-2.trans.txt", "1-2-0 A TEXT")] {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        builder.append_data(&mut header, name, content.as_bytes()).unwrap();
    }
    let archive = builder.into_inner().unwrap();
    for name in ["dev.tar", "dev.tar.gz"] {
        let folder = write(&[(name, &archive)]);
        let error = import(folder.path(), &into(&cache, Bytes::gib(1))).unwrap_err().to_string();
        assert!(error.contains("no sample of WebDataset"), "{error}");
    }
    // A file cannot be the folder.
    let folder = write(&[("dev.tar.gz", &archive), ("file", b"")]);
    let options = UnpackFolder { path: folder.path().join("file"), limit: Bytes::gib(1) };
    let error =
        import(folder.path(), &ImportOptions { unpack: Some(options), ..ImportOptions::default() }).unwrap_err();
    assert!(plimsoll_core::error_chain(&error).ends_with("it is a file, and a folder is needed"));
}
