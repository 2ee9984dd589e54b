//! A Hugging Face `tokenizer.json` with a BPE model, under our reserved ids.

#[cfg(test)]
mod tests;

use serde_json::Value;
use tokenizers::models::ModelWrapper;
use tokenizers::models::bpe::BPE;
use tokenizers::{Decoder, Model};

use crate::characters::CharTokenizer;
use crate::encoded::Encoded;
use crate::error::TextError;

/// The token for a space in files whose splitting into words would lose spaces, such as that of XTTS.
///
/// The file does not say that it replaces the space: the code around it did. We do it wherever the token is there.
const SPACE: &str = "[SPACE]";

/// The piece for the unknown in files without one. It is no text: that has no line breaks when it comes here.
const UNKNOWN: &str = "\n<unknown>\n";

/// A tokenizer of the `tokenizers` crate. Its ids are shifted by the reserved ones, and its unknown becomes ours.
#[derive(Clone, Debug)]
pub(crate) struct HuggingFace {
    inner: tokenizers::Tokenizer,
    /// The file as it is used, without what we put into `inner`.
    file: Value,
    /// The id in `inner` of what is unknown, before shifting.
    unknown: u32,
    /// Whether the file has a token for a space.
    space: bool,
    /// Ids of the file, gaps among them.
    ids: u32,
}

impl HuggingFace {
    /// Takes the content of a file.
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

        // These are for training a model of text. Here the same text is always the same ids, and all of them.
        file["truncation"] = Value::Null;
        file["padding"] = Value::Null;
        file["model"]["dropout"] = Value::Null;
        inner.with_truncation(None).expect("no truncation is always possible").with_padding(None);
        let mut model = file["model"].clone();
        if unknown.is_none() {
            // The crate drops unknown letters without a trace where there is no piece for them.
            model["unk_token"] = UNKNOWN.into();
            model["vocab"][UNKNOWN] = ids.into();
        }
        // From text, because the crate takes the kind of a model as a borrowed string, and a value lends none.
        let model: Result<BPE, _> = serde_json::from_str(&model.to_string());
        inner.with_model(model.expect("the file was read before"));
        Ok(Self { inner, file, unknown: unknown.unwrap_or(ids), space, ids })
    }

    /// The file's content, as it is used.
    pub(crate) fn file(&self) -> &Value {
        &self.file
    }

    /// Ids in use, the reserved ones among them.
    pub(crate) fn size(&self) -> usize {
        (self.ids + CharTokenizer::RESERVED) as usize
    }

    /// The id of a token of the file.
    pub(crate) fn id(&self, token: &str) -> Option<u32> {
        self.inner.token_to_id(token).map(|id| id + CharTokenizer::RESERVED)
    }

    /// What the file's ids stand for, in order.
    pub(crate) fn names(&self) -> impl Iterator<Item = String> {
        (0..self.ids).map(|id| self.inner.id_to_token(id).unwrap_or_else(|| "<unused>".into()))
    }

    /// The ids of a normalised text.
    pub(crate) fn encode(&self, text: &str) -> Encoded {
        let text = if self.space { text.replace(' ', SPACE) } else { text.into() };
        let letters: Vec<char> = text.chars().collect();
        let mut encoded = Encoded::default();
        let encoding = match self.inner.encode_char_offsets(text.as_str(), false) {
            Ok(encoding) => encoding,
            // A file's pattern may give up on a text that is too hard for it.
            Err(error) => {
                tracing::warn!("the tokenizer cannot read \"{text}\": {error}");
                letters.into_iter().for_each(|letter| encoded.push_unknown(letter));
                return encoded;
            }
        };
        // Letters before it are known or counted; several bytes of one letter may be unknown.
        let mut done = 0;
        for (&id, &(start, end)) in encoding.get_ids().iter().zip(encoding.get_offsets()) {
            if id != self.unknown {
                encoded.ids.push(id + CharTokenizer::RESERVED);
            } else if start.max(done) < end {
                letters[start.max(done)..end].iter().for_each(|&letter| encoded.push_unknown(letter));
                done = end;
            }
        }
        encoded
    }

    /// The text of `ids`, none of which is silent; special tokens of the file vanish.
    pub(crate) fn decode(&self, ids: &[u32]) -> String {
        let tokens: Vec<String> = ids.iter().filter_map(|&id| self.token(id)).collect();
        let text = match self.inner.get_decoder() {
            Some(decoder) => decoder.decode(tokens.clone()).unwrap_or_else(|error| {
                tracing::warn!("the tokenizer cannot join {tokens:?}: {error}");
                tokens.concat()
            }),
            None if self.space => tokens.concat(),
            // As the crate does where a file says nothing.
            None => tokens.join(" "),
        };
        text.strip_prefix(' ').map(str::to_owned).unwrap_or(text)
    }

    /// The token of an id, where it is a part of a text.
    fn token(&self, id: u32) -> Option<String> {
        let known = id.checked_sub(CharTokenizer::RESERVED).filter(|&id| id != self.unknown);
        match known.and_then(|id| self.inner.id_to_token(id)) {
            None => Some(char::REPLACEMENT_CHARACTER.to_string()),
            Some(token) if token == SPACE => Some(" ".into()),
            Some(token) => (!self.inner.get_added_vocabulary().is_special_token(&token)).then_some(token),
        }
    }
}

/// Two are the same when their files are; the crate's type has no equality.
impl PartialEq for HuggingFace {
    fn eq(&self, other: &Self) -> bool {
        self.file == other.file
    }
}
