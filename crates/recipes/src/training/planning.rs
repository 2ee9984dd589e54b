//! Plans a run: checks the configuration, reads the data, compares it with a checkpoint, and plans the memory.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use plimsoll_config::{Loaded, RunConfig, to_toml};
use plimsoll_core::CountingAllocator;

use super::folder::{self, RunFolder};
use super::record::RECORD;
use super::resume::{Resume, ResumedRun, check_seed};
use super::{RunContext, UnsavedSteps};
use crate::data::{self, Preparation, PreparedData};
use crate::device::{TrainingDevice, is_host};
use crate::earlier::EarlierRun;
use crate::error::{Failure, FailureExt};
use crate::memory::{MemoryRequest, target_for};
use crate::plan::RunPlan;
use crate::process_memory::InUse;
use crate::processes::Processes;
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
    /// Device that the memory was planned for; `None` if its memory is neither known nor limited.
    target: Option<Target>,
    /// Memory of the process before the model was made.
    in_use: InUse,
    reporter: &'a dyn Reporter,
    /// Folder of the run, if it is resumed.
    folder: Option<RunFolder>,
    /// Checkpoint of the run, if it is resumed and has one.
    resumed: Option<ResumedRun>,
    /// The processes that train the run.
    processes: Processes,
    is_resumed: bool,
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
        Self::in_processes(loaded, None, &Processes::alone(), memory, reporter)
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
        Self::in_processes(loaded, Some(resume), &Processes::alone(), memory, reporter)
    }

    /// Plans one process of a run that all of `processes` train, new or resumed. The first process prepares the data, and
    /// then the others read it.
    ///
    /// # Errors
    /// As for [`resume`](Self::resume), if another process cannot plan its part, or if the processes differ in program,
    /// configuration or data.
    pub fn in_processes(
        loaded: Loaded,
        resume: Option<&Resume<'_>>,
        processes: &Processes,
        memory: &'static CountingAllocator,
        reporter: &'a dyn Reporter,
    ) -> Result<Self, Failure> {
        let (is_resumed, mut loaded) = (resume.is_some(), Some(loaded));
        let planned = processes.first_then_others(|| {
            let loaded = loaded.take().expect("each process plans once");
            // Before the plan, which takes a while.
            let folder = match (resume, processes.is_first()) {
                (Some(resume), true) => Some(RunFolder::open(resume.folder)?),
                (Some(resume), false) => Some(RunFolder::beside(resume.folder.into())),
                (None, true) => RunFolder::check_name(&loaded.config).map(|()| None)?,
                (None, false) => None,
            };
            if let Some(folder) = &folder {
                folder.check_config(&loaded.config)?;
            }
            let place = Place::Here(processes);
            let Planned { plan, prepared, device, target, in_use, resumed } =
                planned(&loaded, resume, place, memory, reporter)?;
            let processes = processes.clone();
            Ok(Self {
                loaded,
                plan,
                prepared,
                device,
                memory,
                target,
                in_use,
                reporter,
                folder,
                resumed,
                processes,
                is_resumed,
            })
        })?;
        planned.check_equal()?;
        Ok(planned)
    }

    /// Checks that all processes train the same run.
    fn check_equal(&self) -> Result<(), Failure> {
        let Self { processes, prepared, loaded, plan, .. } = self;
        let data = serde_json::to_vec(&prepared.fingerprint).expect("a fingerprint is plain data");
        processes.check_equal("the version of the program", plan.version.as_bytes())?;
        processes.check_equal("the configuration", to_toml(loaded).as_bytes())?;
        processes.check_equal("the data", &data)
    }

    /// Opens the folder of a resumed run, or creates the folder of a new run.
    ///
    /// # Errors
    /// If there is a run with the name of a new run, or its folder cannot be created.
    pub fn start(self) -> Result<RunContext<'a>, Failure> {
        let Self {
            loaded,
            plan,
            prepared,
            device,
            memory,
            target,
            in_use,
            reporter,
            folder,
            resumed,
            processes,
            is_resumed,
        } = self;
        let folder = processes.together(match folder {
            Some(folder) => Ok(Some(folder)),
            None if processes.is_first() => RunFolder::create(&plan).map(Some),
            None => Ok(None),
        })?;
        // The first process names the run.
        let own = folder.as_ref().map(|folder| folder.path().to_path_buf()).unwrap_or_default();
        let id = resumed.as_ref().map_or_else(folder::new_identity, |resumed| resumed.earlier.id.clone());
        let named = processes.value_of_first(serde_json::to_vec(&(own, id)).failed()?)?;
        let (path, id): (PathBuf, String) = serde_json::from_slice(&named).failed()?;
        let folder = folder.unwrap_or_else(|| RunFolder::beside(path));
        let (layers, placement) = (None, Mutex::default());
        let unsaved = Arc::new(UnsavedSteps::new(&folder.path().join(RECORD)));
        Ok(RunContext {
            loaded,
            plan,
            prepared,
            folder,
            device,
            memory,
            target,
            in_use,
            reporter,
            resumed,
            is_resumed,
            id,
            processes,
            layers,
            placement,
            unsaved,
        })
    }
}

/// Plans a run as [`PlannedRun::new`] or [`PlannedRun::resume`] does, and writes nothing at all: of a built-in corpus
/// that does not exist, only texts and durations are computed. With `target` the plan is for that device, which need not
/// be in this machine. The plan is that of one of `processes`.
///
/// # Errors
/// As for [`PlannedRun::resume`].
pub fn preview(
    loaded: &Loaded,
    resume: Option<&Resume<'_>>,
    target: Option<Target>,
    processes: &Processes,
    memory: &'static CountingAllocator,
    reporter: &dyn Reporter,
) -> Result<RunPlan, Failure> {
    match resume {
        Some(resume) => RunFolder::beside(resume.folder.into()).check_config(&loaded.config)?,
        None => RunFolder::check_name(&loaded.config)?,
    }
    let place = Place::Dry(target, processes);
    Ok(planned(loaded, resume, place, memory, reporter)?.plan)
}

/// Where a run is planned for.
enum Place<'a> {
    /// The device of this machine on which this process trains its part.
    Here(&'a Processes),
    /// A plan that nothing is written for: of the named device, or of that of this machine.
    Dry(Option<Target>, &'a Processes),
}

/// Returns the configuration of one of several processes: each has one replica. A memory limit in bytes is that of the
/// machine, which processes on the CPU share.
fn for_process(config: &RunConfig, processes: &Processes) -> Result<RunConfig, Failure> {
    let mut config = config.clone();
    if processes.is_alone() {
        return Ok(config);
    }
    if config.device.replicas > 1 {
        let message = format!("`device.replicas` is {}, and each process has one replica", config.device.replicas);
        return Err(Failure::invalid(message, "leave device.replicas out: the number of processes decides"));
    }
    config.device.replicas = processes.ranks() as u32;
    if is_host(&config.device)
        && let Some(limit) = &mut config.training.max_memory
    {
        limit.0 /= processes.local_ranks() as u64;
    }
    Ok(config)
}

/// Parts of a planned run.
struct Planned {
    plan: RunPlan,
    prepared: PreparedData,
    device: TrainingDevice,
    target: Option<Target>,
    in_use: InUse,
    resumed: Option<ResumedRun>,
}

/// Plans a run: checks the configuration, reads the data, compares it with a checkpoint, and plans the memory.
fn planned(
    loaded: &Loaded,
    resume: Option<&Resume<'_>>,
    place: Place<'_>,
    memory: &'static CountingAllocator,
    reporter: &dyn Reporter,
) -> Result<Planned, Failure> {
    for warning in &loaded.warnings {
        reporter.line(Level::Warning, &warning.to_string());
    }
    let (is_dry, named, processes) = match place {
        Place::Here(processes) => (false, None, processes),
        Place::Dry(named, processes) => (true, named, processes),
    };
    let config = &for_process(&loaded.config, processes)?;
    resolve::check(config)?;
    let device = match &named {
        Some(target) => TrainingDevice::for_planning(target, &config.device, processes),
        None => TrainingDevice::choose_for(&config.device, processes)?,
    };
    if !is_dry {
        device.open()?;
    }
    let earlier = match resume {
        Some(resume) => EarlierRun::read(resume.folder, config)?,
        None => None,
    };
    if let Some(earlier) = &earlier {
        check_seed(earlier, config.seed)?;
    }
    let preparation = Preparation { earlier: earlier.as_ref(), is_dry, reads_audio: !is_dry || earlier.is_some() };
    let prepared = data::prepare_as(config, preparation, reporter)?;
    let in_use = InUse::read(memory);
    let resumed = match (earlier, resume) {
        (Some(earlier), Some(resume)) => Some(ResumedRun::compare(earlier, resume.data_changed, &prepared, reporter)?),
        _ => None,
    };
    let from =
        resumed.as_ref().map(|resumed| Resumed { earlier: &resumed.earlier, restarts_epoch: resumed.restarts_epoch });
    let target = named.or_else(|| target_for(config, &device));
    let mut plan = resolve::resolve(config, &prepared, &device, target.as_ref(), from, reporter)?;
    if let Some(warning) = plan.training.endless_warm_up() {
        reporter.line(Level::Warning, &warning);
    }
    let target_of_plan = target.as_ref();
    let request =
        MemoryRequest { run: &plan, prepared: &prepared, target: target_of_plan, in_use, available: None, reporter };
    let memory_plan = request.plan()?;
    plan.set_memory(memory_plan);
    plan.recipe = loaded.chosen();
    Ok(Planned { plan, prepared, device, target, in_use, resumed })
}
