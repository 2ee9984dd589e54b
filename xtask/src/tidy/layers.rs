//! Checks that each crate depends only on the crates below it.

use super::Finding;
use super::house::House;

/// Layer of a crate, the workspace crates that it may depend on, and whether it may depend on Burn.
struct Place {
    package: &'static str,
    storey: u8,
    uses: &'static [&'static str],
    burn: bool,
}

const CORE: &str = "plimsoll-core";
const CONFIG: &str = "plimsoll-config";
const TAPE: &str = "plimsoll-tape";
const AUDIO: &str = "plimsoll-audio";
const TEXT: &str = "plimsoll-text";
const LANGUAGE: &str = "plimsoll-language";
const MPI: &str = "plimsoll-mpi";
const CORPUS: &str = "plimsoll-corpus";
const LAYERS: &str = "plimsoll-layers";
const DATA: &str = "plimsoll-data";
const MEMORY: &str = "plimsoll-memory";
const TRAIN: &str = "plimsoll-train";
const MONITOR: &str = "plimsoll-monitor";
const SPEECH: &str = "plimsoll-speech";

/// Every crate with its layer, as docs/ARCHITECTURE.md draws the layers. A change here is a design decision.
const HOUSE: &[Place] = &[
    Place { package: CORE, storey: 0, uses: &[], burn: false },
    Place { package: CONFIG, storey: 1, uses: &[CORE], burn: false },
    Place { package: TAPE, storey: 1, uses: &[CORE], burn: true },
    Place { package: AUDIO, storey: 1, uses: &[CORE], burn: false },
    Place { package: TEXT, storey: 1, uses: &[CORE], burn: false },
    Place { package: LANGUAGE, storey: 1, uses: &[CORE], burn: false },
    Place { package: MPI, storey: 1, uses: &[CORE], burn: false },
    Place { package: CORPUS, storey: 2, uses: &[CORE, AUDIO], burn: false },
    Place { package: DATA, storey: 3, uses: &[CORE, AUDIO, TEXT], burn: false },
    Place { package: LAYERS, storey: 3, uses: &[CORE, TAPE], burn: true },
    Place { package: MEMORY, storey: 3, uses: &[CORE, TAPE], burn: true },
    Place { package: TRAIN, storey: 3, uses: &[CORE, TAPE], burn: true },
    Place { package: MONITOR, storey: 3, uses: &[CORE], burn: false },
    Place {
        package: SPEECH,
        storey: 4,
        uses: &[CORE, TAPE, AUDIO, TEXT, LANGUAGE, DATA, LAYERS, MEMORY, TRAIN, MONITOR],
        burn: true,
    },
    Place {
        package: "plimsoll-recipes",
        storey: 5,
        uses: &[CORE, CONFIG, TAPE, AUDIO, TEXT, LANGUAGE, MPI, CORPUS, DATA, LAYERS, MEMORY, TRAIN, MONITOR, SPEECH],
        burn: true,
    },
    Place {
        package: "plimsoll",
        storey: 6,
        uses: &[
            CORE,
            CONFIG,
            TAPE,
            AUDIO,
            TEXT,
            LANGUAGE,
            MPI,
            CORPUS,
            DATA,
            LAYERS,
            MEMORY,
            TRAIN,
            MONITOR,
            SPEECH,
            "plimsoll-recipes",
        ],
        burn: true,
    },
    // Outside: it builds in seconds because it uses none of ours.
    Place { package: "xtask", storey: u8::MAX, uses: &[], burn: false },
];

/// Checks the dependencies in every manifest against the layers of the workspace.
pub(super) fn edges(house: &House) -> Vec<Finding> {
    let mut findings = Vec::new();
    for manifest in &house.manifests {
        let Some(place) = place_of(&manifest.package) else {
            let message = format!(
                "`{}` has no place in the house yet: give it one in xtask/src/tidy/layers.rs",
                manifest.package
            );
            findings.push(Finding::breaks(&manifest.path, 1, message));
            continue;
        };
        for dependency in &manifest.dependencies {
            if let Some(message) = place.objection(&dependency.name, dependency.dev) {
                findings.push(Finding::breaks(&manifest.path, dependency.line, message));
            }
        }
    }
    findings
}

fn place_of(package: &str) -> Option<&'static Place> {
    HOUSE.iter().find(|place| place.package == package)
}

impl Place {
    fn objection(&self, name: &str, dev: bool) -> Option<String> {
        let package = self.package;
        if (name == "burn" || name.starts_with("burn-")) && !self.burn {
            return Some(format!("`{package}` works without Burn, so it cannot depend on `{name}`"));
        }
        let other = place_of(name)?;
        // Tests may look further down than the code, but never sideways; a crate that uses none of ours tests with none.
        let allowed = self.uses.contains(&name) || (dev && !self.uses.is_empty() && other.storey < self.storey);
        if allowed {
            return None;
        }
        let uses = if self.uses.is_empty() { "none of our crates".to_owned() } else { self.uses.join(", ") };
        Some(format!("`{package}` cannot depend on `{name}`: it may use {uses}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::check as check_rule;

    fn check(package: &str, section: &str, dependency: &str, expected: Option<&str>) {
        let path = format!("crates/{}/Cargo.toml", package.trim_start_matches("plimsoll-"));
        let text = format!("[package]\nname = \"{package}\"\n[{section}]\n{dependency}.workspace = true\n");
        let expected: Vec<String> = expected.map(|message| format!("{path}:4: {message}")).into_iter().collect();
        let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
        check_rule(edges, &[(&path, &text)], &expected);
    }

    #[test]
    fn lets_dependencies_go_down() {
        for (package, dependency) in [
            ("plimsoll-tape", "plimsoll-core"),
            ("plimsoll-layers", "plimsoll-tape"),
            ("plimsoll-memory", "burn"),
            ("plimsoll-speech", "plimsoll-data"),
            ("plimsoll", "plimsoll-speech"),
            ("xtask", "toml"),
        ] {
            check(package, "dependencies", dependency, None);
        }
        check("plimsoll-data", "dev-dependencies", "plimsoll-tape", None);
    }

    #[test]
    fn stops_those_that_go_up_or_sideways() {
        let none = "it may use none of our crates";
        for (package, section, dependency, why) in [
            ("plimsoll-core", "dependencies", "plimsoll-tape", none),
            ("plimsoll-tape", "dependencies", "plimsoll-layers", "it may use plimsoll-core"),
            ("plimsoll-layers", "dependencies", "plimsoll-train", "it may use plimsoll-core, plimsoll-tape"),
            ("plimsoll-train", "dev-dependencies", "plimsoll-layers", "it may use plimsoll-core, plimsoll-tape"),
            ("plimsoll-audio", "dependencies", "plimsoll-text", "it may use plimsoll-core"),
            ("plimsoll-monitor", "build-dependencies", "plimsoll-speech", "it may use plimsoll-core"),
            ("plimsoll-core", "dev-dependencies", "xtask", none),
            ("xtask", "dependencies", "plimsoll-core", none),
            ("xtask", "dev-dependencies", "plimsoll-core", none),
        ] {
            let message = format!("`{package}` cannot depend on `{dependency}`: {why}");
            check(package, section, dependency, Some(&message));
        }
    }

    #[test]
    fn keeps_burn_out_of_what_works_without_it() {
        for package in ["plimsoll-core", "plimsoll-data", "plimsoll-monitor", "xtask"] {
            let message = format!("`{package}` works without Burn, so it cannot depend on `burn`");
            check(package, "dev-dependencies", "burn", Some(&message));
        }
    }

    #[test]
    fn asks_for_a_place_for_every_crate() {
        let manifest = ("crates/attic/Cargo.toml", "[package]\nname = \"plimsoll-attic\"\n");
        let expected = "crates/attic/Cargo.toml:1: `plimsoll-attic` has no place in the house yet: give it one in xtask/src/tidy/layers.rs";
        check_rule(edges, &[manifest], &[expected]);
    }
}
