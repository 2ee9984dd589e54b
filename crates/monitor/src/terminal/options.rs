//! How a view is drawn.

/// How a view is drawn.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ViewOptions {
    /// Draws with characters of ASCII only.
    pub ascii: bool,
    /// Draws without colors.
    pub no_color: bool,
    /// Shows the page that says where each number comes from.
    pub help: bool,
    /// Ends the process at SIGTERM, SIGINT and SIGHUP after the terminal is restored. A program with handlers of its own
    /// leaves it false, and ends the view by [`Update::End`](super::Update::End).
    pub handle_signals: bool,
}

impl ViewOptions {
    /// Creates the options that the environment asks for: `NO_COLOR` and `TERM=dumb` switch colors off, and a dumb terminal
    /// or a locale that is not UTF-8 shows ASCII only. `var` reads a variable of the environment.
    ///
    /// ```
    /// use plimsoll_monitor::terminal::ViewOptions;
    ///
    /// let options = ViewOptions::from_env(|name| std::env::var(name).ok());
    /// assert!(!options.help);
    /// ```
    pub fn from_env(var: impl Fn(&str) -> Option<String>) -> Self {
        let set = |name: &str| var(name).filter(|value| !value.is_empty());
        let is_dumb = set("TERM").as_deref() == Some("dumb");
        let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(set).unwrap_or_default().to_lowercase();
        let is_unicode = locale.contains("utf-8") || locale.contains("utf8") || (cfg!(windows) && locale.is_empty());
        Self { ascii: is_dumb || !is_unicode, no_color: is_dumb || set("NO_COLOR").is_some(), ..Self::default() }
    }
}
