//! `cargo xtask cuda setup`: makes what a build with CUDA and its runs need.

use std::process::ExitCode;

use anyhow::Result;

use super::bundle::State;
use super::facts::Facts;
use super::findings::{Finding, Status, judge};
use super::install::install;
use super::page;
use super::plan::{LibdeviceWay, LlvmWay, Means, Plan, Step, plan};

/// Settings of the command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wish {
    pub(super) llvm: LlvmWay,
    pub(super) libdevice: LibdeviceWay,
    pub(super) dry_run: bool,
    pub(super) json: bool,
}

/// Prints what will be done, does it, and checks the result. The exit code is 0 if LLVM and libdevice are ready, and 1
/// otherwise; the driver does not count, since a machine that only builds has none.
pub(super) fn run(wish: &Wish) -> Result<ExitCode> {
    let facts = Facts::read()?;
    let mut means = Means::here(&facts, wish.llvm);
    let plan = plan(&facts, wish.llvm, &wish.libdevice, &means);
    if !wish.json {
        print!("{}", text(&plan, &facts));
    }
    if wish.dry_run {
        if wish.json {
            println!("{}", json(&plan, &facts, &[], &judge(&facts)));
        }
        return Ok(if plan.blocked.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE });
    }
    let failed = execute(&plan.steps, &facts, wish, &mut means);
    let after = if plan.steps.is_empty() { facts.clone() } else { Facts::read()? };
    let findings = judge(&after);
    match wish.json {
        true => println!("{}", json(&plan, &facts, &failed, &findings)),
        false => {
            print!("\n{}", page::text(&findings));
            for error in &failed {
                println!("failed: {error}");
            }
        }
    }
    let is_ready = failed.is_empty() && plan.blocked.is_empty() && is_set_up(&after, &findings);
    Ok(if is_ready { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Does the steps in order and returns the errors. A download that fails gives way to the packages, if that is allowed.
fn execute(steps: &[Step], facts: &Facts, wish: &Wish, means: &mut Means) -> Vec<String> {
    let mut failed = Vec::new();
    let mut has_packages = true;
    for step in steps {
        // LLVM of Debian is of no use without the packages before it.
        if *step == Step::LlvmDebian && !has_packages {
            continue;
        }
        let Err(error) = install(step, facts) else { continue };
        has_packages &= !matches!(step, Step::Packages(_));
        failed.push(format!("{error:#}"));
        if *step != Step::LlvmDownload || wish.llvm != LlvmWay::Auto {
            continue;
        }
        means.download = false;
        let second = plan(facts, LlvmWay::Auto, &LibdeviceWay::Auto, means);
        let llvm: Vec<Step> =
            second.steps.into_iter().filter(|step| matches!(step, Step::Packages(_) | Step::LlvmDebian)).collect();
        if llvm.contains(&Step::LlvmDebian) {
            let first = failed.pop().unwrap_or_default();
            eprintln!("{first}\nthe download has failed; trying Debian's packages");
            failed.extend(execute(&llvm, facts, wish, means));
        }
    }
    failed
}

/// Returns whether what the setup is for is ready.
fn is_set_up(facts: &Facts, findings: &[Finding]) -> bool {
    let own = ["system", "compiler", "llvm", "libdevice"];
    let fails = |finding: &Finding| own.contains(&finding.name) && finding.status == Status::Fail;
    facts.bundle.state == State::Complete && !findings.iter().any(fails)
}

fn text(plan: &Plan, facts: &Facts) -> String {
    let mut text = String::new();
    for done in &plan.done {
        text.push_str(&format!("there already: {done}\n"));
    }
    for step in &plan.steps {
        text.push_str(&format!("to do: {}\n", step.about(facts)));
    }
    for blocked in &plan.blocked {
        text.push_str(&format!("not possible: {}\n  fix: {}\n", blocked.what, blocked.fix));
    }
    if plan.steps.is_empty() && plan.blocked.is_empty() {
        text.push_str("nothing to do\n");
    }
    text
}

fn json(plan: &Plan, facts: &Facts, failed: &[String], findings: &[Finding]) -> String {
    let texts = |key: &'static str, texts: Vec<String>| {
        let objects = texts.into_iter().map(|text| page::object(&[("what", &text)]));
        format!("\"{key}\": {}", page::list(objects))
    };
    let blocked = plan.blocked.iter().map(|it| page::object(&[("what", &it.what), ("fix", &it.fix)]));
    let parts = [
        texts("done", plan.done.clone()),
        texts("steps", plan.steps.iter().map(|step| step.about(facts)).collect()),
        format!("\"blocked\": {}", page::list(blocked)),
        texts("failed", failed.to_vec()),
        format!("\"findings\": {}", page::json(findings)),
    ];
    format!("{{\n{}\n}}", parts.join(",\n"))
}

#[cfg(test)]
mod tests {
    use super::super::findings_tests::machine;
    use super::super::plan::Blocked;
    use super::*;

    #[test]
    fn a_machine_without_a_driver_can_be_set_up() {
        let mut facts = machine(0);
        facts.driver = super::super::facts::Driver::default();
        assert!(is_set_up(&facts, &judge(&facts)));
        facts.libdevice.found = None;
        assert!(!is_set_up(&facts, &judge(&facts)));
        let mut facts = machine(1);
        facts.bundle.state = State::Missing;
        assert!(!is_set_up(&facts, &judge(&facts)));
    }

    #[test]
    fn the_plan_is_printed_whole() {
        let facts = machine(1);
        let plan = Plan {
            steps: vec![Step::LlvmDownload],
            done: vec!["one".into()],
            blocked: vec![Blocked { what: "two".into(), fix: "three".into() }],
        };
        let page = text(&plan, &facts);
        assert!(page.starts_with("there already: one\nto do: download LLVM 23.1.0 into "), "{page}");
        assert!(page.ends_with("not possible: two\n  fix: three\n"), "{page}");
        assert_eq!(text(&Plan::default(), &facts), "nothing to do\n");
        let json = json(&plan, &facts, &["four".into()], &[]);
        for part in [r#""done": ["#, r#"{"what": "two", "fix": "three"}"#, r#""findings": []"#] {
            assert!(json.contains(part), "{part}: {json}");
        }
    }
}
