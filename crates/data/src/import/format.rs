//! The layouts of corpora that can be read.

use std::fmt;

/// How a corpus is laid out on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// JSON lines with our keys, which are NeMo's.
    Manifest,
    /// `metadata.csv` of `id|text|normalised`, and the audio in `wavs/`.
    LjSpeech,
    /// `S-C.trans.txt` in every folder, beside `S-C-NNNN.flac`.
    LibriSpeech,
    /// `S_C_P_U.normalized.txt` beside every `S_C_P_U.wav`.
    LibriTts,
    /// Tables with a header, and the audio in `clips/`.
    CommonVoice,
    /// `wav.scp`, `text`, and perhaps `segments`.
    Kaldi,
    /// Cuts, or recordings and supervisions, as JSON lines, often compressed.
    Lhotse,
    /// An audio folder of Hugging Face: `metadata.csv` or `metadata.jsonl` with a `file_name`.
    HuggingFace,
    /// Any audio files, each with a text of the same name beside it.
    Folder,
}

impl Format {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Manifest,
        Self::LjSpeech,
        Self::LibriSpeech,
        Self::LibriTts,
        Self::CommonVoice,
        Self::Kaldi,
        Self::Lhotse,
        Self::HuggingFace,
        Self::Folder,
    ];

    /// Its name for a command line or a configuration.
    pub fn word(self) -> &'static str {
        match self {
            Self::Manifest => "manifest",
            Self::LjSpeech => "ljspeech",
            Self::LibriSpeech => "librispeech",
            Self::LibriTts => "libritts",
            Self::CommonVoice => "common-voice",
            Self::Kaldi => "kaldi",
            Self::Lhotse => "lhotse",
            Self::HuggingFace => "huggingface",
            Self::Folder => "folder",
        }
    }

    /// The layout of that name.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|format| format.word() == word)
    }

    /// The files by which it is known.
    pub(super) fn known_by(self) -> &'static str {
        match self {
            Self::Manifest => "manifest.jsonl, or JSON lines with `audio_filepath`",
            Self::LjSpeech => "metadata.csv with lines of `id|text`",
            Self::LibriSpeech => "files called *.trans.txt",
            Self::LibriTts => "files called *.normalized.txt or *.original.txt",
            Self::CommonVoice => "validated.tsv, train.tsv, dev.tsv or test.tsv with columns `path` and `sentence`",
            Self::Kaldi => "wav.scp and text",
            Self::Lhotse => "*cuts*.jsonl or *recordings*.jsonl with *supervisions*.jsonl, perhaps ending in .gz",
            Self::HuggingFace => "metadata.jsonl or metadata.csv with `file_name`",
            Self::Folder => "audio files with .txt or .lab files of the same name",
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}
