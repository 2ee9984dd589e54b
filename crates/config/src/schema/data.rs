//! Keys of `[data]`: which utterances to train on, and how they become batches.

use std::ops::Bound::{Excluded, Included};
use std::path::PathBuf;

use plimsoll_core::{Bytes, Seconds};
use serde::{Deserialize, Serialize};

use crate::choices::{NumbersChoice, TextChoice, TokenizerChoice, TooLongChoice};
use crate::key::Key;
use crate::kind::{Interval, Kind};

section! {
    /// Which utterances to train on, and how they become batches.
    DataConfig, "data." {
        /// Corpus to train on: a folder or a list, in any layout that `plimsoll data import` reads. Default: a built-in corpus
        /// of synthetic speech, which is made in `data.corpus_dir`.
        manifest: Option<PathBuf> = None, Kind::Path;
        /// Folder that relative paths to audio files start from. Default: the folder of the list.
        audio_root: Option<PathBuf> = None, Kind::Path;
        /// Largest share of utterances that are left out: without audio or text, on malformed lines, with broken files, or
        /// outside of the limits. A new run with more of them stops; a run with fewer reports them.
        unusable_share: f64 = 0.05, Kind::Number(Interval(Included(0.0), Included(1.0)));
        /// Folder of the built-in corpus.
        corpus_dir: PathBuf = "corpus".into(), Kind::Path;
        /// Number of utterances in the built-in corpus.
        corpus_utterances: u32 = 1600, Kind::count(1);
        /// Number of speakers in the built-in corpus.
        corpus_speakers: u32 = 40, Kind::count(1);
        /// Number of different words in the built-in corpus, from the start of its word list; the first ten are the digits.
        /// Default: all words.
        corpus_words: Option<u32> = None, Kind::count(1);
        /// Whether the built-in corpus sounds as if recorded in a studio, without room echo and noise. Suits text-to-speech.
        corpus_studio: bool = false, Kind::Bool;
        /// Seed of the built-in corpus. It is not the run's `seed`, so that runs with different seeds can share a corpus.
        corpus_seed: u64 = 1, Kind::long_count(0);
        /// Corpus to validate on, in any layout that `data.manifest` takes. Default: a share of the training utterances is held
        /// out.
        validation_manifest: Option<PathBuf> = None, Kind::Path;
        /// Share of the training utterances to hold out for validation if there is no `data.validation_manifest`; the share is
        /// met approximately. With four or more known speakers, whole speakers are held out. Data that is added to a run moves nothing
        /// from training to validation; a new run holds out speakers as soon as there are four.
        validation_share: f64 = 0.1, Kind::Number(Interval(Excluded(0.0), Excluded(0.9)));
        /// Effective batch size in utterances: the data of one optimizer step, on any device. With
        /// `training.gradient_accumulation_steps` it is the size of a micro-batch, and a step has as many of them. Default: 16,
        /// unless `data.batch_seconds` is given.
        batch_size: Option<u32> = None, Kind::count(1);
        /// Effective batch size as audio time, padding included. Not together with `data.batch_size`.
        batch_seconds: Option<Seconds> = None, Kind::Time(Interval::POSITIVE);
        /// Threads that read audio and compute features. Default, also written `auto`: 1 at first, and more whenever training
        /// waits for data, up to one per CPU core.
        num_workers: Option<u32> = None, Kind::Integer(1, 1024);
        /// Batches to prepare ahead, in host memory. Default, also written `auto`: 2 per thread at first, and up to 16 if training
        /// still waits for data.
        prefetch_buffer_size: Option<u32> = None, Kind::Integer(1, 1024);
        /// Number of batches whose utterances are grouped by length together. A larger window needs less padding and shuffles
        /// less. Default: a seventh of the epoch, but 16 to 150 batches.
        shuffle_window: Option<u32> = None, Kind::count(1);
        /// Lengths of batches are padded to a multiple of this many frames, so that fewer shapes occur.
        frame_grid: u32 = 16, Kind::count(1);
        /// Largest number of padded lengths, as pairs of frames and tokens; they are chosen from the lengths of the data. A GPU
        /// compiles and tunes its kernels for each new shape, so fewer shapes save time there; on a CPU they save none.
        /// Default: 72 on a GPU, no limit on a CPU.
        shapes: Option<u32> = None, Kind::count(1);
        /// Shortest utterance to use; shorter ones are left out and counted.
        min_seconds: Seconds = Seconds(0.1), Kind::Time(Interval::NOT_NEGATIVE);
        /// Longest utterance to use; `data.too_long` sets what happens to longer ones.
        max_seconds: Seconds = Seconds(30.0), Kind::Time(Interval::POSITIVE);
        /// What happens to utterances longer than `data.max_seconds`: `refuse` leaves them out and counts them, `split` cuts
        /// them at silences, `chunk` cuts them into equal parts, `truncate` drops their end. Cut utterances keep a share of the
        /// text in proportion to their audio, and are listed.
        too_long: TooLongChoice = TooLongChoice::Refuse, Kind::OneOf(TooLongChoice::NAMES);
        /// Longest text to use, in characters; utterances with longer texts are left out and counted. Default: no limit.
        max_text_length: Option<u32> = None, Kind::count(1);
        /// TTS: longest reference audio. It is cut from another utterance of the same speaker, and shows the model
        /// which voice to speak in.
        reference_seconds: Seconds = Seconds(2.0), Kind::Time(Interval::POSITIVE);
        /// Vocoder: length of the crops that it learns from, each at a random place of an utterance.
        crop_seconds: Seconds = Seconds(0.5), Kind::Time(Interval::POSITIVE);
        /// Host memory for features that are kept from one epoch to the next, at each of `augment.speeds`.
        cache_memory: Bytes = Bytes::gib(1), Kind::Memory(Bytes(0));
        /// Folder for features that are kept from one run to the next, for corpora that do not fit into memory. Several runs can
        /// share it. Default: no features are kept on disk.
        cache_dir: Option<PathBuf> = None, Kind::Path;
        /// Largest size of `data.cache_dir`; the oldest features are deleted first.
        cache_size: Bytes = Bytes::gib(50), Kind::Memory(Bytes(0));
        /// Whether `data.cache_dir` holds features in 16 bits, which halves their size.
        cache_half: bool = false, Kind::Bool;
        /// Folder into which compressed shards (`.tar.gz`, `.tgz`) are unpacked once for all runs. Default: `plimsoll/unpacked` in
        /// the cache folder of the user.
        unpack_dir: Option<PathBuf> = None, Kind::Path;
        /// Largest size of `data.unpack_dir`; the shards whose last use is the longest ago are deleted first.
        unpack_size: Bytes = Bytes::gib(50), Kind::Memory(Bytes(0));
        /// Whether texts are converted to lower case.
        lowercase: bool = false, Kind::Bool;
        /// Whether texts keep their punctuation. Without it, only single marks inside words and numbers stay. A recognizer with
        /// CTC needs a frame for each mark, and one more between two equal ones, as in `...`.
        punctuation: bool = true, Kind::Bool;
        /// How numbers in texts are read: `as_written` (digit by digit) or `english` (replaced by English words). The model
        /// stores this, so that it treats later texts in the same way.
        numbers: NumbersChoice = NumbersChoice::AsWritten, Kind::OneOf(NumbersChoice::NAMES);
        /// Steps that make words of texts before `data.numbers` and `data.lowercase` are applied, such as `["currency:en",
        /// "dates:en", "lowercase"]`, or a language for all steps that know it: `["en"]`. The steps are `nfc`, `nfkc`, `quotes`,
        /// `dashes`, `currency`, `dates`, `times`, `units`, `years`, `letters`, `numbers`, `lowercase`, `punctuation` and
        /// `whitespace`. The model stores them, so that it treats later texts in the same way. Default: no steps.
        normalize: Vec<String> = Vec::new(), Kind::Texts;
        /// Tokens of a text: `char` (its characters) or `bpe` (parts of words, learned from the training texts).
        tokenizer: TokenizerChoice = TokenizerChoice::Characters, Kind::OneOf(TokenizerChoice::NAMES);
        /// TTS: what the model reads of a text. `characters` are the letters as written; `phonemes` are the sounds for which the program
        /// `espeak-ng` takes them, in the voice `data.language`. With phonemes a model need not learn how a language is spelled, which
        /// helps where little speech is there; the program must be installed where it is trained and where it speaks.
        text: TextChoice = TextChoice::Characters, Kind::OneOf(TextChoice::NAMES);
        /// Language of all texts. Whisper: a code such as `de`; default: that of each utterance where the corpus names it, or else that
        /// of the model, English in those that were published. `data.text` = `phonemes`: a voice of `espeak-ng`, such as `en-us` or
        /// `de`; default: the language that the corpus names.
        language: Option<String> = None, Kind::Text;
        /// Number of tokens for `data.tokenizer` = `bpe`.
        bpe_size: u32 = 500, Kind::Integer(5, 1_000_000);
        /// File to read the tokens from, in place of `data.tokenizer`: the `model.json` of another model, or a Hugging Face
        /// `tokenizer.json` with BPE. Default: none.
        tokenizer_file: Option<PathBuf> = None, Kind::Path;
    }
}

impl DataConfig {
    /// Value of `batch_size` if neither `batch_size` nor `batch_seconds` is given.
    pub const DEFAULT_BATCH_SIZE: u32 = 16;

    /// Returns the value of `batch_size`; `None` if batches are given as audio time. It is the effective batch size only
    /// without `training.gradient_accumulation_steps`.
    pub(crate) fn written_batch_size(&self) -> Option<u32> {
        match self.batch_seconds {
            Some(_) => None,
            None => Some(self.batch_size.unwrap_or(Self::DEFAULT_BATCH_SIZE)),
        }
    }
}
