//! Numbers with a unit as words.

use crate::spoken::{Gender, Language, Replacement, by_count, counted, is_boundary, minus, replace_numbers};

use Gender::{Feminine as F, Masculine as M};

/// Sign, gender, and the name for one and for many, in English, German, French and Spanish.
type Unit = (&'static str, [(Gender, &'static str, &'static str); 4]);

const UNITS: &[Unit] = &[
    (
        "km/h",
        [
            (M, "kilometer per hour", "kilometers per hour"),
            (M, "Kilometer pro Stunde", "Kilometer pro Stunde"),
            (M, "kilomètre par heure", "kilomètres par heure"),
            (M, "kilómetro por hora", "kilómetros por hora"),
        ],
    ),
    (
        "m/s",
        [
            (M, "meter per second", "meters per second"),
            (M, "Meter pro Sekunde", "Meter pro Sekunde"),
            (M, "mètre par seconde", "mètres par seconde"),
            (M, "metro por segundo", "metros por segundo"),
        ],
    ),
    (
        "mph",
        [
            (M, "mile per hour", "miles per hour"),
            (F, "Meile pro Stunde", "Meilen pro Stunde"),
            (M, "mille par heure", "milles par heure"),
            (F, "milla por hora", "millas por hora"),
        ],
    ),
    (
        "km",
        [
            (M, "kilometer", "kilometers"),
            (M, "Kilometer", "Kilometer"),
            (M, "kilomètre", "kilomètres"),
            (M, "kilómetro", "kilómetros"),
        ],
    ),
    (
        "cm",
        [
            (M, "centimeter", "centimeters"),
            (M, "Zentimeter", "Zentimeter"),
            (M, "centimètre", "centimètres"),
            (M, "centímetro", "centímetros"),
        ],
    ),
    (
        "mm",
        [
            (M, "millimeter", "millimeters"),
            (M, "Millimeter", "Millimeter"),
            (M, "millimètre", "millimètres"),
            (M, "milímetro", "milímetros"),
        ],
    ),
    (
        "m²",
        [
            (M, "square meter", "square meters"),
            (M, "Quadratmeter", "Quadratmeter"),
            (M, "mètre carré", "mètres carrés"),
            (M, "metro cuadrado", "metros cuadrados"),
        ],
    ),
    (
        "kg",
        [
            (M, "kilogram", "kilograms"),
            (M, "Kilogramm", "Kilogramm"),
            (M, "kilogramme", "kilogrammes"),
            (M, "kilogramo", "kilogramos"),
        ],
    ),
    (
        "mg",
        [
            (M, "milligram", "milligrams"),
            (M, "Milligramm", "Milligramm"),
            (M, "milligramme", "milligrammes"),
            (M, "miligramo", "miligramos"),
        ],
    ),
    (
        "ml",
        [
            (M, "milliliter", "milliliters"),
            (M, "Milliliter", "Milliliter"),
            (M, "millilitre", "millilitres"),
            (M, "mililitro", "mililitros"),
        ],
    ),
    ("min", [(M, "minute", "minutes"), (F, "Minute", "Minuten"), (F, "minute", "minutes"), (M, "minuto", "minutos")]),
    (
        "ms",
        [
            (M, "millisecond", "milliseconds"),
            (F, "Millisekunde", "Millisekunden"),
            (F, "milliseconde", "millisecondes"),
            (M, "milisegundo", "milisegundos"),
        ],
    ),
    (
        "GHz",
        [
            (M, "gigahertz", "gigahertz"),
            (M, "Gigahertz", "Gigahertz"),
            (M, "gigahertz", "gigahertz"),
            (M, "gigahercio", "gigahercios"),
        ],
    ),
    (
        "MHz",
        [
            (M, "megahertz", "megahertz"),
            (M, "Megahertz", "Megahertz"),
            (M, "mégahertz", "mégahertz"),
            (M, "megahercio", "megahercios"),
        ],
    ),
    (
        "kHz",
        [
            (M, "kilohertz", "kilohertz"),
            (M, "Kilohertz", "Kilohertz"),
            (M, "kilohertz", "kilohertz"),
            (M, "kilohercio", "kilohercios"),
        ],
    ),
    ("Hz", [(M, "hertz", "hertz"), (M, "Hertz", "Hertz"), (M, "hertz", "hertz"), (M, "hercio", "hercios")]),
    (
        "GB",
        [
            (M, "gigabyte", "gigabytes"),
            (M, "Gigabyte", "Gigabyte"),
            (M, "gigaoctet", "gigaoctets"),
            (M, "gigabyte", "gigabytes"),
        ],
    ),
    (
        "MB",
        [
            (M, "megabyte", "megabytes"),
            (M, "Megabyte", "Megabyte"),
            (M, "mégaoctet", "mégaoctets"),
            (M, "megabyte", "megabytes"),
        ],
    ),
    (
        "kW",
        [
            (M, "kilowatt", "kilowatts"),
            (M, "Kilowatt", "Kilowatt"),
            (M, "kilowatt", "kilowatts"),
            (M, "kilovatio", "kilovatios"),
        ],
    ),
    (
        "°C",
        [
            (M, "degree Celsius", "degrees Celsius"),
            (M, "Grad Celsius", "Grad Celsius"),
            (M, "degré Celsius", "degrés Celsius"),
            (M, "grado Celsius", "grados Celsius"),
        ],
    ),
    (
        "°F",
        [
            (M, "degree Fahrenheit", "degrees Fahrenheit"),
            (M, "Grad Fahrenheit", "Grad Fahrenheit"),
            (M, "degré Fahrenheit", "degrés Fahrenheit"),
            (M, "grado Fahrenheit", "grados Fahrenheit"),
        ],
    ),
    ("°", [(M, "degree", "degrees"), (M, "Grad", "Grad"), (M, "degré", "degrés"), (M, "grado", "grados")]),
    (
        "%",
        [
            (M, "percent", "percent"),
            (M, "Prozent", "Prozent"),
            (M, "pour cent", "pour cent"),
            (Gender::None, "por ciento", "por ciento"),
        ],
    ),
    ("m", [(M, "meter", "meters"), (M, "Meter", "Meter"), (M, "mètre", "mètres"), (M, "metro", "metros")]),
    ("g", [(M, "gram", "grams"), (M, "Gramm", "Gramm"), (M, "gramme", "grammes"), (M, "gramo", "gramos")]),
    ("l", [(M, "liter", "liters"), (M, "Liter", "Liter"), (M, "litre", "litres"), (M, "litro", "litros")]),
    ("h", [(M, "hour", "hours"), (F, "Stunde", "Stunden"), (F, "heure", "heures"), (F, "hora", "horas")]),
];

/// Replaces numbers with a unit, such as `5 km` or `20%`, by words.
pub(super) fn apply(language: Language, text: &str) -> String {
    let column = match language {
        Language::German => 1,
        Language::French => 2,
        Language::Spanish => 3,
        _ => 0,
    };
    replace_numbers(language, text, |found| {
        // Behind a letter it is a part of a name. Words in its place would need a space, and what is before it would
        // become a unit: `5 km3 km`.
        if found.before.ends_with(char::is_alphabetic) {
            return None;
        }
        let trimmed = found.after.strip_prefix([' ', '\u{a0}', '\u{202f}']).unwrap_or(found.after);
        let starts = |(sign, _): &&Unit| {
            let rest = trimmed.strip_prefix(*sign);
            rest.is_some_and(|rest| !sign.ends_with(char::is_alphabetic) || is_boundary(rest.chars().next()))
        };
        let (sign, names) = UNITS.iter().find(starts)?;
        let (gender, one, many) = names[column];
        let number = counted(language, &found.whole, &found.fraction, gender);
        let name = by_count(language, &found.whole, &found.fraction, [one, many, many]);
        let minus = if found.negative { format!("{} ", minus(language)) } else { String::new() };
        let after = found.after.len() - trimmed.len() + sign.len();
        Some(Replacement { text: format!("{minus}{number} {name}"), before: 0, after })
    })
}
