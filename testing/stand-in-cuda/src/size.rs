//! Sizes in bytes, as a person writes them: `512`, `2MiB`, `11.63GiB`.

/// Reads a size. Units are powers of 1024, and a size without a unit is in bytes.
pub(crate) fn parse(text: &str) -> Option<u64> {
    let digits = text.find(|char: char| !char.is_ascii_digit() && char != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let shift = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kib" => 10,
        "m" | "mib" => 20,
        "g" | "gib" => 30,
        _ => return None,
    };
    match number.parse::<u64>() {
        Ok(whole) => whole.checked_mul(1 << shift),
        Err(_) if shift > 0 => Some((number.parse::<f64>().ok()? * (1_u64 << shift) as f64) as u64),
        Err(_) => None,
    }
}

/// Rounds a size up to a multiple of `unit`.
pub(crate) fn round_up(size: u64, unit: u64) -> u64 {
    size.div_ceil(unit).saturating_mul(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read() {
        let check = |text: &str, expected: Option<u64>| assert_eq!(parse(text), expected, "{text}");
        check("0", Some(0));
        check("512", Some(512));
        check("2MiB", Some(2 << 20));
        check("2m", Some(2 << 20));
        check("1.5GiB", Some(3 << 29));
        for wrong in ["", "MiB", "1.5", "-1", "2MB", "2 MiB", "1..5G", "99999999999999999999"] {
            check(wrong, None);
        }
    }

    #[test]
    fn sizes_are_rounded_up() {
        assert_eq!([0, 1, 511, 512, 513].map(|size| round_up(size, 512)), [0, 512, 512, 512, 1024]);
    }
}
