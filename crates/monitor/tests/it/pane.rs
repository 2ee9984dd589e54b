//! A terminal that a test can read: a window of tmux, in which a shell runs the view.

use std::fs::{read_to_string, write};
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::tool::{find, wait_for};

/// A window with a program.
pub(crate) struct Pane {
    tmux: PathBuf,
    folder: TempDir,
}

/// What is left in the window when the program has ended.
pub(crate) struct Left {
    /// Exit code, as the shell has it: 128 and the signal if a signal ended the program.
    pub(crate) code: String,
    /// Text of the window with what has scrolled out of it.
    pub(crate) text: String,
}

impl Pane {
    /// Starts `command`, as a shell reads it, in a window; `None` if there is no tmux. The command is alone in its folder,
    /// and must write its process number into the file `pid`.
    pub(crate) fn start(command: &str, columns: u16, rows: u16, no_color: bool) -> Option<Self> {
        let pane = Self { tmux: find(&["tmux"])?, folder: tempfile::tempdir().unwrap() };
        let colors = if no_color { "export NO_COLOR=1" } else { "unset NO_COLOR" };
        let folder = pane.folder.path().display();
        let script = format!(
            "cd '{folder}'\n{colors}\nexport LC_ALL=C.UTF-8 TERM=screen RUST_BACKTRACE=0\ntrap : INT\nstty -g > before\n\
             {command}\necho $? > code\nstty -g > after.new\nmv after.new after\nexec cat\n"
        );
        write(pane.folder.path().join("script"), script).unwrap();
        // Without a status line the window is as large as the terminal.
        write(pane.folder.path().join("settings"), "set -g status off\n").unwrap();
        let size = [columns.to_string(), rows.to_string()];
        let script = format!("sh '{folder}/script'");
        pane.tmux(&["new-session", "-d", "-x", &size[0], "-y", &size[1], &script]);
        Some(pane)
    }

    /// Calls tmux, with a server of its own for the window.
    fn tmux(&self, arguments: &[&str]) -> String {
        let mut command = Command::new(&self.tmux);
        command.env("LC_ALL", "C.UTF-8").env_remove("TMUX").arg("-u");
        command.arg("-S").arg(self.folder.path().join("socket")).arg("-f").arg(self.folder.path().join("settings"));
        let output = command.args(arguments).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Returns whether the window shows the alternate screen, and whether it shows a cursor.
    pub(crate) fn mode(&self) -> (bool, bool) {
        let flags = self.tmux(&["display-message", "-p", "#{alternate_on} #{cursor_flag}"]);
        (flags.starts_with('1'), flags.trim_end().ends_with('1'))
    }

    /// Returns the text of the window, without spaces at the ends of its lines.
    pub(crate) fn text(&self) -> String {
        self.tmux(&["capture-pane", "-p"])
    }

    /// Returns whether the window has colors.
    pub(crate) fn has_colors(&self) -> bool {
        let text = self.tmux(&["capture-pane", "-p", "-e"]);
        let codes = text.split("\u{1b}[").skip(1).filter_map(|part| Some(part.split_once('m')?.0));
        let mut numbers = codes.flat_map(|code| code.split(';')).filter_map(|number| number.parse::<u8>().ok());
        numbers.any(|number| matches!(number, 30..=38 | 40..=48 | 90..=107))
    }

    /// Changes the size of the window.
    pub(crate) fn resize(&self, columns: u16, rows: u16) {
        self.tmux(&["resize-window", "-x", &columns.to_string(), "-y", &rows.to_string()]);
    }

    /// Types a key.
    pub(crate) fn press(&self, key: &str) {
        self.tmux(&["send-keys", key]);
    }

    /// Returns the folder in which the program runs.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Sends a signal to the program.
    pub(crate) fn signal(&self, signal: &str) {
        let pid = self.read("pid");
        assert!(Command::new("kill").args([signal, pid.trim()]).status().unwrap().success());
    }

    /// Closes the window, as a lost connection does.
    pub(crate) fn hang_up(&self) {
        self.tmux(&["kill-server"]);
    }

    /// Returns whether the program runs.
    pub(crate) fn is_running(&self) -> bool {
        Command::new("kill").args(["-0", self.read("pid").trim()]).output().unwrap().status.success()
    }

    /// Waits for the end of the program, and asserts that the terminal is as it was before it.
    pub(crate) fn end(self) -> Left {
        wait_for("the end of the program", || self.folder.path().join("after").exists().then_some(()));
        assert_eq!(self.read("after"), self.read("before"), "the mode of the terminal is as before");
        wait_for("the usual screen with a cursor", || (self.mode() == (false, true)).then_some(()));
        Left { code: self.read("code").trim().into(), text: self.tmux(&["capture-pane", "-p", "-S", "-"]) }
    }

    fn read(&self, name: &str) -> String {
        read_to_string(self.folder.path().join(name)).unwrap()
    }
}

impl Drop for Pane {
    fn drop(&mut self) {
        let mut command = Command::new(&self.tmux);
        let _ = command.arg("-S").arg(self.folder.path().join("socket")).arg("kill-server").output();
    }
}
