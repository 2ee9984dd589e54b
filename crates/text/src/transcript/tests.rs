//! Transcripts as files, read back by small parsers of our own.

use proptest::prelude::*;

use super::*;

/// The transcript whose files `fixtures/transcripts.py` reads with the parsers of other projects.
fn example() -> Transcript {
    let word = |text: &str, start: f64, end: f64| Word::new(text, start, end).with_confidence(0.75);
    let mut quoted = word("\"<say>\"", 2.0, 2.4);
    quoted.characters = vec![
        Character { text: '"', start: 2.0, end: 2.2, confidence: None },
        Character { text: 's', start: 2.2, end: 2.4, confidence: Some(0.5) },
    ];
    let first = Segment::new(vec![
        word("Fish", 0.25, 0.5),
        word("&", 0.5, 0.75),
        word("chips.", 0.75, 1.5),
        quoted,
        word("-->", 2.4, 2.5),
    ]);
    let many =
        (0..30).map(|n| word(&format!("длинный{n}"), 4.0 + 0.5 * f64::from(n), 4.4 + 0.5 * f64::from(n))).collect();
    let long = vec![word(&"x".repeat(100), 20.0, 30.0)];
    let speaker = |segment: Segment, name: &str| Segment { speaker: Some(name.into()), ..segment };
    let segments = vec![
        speaker(first, "Ann <A>"),
        speaker(Segment::new(many), "Bo \"B\""),
        speaker(Segment::new(long), "Bo \"B\""),
        Segment { text: "no words here".into(), start: 31.0, end: 32.0, ..Segment::default() },
    ];
    Transcript { recording: "a talk".into(), seconds: 33.0, language: Some("en".into()), segments }
}

#[test]
fn times_in_json_are_whole_milliseconds() {
    let word = Word::new("a", 0.1 + 0.2, 1.0 / 3.0).with_confidence(2.0 / 3.0);
    let transcript = Transcript {
        recording: "r".into(),
        seconds: 16_001.0 / 48_000.0,
        language: None,
        segments: vec![Segment::new(vec![word])],
    };
    let json = transcript.to_json();
    for expected in ["0.333", "0.3", "0.6667"] {
        assert!(json.contains(expected), "{json}");
    }
    assert!(!json.contains("0.30000") && !json.contains("0.33333") && !json.contains("0.66666"), "{json}");
}

#[test]
fn files_are_those_that_other_parsers_accepted() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/data/transcripts");
    for format in TranscriptFormat::ALL {
        let path = format!("{folder}/talk.{}", format.extension());
        if std::env::var_os("PLIMSOLL_UPDATE_FIXTURES").is_some() {
            std::fs::create_dir_all(folder).unwrap();
            std::fs::write(&path, example().write(format)).unwrap();
        }
        assert_eq!(std::fs::read_to_string(&path).unwrap(), example().write(format), "{path}");
    }
    let back: Transcript = serde_json::from_str(&example().to_json()).unwrap();
    assert_eq!(back, example());
}

/// Parses SubRip: start and end in milliseconds, and lines.
fn parse_srt(text: &str) -> Vec<(u64, u64, Vec<String>)> {
    let clock = |text: &str| {
        let numbers: Vec<u64> = text.split([':', ',']).map(|number| number.parse().unwrap()).collect();
        ((numbers[0] * 60 + numbers[1]) * 60 + numbers[2]) * 1000 + numbers[3]
    };
    let mut cues = Vec::new();
    for (place, block) in text.split_terminator("\n\n").enumerate() {
        let mut lines = block.lines();
        assert_eq!(lines.next().unwrap(), (place + 1).to_string());
        let (start, end) = lines.next().unwrap().split_once(" --> ").unwrap();
        cues.push((clock(start), clock(end), lines.map(str::to_owned).collect()));
    }
    cues
}

/// Intervals of a tier: `(xmin, xmax, text)`.
type Tier = Vec<(f64, f64, String)>;

/// Parses the tiers of a TextGrid.
fn parse_textgrid(text: &str) -> (f64, Vec<Tier>) {
    let mut tiers: Vec<Tier> = Vec::new();
    let (mut start, mut end, mut whole) = (0.0, 0.0, None);
    for line in text.lines() {
        let (key, value) = line.split_once(" = ").unwrap_or((line, ""));
        let value = value.strip_suffix(' ').unwrap_or(value);
        match key.trim() {
            "class" => tiers.push(Vec::new()),
            "xmin" => start = value.parse().unwrap(),
            "xmax" => {
                end = value.parse().unwrap();
                whole.get_or_insert(end);
            }
            "text" => {
                let text = value.strip_prefix('"').unwrap().strip_suffix('"').unwrap().replace("\"\"", "\"");
                tiers.last_mut().unwrap().push((start, end, text));
            }
            _ => {}
        }
    }
    (whole.unwrap(), tiers)
}

fn check_cues(transcript: &Transcript) {
    for (start, end, lines) in parse_srt(&transcript.to_srt()) {
        assert!(start < end && end - start <= 7000, "{start} {end}");
        assert!(
            (1..=2).contains(&lines.len()) && lines.iter().all(|line| (1..=42).contains(&line.chars().count())),
            "{lines:?}"
        );
    }
}

#[test]
fn subtitles_end_at_sentences_and_pauses() {
    check_cues(&example());
    let cues = parse_srt(&example().to_srt());
    assert_eq!(cues[0], (250, 1500, vec!["Fish & chips.".to_owned()]));
    assert_eq!(cues[1], (2000, 3000, vec!["\"<say>\" ->".to_owned()]));
    let pause = Segment::new(vec![Word::new("a", 0.0, 0.1), Word::new("b", 0.5, 0.6), Word::new("c", 1.3, 1.4)]);
    let cues = parse_srt(&Transcript { segments: vec![pause], ..Transcript::default() }.to_srt());
    assert_eq!(cues, [(0, 1000, vec!["a b".to_owned()]), (1300, 2300, vec!["c".to_owned()])]);
}

#[test]
fn an_empty_transcript_has_valid_files() {
    let empty = Transcript::default();
    assert_eq!((empty.to_text(), empty.to_srt(), empty.to_ctm("A")), Default::default());
    assert_eq!(empty.to_vtt(), "WEBVTT\n\n");
    let (end, tiers) = parse_textgrid(&empty.to_textgrid());
    assert_eq!((end, tiers.len(), tiers[0].len()), (0.001, 2, 1));
}

prop_compose! {
    fn any_word()(text in "[a-zé\"<&>. \n\t]{0,60}|-->|\\PC{0,8}", start in prop_oneof![-5.0..30.0f64, any::<f64>()], length in prop_oneof![-1.0..9.0f64, any::<f64>()]) -> Word {
        let character = Character { text: 'c', start, end: start, confidence: None };
        Word { text, start, end: start + length, confidence: Some(length), characters: vec![character] }
    }
}

prop_compose! {
    fn any_transcript()(segments in prop::collection::vec((prop::collection::vec(any_word(), 0..9), "\\PC{0,90}", any::<bool>()), 0..4), seconds in any::<f64>()) -> Transcript {
        let segment = |(words, text, has_speaker): (Vec<Word>, String, bool)| Segment { text, speaker: has_speaker.then(|| "a>\nb".into()), ..Segment::new(words) };
        Transcript { recording: ";; a\nb".into(), seconds, language: None, segments: segments.into_iter().map(segment).collect() }
    }
}

proptest! {
    #[test]
    fn files_of_any_transcript_are_valid(transcript in any_transcript()) {
        check_cues(&transcript);
        let vtt = transcript.to_vtt();
        prop_assert!(vtt.lines().filter(|line| line.contains("-->")).all(|line| line.len() >= 29), "{}", vtt);
        for line in transcript.to_ctm("1 2").lines() {
            let fields: Vec<&str> = line.split_whitespace().collect();
            prop_assert!((5..=6).contains(&fields.len()) && fields[1] == "1_2" && !line.starts_with(";;"), "{}", line);
            prop_assert!(fields[3].parse::<f64>().unwrap() > 0.0);
        }
        let (end, tiers) = parse_textgrid(&transcript.to_textgrid());
        for tier in tiers {
            let mut last = 0.0;
            for (start, end, _) in tier {
                prop_assert!(start == last && end > start);
                last = end;
            }
            prop_assert_eq!(last, end);
        }
        let back: Transcript = serde_json::from_str(&transcript.to_json()).unwrap();
        prop_assert_eq!(back.segments.len(), transcript.segments.len());
    }
}

/// Writes a transcript segment by segment.
fn in_parts(transcript: &Transcript, format: TranscriptFormat) -> String {
    let mut writer = TranscriptWriter::new(format, transcript.recording.clone(), transcript.seconds);
    let mut text = writer.begin();
    transcript.segments.iter().for_each(|segment| text += &writer.push(segment));
    text + &writer.finish()
}

#[test]
fn segments_one_by_one_are_the_whole_transcript() {
    for format in TranscriptFormat::ALL {
        let whole = Transcript { language: None, ..example() };
        for count in 0..=whole.segments.len() {
            let some = Transcript { segments: whole.segments[..count].to_vec(), ..whole.clone() };
            assert_eq!(in_parts(&some, format), some.write(format), "{format} of {count}");
        }
    }
}

proptest! {
    #[test]
    fn segments_in_order_are_the_whole_transcript(
        lengths in prop::collection::vec((1u32..3_000, 0u32..3_000, "[a-z\\]\"{}]{1,9}( [a-z]{1,50}){0,6}"), 0..12), end in 0u32..40_000,
    ) {
        let mut at = 0;
        let segment = |(length, gap, text): &(u32, u32, String)| {
            let start = at + gap;
            at = start + length;
            let (start, end) = (f64::from(start) / 1000.0, f64::from(at) / 1000.0);
            Segment { text: text.clone(), start, end, ..Segment::default() }
        };
        let segments = lengths.iter().map(segment).collect();
        let whole = Transcript { recording: "r \"segments\": [".into(), seconds: f64::from(end) / 1000.0, segments, language: None };
        for format in TranscriptFormat::ALL {
            prop_assert_eq!(in_parts(&whole, format), whole.write(format));
        }
    }
}
