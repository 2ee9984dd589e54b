//! The audio file that was asked for last. Lists name the parts of a shard and of a recording one after the other, and
//! millions of parts are in a few thousand files.

use std::path::{Path, PathBuf};

use plimsoll_audio::{AudioSource, PackedPage};
use plimsoll_core::regular_file_metadata;

/// The file that was found last, with its size.
#[derive(Default)]
pub(crate) struct KnownFile {
    file: PathBuf,
    size: u64,
}

impl KnownFile {
    /// Returns whether the audio `path` exists; false also if that is not known without a closer look.
    pub(crate) fn has(&mut self, path: &Path) -> bool {
        let path = without_channel(path);
        let Some(part) = QuickPart::of(path) else {
            // As bytes: to compare paths part by part takes longer than the rest.
            if path.as_os_str() != self.file.as_os_str() && AudioSource::from_path(path).metadata().is_ok() {
                (self.file, self.size) = (path.into(), 0);
            }
            return path.as_os_str() == self.file.as_os_str();
        };
        self.has_part(&part)
    }

    /// Returns the bytes of the audio `path` if it is a part of a container that exists; `None` also if that is not known
    /// without a closer look.
    pub(crate) fn length_of_part(&mut self, path: &Path) -> Option<u64> {
        let part = QuickPart::of(without_channel(path))?;
        self.has_part(&part).then_some(part.length)
    }

    fn has_part(&mut self, part: &QuickPart<'_>) -> bool {
        if part.container.as_os_str() != self.file.as_os_str() {
            let Ok(metadata) = regular_file_metadata(part.container) else { return false };
            (self.file, self.size) = (part.container.into(), metadata.len());
        }
        part.end <= self.size
    }
}

/// Returns the path of all channels, which a file has if it has one of them.
fn without_channel(path: &Path) -> &Path {
    match (AudioSource::named_channel(path), path.to_str()) {
        (Some(_), Some(text)) => Path::new(text.rsplit_once(':').map_or(text, |(all, _)| all)),
        _ => path,
    }
}

/// Part of a container, as its path says it.
struct QuickPart<'a> {
    container: &'a Path,
    /// End of the part in the container. A part of a compressed page ends with its page.
    end: u64,
    /// Bytes of the audio.
    length: u64,
}

impl<'a> QuickPart<'a> {
    /// Reads the path of a part of a container, `FILE:OFFSET+LENGTH`.
    fn of(path: &'a Path) -> Option<Self> {
        let (file, part) = path.to_str()?.rsplit_once(':')?;
        let (offset, length) = part.split_once('+')?;
        let number = |digits: &str| {
            let is_plain =
                digits == "0" || !digits.starts_with('0') && digits.bytes().all(|byte| byte.is_ascii_digit());
            digits.parse::<u64>().ok().filter(|_| is_plain)
        };
        let length = number(length)?;
        let end = number(offset)?.checked_add(length)?;
        if let Some((container, page)) = file.rsplit_once(':')
            && let Some(page) = PackedPage::parse(page)
        {
            let is_inside = end <= page.unpacked && !container.is_empty() && !container.ends_with('/');
            let end = page.offset.checked_add(page.length)?;
            return is_inside.then_some(Self { container: Path::new(container), end, length });
        }
        let is_file = !file.is_empty() && !file.ends_with('/');
        is_file.then_some(Self { container: Path::new(file), end, length })
    }
}
