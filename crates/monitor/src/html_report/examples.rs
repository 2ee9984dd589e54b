//! Examples of what a model recognizes or says.

use super::detail::Detail;
use super::html::{clipped, escaped, note, section};
use super::media::{MediaFile, MediaSample, Recordings};
use super::run_data::RunData;
use super::word_diff::{Word, words};
use crate::Example;

/// Factor on the limit of a text: the text of an example may be a long utterance.
const LONG_TEXT: usize = 4;

/// Makes the section of the examples of all runs.
pub(super) fn examples(runs: &[RunData], detail: &Detail, room: &mut Room) -> String {
    let body: String = runs.iter().map(|run| run_examples(run, runs.len() > 1, detail, room)).collect();
    section("examples", "Examples", &body)
}

/// Bytes that sounds and pictures may still take.
pub(super) struct Room {
    sound: usize,
    picture: usize,
}

impl Room {
    /// Returns the room of a page.
    pub(super) fn of(detail: &Detail) -> Self {
        Self { sound: detail.sound_bytes, picture: detail.picture_bytes }
    }

    /// Returns whether there was room for the file, and takes it.
    fn take(&mut self, file: &MediaFile) -> bool {
        let room = if file.is_sound { &mut self.sound } else { &mut self.picture };
        let rest = room.checked_sub(file.uri.len());
        *room = rest.unwrap_or(*room);
        rest.is_some()
    }
}

fn run_examples(run: &RunData, is_named: bool, detail: &Detail, room: &mut Room) -> String {
    let mut html = String::new();
    let texts = run.summary.as_ref().map_or(&[][..], |summary| &summary.examples);
    if !texts.is_empty() {
        html += &note(
            "Marked in the first line: words that were not recognized. Marked in the second line: words that were not said.",
        );
    }
    for example in texts.iter().take(detail.rows.min(50)) {
        html += &text_example(example, "", &run.recordings, room, detail);
    }
    let mut dropped = run.media.others;
    for sample in &run.media.samples {
        html += &media_example(sample, room, &mut dropped, detail);
    }
    if dropped > 0 {
        html += &note(&format!("Files in the folder `samples` that are not on this page: {dropped}."));
    }
    if !is_named && !html.is_empty() {
        html += &hint(run);
    }
    let name = clipped(&run.report.name, detail.text.min(80));
    if is_named && !html.is_empty() { format!("<h3>{name}</h3>\n{html}") } else { html }
}

/// Says how to get the errors of a recognizer that was not evaluated; nothing for another model.
fn hint(run: &RunData) -> String {
    let is_recognizer = run.report.scores().iter().any(|score| score.name == "cer");
    if run.evaluation.is_some() || !is_recognizer || run.report.setup.task.as_deref() != Some("asr") {
        return String::new();
    }
    note(&format!(
        "For errors by speaker and length, confused words and the worst utterances, write the output of <code>plimsoll eval --run \
         {} --json</code> to <code>evaluation.json</code> in the folder of the run, and make this page again.",
        clipped(&run.report.name, 80)
    ))
}

/// Makes an utterance with what was said and what was recognized, one above the other, and its recording.
pub(super) fn text_example(
    example: &Example,
    more: &str,
    recordings: &Recordings,
    room: &mut Room,
    detail: &Detail,
) -> String {
    let Example { name, truth, output } = example;
    let most = detail.text * LONG_TEXT;
    let is_short = truth.chars().count().max(output.chars().count()) <= most;
    let is_equal = truth.split_whitespace().eq(output.split_whitespace());
    let [said, recognized] = match words(truth, output).filter(|_| is_short) {
        Some(words) => {
            let line =
                |side: fn(&Word<'_>) -> Option<String>| words.iter().filter_map(side).collect::<Vec<_>>().join(" ");
            [line(of_truth), line(of_output)]
        }
        None if is_equal => [truth, output].map(|text| clipped(text, most)),
        None => [format!("<del>{}</del>", clipped(truth, most)), format!("<ins>{}</ins>", clipped(output, most))],
    };
    let recognized = if output.trim().is_empty() { "<small>nothing</small>".into() } else { recognized };
    let verdict = if is_equal { "without an error" } else { more };
    let sound = recordings.of(name).filter(|file| room.take(file)).map_or(String::new(), |file| player(&file, ""));
    format!(
        "<div class=\"example\"><code>{}</code> <small>{verdict}</small><dl><dt>said</dt><dd>{said}</dd><dt>recognized</dt>\
         <dd>{recognized}</dd></dl>{sound}</div>\n",
        clipped(name, detail.text)
    )
}

fn of_truth(word: &Word<'_>) -> Option<String> {
    match word {
        Word::Both(word) => Some(escaped(word)),
        Word::Missing(word) => Some(format!("<del>{}</del>", escaped(word))),
        Word::Added(_) => None,
    }
}

fn of_output(word: &Word<'_>) -> Option<String> {
    match word {
        Word::Both(word) => Some(escaped(word)),
        Word::Added(word) => Some(format!("<ins>{}</ins>", escaped(word))),
        Word::Missing(_) => None,
    }
}

/// Makes a player of a sound; `caption` is HTML.
fn player(file: &MediaFile, caption: &str) -> String {
    let caption = if caption.is_empty() { String::new() } else { format!("<figcaption>{caption}</figcaption>") };
    format!(
        "<figure class=\"sound\">{caption}<audio controls preload=\"none\" aria-label=\"{}\" src=\"{}\"></audio></figure>\n",
        escaped(&file.name),
        file.uri
    )
}

fn media_example(sample: &MediaSample, room: &mut Room, dropped: &mut usize, detail: &Detail) -> String {
    let mut html = String::new();
    // Sounds first: they are what a listener looks for.
    let (sounds, pictures): (Vec<_>, Vec<_>) = sample.files.iter().partition(|file| file.is_sound);
    for file in sounds.into_iter().chain(pictures) {
        if !room.take(file) {
            *dropped += 1;
            continue;
        }
        let name = clipped(&file.name, detail.text.min(80));
        html += &match file.is_sound {
            true => player(file, &format!("<b>{}</b> {name}", escaped(&file.meaning))),
            false => format!("<figure class=\"picture\"><img alt=\"{name}\" src=\"{}\"></figure>\n", file.uri),
        };
    }
    if html.is_empty() {
        html
    } else {
        format!("<div class=\"example\"><p><b>{}</b></p>{html}</div>\n", escaped(&sample.title))
    }
}
