//! Trains a tiny recognizer for a few steps, on a synthetic corpus in a temporary folder: `cargo run --example train`.

use std::sync::atomic::AtomicBool;

use plimsoll_config::ConfigArgs;
use plimsoll_core::CountingAllocator;
use plimsoll_recipes::load;
use plimsoll_recipes::reporter::Silent;
use plimsoll_recipes::training::{NoDisplay, PlannedRun, TrainingOutcome};
use plimsoll_recipes::{Failure, FailureExt};

/// Counts the memory of the process. On the CPU, this is the memory that is planned.
#[global_allocator]
static MEMORY: CountingAllocator = CountingAllocator::new();

fn main() -> Result<(), Failure> {
    let folder = tempfile::tempdir().failed()?;
    let path = folder.path().display();
    // The built-in configuration, with a corpus and a model so small that it runs in seconds.
    let settings = [
        format!("data.corpus_dir={path}/corpus"),
        format!("runs_dir={path}/runs"),
        "data.corpus_utterances=24".into(),
        "data.corpus_speakers=4".into(),
        "model.encoder_layers=1".into(),
        "model.attention_heads=2".into(),
    ];
    let args = ConfigArgs {
        steps: Some("8".into()),
        batch_size: Some("6".into()),
        d_model: Some("16".into()),
        set: settings.into(),
        ..ConfigArgs::default()
    };
    let loaded = load(&args, std::iter::empty())?;

    let planned = PlannedRun::new(loaded, &MEMORY, &Silent)?;
    println!("{}", planned.plan);

    let run = planned.start()?;
    match run.train(&AtomicBool::new(false), &mut NoDisplay)? {
        TrainingOutcome::Complete { summary, .. } => {
            let scores: Vec<String> = summary.scores.iter().map(ToString::to_string).collect();
            println!("{} steps, {} at the peak: {}", summary.steps, summary.peak_bytes, scores.join(", "));
        }
        TrainingOutcome::AlreadyComplete { step } => println!("complete after step {step}"),
        TrainingOutcome::Followed => println!("the first process has the result"),
        TrainingOutcome::Stopped { step } => println!("stopped after step {step}"),
    }
    Ok(())
}
