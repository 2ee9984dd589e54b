//! Tests that threads read long manifests exactly as one reads them item by item.

use proptest::prelude::*;

use super::*;

/// Reads a list in pieces, and item by item: white space in front of the list decides.
fn check_both(lines: &str) {
    let first = "{\"id\": \"first\", \"audio\": \"f.wav\", \"text\": \"x\"}\n";
    let read = |before: &str| {
        let folder = write(&[("manifest.jsonl", format!("{before}{first}{lines}").as_bytes())]);
        let mut listing = import(folder.path(), &ImportOptions::default()).unwrap();
        for entry in listing.entries.iter_mut().chain(&mut listing.duplicates) {
            entry.audio = entry.audio.strip_prefix(folder.path()).unwrap_or(&entry.audio).to_path_buf();
        }
        let (entries, duplicates) = (format!("{:?}", listing.entries), format!("{:?}", listing.duplicates));
        let issues: Vec<String> = listing.issues.iter().map(ToString::to_string).collect();
        (entries + &duplicates + &issues.join("\n")).replace(folder.path().to_str().unwrap(), "F")
    };
    let (pieces, items) = (read(""), read(" "));
    if pieces != items {
        let at = pieces.bytes().zip(items.bytes()).take_while(|(a, b)| a == b).count();
        let around = |text: &str| {
            String::from_utf8_lossy(&text.as_bytes()[at.saturating_sub(200)..]).chars().take(500).collect::<String>()
        };
        panic!("{}\n\n{}", around(&pieces), around(&items));
    }
}

#[test]
fn lists_of_several_pieces_are_read_in_order() {
    let text = "word ".repeat(9_000);
    let line = |n: usize| match n % 17 {
        3 => "not JSON\n".into(),
        5 => "\n".into(),
        7 => format!("{{\"id\": {}, \"audio\": \"{n}.wav\", \"text\": \"{text}\", \"duration\": null}}\n", n % 50),
        _ => format!(
            "{{\"id\": \"{}\", \"audio_filepath\": \"{n}.wav\", \"text\": \"{text}\", \"duration\": 1.5}}\r\n",
            n % 150
        ),
    };
    check_both(&(0..260).map(line).collect::<String>());
}

#[test]
fn lines_that_are_too_long_cost_only_themselves() {
    let long = "y".repeat((4 << 20) + 100);
    let line = |id: &str| format!("{{\"id\": \"{id}\", \"audio_filepath\": \"a.wav\", \"text\": \"z\"}}\n");
    check_both(&format!("{}{long}\n{}{long}{long}{long}\n{}{long}", line("a"), line("b"), line("c")));
}

/// Returns values of a key, and the key with its value.
fn pair() -> impl Strategy<Value = String> {
    let key = prop::sample::select(vec![
        "id",
        "audio_filepath",
        "audio",
        "text",
        "sentence",
        "speaker",
        "speaker_id",
        "lang",
        "locale",
        "offset",
        "duration",
        "x",
        "te\\u0078t",
    ]);
    let value = prop::sample::select(vec![
        "\"a\"",
        "\" b \"",
        "\"\"",
        "\"a\\nb\"",
        "\"./c.wav\"",
        "\"\u{a0}é\"",
        "\"\\u00e9\\ud83d\\ude00\"",
        "\"\\ud800\"",
        "1",
        "0.5",
        "-0.0",
        "-1",
        "1e400",
        "1e-3",
        "12345678901234567890123",
        "0.1000000000000000055",
        "null",
        "true",
        "[1]",
        "{\"a\": [null]}",
        "\"1.5\"",
        "\"tab\tin\"",
        "\"/abs.wav\"",
    ]);
    (key, value).prop_map(|(key, value)| format!("\"{key}\": {value}"))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn pieces_and_items_give_the_same_listing(
        lines in prop::collection::vec((prop::collection::vec(pair(), 0..5), any::<bool>(), 0u8..12), 0..12),
    ) {
        let line = |(pairs, is_sound, form): &(Vec<String>, bool, u8)| {
            let sound = if *is_sound { ", \"audio_filepath\": \"s.wav\", \"text\": \"s\"" } else { "" };
            match form {
                0 => format!("{{{}\n", pairs.join(",")),
                1 => format!("\t{{{}}} \r\n", pairs.join(",")),
                2 => "\u{a0}\n".into(),
                _ => format!("{{\"y\": 1, {}{sound}}}\n", pairs.iter().map(|pair| format!("{pair}, ")).collect::<String>() + "\"z\": 2"),
            }
        };
        check_both(&lines.iter().map(line).collect::<String>());
    }
}
