//! Speech as a stream: each part of a text is written as soon as it is made.

use std::io::{self, Write};
use std::process::ExitCode;

use plimsoll_audio::WavStream;
use plimsoll_core::Seconds;
use plimsoll_recipes::{Failure, FailureExt};
use plimsoll_speech::tts::{SpeechPipeline, SynthesisError, Voice};
use plimsoll_text::ssml::{Part, Span, Speech};

use super::{SayArgs, options, synthesis_failure};
use crate::print::{flush_out, write_out};

/// Speaks the parts of `speech` one after the other to standard output, each as soon as it is made.
pub(super) fn stream(
    args: &SayArgs,
    pipeline: &SpeechPipeline,
    voice: &Voice,
    speech: &Speech,
) -> Result<ExitCode, Failure> {
    let rate = pipeline.sample_rate();
    let mut warnings = speech.warnings.clone();
    let mut output = WavStream::new(StreamOutput, rate).failed()?;
    let mut has_spoken = false;
    for part in &speech.parts {
        let parts: Vec<Part> = match part {
            Part::Span(span) => {
                let parts = pipeline.parts(&span.text).into_iter();
                parts.map(|text| Part::Span(Span { text, ..span.clone() })).collect()
            }
            other => vec![other.clone()],
        };
        for (index, part) in parts.into_iter().enumerate() {
            if let Part::Pause { seconds } = part {
                output.write(&silence(Seconds(seconds), rate)).failed()?;
                continue;
            }
            let part = Speech { parts: vec![part], warnings: Vec::new() };
            match pipeline.speak(&part, voice, &options(args), &mut |_, _| {}) {
                Ok(spoken) => {
                    if index > 0 {
                        output.write(&silence(SpeechPipeline::PAUSE, rate)).failed()?;
                    }
                    output.write(&spoken.samples).failed()?;
                    warnings.extend(spoken.warnings);
                    has_spoken = true;
                }
                Err(SynthesisError::EmptyText | SynthesisError::UnknownCharacters { .. }) => {}
                Err(error) => return Err(synthesis_failure(&error)),
            }
        }
    }
    warnings.dedup();
    for warning in &warnings {
        eprintln!("warning: {warning}");
    }
    match has_spoken {
        true => Ok(ExitCode::SUCCESS),
        false => Err(synthesis_failure(&SynthesisError::EmptyText)),
    }
}

/// Returns samples of silence.
fn silence(length: Seconds, rate: u32) -> Vec<f32> {
    vec![0.0; (length.0 * f64::from(rate)).round() as usize]
}

/// Standard output as a writer that ends quietly when its reader is gone.
struct StreamOutput;

impl Write for StreamOutput {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        write_out(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        flush_out();
        Ok(())
    }
}
