//! Safetensors files of a model's weights and of an optimizer's state.

use std::borrow::Cow;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

use half::{bf16, f16};
use plimsoll_core::read_regular_file;
use plimsoll_tape::NamedTensor;
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors, View};
use sha2::{Digest, Sha256};

use crate::optimizer::{StateData, StateTensor};

/// Failure to read or write weights.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WeightsError {
    /// Reading or writing the file failed.
    #[error("cannot access {}", path.display())]
    Io {
        /// File that cannot be read or written.
        path: PathBuf,
        /// Error of the operating system.
        source: std::io::Error,
    },
    /// The file is not a complete safetensors file.
    #[error("{} is not a complete safetensors file", path.display())]
    Format {
        /// File that is not in safetensors format.
        path: PathBuf,
        /// Error of the safetensors library.
        source: safetensors::SafeTensorError,
    },
    /// The tensors do not match the checksum in the file.
    #[error("{} is damaged: its checksum does not match", path.display())]
    Damaged {
        /// File with the tensors.
        path: PathBuf,
    },
    /// The file has a tensor of a type that this version does not read.
    #[error("{}: `{name}` holds {dtype:?}, and only {readable} can be read", path.display())]
    Dtype {
        /// File of the tensor.
        path: PathBuf,
        /// Name of the tensor with the unsupported type.
        name: String,
        /// Type of the tensor in the file.
        dtype: Dtype,
        /// Tensor types that can be read.
        readable: &'static str,
    },
}

/// Name of the checksum of all tensors, in the metadata of a file.
const SUM: &str = "sha256";
/// Metadata without which the programs of Hugging Face refuse a file: the layout of numbers is that of PyTorch.
const FORMAT: [&str; 2] = ["format", "pt"];

/// Writes `tensors` to a safetensors file at `path` with their checksum, and waits until it is on the disk.
///
/// # Errors
/// If a tensor cannot be serialized or the file cannot be written.
pub fn write_weights(path: &Path, tensors: &[NamedTensor]) -> Result<(), WeightsError> {
    let views = || tensors.iter().map(|tensor| (&*tensor.name, Written::floats(&tensor.shape, &tensor.values)));
    let sum = (SUM.to_owned(), sum_of(views().collect()));
    let file = file_of(path, views(), Some(HashMap::from([sum, FORMAT.map(String::from).into()])))?;
    write_synced(path, &file).map_err(|source| WeightsError::Io { path: path.into(), source })
}

/// Serializes tensors to the bytes of a safetensors file. `path` is only for error messages.
pub(crate) fn to_file(path: &Path, tensors: &[NamedTensor]) -> Result<Vec<u8>, WeightsError> {
    file_of(path, tensors.iter().map(|tensor| (&*tensor.name, Written::floats(&tensor.shape, &tensor.values))), None)
}

/// Reads the tensors of a safetensors file, sorted by name.
///
/// # Errors
/// If the file cannot be read, is damaged, does not match the checksum that [`write_weights`] puts into it, or has a tensor that is not
/// `F32`, `F16` or `BF16`; numbers of 16 bits are widened.
pub fn read_weights(path: &Path) -> Result<Vec<NamedTensor>, WeightsError> {
    read(path, "F32, F16 and BF16", |name, view| {
        let values = match view.dtype() {
            Dtype::F32 => numbers(view, f32::from_le_bytes),
            Dtype::F16 => numbers(view, |bytes| f16::from_le_bytes(bytes).to_f32()),
            Dtype::BF16 => numbers(view, |bytes| bf16::from_le_bytes(bytes).to_f32()),
            _ => return None,
        };
        Some(NamedTensor { name: name.into(), shape: view.shape().to_vec(), values })
    })
}

/// Serializes an optimizer's state to the bytes of a safetensors file; each tensor keeps its number type. `path` is
/// only for error messages.
pub(crate) fn state_to_file(path: &Path, tensors: &[StateTensor]) -> Result<Vec<u8>, WeightsError> {
    file_of(path, tensors.iter().map(|tensor| (&*tensor.name, Written::of(tensor))), None)
}

/// Reads an optimizer's state from a safetensors file, sorted by name.
pub(crate) fn read_state(path: &Path) -> Result<Vec<StateTensor>, WeightsError> {
    read(path, "F32 and I32", |name, view| {
        let data = match view.dtype() {
            Dtype::F32 => StateData::F32(numbers(view, f32::from_le_bytes)),
            Dtype::I32 => StateData::I32(numbers(view, i32::from_le_bytes)),
            _ => return None,
        };
        Some(StateTensor { name: name.into(), shape: view.shape().to_vec(), data })
    })
}

fn numbers<N, const SIZE: usize>(view: &TensorView<'_>, number: fn([u8; SIZE]) -> N) -> Vec<N> {
    view.data().chunks_exact(SIZE).map(|bytes| number(bytes.try_into().expect("chunks of this size"))).collect()
}

/// A tensor in the form in which the safetensors crate serializes it. Its bytes are made only when they are written, so
/// only one tensor exists twice at a time.
struct Written<'a> {
    dtype: Dtype,
    shape: &'a [usize],
    values: Values<'a>,
}

enum Values<'a> {
    Floats(&'a [f32]),
    Integers(&'a [i32]),
}

impl<'a> Written<'a> {
    fn of(tensor: &'a StateTensor) -> Self {
        match &tensor.data {
            StateData::F32(values) => Self::floats(&tensor.shape, values),
            StateData::I32(values) => {
                Self { dtype: Dtype::I32, shape: &tensor.shape, values: Values::Integers(values) }
            }
        }
    }

    fn floats(shape: &'a [usize], values: &'a [f32]) -> Self {
        Self { dtype: Dtype::F32, shape, values: Values::Floats(values) }
    }
}

impl View for Written<'_> {
    fn dtype(&self) -> Dtype {
        self.dtype
    }

    fn shape(&self) -> &[usize] {
        self.shape
    }

    fn data(&self) -> Cow<'_, [u8]> {
        match self.values {
            Values::Floats(values) => values.iter().flat_map(|value| value.to_le_bytes()).collect(),
            Values::Integers(values) => values.iter().flat_map(|value| value.to_le_bytes()).collect(),
        }
    }

    fn data_len(&self) -> usize {
        match self.values {
            Values::Floats(values) => size_of_val(values),
            Values::Integers(values) => size_of_val(values),
        }
    }
}

fn file_of<'a>(
    path: &Path,
    tensors: impl Iterator<Item = (&'a str, Written<'a>)>,
    metadata: Option<HashMap<String, String>>,
) -> Result<Vec<u8>, WeightsError> {
    safetensors::serialize(tensors, metadata).map_err(|source| WeightsError::Format { path: path.into(), source })
}

/// Computes the checksum of tensors, which does not depend on their order.
fn sum_of<V: View>(mut tensors: Vec<(&str, V)>) -> String {
    tensors.sort_by_key(|(name, _)| *name);
    let mut sum = Sha256::new();
    for (name, tensor) in &tensors {
        sum.update(format!("{name}\n{:?} {:?}\n", tensor.dtype(), tensor.shape()));
        sum.update(tensor.data());
    }
    sum.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Reads every tensor of a file with `make`, in the order of the tensors' names. `make` returns `None` for a type of
/// numbers that it cannot read; `readable` names the readable types for the error.
fn read<T>(
    path: &Path,
    readable: &'static str,
    make: impl Fn(&str, &TensorView<'_>) -> Option<T>,
) -> Result<Vec<T>, WeightsError> {
    let bytes = read_regular_file(path).map_err(|source| WeightsError::Io { path: path.into(), source })?;
    let format = |source| WeightsError::Format { path: path.into(), source };
    let file = SafeTensors::deserialize(&bytes).map_err(format)?;
    let mut views = file.tensors();
    views.sort_by(|(a, _), (b, _)| a.cmp(b));
    let (_, header) = SafeTensors::read_metadata(&bytes).map_err(format)?;
    if let Some(written) = header.metadata().as_ref().and_then(|metadata| metadata.get(SUM))
        && *written != sum_of(views.iter().map(|(name, view)| (&**name, view)).collect())
    {
        return Err(WeightsError::Damaged { path: path.into() });
    }
    let one = |(name, view): (String, TensorView<'_>)| {
        let dtype = view.dtype();
        make(&name, &view).ok_or_else(|| WeightsError::Dtype { path: path.into(), name, dtype, readable })
    };
    views.into_iter().map(one).collect()
}

/// Writes a whole file and waits until it is on the disk.
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
    fn weights_survive_a_round_trip() {
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
        assert!(error.ends_with("w.safetensors is not a complete safetensors file"), "{error}");
    }

    /// Any changed byte is an error, and so is a value that moved to another tensor.
    #[test]
    fn every_damaged_byte_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("w.safetensors");
        let tensor = |name: &str, values: &[f32]| NamedTensor {
            name: name.into(),
            shape: vec![values.len()],
            values: values.to_vec(),
        };
        write_weights(&path, &[tensor("a", &[1.0, 2.0]), tensor("b", &[3.0]), tensor("c", &[3.0, 0.0, -0.0])]).unwrap();
        let whole = std::fs::read(&path).unwrap();
        let at = |key: &str| {
            let start = whole.windows(key.len()).position(|window| window == key.as_bytes()).unwrap();
            start..start + key.len()
        };
        // A file without a checksum is that of another program, and one without a format is read all the same.
        let unseen = [at(SUM), at(FORMAT[0]), at(r#""pt""#)];
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 1;
            std::fs::write(&path, &damaged).unwrap();
            assert!(read_weights(&path).is_err() || unseen.iter().any(|unseen| unseen.contains(&at)), "byte {at}");
        }
        std::fs::write(&path, &whole).unwrap();
        read_weights(&path).unwrap();
    }

    #[test]
    fn optimizer_state_keeps_its_number_types() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s.safetensors");
        let tensor = |name: &str, data| StateTensor { name: name.into(), shape: vec![1, 2], data };
        let state = [
            tensor("w.mean.codes", StateData::I32(vec![i32::MIN, 0x7f80_01ff])),
            tensor("w.mean.scales", StateData::F32(vec![0.5, -0.0])),
        ];
        std::fs::write(&path, state_to_file(&path, &state).unwrap()).unwrap();
        assert_eq!(read_state(&path).unwrap(), state);
        let error = read_weights(&path).unwrap_err().to_string();
        assert!(
            error.ends_with("s.safetensors: `w.mean.codes` holds I32, and only F32, F16 and BF16 can be read"),
            "{error}"
        );
    }
}
