//! The functions of the driver, by the chapters of its manual.
//!
//! Safety of all of them: the caller follows `cuda.h`, as `abi` describes.

use crate::errors::{Answer, Code, SUCCESS};
use crate::machine::{Machine, machine};

/// Declares functions of the driver. Each begins a call of the machine, and its body returns an answer. `NAMES` lists
/// them.
macro_rules! driver_functions {
    ($($(#[$attribute:meta])* fn $name:ident($machine:ident $(, $argument:ident: $type:ty)* $(,)?) $body:block)+) => {
        $(
            $(#[$attribute])*
            #[unsafe(no_mangle)]
            unsafe extern "C" fn $name($($argument: $type),*) -> $crate::errors::Code {
                $crate::exports::call(stringify!($name), |$machine| $body)
            }
        )+

        /// Names of the functions.
        pub(super) const NAMES: &[&str] = &[$(stringify!($name)),+];
    };
}

mod absent;
mod copies;
mod devices;
mod events;
mod graphs;
mod kernels;
mod lookup;
mod memory;
mod own;
mod pinned;
mod start;
mod streams;
mod waiting;

/// Makes a call.
fn call(function: &'static str, answer: impl FnOnce(&mut Machine) -> Answer) -> Code {
    attempt(function, answer).err().unwrap_or(SUCCESS)
}

/// Makes a call that has a result for the next one.
fn attempt<T>(function: &'static str, answer: impl FnOnce(&mut Machine) -> Answer<T>) -> Answer<T> {
    match &mut *machine() {
        Ok(machine) => machine.begin(function).and_then(|()| answer(machine)),
        Err(code) => Err(*code),
    }
}

/// Returns whether the driver has a function of this name.
fn is_function(name: &str) -> bool {
    let chapters = [
        absent::NAMES,
        copies::NAMES,
        devices::NAMES,
        events::NAMES,
        graphs::NAMES,
        kernels::NAMES,
        memory::NAMES,
        pinned::NAMES,
        start::NAMES,
        streams::NAMES,
        waiting::NAMES,
    ];
    chapters.iter().any(|names| names.contains(&name)) || name == lookup::NAME
}
