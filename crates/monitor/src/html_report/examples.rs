//! Examples of what a model recognizes or says.

use super::detail::Detail;
use super::html::{clipped, escaped, note, section};
use super::media::{MediaFile, MediaSample};
use super::run_data::RunData;
use super::word_diff::{Word, words};
use crate::Example;

/// Factor on the limit of a text: the text of an example may be a long utterance.
const LONG_TEXT: usize = 4;

/// Makes the section of the examples of all runs.
pub(super) fn examples(runs: &[RunData], detail: &Detail) -> String {
    let mut room = Room { sound: detail.sound_bytes, picture: detail.picture_bytes };
    let body: String = runs.iter().map(|run| run_examples(run, runs.len() > 1, detail, &mut room)).collect();
    section("examples", "Examples", &body)
}

/// Bytes that sounds and pictures may still take.
struct Room {
    sound: usize,
    picture: usize,
}

impl Room {
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
        html +=
            &note("<del>Struck</del> words are only in the reference, <ins>underlined</ins> words only in the output.");
    }
    texts.iter().take(detail.rows.min(50)).for_each(|example| html += &text_example(example, detail));
    let mut dropped = run.media.others;
    for sample in &run.media.samples {
        html += &media_example(sample, room, &mut dropped, detail);
    }
    if dropped > 0 {
        html += &note(&format!("Files in the folder `samples` that are not on this page: {dropped}."));
    }
    let name = clipped(&run.report.name, detail.text.min(80));
    if is_named && !html.is_empty() { format!("<h3>{name}</h3>\n{html}") } else { html }
}

fn text_example(example: &Example, detail: &Detail) -> String {
    let Example { name, truth, output } = example;
    let most = detail.text * LONG_TEXT;
    let is_short = truth.chars().count().max(output.chars().count()) <= most;
    let text = match words(truth, output).filter(|_| is_short) {
        Some(words) => words.into_iter().map(marked).collect::<Vec<_>>().join(" "),
        None => format!("<del>{}</del> <ins>{}</ins>", clipped(truth, most), clipped(output, most)),
    };
    let class = if truth.split_whitespace().eq(output.split_whitespace()) { "example equal" } else { "example" };
    format!("<div class=\"{class}\"><code>{}</code><p>{text}</p></div>\n", clipped(name, detail.text))
}

fn marked(word: Word<'_>) -> String {
    match word {
        Word::Both(word) => escaped(word),
        Word::Missing(word) => format!("<del>{}</del>", escaped(word)),
        Word::Added(word) => format!("<ins>{}</ins>", escaped(word)),
    }
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
            true => format!(
                "<figure class=\"sound\"><figcaption>{name}</figcaption><audio controls preload=\"none\" src=\"{}\"></audio></figure>\n",
                file.uri
            ),
            false => format!("<figure class=\"picture\"><img alt=\"{name}\" src=\"{}\"></figure>\n", file.uri),
        };
    }
    if html.is_empty() {
        html
    } else {
        format!("<div class=\"example\"><code>{}</code>{html}</div>\n", escaped(&sample.title))
    }
}
