//! Colors of the owners of time, for pages.

use std::fmt::Write;
use std::sync::LazyLock;

use plimsoll_core::TimeOwner;

/// Colors of each owner on a light page and on a dark one. A new owner does not compile without them.
const COLORS: [(TimeOwner, &str, &str); TimeOwner::ALL.len()] = [
    (TimeOwner::Data, "#f08c1c", "#e88a24"),
    (TimeOwner::Transfer, "#35b0c6", "#2f9fb4"),
    (TimeOwner::Submit, "#79b8ea", "#6aa8da"),
    (TimeOwner::Compute, "#2f6fb0", "#3a7cc0"),
    (TimeOwner::Read, "#f2c53d", "#dcb233"),
    (TimeOwner::Optimizer, "#5ba0a0", "#518f8f"),
    (TimeOwner::Replicas, "#5f6f96", "#7787ad"),
    (TimeOwner::Checkpoint, "#5d3a94", "#7a55b8"),
    (TimeOwner::Validation, "#9f6bcb", "#c09ae0"),
    (TimeOwner::Compile, "#4f9d50", "#4c934d"),
    (TimeOwner::Retry, "#e0483e", "#dd4a44"),
    (TimeOwner::OtherProcess, "#8d6248", "#946a50"),
    (TimeOwner::Throttled, "#e0558f", "#d95a8e"),
    (TimeOwner::Record, "#a3a832", "#93982f"),
    (TimeOwner::Unknown, "#c4c8cc", "#555c62"),
];

/// Style sheet with the variables `--o-NAME`, by the names of the owners in records.
pub(crate) static OWNER_VARIABLES: LazyLock<String> = LazyLock::new(|| {
    let all = |color: fn(&(TimeOwner, &'static str, &'static str)) -> &'static str| {
        let variable = |row| format!("--o-{}: {};", row_name(row), color(row));
        COLORS.iter().map(variable).collect::<Vec<_>>().join(" ")
    };
    let (light, dark) = (all(|row| row.1), all(|row| row.2));
    format!(":root {{ {light} }}\n@media (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}\n")
});

/// Style sheet with a class for each owner, which sets the variable `--o`. The classes are numbers, which are short:
/// a page has thousands of bars.
pub(crate) static OWNER_CLASSES: LazyLock<String> = LazyLock::new(|| {
    let mut text = String::new();
    for row in &COLORS {
        let _ = writeln!(text, ".o{} {{ --o: var(--o-{}); }}", row.0 as usize, row_name(row));
    }
    let unknown = TimeOwner::Unknown as usize;
    let _ = writeln!(
        text,
        "rect.o{unknown} {{ fill: url(#hatch); }}\n\
         i.o{unknown} {{ background: repeating-linear-gradient(135deg, var(--o) 0 3px, var(--hatch) 3px 4px); }}\n\
         @media print {{ rect.o{unknown} {{ fill: var(--o); }} }}"
    );
    text
});

fn row_name(row: &(TimeOwner, &str, &str)) -> &'static str {
    row.0.name()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_owner_has_a_color_of_its_own() {
        assert_eq!(COLORS.map(|row| row.0), TimeOwner::ALL);
        let n_different = |colors: [&str; TimeOwner::ALL.len()]| colors.into_iter().collect::<BTreeSet<_>>().len();
        assert_eq!(n_different(COLORS.map(|row| row.1)), COLORS.len());
        assert_eq!(n_different(COLORS.map(|row| row.2)), COLORS.len());
        for owner in TimeOwner::ALL {
            let variable = format!("--o-{}", owner.name());
            assert_eq!(OWNER_VARIABLES.matches(&format!("{variable}:")).count(), 2, "{owner}");
            assert!(OWNER_CLASSES.contains(&format!(".o{} {{ --o: var({variable}); }}", owner as usize)), "{owner}");
        }
    }
}
