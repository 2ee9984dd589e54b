//! Issues: one finding about one utterance each, with the reason why it cannot be used and the place where it is
//! listed.

use std::fmt;
use std::path::PathBuf;

use plimsoll_core::{Seconds, counted};

/// Place in a corpus: a line of a file, or a whole file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceLocation {
    /// File of the place, or a folder that cannot be read.
    pub file: PathBuf,
    /// Number of the line, counted from 1; `None` for the whole file.
    pub line: Option<usize>,
}

impl fmt::Display for SourceLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "{}:{line}", self.file.display()),
            None => write!(f, "{}", self.file.display()),
        }
    }
}

/// Reason why one utterance cannot be used, with the place where it is listed.
///
/// Import, check and selection all report their findings as issues. `Display` gives one line for logs and lists:
/// ``manifest.jsonl:4: `a17`: it has no text``.
#[derive(Clone, Debug, PartialEq)]
pub struct Issue {
    /// Place where the utterance is listed; `None` for an utterance that came without a list.
    pub location: Option<SourceLocation>,
    /// Id of the utterance; `None` where it could not be read.
    pub id: Option<String>,
    /// What is wrong with the utterance, with the facts.
    pub kind: IssueKind,
}

impl Issue {
    /// Creates an issue of the utterance `id`, without a location.
    pub(crate) fn for_utterance(id: impl Into<String>, kind: IssueKind) -> Self {
        Self { location: None, id: Some(id.into()), kind }
    }
}

impl From<IssueKind> for Issue {
    fn from(kind: IssueKind) -> Self {
        Self { location: None, id: None, kind }
    }
}

impl fmt::Display for Issue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { location, id, kind } = self;
        if let Some(location) = location {
            write!(f, "{location}: ")?;
        }
        if let Some(id) = id {
            write!(f, "`{id}`: ")?;
        }
        write!(f, "{kind}")
    }
}

/// Kind of an issue of an utterance, with the facts.
///
/// The first group of kinds comes from reading lists, the second from checking audio files, the third from the limits
/// and the vocabulary of one run.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum IssueKind {
    /// The line is not a JSON object. Holds the message of the parser.
    #[error("a JSON object was expected: {0}")]
    NotJson(String),
    /// A required key is missing. Holds the key.
    #[error("the key `{0}` is missing")]
    MissingKey(&'static str),
    /// The header lacks a required column. Holds the name of the column.
    #[error("the header names no column `{0}`, so nothing of this file can be read")]
    MissingColumn(&'static str),
    /// A required column is there, but not in a form that can be read.
    #[error("its column `{column}` holds {found}, so nothing of this file can be read")]
    WrongColumn {
        /// Name of the column.
        column: String,
        /// What the column holds, and what is needed.
        found: String,
    },
    /// The columns of a table are separated by another character than those of its layout.
    #[error("its columns are separated by {found}, and its layout separates them by {expected}")]
    WrongDelimiter {
        /// Name of the characters between the columns: `commas`.
        found: &'static str,
        /// Name of the characters that the layout has: `tabs`.
        expected: &'static str,
    },
    /// A list or an object stands where a text is expected.
    #[error("`{key}` is {found}, and a text was expected")]
    WrongType {
        /// Key with a value of the wrong type.
        key: &'static str,
        /// Type of the value that was found: `a list`, `an object`, `null`.
        found: &'static str,
    },
    /// The line has too few or too many columns.
    #[error("expected {expected}; columns found: {found}")]
    WrongColumnCount {
        /// Description of the expected columns.
        expected: String,
        /// Number of columns in the line.
        found: usize,
    },
    /// A quotation mark opens a field of a table, and no quotation mark closes it.
    #[error("a quotation mark opens a field, and none closes it")]
    UnclosedQuote,
    /// The id is empty.
    #[error("it has no id")]
    NoId,
    /// The utterance has no text in the list, or an empty text.
    #[error("it has no text")]
    NoText,
    /// The audio file of the utterance is unknown. Holds the reason.
    #[error("it has no audio: {0}")]
    NoAudio(String),
    /// The line is not valid UTF-8. Holds the number of the first invalid byte, counted from 1.
    #[error("not UTF-8, from byte {0} on")]
    NotUtf8(usize),
    /// The line is not valid UTF-16. Holds the number of the first invalid character, counted from 1.
    #[error("not UTF-16, from character {0} on")]
    NotUtf16(usize),
    /// An earlier utterance has an equal id. Holds the place where the earlier utterance is listed.
    #[error("its id is already used at {0}")]
    DuplicateId(SourceLocation),
    /// A time is not a finite number of seconds, or it is negative.
    #[error("`{key}` is {value}, and a number of seconds was expected")]
    InvalidTime {
        /// Key or column of the invalid time.
        key: &'static str,
        /// Invalid value of the time, as written in the list.
        value: String,
    },
    /// The end of the utterance is not after its start.
    #[error("it begins at {start} and ends at {end}")]
    EndsBeforeStart {
        /// Start of the utterance, in seconds.
        start: f64,
        /// End of the utterance, in seconds.
        end: f64,
    },
    /// A line, a text or a name is longer than an import accepts, so the rest was not read.
    #[error("the {field} is longer than {max_bytes} bytes")]
    FieldTooLong {
        /// Kind of text that is too long: `line`, `text`, `name`.
        field: &'static str,
        /// Largest number of bytes that a line, text or name of this kind may have.
        max_bytes: usize,
    },
    /// A shard is damaged or cut short. What lies before the damage is used.
    #[error("damaged at byte {at}, so what lies behind is lost{}: {problem}", about(*lost))]
    DamagedShard {
        /// Position of the damage in the shard.
        at: u64,
        /// Estimated number of utterances that are lost, from the other shards or from the part before the damage; 0 if
        /// nothing is known.
        lost: usize,
        /// Description of the damage.
        problem: String,
    },
    /// A shard cannot be read to its end.
    #[error("it cannot be read to its end{}: {problem}", about(*lost))]
    UnreadableShard {
        /// Estimated number of utterances that are lost, from the other shards; 0 if nothing is known.
        lost: usize,
        /// Message of the operating system.
        problem: String,
    },
    /// Rows of a Parquet file are damaged. The rows before the damage are used, and those of other row groups.
    #[error("damaged at byte {at}, so rows {first} to {last} are lost: {problem}")]
    DamagedRows {
        /// Position of the damage in the file.
        at: u64,
        /// Number of the first row that is lost, counted from 1.
        first: usize,
        /// Number of the last row that is lost.
        last: usize,
        /// Description of the damage.
        problem: String,
    },
    /// A file or a folder cannot be read to its end. Holds the message of the operating system.
    #[error("it cannot be read to its end: {0}")]
    Unreadable(String),
    /// The audio of a Kaldi utterance is the output of a command. Commands are never run. Holds the command.
    #[error("its audio is made by a command, which is not run: {0}")]
    AudioFromCommand(String),
    /// The audio of a Kaldi utterance is the output of a command that changes the sound of its file, or may change it.
    #[error("its audio is changed by `{change}` in a command, which is not run: {command}")]
    AudioChangedByCommand {
        /// Word of the command that changes the sound, or is not known.
        change: String,
        /// The command.
        command: String,
    },
    /// The command of a Kaldi utterance reduces the sample rate below that of speech.
    #[error("a command, which is not run, reduces its {found} Hz to {rate} Hz, and audio is read as its file has it")]
    LoweredByCommand {
        /// Sample rate that the command asks for, in hertz.
        rate: u32,
        /// Sample rate of the file, in hertz.
        found: u32,
    },
    /// The audio of a Kaldi utterance is in an archive, and its position there is not given, or has a range. Holds the
    /// place in the archive.
    #[error("its place in an archive is not given as `FILE.ark:POSITION`: {0}")]
    AudioInArchive(String),
    /// A Kaldi archive has something else than audio at the position in the list, such as features.
    #[error("{} has {found} at byte {offset}, and audio is needed", file.display())]
    NotAudioInArchive {
        /// Archive.
        file: PathBuf,
        /// Position in the archive.
        offset: u64,
        /// What is at the position.
        found: &'static str,
    },
    /// The audio of a Lhotse utterance is in memory, on the network or in a tar file. Holds Lhotse's name for the type.
    #[error("its audio is of type `{0}`, and only files can be read")]
    AudioNotInFile(String),
    /// The key of the duration has no value, and other lines of the list have one.
    #[error("its duration is unknown (`null`), and other lines give theirs; without the key, audio is read to its end")]
    UnknownDuration,
    /// The text of a Lhotse cut belongs to more audio than the cut has. Times are in seconds from the start of the cut.
    #[error("its text is spoken from {from:.3}s to {to:.3}s of a cut that lasts {length:.3}s")]
    TextBeyondCut {
        /// Start of the text.
        from: f64,
        /// End of the text.
        to: f64,
        /// Duration of the cut.
        length: f64,
    },
    /// An earlier utterance has the same text and the same part of the same audio. Holds the place where the earlier
    /// utterance is listed.
    #[error("the same text of the same audio is already listed at {0}")]
    RepeatsEarlier(SourceLocation),
    /// A Lhotse cut has a type that is not read. Holds the name of the type.
    #[error("it is a `{0}`, and only cuts with sound of recordings can be read")]
    NotMonoCut(String),
    /// A Lhotse cut plays several recordings at the same time.
    #[error("it mixes several recordings at {0}, and only recordings one after the other can be read")]
    MixedRecordings(Seconds),
    /// An utterance has some channels of a file: more than one, and not all.
    #[error("it has {wanted} of {channels} channels of its file, and one or all of them can be read")]
    SomeOfSeveralChannels {
        /// Number of channels of the utterance.
        wanted: usize,
        /// Number of channels of the file.
        channels: usize,
    },
    /// The text of a Lhotse cut is spoken in another channel than that of the cut.
    #[error("its text is spoken in another channel than that of its cut")]
    TextOfOtherChannel,
    /// The channel in the list is no number from 0 on. Holds what the list has.
    #[error("`channel` is {0}, and the number of one channel was expected, counted from 0")]
    InvalidChannel(String),
    /// A Lhotse recording has a transform, such as a change of speed. Holds the name of the transform.
    #[error("its recording is changed by `{0}`, and files are only read as they are")]
    ChangedRecording(String),

    /// The audio file does not exist. Holds the path.
    #[error("audio file {} does not exist", .0.display())]
    MissingAudio(PathBuf),
    /// The audio file cannot be read. Holds the error with its causes, in one line.
    #[error("{0}")]
    UnreadableAudio(String),
    /// The audio file does not have the channel of the utterance.
    #[error("it is channel {channel} of its audio file, counted from 0, and that has {}", counted(usize::from(*channels), "channel"))]
    MissingChannel {
        /// Channel of the utterance, counted from 0.
        channel: u16,
        /// Number of channels of the file.
        channels: u16,
    },
    /// The sample rate in the list is not that of the audio file, so the times in the list are not those of the file.
    #[error("its list gives a sample rate of {listed} Hz, and its audio file has {found} Hz")]
    WrongRate {
        /// Sample rate of the file in the list, in hertz.
        listed: u32,
        /// Sample rate of the file, in hertz.
        found: u32,
    },
    /// The path of the audio file is not UTF-8, so no list can name it. Holds the path with the wrong bytes replaced.
    #[error("the path of its audio file is not UTF-8, so no list can name it: {0}")]
    PathNotUtf8(String),
    /// The duration in the list is longer than the audio.
    #[error("it should last {listed}, but its audio lasts only {found}")]
    WrongDuration {
        /// Duration of the utterance in the list.
        listed: Seconds,
        /// Length of the audio from the start of the utterance to the end of the file.
        found: Seconds,
    },
    /// The utterance starts after the end of its audio file.
    #[error("it starts at {offset}, but its audio lasts only {length}")]
    StartsAfterEnd {
        /// Start of the utterance in the audio file.
        offset: Seconds,
        /// Length of the audio file.
        length: Seconds,
    },
    /// All samples of the audio are equal but for -80 dB of full scale.
    #[error("its audio is silent")]
    Silent,

    /// The text has characters outside the vocabulary. Holds the message of the tokenizer, which names the first such
    /// character.
    #[error("{0}")]
    UnknownCharacters(String),
    /// The audio is shorter than [`Limits::shortest`](crate::Limits::shortest). Holds the duration of the audio.
    #[error("too short: it lasts {0}")]
    TooShort(Seconds),
    /// The audio is longer than [`Limits::longest`](crate::Limits::longest). Holds the duration of the audio.
    #[error("too long: it lasts {0}")]
    TooLong(Seconds),
    /// The text has no character left after normalization.
    #[error("empty text")]
    EmptyText,
    /// The text is longer than [`Limits::longest_text`](crate::Limits::longest_text). Holds its number of characters.
    #[error("too long a text: it has {0} characters")]
    TextTooLong(usize),
    /// The text needs more frames than a CTC loss gets from the audio.
    #[error("too little audio for the text: {needed} frames needed, {frames} there")]
    TooLittleAudio {
        /// Number of frames that the loss would get.
        frames: u64,
        /// Number of frames that the text needs.
        needed: u64,
    },
}

/// Counts the listed utterances that `issues` stand for; those of a damaged shard are an estimate.
pub(crate) fn utterances_of<'i>(issues: impl IntoIterator<Item = &'i Issue>) -> usize {
    issues.into_iter().map(|issue| issue.kind.utterances()).sum()
}

/// Returns the part of a message on a shard that says how many utterances are lost.
fn about(lost: usize) -> String {
    if lost == 0 { String::new() } else { format!(", about {}", counted(lost, "utterance")) }
}

impl IssueKind {
    /// Returns the number of listed utterances that the issue stands for: mostly one. For a damaged shard it is an estimate.
    pub fn utterances(&self) -> usize {
        match self {
            Self::DamagedShard { lost, .. } | Self::UnreadableShard { lost, .. } => (*lost).max(1),
            Self::DamagedRows { first, last, .. } => last.saturating_sub(*first) + 1,
            _ => 1,
        }
    }

    /// Returns a fixed name of the kind without the facts, for counting. The names do not change, because scripts read
    /// them in reports.
    pub fn name(&self) -> &'static str {
        match self {
            Self::NotJson(_) => "not JSON",
            Self::MissingKey(_) => "missing key",
            Self::MissingColumn(_) => "missing column",
            Self::WrongColumn { .. } => "wrong type of column",
            Self::WrongDelimiter { .. } => "wrong delimiter",
            Self::WrongType { .. } => "wrong type",
            Self::WrongColumnCount { .. } => "wrong number of columns",
            Self::UnclosedQuote => "unclosed quotation mark",
            Self::NoId => "no id",
            Self::NoText => "no text",
            Self::NoAudio(_) => "no audio",
            Self::NotUtf8(_) => "not UTF-8",
            Self::NotUtf16(_) => "not UTF-16",
            Self::DuplicateId(_) => "duplicate id",
            Self::InvalidTime { .. } | Self::EndsBeforeStart { .. } => "wrong time",
            // The same name as `TooLong`: reports have always counted both together.
            Self::FieldTooLong { .. } | Self::TooLong(_) => "too long",
            Self::DamagedShard { .. } | Self::DamagedRows { .. } => "damaged shard",
            Self::Unreadable(_) | Self::UnreadableShard { .. } => "unreadable",
            Self::AudioFromCommand(_) | Self::AudioChangedByCommand { .. } | Self::LoweredByCommand { .. } => {
                "audio made by a command"
            }
            Self::AudioInArchive(_) => "audio in an archive",
            Self::NotAudioInArchive { .. } => "archive without audio",
            Self::AudioNotInFile(_) => "audio not in a file",
            Self::NotMonoCut(_) | Self::MixedRecordings(_) => "cut of several recordings",
            Self::SomeOfSeveralChannels { .. } => "some channels of several",
            Self::TextOfOtherChannel => "text of another channel",
            Self::InvalidChannel(_) => "wrong channel",
            Self::MissingChannel { .. } => "missing channel",
            Self::ChangedRecording(_) => "changed recording",
            Self::MissingAudio(_) => "missing file",
            Self::UnreadableAudio(_) => "unreadable audio",
            Self::UnknownDuration => "unknown duration",
            Self::TextBeyondCut { .. } => "text beyond its cut",
            Self::RepeatsEarlier(_) => "listed twice",
            Self::WrongRate { .. } => "wrong sample rate",
            Self::PathNotUtf8(_) => "path not UTF-8",
            Self::WrongDuration { .. } => "wrong duration",
            Self::StartsAfterEnd { .. } => "outside of its file",
            Self::Silent => "silence",
            Self::UnknownCharacters(_) => "letters outside the vocabulary",
            Self::TooShort(_) => "too short",
            Self::EmptyText => "empty text",
            Self::TextTooLong(_) => "too long a text",
            Self::TooLittleAudio { .. } => "too little audio for the text",
        }
    }

    /// Whether the utterance is in the corpus under another id, so that nothing is lost without it.
    pub fn is_repetition(&self) -> bool {
        matches!(self, Self::RepeatsEarlier(_))
    }
}
