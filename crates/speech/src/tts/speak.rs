//! Speech of texts with pauses, rates and volumes.

use std::collections::BTreeSet;

use plimsoll_core::Seconds;
use plimsoll_text::ssml::{Part, Span, Speech};
use plimsoll_text::{Case, normalize};

use super::pipeline::{PITCHES, RATES, SpeechOptions, SpeechPipeline, SynthesisError, SynthesizedSpeech, Voice};
use super::sound::fade_ends;
use super::split_text;

impl SpeechPipeline {
    /// Synthesizes the spans and pauses of `speech`, such as [`parse`](plimsoll_text::ssml::parse) returns, one after the other in one `voice`.
    /// The rate of a span multiplies that of `options`, and its pitch is added to theirs. The volume of a span changes its samples.
    /// `progress` is called with the number of finished spans and the number of all spans.
    ///
    /// A model that has one rate or one pitch speaks all spans with it; the result has a warning then. A span without a known character
    /// is left out if another one has some.
    ///
    /// # Errors
    /// As for [`synthesize`](Self::synthesize).
    pub fn speak(
        &self,
        speech: &Speech,
        voice: &Voice,
        options: &SpeechOptions<'_>,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<SynthesizedSpeech, SynthesisError> {
        let spans = speech.parts.iter().filter(|part| matches!(part, Part::Span(_))).count();
        let (mut all, mut done, mut failed) = (SynthesizedSpeech::silent(), 0, None);
        all.warnings.clone_from(&speech.warnings);
        for part in &speech.parts {
            let span = match part {
                Part::Pause { seconds } => {
                    all.pause(Seconds(*seconds), self.sample_rate());
                    continue;
                }
                Part::Span(span) => span,
                _ => continue,
            };
            let rate = self.rate_of(span, options.rate, &mut all.warnings);
            let pitch = self.pitch_of(span, options.pitch, &mut all.warnings);
            // The only span of a text shows its own parts.
            let mut parts = |done: usize, all: usize| {
                if spans == 1 {
                    progress(done, all);
                }
            };
            match self.synthesize(&span.text, voice, &SpeechOptions { rate, pitch, ..*options }, &mut parts) {
                Ok(spoken) => all.append(spoken, span.volume, self.sample_rate()),
                Err(error @ (SynthesisError::UnknownCharacters { .. } | SynthesisError::EmptyText)) => {
                    all.unknown_characters.extend(self.tokenizer().unknown_characters(&span.text));
                    failed = Some(error);
                }
                Err(error) => return Err(error),
            }
            done += 1;
            if spans > 1 {
                progress(done, spans);
            }
        }
        match (all.segments.is_empty(), failed) {
            (false, _) => Ok(all),
            (true, failed) => Err(failed.unwrap_or(SynthesisError::EmptyText)),
        }
    }

    /// Returns the rate of `span` where the text has the rate `usual`, within what the model can do. What it cannot do is
    /// added to `warnings`.
    fn rate_of(&self, span: &Span, usual: f64, warnings: &mut Vec<String>) -> f64 {
        if span.rate != 1.0 && !self.model().has_rate() {
            warn(warnings, "the model speaks at one rate: it is autoregressive");
            return usual;
        }
        // A rate that was asked for alone is checked, not changed.
        if span.rate == 1.0 { usual } else { (usual * span.rate).clamp(*RATES.start(), *RATES.end()) }
    }

    /// Returns the change of pitch of `span` where the text has the change `usual`, within what the model can do. What it cannot do is
    /// added to `warnings`.
    fn pitch_of(&self, span: &Span, usual: f64, warnings: &mut Vec<String>) -> f64 {
        if span.pitch != 0.0 && !self.model().has_pitch() {
            warn(warnings, "the model cannot change its pitch: it was not trained with `model.pitch`");
            return usual;
        }
        if span.pitch == 0.0 { usual } else { (usual + span.pitch).clamp(*PITCHES.start(), *PITCHES.end()) }
    }

    /// Returns the parts in which `text` is spoken, each short enough for the model, so that a program can speak one after
    /// the other while it plays them.
    pub fn parts(&self, text: &str) -> Vec<String> {
        let text = normalize(&self.tokenizer().normalized(text), Case::Keep);
        split_text(&text, self.model().length_bounds().tokens_max.saturating_sub(1))
    }
}

/// Adds a warning, unless it is there.
fn warn(warnings: &mut Vec<String>, warning: &str) {
    if !warnings.iter().any(|known| known == warning) {
        warnings.push(warning.into());
    }
}

impl SynthesizedSpeech {
    /// Returns no sound at all.
    fn silent() -> Self {
        Self { samples: Vec::new(), segments: Vec::new(), unknown_characters: BTreeSet::new(), warnings: Vec::new() }
    }

    /// Adds silence of this length.
    fn pause(&mut self, length: Seconds, sample_rate: u32) {
        let samples = (length.0 * f64::from(sample_rate)).round() as usize;
        self.samples.resize(self.samples.len() + samples, 0.0);
    }

    /// Adds `next`, with its sound changed by `decibels`. Its first and last milliseconds rise and fall, so that the joint
    /// does not click.
    fn append(&mut self, mut next: Self, decibels: f64, sample_rate: u32) {
        let factor = 10.0_f64.powf(decibels / 20.0) as f32;
        if factor != 1.0 {
            next.samples.iter_mut().for_each(|sample| *sample = (*sample * factor).clamp(-1.0, 1.0));
        }
        fade_ends(&mut next.samples, sample_rate);
        self.samples.append(&mut next.samples);
        self.segments.append(&mut next.segments);
        self.unknown_characters.append(&mut next.unknown_characters);
        self.warnings.append(&mut next.warnings);
    }
}
