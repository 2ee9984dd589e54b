//! Messages and progress for a person while a recipe works. This crate itself prints nothing.

/// Importance of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// Message about the current work.
    Info,
    /// Message about a decision that may surprise.
    Note,
    /// Message about a problem that does not stop the work.
    Warning,
}

/// Receives messages and progress: a program prints them, a service logs them. The default methods show nothing.
pub trait Reporter: Sync {
    /// Shows a message, which has no full stop at its end and does not name its level.
    fn line(&self, level: Level, text: &str) {
        let _ = (level, text);
    }

    /// Starts the display of long work: `label` names the work ("planning memory"), `length` is the number of its
    /// parts, `None` if not known.
    fn progress(&self, label: &str, length: Option<u64>) -> Box<dyn Progress> {
        let _ = (label, length);
        Box::new(Silent)
    }
}

/// Shows that work on this number of utterances is under way, if they are so many that it takes seconds. Dropping the display ends it.
pub(crate) fn long_work(reporter: &dyn Reporter, label: &str, utterances: usize) -> Option<Box<dyn Progress>> {
    /// Number of utterances that take about a second.
    const MANY: usize = 500_000;
    (utterances >= MANY).then(|| reporter.progress(label, None))
}

/// Display of long work. Dropping it ends the display.
pub trait Progress: Send + Sync {
    /// Sets how many parts of the work are done.
    fn set(&self, done: u64) {
        let _ = done;
    }
}

/// A [`Reporter`] and a [`Progress`] that show nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Reporter for Silent {}
impl Progress for Silent {}
