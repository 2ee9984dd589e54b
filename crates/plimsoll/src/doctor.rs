//! `plimsoll doctor`: checks machine and program before a run.

mod fusion;
mod links;
mod loading;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use burn::tensor::{Distribution, Tensor};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use plimsoll_config::choices::{BackendChoice, PrecisionChoice};
use plimsoll_config::{ConfigArgs, Loaded, RunConfig};
use plimsoll_core::{CountingAllocator, Precision};
use plimsoll_monitor::doctor::{Check, DeviceKind, Doctor, DoctorOptions, DoctorProgress, MachineFacts, Outcome};
use plimsoll_recipes::corpus;
use plimsoll_recipes::demand::DemandBuilder;
use plimsoll_recipes::device::TrainingDevice;
use plimsoll_recipes::processes::Processes;
use plimsoll_recipes::{Failure, FailureExt};
use tempfile::TempDir;

use crate::output::{ForceFlag, OutputFile};
use crate::print::uses_color;
use crate::trial::load_trial;

/// Time limit of a check that computes on the device: a GPU compiles its first kernels.
const ON_THE_DEVICE: Duration = Duration::from_secs(60);

/// Version of CubeCL, which keeps the results of tuning for each version.
const CUBECL: &str = "0.11.3";
/// Utterances of the corpus that the check of loading makes if there is none.
const SMALL_CORPUS: u32 = 200;

/// Arguments of `doctor`.
#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// Print one JSON object instead of text.
    #[arg(long)]
    json: bool,
    /// Also write the report with facts about the machine into this file (.tar.gz), for a question to others. Names of
    /// users and machines, tokens and passwords are left out.
    #[arg(long, value_name = "FILE")]
    bundle: Option<PathBuf>,
    /// The configuration: the device to check, and the folder of the runs.
    #[command(flatten)]
    config: ConfigArgs,
}

/// Checks machine and program. The exit code is 0 if all is well, 1 after a warning and 2 after a failure.
pub(crate) fn doctor(args: &DoctorArgs, memory: &'static CountingAllocator) -> Result<ExitCode, Failure> {
    let joined = Processes::join();
    if let Ok(processes) = &joined
        && !processes.is_first()
    {
        links::measure(processes)?;
        return Ok(ExitCode::SUCCESS);
    }
    let links = links::check(joined);
    let mut loaded = load_trial(&args.config)?;
    let config = loaded.config.clone();
    let _small = small_corpus(&mut loaded)?;
    let facts = Arc::new(MachineFacts::read());
    let options = DoctorOptions {
        checkpoint_folder: Some(existing(config.runs_dir.clone())),
        checkpoint: DemandBuilder::from_config(config.clone()).ok().map(|builder| builder.checkpoint_bytes()),
        cuda_backend: cfg!(feature = "cuda"),
        device: kind(config.device.backend),
        precision: precision(config.training.precision),
        replicas: Some(config.device.replicas),
        cubecl_version: Some(CUBECL.into()),
    };
    if let Some(path) = &args.bundle {
        // Before the checks, which take a while.
        OutputFile::new(path, "--bundle", ForceFlag { force: true }, &["tar.gz"])?;
    }
    let own = own_checks(&config).into_iter().chain(links);
    let doctor = own.fold(Doctor::for_machine(&facts, &options), Doctor::with);
    // After the check of the device: without one nothing trains.
    let doctor = doctor.with(loading::check(loaded, memory));
    let bar = if args.json { ProgressBar::hidden() } else { bar() };
    let report = doctor.run(|progress| {
        if let DoctorProgress::Started { index, count, title, .. } = progress {
            bar.set_length(count as u64);
            bar.set_position(index as u64);
            bar.set_message(title.to_string());
        }
    });
    bar.finish_and_clear();
    match args.json {
        true => println!("{:#}", serde_json::json!(report)),
        false => print!("{}", report.page(uses_color())),
    }
    if let Some(path) = &args.bundle {
        report.bundle(path).invalid()?;
        eprintln!("{} holds the report without secrets", path.display());
    }
    Ok(ExitCode::from(report.exit_code()))
}

/// Names a small corpus in a temporary folder for the check of loading, if no data was given and the built-in corpus does not
/// exist: a check leaves no 400 MB behind.
fn small_corpus(loaded: &mut Loaded) -> Result<Option<TempDir>, Failure> {
    let data = &mut loaded.config.data;
    if data.manifest.is_some() || corpus::exists(data) {
        return Ok(None);
    }
    let folder = tempfile::tempdir().failed()?;
    data.corpus_dir = folder.path().into();
    data.corpus_utterances = data.corpus_utterances.min(SMALL_CORPUS);
    data.corpus_speakers = data.corpus_speakers.min(SMALL_CORPUS / 10);
    Ok(Some(folder))
}

/// Returns the kind of the device that a configuration names; `None` if it leaves the choice to the program.
fn kind(backend: BackendChoice) -> Option<DeviceKind> {
    match backend {
        BackendChoice::Auto => None,
        BackendChoice::Cpu => Some(DeviceKind::Cpu),
        BackendChoice::Cuda => Some(DeviceKind::Cuda),
        BackendChoice::Wgpu => Some(DeviceKind::Wgpu),
    }
}

/// Returns the number format that a configuration names; `None` if it leaves the choice to the program.
fn precision(choice: PrecisionChoice) -> Option<Precision> {
    match choice {
        PrecisionChoice::Auto => None,
        PrecisionChoice::Fp32 => Some(Precision::Fp32),
        PrecisionChoice::Bf16 => Some(Precision::Bf16),
        PrecisionChoice::Fp16 => Some(Precision::Fp16),
    }
}

fn bar() -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} {msg}").expect("the template is valid");
    ProgressBar::new(1).with_style(style)
}

/// Returns `folder`, or the nearest folder above it that exists.
fn existing(folder: PathBuf) -> PathBuf {
    let above = folder.ancestors().find(|above| above.is_dir()).map(std::path::Path::to_path_buf);
    above.unwrap_or_else(|| PathBuf::from("."))
}

/// Lists the checks of the program itself: its device computes, and fuses operations where it should.
fn own_checks(config: &RunConfig) -> Vec<Check> {
    let device = config.device.clone();
    let opens = Check::new("device", "the device of the configuration computes", move |_| {
        let chosen = match TrainingDevice::choose(&device) {
            Ok(chosen) => chosen,
            Err(failure) => return Outcome::fail(failure.to_string()).with_fix("choose another --backend or --device"),
        };
        let random = || Tensor::<2>::random([64, 64], Distribution::Default, &chosen.device);
        let product = random().matmul(random()).sum();
        match product.try_into_scalar::<f32>() {
            Ok(sum) if sum.is_finite() => Outcome::pass(format!("{} computes", chosen.name))
                .with_detail("precision", format!("{:?}", chosen.precision).to_lowercase()),
            Ok(sum) => Outcome::fail(format!("{}: a product of random numbers is {sum}", chosen.name)),
            Err(error) => Outcome::fail(format!("{}: {error}", chosen.name)),
        }
    });
    let device = config.device.clone();
    let fuses =
        Check::new("fusion", "elementwise operations run as one kernel", move |_| {
            match TrainingDevice::choose(&device) {
                Ok(chosen) if chosen.is_host => Outcome::skip("the CPU backend does not fuse operations"),
                Ok(chosen) => fusion::fusion(&chosen.device),
                Err(failure) => Outcome::skip(failure.to_string()),
            }
        });
    vec![opens.with_limit(ON_THE_DEVICE), fuses.with_limit(ON_THE_DEVICE)]
}

#[cfg(test)]
mod tests {
    use super::CUBECL;

    #[test]
    fn the_version_of_cubecl_is_that_of_the_build() {
        let lock = include_str!("../../../Cargo.lock");
        assert!(lock.contains(&format!("name = \"cubecl-runtime\"\nversion = \"{CUBECL}\"")));
    }
}
