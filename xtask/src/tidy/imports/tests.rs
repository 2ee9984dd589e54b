//! Tests of the parser of imports on small sources.

use super::*;

fn uses(source: &str) -> Vec<String> {
    let written = |found: &Use| {
        let star = if found.glob { "::*" } else { "" };
        format!("{}{star} as {}", found.path.join("::"), found.name.as_deref().unwrap_or("_"))
    };
    read(source).uses.iter().map(written).collect()
}

fn paths(source: &str) -> Vec<String> {
    read(source).paths.iter().map(|(path, line)| format!("{} {line}", path.join("::"))).collect()
}

#[test]
fn reads_trees_of_imports() {
    assert_eq!(
        uses("use a::b::{C, d::E, f::{self, G as H}, i::*};"),
        ["a::b::C as C", "a::b::d::E as E", "a::b::f as f", "a::b::f::G as H", "a::b::i::* as _",]
    );
    assert_eq!(uses("pub(crate) use super::a as b; use c::T as _;"), ["super::a as b", "c::T as _"]);
    assert_eq!(uses("fn f() -> impl Fn() + use<'a> {}"), [""; 0]);
    let public: Vec<bool> =
        read("pub use a::B; pub(crate) use a::C; use a::D;").uses.iter().map(|u| u.public).collect();
    assert_eq!(public, [true, false, false]);
}

#[test]
fn reads_paths_in_code() {
    let source = "fn f() {\n    crate::a::b(super::C::<u8>::new());\n    format!(\"{}\", d::e());\n}\n";
    assert_eq!(paths(source), ["crate::a::b 2", "super::C 2", "d::e 3"]);
    assert_eq!(paths("fn f(x: ::std::io::Error, y: <T as a::B>::C) {}"), ["a::B 1"]);
    assert_eq!(paths("// a::b\nconst X: &str = \"c::d\"; pub(in crate::e) fn f() {}"), [""; 0]);
}

#[test]
fn reads_items_and_modules() {
    let body = read(
        "pub const fn a() {}\nconst B: u8 = 1;\nstruct C;\nimpl C { fn not() {} }\nmacro_rules! d { () => {} }\n\
         mod e;\npub mod f { use super::a; fn g() {} }\n#[path = \"other.rs\"]\nmod h;\n",
    );
    assert_eq!(body.items.iter().map(String::as_str).collect::<Vec<_>>(), ["B", "C", "a", "d"]);
    let modules: Vec<_> = body.modules.iter().map(|module| (module.name.as_str(), module.public)).collect();
    assert_eq!(modules, [("e", false), ("f", true), ("h", false)]);
    assert_eq!(body.modules[1].inline.as_ref().map(|inner| inner.uses.len()), Some(1));
    assert_eq!(body.modules[2].path.as_deref(), Some("other.rs"));
}

#[test]
fn leaves_tests_out() {
    for source in [
        "#![cfg(test)]\nuse a::B;",
        "#[cfg(test)]\nuse a::{B, C};",
        "#[cfg(test)]\nmod tests { use a::B; fn f() { c::d(); } }",
        "#[test]\nfn f<A, B>() { c::d(); }",
        "#[cfg(test)]\n#[derive(Debug)]\nstruct S { a: c::D }",
        "#[cfg(test)]\nconst S: c::D = c::D { e: 1 };",
        "struct S { #[cfg(test)] a: c::D, }",
    ] {
        assert_eq!((uses(source), paths(source)), (vec![], vec![]), "{source}");
    }
    let around = "#[cfg(test)]\nmod testing;\nuse a::B;\n#[cfg(test)]\nfn f() {}\nfn g() { c::d(); }\n";
    assert_eq!((uses(around), paths(around)), (vec!["a::B as B".to_owned()], vec!["c::d 6".to_owned()]));
    assert!(read(around).modules.is_empty());
}
