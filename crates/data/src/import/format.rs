//! Layouts of corpora that can be read.

use std::fmt;

/// Layout of a corpus on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Format {
    /// Manifest: JSON lines, or one JSON array, with the keys of `plimsoll-data`, which are NeMo's.
    Manifest,
    /// LJSpeech: `metadata.csv` with lines of `id|text|normalized`, and the audio in `wavs/`.
    LjSpeech,
    /// LibriSpeech: one `S-C.trans.txt` in every folder, beside its `S-C-NNNN.flac` files.
    LibriSpeech,
    /// LibriTTS: one `S_C_P_U.normalized.txt` beside every `S_C_P_U.wav`.
    LibriTts,
    /// Common Voice: tables with a header, and the audio in `clips/`.
    CommonVoice,
    /// Kaldi: `wav.scp`, `text`, and optional files such as `segments`.
    Kaldi,
    /// Lhotse: cuts, or recordings and supervisions, as plain or compressed JSON lines, or Shar: cuts with their audio in
    /// tar files.
    Lhotse,
    /// A Hugging Face audio folder: `metadata.csv` or `metadata.jsonl` with a `file_name`.
    HuggingFace,
    /// WebDataset: tar shards whose members with equal names make a sample, audio with `.txt` or `.json`.
    WebDataset,
    /// Parquet files with the bytes of audio and a text in each row, as `datasets` of Hugging Face writes them.
    Parquet,
    /// Arrow files with the bytes of audio and a text in each row, as `Dataset.save_to_disk` of Hugging Face writes them.
    Arrow,
    /// Folder of audio files, each with a text file of equal name beside it.
    Folder,
}

impl Format {
    /// Every layout of a corpus that can be read.
    pub const ALL: [Self; 12] = [
        Self::Manifest,
        Self::LjSpeech,
        Self::LibriSpeech,
        Self::LibriTts,
        Self::CommonVoice,
        Self::Kaldi,
        Self::Lhotse,
        Self::HuggingFace,
        Self::WebDataset,
        Self::Parquet,
        Self::Arrow,
        Self::Folder,
    ];

    /// Returns the name of the layout on a command line and in a configuration.
    pub fn name(self) -> &'static str {
        match self {
            Self::Manifest => "manifest",
            Self::LjSpeech => "ljspeech",
            Self::LibriSpeech => "librispeech",
            Self::LibriTts => "libritts",
            Self::CommonVoice => "common-voice",
            Self::Kaldi => "kaldi",
            Self::Lhotse => "lhotse",
            Self::HuggingFace => "huggingface",
            Self::WebDataset => "webdataset",
            Self::Parquet => "parquet",
            Self::Arrow => "arrow",
            Self::Folder => "folder",
        }
    }

    /// Returns the layout called `name`; `None` for an unknown name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|format| format.name() == name)
    }

    /// Describes the files by which the layout is detected, in words for messages.
    pub(super) fn marker_files(self) -> &'static str {
        match self {
            Self::Manifest => "manifest.jsonl, or JSON lines or an array with `audio_filepath`",
            Self::LjSpeech => "metadata.csv with lines of `id|text`",
            Self::LibriSpeech => "files called *.trans.txt",
            Self::LibriTts => "files called *.normalized.txt or *.original.txt",
            Self::CommonVoice => "validated.tsv, train.tsv, dev.tsv or test.tsv with columns `path` and `sentence`",
            Self::Kaldi => "wav.scp and text",
            Self::Lhotse => "*cuts*.jsonl or *recordings*.jsonl with *supervisions*.jsonl, perhaps ending in .gz",
            Self::HuggingFace => "metadata.jsonl or metadata.csv with `file_name`",
            Self::WebDataset => "tar files, or a pattern such as `train-{000..012}.tar`",
            Self::Parquet => {
                "Parquet files, or a pattern such as `data/train-*.parquet`, with columns `audio` and `text`"
            }
            Self::Arrow => "Arrow files, or a pattern such as `train/data-*.arrow`, with columns `audio` and `text`",
            Self::Folder => "audio files with .txt or .lab files of the same name",
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
