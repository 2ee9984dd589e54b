//! Identity of the content of an audio file, without reading all of it.

use std::fmt;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use plimsoll_audio::{AudioPart, AudioSource};
use plimsoll_core::SampleId;
use rayon::prelude::*;

use crate::known_file::KnownFile;
use crate::store::KeyBuilder;
use crate::utterances::Utterances;

/// Number of utterances whose audio files are opened. Of the others only the size is known.
const OPENED_MAX: usize = 10_000;
/// Number of blocks that are read of a file, from its first to its last byte at equal distances.
const BLOCKS: u64 = 4;
/// Size of a block, in bytes.
const BLOCK: u64 = 4096;

/// Size of an audio file, and a hash of some of its content. The place and the time of the file do not count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct AudioIdentity {
    /// Size in bytes; 0 for a file that cannot be read.
    size: u64,
    /// Hash of some blocks; 0 if the file was not opened.
    content: u64,
}

impl AudioIdentity {
    /// Returns whether the audio may be the same, by all that is known of both.
    pub(crate) fn may_equal(self, other: Self) -> bool {
        self.size == other.size && (self.content == other.content || self.content == 0 || other.content == 0)
    }

    /// Returns the identity as bytes, for a hash.
    pub(crate) fn to_bytes(self) -> [u8; 16] {
        (u128::from(self.size) << 64 | u128::from(self.content)).to_le_bytes()
    }

    /// Reads what `Display` writes; `None` for another text.
    pub(crate) fn from_text(text: &str) -> Option<Self> {
        let (size, content) = text.split_once('-')?;
        Some(Self { size: size.parse().ok()?, content: u64::from_str_radix(content, 16).ok()? })
    }
}

impl fmt::Display for AudioIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{:016x}", self.size, self.content)
    }
}

/// Computes the identity of the audio of each utterance.
///
/// Of a long list, only some files are opened: chosen by the ids, so that the others can change without an effect on the
/// choice. A change that keeps the size of a file is then seen if it is one of many.
pub(crate) fn identities(utterances: &Utterances) -> Vec<AudioIdentity> {
    identities_of(utterances, OPENED_MAX)
}

fn identities_of(utterances: &Utterances, opened_max: usize) -> Vec<AudioIdentity> {
    // A power of two changes seldom as a list grows.
    let every = utterances.len().div_ceil(opened_max).next_power_of_two() as u64;
    let identity = |(last, container): &mut (Option<(PathBuf, bool, AudioIdentity)>, KnownFile), index: usize| {
        let path = utterances.get(index).audio;
        let is_opened = SampleId::from_name(utterances.id(index)).0.is_multiple_of(every);
        // The system is asked for each container once, and not for each of its parts.
        if let (false, Some(size)) = (is_opened, container.length_of_part(path)) {
            return AudioIdentity { size, content: 0 };
        }
        // Lists name the parts of a recording one after the other.
        match last {
            Some((known, opened, identity)) if known.as_os_str() == path.as_os_str() && *opened == is_opened => {
                *identity
            }
            _ => {
                let identity = read(path, is_opened).unwrap_or_default();
                *last = Some((path.into(), is_opened, identity));
                identity
            }
        }
    };
    (0..utterances.len()).into_par_iter().map_init(Default::default, identity).collect()
}

/// Reads the identity of the audio at `path`, with its content if the file `is_opened`.
fn read(path: &Path, is_opened: bool) -> io::Result<AudioIdentity> {
    let source = AudioSource::from_path(path);
    let whole = || Ok::<_, io::Error>(source.metadata()?.len());
    let size = match source.part {
        // A long list of parts is not asked for the size of their container.
        Some(AudioPart::Bytes { length: Some(length), .. } | AudioPart::Page { length, .. }) => length,
        Some(AudioPart::Bytes { offset, .. }) => whole()?.saturating_sub(offset),
        Some(_) | None => whole()?,
    };
    if !is_opened {
        return Ok(AudioIdentity { size, content: 0 });
    }
    let mut audio = source.open()?;
    let (mut key, mut bytes) = (KeyBuilder::default(), Vec::with_capacity(BLOCK as usize));
    let last = audio.byte_len().saturating_sub(BLOCK);
    for block in 0..BLOCKS {
        bytes.clear();
        audio.seek(SeekFrom::Start(last / (BLOCKS - 1) * block + last % (BLOCKS - 1) * block / (BLOCKS - 1)))?;
        audio.by_ref().take(BLOCK).read_to_end(&mut bytes)?;
        key.add(&bytes);
        if last == 0 {
            break;
        }
    }
    if let Some(channel) = source.channel {
        key.add(&channel.to_le_bytes());
    }
    // 0 stands for a file that was not opened.
    Ok(AudioIdentity { size, content: key.finish().short_bits().max(1) })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use proptest::prelude::*;
    use tempfile::TempDir;

    use super::*;
    use crate::testing::corpus;
    use crate::utterance::Utterance;

    #[test]
    fn long_lists_open_some_files_and_know_the_size_of_all() {
        let folder = TempDir::new().unwrap();
        let utterances = Utterances::from(corpus(folder.path(), 40).0);
        let all = identities_of(&utterances, 40);
        assert!(all.iter().all(|identity| identity.content != 0 && identity.size > 100));
        let some = identities_of(&utterances, 10);
        let opened = some.iter().filter(|identity| identity.content != 0).count();
        assert!((3..30).contains(&opened), "{opened}");
        assert!(some.iter().zip(&all).all(|(some, all)| some.may_equal(*all) && some.size == all.size));
        fs::remove_file(utterances.get(3).audio).unwrap();
        assert_eq!(identities_of(&utterances, 40)[3], AudioIdentity::default());
    }

    proptest! {
        #[test]
        fn changes_at_both_ends_and_of_the_size_are_seen(size in 1usize..60_000, at in 0usize..4096, what in 0usize..4) {
            let folder = TempDir::new().unwrap();
            let path = folder.path().join("x.raw");
            let bytes: Vec<u8> = (0..size).map(|n| (n % 251) as u8).collect();
            let identity = |bytes: &[u8], name: &str| {
                let path = folder.path().join(name);
                fs::write(&path, bytes).unwrap();
                read(&path, true).unwrap()
            };
            let before = identity(&bytes, "x.raw");
            prop_assert_eq!(AudioIdentity::from_text(&before.to_string()), Some(before));
            // Another place, and another time.
            prop_assert_eq!(identity(&bytes, "y.raw"), before);
            let mut changed = bytes.clone();
            match what {
                0 => changed[at % size.min(4096)] ^= 1,
                1 => changed[size - 1 - at % size.min(4096)] ^= 1,
                2 => changed.push(0),
                _ => changed.iter_mut().for_each(|byte| *byte ^= 1),
            }
            prop_assert!(!identity(&changed, "x.raw").may_equal(before));
            let part = Utterance {
                audio: format!("{}:0+{size}", path.display()).into(),
                ..corpus(folder.path(), 1).0.remove(0)
            };
            let of_part = identities(&Utterances::from(vec![part]))[0];
            prop_assert!(what == 2 || !of_part.may_equal(before));
        }
    }
}
