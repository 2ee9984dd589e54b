//! Texts from encoded windows, token by token: the likeliest token at each place, or a beam.

use std::num::NonZeroUsize;
use std::path::Path;

use burn::tensor::activation::log_softmax;
use burn::tensor::{Device, Int, Tensor};
use plimsoll_layers::{DecoderCache, Lengths};
use plimsoll_tape::Pass;
use plimsoll_tape::transfer::from_host;
use plimsoll_text::Tokenizer;
use serde_json::Value;

use super::Whisper;
use super::config::RESERVED;
use super::hugging_face::GENERATION_CONFIG;
use super::times::TimeRules;
use crate::asr::Search;
use crate::asr::decode::{BeamOptions, NextToken, attention_beam};

/// Score that no token overcomes.
const NEVER: f32 = -1e9;
/// Number of the latest time with which a text may begin, unless the model says otherwise: one second.
const LATEST_FIRST_TIME: u32 = 50;

/// What begins and ends a text, and which tokens it may not have. All ids are those of the tokenizer.
#[derive(Clone, Debug, PartialEq)]
pub struct Generation {
    /// Tokens that begin each text: its language, and that it is to be transcribed without times. The last of them says the latter.
    pub prompt: Vec<u32>,
    /// Token that ends a text.
    pub end: u32,
    /// Tokens that no text has, such as those of times.
    pub suppressed: Vec<u32>,
    /// First id of a time, which no text without times has, and neither any later id.
    pub first_time: u32,
    /// Id of the latest time with which a text with times may begin.
    pub latest_first_time: u32,
    /// Tokens that no text begins with, such as a lone space.
    pub suppressed_first: Vec<u32>,
}

impl Generation {
    /// Returns how texts in `language` are generated with `tokenizer`; in its default language with `None`. What may not be said is
    /// read from the `generation_config.json` in `folder`, if it has one. Returns `None` if the tokenizer is not one of Whisper.
    pub fn new(tokenizer: &Tokenizer, language: Option<&str>, folder: &Path) -> Option<Self> {
        let frame = tokenizer.whisper_frame(language)?;
        let read = std::fs::read_to_string(folder.join(GENERATION_CONFIG)).ok();
        let file: Value = read.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default();
        let list = |name: &str| -> Vec<u32> {
            let ids = file[name].as_array().into_iter().flatten().filter_map(Value::as_u64);
            ids.map(|id| id as u32 + RESERVED as u32).collect()
        };
        let mut suppressed = list("suppress_tokens");
        suppressed.extend(frame.never);
        let mut suppressed_first = list("begin_suppress_tokens");
        suppressed_first.push(frame.end);
        let (prompt, end, first_time) = (frame.begin, frame.end, frame.first_time);
        // `null` is no limit.
        let latest = file.get("max_initial_timestamp_index").map_or(LATEST_FIRST_TIME, |index| {
            index.as_u64().and_then(|index| u32::try_from(index).ok()).unwrap_or(u32::MAX)
        });
        let latest_first_time = first_time.saturating_add(latest);
        Some(Self { prompt, end, suppressed, first_time, latest_first_time, suppressed_first })
    }

    /// Returns the rules of texts with times.
    fn time_rules(&self) -> TimeRules {
        TimeRules { first: self.first_time, latest_first: self.latest_first_time, end: self.end }
    }

    /// Returns how texts with times are generated.
    fn with_times(&self) -> Self {
        let prompt = self.prompt.split_last().map_or_else(Vec::new, |(_, begin)| begin.to_vec());
        // The file of a tokenizer may list times among what is no text.
        let suppressed = self.suppressed.iter().copied().filter(|id| *id < self.first_time).collect();
        Self { prompt, suppressed, ..self.clone() }
    }
}

impl Whisper {
    /// Generates the text of each encoded window `[b, p, d]`, without what begins and ends it. `Search::Greedy` takes the likeliest token
    /// at each place; a search with the decoder is a beam of its width. Other searches are greedy.
    pub fn generate(&self, encoded: Tensor<3>, generation: &Generation, search: &Search) -> Vec<Vec<u32>> {
        let prompts = vec![generation.prompt.clone(); encoded.dims()[0]];
        self.generate_after(encoded, &prompts, generation, search)
    }

    /// Generates texts as [`generate`](Self::generate) does, with times: ids from [`first_time`](Generation::first_time) on, one for each 0.02 s
    /// of the window. A time begins and ends each segment of a text.
    ///
    /// # Panics
    /// If the vocabulary of the model has no times.
    pub fn generate_with_times(&self, encoded: Tensor<3>, generation: &Generation, search: &Search) -> Vec<Vec<u32>> {
        assert!(self.has_times(generation), "the vocabulary of the model has times");
        let (rules, generation) = (generation.time_rules(), generation.with_times());
        let windows = encoded.dims()[0];
        let device = encoded.device();
        match *search {
            Search::Attention { width, length_bonus } => {
                let one = |index| encoded.clone().narrow(0, index, 1);
                (0..windows).map(|index| self.beam(one(index), &generation, Some(rules), width, length_bonus)).collect()
            }
            _ => {
                let penalties = self.all_penalties(&generation, u32::MAX, &device);
                let prompts = vec![generation.prompt.clone(); windows];
                self.greedy(encoded, &prompts, penalties, generation.end, |scores, texts| {
                    let rows = self.config().rows();
                    let mut scores: Vec<f32> =
                        log_softmax(scores, 1).into_data().try_into_vec().expect("scores are in fp32");
                    let best = |(row, text): (&mut [f32], &Vec<u32>)| {
                        rules.apply(text, row);
                        let best = row.iter().enumerate().max_by(|(_, one), (_, other)| one.total_cmp(other));
                        best.map_or(generation.end, |(place, _)| (place + RESERVED) as u32)
                    };
                    scores.chunks_exact_mut(rows).zip(texts).map(best).collect()
                })
            }
        }
    }

    /// Returns whether the vocabulary has times.
    pub(super) fn has_times(&self, generation: &Generation) -> bool {
        (generation.first_time as usize) < self.config().vocabulary
    }

    /// Generates texts as [`generate`](Self::generate) does, each after a prompt of its own; all are equally long.
    pub(super) fn generate_after(
        &self,
        encoded: Tensor<3>,
        prompts: &[Vec<u32>],
        generation: &Generation,
        search: &Search,
    ) -> Vec<Vec<u32>> {
        let one = |(index, prompt): (usize, &Vec<u32>), width, length_bonus| {
            let generation = Generation { prompt: prompt.clone(), ..generation.clone() };
            self.beam(encoded.clone().narrow(0, index, 1), &generation, None, width, length_bonus)
        };
        match *search {
            Search::Attention { width, length_bonus } => {
                prompts.iter().enumerate().map(|each| one(each, width, length_bonus)).collect()
            }
            _ => {
                let penalties = self.all_penalties(generation, generation.first_time, &encoded.device());
                self.greedy(encoded, prompts, penalties, generation.end, |scores, _| {
                    let best: Tensor<2, Int> = scores.argmax(1);
                    let best: Vec<i32> =
                        best.into_data().convert::<i32>().try_into_vec().expect("places are whole numbers");
                    best.iter().map(|&row| row as u32 + RESERVED as u32).collect()
                })
            }
        }
    }

    /// Reads the longest text: its beginning, what is cached of the middle, and its end.
    pub(super) fn trace_steps(&self, encoded: Tensor<3>) {
        let mut steps = self.steps(encoded);
        let _ = steps.next(vec![0; 4 * steps.rows]);
        steps.caches.iter_mut().for_each(|cache| cache.pad_to(self.config().text_positions - 1));
        let _ = steps.next(vec![0; steps.rows]).argmax(1);
    }

    /// Generates texts token by token. `penalties` are those of the first token and of all others; `choose` takes the next token of each
    /// text by its scores `[b, v]`.
    fn greedy(
        &self,
        encoded: Tensor<3>,
        prompts: &[Vec<u32>],
        [first, never]: [Tensor<2>; 2],
        end: u32,
        choose: impl Fn(Tensor<2>, &[Vec<u32>]) -> Vec<u32>,
    ) -> Vec<Vec<u32>> {
        let mut steps = self.steps(encoded);
        let mut texts = vec![Vec::new(); prompts.len()];
        let mut is_open = vec![true; prompts.len()];
        let mut tokens: Vec<u32> = prompts.concat();
        let most = self.config().text_positions.saturating_sub(prompts.first().map_or(0, Vec::len));
        for place in 0..most {
            let penalties = if place == 0 { &first } else { &never };
            tokens = choose(steps.next(tokens) + penalties.clone(), &texts);
            for ((text, is_open), &token) in texts.iter_mut().zip(&mut is_open).zip(&tokens) {
                *is_open &= token != end;
                if *is_open {
                    text.push(token);
                }
            }
            if !is_open.contains(&true) {
                break;
            }
        }
        texts
    }

    /// Generates one text by a beam; with `rules`, a text with times.
    fn beam(
        &self,
        encoded: Tensor<3>,
        generation: &Generation,
        rules: Option<TimeRules>,
        width: NonZeroUsize,
        length_bonus: f64,
    ) -> Vec<u32> {
        let last = if rules.is_some() { u32::MAX } else { generation.first_time };
        let [first, never] = self.all_penalties(generation, last, &encoded.device());
        let said = vec![Vec::new()];
        let most = self.config().text_positions.saturating_sub(generation.prompt.len());
        let steps = self.steps(encoded);
        let mut decoder = BeamSteps { steps, generation, never, first: Some(first), rules, said, most };
        let options = BeamOptions::new(Tokenizer::START, Tokenizer::END, most);
        let options = BeamOptions { width, length_bonus, normalize_length: length_bonus == 0.0, ..options };
        attention_beam(&mut decoder, &options).into_iter().next().map(|best| best.tokens).unwrap_or_default()
    }

    /// Makes the scores to add to those of the first token, and to those of all others; `last` as for [`penalties`](Self::penalties).
    fn all_penalties(&self, generation: &Generation, last: u32, device: &Device) -> [Tensor<2>; 2] {
        let never = self.penalties(&generation.suppressed, last, device);
        let first = self.penalties(&generation.suppressed_first, u32::MAX, device);
        [never.clone() + first, never]
    }

    /// Makes scores `[1, v]` to add, which forbid `tokens`, and all tokens from `last` on.
    fn penalties(&self, tokens: &[u32], last: u32, device: &Device) -> Tensor<2> {
        let rows = self.config().rows();
        from_host([1, rows], device, || {
            let mut scores = vec![0.0; rows];
            scores.iter_mut().skip((last as usize).saturating_sub(RESERVED)).for_each(|score| *score = NEVER);
            for token in tokens {
                if let Some(score) = (*token as usize).checked_sub(RESERVED).and_then(|row| scores.get_mut(row)) {
                    *score = NEVER;
                }
            }
            scores
        })
    }

    fn steps(&self, encoded: Tensor<3>) -> Steps<'_> {
        let [b, positions, _] = encoded.dims();
        let (device, pass) = (encoded.device(), Pass::plain());
        let heard = Lengths::new(vec![positions as u32; b], positions);
        let caches = self.decoder.blocks.iter().map(|block| block.cache(encoded.clone(), &heard, &pass)).collect();
        Steps { model: self, caches, rows: b, device }
    }
}

/// The decoder, which reads texts token by token. It keeps the keys and values of earlier tokens.
struct Steps<'a> {
    model: &'a Whisper,
    caches: Vec<DecoderCache>,
    /// Number of texts.
    rows: usize,
    device: Device,
}

impl Steps<'_> {
    /// Reads the next tokens of each text, as many of each, and returns the scores `[b, v]` of the token after the last.
    fn next(&mut self, tokens: Vec<u32>) -> Tensor<2> {
        let (width, pass) = (tokens.len() / self.rows, Pass::plain());
        let first = self.caches.first().map_or(0, DecoderCache::len);
        let x = self.model.embed(tokens, width, first, &self.device);
        let blocks = self.model.decoder.blocks.iter().zip(&mut self.caches);
        let x = blocks.fold(x, |x, (block, cache)| block.extend(x, cache, &pass));
        self.model.scores(x.narrow(1, width - 1, 1), &pass).squeeze_dim(1)
    }
}

/// The decoder as a beam search takes it: its start is the whole prompt, and its end that of Whisper.
struct BeamSteps<'a> {
    steps: Steps<'a>,
    generation: &'a Generation,
    never: Tensor<2>,
    /// Penalties of the first token; `None` after it.
    first: Option<Tensor<2>>,
    /// Rules of texts with times; `None` without times.
    rules: Option<TimeRules>,
    /// What each hypothesis says so far.
    said: Vec<Vec<u32>>,
    /// Number of tokens after which only the end may follow.
    most: usize,
}

impl NextToken for BeamSteps<'_> {
    fn step(&mut self, parents: &[usize], tokens: &[u32]) -> Vec<Vec<f32>> {
        let scores = match self.first.take() {
            Some(first) => self.steps.next(self.generation.prompt.clone()) + first,
            None => {
                let longer = |(&parent, &token): (&usize, &u32)| [&self.said[parent][..], &[token]].concat();
                self.said = parents.iter().zip(tokens).map(longer).collect();
                self.steps.caches.iter_mut().for_each(|cache| cache.select(parents));
                self.steps.rows = parents.len();
                self.steps.next(tokens.to_vec()) + self.never.clone()
            }
        };
        let scores = log_softmax(scores, 1);
        let [_, v] = scores.dims();
        let mut values: Vec<f32> = scores.into_data().try_into_vec().expect("scores are in fp32");
        if let Some(rules) = self.rules {
            let rows = values.chunks_exact_mut(v).zip(&self.said);
            // A text that is as long as it may be ends, whatever time would follow.
            rows.filter(|(_, said)| said.len() < self.most).for_each(|(row, said)| rules.apply(said, row));
        }
        let end = self.generation.end as usize;
        let row = |values: &[f32]| {
            let mut row = vec![f32::NEG_INFINITY; RESERVED];
            row.extend_from_slice(values);
            row.swap(Tokenizer::END as usize, end);
            row
        };
        values.chunks_exact(v).map(row).collect()
    }
}
