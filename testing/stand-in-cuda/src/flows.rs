//! Which parameters a kernel writes through, as far as its PTX shows.
//!
//! Every register has the set of parameters that its value may come from, in any order of the instructions. The sets
//! grow until nothing changes. A store through an address that comes from a parameter writes through it.

use std::collections::{BTreeSet, HashMap};

type Parameters = BTreeSet<usize>;

/// Instruction: the registers whose values it takes, the one that it sets, and the address of a store.
struct Instruction<'a> {
    target: Option<&'a str>,
    sources: Vec<&'a str>,
    parameters: Parameters,
    /// Registers of the first address, if it stores there.
    stored: Vec<&'a str>,
}

/// Returns the numbers of the parameters that a kernel writes through. `body` begins after its first brace.
pub(crate) fn written_parameters(kernel: &str, body: &str) -> Parameters {
    let prefix = format!("{kernel}_param_");
    let instructions: Vec<Instruction<'_>> = body.split(';').map(|text| instruction(text, &prefix)).collect();
    let mut origins: HashMap<&str, Parameters> = HashMap::new();
    let mut grows = true;
    while grows {
        grows = false;
        for one in &instructions {
            let Some(target) = one.target else { continue };
            let mut found = one.parameters.clone();
            one.sources.iter().filter_map(|source| origins.get(source)).for_each(|set| found.extend(set));
            let known = origins.entry(target).or_default();
            let n_known = known.len();
            known.extend(found);
            grows |= known.len() > n_known;
        }
    }
    let stored = instructions.iter().flat_map(|one| &one.stored);
    stored.filter_map(|register| origins.get(register)).flatten().copied().collect()
}

/// Reads an instruction.
fn instruction<'a>(text: &'a str, prefix: &str) -> Instruction<'a> {
    let text = from_operation(text);
    let operation = text.split_whitespace().find(|word| !word.starts_with('@')).unwrap_or_default();
    let stores = |start: &&str| operation.starts_with(*start);
    let is_copy = operation.starts_with("cp.") && operation.contains(".global.shared");
    let operands = text.split_once(operation).map_or("", |(_, operands)| operands).trim_start();
    let addresses: Vec<&str> =
        operands.split('[').skip(1).map(|part| part.split(']').next().unwrap_or_default()).collect();
    let mut all = registers(operands);
    let target = if operands.starts_with('[') { None } else { all.next() };
    let parameters = addresses.iter().filter_map(|address| parameter(address, prefix)).collect();
    let is_store = is_copy || ["st.", "atom", "red."].iter().any(stores);
    let address = addresses.first().filter(|_| is_store);
    let stored = address.map_or_else(Vec::new, |address| registers(address).collect());
    Instruction { target, sources: all.collect(), parameters, stored }
}

/// Leaves labels, directives and the braces of scopes out, which stand before an instruction.
fn from_operation(text: &str) -> &str {
    let mut rest = text.trim_start();
    loop {
        let line = rest.lines().next().unwrap_or_default();
        let is_label = line.trim_end().ends_with(':') && !line.trim_end().contains(' ');
        // A directive such as `.loc` has no semicolon and ends with its line.
        let is_directive = rest.starts_with('.') && rest.len() > line.len();
        rest = if rest.starts_with(['{', '}']) {
            rest[1..].trim_start()
        } else if is_label || is_directive {
            rest[line.len()..].trim_start()
        } else {
            return rest;
        };
    }
}

fn registers(text: &str) -> impl Iterator<Item = &str> {
    text.match_indices('%').map(|(start, _)| {
        let rest = &text[start + 1..];
        let end = rest.find(|char: char| !char.is_ascii_alphanumeric() && !"_$".contains(char)).unwrap_or(rest.len());
        &text[start..=start + end]
    })
}

/// Returns the number of the parameter that an address such as `add_param_2+8` is in.
fn parameter(address: &str, prefix: &str) -> Option<usize> {
    let rest = address.trim().strip_prefix(prefix)?;
    let end = rest.find(|char: char| !char.is_ascii_digit()).unwrap_or(rest.len());
    rest[..end].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(body: &str, expected: &[usize]) {
        let found: Vec<usize> = written_parameters("k", body).into_iter().collect();
        assert_eq!(found, expected, "{body}");
    }

    #[test]
    fn stores_are_followed_to_their_parameters() {
        let load = "ld.param.u64 %rd1, [k_param_0];\n ld.param.u64 %rd2, [k_param_1];\n";
        let code = "cvta.to.global.u64 %rd3, %rd2;\n mul.wide.u32 %rd4, %r1, 4;\n add.s64 %rd5, %rd3, %rd4;\n";
        check(&format!("{load}{code} ld.global.f32 %f1, [%rd1];\n st.global.f32 [%rd5], %f1;\n ret;"), &[1]);
        check(&format!("{load}{code} ld.global.f32 %f1, [%rd5];\n st.shared.f32 [%r9], %f1;\n ret;"), &[]);
        check(&format!("{load}$L_1:\n @%p1 st.global.v2.f32 [%rd1+8], {{%f1, %f2}};"), &[0]);
        check(&format!("{load} atom.global.add.f32 %f1, [%rd2], %f2;"), &[1]);
        check(&format!("{load} red.global.add.f32 [%rd2], %f2;"), &[1]);
    }

    #[test]
    fn loops_and_structures_are_followed() {
        check("$L:\n st.global.u32 [%rd1], %r1;\n add.s64 %rd1, %rd2, 4;\n ld.param.u64 %rd2, [k_param_3+16];", &[3]);
        check("{\n .reg .b64 %t;\n ld.param.u64 %t, [k_param_2];\n st.global.u32 [%t], 0;\n}", &[2]);
        check(
            ".loc 1 2 3\n ld.param.v2.u64 {%a, %b}, [k_param_1];\n selp.b64 %c, %a, %b, %p;\n st.global.u8 [%c], 0;",
            &[1],
        );
        check("ld.param.u64 %rd2, [other_param_3];\n st.global.u32 [%rd2], %r1;", &[]);
    }
}
