//! The start of the driver, its version and its errors.

use std::ffi::{c_char, c_int, c_uint};
use std::sync::Once;

use super::is_function;
use crate::abi::Out;
use crate::errors::{Answer, Code, INVALID_VALUE, NO_DEVICE, UNKNOWN, describe};
use crate::machine::{Machine, machine};

unsafe extern "C" {
    /// Registers a function that is called when the process ends.
    safe fn atexit(function: extern "C" fn()) -> c_int;
}

static AT_EXIT: Once = Once::new();

driver_functions! {
    fn cuInit(machine, _flags: c_uint) {
        check_names(machine)?;
        if machine.gpus.is_empty() {
            return Err(NO_DEVICE);
        }
        machine.is_initialized = true;
        AT_EXIT.call_once(|| _ = atexit(write_books));
        Ok(())
    }

    fn cuDriverGetVersion(machine, out: Out<c_int>) {
        out.give(machine.scenario.driver)
    }

    fn cuGetErrorName(_machine, code: Code, out: Out<*const c_char>) {
        let (name, _) = describe(code).ok_or(INVALID_VALUE)?;
        out.give(name.as_ptr())
    }

    fn cuGetErrorString(_machine, code: Code, out: Out<*const c_char>) {
        let (_, text) = describe(code).ok_or(INVALID_VALUE)?;
        out.give(text.as_ptr())
    }
}

/// Refuses a scenario in which a function fails that the driver does not have.
fn check_names(machine: &Machine) -> Answer {
    match machine.scenario.failures.keys().find(|name| *name != "*" && !is_function(name)) {
        None => Ok(()),
        Some(name) => {
            eprintln!("stand-in-cuda: the scenario says `fail {name}`, and the driver has no such function");
            Err(UNKNOWN)
        }
    }
}

extern "C" fn write_books() {
    if let Ok(machine) = &*machine() {
        machine.write_final_report();
    }
}
