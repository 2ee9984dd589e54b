//! AAC: reads the configuration of a stream, and reduces it to what Symphonia decodes.

/// Number of samples per channel in each packet of AAC.
pub(super) const SAMPLES: u64 = 1_024;

/// Number of samples of the core by which a decoder of HE-AAC is later than that of its core. Encoders count it in the
/// delay that they write. Measured against ffmpeg.
pub(super) const EXTENSION_DELAY: i64 = 481;

/// Sample rates by their index in a configuration.
const RATES: [u32; 13] =
    [96_000, 88_200, 64_000, 48_000, 44_100, 32_000, 24_000, 22_050, 16_000, 12_000, 11_025, 8_000, 7_350];

/// Index that says that the rate itself follows.
const RATE_FOLLOWS: u64 = 15;

/// Core of an AAC stream: its sound without what a decoder of HE-AAC would add.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct AacCore {
    /// Sample rate in hertz.
    pub(super) rate: u32,
    /// Number of channels: one or two.
    pub(super) channels: u16,
    /// Whether the stream is HE-AAC.
    pub(super) is_extended: bool,
    /// Configuration of the core alone, for the decoder.
    pub(super) config: Vec<u8>,
}

/// Reads the configuration of an AAC stream. The error names the kind of AAC that cannot be decoded.
///
/// HE-AAC is read as its core: that is AAC at half the sample rate, and with one channel in version 2. The decoder that
/// knows HE-AAC invents the upper half of the spectrum from the lower, and the second channel from the first. A model of
/// speech loses nothing: the core of 44.1 kHz reaches up to 11 kHz.
pub(super) fn core(config: &[u8]) -> Result<AacCore, String> {
    let mut bits = Bits::new(config);
    let mut object = bits.object_type();
    let rate_index = bits.take(4);
    let rate = bits.rate(rate_index);
    let channels = bits.take(4);
    // HE-AAC of version 1 and 2.
    let is_extended = matches!(object, 5 | 29);
    if is_extended {
        let extended = bits.take(4);
        bits.rate(extended);
        object = bits.object_type();
    }
    let is_short = bits.take(1) == 1;
    if object != 2 {
        return Err(match object {
            1 => "AAC of the profile Main".into(),
            3 => "AAC of the profile SSR".into(),
            4 => "AAC of the profile LTP".into(),
            23 | 39 => "AAC of low delay (AAC-LD or AAC-ELD)".into(),
            42 => "xHE-AAC".into(),
            other => format!("MPEG-4 audio of type {other}"),
        });
    }
    if is_short {
        return Err("AAC with 960 samples in a frame".into());
    }
    let (1 | 2) = channels else {
        return Err(match channels {
            0 => "AAC with an unusual set of channels".into(),
            7 => "AAC with 8 channels".into(),
            more => format!("AAC with {more} channels"),
        });
    };
    let rate = rate.ok_or("AAC with an impossible sample rate")?;
    Ok(AacCore { rate, channels: channels as u16, is_extended, config: plain_config(rate_index, rate, channels) })
}

/// Writes the configuration of plain AAC.
fn plain_config(rate_index: u64, rate: u32, channels: u64) -> Vec<u8> {
    let start = 2 << 4 | rate_index;
    if rate_index == RATE_FOLLOWS {
        let bits = (start << 24 | u64::from(rate)) << 7 | channels << 3;
        return bits.to_be_bytes()[3..].to_vec();
    }
    ((start << 7 | channels << 3) as u16).to_be_bytes().to_vec()
}

/// First 64 bits of a configuration, from the highest on. Bits behind the end are zeros.
struct Bits(u64);

impl Bits {
    fn new(bytes: &[u8]) -> Self {
        let mut first = [0; 8];
        first.iter_mut().zip(bytes).for_each(|(place, &byte)| *place = byte);
        Self(u64::from_be_bytes(first))
    }

    /// Takes fewer than 64 bits.
    fn take(&mut self, count: u32) -> u64 {
        let value = self.0 >> (64 - count);
        self.0 <<= count;
        value
    }

    fn object_type(&mut self) -> u64 {
        match self.take(5) {
            31 => 32 + self.take(6),
            short => short,
        }
    }

    fn rate(&mut self, index: u64) -> Option<u32> {
        if index == RATE_FOLLOWS { Some(self.take(24) as u32) } else { RATES.get(index as usize).copied() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configurations_are_reduced_to_their_core() {
        let read = |config: &[u8]| core(config).map(|core| (core.rate, core.config));
        // Plain AAC, one and two channels; its config stays.
        assert_eq!(read(&[0x14, 0x08]), Ok((16_000, vec![0x14, 0x08])));
        assert_eq!(read(&[0x12, 0x10]), Ok((44_100, vec![0x12, 0x10])));
        // A sign of HE-AAC behind plain AAC is left out.
        assert_eq!(read(&[0x13, 0x88, 0x56, 0xe5, 0xa5, 0x48, 0x80]), Ok((22_050, vec![0x13, 0x88])));
        // HE-AAC with two channels, and version 2, whose core has one.
        assert_eq!(read(&[0x2b, 0x92, 0x08, 0x00]), Ok((22_050, vec![0x13, 0x90])));
        assert_eq!(read(&[0xeb, 0x8a, 0x08, 0x00]), Ok((22_050, vec![0x13, 0x88])));
        // A rate that is written out.
        let (rate, config) = read(&[0x17, 0x80, 0x1f, 0x40, 0x08]).unwrap();
        assert_eq!((rate, read(&config)), (16_000, Ok((16_000, config.clone()))));
    }

    #[test]
    fn other_kinds_are_named() {
        let named = |config: &[u8]| core(config).unwrap_err();
        assert_eq!(named(&[0x0a, 0x10]), "AAC of the profile Main");
        assert_eq!(named(&[0x12, 0x30]), "AAC with 6 channels");
        assert_eq!(named(&[0x12, 0x14]), "AAC with 960 samples in a frame");
        assert_eq!(named(&[0xf9, 0x46, 0x40]), "xHE-AAC");
        assert_eq!(named(&[0x16, 0x88]), "AAC with an impossible sample rate");
        assert_eq!(named(&[]), "MPEG-4 audio of type 0");
    }

    #[test]
    fn any_bytes_are_a_configuration_or_named() {
        for first in 0..=u16::MAX {
            let [a, b] = first.to_be_bytes();
            for rest in [0u8, 0x55, 0xff] {
                if let Ok(found) = core(&[a, b, rest, rest, rest, rest]) {
                    let again = core(&found.config);
                    assert_eq!(again, Ok(AacCore { is_extended: false, ..found }));
                }
            }
        }
    }
}
