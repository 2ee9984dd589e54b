//! Opus in Ogg, Matroska and MP4: the decoder `ropus` in the form that Symphonia asks for.

use ropus::{Channels, DecodeMode, Decoder};
use symphonia::core::audio::{
    AsGenericAudioBufferRef, AudioBuffer, AudioMut, AudioSpec, GenericAudioBufferRef, layouts,
};
use symphonia::core::codecs::CodecInfo;
use symphonia::core::codecs::audio::well_known::CODEC_ID_OPUS;
use symphonia::core::codecs::audio::{AudioCodecParameters, AudioDecoder, AudioDecoderOptions, FinalizeResult};
use symphonia::core::codecs::registry::{RegisterableAudioDecoder, SupportedAudioCodec};
use symphonia::core::errors::{Error, Result};
use symphonia::core::packet::PacketRef;

/// Sample rate of decoded Opus in hertz, whatever the rate of the recording was.
pub(super) const RATE: u32 = 48_000;

/// Largest number of samples in one channel of a packet: 120 ms.
const SAMPLES_MAX: usize = 5_760;

/// Facts from the header of an Opus stream.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct OpusHead {
    /// Number of channels.
    pub(super) channels: u8,
    /// Number of samples before the sound begins.
    pub(super) pre_skip: u16,
    /// Gain that the decoder applies, in decibels times 256.
    gain: i16,
}

impl OpusHead {
    /// Reads the header: that of Ogg and Matroska, or that of MP4 behind the same magic bytes.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let [version, channels, s0, s1, _, _, _, _, g0, g1, ..] = *bytes.strip_prefix(b"OpusHead")? else {
            return None;
        };
        // MP4 counts its versions from 0, and puts the highest byte first.
        let is_movie = version == 0;
        let number = |bytes| if is_movie { u16::from_be_bytes(bytes) } else { u16::from_le_bytes(bytes) };
        Some(Self { channels, pre_skip: number([s0, s1]), gain: number([g0, g1]) as i16 })
    }
}

/// Computes the number of samples in one channel of a packet from its first bytes; `None` if it is no Opus packet.
pub(super) fn samples_of(packet: &[u8]) -> Option<u64> {
    let first = *packet.first()?;
    // In units of 2.5 ms: RFC 6716, table 2.
    let frame = match first >> 3 {
        config @ 0..12 => [4, 8, 16, 24][usize::from(config % 4)],
        config @ 12..16 => [4, 8][usize::from(config % 2)],
        config => [1, 2, 4, 8][usize::from(config % 4)],
    };
    let frames = match first & 3 {
        0 => 1,
        1 | 2 => 2,
        _ => packet.get(1)? & 63,
    };
    let samples = 120 * frame * u64::from(frames);
    (1..=SAMPLES_MAX as u64).contains(&samples).then_some(samples)
}

/// Decoder of Opus with one or two channels.
pub(super) struct OpusDecoder {
    params: AudioCodecParameters,
    decoder: Decoder,
    channels: usize,
    gain: i16,
    /// Samples of a packet; channels alternate.
    samples: Vec<f32>,
    buffer: AudioBuffer<f32>,
}

impl OpusDecoder {
    fn new(params: &AudioCodecParameters) -> Result<Self> {
        let head = params.extra_data.as_deref().and_then(OpusHead::parse);
        let counted = params.channels.as_ref().map_or(1, symphonia::core::audio::Channels::count);
        let (channels, gain) = head.map_or((counted, 0), |head| (head.channels.into(), head.gain));
        let layout = match channels {
            1 => layouts::CHANNEL_LAYOUT_MONO,
            2 => layouts::CHANNEL_LAYOUT_STEREO,
            _ => return Err(Error::Unsupported("Opus with more than two channels")),
        };
        let decoder = fresh(channels, gain)?;
        let buffer = AudioBuffer::new(AudioSpec::new(RATE, layout), SAMPLES_MAX);
        Ok(Self { params: params.clone(), decoder, channels, gain, samples: vec![0.0; SAMPLES_MAX * channels], buffer })
    }
}

/// Creates a decoder that has seen no packet.
fn fresh(channels: usize, gain: i16) -> Result<Decoder> {
    let form = if channels == 1 { Channels::Mono } else { Channels::Stereo };
    let mut decoder = Decoder::new(RATE, form).map_err(|_| Error::Unsupported("Opus in an unknown form"))?;
    decoder.set_gain(gain.into()).map_err(|_| Error::DecodeError("its gain is impossible"))?;
    Ok(decoder)
}

impl AudioDecoder for OpusDecoder {
    fn codec_info(&self) -> &CodecInfo {
        &Self::supported_codecs().first().expect("the list below has one codec").info
    }

    fn reset(&mut self) {
        if let Ok(decoder) = fresh(self.channels, self.gain) {
            self.decoder = decoder;
        }
    }

    fn codec_params(&self) -> &AudioCodecParameters {
        &self.params
    }

    fn decode_ref(&mut self, packet: &PacketRef<'_>) -> Result<GenericAudioBufferRef<'_>> {
        self.buffer.clear();
        // An empty packet would ask the decoder to fill a gap.
        let expected = samples_of(packet.data).ok_or(Error::DecodeError("a packet is no Opus packet"))? as usize;
        let frames = self.decoder.decode_float(packet.data, &mut self.samples, DecodeMode::Normal);
        let frames = frames.ok().filter(|&frames| frames == expected);
        let frames = frames.ok_or(Error::DecodeError("an Opus packet is damaged"))?;
        self.buffer.render_uninit(Some(frames));
        self.buffer.copy_from_slice_interleaved(&&self.samples[..frames * self.channels]);
        self.buffer.trim(packet.trim_start.get() as usize, packet.trim_end.get() as usize);
        Ok(self.buffer.as_generic_audio_buffer_ref())
    }

    fn finalize(&mut self) -> FinalizeResult {
        FinalizeResult::default()
    }

    fn last_decoded(&self) -> GenericAudioBufferRef<'_> {
        self.buffer.as_generic_audio_buffer_ref()
    }
}

impl RegisterableAudioDecoder for OpusDecoder {
    fn try_registry_new(params: &AudioCodecParameters, _: &AudioDecoderOptions) -> Result<Box<dyn AudioDecoder>> {
        Ok(Box::new(Self::new(params)?))
    }

    fn supported_codecs() -> &'static [SupportedAudioCodec] {
        const CODECS: [SupportedAudioCodec; 1] = [SupportedAudioCodec {
            id: CODEC_ID_OPUS,
            info: CodecInfo { short_name: "opus", long_name: "Opus", profiles: &[] },
        }];
        &CODECS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_of_both_byte_orders_are_read() {
        let head = |bytes: &[u8]| OpusHead::parse(&[b"OpusHead", bytes].concat());
        let expected = Some(OpusHead { channels: 2, pre_skip: 312, gain: -256 });
        assert_eq!(head(&[1, 2, 0x38, 0x01, 0, 0, 0, 0, 0x00, 0xff, 0]), expected);
        assert_eq!(head(&[0, 2, 0x01, 0x38, 0, 0, 0, 0, 0xff, 0x00, 0]), expected);
        assert_eq!(head(&[1, 2, 0x38]), None);
        assert_eq!(OpusHead::parse(b"OpusTags"), None);
    }

    #[test]
    fn the_length_of_a_packet_is_what_the_decoder_returns() {
        let mut decoder = fresh(1, 0).unwrap();
        let mut samples = vec![0.0; SAMPLES_MAX];
        for first in 0..=255u8 {
            let has_count = first & 3 == 3;
            for count in 0..if has_count { 64 } else { 1 } {
                // Frames of no bytes are valid: nothing was sent.
                let packet = [first, count];
                let packet = &packet[..if has_count { 2 } else { 1 }];
                let decoded = decoder.decode_float(packet, &mut samples, DecodeMode::Normal);
                match (samples_of(packet), decoded) {
                    (Some(counted), Ok(frames)) => assert_eq!(counted, frames as u64, "{packet:?}"),
                    (Some(_), Err(_)) => {}
                    (None, decoded) => assert!(decoded.is_err(), "{packet:?}: {decoded:?}"),
                }
            }
        }
        assert_eq!(samples_of(&[]), None);
    }
}
