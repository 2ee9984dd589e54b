//! SSML documents, good and hostile.

use proptest::prelude::*;

use super::*;
use crate::spoken::Language;

/// Writes a speech in one line: spans with their prosody if it is not usual, and pauses in brackets.
fn shown(text: &str) -> String {
    let speech = parse(text, Some(Language::English)).unwrap();
    let part = |part: &Part| match part {
        Part::Pause { seconds } => format!("[{seconds}]"),
        Part::Span(span) if (span.rate, span.pitch, span.volume) == (1.0, 0.0, 0.0) => span.text.clone(),
        Part::Span(span) => format!("{}({:.2},{:.2},{:.1})", span.text, span.rate, span.pitch, span.volume),
    };
    let parts: Vec<String> = speech.parts.iter().map(part).collect();
    let warnings: String = speech.warnings.iter().map(|warning| format!(" !{warning}")).collect();
    parts.join(" ") + &warnings
}

#[test]
fn tags_have_their_effect() {
    for (text, expected) in [
        ("plain  <b> & text", "plain <b> & text"),
        ("<speaker>", "<speaker>"),
        ("<speak>a  b</speak>", "a b"),
        ("<?xml version=\"1.0\"?><speak>a</speak>", "a"),
        ("<speak>a<break time=\"1.5s\"/>b<break/>c<break strength=\"none\"/>d</speak>", "a [1.5] b [0.5] c d"),
        ("<speak><break time=\"9000s\"/>a<break time=\"250ms\"/></speak>", "[10] a [0.25]"),
        (
            "<speak><prosody rate=\"fast\" pitch=\"+2st\">a <prosody rate=\"80%\" volume=\"-6dB\">b</prosody> c</prosody> d</speak>",
            "a(1.25,2.00,0.0) b(1.00,2.00,-6.0) c(1.25,2.00,0.0) d",
        ),
        ("<speak><prosody pitch=\"+100%\" rate=\"+10%\" volume=\"silent\">a</prosody></speak>", "a(1.10,12.00,-96.0)"),
        ("<speak><p><s>a</s><s>b</s></p><p>c</p></speak>", "a [0.4] b [0.75] c"),
        (
            "<speak>The <say-as interpret-as=\"characters\">BBC1</say-as> on <say-as interpret-as=\"date\">2024-05-17</say-as>, <say-as interpret-as=\"cardinal\">21</say-as>, <say-as interpret-as=\"ordinal\">2nd</say-as>, <say-as interpret-as=\"currency\">$3.50</say-as></speak>",
            "The B B C one on May seventeenth twenty twenty four, twenty one, second, three dollars and fifty cents",
        ),
        (
            "<speak><sub alias=\"World Wide Web\">W<break/>WW</sub> &amp; &lt;x&gt; &#233;&#x41; <![CDATA[<b>]]></speak>",
            "World Wide Web & <x> éA <b>",
        ),
        (
            "<speak><audio src=\"x\"/><emphasis>a</emphasis><say-as interpret-as=\"x\">b</say-as></speak>",
            "ab !the tag `audio` is ignored !the tag `emphasis` is ignored !`interpret-as=\"x\"` is ignored: it is unknown, or not for this language",
        ),
        (
            "<speak><prosody rate=\"-1\" contour=\"x\">a</prosody><break time=\"x\"/></speak>",
            "a !`rate=\"-1\"` of `prosody` is ignored !`contour=\"x\"` of `prosody` is ignored !the break `x` is ignored",
        ),
        ("<speak></speak>", ""),
    ] {
        assert_eq!(shown(text), expected, "{text}");
    }
}

#[test]
fn hostile_documents_are_refused() {
    let bomb = "<?xml version=\"1.0\"?><!DOCTYPE x [<!ENTITY a \"aaaa\"><!ENTITY b \"&a;&a;\">]><speak>&b;</speak>";
    assert!(matches!(parse(bomb, None), Err(SsmlError::DocumentType)));
    assert!(matches!(parse("<speak>&b;</speak>", None), Err(SsmlError::UnknownEntity(name)) if name == "b"));
    assert!(matches!(parse("<speak>&#xD800;</speak>", None), Err(SsmlError::UnknownEntity(_))));
    let deep = format!("<speak>{}", "<p>".repeat(100_000));
    assert!(matches!(parse(&deep, None), Err(SsmlError::TooDeep { most: 64 })));
    let long = format!("<speak>{}</speak>", "a".repeat(2 << 20));
    assert!(matches!(parse(&long, None), Err(SsmlError::TooLong { .. })));
    assert!(matches!(parse("<speak><p>a</p>", None), Err(SsmlError::NotClosed(name)) if name == "speak"));
    for wrong in [
        "<speak>a</p></speak>",
        "<speak><break time=5/></speak>",
        "<speak><a b=\"&x;\"/></speak>",
        "<speak><p/",
        "<speak><!--",
    ] {
        assert!(parse(wrong, None).is_err(), "{wrong}");
    }
    let many = format!("<speak>{}</speak>", (0..1000).map(|n| format!("<t{n}/>")).collect::<String>());
    assert_eq!(parse(&many, None).unwrap().warnings.len(), 20);
}

proptest! {
    #[test]
    fn any_document_is_parsed_or_refused(inner in "(<p>|</p>|<s>|</s>|<break time=\"[0-9a-z.]{0,6}\"/>|<prosody rate=\"[0-9a-z%+-]{0,5}\">|</prosody>|<say-as interpret-as=\"date\">|</say-as>|<sub alias=\"x\">|</sub>|&amp;|[a-z0-9&<>;$ ]|\\PC){0,16}") {
        for text in [format!("<speak>{inner}</speak>"), format!("<speak>{inner}"), inner] {
            if let Ok(speech) = parse(&text, Some(Language::English)) {
                for part in &speech.parts {
                    match part {
                        Part::Pause { seconds } => prop_assert!((0.0..=10.0).contains(seconds)),
                        Part::Span(span) => prop_assert!(!span.text.is_empty() && (0.2..=5.0).contains(&span.rate)),
                    }
                }
            }
        }
    }
}
