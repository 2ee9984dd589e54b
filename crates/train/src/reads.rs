//! Reads from a device that may have failed, without a panic.

use burn::tensor::{Element, Tensor};

use crate::attempt::attempt;

/// Reads the values of `tensor` as numbers of type `E`. Returns the message of the device if it cannot.
///
/// A device may hand out memory that it fills later, so converting the values can fail as well as fetching them.
pub(crate) fn read<E: Element>(tensor: Tensor<1>) -> Result<Vec<E>, String> {
    let read = || {
        let data = tensor.try_into_data().map_err(|error| error.to_string())?;
        data.try_into_vec_as::<E>().map_err(|error| error.to_string())
    };
    attempt(read).and_then(|read| read)
}

/// Checks that all of `tensors` were computed, by the first value of each. Returns the message of the device if one was
/// not.
pub(crate) fn check_written(tensors: &[Tensor<1>]) -> Result<(), String> {
    let check = || {
        let firsts = tensors.iter().filter(|tensor| tensor.shape().num_elements() > 0);
        let firsts: Vec<Tensor<1>> = firsts.map(|tensor| tensor.clone().narrow(0, 0, 1)).collect();
        match firsts.is_empty() {
            true => Ok(()),
            false => Tensor::cat(firsts, 0).try_into_data().map(|_| ()).map_err(|error| error.to_string()),
        }
    };
    attempt(check).and_then(|check| check)
}

#[cfg(test)]
mod tests {
    use burn::tensor::{Bytes, DType, Device, TensorData};

    use super::*;

    /// Makes a tensor whose memory cannot be read, as after a late failure of a device.
    fn unreadable() -> Tensor<1> {
        let data = TensorData::from_bytes(Bytes::from_file("no/such/file", 8, 0), [2], DType::F32);
        Tensor::from_data(data, (&Device::flex(), DType::F32))
    }

    #[test]
    fn a_late_failure_is_an_error_whatever_the_type_of_the_values() {
        assert!(read::<f64>(unreadable()).is_err());
        assert!(read::<f32>(unreadable()).is_err());
        assert!(check_written(&[Tensor::ones([2], &Device::flex()), unreadable()]).is_err());
        assert_eq!(read::<f64>(Tensor::from_floats([1.5, 2.0], &Device::flex())), Ok(vec![1.5, 2.0]));
        assert_eq!(check_written(&[Tensor::ones([2], &Device::flex()), Tensor::zeros([0], &Device::flex())]), Ok(()));
    }
}
