//! Finds out from the environment whether a launcher of MPI has started this process.

use std::env;

/// Program that started the ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Launcher {
    /// `mpirun` of Open MPI.
    OpenMpi,
    /// `mpiexec` of MPICH, Intel MPI or MVAPICH (Hydra).
    Hydra,
    /// `srun` of Slurm with a PMI interface.
    Slurm,
    /// Another launcher with a PMIx interface.
    Pmix,
}

impl Launcher {
    /// Returns the name for people.
    pub fn name(self) -> &'static str {
        match self {
            Self::OpenMpi => "mpirun (Open MPI)",
            Self::Hydra => "mpiexec (Hydra)",
            Self::Slurm => "srun (Slurm)",
            Self::Pmix => "a PMIx launcher",
        }
    }
}

/// How a launcher of MPI started this process, as far as the environment says it. Nothing here calls MPI.
///
/// ```
/// use plimsoll_mpi::{Launch, Launcher};
///
/// let env = |name: &str| match name {
///     "OMPI_COMM_WORLD_SIZE" => Some("4".to_string()),
///     "OMPI_COMM_WORLD_RANK" => Some("3".to_string()),
///     "OMPI_COMM_WORLD_LOCAL_RANK" => Some("1".to_string()),
///     _ => None,
/// };
/// let launch = Launch::from_env(env)?.expect("the variables of mpirun are there");
/// assert_eq!((launch.launcher, launch.ranks, launch.rank), (Launcher::OpenMpi, Some(4), 3));
/// assert_eq!(launch.local_rank, Some(1));
/// assert_eq!(Launch::from_env(|_| None)?, None);
/// # Ok::<(), plimsoll_mpi::LaunchError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    /// Program that started the ranks.
    pub launcher: Launcher,
    /// Index of this process.
    pub rank: usize,
    /// Number of processes, where the environment has it.
    pub ranks: Option<usize>,
    /// Index of this process among those of its node, where the environment has it.
    pub local_rank: Option<usize>,
}

/// Error of [`Launch::detect`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LaunchError {
    /// A variable of a launcher is not a number.
    #[error("the environment variable {name} is `{value}`, not a number")]
    NotANumber {
        /// Name of the variable.
        name: &'static str,
        /// Its value.
        value: String,
    },
    /// A variable with the number of ranks is set, and the one with the rank is missing or too large.
    #[error("the environment has {ranks} ranks in {ranks_name}, and no rank below that in {rank_name}")]
    NoRank {
        /// Number of ranks.
        ranks: usize,
        /// Name of the variable with the number of ranks.
        ranks_name: &'static str,
        /// Name of the variable with the rank.
        rank_name: &'static str,
    },
    /// `srun` started several tasks without a PMI interface: each would be a world of its own.
    #[error("srun started {tasks} tasks without MPI, so each would train alone: start them with `srun --mpi=pmix`")]
    SlurmWithoutPmi {
        /// Number of tasks of the job step.
        tasks: usize,
    },
}

impl Launch {
    /// Returns how this process was started, or `None` if no launcher of MPI started it.
    ///
    /// # Errors
    /// If the variables of a launcher contradict each other, or `srun` started several tasks without MPI.
    pub fn detect() -> Result<Option<Self>, LaunchError> {
        Self::from_env(|name| env::var(name).ok())
    }

    /// Does the work of [`Launch::detect`] with the variables that `env` returns.
    ///
    /// # Errors
    /// As for [`Launch::detect`].
    pub fn from_env(env: impl Fn(&str) -> Option<String>) -> Result<Option<Self>, LaunchError> {
        let env = Environment(&env);
        let slurm = env.number("SLURM_PROCID")?.is_some();
        for names in PAIRS {
            let Some(ranks) = env.number(names.ranks)? else { continue };
            let rank = env.number(names.rank)?.filter(|&rank| rank < ranks);
            let missing = LaunchError::NoRank { ranks, ranks_name: names.ranks, rank_name: names.rank };
            let launcher = if slurm && names.launcher == Launcher::Hydra { Launcher::Slurm } else { names.launcher };
            let local_rank = env.first(names.local_rank)?;
            return Ok(Some(Self { launcher, rank: rank.ok_or(missing)?, ranks: Some(ranks), local_rank }));
        }
        if let Some(rank) = env.number("PMIX_RANK")? {
            let launcher = if slurm { Launcher::Slurm } else { Launcher::Pmix };
            let ranks = if slurm { env.first(&["SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"])? } else { None };
            return Ok(Some(Self { launcher, rank, ranks, local_rank: env.first(&["SLURM_LOCALID"])? }));
        }
        // A script of `sbatch` has SLURM_NTASKS, too; only `srun` sets the tasks of a step.
        match env.number("SLURM_STEP_NUM_TASKS")? {
            Some(tasks) if slurm && tasks > 1 => Err(LaunchError::SlurmWithoutPmi { tasks }),
            _ => Ok(None),
        }
    }
}

/// Names of the variables of one family of launchers.
struct Names {
    launcher: Launcher,
    ranks: &'static str,
    rank: &'static str,
    local_rank: &'static [&'static str],
}

/// Launchers that set the rank and the number of ranks. Open MPI comes first: under Slurm it sets its own beside
/// Slurm's.
const PAIRS: &[Names] = &[
    Names {
        launcher: Launcher::OpenMpi,
        ranks: "OMPI_COMM_WORLD_SIZE",
        rank: "OMPI_COMM_WORLD_RANK",
        local_rank: &["OMPI_COMM_WORLD_LOCAL_RANK"],
    },
    Names {
        launcher: Launcher::Hydra,
        ranks: "PMI_SIZE",
        rank: "PMI_RANK",
        local_rank: &["MPI_LOCALRANKID", "PMI_LOCAL_RANK", "SLURM_LOCALID"],
    },
    Names {
        launcher: Launcher::Hydra,
        ranks: "MV2_COMM_WORLD_SIZE",
        rank: "MV2_COMM_WORLD_RANK",
        local_rank: &["MV2_COMM_WORLD_LOCAL_RANK"],
    },
];

/// The variables, read as numbers.
struct Environment<'a>(&'a dyn Fn(&str) -> Option<String>);

impl Environment<'_> {
    fn number(&self, name: &'static str) -> Result<Option<usize>, LaunchError> {
        let Some(value) = (self.0)(name) else { return Ok(None) };
        match value.trim().parse() {
            Ok(number) => Ok(Some(number)),
            Err(_) => Err(LaunchError::NotANumber { name, value }),
        }
    }

    /// Returns the first of the variables that is set.
    fn first(&self, names: &[&'static str]) -> Result<Option<usize>, LaunchError> {
        names.iter().find_map(|name| self.number(name).transpose()).transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Found = (Launcher, usize, Option<usize>, Option<usize>);

    fn check(env: &[(&str, &str)], expected: Result<Option<Found>, &str>) {
        let lookup = |name: &str| env.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_string());
        let found = Launch::from_env(lookup)
            .map(|launch| launch.map(|launch| (launch.launcher, launch.rank, launch.ranks, launch.local_rank)))
            .map_err(|error| error.to_string());
        assert_eq!(found, expected.map_err(str::to_string), "{env:?}");
    }

    #[test]
    fn launchers_are_known_by_their_variables() {
        let slurm = [("SLURM_PROCID", "5"), ("SLURM_NTASKS", "8"), ("SLURM_LOCALID", "1")];
        let with = |more: &[(&'static str, &'static str)]| [&slurm, more].concat();
        check(
            &[("OMPI_COMM_WORLD_SIZE", "2"), ("OMPI_COMM_WORLD_RANK", "0")],
            Ok(Some((Launcher::OpenMpi, 0, Some(2), None))),
        );
        check(&with(&[("PMI_SIZE", "8"), ("PMI_RANK", "5")]), Ok(Some((Launcher::Slurm, 5, Some(8), Some(1)))));
        check(&with(&[("PMIX_RANK", "5")]), Ok(Some((Launcher::Slurm, 5, Some(8), Some(1)))));
        check(&[("PMIX_RANK", "5")], Ok(Some((Launcher::Pmix, 5, None, None))));
        check(
            &[("PMI_SIZE", "3"), ("PMI_RANK", "2"), ("MPI_LOCALRANKID", "0")],
            Ok(Some((Launcher::Hydra, 2, Some(3), Some(0)))),
        );
    }

    #[test]
    fn a_batch_script_is_no_rank() {
        check(&[("SLURM_PROCID", "0"), ("SLURM_NTASKS", "8")], Ok(None));
        check(&[("SLURM_PROCID", "0"), ("SLURM_STEP_NUM_TASKS", "1")], Ok(None));
        check(&[], Ok(None));
    }

    #[test]
    fn contradictions_are_errors() {
        check(
            &[("SLURM_PROCID", "1"), ("SLURM_STEP_NUM_TASKS", "8")],
            Err("srun started 8 tasks without MPI, so each would train alone: start them with `srun --mpi=pmix`"),
        );
        check(
            &[("PMI_SIZE", "2"), ("PMI_RANK", "2")],
            Err("the environment has 2 ranks in PMI_SIZE, and no rank below that in PMI_RANK"),
        );
        check(
            &[("OMPI_COMM_WORLD_SIZE", "two")],
            Err("the environment variable OMPI_COMM_WORLD_SIZE is `two`, not a number"),
        );
    }
}
