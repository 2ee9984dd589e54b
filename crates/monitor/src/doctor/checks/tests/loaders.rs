//! Tests of the check of the speed of loading.

use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::doctor::check::CheckStatus::{Pass, Skip, Warn};

#[test]
fn loading_is_judged_by_what_training_needs() {
    let check = |given, needed, status, part: &str| expect(&LoaderFacts { given, needed }.judge(), status, part);
    check(1000.0, 200.0, Pass, "gives 1000x real time, and training needs 200x real time: 5.00 times as much");
    check(250.0, 200.0, Pass, "1.25 times as much");
    check(210.0, 200.0, Warn, "long batches make it wait");
    check(150.0, 200.0, Warn, "training waits about 25 % of its time");
    check(0.0, 200.0, Skip, "not measured");
    check(f64::NAN, 200.0, Skip, "not measured");
    check(100.0, f64::INFINITY, Skip, "not measured");
}

#[test]
fn the_program_measures_within_the_check() {
    let report = crate::doctor::Doctor::new()
        .with(Check::loader(|context| {
            assert!(!context.remaining().is_zero());
            Ok(LoaderFacts { given: 3.0, needed: 1.0 })
        }))
        .run(|_| {});
    assert_eq!((report.checks[0].id.as_str(), report.checks[0].outcome.status), ("loader", Pass));
    let skipped = Check::loader(|_| Err("there is no corpus".into())).with_limit(Duration::from_secs(60));
    let report = crate::doctor::Doctor::new().with(skipped).run(|_| {});
    expect(&report.checks[0].outcome, Skip, "there is no corpus");
}

proptest! {
    #[test]
    fn more_speed_is_never_worse(given in 1e-3..1e6_f64, more in 1.0..10.0_f64, needed in 1e-3..1e6_f64) {
        let judge = |given| LoaderFacts { given, needed }.judge();
        prop_assert!(judge(given).status >= judge(given * more).status);
        prop_assert_eq!(judge(given).details["needed_audio_seconds_per_second"].as_f64(), Some(needed));
    }
}
