//! Log-mels in a file of NumPy, for the vocoder that is trained later, and for programs of others.

use std::io::{Error, ErrorKind, Read, Result, Write};
use std::path::Path;

use plimsoll_core::{open_regular_file, replace_file};

/// Beginning of a file of version 1.0.
const MAGIC: &[u8] = b"\x93NUMPY\x01\x00";
/// Multiple of which the header has its length.
const ALIGNMENT: usize = 64;
/// Largest file that is read.
const MOST_BYTES: u64 = 1 << 30;

/// Returns the name of the file with the log-mels of the sample `number`, as the best model says it.
pub(super) fn name(number: usize) -> String {
    format!("best-{number}.npy")
}

/// Writes log-mels `[frames, width]`.
///
/// # Errors
/// If the file cannot be written.
pub(super) fn write(path: &Path, mels: &[f32], width: usize) -> Result<()> {
    let shape = format!("({}, {width})", mels.len() / width.max(1));
    let mut header = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}");
    let begun = MAGIC.len() + 2 + header.len() + 1;
    header.extend(std::iter::repeat_n(' ', begun.next_multiple_of(ALIGNMENT) - begun));
    header.push('\n');
    replace_file(path, |file| {
        file.write_all(MAGIC)?;
        file.write_all(&(header.len() as u16).to_le_bytes())?;
        file.write_all(header.as_bytes())?;
        file.write_all(&mels.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>())
    })
}

/// Reads log-mels that [`write`] wrote with this width.
///
/// # Errors
/// If the file cannot be read, or holds something else.
pub(super) fn read(path: &Path, width: usize) -> Result<Vec<f32>> {
    let mut bytes = Vec::new();
    open_regular_file(path)?.take(MOST_BYTES).read_to_end(&mut bytes)?;
    let other = || Error::new(ErrorKind::InvalidData, "the file holds no log-mels of the voice");
    let rest = bytes.strip_prefix(MAGIC).ok_or_else(other)?;
    let (length, rest) = rest.split_first_chunk::<2>().ok_or_else(other)?;
    let (header, values) = rest.split_at_checked(u16::from_le_bytes(*length).into()).ok_or_else(other)?;
    let header = String::from_utf8_lossy(header);
    let is_ours = header.contains("'<f4'") && header.contains(&format!(", {width})")) && header.contains("False");
    if !is_ours || !values.len().is_multiple_of(4 * width.max(1)) {
        return Err(other());
    }
    let value = |bytes: &[u8]| f32::from_le_bytes(bytes.try_into().expect("four bytes"));
    Ok(values.chunks_exact(4).map(value).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_mels_are_read_as_they_were_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name(1));
        for frames in [0, 1, 7, 4000] {
            let mels: Vec<f32> = (0..frames * 3).map(|n| n as f32 * 0.5 - 9.0).collect();
            write(&path, &mels, 3).unwrap();
            assert_eq!(read(&path, 3).unwrap(), mels);
            // NumPy wants its data at a multiple of 64.
            let bytes = std::fs::read(&path).unwrap();
            assert!(bytes.len().is_multiple_of(64) || (bytes.len() - mels.len() * 4).is_multiple_of(64));
            assert!(read(&path, 5).is_err());
        }
        let whole = std::fs::read(&path).unwrap();
        for cut in (0..200).chain([whole.len() - 1]) {
            std::fs::write(&path, &whole[..cut]).unwrap();
            assert!(read(&path, 3).is_err() || (cut - 128).is_multiple_of(12), "{cut}");
        }
    }
}
