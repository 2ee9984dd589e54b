//! Gender and number of what is counted.

use super::language::Language;

/// Grammatical gender of what is counted. It changes the words for 1 and 2 in some languages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gender {
    /// Nothing is counted: the number stands alone, such as `eins` in German.
    None,
    /// A masculine or neuter word follows.
    Masculine,
    /// A feminine word follows.
    Feminine,
}

/// Returns the form of a word for a count: `[one, few, many]`. Only Russian and Polish have a form for few.
///
/// A number with a fraction takes the form for many, in Russian and Polish the form for few, which is close to the
/// genitive that grammar asks for.
pub(crate) fn by_count<'a>(language: Language, whole: &str, fraction: &str, forms: [&'a str; 3]) -> &'a str {
    let [one, few, many] = forms;
    let number: u64 = whole.parse().unwrap_or(u64::MAX);
    let (last, last_two) = (number % 10, number % 100);
    let is_few = (2..=4).contains(&last) && !(12..=14).contains(&last_two);
    match language {
        Language::French if number < 2 => one,
        Language::Russian | Language::Polish if !fraction.is_empty() => few,
        _ if !fraction.is_empty() => many,
        Language::Russian if last == 1 && last_two != 11 => one,
        Language::Russian | Language::Polish if is_few => few,
        Language::Russian => many,
        _ if number == 1 => one,
        _ => many,
    }
}
