//! ARPA files: models as text.

mod read;
mod write;

use std::io::{BufRead, BufReader, Write};
use std::path::Path;

use flate2::Compression;
use flate2::bufread::MultiGzDecoder;
use flate2::write::GzEncoder;
use plimsoll_core::open_text_file;

use crate::error::LanguageError;
use crate::files::write_with;
use crate::model::NgramModel;

/// First bytes of a gzip file.
pub(crate) const GZIP: [u8; 2] = [0x1f, 0x8b];

impl NgramModel {
    /// Reads a model from an ARPA file, also a compressed one (gzip).
    ///
    /// `<UNK>` counts as `<unk>`. Without either, unknown words have the log-probability -100, as in KenLM. An n-gram
    /// whose ending is missing stays: the ending gets the probability that backing off gives it.
    ///
    /// # Errors
    /// When the file cannot be read, a line is wrong, an n-gram stands there twice, or the beginning of an n-gram is
    /// no n-gram of the file.
    pub fn read_arpa_file(path: impl AsRef<Path>) -> Result<Self, LanguageError> {
        let path = path.as_ref();
        let file = BufReader::new(open_text_file(path).map_err(LanguageError::read(path))?);
        match Self::read_arpa(file) {
            Err(LanguageError::Stream(source)) => Err(LanguageError::read(path)(source)),
            read => read,
        }
    }

    /// Reads a model from ARPA text, also compressed text; see [`read_arpa_file`](Self::read_arpa_file).
    ///
    /// # Errors
    /// As [`read_arpa_file`](Self::read_arpa_file).
    pub fn read_arpa(mut text: impl BufRead) -> Result<Self, LanguageError> {
        let start = text.fill_buf().map_err(LanguageError::Stream)?;
        let data = if start.starts_with(&GZIP) {
            read::read(BufReader::new(MultiGzDecoder::new(text)))?
        } else {
            read::read(text)?
        };
        Self::from_data(data)
    }

    /// Writes the model as an ARPA file: beside its place, then renamed.
    ///
    /// # Errors
    /// When the file cannot be written, or the model was read from hash tables of KenLM.
    pub fn write_arpa_file(&self, path: impl AsRef<Path>) -> Result<(), LanguageError> {
        let data = self.data()?;
        write_with(path.as_ref(), |file| write::write(&data, file))
    }

    /// Writes the model as an ARPA file with gzip: beside its place, then renamed.
    ///
    /// # Errors
    /// As [`write_arpa_file`](Self::write_arpa_file).
    pub fn write_arpa_gzip(&self, path: impl AsRef<Path>) -> Result<(), LanguageError> {
        let data = self.data()?;
        write_with(path.as_ref(), |file| {
            let mut compressed = GzEncoder::new(file, Compression::default());
            write::write(&data, &mut compressed)?;
            compressed.finish().map(|_| ())
        })
    }

    /// Writes the model as ARPA text.
    ///
    /// # Errors
    /// As [`write_arpa_file`](Self::write_arpa_file).
    pub fn write_arpa(&self, mut text: impl Write) -> Result<(), LanguageError> {
        write::write(&self.data()?, &mut text).map_err(LanguageError::Stream)
    }
}
