//! What a newcomer reads first.

use std::process::ExitCode;

const TEXT: &str = "\
Plimsoll trains speech models on the graphics card you have, or on the processor.

Start with these two:
  cargo xtask train             train; without options, a small recognizer on speech that the program makes itself
  cargo xtask test              run the tests

The program's main commands (add --help to any of them for its options):
  train                         train a model, or go on with --resume
  transcribe                    turn a recording into text with a trained model
  say                           turn a text into sound with a trained model
  eval                          say how well a trained model reads or speaks, on what it held out or a corpus of yours
  export                        write a trained model into a folder of its own, for other programs
  runs                          list the runs, show how one went, compare some
  model                         say how large a model would be, part by part, before it is trained
  corpus                        make speech with its texts, in voices of its own
  config                        show the configuration a run would have, and where each value comes from

Keeping the house:
  test [--long] [ARGS]          run every test; ARGS go to the runner (a name, -p CRATE)
  tidy [PATH]                   check the rules of the house that no compiler knows; PATH shows one file or folder
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
