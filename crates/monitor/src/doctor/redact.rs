//! Removes secrets and personal names from texts that leave the machine.
//!
//! Rather one value too many is removed than one too few: a reader of a report can ask for a value, and cannot unread
//! one.

mod patterns;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use serde_json::Value;

/// Replacement of a secret.
const SECRET: &str = "<redacted>";
const HOME: &str = "~";
const USER: &str = "<user>";
const HOST: &str = "<host>";
/// Marks of a name whose value is a secret.
const SECRET_MARKS: [&str; 8] = ["TOKEN", "KEY", "SECRET", "PASS", "PWD", "AUTH", "CREDENTIAL", "COOKIE"];
/// Marks of a variable whose value names people or machines.
const PERSONAL_MARKS: [&str; 8] = ["USER", "HOST", "NODELIST", "NODENAME", "NODE_ALIASES", "ADDR", "ACCOUNT", "EMAIL"];
/// Shortest value of a secret variable that is removed wherever it occurs. Shorter values, such as `1`, occur by chance.
const KNOWN_SECRET_MIN: usize = 6;

/// Removes secrets and personal names from texts.
///
/// ```
/// use plimsoll_monitor::doctor::Redactor;
///
/// let variables = [("HF_TOKEN", "hf_abcdef"), ("HOME", "/home/ann"), ("USER", "ann")];
/// let variables = variables.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
/// let redactor = Redactor::new(&variables, Some("node7"));
/// let text = "ann@node7: /home/ann/data?x=hf_abcdef";
/// assert_eq!(redactor.text(text), "<user>@<host>: ~/data?x=<redacted>");
/// ```
#[derive(Clone, Debug, Default)]
pub struct Redactor {
    secrets: Vec<String>,
    /// Names and their replacements, the longest first: a host may have the name of its user as a part.
    names: Vec<(String, &'static str)>,
}

impl Redactor {
    /// Creates a redactor for this process.
    pub fn from_env() -> Self {
        let variables = std::env::vars_os();
        let text = |word: std::ffi::OsString| word.to_string_lossy().into_owned();
        let variables = variables.map(|(key, value)| (text(key), text(value))).collect();
        let mut redactor = Self::new(&variables, sysinfo::System::host_name().as_deref());
        // The home folder may be a link.
        let home = std::env::home_dir().and_then(|home| home.canonicalize().ok()).map(|home| text(home.into()));
        redactor.names.extend(home.filter(|home| is_folder(home)).map(|home| (home, HOME)));
        redactor.sort();
        redactor
    }

    /// Creates a redactor for a process with these environment variables, on a machine with this name. The value of
    /// each variable whose name marks a secret is removed wherever it occurs.
    pub fn new(variables: &BTreeMap<String, String>, host: Option<&str>) -> Self {
        let value = |key: &str| variables.get(key).map(String::as_str);
        let secrets = variables.iter().filter(|(key, value)| is_secret_name(key) && value.len() >= KNOWN_SECRET_MIN);
        let secrets = secrets.map(|(_, value)| value.clone()).filter(|value| !SECRET.contains(value.as_str()));
        let homes = ["HOME", "USERPROFILE"].iter().filter_map(|key| value(key)).map(|home| home.trim_end_matches('/'));
        let users = ["USER", "LOGNAME", "USERNAME", "SUDO_USER", "SLURM_JOB_USER"].iter().filter_map(|key| value(key));
        // The account `root` is on every machine, and its name says nothing.
        let users = users.filter(|user| user.len() > 1 && !["root", "user"].contains(user));
        let hosts = [host, value("HOSTNAME"), value("COMPUTERNAME"), value("SLURMD_NODENAME")].into_iter().flatten();
        let hosts = hosts.flat_map(|host| [host, host.split('.').next().unwrap_or(host)]);
        let hosts = hosts.filter(|host| host.len() > 1 && !["localhost", "host"].contains(host));
        let homes = homes.filter(|home| is_folder(home)).map(|home| (home.to_owned(), HOME));
        let users = users.map(|user| (user.to_owned(), USER));
        let hosts = hosts.map(|host| (host.to_owned(), HOST));
        let mut redactor = Self { secrets: secrets.collect(), names: homes.chain(users).chain(hosts).collect() };
        redactor.sort();
        redactor
    }

    fn sort(&mut self) {
        self.names.sort_by(|(a, _), (b, _)| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
        self.names.dedup();
    }

    /// Removes secrets and personal names from `text`.
    pub fn text(&self, text: &str) -> String {
        let mut text = patterns::without_known(text, &self.secrets, SECRET);
        text = patterns::without_url_credentials(&text, SECRET);
        text = patterns::without_named_values(&text, SECRET, is_secret_name);
        text = patterns::without_token_shapes(&text, SECRET);
        self.names.iter().fold(text, |text, (name, replacement)| patterns::without_word(&text, name, replacement))
    }

    /// Returns the value of an environment variable without secrets. The whole value is removed if the name of the
    /// variable marks a secret, a person or a machine.
    pub fn variable(&self, name: &str, value: &str) -> String {
        let upper = name.to_ascii_uppercase();
        match (value.is_empty(), is_secret_name(name)) {
            (true, _) => String::new(),
            (false, true) => SECRET.into(),
            (false, false) if PERSONAL_MARKS.iter().any(|mark| upper.contains(mark)) => SECRET.into(),
            (false, false) => self.text(value),
        }
    }

    /// Removes secrets and personal names from all texts in `value`.
    pub fn json(&self, value: Value) -> Value {
        self.json_under(value, false)
    }

    /// A number under a secret name, such as `tokens_per_second`, stays: secrets are texts.
    fn json_under(&self, value: Value, is_secret: bool) -> Value {
        match value {
            Value::String(_) if is_secret => Value::String(SECRET.into()),
            Value::String(text) => Value::String(self.text(&text)),
            Value::Array(values) => values.into_iter().map(|value| self.json_under(value, is_secret)).collect(),
            Value::Object(map) => {
                let entry = |(key, value): (String, Value)| {
                    let is_secret = is_secret || is_secret_name(&key);
                    (self.text(&key), self.json_under(value, is_secret))
                };
                Value::Object(map.into_iter().map(entry).collect())
            }
            value => value,
        }
    }
}

fn is_secret_name(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    // `PWD` and `OLDPWD` are the shell's folders.
    !["PWD", "OLDPWD"].contains(&name.as_str()) && SECRET_MARKS.iter().any(|mark| name.contains(mark))
}

/// Whether `home` is more than the root folder, of which every path is a part.
fn is_folder(home: &str) -> bool {
    home.len() > 1
}
