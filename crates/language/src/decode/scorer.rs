//! Scores of a language model for texts that grow by tokens.

use rustc_hash::FxHashMap;

use super::hotwords::Hotwords;
use super::lexicon::Lexicon;
use super::options::FusionOptions;
use super::tokens::{TokenText, is_boundary};
use super::trie::{NOWHERE, ROOT, Trie};
use crate::model::{NgramModel, SPACE, Unit};
use crate::state::State;
use crate::vocabulary::UNKNOWN;

/// Length of a word in characters above which the penalty of an unknown beginning grows.
const TYPICAL_CHARACTERS: u32 = 6;

/// A text in the eyes of a [`LanguageScorer`]: its score, and what the scores of its continuations depend on.
#[derive(Clone, Copy, Debug)]
pub struct FusionState {
    /// Words before the last one, for the model of words.
    context: State,
    /// Characters before the next one, for the model of characters.
    spelled: State,
    /// Last word in the words of the model, in the lexicon and in the hotwords.
    known: u32,
    allowed: u32,
    hot: u32,
    n_characters: u32,
    n_words: u32,
    /// Whether the last characters of the text separate words.
    is_apart: bool,
    /// Score of everything that cannot change.
    settled: f64,
    /// Score of the beginning of the last word.
    partial: f64,
    /// Log-probability by the model, natural.
    log_prob: f64,
}

impl FusionState {
    /// Returns what the text adds to the score of a hypothesis, with weights, bonus and penalties. The difference between
    /// two states is what a token has added.
    pub fn score(&self) -> f64 {
        self.settled + self.partial
    }

    /// Returns the natural log-probability that the model gives to the words that have ended, without weights; that of the
    /// model of words if there are two.
    pub fn log_prob(&self) -> f64 {
        self.log_prob
    }

    /// Returns the number of words that have ended.
    pub fn n_words(&self) -> u32 {
        self.n_words
    }
}

/// Scores texts by a language model, hotwords and a lexicon while they grow by tokens.
///
/// A search keeps a [`FusionState`] for each hypothesis. A model of words scores a word when it ends; a model of
/// characters scores each character. Both together suit a language whose words are not all known: the characters say
/// what an unknown word may be.
///
/// ```
/// use plimsoll_language::{FusionOptions, LanguageScorer, TrainOptions, train};
///
/// let (model, _) = train(["a ship", "a hull"], &TrainOptions::new(2))?;
/// let tokens = vec!["", " ", "a", "ship", "shop"];
/// let scorer = LanguageScorer::new(&tokens, &FusionOptions::default()).with_model(model);
/// let text = |tokens: &[u32]| {
///     let state = tokens.iter().try_fold(scorer.start(), |state, &token| scorer.advance(&state, token));
///     state.and_then(|state| scorer.finish(&state)).map(|state| state.score())
/// };
/// assert!(text(&[2, 1, 3]) > text(&[2, 1, 4]));
/// # Ok::<(), plimsoll_language::LanguageError>(())
/// ```
#[derive(Clone, Debug)]
pub struct LanguageScorer {
    /// Text of each token.
    texts: Vec<String>,
    words: Option<WordModel>,
    characters: Option<CharacterModel>,
    lexicon: Option<Lexicon>,
    hotwords: Option<Hotwords>,
    alpha: f64,
    beta: f64,
    unknown_penalty: f64,
}

/// A model of words.
#[derive(Clone, Debug)]
struct WordModel {
    model: NgramModel,
    words: Trie,
}

/// A model of characters.
#[derive(Clone, Debug)]
struct CharacterModel {
    model: NgramModel,
    ids: FxHashMap<char, u32>,
    weight: f64,
}

impl CharacterModel {
    fn new(model: NgramModel, weight: f64) -> Self {
        let ids = own_words(&model).filter_map(|(word, id)| Some((word.parse().ok()?, id))).collect();
        Self { model, ids, weight }
    }
}

/// Lists the words of a model that texts have, with their ids.
fn own_words(model: &NgramModel) -> impl Iterator<Item = (&str, u32)> {
    let special = |word: &str| matches!(word, "<unk>" | "<s>" | "</s>");
    model.words().zip(UNKNOWN..).filter(move |(word, _)| !special(word))
}

impl LanguageScorer {
    /// Makes a scorer that adds nothing yet.
    ///
    /// # Panics
    /// When a number of the options is not finite or has the wrong sign.
    pub fn new(tokens: &(impl TokenText + ?Sized), options: &FusionOptions) -> Self {
        options.check();
        let text = |token| if token == 0 { String::new() } else { tokens.text(token).to_owned() };
        Self {
            texts: (0..tokens.n_tokens() as u32).map(text).collect(),
            words: None,
            characters: None,
            lexicon: None,
            hotwords: None,
            alpha: options.alpha,
            beta: options.beta,
            unknown_penalty: options.unknown_penalty,
        }
    }

    /// Adds a language model, of words or of characters.
    pub fn with_model(mut self, model: NgramModel) -> Self {
        match model.unit() {
            Unit::Words => self.words = Some(WordModel { words: Trie::new(own_words(&model)), model }),
            Unit::Characters => self.characters = Some(CharacterModel::new(model, self.alpha)),
        }
        self
    }

    /// Adds a model of characters with a weight of its own, beside a model of words. An unknown word then costs no more than
    /// its characters and its probability by the model of words.
    ///
    /// # Panics
    /// When the model is one of words, or the weight is not finite.
    pub fn with_spelling(mut self, model: NgramModel, weight: f64) -> Self {
        assert!(model.unit() == Unit::Characters, "spelling is scored by a model of characters");
        assert!(weight.is_finite(), "the weight of the spelling is {weight}");
        self.characters = Some(CharacterModel::new(model, weight));
        self
    }

    /// Adds hotwords.
    pub fn with_hotwords(mut self, hotwords: Hotwords) -> Self {
        self.hotwords = Some(hotwords);
        self
    }

    /// Allows only texts of the words of a lexicon.
    pub fn with_lexicon(mut self, lexicon: Lexicon) -> Self {
        self.lexicon = Some(lexicon);
        self
    }

    /// Returns the text of each token.
    pub(super) fn texts(&self) -> &[String] {
        &self.texts
    }

    /// Returns the state of the empty text.
    pub fn start(&self) -> FusionState {
        FusionState {
            context: self.words.as_ref().map_or_else(State::default, |words| words.model.begin_state()),
            spelled: self.characters.as_ref().map_or_else(State::default, |characters| characters.model.begin_state()),
            known: ROOT,
            allowed: ROOT,
            hot: ROOT,
            n_characters: 0,
            n_words: 0,
            is_apart: false,
            settled: 0.0,
            partial: 0.0,
            log_prob: 0.0,
        }
    }

    /// Adds a token to a text. Nothing if the lexicon forbids it, or there is no such token.
    pub fn advance(&self, state: &FusionState, token: u32) -> Option<FusionState> {
        let mut next = *state;
        for character in self.texts.get(token as usize)?.chars() {
            if is_boundary(character) {
                self.end_word(&mut next)?;
                next.is_apart = true;
            } else {
                self.add(&mut next, character)?;
            }
        }
        next.partial = self.partial(&next);
        Some(next)
    }

    /// Ends a text: its last word and the sentence. Nothing if the lexicon forbids the last word.
    pub fn finish(&self, state: &FusionState) -> Option<FusionState> {
        let mut last = *state;
        self.end_word(&mut last)?;
        last.partial = 0.0;
        if let Some(words) = &self.words {
            let log_prob = words.model.score_end(&last.context);
            self.settle_word(&mut last, log_prob, false);
        }
        if let Some(characters) = &self.characters {
            let log_prob = characters.model.score_end(&last.spelled);
            self.settle_character(&mut last, characters, log_prob, false);
        }
        Some(last)
    }

    /// Adds the log-probability of a word, to base 10. An unknown word costs more, unless its characters are scored.
    fn settle_word(&self, state: &mut FusionState, log_prob: f32, is_unknown: bool) {
        let is_charged = is_unknown && self.characters.is_none();
        let penalty = if is_charged { self.unknown_penalty } else { 0.0 };
        state.log_prob += f64::from(log_prob) * std::f64::consts::LN_10;
        state.settled += self.alpha * (f64::from(log_prob) - penalty) * std::f64::consts::LN_10;
    }

    /// Adds the log-probability of a character, to base 10.
    fn settle_character(&self, state: &mut FusionState, characters: &CharacterModel, log_prob: f32, is_unknown: bool) {
        let penalty = if is_unknown { self.unknown_penalty } else { 0.0 };
        if self.words.is_none() {
            state.log_prob += f64::from(log_prob) * std::f64::consts::LN_10;
        }
        state.settled += characters.weight * (f64::from(log_prob) - penalty) * std::f64::consts::LN_10;
    }

    /// Adds a character to the last word, or begins a word with it.
    fn add(&self, state: &mut FusionState, character: char) -> Option<()> {
        if let Some(lexicon) = &self.lexicon {
            state.allowed = lexicon.trie.step(state.allowed, character);
            if state.allowed == NOWHERE {
                return None;
            }
        }
        if let Some(words) = &self.words {
            state.known = words.words.step(state.known, character);
        }
        if let Some(characters) = &self.characters {
            if state.is_apart && state.n_words > 0 {
                self.score_character(state, characters, SPACE.chars().next().unwrap_or(' '));
            }
            self.score_character(state, characters, character);
        }
        if let Some(hotwords) = &self.hotwords {
            state.hot = hotwords.step(state.hot, character);
        }
        state.is_apart = false;
        state.n_characters += 1;
        Some(())
    }

    fn score_character(&self, state: &mut FusionState, characters: &CharacterModel, character: char) {
        let id = characters.ids.get(&character).copied();
        let (log_prob, spelled) = characters.model.score(&state.spelled, id.unwrap_or(UNKNOWN));
        state.spelled = spelled;
        self.settle_character(state, characters, log_prob, id.is_none());
    }

    /// Ends the last word, if there is one. Nothing if the lexicon does not have it.
    fn end_word(&self, state: &mut FusionState) -> Option<()> {
        if state.n_characters == 0 {
            return Some(());
        }
        if let Some(lexicon) = &self.lexicon {
            lexicon.trie.word(state.allowed)?;
        }
        if let Some(words) = &self.words {
            let id = words.words.word(state.known);
            let (log_prob, context) = words.model.score(&state.context, id.unwrap_or(UNKNOWN));
            state.context = context;
            self.settle_word(state, log_prob, id.is_none());
        }
        let has_model = self.words.is_some() || self.characters.is_some();
        state.settled += if has_model { self.beta } else { 0.0 };
        state.settled += self.hotwords.as_ref().map_or(0.0, |hotwords| hotwords.whole(state.hot));
        state.n_words += 1;
        (state.known, state.allowed, state.hot, state.n_characters) = (ROOT, ROOT, ROOT, 0);
        Some(())
    }

    /// Scores the beginning of the last word.
    fn partial(&self, state: &FusionState) -> f64 {
        if state.n_characters == 0 {
            return 0.0;
        }
        let hot = self.hotwords.as_ref().and_then(|hotwords| hotwords.partial(state.hot, state.n_characters));
        if let Some(hot) = hot {
            return hot;
        }
        if self.words.is_none() || self.characters.is_some() || state.known != NOWHERE {
            return 0.0;
        }
        let long = f64::from(state.n_characters) / f64::from(TYPICAL_CHARACTERS);
        -self.unknown_penalty * long.max(1.0)
    }
}
