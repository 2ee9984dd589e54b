//! Every shipped configuration over budgets from 5 to 80 GiB: what `optimize` writes fits, and more memory never hurts.

use std::path::{Path, PathBuf};
use std::sync::Mutex;

use plimsoll_config::choices::Task;
use plimsoll_config::{DeviceConfig, Loaded};
use plimsoll_core::{Bytes, Choice, Precision, Remat, Seconds};
use plimsoll_memory::{BackendRules, Demand, RunMemory, StateOption, StepMemory, operation_costs, trace};
use plimsoll_recipes::load;

use super::*;

/// Lists the shipped configurations of all tasks.
fn shipped() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../configs");
    let in_folder = |task: &Task| {
        let files = std::fs::read_dir(folder.join(task.as_str())).unwrap().map(|entry| entry.unwrap().path());
        files.filter(|path| path.extension().is_some_and(|extension| extension == "toml")).collect::<Vec<_>>()
    };
    let mut all = Task::ALL.iter().flat_map(in_folder).collect::<Vec<_>>();
    all.sort();
    all
}

fn loaded(path: &Path) -> Loaded {
    load(&ConfigArgs { config: Some(path.into()), ..ConfigArgs::default() }, std::iter::empty()).unwrap()
}

/// Checks one configuration over `budgets`, which rise.
fn check_configuration(path: &Path, budgets: &[Bytes]) {
    let builder = DemandBuilder::from_config(loaded(path).config).unwrap();
    with_trained!(builder, model => check_budgets(model, &builder, path, budgets));
}

fn check_budgets<S: Traceable + Sync>(subject: &S, builder: &DemandBuilder, path: &Path, budgets: &[Bytes]) {
    let mut free = builder.clone();
    Freedom::all(&builder.config).iter().for_each(|freedom| freedom.apply(&mut free.config));
    assert_eq!(Freedom::all(&free.config), []);
    let target = |budget: Bytes| targets(&[format!("{} B", budget.0)], &DeviceConfig::default()).unwrap().remove(0);
    let model = MemoryModel::new(subject, free.as_written(&target(budgets[0]))).unwrap();
    for builder in [builder, &free] {
        let mut before: Option<(f64, f64)> = None;
        for &budget in budgets {
            let target = target(budget);
            let name = format!("{} with {budget}", path.display());
            let plans = builder.plans(&model, &target).unwrap();
            if let Ok(plan) = plans.used() {
                assert!(plan.peak <= budget && plan.buckets.iter().all(|bucket| bucket.peak <= plan.peak), "{name}");
            }
            let seconds = |plan: &Result<Plan, PlanError>| plan.as_ref().map_or(f64::INFINITY, Plan::seconds);
            let now = (seconds(&plans.as_written), seconds(&plans.at_best));
            assert!(now.1 <= now.0 * 1.02, "{name}: {now:?}");
            if let Some(before) = before {
                assert!(now.0 <= before.0 * 1.02 && now.1 <= before.1 * 1.02, "{name}: {before:?} and then {now:?}");
            }
            before = Some(now);
            check_optimize(builder, &model, &target, (path, &plans));
            check_use(&model, &plans, &name);
        }
    }
}

/// Checks that `optimize` writes a configuration that is planned as it promised, unless nothing fits.
fn check_optimize<S: Traceable + Sync>(
    builder: &DemandBuilder,
    model: &MemoryModel<'_, S>,
    target: &Target,
    (path, plans): (&Path, &plimsoll_recipes::demand::TargetPlans),
) {
    let found = smallest_change(builder, std::slice::from_ref(target), &[model]).unwrap();
    let Ok(Optimized { plans: planned, changes }) = found else {
        assert!(plans.used().is_err(), "{}: optimize gives up on what fits", path.display());
        return;
    };
    assert_eq!(changes.is_empty(), plans.as_written.is_ok());
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("less.toml");
    std::fs::write(
        &file,
        edited(&to_toml(&Loaded { config: builder.config.clone(), ..loaded(path) }), &changes, "optimize").unwrap(),
    )
    .unwrap();
    let written = DemandBuilder::from_config(loaded(&file).config).unwrap();
    let again = written.plan_as_written(model, target).unwrap();
    assert_eq!(again.as_ref(), planned.first(), "{}", path.display());
    assert_eq!(written.shapes, builder.shapes, "the effective batch changed");
}

/// Checks that the best plan uses its budget at the longest length: the next faster way to compute it would need more
/// than 92 % of the budget.
fn check_use<S: Traceable + Sync>(
    model: &MemoryModel<'_, S>,
    plans: &plimsoll_recipes::demand::TargetPlans,
    name: &str,
) {
    let Ok(plan) = &plans.at_best else { return };
    let Some(worst) = plan.buckets.iter().max_by_key(|bucket| bucket.bucket.frames) else { return };
    if worst.accumulation == 1 || plan.state != model.demand().options.states[0] {
        return;
    }
    let more = worst.bucket.utterances.div_ceil(worst.accumulation - 1);
    let peak = model.estimate(worst.bucket, more, worst.choice).unwrap().peak;
    assert!(peak.0 as f64 > 0.92 * plan.budget.0 as f64, "{name}: {more} at once would need {peak}, {worst:?}");
}

/// Checks all shipped configurations over `count` budgets, on two threads.
fn check_all(count: u64) {
    let (first, last) = (Bytes::gib(5).0, Bytes::gib(80).0);
    let budgets: Vec<Bytes> = (0..count).map(|part| Bytes(first + (last - first) * part / (count - 1))).collect();
    let waiting = Mutex::new(shipped());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let Some(path) = waiting.lock().unwrap().pop() else { break };
                    check_configuration(&path, &budgets);
                }
            });
        }
    });
}

#[test]
fn long_optimized_configurations_fit_and_more_memory_never_hurts() {
    check_all(40);
}

#[test]
fn optimized_configurations_fit_in_tight_and_in_large_budgets() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../configs");
    let budgets = [5, 7, 9, 24].map(Bytes::gib);
    check_configuration(&folder.join("asr/konkani_small.toml"), &budgets);
}

/// Validation attends for 256 queries at a time, so long recordings refuse no small budget.
#[test]
fn recordings_of_two_minutes_fit_3_gib_and_more() {
    check_two_minutes(&[6, 12, 24]);
}

#[test]
fn long_recordings_of_two_minutes_fit_every_half_gib_from_3_on() {
    check_two_minutes(&(6..=24).collect::<Vec<_>>());
}

/// Checks plans for recordings of two minutes within budgets of these halves of a GiB.
fn check_two_minutes(halves: &[u64]) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../configs/asr/konkani_base.toml");
    let mut config = loaded(&path).config;
    config.data.max_seconds = Seconds(120.0);
    let builder = DemandBuilder::from_config(config).unwrap();
    with_trained!(builder, model => check_long_recordings(model, &builder, halves));
}

/// Checks that `builder` is planned for budgets of these halves of a GiB, and that more memory slows no plan.
fn check_long_recordings<S: Traceable + Sync>(subject: &S, builder: &DemandBuilder, halves: &[u64]) {
    let target = |budget: Bytes| targets(&[format!("{} B", budget.0)], &DeviceConfig::default()).unwrap().remove(0);
    let model = MemoryModel::new(subject, builder.as_written(&target(Bytes::gib(3)))).unwrap();
    let mut before = f64::INFINITY;
    for budget in halves.iter().map(|halves| Bytes::mib(512 * halves)) {
        let plans = builder.plans(&model, &target(budget)).unwrap();
        let plan = plans.used().unwrap_or_else(|error| panic!("{budget}: {error}"));
        assert!(plan.peak <= budget, "{budget}: {}", plan.peak);
        let best = plans.at_best.as_ref().map_or(f64::INFINITY, Plan::seconds);
        assert!(best <= before * 1.02, "{budget}: {best} s after {before} s with less memory");
        before = best;
    }
}

/// Checks that the memory of a micro-batch follows from one recording for any number of utterances.
fn check_recording<S: Traceable + Sync>(subject: &S, builder: &DemandBuilder, path: &Path) {
    let target = targets(&["24GiB".to_string()], &DeviceConfig::default()).unwrap().remove(0);
    let shortest = builder.shapes[0];
    let demand = Demand { prefetch: 0, buckets: vec![shortest], ..builder.as_written(&target) };
    let (rules, step) = (demand.rules, demand.step);
    let choice =
        Choice { remat: demand.options.remat[0], precision: demand.options.precisions[0], ..Choice::default() };
    let model = MemoryModel::new(subject, demand).unwrap();
    for utterances in [3, 20] {
        let bucket = shortest.with_utterances(utterances);
        let step = StepMemory { state_bits: StateOption::FULL.bits, ..step };
        let exact = RunMemory::new(&trace(subject, bucket, choice, rules).unwrap(), None, step).peak().0 as f64;
        let known = model.run_memory(bucket, utterances, choice, StateOption::FULL).unwrap().0.peak().0 as f64;
        assert!((0.999..1.02).contains(&(known / exact)), "{}: {known} for {exact}", path.display());
    }
}

#[test]
fn one_recording_stands_for_every_batch_of_the_shipped_models() {
    for path in shipped() {
        let builder = DemandBuilder::from_config(loaded(&path).config).unwrap();
        with_trained!(builder, model => check_recording(model, &builder, &path));
    }
}

/// Counts the tensors that are copied to a GPU for a micro-batch of the shortest length.
fn uploads<S: Traceable>(subject: &S, builder: &DemandBuilder, remat: Remat) -> u64 {
    let shape = builder.shapes[0].with_utterances(3);
    let choice = Choice { remat, precision: Precision::Bf16, ..Choice::default() };
    let costs = operation_costs(subject, shape, choice, BackendRules::cuda()).unwrap();
    costs.iter().find(|cost| cost.name == "upload").map_or(0, |cost| cost.count)
}

#[test]
fn few_tensors_are_copied_to_a_gpu_for_a_micro_batch() {
    for path in shipped() {
        let builder = DemandBuilder::from_config(loaded(&path).config).unwrap();
        let uploads =
            [Remat::None, Remat::All].map(|remat| with_trained!(builder, model => uploads(model, &builder, remat)));
        // Their number does not grow with the layers. A vocoder has tables for each resolution of its discriminators and losses.
        let most = if builder.config.task == Task::Vocoder { 24 } else { 20 };
        assert!(uploads.iter().all(|uploads| *uploads <= most), "{}: {uploads:?}", path.display());
    }
}
