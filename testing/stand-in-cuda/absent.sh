#!/bin/sh
# Writes src/exports/absent.rs: the functions of the driver that cudarc names and this library does not have.
#
#     ./absent.sh PATH_OF_CUDARC/src/driver/sys/mod.rs
cd "$(dirname "$0")" || exit 1
ours=$(mktemp) && theirs=$(mktemp) || exit 1
grep -rhoE --exclude=absent.rs 'fn cu[A-Z]\w*' src/exports | sed 's/^fn //' | sort -u >"$ours"
grep -oE 'pub unsafe fn cu[A-Z]\w*' "$1" | sed 's/.* //' | sort -u >"$theirs"
{
    cat <<'END'
//! The functions of the driver that the library does not have. Written by `absent.sh`.

use std::collections::BTreeSet;
use std::sync::Mutex;

use super::call;
use crate::errors::{Code, NOT_SUPPORTED};

/// Functions that were named on stderr.
static NAMED: Mutex<BTreeSet<&str>> = Mutex::new(BTreeSet::new());

/// Names a function on stderr the first time, and fails.
fn fail(function: &'static str) -> Code {
    call(function, |_| {
        if NAMED.lock().is_ok_and(|mut named| named.insert(function)) {
            eprintln!("stand-in-cuda: {function} is not supported");
        }
        Err(NOT_SUPPORTED)
    })
}

macro_rules! absent {
    ($($name:ident)+) => {
        $(
            #[unsafe(no_mangle)]
            extern "C" fn $name() -> Code {
                fail(stringify!($name))
            }
        )+

        /// Names of the functions.
        pub(super) const NAMES: &[&str] = &[$(stringify!($name)),+];
    };
}

absent! {
END
    comm -13 "$ours" "$theirs" | tr '\n' ' ' | fold -s -w 112 | sed 's/ *$//; s/^/    /'
    printf '\n}\n'
} >src/exports/absent.rs
echo "$(comm -12 "$ours" "$theirs" | wc -l) of $(wc -l <"$theirs") functions are there"
rm -f "$ours" "$theirs"
