//! Tests that the page is complete, escapes foreign text, and shows the peak.

use super::*;
use crate::profile::tests::random_timeline;

fn data(page: &str) -> serde_json::Value {
    let start = page.find("id=\"data\">").unwrap() + "id=\"data\">".len();
    let end = start + page[start..].find("</script>").unwrap();
    serde_json::from_str(&page[start..end]).unwrap()
}

#[test]
fn page_is_complete_and_loads_nothing() {
    let page = html_page("one step", &random_timeline(5, 500, 3000));
    for foreign in ["http", "//", "src=", "@import", "url("] {
        let lines: Vec<&str> = page.lines().filter(|line| line.contains(foreign)).collect();
        let comments = lines.iter().all(|line| foreign == "//" && line.trim_start().starts_with("//"));
        assert!(comments, "{foreign}: {lines:?}");
    }
    for expected in
        ["<html lang=\"en\">", "<title>one step</title>", "role=\"img\" aria-label=\"", "activations", "At the peak"]
    {
        assert!(page.contains(expected), "{expected}");
    }
}

#[test]
fn peak_is_printed_and_drawn_at_any_number_of_moments() {
    for (seed, moments) in [(1, 10), (2, 1200), (3, 1201), (4, 250_000)] {
        let timeline = random_timeline(seed, 4000, moments);
        let peak = MemoryProfile::new(&timeline).peak();
        let page = html_page("step", &timeline);
        assert!(page.contains(&format!("The peak is <strong>{}</strong>", peak.stack.total())));
        let columns = data(&page)["columns"].clone();
        let columns: Vec<Vec<u64>> = serde_json::from_value(columns).unwrap();
        assert!(columns.len() <= COLUMNS_MAX);
        let totals = columns.iter().map(|column| column[3..].iter().sum::<u64>());
        assert_eq!(totals.max(), Some(peak.stack.total().0));
        assert!(columns.iter().any(|column| column[2] == peak.moment as u64));
    }
}

#[test]
fn titles_and_names_are_escaped() {
    let mut timeline = random_timeline(5, 5, 30);
    for one in &mut timeline.allocations {
        (one.birth, one.death, one.made_by) = (0, 30, "<b onclick='x'>&\"");
    }
    let page = html_page("</title><script>alert(1)</script>", &timeline);
    assert!(!page.contains("<script>alert") && !page.contains("<b onclick"));
    assert!(page.contains("<code>&lt;b onclick=&#39;x&#39;&gt;&amp;&quot;</code>"));
    assert!(page.contains("<title>&lt;/title&gt;&lt;script&gt;alert(1)&lt;/script&gt;</title>"));
}

#[test]
fn table_lists_the_twenty_largest_live_allocations() {
    let timeline = random_timeline(9, 1000, 100);
    let page = html_page("step", &timeline);
    assert_eq!(page.matches("<code>matmul</code>").count(), LARGEST);
    let at = MemoryProfile::new(&timeline).peak().moment;
    let alive = timeline.allocations.iter().filter(|one| one.birth <= at && at < one.death);
    let largest = alive.map(|one| one.size).max().unwrap();
    assert!(page.contains(&format!("<tr><td>{largest}<td>")));
}

#[test]
fn empty_timeline_gives_a_page() {
    let page = html_page("nothing", &Timeline::default());
    assert!(page.contains("The peak is <strong>0 B</strong>") && page.contains("none\n</tbody>"));
    assert_eq!(data(&page)["columns"], json!([]));
}

#[test]
fn numbers_are_grouped_by_thousands() {
    for (number, expected) in [(0, "0"), (999, "999"), (1000, "1,000"), (1_234_567, "1,234,567")] {
        assert_eq!(grouped(number), expected);
    }
}
