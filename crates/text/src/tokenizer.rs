//! Tokenizer of every model: characters or word pieces, and language ids.

#[cfg(test)]
mod hugging_face_tests;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::io::Read;
use std::path::Path;

use plimsoll_core::open_text_file;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::bpe::{BpeLists, BpeVocabulary};
use crate::characters::CharTokenizer;
use crate::encoded::Encoded;
use crate::error::{TextError, short_error};
use crate::hugging_face::HuggingFace;
use crate::normalize::{Case, normalize, normalized};
use crate::normalizer::Normalizer;
use crate::numbers::Numbers;
use crate::phonemes::{PhonemeError, Phonemizer};

/// Marks that are never inside of a word or a number.
const SENTENCE_MARKS: &str = "?!;,:…¿¡";

/// Largest vocabulary file, in bytes. Those of large models have some megabytes.
const MAX_FILE_BYTES: u64 = 64 << 20;

/// Converts text to ids and back. A text becomes characters or word pieces; languages have ids of their own.
///
/// Ids: 0 is the CTC blank and padding, 1 an unknown character, 2 and 3 are the start and end of a decoder's sequence;
/// the characters or pieces follow, then the languages in alphabetical order. Encoding a text never adds a language id;
/// a model that needs one calls [`with_language_and_end`](Self::with_language_and_end).
///
/// ```
/// use plimsoll_text::Tokenizer;
///
/// let texts = ["देव बरें करूं", "सगळें बरें", "देव बरें"];
/// let tokenizer = Tokenizer::bpe(texts, 24)?.with_languages(["kok".into(), "en".into()]);
/// assert_eq!(tokenizer.languages(), ["en", "kok"]);
/// assert_eq!(tokenizer.language("kok"), Some(25));
/// assert_eq!(tokenizer.size(), 26);
///
/// let ids = tokenizer.encode("बरें  देव")?;
/// assert!(ids.len() < "बरें देव".chars().count());
/// assert_eq!(tokenizer.decode(&ids), "बरें देव");
/// # Ok::<(), plimsoll_text::TextError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "SavedTokenizer", into = "SavedTokenizer")]
pub struct Tokenizer {
    vocabulary: Vocabulary,
    languages: Vec<String>,
    /// Token id of each language, in the order of `languages`.
    language_ids: Vec<u32>,
    numbers: Numbers,
    normalizer: Normalizer,
    phonemes: Option<Phonemizer>,
}

/// Vocabulary into which texts are split: characters, word pieces, or the pieces of a Hugging Face file.
#[derive(Clone, Debug, PartialEq)]
enum Vocabulary {
    Characters(CharTokenizer),
    Bpe(Box<BpeVocabulary>),
    HuggingFace(Box<HuggingFace>),
}

impl Tokenizer {
    /// Id of the CTC blank and of padding.
    pub const BLANK: u32 = CharTokenizer::BLANK;
    /// Id of unknown characters.
    pub const UNKNOWN: u32 = CharTokenizer::UNKNOWN;
    /// Id that starts a decoder's sequence.
    pub const START: u32 = CharTokenizer::START;
    /// Id that ends a decoder's sequence.
    pub const END: u32 = CharTokenizer::END;
    /// Number of ids before the first character or piece.
    pub const RESERVED_IDS: usize = CharTokenizer::RESERVED as usize;
    /// Names of the ids before the first character or piece.
    const RESERVED: [&str; CharTokenizer::RESERVED as usize] = ["<blank>", "<unk>", "<sos>", "<eos>"];

    /// Builds a tokenizer of all characters in `texts`, in the order of their code points.
    pub fn characters<T: AsRef<str>>(texts: impl IntoIterator<Item = T>) -> Self {
        Self::new(Vocabulary::Characters(CharTokenizer::from_texts(texts)))
    }

    /// Trains a tokenizer of word pieces on `texts`; the order of the texts does not matter.
    ///
    /// `size` is the number of ids without language ids. A small text may give fewer ids, because no piece spans two
    /// words.
    ///
    /// # Errors
    /// When `size` is smaller than the number of different characters, including the space, plus 4 reserved ids.
    pub fn bpe<T: AsRef<str>>(texts: impl IntoIterator<Item = T>, size: usize) -> Result<Self, TextError> {
        BpeVocabulary::train(texts, size).map(|pieces| Self::new(Vocabulary::Bpe(Box::new(pieces))))
    }

    /// Reads a tokenizer from a vocabulary file, the `model.json` of a Plimsoll model, or a Hugging Face
    /// `tokenizer.json` with a BPE model. The kind of file is detected from its content.
    ///
    /// # Errors
    /// When the file cannot be read or does not contain a supported vocabulary.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self, TextError> {
        let file = path.as_ref();
        let mut text = String::new();
        let read = open_text_file(file).and_then(|open| open.take(MAX_FILE_BYTES + 1).read_to_string(&mut text));
        read.map_err(|source| TextError::File { file: file.into(), source })?;
        if text.len() as u64 > MAX_FILE_BYTES {
            return Err(TextError::TooLarge { file: file.into(), most: MAX_FILE_BYTES });
        }
        let read = |text: &str| {
            let mut value: Value = serde_json::from_str(text)?;
            if let Some(own) = value.get_mut("tokenizer") {
                return serde_json::from_value(own.take());
            }
            let foreign = value.get("model").is_some();
            serde_json::from_value(if foreign { json!({ "hugging_face": value }) } else { value })
        };
        read(&text).map_err(|source| TextError::Json { file: file.into(), source: short_error(source) })
    }

    /// Adds the characters of `texts` that the vocabulary does not have, behind those it has, so that ids stay. A vocabulary of
    /// pieces stays as it is. The languages are those of before, with ids behind the new characters.
    ///
    /// ```
    /// use plimsoll_text::Tokenizer;
    ///
    /// let tokenizer = Tokenizer::characters(["abc"]).with_characters_of(["bad"]);
    /// assert_eq!(tokenizer.names()[4..], ["a", "b", "c", "d"]);
    /// ```
    #[must_use]
    pub fn with_characters_of<T: AsRef<str>>(self, texts: impl IntoIterator<Item = T>) -> Self {
        let Vocabulary::Characters(known) = &self.vocabulary else { return self };
        let mut missing = BTreeSet::new();
        for text in texts {
            missing.extend(self.unknown_characters(text.as_ref()));
        }
        let characters = known.characters().iter().copied().chain(missing).collect();
        let characters = CharTokenizer::new(characters).expect("no character that is missing is there");
        let languages = self.languages.clone();
        Self { vocabulary: Vocabulary::Characters(characters), ..self }.with_languages(languages)
    }

    /// Returns whether a token has a capital letter, and whether a token has a mark that stands between sentences or their parts,
    /// and never inside of a word.
    pub fn cased_and_punctuated(&self) -> (bool, bool) {
        let texts = self.token_texts();
        let mut characters = texts.iter().skip(CharTokenizer::RESERVED as usize).flat_map(|text| text.chars());
        let is_cased = characters.clone().any(char::is_uppercase);
        (is_cased, characters.any(|one| SENTENCE_MARKS.contains(one)))
    }

    /// Replaces the languages of the tokenizer by `languages`; their ids come after all other ids.
    ///
    /// If a Hugging Face file already has a token such as `[en]`, the id of the token becomes the id of the language,
    /// so that weights trained with the file fit.
    #[must_use]
    pub fn with_languages(self, languages: impl IntoIterator<Item = String>) -> Self {
        let languages: Vec<String> = languages.into_iter().collect::<BTreeSet<_>>().into_iter().collect();
        let mut next = self.vocabulary.size() as u32;
        let id = |language: &String| {
            self.vocabulary.language(language).unwrap_or_else(|| {
                next += 1;
                next - 1
            })
        };
        let language_ids = languages.iter().map(id).collect();
        Self { languages, language_ids, ..self }
    }

    /// Replaces the way in which the tokenizer reads numbers. If the tokenizer was trained on texts, apply `numbers` to
    /// these texts before the training.
    #[must_use]
    pub fn with_numbers(self, numbers: Numbers) -> Self {
        Self { numbers, ..self }
    }

    /// Returns the way in which the tokenizer reads numbers.
    pub fn numbers(&self) -> Numbers {
        self.numbers
    }

    /// Replaces the normalization that texts get before they are encoded. If the tokenizer was trained on texts, apply
    /// `normalizer` to these texts before the training.
    ///
    /// ```
    /// use plimsoll_text::{Normalizer, Tokenizer};
    ///
    /// let normalizer: Normalizer = "currency:en,lowercase".parse()?;
    /// let tokenizer = Tokenizer::characters(["three dollars"]).with_normalizer(normalizer);
    /// assert_eq!(tokenizer.normalized("$3"), "three dollars");
    /// # Ok::<(), plimsoll_text::NormalizerError>(())
    /// ```
    #[must_use]
    pub fn with_normalizer(self, normalizer: Normalizer) -> Self {
        Self { normalizer, ..self }
    }

    /// Returns the normalization that texts get before they are encoded; it has no steps unless
    /// [`with_normalizer`](Self::with_normalizer) gave it some.
    pub fn normalizer(&self) -> &Normalizer {
        &self.normalizer
    }

    /// Makes texts phonemes before they are encoded. If the tokenizer was trained on texts, apply `phonemes` to these texts, after
    /// numbers and normalization, before the training.
    ///
    /// [`encode_lossy`](Self::encode_lossy) of a text whose phonemes cannot be made takes all its characters for unknown ones;
    /// [`check_phonemes`](Self::check_phonemes) says why.
    #[must_use]
    pub fn with_phonemes(self, phonemes: Option<Phonemizer>) -> Self {
        Self { phonemes, ..self }
    }

    /// Returns what makes phonemes of texts; `None` for a tokenizer of written texts.
    pub fn phonemes(&self) -> Option<&Phonemizer> {
        self.phonemes.as_ref()
    }

    /// Checks that phonemes can be made here, if the tokenizer reads phonemes.
    ///
    /// # Errors
    /// When the program that makes them is missing, or lacks the voice.
    pub fn check_phonemes(&self) -> Result<(), PhonemeError> {
        self.phonemes.as_ref().map_or(Ok(()), Phonemizer::check)
    }

    /// Returns `text` as the model reads it: normalized, with its numbers as words if the tokenizer reads them so.
    pub fn normalized(&self, text: &str) -> String {
        match self.normalizer.steps().is_empty() {
            true => self.numbers.apply(text).into_owned(),
            false => self.numbers.apply(&self.normalizer.apply(text)).into_owned(),
        }
    }

    /// Returns the languages in alphabetical order.
    pub fn languages(&self) -> &[String] {
        &self.languages
    }

    /// Returns the id of a language; `None` for a language that the tokenizer does not have.
    pub fn language(&self, name: &str) -> Option<u32> {
        let place = self.languages.binary_search_by(|language| language.as_str().cmp(name)).ok()?;
        Some(self.language_ids[place])
    }

    /// Returns the number of ids, including reserved ids and languages: the output width of a model.
    pub fn size(&self) -> usize {
        self.vocabulary.size() + self.own_languages().count()
    }

    /// Encodes a text as ids, with white space collapsed.
    ///
    /// # Errors
    /// When a character is not in the vocabulary. [`encode_lossy`](Self::encode_lossy) accepts it. When the model reads phonemes, and
    /// they cannot be made.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, TextError> {
        let Encoded { ids, unknown } = self.encoded(text)?;
        match unknown.first() {
            Some(&character) => Err(TextError::UnknownCharacter { character, text: text.into() }),
            None => Ok(ids),
        }
    }

    /// Encodes a text as ids. Unknown characters become [`UNKNOWN`](Self::UNKNOWN); the second value is their number.
    pub fn encode_lossy(&self, text: &str) -> (Vec<u32>, usize) {
        let Encoded { ids, unknown } = self.encoded_lossy(text);
        (ids, unknown.len())
    }

    /// Counts the ids of a text, and the unknown characters among them, as [`encode_lossy`](Self::encode_lossy) makes
    /// them. With a vocabulary of characters this is several times as fast.
    pub fn count_lossy(&self, text: &str) -> (usize, usize) {
        match &self.vocabulary {
            Vocabulary::Characters(characters) if self.phonemes.is_none() => {
                characters.count(&normalized(&self.numbers.apply(text), Case::Keep))
            }
            _ => {
                let (ids, unknown) = self.encode_lossy(text);
                (ids.len(), unknown)
            }
        }
    }

    /// Builds the input ids of a speech synthesis model: the language, `tokens`, then [`END`](Self::END).
    ///
    /// If the tokenizer has no languages, no language id is added. A missing or unknown language becomes
    /// [`UNKNOWN`](Self::UNKNOWN).
    pub fn with_language_and_end(&self, tokens: Vec<u32>, language: Option<&str>) -> Vec<u32> {
        let known = |name| self.language(name).unwrap_or(Self::UNKNOWN);
        let first = (!self.languages().is_empty()).then(|| language.map_or(Self::UNKNOWN, known));
        first.into_iter().chain(tokens).chain([Self::END]).collect()
    }

    /// Returns what begins and ends a text in `language` for the decoder of Whisper, in the default language for a language that the
    /// tokenizer does not have; `None` if the tokenizer is not one of Whisper.
    ///
    /// The default is the only language of [`languages`](Self::languages), or English, or the first. A tokenizer without languages is
    /// for English alone.
    pub fn whisper_frame(&self, language: Option<&str>) -> Option<WhisperFrame> {
        let Vocabulary::HuggingFace(file) = &self.vocabulary else { return None };
        let [start, end, without_times] =
            ["<|startoftranscript|>", "<|endoftext|>", "<|notimestamps|>"].map(|token| file.id(token));
        let (start, end, without_times) = (start?, end?, without_times?);
        let known = language.and_then(|name| self.language(name));
        let default = || self.language("en").or_else(|| self.language_ids.first().copied());
        let spoken = known.or_else(default);
        let task = spoken.and_then(|_| file.id("<|transcribe|>"));
        let begin = [Some(start), spoken, task, Some(without_times)].into_iter().flatten().collect();
        let never = file.added().filter(|id| *id != end).collect();
        Some(WhisperFrame { begin, end, never, first_time: without_times + 1 })
    }

    /// Returns whether the tokenizer is one of Whisper that has a token for `language`, such as `de`, whether it is one of
    /// [`languages`](Self::languages) or not.
    pub fn has_whisper_language(&self, language: &str) -> bool {
        let Vocabulary::HuggingFace(file) = &self.vocabulary else { return false };
        file.id(&whisper_language_token(language)).is_some()
    }

    /// Returns the content of the Hugging Face file that the tokenizer was read from; `None` for another vocabulary.
    pub fn hugging_face_file(&self) -> Option<&Value> {
        match &self.vocabulary {
            Vocabulary::HuggingFace(file) => Some(file.file()),
            Vocabulary::Characters(_) | Vocabulary::Bpe(_) => None,
        }
    }

    /// Returns the characters of a text that are not in the vocabulary.
    pub fn unknown_characters(&self, text: &str) -> BTreeSet<char> {
        self.encoded_lossy(text).unknown.into_iter().collect()
    }

    /// Decodes `ids` to text. Blank, start, end and languages are dropped; unknown ids become U+FFFD.
    pub fn decode(&self, ids: &[u32]) -> String {
        let dropped = |id: &u32| [Self::BLANK, Self::START, Self::END].contains(id) || self.language_ids.contains(id);
        let ids: Vec<u32> = ids.iter().copied().filter(|id| !dropped(id)).collect();
        match &self.vocabulary {
            Vocabulary::Characters(characters) => characters.decode(&ids),
            Vocabulary::Bpe(pieces) => pieces.decode(&ids),
            Vocabulary::HuggingFace(file) => file.decode(&ids),
        }
    }

    /// Returns the name of each id, in order: `<blank>`, `<unk>`, `<sos>`, `<eos>`, characters or pieces, then
    /// languages such as `[en]`.
    pub fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = Self::RESERVED.map(String::from).into();
        match &self.vocabulary {
            Vocabulary::Characters(characters) => names.extend(characters.characters().iter().map(char::to_string)),
            Vocabulary::Bpe(pieces) => names.extend_from_slice(&pieces.lists().pieces),
            Vocabulary::HuggingFace(file) => names.extend(file.names()),
        }
        names.extend(self.own_languages().map(|language| language_token(language)));
        names
    }

    /// Returns the text of each id as it stands in a sentence: a space or `▁` begins a word. Ids that are no text, such as
    /// the end of a text or a language, are empty; the unknown character is U+FFFD.
    ///
    /// ```
    /// use plimsoll_text::Tokenizer;
    /// let tokenizer = Tokenizer::characters(["a b"]);
    /// assert_eq!(tokenizer.token_texts(), ["", "\u{fffd}", "", "", " ", "a", "b"]);
    /// ```
    pub fn token_texts(&self) -> Vec<String> {
        let text = |(id, name): (u32, String)| match id {
            Self::UNKNOWN => char::REPLACEMENT_CHARACTER.to_string(),
            id if id < CharTokenizer::RESERVED || self.language_ids.contains(&id) => String::new(),
            // Byte-level vocabularies of Hugging Face write a space as Ġ.
            _ => name.replace('Ġ', " "),
        };
        (0..).zip(self.names()).map(text).collect()
    }

    fn new(vocabulary: Vocabulary) -> Self {
        let (numbers, normalizer) = (Numbers::default(), Normalizer::default());
        let (languages, language_ids) = (Vec::new(), Vec::new());
        Self { vocabulary, languages, language_ids, numbers, normalizer, phonemes: None }
    }

    fn encoded(&self, text: &str) -> Result<Encoded, PhonemeError> {
        let written = self.normalized(text);
        match &self.phonemes {
            None => Ok(self.vocabulary.encode(&written)),
            Some(phonemes) => Ok(self.vocabulary.encode(&phonemes.apply(&written)?)),
        }
    }

    fn encoded_lossy(&self, text: &str) -> Encoded {
        self.encoded(text).unwrap_or_else(|_| {
            let mut encoded = Encoded::default();
            normalize(&self.normalized(text), Case::Keep).chars().for_each(|one| encoded.push_unknown(one));
            encoded
        })
    }

    /// Returns the languages whose ids were added after the vocabulary, because the vocabulary has no token such as
    /// `[en]` for them.
    fn own_languages(&self) -> impl Iterator<Item = &String> {
        let places = self.languages.iter().zip(&self.language_ids);
        places.filter(|&(_, &id)| id as usize >= self.vocabulary.size()).map(|(language, _)| language)
    }
}

impl Vocabulary {
    /// Returns the number of ids, including the reserved ids.
    fn size(&self) -> usize {
        match self {
            Self::Characters(characters) => characters.size(),
            Self::Bpe(pieces) => pieces.size(),
            Self::HuggingFace(file) => file.size(),
        }
    }

    /// Returns the id of a language; `None` if the vocabulary has no token such as `[en]` for it.
    fn language(&self, name: &str) -> Option<u32> {
        match self {
            Self::Characters(_) | Self::Bpe(_) => None,
            Self::HuggingFace(file) => {
                file.id(&language_token(name)).or_else(|| file.id(&whisper_language_token(name)))
            }
        }
    }

    fn encode(&self, text: &str) -> Encoded {
        let text = normalize(text, Case::Keep);
        match self {
            Self::Characters(characters) => {
                let mut encoded = Encoded::default();
                for character in text.chars() {
                    match characters.id(character) {
                        Some(id) => encoded.ids.push(id),
                        None => encoded.push_unknown(character),
                    }
                }
                encoded
            }
            Self::Bpe(pieces) => pieces.encode(&text),
            Self::HuggingFace(file) => file.encode(&text),
        }
    }
}

/// What begins and ends a text for the decoder of Whisper: [`Tokenizer::whisper_frame`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WhisperFrame {
    /// Ids that begin a text: the start, its language and the task if the model knows several languages, and that it has no times.
    pub begin: Vec<u32>,
    /// Id that ends a text.
    pub end: u32,
    /// Ids that are no text: those of languages, tasks and times that the file names.
    pub never: Vec<u32>,
    /// First id of a time; all later ids are times too.
    pub first_time: u32,
}

/// Formats Whisper's token for a language, such as `<|en|>`.
fn whisper_language_token(name: &str) -> String {
    format!("<|{name}|>")
}

/// Formats the token for a language, such as `[en]`.
fn language_token(name: &str) -> String {
    format!("[{name}]")
}

/// Serialized form of a tokenizer: exactly one of the first three fields, the languages, and the setting for numbers.
///
/// An enum would express this better, but a vocabulary of characters without languages must have the same form as a
/// serialized [`CharTokenizer`]. For an enum, this form would need serde's `flatten`, which accepts misspelled keys.
#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SavedTokenizer {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    characters: Option<Vec<char>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    bpe: Option<BpeLists>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    hugging_face: Option<Value>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    languages: Vec<String>,
    #[serde(default, skip_serializing_if = "is_default")]
    numbers: Numbers,
    #[serde(default, skip_serializing_if = "is_default")]
    normalizer: Normalizer,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    phonemes: Option<Phonemizer>,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl TryFrom<SavedTokenizer> for Tokenizer {
    type Error = TextError;
    fn try_from(saved: SavedTokenizer) -> Result<Self, TextError> {
        let vocabulary = match (saved.characters, saved.bpe, saved.hugging_face) {
            (Some(characters), None, None) => Vocabulary::Characters(CharTokenizer::new(characters)?),
            (None, Some(lists), None) => Vocabulary::Bpe(Box::new(BpeVocabulary::new(lists)?)),
            (None, None, Some(file)) => Vocabulary::HuggingFace(Box::new(HuggingFace::new(file)?)),
            _ => return Err(TextError::NotOneVocabulary),
        };
        let tokenizer = Self::new(vocabulary).with_languages(saved.languages);
        let tokenizer = tokenizer.with_numbers(saved.numbers).with_normalizer(saved.normalizer);
        Ok(tokenizer.with_phonemes(saved.phonemes))
    }
}

impl From<Tokenizer> for SavedTokenizer {
    fn from(tokenizer: Tokenizer) -> Self {
        let Tokenizer { languages, numbers, normalizer, phonemes, .. } = tokenizer;
        let saved = Self { languages, numbers, normalizer, phonemes, ..Self::default() };
        match tokenizer.vocabulary {
            Vocabulary::Characters(characters) => Self { characters: Some(characters.characters().to_vec()), ..saved },
            Vocabulary::Bpe(pieces) => Self { bpe: Some(pieces.lists().clone()), ..saved },
            Vocabulary::HuggingFace(file) => Self { hugging_face: Some(file.file().clone()), ..saved },
        }
    }
}
