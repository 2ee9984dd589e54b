//! Forced alignment: the frames of a recording at which a known text is said.
//!
//! It takes the log-probabilities of any CTC model as plain numbers, with the blank at id 0. [`align`] finds the most
//! probable frames of each token, exactly. [`segment`] does the same for a list of utterances in a long recording that
//! may say more than the text, or less: it gives each utterance its frames and a score that is low where the recording
//! does not say it (as in Kürzinger et al., *CTC-Segmentation of Large Corpora*, 2020). [`words`] makes words with
//! times of the result.
//!
//! ```
//! use plimsoll_text::alignment::{LogProbs, align};
//!
//! // Three frames; the ids are blank, `a` and `b`.
//! let probabilities: [f32; 9] = [0.1, 0.8, 0.1, 0.6, 0.3, 0.1, 0.1, 0.1, 0.8];
//! let values: Vec<f32> = probabilities.iter().map(|p| p.ln()).collect();
//! let spans = align(&LogProbs::new(&values, 3)?, &[1, 2])?;
//! assert_eq!((spans[0].first_frame, spans[0].last_frame), (0, 0));
//! assert_eq!((spans[1].first_frame, spans[1].last_frame), (2, 2));
//! assert!((spans[1].score - 0.8f32.ln()).abs() < 1e-6);
//! # Ok::<(), plimsoll_text::alignment::AlignmentError>(())
//! ```

mod chain;
mod input;
mod segmentation;
#[cfg(test)]
mod tests;
mod token_span;
mod viterbi;
mod word_times;

pub use input::{AlignmentError, LogProbs};
pub use segmentation::{SegmentationOptions, UtteranceSpan, segment};
pub use token_span::{TokenSpan, align};
pub use word_times::words;
