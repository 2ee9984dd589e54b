//! Unicode forms, quotation marks and dashes.

use unicode_normalization::UnicodeNormalization;

/// Composes characters.
pub(super) fn nfc(text: &str) -> String {
    text.nfc().collect()
}

/// Composes characters and replaces compatible ones.
pub(super) fn nfkc(text: &str) -> String {
    text.nfkc().collect()
}

/// Replaces quotation marks by `"`, and apostrophes and single quotation marks by `'`.
pub(super) fn fold_quotes(text: &str) -> String {
    let fold = |character| match character {
        '\u{2018}'..='\u{201b}' | '\u{2039}' | '\u{203a}' | '\u{2bc}' | '\u{2032}' | '\u{b4}' | '`' => '\'',
        '\u{201c}'..='\u{201f}' | '\u{ab}' | '\u{bb}' | '\u{2033}' | '\u{300c}'..='\u{300f}' => '"',
        other => other,
    };
    text.chars().map(fold).collect()
}

/// Replaces dashes, hyphens and the minus sign by `-`, and removes soft hyphens. Long dashes get spaces, because they
/// separate words.
pub(super) fn fold_dashes(text: &str) -> String {
    let fold = |character| match character {
        '\u{2010}'..='\u{2013}' | '\u{2212}' | '\u{fe58}' | '\u{fe63}' | '\u{ff0d}' => '-',
        other => other,
    };
    let text = text.replace(['\u{2014}', '\u{2015}', '\u{2e3a}', '\u{2e3b}'], " - ");
    text.chars().filter(|&character| character != '\u{ad}').map(fold).collect()
}
