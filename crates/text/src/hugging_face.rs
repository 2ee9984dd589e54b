//! Hugging Face `tokenizer.json` with a BPE model, its ids shifted behind our reserved ids.

use serde_json::Value;
use tokenizers::models::ModelWrapper;
use tokenizers::models::bpe::BPE;
use tokenizers::{Decoder, Model};

use crate::characters::CharTokenizer;
use crate::encoded::Encoded;
use crate::error::TextError;

/// Token for a space in files whose pre-tokenizer would lose spaces, such as the file of XTTS.
///
/// The file does not contain the rule that this token replaces spaces: XTTS replaces them in the code around the
/// tokenizer. We replace spaces whenever the token is in the file.
const SPACE: &str = "[SPACE]";

/// Token that only the files of Whisper have.
const WHISPER_START: &str = "<|startoftranscript|>";

/// Unknown token that we add to files without an unknown token. Its line breaks distinguish it from texts, which
/// contain no line breaks here.
const UNKNOWN: &str = "\n<unknown>\n";

/// Tokenizer of the `tokenizers` crate. Its ids are shifted by the number of reserved ids, and its unknown id becomes
/// our unknown id.
#[derive(Clone, Debug)]
pub(crate) struct HuggingFace {
    inner: tokenizers::Tokenizer,
    /// Content of the file with its training settings off, without our additions to `inner`.
    file: Value,
    /// Id of unknown characters in `inner`, before shifting.
    unknown: u32,
    /// Whether the file has a token for the space.
    space: bool,
    /// Whether each text begins with a space, as the texts do that Whisper was trained with.
    leading_space: bool,
    /// Number of ids in the file, including gaps.
    ids: u32,
}

impl HuggingFace {
    /// Builds a tokenizer from the JSON content of a Hugging Face `tokenizer.json`.
    pub(crate) fn new(mut file: Value) -> Result<Self, TextError> {
        let read: Result<tokenizers::Tokenizer, _> = serde_json::from_value(file.clone());
        let mut inner = read.map_err(|error| TextError::HuggingFace(error.to_string()))?;
        let unknown = match inner.get_model() {
            ModelWrapper::BPE(model) => model.unk_token.clone(),
            ModelWrapper::WordPiece(_) => return Err(TextError::NotBpe("WordPiece")),
            ModelWrapper::WordLevel(_) => return Err(TextError::NotBpe("WordLevel")),
            ModelWrapper::Unigram(_) => return Err(TextError::NotBpe("Unigram")),
        };
        let id = |piece: String| inner.get_model().token_to_id(&piece).ok_or(TextError::UnknownPieceMissing(piece));
        let unknown = unknown.map(id).transpose()?;
        let ids = inner.get_vocab(true).into_values().max().map_or(0, |last| last + 1);
        let space = inner.get_added_vocabulary().get_vocab().contains_key(SPACE);
        let leading_space = inner.get_added_vocabulary().get_vocab().contains_key(WHISPER_START);

        // Truncation, padding and dropout are for training a language model. Here a text always has the same ids, and
        // all of them.
        file["truncation"] = Value::Null;
        file["padding"] = Value::Null;
        file["model"]["dropout"] = Value::Null;
        inner.with_truncation(None).expect("no truncation is always possible").with_padding(None);
        let mut model = file["model"].clone();
        if unknown.is_none() {
            // Without an unknown token the `tokenizers` crate drops unknown characters silently.
            model["unk_token"] = UNKNOWN.into();
            model["vocab"][UNKNOWN] = ids.into();
        }
        // Read from text, because the crate takes the type of a model as a borrowed string, which a JSON value cannot
        // lend.
        let model: Result<BPE, _> = serde_json::from_str(&model.to_string());
        inner.with_model(model.expect("the same model was read above"));
        Ok(Self { inner, file, unknown: unknown.unwrap_or(ids), space, leading_space, ids })
    }

    /// Returns the content of the Hugging Face file, for saving.
    pub(crate) fn file(&self) -> &Value {
        &self.file
    }

    /// Returns the number of ids of the tokenizer, including the reserved ids.
    pub(crate) fn size(&self) -> usize {
        (self.ids + CharTokenizer::RESERVED) as usize
    }

    /// Returns the shifted id of a token in the file; `None` if the file does not have it.
    pub(crate) fn id(&self, token: &str) -> Option<u32> {
        self.inner.token_to_id(token).map(|id| id + CharTokenizer::RESERVED)
    }

    /// Lists the shifted ids of the tokens that the file adds to its vocabulary.
    pub(crate) fn added(&self) -> impl Iterator<Item = u32> {
        let added = self.inner.get_added_vocabulary().get_added_tokens_decoder();
        added.keys().map(|id| id + CharTokenizer::RESERVED)
    }

    /// Returns the tokens of the file in the order of their ids.
    pub(crate) fn names(&self) -> impl Iterator<Item = String> {
        (0..self.ids).map(|id| self.inner.id_to_token(id).unwrap_or_else(|| "<unused>".into()))
    }

    /// Encodes a normalized text as ids.
    pub(crate) fn encode(&self, text: &str) -> Encoded {
        let text = match (self.space, self.leading_space) {
            (true, _) => text.replace(' ', SPACE),
            (false, true) if !text.is_empty() => format!(" {text}"),
            _ => text.into(),
        };
        let characters: Vec<char> = text.chars().collect();
        let mut encoded = Encoded::default();
        let encoding = match self.inner.encode_char_offsets(text.as_str(), false) {
            Ok(encoding) => encoding,
            // The file's regular expression may give up on a very hard text.
            Err(error) => {
                tracing::warn!("the tokenizer cannot read \"{text}\": {error}");
                characters.into_iter().for_each(|character| encoded.push_unknown(character));
                return encoded;
            }
        };
        // Characters before `done` are known or counted already; several unknown bytes may belong to one character.
        let mut done = 0;
        for (&id, &(start, end)) in encoding.get_ids().iter().zip(encoding.get_offsets()) {
            if id != self.unknown {
                encoded.ids.push(id + CharTokenizer::RESERVED);
            } else if start.max(done) < end {
                characters[start.max(done)..end].iter().for_each(|&character| encoded.push_unknown(character));
                done = end;
            }
        }
        encoded
    }

    /// Decodes `ids` to text. The ids must be neither reserved ids nor language ids; special tokens of the file are
    /// dropped.
    pub(crate) fn decode(&self, ids: &[u32]) -> String {
        let tokens: Vec<String> = ids.iter().filter_map(|&id| self.token(id)).collect();
        let text = match self.inner.get_decoder() {
            Some(decoder) => decoder.decode(tokens.clone()).unwrap_or_else(|error| {
                tracing::warn!("the tokenizer cannot join {tokens:?}: {error}");
                tokens.concat()
            }),
            None if self.space => tokens.concat(),
            // The default of the crate for a file without a decoder.
            None => tokens.join(" "),
        };
        text.strip_prefix(' ').map(str::to_owned).unwrap_or(text)
    }

    /// Returns the text of a shifted id: `None` for special tokens, U+FFFD for unknown ids.
    fn token(&self, id: u32) -> Option<String> {
        let known = id.checked_sub(CharTokenizer::RESERVED).filter(|&id| id != self.unknown);
        match known.and_then(|id| self.inner.id_to_token(id)) {
            None => Some(char::REPLACEMENT_CHARACTER.to_string()),
            Some(token) if token == SPACE => Some(" ".into()),
            Some(token) => (!self.inner.get_added_vocabulary().is_special_token(&token)).then_some(token),
        }
    }
}

/// Compares tokenizers by their files, because the type of the `tokenizers` crate has no equality.
impl PartialEq for HuggingFace {
    fn eq(&self, other: &Self) -> bool {
        self.file == other.file
    }
}
