//! Checks that no two files of a crate import each other, directly or through others.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::house::House;
use super::module_tree::{Edges, ModuleTree};
use super::{Finding, Weight};

const WEIGHT: Weight = Weight::Breaks;

/// Finds import circles among the files of each crate. A module and the modules around it may import each other.
pub(super) fn among_files(house: &House) -> Vec<Finding> {
    let mut findings = Vec::new();
    for root in house.rust().map(|file| file.path.as_str()).filter(|path| is_root(path)) {
        let tree = ModuleTree::read(house, root);
        let edges = tree.edges();
        for circle in circles(&edges) {
            findings.push(finding(&tree.files, &edges, &circle, root));
        }
    }
    findings
}

/// Returns whether `path` is the root file of a library, of a program, or of one of several programs.
fn is_root(path: &str) -> bool {
    let parts: Vec<&str> = path.trim_start_matches("crates/").split('/').collect();
    matches!(parts[..], [_, "src", "lib.rs" | "main.rs"] | [_, "src", "bin", _])
}

/// Finds every set of files that reach each other through imports. A file is named by its index.
fn circles(edges: &Edges) -> Vec<BTreeSet<usize>> {
    let mut next = BTreeMap::<usize, Vec<usize>>::new();
    for (from, to) in edges.keys() {
        next.entry(*from).or_default().push(*to);
    }
    let reached: BTreeMap<usize, BTreeSet<usize>> = next.keys().map(|from| (*from, reach(&next, *from))).collect();
    let mut circles = BTreeSet::new();
    for (from, others) in &reached {
        if others.contains(from) {
            let back = |other: &&usize| reached.get(other).is_some_and(|back| back.contains(from));
            circles.insert(others.iter().filter(back).copied().collect::<BTreeSet<usize>>());
        }
    }
    circles.into_iter().collect()
}

fn reach(next: &BTreeMap<usize, Vec<usize>>, from: usize) -> BTreeSet<usize> {
    let (mut found, mut open) = (BTreeSet::new(), vec![from]);
    while let Some(at) = open.pop() {
        open.extend(next.get(&at).into_iter().flatten().filter(|to| found.insert(**to)));
    }
    found
}

/// Finds the shortest way along imports, through files of the circle, that ends at the file where it begins.
fn shortest(edges: &Edges, circle: &BTreeSet<usize>) -> Vec<usize> {
    let ways = circle.iter().filter_map(|start| way_back(edges, circle, *start));
    ways.min_by_key(Vec::len).expect("every file of a circle has a way back")
}

fn way_back(edges: &Edges, circle: &BTreeSet<usize>, start: usize) -> Option<Vec<usize>> {
    let (mut seen, mut open) = (BTreeSet::new(), VecDeque::from([vec![start]]));
    while let Some(way) = open.pop_front() {
        let at = *way.last()?;
        for (_, to) in edges.keys().filter(|(from, to)| *from == at && circle.contains(to)) {
            if *to == start {
                return Some(way);
            }
            if seen.insert(*to) {
                open.push_back(way.iter().copied().chain([*to]).collect());
            }
        }
    }
    None
}

/// Makes the finding about a circle of imports: its shortest way, with lines, and the list of all its files if the way
/// leaves some out.
fn finding(files: &[String], edges: &Edges, circle: &BTreeSet<usize>, root: &str) -> Finding {
    let folder = root.rsplit_once('/').map_or("", |(folder, _)| folder);
    let short = |file: usize| files[file].strip_prefix(folder).unwrap_or(&files[file]).trim_start_matches('/');
    let way = shortest(edges, circle);
    let line = |place: usize| edges[&(way[place], way[(place + 1) % way.len()])];
    let mut steps: Vec<String> = (0..way.len()).map(|place| format!("{}:{}", short(way[place]), line(place))).collect();
    steps.push(short(way[0]).to_owned());
    let mut message = format!("files import each other: {}", steps.join(" -> "));
    if circle.len() > way.len() {
        let all: Vec<&str> = circle.iter().map(|file| short(*file)).collect();
        message.push_str(&format!("; the whole circle has {} files: {}", all.len(), all.join(", ")));
    }
    Finding::new(WEIGHT, &files[way[0]], line(0), message)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares the import circles of one crate, made of `(path in src, text)`, with the messages in `expected`.
    fn check(files: &[(&str, &str)], expected: &[&str]) {
        let files = files.iter().map(|(path, text)| (format!("crates/x/src/{path}"), (*text).to_owned()));
        let house = House::of(files).expect("there is no manifest to read");
        let found: Vec<String> = among_files(&house).iter().map(|finding| finding.message.clone()).collect();
        let expected: Vec<String> = expected.iter().map(|steps| format!("files import each other: {steps}")).collect();
        assert_eq!(found, expected, "{:?}", house.files.iter().map(|file| &file.text).collect::<Vec<_>>());
    }

    const AB: (&str, &str) = ("lib.rs", "mod a;\nmod b;\n");
    const A_B_A: &str = "a.rs:1 -> b.rs:1 -> a.rs";

    #[test]
    fn finds_two_files_that_import_each_other() {
        check(&[AB, ("a.rs", "use crate::b::B;"), ("b.rs", "use crate::a::A;")], &[A_B_A]);
        check(&[AB, ("a.rs", "use super::b::B;"), ("b.rs", "fn f() { crate::a::g(); }")], &[A_B_A]);
        check(
            &[AB, ("a.rs", "use crate::{c::D, b::{self, E}};"), ("b.rs", "use crate::a; fn f() { a::g(); }")],
            &[A_B_A],
        );
        check(&[AB, ("a.rs", "use crate::b::B;"), ("b.rs", "use std::a::A;")], &[]);
        check(&[AB, ("a.rs", "use crate::b::B;"), ("b.rs", "use crate::b::A;")], &[]);
    }

    #[test]
    fn finds_longer_circles_and_their_shortest_way() {
        let lib = ("lib.rs", "mod a;\nmod b;\nmod c;\n");
        let b = ("b.rs", "//! B.\n\nuse crate::c::C;");
        check(
            &[lib, ("a.rs", "use crate::b::B;"), b, ("c.rs", "use crate::a::A;")],
            &["a.rs:1 -> b.rs:3 -> c.rs:1 -> a.rs"],
        );
        check(
            &[lib, ("a.rs", "use crate::b::B;"), b, ("c.rs", "use crate::{a::A, b::B};")],
            &["b.rs:3 -> c.rs:1 -> b.rs; the whole circle has 3 files: a.rs, b.rs, c.rs"],
        );
    }

    #[test]
    fn sees_through_faces() {
        let lib = ("lib.rs", "mod a;\nmod b;\npub use b::B;\nuse a::A as Alpha;\nfn own() {}\n");
        check(&[lib, ("a.rs", "use crate::B;"), ("b.rs", "use super::Alpha;")], &[A_B_A]);
        check(&[lib, ("a.rs", "use crate::B;"), ("b.rs", "use crate::own;")], &[]);
        let face = ("b/mod.rs", "mod c;\nmod d;\npub use c::C;\npub use d::*;\n");
        let c = ("b/c.rs", "use crate::a::A;");
        let d = ("b/d.rs", "pub struct D;");
        check(&[AB, face, d, ("a.rs", "use crate::b::C;"), c], &["a.rs:1 -> b/c.rs:1 -> a.rs"]);
        check(&[AB, face, d, ("a.rs", "use crate::b; fn f() { b::C::new(); }"), c], &["a.rs:1 -> b/c.rs:1 -> a.rs"]);
        check(&[AB, face, d, ("a.rs", "use crate::b::D;"), c], &[]);
    }

    #[test]
    fn lets_a_parent_and_its_children_import_each_other() {
        let lib = ("lib.rs", "mod a;\nuse a::b::B;\nfn own() {}\n");
        let a = ("a.rs", "mod b;\nmod c;\nuse b::B;\nuse crate::own;");
        check(&[lib, a, ("a/b.rs", "use super::A; use crate::own;"), ("a/c.rs", "use super::super::own;")], &[]);
        check(&[lib, a, ("a/b.rs", "use super::c::C;"), ("a/c.rs", "use super::A;")], &[]);
        check(
            &[lib, a, ("a/b.rs", "use super::c::C;"), ("a/c.rs", "use super::B;")],
            &["a/b.rs:1 -> a/c.rs:1 -> a/b.rs"],
        );
    }

    #[test]
    fn follows_imports_of_everything() {
        let b = ("b.rs", "use crate::a::A; pub struct B;");
        check(&[AB, ("a.rs", "use crate::b::*;\nfn f(b: B) {}"), b], &["a.rs:2 -> b.rs:1 -> a.rs"]);
        check(&[AB, ("a.rs", "use crate::b::*;\nfn f() { B::new(); }"), b], &["a.rs:2 -> b.rs:1 -> a.rs"]);
        check(&[AB, ("a.rs", "use crate::b::*;\nfn f() {}"), b], &[]);
    }

    #[test]
    fn knows_inline_modules_and_paths() {
        let a = ("a.rs", "mod inner { use super::super::b::B; }");
        check(&[AB, a, ("b.rs", "use crate::a::inner::I;")], &[A_B_A]);
        let lib = ("lib.rs", "mod a;\n#[path = \"other/b.rs\"]\nmod b;\n");
        check(
            &[lib, ("a.rs", "use crate::b::B;"), ("other/b.rs", "use crate::a::A;")],
            &["a.rs:1 -> other/b.rs:1 -> a.rs"],
        );
    }

    #[test]
    fn leaves_tests_out() {
        check(&[AB, ("a.rs", "use crate::b::B;"), ("b.rs", "#[cfg(test)]\nmod tests { use crate::a::A; }")], &[]);
        let lib = ("lib.rs", "mod a;\n#[cfg(test)]\nmod b;\n");
        check(&[lib, ("a.rs", "use crate::b::B;"), ("b.rs", "use crate::a::A;")], &[]);
    }

    #[test]
    fn a_library_and_a_program_are_two_crates() {
        let program = ("main.rs", "use x::a::A;");
        check(&[AB, program, ("a.rs", "use crate::b::B;"), ("b.rs", "")], &[]);
    }
}
