//! Reads a configuration file, TOML or YAML, into settings that know their position in it.

use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use config::{FileFormat, Map, Source, Value, ValueKind};
use miette::NamedSource;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::bounds::{self, MAX_BYTES, MAX_VALUES, TooBig};
use super::choices::Task;
use super::error::{ConfigError, SyntaxError};
use super::keys;
use super::origin::{ConfigText, Spans, ValueOrigin};
use super::recipe::Recipe;
use super::setting::{RawSetting, RawValue};
use super::toml_value::from_toml;

/// Returns the name and the text of the built-in file for `task`, which is used if no file is given.
fn built_in(task: Task) -> (&'static str, &'static str) {
    match task {
        Task::Asr => ("built-in toy_asr.toml", include_str!("../configs/toy_asr.toml")),
        Task::Tts => ("built-in toy_tts.toml", include_str!("../configs/toy_tts.toml")),
        Task::Vocoder => ("built-in toy_vocoder.toml", include_str!("../configs/toy_vocoder.toml")),
    }
}

/// Returns the name of the built-in file for `task`, as messages show it.
pub fn built_in_name(task: Task) -> &'static str {
    built_in(task).0
}

/// Name of a [`Recipe`] as a configuration file, as messages show it.
const RECIPE: &str = "the recipe for this corpus";

/// Returns `recipe` as a configuration file, with its settings.
pub(super) fn of_recipe(recipe: &Recipe) -> Result<(Arc<ConfigText>, Vec<RawSetting>), ConfigError> {
    let file = Arc::new(ConfigText { name: RECIPE.into(), text: recipe.to_toml().into() });
    let settings = toml_settings(&file)?;
    Ok((file, settings))
}

/// Returns whether `file` was not named: it is one of the built-in files, or a recipe.
pub(super) fn is_built_in(file: &ConfigText) -> bool {
    file.name == RECIPE || Task::ALL.iter().any(|task| file.name == built_in_name(*task))
}

/// Function that reads the file at a path. Tests replace it to provide texts without a disk.
pub(super) type ReadFile<'f> = &'f dyn Fn(&Path) -> io::Result<String>;

/// Reads the file at `path`, or the built-in file for `task`, and returns it with its settings.
pub(super) fn read(
    path: Option<&Path>,
    task: Task,
    read_file: ReadFile<'_>,
) -> Result<(Arc<ConfigText>, Vec<RawSetting>), ConfigError> {
    let Some(path) = path else {
        let (name, text) = built_in(task);
        let file = Arc::new(ConfigText { name: name.into(), text: text.into() });
        let settings = toml_settings(&file)?;
        return Ok((file, settings));
    };
    let extension = path.extension().and_then(|e| e.to_str()).unwrap_or_default().to_ascii_lowercase();
    if !["toml", "yaml", "yml"].contains(&extension.as_str()) {
        return Err(ConfigError::Extension { path: path.into() });
    }
    let text = read_file(path).map_err(|source| match source.kind() {
        io::ErrorKind::NotFound => ConfigError::Missing { path: path.into(), source },
        io::ErrorKind::FileTooLarge => ConfigError::TooLarge { path: path.into(), most: MAX_BYTES },
        _ => ConfigError::Unreadable { path: path.into(), source },
    })?;
    // Some editors write a byte order mark, which would be part of the first name.
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    let file = Arc::new(ConfigText { name: path.display().to_string(), text: text.into() });
    let settings = if extension == "toml" { toml_settings(&file)? } else { yaml_settings(&file)? };
    Ok((file, settings))
}

/// An entry of a table in a TOML or YAML file.
struct Entry {
    name: String,
    value: ValueKind,
    entries: Vec<Entry>,
    spans: Option<Spans>,
}

impl Entry {
    /// Returns the number of values of the entry, with the entry itself.
    fn count(&self) -> usize {
        let items = if let ValueKind::Array(items) = &self.value { items.len() } else { 0 };
        1 + items + self.entries.iter().map(Self::count).sum::<usize>()
    }
}

fn toml_settings(file: &Arc<ConfigText>) -> Result<Vec<RawSetting>, ConfigError> {
    let table = DeTable::parse(&file.text).map_err(|error| {
        let at = error.span().unwrap_or(0..0);
        syntax(file, "TOML", file.line(at.start), error.message().into(), Some(at))
    })?;
    let entries = toml_entries(table.get_ref());
    if entries.iter().map(Entry::count).sum::<usize>() > MAX_VALUES {
        let reason = format!("it has more than {MAX_VALUES} values");
        return Err(syntax(file, "TOML", 1, reason, None));
    }
    Ok(settings(file, entries))
}

fn yaml_settings(file: &Arc<ConfigText>) -> Result<Vec<RawSetting>, ConfigError> {
    // Before any value is built: aliases can make gigabytes of a few lines.
    bounds::check_yaml(&file.text)
        .map_err(|TooBig { line, reason }| syntax(file, "YAML", line, reason, line_span(&file.text, line)))?;
    let parsed = config::File::from_str(&file.text, FileFormat::Yaml).collect().map_err(|error| {
        let config::ConfigError::FileParse { cause, .. } = error else { return ConfigError::Merge(Box::new(error)) };
        let message = cause.to_string();
        let line = yaml_line(&message).unwrap_or(1);
        let reason = message.split(" at byte ").next().unwrap_or(&message).to_string();
        syntax(file, "YAML", line, reason, line_span(&file.text, line))
    })?;
    let mut entries = yaml_entries(&file.text, "", parsed);
    entries.retain(|entry| keys::is_section(&entry.name) || !is_only_merged(&file.text, &entry.name));
    Ok(settings(file, entries))
}

/// Key of YAML whose value is a table, or a list of tables, with entries for the table around it.
const MERGE: &str = "<<";

/// Moves the entries of merge keys into the table around them. An entry of its own wins, then the first table.
fn merged(mut table: Map<String, Value>) -> Map<String, Value> {
    let Some(merge) = table.remove(MERGE) else { return table };
    let tables: Option<Vec<_>> = match merge.kind.clone() {
        ValueKind::Table(inner) => Some(vec![inner]),
        ValueKind::Array(items) => items.into_iter().map(|item| item.into_table().ok()).collect(),
        _ => None,
    };
    match tables {
        Some(tables) => {
            for (name, value) in tables.into_iter().flat_map(merged) {
                table.entry(name).or_insert(value);
            }
        }
        // An unknown key, which is refused by its name.
        None => drop(table.insert(MERGE.into(), merge)),
    }
    table
}

/// Returns whether the key `name` of the first level only names a table that merge keys repeat: `base: &base`, and `<<: *base`
/// elsewhere.
fn is_only_merged(text: &str, name: &str) -> bool {
    let anchor = text.lines().find_map(|line| {
        let rest = line.strip_prefix(name)?.trim_start().strip_prefix(':')?.trim_start().strip_prefix('&')?;
        rest.split_whitespace().next()
    });
    // An alias may stand in a list of its own lines, or in a table of one line.
    let repeats = |anchor: &str| {
        text.match_indices(&format!("*{anchor}")).any(|(at, found)| {
            let next = text[at + found.len()..].chars().next();
            next.is_none_or(|next| next.is_whitespace() || ",]}".contains(next))
        })
    };
    anchor.is_some_and(|anchor| text.contains("<<") && repeats(anchor))
}

fn syntax(
    file: &ConfigText,
    format: &'static str,
    line: usize,
    reason: String,
    at: Option<Range<usize>>,
) -> ConfigError {
    let text = NamedSource::new(&file.name, Arc::clone(&file.text));
    // Parsers write several lines, messages have one.
    let reason = bounds::shortened(&reason.lines().collect::<Vec<_>>().join(", "));
    let at = at.filter(|at| bounds::is_shown(&file.text, at));
    ConfigError::Syntax(Box::new(SyntaxError {
        file: file.name.clone(),
        line,
        format,
        reason,
        text,
        at: at.map(Into::into),
    }))
}

fn toml_entries(table: &DeTable<'_>) -> Vec<Entry> {
    let mut entries: Vec<Entry> = table.iter().map(|(name, value)| toml_entry(name, value)).collect();
    entries.sort_by_key(|entry| entry.spans.as_ref().map(|spans| spans.key.start));
    entries
}

fn toml_entry(name: &Spanned<std::borrow::Cow<'_, str>>, value: &Spanned<DeValue<'_>>) -> Entry {
    Entry {
        name: name.get_ref().to_string(),
        value: from_toml(value.get_ref()),
        entries: value.get_ref().as_table().map(toml_entries).unwrap_or_default(),
        spans: Some(Spans { key: name.span(), value: value.span() }),
    }
}

fn yaml_entries(text: &str, section: &str, table: Map<String, Value>) -> Vec<Entry> {
    let entry = |(name, value): (String, Value)| {
        let spans = yaml_spans(text, section, &name);
        let (value, entries) = match value.kind {
            // YAML reads an empty section as null.
            ValueKind::Nil if keys::is_section(&name) && section.is_empty() => (ValueKind::Table(Map::new()), vec![]),
            ValueKind::Table(inner) => (ValueKind::Table(Map::new()), yaml_entries(text, &name, inner)),
            value => (value, vec![]),
        };
        Entry { name, value, entries, spans }
    };
    let mut entries: Vec<Entry> = merged(table).into_iter().map(entry).collect();
    entries.sort_by_key(|entry| (entry.spans.as_ref().map(|spans| spans.key.start), entry.name.clone()));
    entries
}

/// Finds the byte ranges of the key `name` of `section` and of its value in a YAML file; `None` if they are not found.
/// Goes by the indentation of the lines, because the YAML parser reports no positions.
fn yaml_spans(text: &str, section: &str, name: &str) -> Option<Spans> {
    let mut inside = section.is_empty();
    let mut offset = 0;
    for line in text.split_inclusive('\n') {
        let start = offset;
        offset += line.len();
        let content = line.trim_start();
        let indent = line.len() - content.len();
        let Some((key, rest)) = content.split_once(':').filter(|_| !content.starts_with('#')) else { continue };
        if indent == 0 && !section.is_empty() {
            inside = key.trim_end() == section;
        } else if inside && key.trim_end() == name && (indent == 0) == section.is_empty() {
            let key_start = start + indent;
            let value = rest.split(" #").next().unwrap_or(rest).trim();
            let value_start = key_start + key.len() + 1 + (rest.len() - rest.trim_start().len());
            let key = key_start..key_start + name.len();
            let value = if value.is_empty() { key.clone() } else { value_start..value_start + value.len() };
            return Some(Spans { key, value });
        }
    }
    None
}

/// Parses the line number in a message such as "while parsing ..., at byte 24 line 3 column 1"; `None` if the message
/// has no line number.
fn yaml_line(message: &str) -> Option<usize> {
    message.rsplit_once(" line ")?.1.split(' ').next()?.parse().ok()
}

/// Finds the byte range of a line; `line` counts from 1. `None` if the text has no such line.
fn line_span(text: &str, line: usize) -> Option<Range<usize>> {
    let start: usize = text.split_inclusive('\n').take(line.saturating_sub(1)).map(str::len).sum();
    let length = text.get(start..)?.lines().next().map_or(0, str::len);
    Some(start..start + length)
}

/// Turns the entries of `file` into settings: flattens known sections into full names such as `data.batch_size`. Other
/// entries of the first level keep their names.
fn settings(file: &Arc<ConfigText>, entries: Vec<Entry>) -> Vec<RawSetting> {
    let origin = |spans| ValueOrigin::File(Arc::clone(file), spans);
    let mut raw = Vec::new();
    for entry in entries {
        if keys::is_section(&entry.name) && matches!(entry.value, ValueKind::Table(_)) {
            raw.extend(entry.entries.into_iter().map(|inner| RawSetting {
                name: format!("{}.{}", entry.name, inner.name),
                value: RawValue::Typed(inner.value),
                origin: origin(inner.spans),
            }));
        } else {
            raw.push(RawSetting { name: entry.name, value: RawValue::Typed(entry.value), origin: origin(entry.spans) });
        }
    }
    raw
}
