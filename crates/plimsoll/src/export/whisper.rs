//! Writes a trained Whisper model as a folder of Hugging Face.

use std::fs;
use std::process::ExitCode;

use plimsoll_recipes::{Failure, FailureExt};
use plimsoll_speech::whisper::{read_metadata, write_hugging_face};
use plimsoll_tape::{check_shapes, count, on_capture_device};

use super::{DraftFolder, ExportArgs, README, checkpoint, name, publish};

/// Writes the Whisper model of a run.
pub(super) fn write(args: &ExportArgs) -> Result<ExitCode, Failure> {
    let metadata = read_metadata(&args.run).invalid()?;
    let checkpoint = checkpoint(args)?;
    let parameters = on_capture_device(|device| {
        let model = metadata.model.init_unseeded(device);
        check_shapes(&model, &checkpoint.weights).map(|()| count(&model))
    });
    let (name, state) = (name(args), &checkpoint.state);
    let score = match (state.best, state.best_step) {
        (Some(best), Some(step)) if step == state.step => format!("{:.2} % character error rate", best * 100.0),
        _ => "not measured".into(),
    };
    let readme = format!(
        "\
# {name}

A Whisper model, trained with Plimsoll.

- parameters: {}
- training step: {}
- score on held-out utterances: {score}

```python
from transformers import pipeline
print(pipeline(\"automatic-speech-recognition\", \"{name}\")(\"recording.wav\")[\"text\"])
```

`plimsoll transcribe recording.wav --run {name}` does the same, and `plimsoll train --from {name}` trains it further.
",
        parameters.invalid()?,
        state.step,
    );
    let draft = DraftFolder::create(&args.out, args.force)?;
    fs::write(draft.path.join(README), readme).failed()?;
    write_hugging_face(&draft.path, &metadata, &checkpoint.weights, &args.run).failed()?;
    publish(draft, &args.out)
}
