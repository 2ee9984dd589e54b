//! Small numbers in runs, and packed into bits: the levels of values, and their places in a dictionary.

/// Iterator over numbers in the hybrid of runs and packed bits. It ends where the bytes end or make no sense.
#[derive(Debug, Default)]
pub(super) struct Hybrid {
    bytes: Vec<u8>,
    at: usize,
    /// Width of a number in bits: 0 to 32.
    width: u32,
    run: Run,
}

#[derive(Debug)]
enum Run {
    /// The same number, so many times more.
    Same { number: u32, left: u64 },
    /// Numbers in bits, from a bit of the bytes on, so many more.
    Packed { bit: usize, left: u64 },
}

impl Default for Run {
    fn default() -> Self {
        Self::Same { number: 0, left: 0 }
    }
}

impl Hybrid {
    /// Creates a reader of numbers of `width` bits, at most 32.
    pub(super) fn new(bytes: Vec<u8>, width: u32) -> Self {
        Self { bytes, at: 0, width: width.min(32), run: Run::default() }
    }

    fn next_run(&mut self) -> Option<Run> {
        let mut header = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = *self.bytes.get(self.at)?;
            self.at += 1;
            header |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                break;
            }
        }
        let count = header >> 1;
        if header & 1 == 1 {
            // Groups of eight numbers. The last group may be cut short.
            let bit = self.at.checked_mul(8)?;
            let bytes = usize::try_from(count.checked_mul(self.width.into())?).ok()?;
            self.at = self.at.checked_add(bytes)?.min(self.bytes.len());
            return Some(Run::Packed { bit, left: count.checked_mul(8)? });
        }
        let width = self.width.div_ceil(8) as usize;
        let bytes = self.bytes.get(self.at..self.at + width)?;
        self.at += width;
        let number = bytes.iter().rev().fold(0, |number, &byte| number << 8 | u32::from(byte));
        Some(Run::Same { number, left: count })
    }
}

impl Iterator for Hybrid {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        loop {
            match &mut self.run {
                Run::Same { number, left } if *left > 0 => {
                    *left -= 1;
                    return Some(*number);
                }
                Run::Packed { bit, left } if *left > 0 => {
                    *left -= 1;
                    let from = *bit / 8;
                    let last = (*bit + self.width as usize).div_ceil(8);
                    let bytes = self.bytes.get(from..last)?;
                    let number = bytes.iter().rev().fold(0u64, |number, &byte| number << 8 | u64::from(byte));
                    let number = (number >> (*bit % 8)) & ((1 << self.width) - 1);
                    *bit += self.width as usize;
                    return Some(number as u32);
                }
                _ => self.run = self.next_run()?,
            }
        }
    }
}

/// Writes levels of 0 to 255 as runs.
pub(super) fn write_runs(levels: &[u8], bytes: &mut Vec<u8>) {
    for run in levels.chunk_by(|a, b| a == b) {
        let mut header = (run.len() as u64) << 1;
        while header >= 0x80 {
            bytes.push(header as u8 | 0x80);
            header >>= 7;
        }
        bytes.extend([header as u8, run[0]]);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn runs_are_read_as_written(levels in prop::collection::vec(0u8..3, 0..300)) {
            let mut bytes = Vec::new();
            write_runs(&levels, &mut bytes);
            let read: Vec<u8> = Hybrid::new(bytes, 2).map(|level| level as u8).collect();
            prop_assert_eq!(read, levels);
        }

        #[test]
        fn packed_bits_are_read_from_the_lowest_on(numbers in prop::collection::vec(any::<u32>(), 8), width in 1u32..33) {
            let mask = u32::MAX >> (32 - width);
            let mut bytes = vec![3];
            let bits: Vec<bool> = numbers.iter().flat_map(|n| (0..width).map(move |bit| n >> bit & 1 == 1)).collect();
            bytes.extend(bits.chunks(8).map(|eight| eight.iter().rev().fold(0u8, |byte, &bit| byte << 1 | u8::from(bit))));
            let read: Vec<u32> = Hybrid::new(bytes, width).collect();
            prop_assert_eq!(read, numbers.iter().map(|n| n & mask).collect::<Vec<_>>());
        }

        #[test]
        fn any_bytes_end(bytes in prop::collection::vec(any::<u8>(), 0..40), width in 0u32..40) {
            let _ = Hybrid::new(bytes, width).take(100_000).count();
        }
    }
}
