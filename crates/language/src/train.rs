//! Training: modified Kneser-Ney smoothing with interpolation, as KenLM's `lmplz` computes it.

mod counts;
mod discounts;
mod estimate;
mod levels;

use crate::error::LanguageError;
use crate::model::{NgramModel, Unit};
use crate::state::ORDER_MAX;

use counts::Counter;

/// Options of the training of a model.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct TrainOptions {
    /// Number of words of the longest n-grams, from 1 to [`ORDER_MAX`].
    pub order: usize,
    /// What the texts are split into.
    pub unit: Unit,
    /// For each order, the count up to which its n-grams are left out; the last number is for all higher orders. The
    /// numbers must not fall. Empty: nothing is left out.
    pub prune: Vec<u64>,
    /// Discounts for n-grams that were counted once, twice, and more often. They are used for an order whose own
    /// discounts cannot be computed, as in a small or an artificial text. Without them such a text is refused.
    pub discount_fallback: Option<[f32; 3]>,
}

impl TrainOptions {
    /// Makes options for a model of words that leaves nothing out and falls back to the discounts 0.5, 1 and 1.5.
    pub fn new(order: usize) -> Self {
        Self { order, unit: Unit::Words, prune: Vec::new(), discount_fallback: Some([0.5, 1.0, 1.5]) }
    }

    /// Sets what the texts are split into.
    pub fn with_unit(mut self, unit: Unit) -> Self {
        self.unit = unit;
        self
    }

    /// Sets the counts up to which n-grams are left out; see [`prune`](Self::prune).
    pub fn with_prune(mut self, prune: impl Into<Vec<u64>>) -> Self {
        self.prune = prune.into();
        self
    }

    /// Returns the count up to which n-grams of `order` words are left out.
    fn threshold(&self, order: usize) -> u64 {
        self.prune.get(order - 1).or(self.prune.last()).copied().unwrap_or(0)
    }

    fn check(&self) -> Result<(), LanguageError> {
        let fits = |discount: (usize, &f32)| (0.0..=(discount.0 + 1) as f32).contains(discount.1);
        let problem = if !(1..=ORDER_MAX).contains(&self.order) {
            format!("the order is {}, not from 1 to {ORDER_MAX}", self.order)
        } else if self.prune.len() > self.order || !self.prune.is_sorted() {
            format!("the pruning thresholds {:?} fall, or are more than {}", self.prune, self.order)
        } else if !self.discount_fallback.iter().flatten().enumerate().all(fits) {
            format!("the fallback discounts {:?} exceed their counts", self.discount_fallback)
        } else {
            return Ok(());
        };
        Err(LanguageError::Training(problem))
    }
}

/// Facts about a training.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct TrainReport {
    /// Number of sentences.
    pub n_sentences: u64,
    /// Number of words (or characters) without the ends of the sentences.
    pub n_tokens: u64,
    /// Number of words `<s>`, `</s>` and `<unk>` in the texts. They were left out, as the model has them for itself.
    pub n_special: u64,
    /// For each order, the discounts of n-grams that were counted once, twice, and more often.
    pub discounts: Vec<[f32; 3]>,
    /// Orders that use [`TrainOptions::discount_fallback`].
    pub fallback_orders: Vec<usize>,
}

/// Progress of a training.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TrainProgress {
    /// Texts have been counted; called after every 10,000 sentences.
    Counted {
        /// Number of sentences so far.
        n_sentences: u64,
        /// Number of different n-grams of the highest order so far.
        n_ngrams: u64,
    },
    /// The probabilities of all n-grams of an order are computed.
    Estimated {
        /// Order of the n-grams.
        order: usize,
        /// Number of n-grams of the order that the model keeps.
        n_ngrams: u64,
    },
}

/// Trains a model on sentences.
///
/// The estimate is that of Heafield et al. 2013, "Scalable Modified Kneser-Ney Language Model Estimation", with the
/// unknown word as a word that was never seen. The numbers equal those of KenLM's `lmplz --skip_symbols` up to
/// rounding. All n-grams are counted in memory: a different n-gram of the highest order takes about 50 bytes.
///
/// # Errors
/// When the options are impossible, there is no sentence, or discounts cannot be computed and no fallback is given.
pub fn train<T: AsRef<str>>(
    sentences: impl IntoIterator<Item = T>,
    options: &TrainOptions,
) -> Result<(NgramModel, TrainReport), LanguageError> {
    train_with(sentences, options, &mut |_| {})
}

/// Trains a model as [`train`] does, and reports its progress.
///
/// # Errors
/// As [`train`].
pub fn train_with<T: AsRef<str>>(
    sentences: impl IntoIterator<Item = T>,
    options: &TrainOptions,
    progress: &mut dyn FnMut(TrainProgress),
) -> Result<(NgramModel, TrainReport), LanguageError> {
    options.check()?;
    let mut counter = Counter::new(options.order, options.unit);
    for sentence in sentences {
        counter.add(sentence.as_ref())?;
        if counter.n_sentences.is_multiple_of(10_000) {
            let n_ngrams = counter.n_ngrams();
            progress(TrainProgress::Counted { n_sentences: counter.n_sentences, n_ngrams });
        }
    }
    if counter.n_sentences == 0 {
        return Err(LanguageError::Training("there is no sentence".into()));
    }
    let mut report = TrainReport {
        n_sentences: counter.n_sentences,
        n_tokens: counter.n_tokens,
        n_special: counter.n_special,
        ..TrainReport::default()
    };
    let (words, padded) = counter.finish();
    let thresholds: Vec<u64> = (1..=options.order).map(|order| options.threshold(order)).collect();
    let levels = levels::levels(options.order, padded, &thresholds);
    for level in &levels {
        let (discounts, is_fallback) = discounts::discounts(level, options.discount_fallback)?;
        report.discounts.push(discounts);
        if is_fallback {
            report.fallback_orders.push(level.order);
        }
    }
    let characters = options.unit == Unit::Characters;
    let data = estimate::estimate(words, levels, &report.discounts, characters, progress);
    Ok((NgramModel::from_data(data)?, report))
}
