//! Headers and checksums of frames.

use super::StreamHeader;

/// Header of a frame, whose checksum is right.
pub(super) struct FrameHeader {
    /// Number of bytes of the header.
    pub(super) length: usize,
    /// Number of samples per channel.
    pub(super) size: usize,
    /// Number of the frame, or of its first sample.
    pub(super) number: u64,
    /// Whether frames are numbered, and not their samples. All frames but the last have the same size then.
    pub(super) is_numbered: bool,
    pub(super) channels: Channels,
    /// Sample rate in hertz; `None`: that of the file.
    rate: Option<u32>,
    /// Bits per sample; `None`: those of the file.
    bits: Option<u32>,
}

/// What the channels of a frame hold.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Channels {
    /// Each channel itself.
    Independent(usize),
    /// Left, and left minus right.
    LeftSide,
    /// Left minus right, and right.
    SideRight,
    /// The mean, and left minus right.
    MidSide,
}

impl FrameHeader {
    /// Reads a header from the first bytes.
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let &[sync, strategy, sizes, layout, ..] = bytes else { return None };
        if sync != 0xff || strategy & 0xfe != 0xf8 || layout & 1 != 0 {
            return None;
        }
        let mut rest = Fields { bytes, position: 4 };
        let number = rest.number()?;
        let size = match sizes >> 4 {
            0 => return None,
            1 => 192,
            code @ 2..=5 => 576 << (code - 2),
            6 => rest.take(1)? as usize + 1,
            7 => rest.take(2)? as usize + 1,
            code => 256 << (code - 8),
        };
        const RATES: [u32; 11] =
            [88_200, 176_400, 192_000, 8_000, 16_000, 22_050, 24_000, 32_000, 44_100, 48_000, 96_000];
        let rate = match sizes & 15 {
            0 => None,
            12 => Some(rest.take(1)? * 1_000),
            13 => Some(rest.take(2)?),
            14 => Some(rest.take(2)? * 10),
            15 => return None,
            code => Some(RATES[usize::from(code) - 1]),
        };
        let bits = match layout >> 1 & 7 {
            0 => None,
            3 => return None,
            code => Some([8, 12, 0, 16, 20, 24, 32][usize::from(code) - 1]),
        };
        let channels = match layout >> 4 {
            count @ 0..=7 => Channels::Independent(usize::from(count) + 1),
            8 => Channels::LeftSide,
            9 => Channels::SideRight,
            10 => Channels::MidSide,
            _ => return None,
        };
        let length = rest.position + 1;
        let is_right = crc8(bytes.get(..length)?) == 0;
        let is_numbered = strategy & 1 == 0;
        is_right.then_some(Self { length, size, number, is_numbered, channels, rate, bits })
    }

    /// Returns whether the frame has the rate, channels and bits of its file.
    pub(super) fn belongs_to(&self, file: &StreamHeader) -> bool {
        let channels = if let Channels::Independent(count) = self.channels { count } else { 2 };
        self.rate.is_none_or(|rate| rate == file.rate)
            && self.bits.is_none_or(|bits| bits == file.bits)
            && channels == file.channels
    }
}

/// The fields of a header that have whole bytes.
struct Fields<'a> {
    bytes: &'a [u8],
    position: usize,
}

impl Fields<'_> {
    /// Reads a number of `count` bytes.
    fn take(&mut self, count: usize) -> Option<u32> {
        let bytes = self.bytes.get(self.position..self.position + count)?;
        self.position += count;
        Some(bytes.iter().fold(0, |number, byte| number << 8 | u32::from(*byte)))
    }

    /// Reads a number of up to 36 bits, coded as UTF-8 codes characters.
    fn number(&mut self) -> Option<u64> {
        let first = self.take(1)?;
        let ones = (first as u8).leading_ones();
        if ones == 0 {
            return Some(first.into());
        }
        if ones == 1 || ones == 8 {
            return None;
        }
        let mut number = u64::from(first & (0x7f >> ones));
        for _ in 1..ones {
            let next = self.take(1)?;
            if next >> 6 != 2 {
                return None;
            }
            number = number << 6 | u64::from(next & 0x3f);
        }
        Some(number)
    }
}

/// Computes the checksum of a header: zero, if it ends with its right checksum.
fn crc8(bytes: &[u8]) -> u8 {
    bytes.iter().fold(0, |crc, byte| (0..8).fold(crc ^ byte, |crc, _| crc << 1 ^ if crc & 0x80 != 0 { 7 } else { 0 }))
}

/// Remainders of each byte with 0 to 7 zero bytes behind it.
static CRC16: [[u16; 256]; 8] = {
    let mut tables = [[0; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = (byte as u16) << 8;
        let mut bit = 0;
        while bit < 64 {
            if bit % 8 == 0 && bit > 0 {
                tables[bit / 8 - 1][byte] = crc;
            }
            crc = crc << 1 ^ if crc & 0x8000 != 0 { 0x8005 } else { 0 };
            bit += 1;
        }
        tables[7][byte] = crc;
        byte += 1;
    }
    tables
};

/// Computes the checksum of a frame: zero, if it ends with its right checksum.
#[inline(never)]
pub(super) fn crc16(bytes: &[u8]) -> u16 {
    let (blocks, rest) = bytes.as_chunks::<8>();
    let crc = blocks.iter().fold(0u16, |crc, block| {
        let [high, low] = crc.to_be_bytes();
        let [a, b, c, d, e, f, g, h] = *block;
        let of = |zeros: usize, byte: u8| CRC16[zeros][usize::from(byte)];
        let first = of(7, a ^ high) ^ of(6, b ^ low) ^ of(5, c) ^ of(4, d);
        first ^ of(3, e) ^ of(2, f) ^ of(1, g) ^ of(0, h)
    });
    rest.iter().fold(crc, |crc, byte| crc << 8 ^ CRC16[0][usize::from((crc >> 8) as u8 ^ byte)])
}
