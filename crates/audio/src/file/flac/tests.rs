//! Compares the decoder with Symphonia on random files that use all of the format, whole and damaged.

use plimsoll_core::Seconds;
use proptest::prelude::*;
use tempfile::TempDir;

use super::super::compressed;
use super::*;

/// Writer of bits, the first one of a byte first.
#[derive(Default)]
struct BitWriter {
    bytes: Vec<u8>,
    bits: usize,
}

impl BitWriter {
    fn put(&mut self, value: i64, bits: u32) {
        for bit in (0..bits).rev() {
            if self.bits.is_multiple_of(8) {
                self.bytes.push(0);
            }
            *self.bytes.last_mut().unwrap() |= ((value >> bit & 1) as u8) << (7 - self.bits % 8);
            self.bits += 1;
        }
    }

    fn put_unary(&mut self, zeros: u32) {
        (0..zeros).for_each(|_| self.put(0, 1));
        self.put(1, 1);
    }
}

/// Source of random choices.
struct Choices(u64);

impl Choices {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

/// Samples of a channel of a frame: a tone with noise, so that predictions are good, but not always.
fn samples(choices: &mut Choices, bits: u32, count: usize) -> Vec<i64> {
    let limit = (1i64 << (bits - 1)) - 1;
    let (step, noise) =
        (choices.below(400) as f64 / 1000.0, choices.below(limit as u64 + 1) as i64 >> choices.below(16));
    let loudness = choices.below(1000) as f64 / 1000.0;
    (0..count)
        .map(|n| {
            let tone = (n as f64 * step).sin() * loudness * limit as f64;
            (tone as i64 + choices.below(noise as u64 * 2 + 1) as i64 - noise).clamp(-limit - 1, limit)
        })
        .collect()
}

/// Writes a channel of a frame in a random way.
fn put_subframe(out: &mut BitWriter, choices: &mut Choices, samples: &[i64], bits: u32) {
    let zeros = samples.iter().fold(0, |all, sample| all | sample).trailing_zeros();
    let wasted = if zeros == 64 { 0 } else { zeros.min(choices.below(4) as u32) };
    let (bits, samples) = (bits - wasted, samples.iter().map(|sample| sample >> wasted).collect::<Vec<_>>());
    let head = |out: &mut BitWriter, kind: u64| {
        out.put((kind << 1 | u64::from(wasted > 0)) as i64, 8);
        if wasted > 0 {
            out.put_unary(wasted - 1);
        }
    };
    let longest = samples.len() as u64;
    match choices.below(8) {
        0..2 if samples.iter().all(|sample| *sample == samples[0]) => {
            head(out, 0);
            out.put(samples[0], bits);
        }
        2 => {
            head(out, 1);
            samples.iter().for_each(|sample| out.put(*sample, bits));
        }
        3..5 => {
            let order = choices.below(5).min(longest);
            head(out, 8 + order);
            samples[..order as usize].iter().for_each(|sample| out.put(*sample, bits));
            put_residual(out, choices, &samples, predictor::FIXED[order as usize], 0);
        }
        _ => {
            let order = (choices.below(32) + 1).min(longest);
            head(out, 31 + order);
            samples[..order as usize].iter().for_each(|sample| out.put(*sample, bits));
            let (precision, shift) = (choices.below(12) as u32 + 4, choices.below(14) as u32 + 1);
            // Small coefficients, so that differences are numbers of 32 bits.
            let mut coefficients: Vec<i32> = (0..order).map(|_| choices.below(5) as i32 - 2).collect();
            coefficients[0] = (1 << shift).min((1 << (precision - 1)) - 1);
            out.put(i64::from(precision) - 1, 4);
            out.put(shift.into(), 5);
            coefficients.iter().for_each(|coefficient| out.put((*coefficient).into(), precision));
            put_residual(out, choices, &samples, &coefficients, shift);
        }
    }
}

/// Writes the differences of samples from their prediction, in random parts.
fn put_residual(out: &mut BitWriter, choices: &mut Choices, samples: &[i64], coefficients: &[i32], shift: u32) {
    let order = coefficients.len();
    let is_wide = choices.below(2) == 1;
    let (width, largest) = if is_wide { (5, 30) } else { (4, 14) };
    let splits =
        (0..=4u32).filter(|&splits| samples.len().is_multiple_of(1 << splits) && samples.len() >> splits >= order);
    let splits = splits.max().map_or(0, |most| choices.below(u64::from(most) + 1) as u32);
    out.put(is_wide.into(), 2);
    out.put(splits.into(), 4);
    let length = samples.len() >> splits;
    for part in 0..1 << splits {
        let differences: Vec<i64> = ((part * length).max(order)..(part + 1) * length)
            .map(|index| {
                let pairs = samples[..index].iter().rev().zip(coefficients);
                samples[index] - (pairs.map(|(s, c)| s * i64::from(*c)).sum::<i64>() >> shift)
            })
            .collect();
        let largest_difference = differences.iter().map(|value| value.unsigned_abs()).max().unwrap_or(0);
        let needed = 65 - largest_difference.leading_zeros();
        if needed <= 31 && choices.below(6) == 0 {
            let is_zero = largest_difference == 0;
            out.put((1 << width) - 1, width);
            out.put(if is_zero { 0 } else { needed.into() }, 5);
            differences.iter().filter(|_| !is_zero).for_each(|value| out.put(*value, needed));
            continue;
        }
        // Not always the best parameter: unary numbers may be long.
        let parameter = needed.saturating_sub(choices.below(10) as u32).min(largest);
        out.put(parameter.into(), width);
        for value in differences {
            let folded = (value << 1 ^ value >> 63) as u64;
            out.put_unary((folded >> parameter) as u32);
            out.put((folded & ((1 << parameter) - 1)) as i64, parameter);
        }
    }
}

/// Computes a checksum bit by bit.
fn crc(bytes: &[u8], bits: u32, polynomial: u32) -> u32 {
    let top = 1 << (bits - 1);
    bytes.iter().fold(0, |crc, byte| {
        let crc = crc ^ u32::from(*byte) << (bits - 8);
        (0..8).fold(crc, |crc, _| crc << 1 ^ if crc & top != 0 { polynomial } else { 0 }) & (2 * top - 1)
    })
}

/// Writes a number as UTF-8 writes characters.
fn put_number(out: &mut BitWriter, number: u64) {
    if number < 0x80 {
        return out.put(number as i64, 8);
    }
    let extra = (1..7u32).find(|extra| number < 1 << (6 * extra + 6 - extra)).unwrap();
    out.put((1 << (extra + 1)) - 1, extra + 1);
    out.put(0, 1);
    out.put((number >> (6 * extra)) as i64, 6 - extra);
    (0..extra).rev().for_each(|n| out.put((2 << 6 | (number >> (6 * n) & 63)) as i64, 8));
}

/// What all frames of a random file share.
struct Stream {
    bits: u32,
    channels: i64,
    rate: u32,
    is_numbered: bool,
    sizes: Vec<u64>,
}

impl Stream {
    fn new(choices: &mut Choices, frames: usize) -> Self {
        let bits = [8, 12, 16, 16, 16, 20, 24][choices.below(7) as usize];
        let channels = [1, 1, 2, 2, 2, 3, 6][choices.below(7) as usize];
        let rate = [16_000, 22_050, 44_100, 48_000, 12_345][choices.below(5) as usize];
        let is_numbered = choices.below(2) == 0;
        let usual = [64, 192, 576, 1000, 1152, 4096][choices.below(6) as usize];
        let mut sizes: Vec<u64> =
            (0..frames).map(|_| if is_numbered { usual } else { choices.below(usual) + 16 }).collect();
        if let Some(last) = sizes.last_mut().filter(|_| is_numbered) {
            *last = (choices.below(usual) + 16).min(usual);
        }
        Self { bits, channels, rate, is_numbered, sizes }
    }

    /// Writes the bytes before the first frame.
    fn head(&self, choices: &mut Choices) -> Vec<u8> {
        let mut file = BitWriter { bytes: MAGIC.to_vec(), bits: 32 };
        let is_last = choices.below(2) == 0;
        file.put(if is_last { 0x80 } else { 0 }, 8);
        file.put(34, 24);
        let least = self.sizes[..self.sizes.len().max(2) - 1].iter().min().unwrap();
        // Equal sizes would say that frames are numbered.
        file.put(if self.is_numbered { *least as i64 } else { 16 }, 16);
        file.put(*self.sizes.iter().max().unwrap() as i64 + i64::from(!self.is_numbered), 16);
        file.put(0, 48);
        file.put(self.rate.into(), 20);
        file.put(self.channels - 1, 3);
        file.put(i64::from(self.bits) - 1, 5);
        file.put(self.sizes.iter().sum::<u64>() as i64, 36);
        file.bytes.extend([0; 16]);
        if !is_last {
            file.bytes.extend(b"\x81\0\0\x05other");
        }
        file.bytes
    }

    /// Writes the header of a frame, which says what its channels hold.
    fn put_frame_header(&self, out: &mut BitWriter, choices: &mut Choices, number: u64, size: u64) -> i64 {
        let layout = if self.channels == 2 { [1, 8, 9, 10][choices.below(4) as usize] } else { self.channels - 1 };
        let code = match self.rate {
            16_000 => 5,
            44_100 => 9,
            12_345 => 13,
            _ => 0,
        };
        out.put(if self.is_numbered { 0xfff8 } else { 0xfff9 }, 16);
        out.put(7, 4);
        out.put(code, 4);
        out.put(layout, 4);
        let bits = i64::from(self.bits);
        out.put([0, (bits - 8) / 4 + 1 + i64::from(bits > 12)][choices.below(2) as usize], 3);
        out.put(0, 1);
        put_number(out, number);
        out.put(size as i64 - 1, 16);
        if code == 13 {
            out.put(self.rate.into(), 16);
        }
        out.put(crc(&out.bytes, 8, 7).into(), 8);
        layout
    }

    /// Makes the samples of the channels of a frame.
    fn planes(&self, choices: &mut Choices, size: u64) -> Vec<Vec<i64>> {
        let mut planes: Vec<Vec<i64>> =
            (0..self.channels).map(|_| samples(choices, self.bits, size as usize)).collect();
        if choices.below(4) == 0 {
            let value = planes[0][0];
            planes[0].fill(value);
        }
        if choices.below(4) == 0 {
            planes[0].iter_mut().for_each(|sample| *sample &= !7);
        }
        planes
    }

    /// Computes the mean of the channels.
    fn mono(&self, planes: &[Vec<i64>]) -> Vec<f32> {
        let full = 1.0 / (1u32 << (self.bits - 1)) as f32;
        let sum = |n: usize| planes.iter().map(|plane| plane[n] as f32 * full).sum::<f32>();
        (0..planes[0].len()).map(|n| sum(n) / planes.len() as f32).collect()
    }
}

/// Computes what channels hold, and the bits of each.
fn joined(mut planes: Vec<Vec<i64>>, layout: i64, bits: u32) -> Vec<(Vec<i64>, u32)> {
    if let [left, right] = &mut planes[..] {
        for (left, right) in left.iter_mut().zip(right) {
            let (l, r) = (*left, *right);
            (*left, *right) = match layout {
                8 => (l, l - r),
                9 => (l - r, r),
                10 => ((l + r) >> 1, l - r),
                _ => (l, r),
            };
        }
    }
    let is_side = |channel| matches!((layout, channel), (9, 0) | (8 | 10, 1));
    planes.into_iter().enumerate().map(|(n, plane)| (plane, bits + u32::from(is_side(n)))).collect()
}

/// Makes a file of random samples. Returns its bytes, and its samples averaged to one channel.
fn random_file(seed: u64, frames: usize) -> (Vec<u8>, Vec<f32>) {
    let choices = &mut Choices(seed);
    let stream = Stream::new(choices, frames);
    let (mut file, mut mono, mut done) = (stream.head(choices), Vec::new(), 0);
    for (n, &size) in stream.sizes.iter().enumerate() {
        let mut frame = BitWriter::default();
        let number = if stream.is_numbered { n as u64 } else { done };
        let layout = stream.put_frame_header(&mut frame, choices, number, size);
        let planes = stream.planes(choices, size);
        mono.extend(stream.mono(&planes));
        for (plane, width) in joined(planes, layout, stream.bits) {
            put_subframe(&mut frame, choices, &plane, width);
        }
        file.extend(&frame.bytes);
        file.extend((crc(&frame.bytes, 16, 0x8005) as u16).to_be_bytes());
        done += size;
    }
    (file, mono)
}

/// Reads `bytes` by this decoder and by Symphonia.
fn both(bytes: &[u8]) -> [Option<Vec<f32>>; 2] {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("x.flac");
    std::fs::write(&path, bytes).unwrap();
    let whole = AudioSegment::default();
    [read(&path, whole), compressed::read(&path, whole).ok()].map(|audio| audio.map(|audio| audio.samples))
}

/// Reads a file block by block, as long recordings are read.
fn in_blocks(path: &Path) -> Result<Vec<f32>, crate::AudioError> {
    let (mut blocks, _) = compressed::blocks(path)?;
    let mut samples = Vec::new();
    while blocks.read(&mut samples)? {}
    Ok(samples)
}

/// Reads a segment of `bytes` by this decoder.
fn read_part(bytes: &[u8], segment: AudioSegment) -> Option<Vec<f32>> {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("x.flac");
    std::fs::write(&path, bytes).unwrap();
    Some(read(&path, segment)?.samples)
}

proptest! {
    #[test]
    fn random_files_have_their_samples_here_and_in_symphonia(seed: u64, frames in 1usize..5) {
        let (bytes, samples) = random_file(seed, frames);
        let [found, by_symphonia] = both(&bytes);
        prop_assert!(found.is_some() && found == by_symphonia);
        let found = found.unwrap();
        let differs = found.iter().zip(&samples).position(|(found, expected)| (found - expected).abs() > 1e-7);
        prop_assert_eq!((differs, found.len()), (None, samples.len()));
    }

    #[test]
    fn tags_around_the_sound_change_nothing(
        seed: u64,
        lengths in prop::collection::vec((0u16..300, any::<bool>()), 0..3),
        has_tag_behind: bool,
    ) {
        let (bytes, _) = random_file(seed, 3);
        let mut tagged = Vec::new();
        for (length, has_copy) in lengths {
            let head = [b'I', b'D', b'3', 4, 0, u8::from(has_copy) << 4, 0, 0, (length >> 7) as u8, length as u8 & 127];
            tagged.extend(head);
            tagged.extend(std::iter::repeat_n(b'x', length.into()));
            tagged.extend(head.iter().take(if has_copy { 10 } else { 0 }));
        }
        tagged.extend(&bytes);
        if has_tag_behind {
            tagged.extend(b"TAG");
            tagged.extend([0; 125]);
        }
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("x.flac");
        std::fs::write(&path, tagged).unwrap();
        let found = crate::read_recording(&path).unwrap().samples;
        prop_assert!(in_blocks(&path).is_ok_and(|samples| samples == found));
        prop_assert_eq!(Some(found), read_part(&bytes, AudioSegment::default()));
    }

    #[test]
    fn a_file_without_all_its_samples_is_an_error(
        seed: u64,
        damage in prop::option::of((any::<prop::sample::Index>(), 1u8..)),
        cut: prop::sample::Index,
    ) {
        let (mut bytes, _) = random_file(seed, 3);
        let first_frame = StreamHeader::read(&[&*bytes, &[0; PADDING]].concat()).unwrap().first_frame;
        let behind = bytes.len() - first_frame;
        match damage {
            Some((index, change)) => bytes[first_frame + index.index(behind)] ^= change,
            None => bytes.truncate(first_frame + cut.index(behind)),
        }
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("x.flac");
        std::fs::write(&path, bytes).unwrap();
        let (found, by_blocks) = (crate::read_recording(&path), in_blocks(&path));
        prop_assert!(found.is_err(), "{} samples", found.unwrap().samples.len());
        prop_assert!(by_blocks.is_err(), "{} samples in blocks", by_blocks.unwrap().len());
    }

    #[test]
    fn a_file_in_an_archive_ends_where_its_header_says(seed: u64) {
        let (files, samples): (Vec<_>, Vec<_>) = (0..3).map(|n| random_file(seed ^ n, 2)).unzip();
        let folder = TempDir::new().unwrap();
        std::fs::write(folder.path().join("x.ark"), files.concat()).unwrap();
        let mut offset = 0;
        for (file, samples) in files.iter().zip(samples) {
            let path = folder.path().join(format!("x.ark:{offset}"));
            offset += file.len();
            let found = crate::read_recording(&path).unwrap().samples;
            prop_assert!(read_part(file, AudioSegment::default()).is_some_and(|whole| whole == found));
            prop_assert_eq!(found.len(), samples.len());
            // Symphonia reads on, and must not take the samples of the next file for those of this one.
            prop_assert!(in_blocks(&path).is_ok_and(|by_blocks| by_blocks == found) == (offset == files.concat().len()));
        }
    }

    #[test]
    fn a_file_without_a_length_may_be_shorter_than_its_list_says(seed: u64) {
        let (mut bytes, samples) = random_file(seed, 3);
        let StreamHeader { rate, .. } = StreamHeader::read(&[&*bytes, &[0; PADDING]].concat()).unwrap();
        bytes[21] &= 0xf0;
        bytes[22..26].fill(0);
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("x.flac");
        std::fs::write(&path, bytes).unwrap();
        let duration = Some(Seconds(samples.len() as f64 / f64::from(rate) + 0.05));
        let found = compressed::read(&path, AudioSegment { offset: Seconds(0.0), duration });
        prop_assert_eq!(found.unwrap().samples.len(), samples.len());
    }

    // Symphonia is no judge here: it cannot seek in some short files.
    #[test]
    fn segments_are_parts_of_the_whole(seed: u64, from in 0.0f64..1.0, share in 0.0f64..1.0) {
        let (bytes, samples) = random_file(seed, 4);
        let StreamHeader { rate, .. } = StreamHeader::read(&bytes).unwrap();
        let length = samples.len() as f64 / f64::from(rate);
        let (offset, duration) = (Seconds(length * from), Seconds(length * (1.0 - from) * share));
        let whole = read_part(&bytes, AudioSegment::default()).unwrap();
        let segment = AudioSegment { offset, duration: Some(duration) };
        // Less than a sample, and files of more than a megabyte.
        let Some(found) = read_part(&bytes, segment) else { return Ok(()) };
        let first = (offset.0 * f64::from(rate)).round() as usize;
        prop_assert!(found == whole[first..first + found.len()]);
    }

    #[test]
    fn damaged_files_have_the_samples_of_before_or_of_symphonia_or_none(
        seed: u64,
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        cut in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let (mut bytes, _) = random_file(seed, 3);
        let [before, _] = both(&bytes);
        for (index, value) in damage {
            let index = index.index(bytes.len());
            bytes[index] = value;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()).max(1));
        }
        let [found, by_symphonia] = both(&bytes);
        prop_assert!(found.is_none() || found == before || found == by_symphonia);
    }
}

#[test]
fn files_of_encoders_are_decoded_here() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("x.flac");
    let tone = crate::testing::tone(300.0, 1.0, 16_000);
    std::fs::write(&path, crate::flac_bytes(&tone, 16_000).unwrap()).unwrap();
    let sweep = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/data/audio/sweep.flac");
    for path in [path, sweep] {
        let found = read(&path, AudioSegment::default()).map(|audio| audio.samples);
        let expected = compressed::read(&path, AudioSegment::default()).unwrap().samples;
        let differs =
            found.as_ref().map(|found| found.iter().zip(&expected).position(|(found, expected)| found != expected));
        assert_eq!((differs, found.map(|found| found.len())), (Some(None), Some(expected.len())), "{}", path.display());
    }
}

#[test]
fn the_end_of_a_file_in_an_archive_is_its_own() {
    let folder = TempDir::new().unwrap();
    let [short, long] = [(300.0, 1.0), (800.0, 2.0)]
        .map(|(hertz, seconds)| crate::flac_bytes(&crate::testing::tone(hertz, seconds, 16_000), 16_000).unwrap());
    let path = folder.path().join("x.ark:0");
    std::fs::write(folder.path().join("x.ark"), [&short[..], &long].concat()).unwrap();
    let alone = folder.path().join("x.flac");
    std::fs::write(&alone, short).unwrap();
    // The frames of the second file follow those of the first as if they were its own.
    assert_eq!(crate::read_recording(&path).unwrap().samples, crate::read_recording(alone).unwrap().samples);
    let error = in_blocks(&path).unwrap_err().to_string();
    assert!(error.contains("a second stream begins inside it"), "{error}");
}
