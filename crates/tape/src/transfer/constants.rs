//! Tensors that many layers of a pass need, made once.

use std::any::Any;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use burn::tensor::Device;

/// Tensors on a device that depend only on sizes and lengths, such as masks and position tables. The first layer that
/// needs one makes it, and later layers share it: a copy from the host to a GPU costs more time than most of its kernels.
///
/// Clones share the tensors, which live until the last clone is dropped. Keep one for each batch, as a batch has its own
/// lengths.
///
/// ```
/// use burn::tensor::{Device, Tensor};
/// use plimsoll_tape::transfer::Constants;
///
/// let (constants, device) = (Constants::default(), Device::flex());
/// let table = constants.get("table", &[3], &device, || Tensor::<1>::from_floats([0.0, 0.5, 1.0], &device));
/// let again: Tensor<1> = constants.get("table", &[3], &device, || unreachable!("it was made before"));
/// assert_eq!(table.into_data(), again.into_data());
/// ```
#[derive(Clone, Default)]
pub struct Constants(Arc<Mutex<Vec<Constant>>>);

struct Constant {
    name: &'static str,
    sizes: Vec<usize>,
    device: Device,
    value: Box<dyn Any + Send + Sync>,
}

impl Constant {
    /// Returns whether this is the constant `name` for `sizes` on `device`.
    fn is(&self, name: &'static str, sizes: &[usize], device: &Device) -> bool {
        // Equal devices may differ in autodiff, and tensors of both kinds do not mix.
        let is_on = self.device == *device && self.device.is_autodiff() == device.is_autodiff();
        self.name == name && self.sizes == sizes && is_on
    }
}

impl Constants {
    /// Returns the constant `name` for `sizes` on `device`; if it is new, `make` makes it. `sizes` are all numbers on which
    /// the constant depends.
    pub fn get<T>(&self, name: &'static str, sizes: &[usize], device: &Device, make: impl FnOnce() -> T) -> T
    where
        T: Clone + Send + Sync + 'static,
    {
        let is_it = |one: &&Constant| one.is(name, sizes, device);
        let found = self.lock().iter().find(is_it).and_then(|one| one.value.downcast_ref::<T>().cloned());
        // Made without the lock, because `make` may need other constants. Two threads may both make it, alike.
        found.unwrap_or_else(|| {
            let value = make();
            let kept = Box::new(value.clone());
            self.lock().push(Constant { name, sizes: sizes.to_vec(), device: device.clone(), value: kept });
            value
        })
    }

    /// Returns whether the constant `name` for `sizes` on `device` was made before.
    pub(crate) fn has(&self, name: &'static str, sizes: &[usize], device: &Device) -> bool {
        self.lock().iter().any(|one| one.is(name, sizes, device))
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Constant>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Constants {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.lock().iter().map(|one| (one.name, &one.sizes))).finish()
    }
}
