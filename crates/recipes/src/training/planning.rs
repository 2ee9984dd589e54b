//! Plans a run: checks the configuration, reads the data, compares it with a checkpoint, and plans the memory.

use std::sync::Mutex;

use plimsoll_core::CountingAllocator;

use super::RunContext;
use super::folder::{self, RunFolder};
use super::resume::{Resume, ResumedRun, check_seed};
use crate::config::Loaded;
use crate::data::{self, Preparation, PreparedData};
use crate::device::TrainingDevice;
use crate::earlier::EarlierRun;
use crate::error::Failure;
use crate::memory::{MemoryRequest, target_for};
use crate::plan::RunPlan;
use crate::reporter::{Level, Reporter};
use crate::resolve::{self, Resumed};
use crate::target::Target;

/// A run that is planned but not started. Nothing is written yet, except for the built-in corpus if it is used.
pub struct PlannedRun<'a> {
    loaded: Loaded,
    /// Plan of the run. Its `Display` is the overview that people read before a run.
    pub plan: RunPlan,
    pub(super) prepared: PreparedData,
    device: TrainingDevice,
    memory: &'static CountingAllocator,
    reporter: &'a dyn Reporter,
    /// Folder of the run, if it is resumed.
    folder: Option<RunFolder>,
    /// Checkpoint of the run, if it is resumed and has one.
    resumed: Option<ResumedRun>,
}

impl<'a> PlannedRun<'a> {
    /// Plans the run of `loaded`: checks the configuration, reads the data, and plans the memory.
    ///
    /// `memory` counts the memory of the process, which is the planned memory on the CPU. To count everything, make it
    /// the global allocator of the program. `reporter` receives first the warnings of `loaded`, then the messages about
    /// data, then the messages about memory.
    ///
    /// # Errors
    /// If the configuration, the data or the device do not allow the run, or it does not fit into memory.
    pub fn new(
        loaded: Loaded,
        memory: &'static CountingAllocator,
        reporter: &'a dyn Reporter,
    ) -> Result<Self, Failure> {
        Self::plan(loaded, None, memory, reporter)
    }

    /// Plans to go on with the run in the folder of `resume`, with the tokens that its model knows.
    ///
    /// # Errors
    /// As for [`new`](Self::new), and if the run cannot go on from its checkpoint: because of another seed, other
    /// features or tokens, or changed data that `resume` refuses.
    pub fn resume(
        loaded: Loaded,
        resume: &Resume<'_>,
        memory: &'static CountingAllocator,
        reporter: &'a dyn Reporter,
    ) -> Result<Self, Failure> {
        Self::plan(loaded, Some(resume), memory, reporter)
    }

    fn plan(
        loaded: Loaded,
        resume: Option<&Resume<'_>>,
        memory: &'static CountingAllocator,
        reporter: &'a dyn Reporter,
    ) -> Result<Self, Failure> {
        // Before the plan, which takes a while.
        let folder = match resume {
            Some(resume) => Some(RunFolder::open(resume.folder)?),
            None => RunFolder::check_name(&loaded.config).map(|()| None)?,
        };
        if let Some(folder) = &folder {
            folder.check_config(&loaded.config)?;
        }
        let Planned { plan, prepared, device, resumed } = planned(&loaded, resume, Place::Here, memory, reporter)?;
        Ok(Self { loaded, plan, prepared, device, memory, reporter, folder, resumed })
    }

    /// Opens the folder of a resumed run, or creates the folder of a new run.
    ///
    /// # Errors
    /// If there is a run with the name of a new run, or its folder cannot be created.
    pub fn start(self) -> Result<RunContext<'a>, Failure> {
        let Self { loaded, plan, prepared, device, memory, reporter, folder, resumed } = self;
        let is_resumed = folder.is_some();
        let folder = match folder {
            Some(folder) => folder,
            None => RunFolder::create(&plan)?,
        };
        let id = resumed.as_ref().map_or_else(folder::new_identity, |resumed| resumed.earlier.id.clone());
        let (layers, placement) = (None, Mutex::default());
        Ok(RunContext {
            loaded,
            plan,
            prepared,
            folder,
            device,
            memory,
            reporter,
            resumed,
            is_resumed,
            id,
            layers,
            placement,
        })
    }
}

/// Plans a run as [`PlannedRun::new`] or [`PlannedRun::resume`] does, and writes nothing at all: of a built-in corpus
/// that does not exist, only texts and durations are computed. With `target` the plan is for that device, which need not
/// be in this machine.
///
/// # Errors
/// As for [`PlannedRun::resume`].
pub fn preview(
    loaded: &Loaded,
    resume: Option<&Resume<'_>>,
    target: Option<Target>,
    memory: &'static CountingAllocator,
    reporter: &dyn Reporter,
) -> Result<RunPlan, Failure> {
    if resume.is_none() {
        RunFolder::check_name(&loaded.config)?;
    }
    let place = Place::Dry(target);
    Ok(planned(loaded, resume, place, memory, reporter)?.plan)
}

/// Where a run is planned for.
enum Place {
    /// The device of this machine, on which it trains.
    Here,
    /// A plan that nothing is written for: of the named device, or of that of this machine.
    Dry(Option<Target>),
}

/// Parts of a planned run.
struct Planned {
    plan: RunPlan,
    prepared: PreparedData,
    device: TrainingDevice,
    resumed: Option<ResumedRun>,
}

/// Plans a run: checks the configuration, reads the data, compares it with a checkpoint, and plans the memory.
fn planned(
    loaded: &Loaded,
    resume: Option<&Resume<'_>>,
    place: Place,
    memory: &'static CountingAllocator,
    reporter: &dyn Reporter,
) -> Result<Planned, Failure> {
    for warning in &loaded.warnings {
        reporter.line(Level::Warning, &warning.to_string());
    }
    let config = &loaded.config;
    resolve::check(config)?;
    let (is_dry, named) = match place {
        Place::Here => (false, None),
        Place::Dry(named) => (true, named),
    };
    let device = match &named {
        Some(target) => TrainingDevice::for_planning(target),
        None => TrainingDevice::choose(&config.device)?,
    };
    let earlier = match resume {
        Some(resume) => EarlierRun::read(resume.folder, config.task)?,
        None => None,
    };
    if let Some(earlier) = &earlier {
        check_seed(earlier, config.seed)?;
    }
    let preparation = Preparation { earlier: earlier.as_ref(), is_dry };
    let prepared = data::prepare_as(config, preparation, reporter)?;
    let resumed = match (earlier, resume) {
        (Some(earlier), Some(resume)) => Some(ResumedRun::compare(earlier, resume.data_changed, &prepared, reporter)?),
        _ => None,
    };
    let from =
        resumed.as_ref().map(|resumed| Resumed { earlier: &resumed.earlier, restarts_epoch: resumed.restarts_epoch });
    let target = named.or_else(|| target_for(config, &device, resolve::lanes(config, &device)));
    let mut plan = resolve::resolve(config, &prepared, &device, target.as_ref(), from)?;
    let target = target.as_ref();
    let request = MemoryRequest { run: &plan, prepared: &prepared, target, process: memory, reporter };
    let memory_plan = request.plan()?;
    plan.set_memory(memory_plan);
    Ok(Planned { plan, prepared, device, resumed })
}
