//! Texts that look like secrets, and their replacement.

/// Starts of access tokens of well-known services.
const TOKEN_STARTS: [&str; 14] = [
    "hf_",
    "ghp_",
    "gho_",
    "ghs_",
    "ghu_",
    "github_pat_",
    "glpat-",
    "sk-",
    "xoxb-",
    "xoxp-",
    "AKIA",
    "ASIA",
    "ya29.",
    "eyJ",
];
/// Shortest access token after its start: all these services give more, and words of a text are shorter.
const TOKEN_CHARS_MIN: usize = 12;

/// Replaces every occurrence of `secrets`. Secrets that overlap are replaced together.
pub(super) fn without_known(text: &str, secrets: &[String], replacement: &str) -> String {
    let found = |secret: &String| text.match_indices(secret.as_str()).map(|(at, hit)| (at, at + hit.len())).collect();
    let mut spans: Vec<(usize, usize)> = secrets.iter().flat_map(|secret| -> Vec<_> { found(secret) }).collect();
    spans.sort_unstable();
    let mut clean = String::new();
    let mut end = 0;
    for (from, to) in spans {
        if from >= end {
            clean += &text[end..from];
            clean += replacement;
        }
        end = end.max(to);
    }
    clean + &text[end..]
}

/// Replaces `user:password` in `scheme://user:password@host` and in `user:password@host`.
pub(super) fn without_url_credentials(text: &str, replacement: &str) -> String {
    map_runs(text, ends_run, |run| {
        let start = run.find("://").map_or(0, |at| at + "://".len());
        let body = &run[start..];
        let is_url = start > 0;
        // A password may hold any character, so the last `@` counts. `host/path@version` has no colon before the slash.
        let is_login = |before: &str| match (before.contains('/'), before.contains(':')) {
            (true, colon) => is_url && colon,
            (false, colon) => is_url || colon,
        };
        let at = body.rmatch_indices('@').map(|(at, _)| at).find(|&at| is_login(&body[..at]))?;
        Some(format!("{}{replacement}{}", &run[..start], &body[at..]))
    })
}

/// Replaces the value after a name for which `is_secret` holds: `name=value`, `"name": "value"`, `--name value`.
pub(super) fn without_named_values(text: &str, replacement: &str, is_secret: fn(&str) -> bool) -> String {
    let mut clean = String::new();
    let mut rest = text;
    while let Some((name, from, to)) = next_name(rest) {
        let after = &rest[to..];
        let value = is_secret(name).then(|| value_after(name, after)).flatten();
        match value {
            Some((start, end)) => {
                clean += &rest[..to + start];
                clean += replacement;
                rest = &after[end..];
            }
            None => {
                clean += &rest[..from + name.len()];
                rest = after;
            }
        }
    }
    clean + rest
}

/// Replaces words that start as the access tokens of well-known services do.
pub(super) fn without_token_shapes(text: &str, replacement: &str) -> String {
    map_runs(
        text,
        |c| !is_token_char(c),
        |run| {
            let is_token = |start: &str| run.strip_prefix(start).is_some_and(|rest| rest.len() >= TOKEN_CHARS_MIN);
            TOKEN_STARTS.iter().any(|start| is_token(start)).then(|| replacement.into())
        },
    )
}

/// Replaces `word` where letters and digits do not continue it.
pub(super) fn without_word(text: &str, word: &str, replacement: &str) -> String {
    let mut clean = String::new();
    let mut end = 0;
    for (at, _) in text.match_indices(word) {
        let next = at + word.len();
        let is_inside = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
        // A path may follow anything: the home folder is part of `file:/home/ann`.
        let starts_alone = word.starts_with('/') || !is_inside(text[..at].chars().next_back());
        if starts_alone && !is_inside(text[next..].chars().next()) {
            clean += &text[end..at];
            clean += replacement;
            end = next;
        }
    }
    clean + &text[end..]
}

/// Applies `change` to every part of `text` between characters for which `is_end` holds.
fn map_runs(text: &str, is_end: fn(char) -> bool, change: impl Fn(&str) -> Option<String>) -> String {
    let mut clean = String::new();
    for part in text.split_inclusive(is_end) {
        let run = part.trim_end_matches(is_end);
        clean += &change(run).unwrap_or_else(|| run.into());
        clean += &part[run.len()..];
    }
    clean
}

fn ends_run(c: char) -> bool {
    c.is_whitespace() || matches!(c, '"' | '\'' | '`')
}

fn is_name_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.')
}

fn is_token_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.')
}

/// Returns the next name in `text`, and its start and end.
fn next_name(text: &str) -> Option<(&str, usize, usize)> {
    let from = text.find(is_name_char)?;
    let to = text[from..].find(|c| !is_name_char(c)).map_or(text.len(), |len| from + len);
    Some((&text[from..to], from, to))
}

/// Returns start and end of the value that follows `name` at the start of `after`; `None` if none follows.
fn value_after(name: &str, after: &str) -> Option<(usize, usize)> {
    let spaces = |at: usize| at + (after[at..].len() - after[at..].trim_start_matches([' ', '\t']).len());
    let quoted = usize::from(after.starts_with(['"', '\'', '`']));
    let mut at = spaces(quoted);
    let is_flag = name.starts_with("--") && at > quoted;
    match after[at..].chars().next()? {
        '=' | ':' => at = spaces(at + 1),
        _ if is_flag => {}
        _ => return None,
    }
    for scheme in ["bearer", "basic", "token"] {
        let word = after.get(at..at + scheme.len());
        if word.is_some_and(|word| word.eq_ignore_ascii_case(scheme)) && after[at + scheme.len()..].starts_with(' ') {
            at = spaces(at + scheme.len());
        }
    }
    let end = match after[at..].chars().next()? {
        quote @ ('"' | '\'' | '`') => {
            at += 1;
            after[at..].find(quote)
        }
        _ => after[at..].find(|c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '`' | '&')),
    };
    let end = end.map_or(after.len(), |len| at + len);
    (end > at).then_some((at, end))
}
