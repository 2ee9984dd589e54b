//! Reads a Lhotse recording: the files, their sample rate, and the transforms that Lhotse would apply.

use std::path::{Path, PathBuf};

use plimsoll_audio::AudioSource;
use plimsoll_core::Seconds;

use super::super::builder::shortened;
use super::super::json::Object;
use crate::issue::IssueKind;

/// Type of a source whose audio is in the tar file beside its list.
const SHAR: &str = "shar";

/// Lhotse recording with its files and transforms.
pub(super) struct Recording {
    sources: Vec<Source>,
    /// Name of the first transform other than resampling.
    transform: Option<String>,
    /// Sample rate of the files, in hertz.
    rate: Option<u32>,
    /// Lowest sample rate that the audio is resampled to; `None` if that is not below the rate of the files.
    resampled: Option<u32>,
    pub(super) duration: Option<Seconds>,
}

/// Audio file of a cut or a supervision.
#[derive(Clone)]
pub(super) struct RecordedAudio {
    pub(super) file: PathBuf,
    /// Sample rate of the file according to the list.
    pub(super) rate: Option<u32>,
    /// Sample rate that the list reduces the audio to.
    pub(super) resampled: Option<u32>,
}

/// Audio source that holds some channels of a recording.
struct Source {
    /// Type of the source in Lhotse: `file`, `memory`, `url`, `shar` and so on.
    kind: String,
    path: String,
    channels: Vec<u64>,
}

impl Recording {
    pub(super) fn read(mut object: Object) -> Result<Self, IssueKind> {
        let listed = rate(&object, "sampling_rate");
        let (mut transform, mut source, mut targets) = (None, None, Vec::new());
        for mut each in object.objects("transforms") {
            let name = each.required_text(&["name"])?;
            if name != "Resample" {
                transform = transform.or(Some(name));
                continue;
            }
            if let Some(kwargs) = each.object("kwargs") {
                // The first transform begins with the rate of the files; `sampling_rate` is that of the result.
                source = source.or(rate(&kwargs, "source_sampling_rate"));
                targets.extend(rate(&kwargs, "target_sampling_rate"));
            }
        }
        let rate = if targets.is_empty() { listed } else { source };
        let resampled = targets.into_iter().min().filter(|target| rate.is_none_or(|rate| *target < rate));
        let sources = object.objects("sources").into_iter().map(Source::read).collect::<Result<_, _>>()?;
        Ok(Self { sources, transform, rate, resampled, duration: object.seconds("duration")? })
    }

    /// Returns the file with exactly the channels `wanted`, or one channel of a file, relative to `folder`. An empty list means
    /// all channels. `in_shar` finds audio that a Shar holds.
    pub(super) fn audio(
        &self,
        wanted: &[u64],
        folder: &Path,
        in_shar: impl FnOnce() -> Result<PathBuf, IssueKind>,
    ) -> Result<RecordedAudio, IssueKind> {
        let source = self.source(wanted)?;
        let all = if source.kind == SHAR { in_shar()? } else { folder.join(&source.path) };
        let file = match source.only_channel(wanted)? {
            Some(channel) => AudioSource::path_of_channel(all, channel),
            None => all,
        };
        Ok(RecordedAudio { file, rate: self.rate, resampled: self.resampled })
    }

    fn source(&self, wanted: &[u64]) -> Result<&Source, IssueKind> {
        if let Some(transform) = &self.transform {
            return Err(IssueKind::ChangedRecording(shortened(transform)));
        }
        let source = match &*self.sources {
            [only] => Some(only),
            several => several.iter().find(|source| wanted.iter().all(|channel| source.channels.contains(channel))),
        };
        let source = source.ok_or_else(|| IssueKind::NoAudio("its recording has no file of its channel".into()))?;
        if source.kind != "file" && source.kind != SHAR {
            return Err(IssueKind::AudioNotInFile(shortened(&source.kind)));
        }
        Ok(source)
    }
}

/// Returns the sample rate under a key; `None` without one.
fn rate(object: &Object, key: &'static str) -> Option<u32> {
    let rate = object.number(key).ok().flatten()?;
    Some(rate.round() as u32).filter(|&rate| rate > 0)
}

impl Source {
    fn read(object: Object) -> Result<Self, IssueKind> {
        let kind = object.text(&["type"])?.unwrap_or_else(|| "file".into());
        // For audio in memory, the list contains the audio itself, which may be long.
        let path = if kind == "file" { object.required_text(&["source"])? } else { String::new() };
        Ok(Self { kind, path, channels: object.counts("channels") })
    }

    /// Returns the channel of the file that holds the channel `wanted` of the recording; `None` for all channels.
    fn only_channel(&self, wanted: &[u64]) -> Result<Option<u16>, IssueKind> {
        let channels = self.channels.len();
        match wanted {
            [] => Ok(None),
            _ if channels <= wanted.len() => Ok(None),
            [one] => {
                // The channels of a file may have any numbers in the recording.
                let place = self.channels.iter().position(|channel| channel == one);
                let place = place.and_then(|place| u16::try_from(place).ok());
                let missing = || IssueKind::NoAudio(format!("its recording has no channel {one}"));
                place.map(Some).ok_or_else(missing)
            }
            several => Err(IssueKind::SomeOfSeveralChannels { wanted: several.len(), channels }),
        }
    }
}
