//! Plans that were measured at earlier starts, for the next start of the same run on the same GPU.

use std::path::{Path, PathBuf};

use plimsoll_core::{Bytes, Key, replace_file};
use plimsoll_memory::Plan;
use plimsoll_monitor::Machine;
use plimsoll_monitor::doctor::KernelCache;
use serde::{Deserialize, Serialize};

use crate::device::TrainingDevice;
use crate::plan::RunPlan;
use crate::target::Target;
use crate::trained::trained_parts;

/// Most plans that are kept.
const PLANS_MAX: usize = 200;

/// Measured plans in the folder of the compiled kernels, for one run on one GPU.
#[derive(Debug)]
pub(super) struct MeasuredPlans {
    folder: PathBuf,
    /// All that decides how much memory a plan takes: program, model, training, GPU, driver.
    key: String,
}

/// A plan as a file holds it.
#[derive(Debug, Serialize, Deserialize)]
struct Kept {
    key: String,
    plan: Plan,
}

impl MeasuredPlans {
    /// Returns the plans of `run` on `device`; `None` if the program keeps nothing between its starts.
    pub(super) fn of(run: &RunPlan, device: &TrainingDevice, target: Option<&Target>) -> Option<Self> {
        if !run.config.device.kernel_cache {
            return None;
        }
        let driver = Machine::probe().driver;
        let gpu = target.map_or_else(|| device.name.clone(), Target::name);
        let (training, config) = (&run.training, &run.config);
        let key = serde_json::to_string(&(
            (run.version, run.commit, gpu, driver, cfg!(feature = "tuning"), cfg!(debug_assertions)),
            // Each environment of CubeCL has choices of its own.
            KernelCache::for_process().file,
            (&run.model, format!("{:?}", trained_parts(&config.training))),
            (training.optimizer, training.ema_decay, training.choice, config.training.debug),
            &config.device,
        ))
        .ok()?;
        Some(Self { folder: KernelCache::for_process().folder().join("measured"), key })
    }

    /// Returns the plan that was measured when the traces gave `traced`; `None` if none was, or it does not fit into the budget of
    /// `traced`.
    pub(super) fn find(&self, traced: &Plan) -> Option<Plan> {
        let (file, key) = self.file(traced);
        let kept: Kept = serde_json::from_slice(&std::fs::read(file).ok()?).ok()?;
        (kept.key == key && kept.plan.peak <= traced.budget).then_some(kept.plan)
    }

    /// Keeps `plan`, which was measured when the traces gave `traced`. A folder that cannot be written to is no failure.
    pub(super) fn keep(&self, traced: &Plan, plan: &Plan) {
        let (file, key) = self.file(traced);
        let kept = Kept { key, plan: plan.clone() };
        let written = std::fs::create_dir_all(&self.folder)
            .and_then(|()| replace_file(&file, |out| Ok(serde_json::to_writer(out, &kept)?)));
        if written.is_ok() {
            remove_oldest(&self.folder, PLANS_MAX);
        }
    }

    /// Returns the file for a plan that the traces gave, and the whole key. The budget does not count: the free memory of a GPU is
    /// another at each start.
    fn file(&self, traced: &Plan) -> (PathBuf, String) {
        let traced = Plan { budget: Bytes(0), ..traced.clone() };
        let key = format!("{} {}", self.key, serde_json::to_string(&traced).unwrap_or_default());
        let name = format!("{:016x}.json", Key::new(0).with(&key).bits());
        (self.folder.join(name), key)
    }
}

/// Removes the oldest files of `folder` until it has at most `most`.
fn remove_oldest(folder: &Path, most: usize) {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut files: Vec<_> =
        entries.filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path()))).collect();
    files.sort();
    let surplus = files.len().saturating_sub(most);
    // Another process may remove it at the same time.
    files.into_iter().take(surplus).for_each(|(_, file)| _ = std::fs::remove_file(file));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::training::measuring::tests::plan;

    #[test]
    fn a_plan_is_found_for_the_same_run_within_its_budget() {
        let folder = tempfile::tempdir().unwrap();
        let plans = |key: &str| MeasuredPlans { folder: folder.path().join("measured"), key: key.into() };
        let (traced, measured) = (plan(&[1000], 500), plan(&[900], 400));
        assert_eq!(plans("a").find(&traced), None);
        plans("a").keep(&traced, &measured);
        assert_eq!(plans("a").find(&traced), Some(measured.clone()));
        // Another model or GPU, another plan, and less free memory.
        assert_eq!(plans("b").find(&traced), None);
        assert_eq!(plans("a").find(&plan(&[1001], 500)), None);
        assert_eq!(plans("a").find(&Plan { budget: Bytes(measured.peak.0 - 1), ..traced.clone() }), None);
        assert_eq!(plans("a").find(&Plan { budget: measured.peak, ..traced.clone() }), Some(measured));
        // A damaged file is as none.
        std::fs::write(plans("a").file(&traced).0, "{").unwrap();
        assert_eq!(plans("a").find(&traced), None);
    }

    #[test]
    fn the_oldest_plans_go() {
        let folder = tempfile::tempdir().unwrap();
        for name in 0..6 {
            std::fs::write(folder.path().join(format!("{name}.json")), "x").unwrap();
        }
        remove_oldest(folder.path(), 4);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 4);
    }
}
