//! Checks that the public names of a library fit on one screen.

use super::house::House;
use super::imports::read;
use super::{Finding, Weight};

const WEIGHT: Weight = Weight::Breaks;

/// Maximum number of public names of a library: as many as a person looks through.
const NAMES_MAX: usize = 60;

/// Counts the names in the `pub use` lists and the `pub mod` lines of each library, except the program's library.
pub(super) fn lengths(house: &House) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in house.rust().filter(|file| is_face(&file.path)) {
        let body = read(&file.text);
        let n_uses = body.uses.iter().filter(|used| used.public).count();
        let n_names = n_uses + body.modules.iter().filter(|module| module.public).count();
        if n_names > NAMES_MAX {
            let message =
                format!("the face lists {n_names} names, more than {NAMES_MAX}: group them in public modules");
            findings.push(Finding::new(WEIGHT, &file.path, 1, message));
        }
    }
    findings
}

fn is_face(path: &str) -> bool {
    matches!(path.split('/').collect::<Vec<_>>()[..], ["crates", name, "src", "lib.rs"] if name != "plimsoll")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::check;

    #[test]
    fn a_face_fits_one_screen() {
        let names = |n_names: usize| (0..n_names).map(|name| format!("A{name}, ")).collect::<String>();
        let face = |n_names: usize| {
            let names = names(n_names - 1);
            format!("//! A.\npub mod a;\npub use a::{{{names}}};\nmod b;\nuse b::B;\npub(crate) use b::C;\n")
        };
        let path = "crates/a/src/lib.rs";
        let said = "crates/a/src/lib.rs:1: the face lists 61 names, more than 60: group them in public modules";
        check(lengths, &[(path, &face(60))], &[]);
        check(lengths, &[(path, &face(61))], &[said]);
        check(lengths, &[("crates/plimsoll/src/lib.rs", &face(61)), ("crates/a/src/b.rs", &face(61))], &[]);
    }
}
