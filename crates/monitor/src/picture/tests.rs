//! Tests that pictures are well-formed, have the right colors and accept unusual values.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;

use super::*;

const IMAGE: &str = "data:image/png;base64,";

fn scale(label: &str, to: f64) -> Axis {
    Axis { label: label.into(), ticks: Ticks::Scale { from: 0.0, to } }
}

fn letters(text: &str) -> Axis {
    Axis { label: "text".into(), ticks: Ticks::Labels(text.chars().map(String::from).collect()) }
}

fn map<'a>(title: &str, values: &'a [f32], columns: usize, y: Axis) -> Heatmap<'a> {
    Heatmap { title: title.into(), values, columns, x: scale("time, s", columns as f64 / 10.0), y }
}

fn svg(maps: Vec<Heatmap<'_>>, shared: bool) -> String {
    let svg = Picture { maps, shared }.to_svg();
    assert_well_formed(&svg);
    svg
}

/// Checks that every element is closed in order, and that every `&` starts an entity.
fn assert_well_formed(svg: &str) {
    let mut open = Vec::new();
    for piece in svg.split('<').skip(1) {
        let (tag, text) = piece.split_once('>').unwrap_or_else(|| panic!("no end of <{piece}"));
        assert!(!text.contains('>'), "{text}");
        assert!(tag.matches('"').count().is_multiple_of(2), "{tag}");
        for entity in tag.split('&').skip(1).chain(text.split('&').skip(1)) {
            assert!(["amp;", "lt;", "gt;", "quot;"].iter().any(|known| entity.starts_with(known)), "&{entity}");
        }
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop(), Some(name));
        } else if !tag.ends_with('/') {
            open.push(tag.split(' ').next().unwrap());
        }
    }
    assert_eq!(open, [""; 0]);
}

/// Splits `svg` into the text around its images, and the images.
fn images(svg: &str) -> (String, Vec<Vec<u8>>) {
    let mut images = Vec::new();
    let mut pieces = svg.split(IMAGE);
    let mut rest = pieces.next().unwrap().to_string();
    for piece in pieces {
        let (data, after) = piece.split_once('"').unwrap();
        images.push(BASE64_STANDARD.decode(data).unwrap());
        rest.push_str(&format!("[image]\"{after}"));
    }
    (rest, images)
}

/// Decodes an image to its width, and its pixels as red, green and blue.
fn pixels(image: &[u8]) -> (usize, Vec<[u8; 3]>) {
    let mut decoder = png::Decoder::new(std::io::Cursor::new(image));
    decoder.set_transformations(png::Transformations::EXPAND);
    let mut reader = decoder.read_info().unwrap();
    let mut bytes = vec![0; reader.output_buffer_size().unwrap()];
    let info = reader.next_frame(&mut bytes).unwrap();
    assert_eq!(info.color_type, png::ColorType::Rgb);
    (info.width as usize, bytes.chunks_exact(3).map(|pixel| [pixel[0], pixel[1], pixel[2]]).collect())
}

const DARK: [u8; 3] = [68, 1, 84];
const BRIGHT: [u8; 3] = [253, 231, 37];
const GRAY: [u8; 3] = [189, 189, 189];

#[test]
fn an_alignment_is_drawn() {
    let values = [0.9, 0.2, 0.0, 0.0, 0.1, 0.8, 0.3, 0.0, 0.0, 0.0, 0.7, 1.0];
    let alignment = map("alignment", &values, 4, letters("h i"));
    insta::assert_snapshot!(images(&svg(vec![alignment], false)).0);
}

#[test]
fn compared_maps_share_axis_and_colors() {
    let (truth, predicted) = ([0.0, 1.0, 2.0, 3.0], [4.0, 1.0]);
    let maps = vec![map("true", &truth, 4, scale("mel", 1.0)), map("predicted", &predicted, 2, scale("mel", 1.0))];
    let (page, found) = images(&svg(maps.clone(), true));
    assert_eq!(page.matches("time, s").count(), 1);
    assert_eq!(found.len(), 3, "two maps and one bar");
    assert_eq!((pixels(&found[0]).1[0], pixels(&found[1]).1[0]), (DARK, BRIGHT));
    assert!(!pixels(&found[0]).1.contains(&BRIGHT), "the other map reaches higher");
    assert!(page.contains(r#"width="360" height="200""#), "half as long, half as wide: {page}");

    let (page, found) = images(&svg(maps, false));
    assert_eq!((page.matches("time, s").count(), found.len()), (2, 4));
    assert_eq!(pixels(&found[0]).1[3], BRIGHT);
}

#[test]
fn the_first_row_is_at_the_bottom() {
    let values = [0.0, f32::NAN, 1.0, 1.0, 0.0, f32::INFINITY];
    let (_, found) = images(&svg(vec![map("", &values, 2, letters("abc"))], false));
    assert_eq!(pixels(&found[0]), (2, vec![DARK, BRIGHT, BRIGHT, BRIGHT, DARK, GRAY]));
    let (width, bar) = pixels(&found[1]);
    assert_eq!((width, bar.len(), bar[0], bar[127]), (1, 128, BRIGHT, DARK));
}

#[test]
fn odd_values_are_drawn() {
    for value in [0.0, 3.0, -1e30, f32::MAX, f32::NAN, f32::INFINITY] {
        let page = svg(vec![map("", &[value; 6], 3, letters("ab"))], false);
        assert!(!page.contains("NaN") && !page.contains("inf"), "{value}: {}", images(&page).0);
    }
}

#[test]
fn odd_labels_are_drawn() {
    let text = "<&> \"'\0سلامनम";
    let n_letters = text.chars().count();
    let values = vec![0.5; n_letters];
    let page = svg(vec![map(text, &values, 1, letters(text))], false);
    for label in [">&lt;<", ">&amp;<", ">&gt;<", ">␣<", ">&quot;<", ">␀<", ">س<", ">न<"] {
        assert!(page.contains(label), "{label}");
    }
    assert!(page.contains("<title>&lt;&amp;&gt; &quot;'␀سلامनम</title>"));
}

#[test]
fn many_characters_are_numbered() {
    let (text, values) = ("x".repeat(81), [0.0; 81]);
    let page = svg(vec![map("", &values, 1, letters(&text))], false);
    assert!(!page.contains(">x<") && page.contains(">20<"));
    assert_eq!(svg(vec![map("", &values[..80], 1, letters(&text[..80]))], false).matches(">x<").count(), 80);
}

#[test]
fn a_large_map_fits_the_page() {
    let page = svg(vec![map("", &vec![0.0; 3000 * 1000], 3000, scale("", 1.0))], false);
    assert!(page.contains(r#"width="1200" height="960""#) && page.contains("image-rendering: auto"));
}

#[test]
fn empty_maps_say_so() {
    assert_eq!(svg(vec![], true).matches("nothing to show").count(), 1);
    let empty = map("silence", &[], 0, letters(""));
    let page = svg(vec![empty.clone(), map("true", &[0.0, 1.0], 2, letters("a")), empty], true);
    assert_eq!((page.matches("nothing to show").count(), images(&page).1.len()), (2, 2));
}

#[test]
#[should_panic(expected = "\"alignment\": 3 values are not whole rows of 2")]
fn an_incomplete_row_panics() {
    svg(vec![map("alignment", &[0.0; 3], 2, letters("ab"))], false);
}

#[test]
#[should_panic(expected = "one label for each cell")]
fn a_missing_label_panics() {
    svg(vec![map("alignment", &[0.0; 4], 2, letters("abc"))], false);
}

#[test]
fn a_picture_is_written_to_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let picture = Picture { maps: vec![map("", &[0.0], 1, letters("a"))], shared: false };
    picture.write(&folder.path().join("a.svg")).unwrap();
    assert_eq!(std::fs::read_to_string(folder.path().join("a.svg")).unwrap(), picture.to_svg());
    assert!(picture.write(&folder.path().join("missing/a.svg")).is_err());
}
