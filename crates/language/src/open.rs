//! Opens a model of any format.

use std::io;
use std::path::Path;

use crate::arpa::GZIP;
use crate::bytes::ModelBytes;
use crate::error::LanguageError;
use crate::kenlm;
use crate::layout::MAGIC;
use crate::model::NgramModel;

impl NgramModel {
    /// Opens a model file of this crate's own format, a binary file of KenLM, or an ARPA file (also compressed). The
    /// format is found from the first bytes.
    ///
    /// A file of the own format is mapped into memory and used where it lies. Up to 64 MiB are read once and compared
    /// with the checksum. Of a larger file only the header and the length are checked, so that it opens in milliseconds
    /// too; [`verify`](Self::verify) reads the rest.
    ///
    /// Of KenLM, hash tables (`probing`) and tries are read, the tries also with quantized numbers and compressed
    /// pointers; only hash tables with rest costs are not. They are mapped as well, but have no checksum. An ARPA file is
    /// read into memory: convert it with [`save`](Self::save) if it is large.
    ///
    /// # Errors
    /// When the file cannot be read, is truncated or damaged, or has a format or a version that is not supported.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, LanguageError> {
        let path = path.as_ref();
        let bytes = ModelBytes::map(path).map_err(LanguageError::read(path))?;
        let start = bytes.all();
        if start.starts_with(&MAGIC) {
            return Self::from_own_file(bytes);
        }
        if kenlm::is_kenlm(start) {
            return kenlm::open(bytes);
        }
        let is_text = start.starts_with(&GZIP) || start.iter().take(1024).all(|&byte| byte != 0);
        if start.is_empty() || !is_text {
            let problem = "it is neither a model file, nor a binary file of KenLM, nor an ARPA file";
            return Err(LanguageError::read(path)(io::Error::new(io::ErrorKind::InvalidData, problem)));
        }
        Self::read_arpa_file(path)
    }
}
