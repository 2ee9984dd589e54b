//! What a newcomer reads first.

use std::process::ExitCode;

const TEXT: &str = "\
Plimsoll trains speech models on the graphics card you have, and never runs out of its memory.

Start with these two:
  cargo xtask memtest           will it fit? the planned memory, by owner, before anything runs
  cargo xtask train             train; without options, a small model on a small made-up corpus

The program's main commands (add --help to any of them for its options):
  train                         train a model, or go on with --resume
  memtest                       plan a run and test it against this card, or against --gpu t4, --gpu 8GiB, ...
  transcribe                    turn a recording into text with a trained model
  corpus                        make or check a list of recordings and their texts
  config                        show the configuration a run would have, and where each value comes from

Keeping the house:
  test [--long] [ARGS]          run every test; ARGS go to the runner (a name, -p CRATE)
  tidy                          check the rules of the house that no compiler knows
  ci                            everything that must pass before a change goes in, cheapest first
  bench [NAME [ARGS]]           run a measurement, or list them
  help                          this text

Where to run: --backend auto|cpu|cuda|wgpu, with any of the program's commands.
  auto (the default) takes CUDA when an NVIDIA driver answers, and the processor otherwise.
  The first CUDA build takes 20 to 30 minutes; --backend cpu starts in the meantime.

A run keeps all it makes in runs/<name>/: its plan, its records, its checkpoints and its report.
The map of the code is docs/ARCHITECTURE.md.
";

/// Prints the help.
pub(crate) fn print() -> ExitCode {
    print!("{TEXT}");
    ExitCode::SUCCESS
}
