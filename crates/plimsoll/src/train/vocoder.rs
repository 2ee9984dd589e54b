//! The vocoder of a voice, which is trained after the voice: this process becomes that run.

use std::env;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use clap::ValueEnum;
use plimsoll_config::choices::Task;
use plimsoll_config::invocation::command;
use plimsoll_config::{ConfigArgs, Loaded, RESERVED_VARIABLES, RunConfig};
use plimsoll_core::CountingAllocator;
use plimsoll_recipes::processes::Processes;
use plimsoll_recipes::reporter::Silent;
use plimsoll_recipes::target::Target;
use plimsoll_recipes::training::{preview, written_config};
use plimsoll_recipes::{Failure, load, vocoder_name, vocoder_settings, vocoder_share};
use plimsoll_speech::ModelFolder;
use serde_json::json;

use super::TrainArgs;
use super::ui::Ui;
use crate::print::flush_out;

/// Beginning of the variables that set keys of a configuration.
const PREFIX: &str = "PLIMSOLL_";

/// This program on Linux, also if its file was replaced since it began.
const SELF: &str = "/proc/self/exe";

/// Returns whether a vocoder follows the run of `config` in `folder`, new or begun.
pub(super) fn follows(config: &RunConfig, folder: &Path, processes: &Processes) -> bool {
    let is_begun = || written_config(&ModelFolder(folder).vocoder()).is_ok_and(|config| config.is_some());
    processes.is_alone() && (vocoder_share(config) > 0.0 || (config.task == Task::Tts && is_begun()))
}

/// Checks that the run of `config` has one process if a vocoder is to follow it.
///
/// # Errors
/// If several processes train it: the vocoder would begin in the first one alone.
pub(super) fn check(config: &RunConfig, processes: &Processes) -> Result<(), Failure> {
    if vocoder_share(config) > 0.0 && !processes.is_alone() {
        let message = "`training.vocoder_share` needs a run of one process";
        let help =
            "`--set training.vocoder_share=0` leaves it out; train the vocoder by itself: `train --task vocoder`";
        return Err(Failure::invalid(message, help));
    }
    Ok(())
}

/// Plans the vocoder of the voice of `loaded` before the voice is trained, and returns its plan in words; `None` if none follows. The
/// voice is in `folder`, or will be in a new one.
///
/// # Errors
/// If the vocoder cannot be trained after it.
pub(super) fn plan(
    loaded: &Loaded,
    folder: Option<&Path>,
    target: Option<Target>,
    processes: &Processes,
    memory: &'static CountingAllocator,
) -> Result<Option<String>, Failure> {
    let config = &loaded.config;
    if vocoder_share(config) == 0.0 {
        return Ok(None);
    }
    if let Some(folder) = folder.map(|folder| ModelFolder(folder).vocoder()) {
        if written_config(&folder)?.is_some() {
            // It goes on, and is planned then.
            return Ok(None);
        }
        // A process that was killed may leave an empty folder.
        if ModelFolder(&folder).metadata_file().exists() {
            let message = format!("{} is there already, and is no run that goes on", folder.display());
            return Err(Failure::invalid(message, "move it away, or give `--set training.vocoder_share=0`"));
        }
    }
    let next = config.runs_dir.join(config.name.as_deref().unwrap_or("the next voice"));
    let set = vocoder_settings(config, folder.unwrap_or(&next), 1.0);
    let args =
        ConfigArgs { task: Some(Task::Vocoder.to_string()), name: Some(vocoder_name()), set, ..ConfigArgs::default() };
    let loaded = load(&args, std::iter::empty())?;
    let plan = preview(&loaded, None, target, processes, memory, &Silent)?.to_string();
    // Without a limit, its time follows from that of the voice, which is not known yet.
    let is_timed = config.training.max_time.is_some();
    let known = plan.split_inclusive('\n').filter(|line| is_timed || !line.starts_with("  ends"));
    let share = (vocoder_share(config) * 100.0).round();
    Ok(Some(format!("After the voice: its vocoder, for {share} % of the time of both. {}", known.collect::<String>())))
}

/// Replaces this process by the run of the vocoder of the voice in `folder`, new or begun. So nothing of the first run is left in memory,
/// and signals are those of one run.
///
/// # Errors
/// If the program cannot be started again. Otherwise it does not return.
pub(super) fn go_on(args: &TrainArgs, config: &RunConfig, folder: &Path, seconds: f64) -> Failure {
    let vocoder = ModelFolder(folder).vocoder();
    let mut words = vec!["train".to_string()];
    match written_config(&vocoder) {
        Ok(Some(_)) => words.extend(["--resume".into(), vocoder.display().to_string()]),
        _ => words.extend(["--task".into(), Task::Vocoder.to_string(), "--name".into(), vocoder_name()]),
    }
    if vocoder_share(config) > 0.0 {
        words.extend(vocoder_settings(config, folder, seconds).into_iter().flat_map(|set| ["--set".into(), set]));
    }
    let choices = [
        ("--ui", args.ui.to_possible_value()),
        ("--data-changed", args.data_changed.and_then(|choice| choice.to_possible_value())),
    ];
    for (flag, choice) in choices {
        words.extend(choice.into_iter().flat_map(|choice| [flag.into(), choice.get_name().to_string()]));
    }
    eprintln!("The voice is trained. Its vocoder follows, in {}", vocoder.display());
    if args.ui == Ui::Json {
        println!("{}", json!({"event": "vocoder", "folder": vocoder}));
    }
    let program = match Path::new(SELF).exists() {
        true => SELF.into(),
        false => match env::current_exe() {
            Ok(program) => program,
            Err(error) => return cannot_start(&error, folder),
        },
    };
    let mut next = Command::new(program);
    // The name by which hints call the program.
    if let Some(name) = env::args_os().next() {
        next.arg0(name);
    }
    next.args(&words);
    // The settings have what they said to the voice.
    let sets_key =
        |name: &String| name.starts_with(PREFIX) && RESERVED_VARIABLES.iter().all(|(known, _)| known != name);
    for name in env::vars_os().filter_map(|(name, _)| name.into_string().ok()).filter(sets_key) {
        next.env_remove(name);
    }
    flush_out();
    cannot_start(&next.exec(), folder)
}

fn cannot_start(error: &std::io::Error, voice: &Path) -> Failure {
    let help = format!("the voice is complete; to go on: {}", command(&format!("train --resume {}", voice.display())));
    Failure::failed(format!("the run of the vocoder cannot be started: {error}"), help)
}
