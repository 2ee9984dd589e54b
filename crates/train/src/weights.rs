//! A model's values in a safetensors file.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use plimsoll_tape::NamedTensor;
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};

/// Why weights cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum WeightsError {
    /// The file system refused.
    #[error("cannot access {}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The file is not what it should be.
    #[error("{} is not a whole safetensors file", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: safetensors::SafeTensorError,
    },
    /// A tensor has a type that this version does not read.
    #[error("{}: `{name}` holds {dtype:?}, and only F32 can be read", path.display())]
    Dtype {
        /// The file.
        path: PathBuf,
        /// The tensor.
        name: String,
        /// Its type.
        dtype: Dtype,
    },
}

/// Writes `tensors` to a safetensors file, synced to the disk.
pub fn write_weights(path: &Path, tensors: &[NamedTensor]) -> Result<(), WeightsError> {
    let file = to_file(path, tensors)?;
    write_synced(path, &file).map_err(|source| WeightsError::Io { path: path.into(), source })
}

/// The bytes of a safetensors file of `tensors`, to be written to `path`.
pub(crate) fn to_file(path: &Path, tensors: &[NamedTensor]) -> Result<Vec<u8>, WeightsError> {
    let bytes: Vec<(String, Vec<usize>, Vec<u8>)> = tensors
        .iter()
        .map(|t| (t.name.clone(), t.shape.clone(), t.values.iter().flat_map(|v| v.to_le_bytes()).collect()))
        .collect();
    let format = |source| WeightsError::Format { path: path.into(), source };
    let views: HashMap<&str, TensorView<'_>> = bytes
        .iter()
        .map(|(name, shape, data)| Ok((name.as_str(), TensorView::new(Dtype::F32, shape.clone(), data)?)))
        .collect::<Result<_, _>>()
        .map_err(format)?;
    safetensors::serialize(views, None).map_err(format)
}

/// Reads the tensors of a safetensors file.
pub fn read_weights(path: &Path) -> Result<Vec<NamedTensor>, WeightsError> {
    let bytes = std::fs::read(path).map_err(|source| WeightsError::Io { path: path.into(), source })?;
    let file = SafeTensors::deserialize(&bytes).map_err(|source| WeightsError::Format { path: path.into(), source })?;
    let mut tensors = Vec::new();
    for (name, view) in file.tensors() {
        if view.dtype() != Dtype::F32 {
            return Err(WeightsError::Dtype { path: path.into(), name, dtype: view.dtype() });
        }
        let number = |bytes: &[u8]| f32::from_le_bytes(bytes.try_into().expect("chunks of four"));
        let values = view.data().chunks_exact(4).map(number).collect();
        tensors.push(NamedTensor { name, shape: view.shape().to_vec(), values });
    }
    tensors.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(tensors)
}

/// Writes a whole file and waits until the disk has it.
pub(crate) fn write_synced(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    use std::io::Write;
    let mut file = std::fs::File::create(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("w.safetensors");
        let tensors = vec![
            NamedTensor { name: "a.weight".into(), shape: vec![2, 2], values: vec![1.0, -2.5, f32::MIN_POSITIVE, 0.0] },
            NamedTensor { name: "b".into(), shape: vec![1], values: vec![7.0] },
        ];
        write_weights(&path, &tensors).unwrap();
        assert_eq!(read_weights(&path).unwrap(), tensors);
        std::fs::write(&path, &std::fs::read(&path).unwrap()[..20]).unwrap();
        let error = read_weights(&path).unwrap_err().to_string();
        assert!(error.ends_with("w.safetensors is not a whole safetensors file"), "{error}");
    }
}
