//! TFRecord framing: a length and the data, each followed by its checksum.
//!
//! The checksum is CRC-32C with a table of 256 entries. A point has about 50 bytes, so a faster method would save
//! nothing.

/// Constant that is added to the rotated checksum, so that a checksum can cover data that contains checksums
/// (`masked_crc` in TensorFlow's `lib/hash/crc32c.h`).
const MASK: u32 = 0xa282_ead8;
/// Castagnoli's polynomial of CRC-32C with reversed bits.
const POLYNOMIAL: u32 = 0x82f6_3b78;
const TABLE: [u32; 256] = table();

/// Frames `data` as a TFRecord: the length of the data, and the data, each followed by its checksum.
pub(super) fn framed(data: &[u8]) -> Vec<u8> {
    let length = (data.len() as u64).to_le_bytes();
    [&length[..], &masked(&length).to_le_bytes(), data, &masked(data).to_le_bytes()].concat()
}

/// Computes the checksum of `bytes` in the masked form that a TFRecord stores.
pub(super) fn masked(bytes: &[u8]) -> u32 {
    crc32c(bytes).rotate_right(15).wrapping_add(MASK)
}

fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc, &byte| TABLE[usize::from(crc as u8 ^ byte)] ^ (crc >> 8))
}

const fn table() -> [u32; 256] {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let (mut crc, mut bit) = (byte as u32, 0);
        while bit < 8 {
            crc = if crc & 1 == 1 { (crc >> 1) ^ POLYNOMIAL } else { crc >> 1 };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_match_the_standard() {
        // RFC 3720, section B.4, and the check value of CRC-32C in the catalog of CRC algorithms.
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(&[0xff; 32]), 0x62a8_ab43);
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(crc32c(b""), 0);
    }
}
