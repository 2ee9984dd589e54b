//! A recording of Lhotse: the files it is in, and what would be done to it.

use plimsoll_core::Seconds;

use super::super::gathering::clipped;
use super::super::json::Object;
use super::super::trouble::Trouble;

/// A recording.
pub(super) struct Recording {
    sources: Vec<Source>,
    /// What Lhotse would do to it, but for changing its rate, which everybody does.
    transform: Option<String>,
    pub(super) duration: Option<Seconds>,
}

/// Some channels of a recording.
struct Source {
    /// `file`, `memory`, `url`, `shar` and so on.
    kind: String,
    path: String,
    channels: Vec<u64>,
}

impl Recording {
    pub(super) fn read(mut object: Object) -> Result<Self, Trouble> {
        let mut transforms = object.objects("transforms").into_iter().map(|transform| transform.need(&["name"]));
        let transform = transforms.find(|name| !name.as_ref().is_ok_and(|name| name == "Resample")).transpose()?;
        let sources = object.objects("sources").into_iter().map(Source::read).collect::<Result<_, _>>()?;
        Ok(Self { sources, transform, duration: object.seconds("duration")? })
    }

    /// The file that holds exactly the channels wanted; no channels named are all of them.
    pub(super) fn file(&self, wanted: &[u64]) -> Result<&str, Trouble> {
        if let Some(transform) = &self.transform {
            return Err(Trouble::Transform(clipped(transform)));
        }
        let source = match &*self.sources {
            [only] => Some(only),
            several => several.iter().find(|source| wanted.iter().all(|channel| source.channels.contains(channel))),
        };
        let source = source.ok_or_else(|| Trouble::NoAudio("its recording has no file of its channel".into()))?;
        if source.kind != "file" {
            return Err(Trouble::Source(clipped(&source.kind)));
        }
        if !wanted.is_empty() && source.channels.len() > wanted.len() {
            return Err(Trouble::Channel(source.channels.len()));
        }
        Ok(&source.path)
    }
}

impl Source {
    fn read(object: Object) -> Result<Self, Trouble> {
        let kind = object.text(&["type"])?.unwrap_or_else(|| "file".into());
        // What is in memory is written into the list, and can be long.
        let path = if kind == "file" { object.need(&["source"])? } else { String::new() };
        Ok(Self { kind, path, channels: object.counts("channels") })
    }
}
