//! Reads a Lhotse recording: the files, and the transforms that Lhotse would apply.

use plimsoll_core::Seconds;

use super::super::builder::shortened;
use super::super::json::Object;
use crate::issue::IssueKind;

/// Lhotse recording with its files and transforms.
pub(super) struct Recording {
    sources: Vec<Source>,
    /// Name of the first transform other than resampling; `None` without one. Resampling needs no support, because
    /// every audio is resampled when read.
    transform: Option<String>,
    pub(super) duration: Option<Seconds>,
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
        let mut transforms =
            object.objects("transforms").into_iter().map(|transform| transform.required_text(&["name"]));
        let transform = transforms.find(|name| !name.as_ref().is_ok_and(|name| name == "Resample")).transpose()?;
        let sources = object.objects("sources").into_iter().map(Source::read).collect::<Result<_, _>>()?;
        Ok(Self { sources, transform, duration: object.seconds("duration")? })
    }

    /// Returns the path of the file with exactly the channels `wanted`. An empty list means all channels.
    pub(super) fn file(&self, wanted: &[u64]) -> Result<&str, IssueKind> {
        if let Some(transform) = &self.transform {
            return Err(IssueKind::ChangedRecording(shortened(transform)));
        }
        let source = match &*self.sources {
            [only] => Some(only),
            several => several.iter().find(|source| wanted.iter().all(|channel| source.channels.contains(channel))),
        };
        let source = source.ok_or_else(|| IssueKind::NoAudio("its recording has no file of its channel".into()))?;
        if source.kind != "file" {
            return Err(IssueKind::AudioNotInFile(shortened(&source.kind)));
        }
        if !wanted.is_empty() && source.channels.len() > wanted.len() {
            return Err(IssueKind::OneOfSeveralChannels(source.channels.len()));
        }
        Ok(&source.path)
    }
}

impl Source {
    fn read(object: Object) -> Result<Self, IssueKind> {
        let kind = object.text(&["type"])?.unwrap_or_else(|| "file".into());
        // For audio in memory, the list contains the audio itself, which may be long.
        let path = if kind == "file" { object.required_text(&["source"])? } else { String::new() };
        Ok(Self { kind, path, channels: object.counts("channels") })
    }
}
