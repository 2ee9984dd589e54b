//! What a person should see while a recipe works.

/// How much a line matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// What happens.
    Info,
    /// What may surprise.
    Note,
    /// What is wrong, though the work goes on.
    Warning,
}

/// Receives what a recipe has to say: a program prints it, a service logs it. By default nothing is shown.
pub trait Reporter: Sync {
    /// One line, without a full stop and without its level.
    fn line(&self, level: Level, text: &str) {
        let _ = (level, text);
    }

    /// Begins work that a person waits for: `label` in the form "planning memory", and its length where it is known.
    fn progress(&self, label: &str, length: Option<u64>) -> Box<dyn Progress> {
        let _ = (label, length);
        Box::new(Silent)
    }
}

/// Work that a person waits for. It ends when this is dropped.
pub trait Progress: Send + Sync {
    /// Sets how much of the length is done.
    fn set(&self, done: u64) {
        let _ = done;
    }
}

/// A [`Reporter`] that shows nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Reporter for Silent {}
impl Progress for Silent {}
