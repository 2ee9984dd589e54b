//! Tests of compressed shards.

use std::io::Read as _;
use std::time::{Duration, SystemTime};

use plimsoll_core::Bytes;

use super::*;
use crate::Manifest;
use crate::unpack::UnpackFolder;
use crate::utterances::UtteranceRef;
use plimsoll_audio::AudioSource;

/// Content of a tar file with five utterances.
fn tar() -> Vec<u8> {
    fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/data/containers/text.tar")).unwrap()
}

fn into(folder: &TempDir, limit: Bytes) -> ImportOptions {
    let unpack = Some(UnpackFolder { path: folder.path().join("unpacked"), limit });
    ImportOptions { unpack, ..ImportOptions::default() }
}

fn unpacked(folder: &TempDir) -> Vec<std::path::PathBuf> {
    let mut files: Vec<_> =
        fs::read_dir(folder.path().join("unpacked")).into_iter().flatten().map(|file| file.unwrap().path()).collect();
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
    let mut before = None;
    for name in ["a.tar.gz", "a.tgz", "A.TAR.GZ", "a.tar"] {
        let folder = TempDir::new().unwrap();
        fs::write(folder.path().join(name), &packed).unwrap();
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

#[test]
fn the_folder_keeps_its_limit_and_drops_what_was_not_used_for_longest() {
    let (tar, cache) = (tar(), TempDir::new().unwrap());
    let size = tar.len() as u64;
    let corpus = |seed: u8| {
        // Zeros behind the end of a tar file are no content.
        let longer = [&tar[..], &vec![0; 512 * usize::from(seed)]].concat();
        write(&[("a.tar.gz", &longer)])
    };
    let options = into(&cache, Bytes(3 * size));
    let (first, second, third) = (corpus(0), corpus(1), corpus(2));
    let read = |corpus: &TempDir| import(corpus.path(), &options).map(|listing| listing.entries.len());
    assert_eq!(read(&first).unwrap(), 5);
    let kept = unpacked(&cache);
    for (corpus, days) in [(&second, 3), (&first, 2)] {
        assert_eq!(read(corpus).unwrap(), 5);
        for file in unpacked(&cache).iter().filter(|file| days == 3 && !kept.contains(file)) {
            let time = SystemTime::now() - Duration::from_secs(days * 86_400);
            fs::File::open(file).unwrap().set_modified(time).unwrap();
        }
    }
    assert_eq!(unpacked(&cache).len(), 2);
    assert_eq!(read(&third).unwrap(), 5);
    let now = unpacked(&cache);
    assert_eq!((now.len(), now.contains(&kept[0])), (2, true));
    // Too small even for one: nothing stays behind.
    let small = into(&cache, Bytes(size / 2));
    let error = import(corpus(3).path(), &small).unwrap_err();
    assert!(plimsoll_core::error_chain(&error).contains("takes more than"), "{error}");
    assert_eq!(unpacked(&cache).len(), 0);
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
    let folder = write(&[("dev.tar.gz", &builder.into_inner().unwrap())]);
    let error = import(folder.path(), &into(&cache, Bytes::gib(1))).unwrap_err().to_string();
    assert!(error.contains("no sample of WebDataset"), "{error}");
}
