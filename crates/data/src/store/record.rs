//! File format of a record, and its checksums.
//!
//! A record is a header of 48 bytes and the payload, padded with zeros to a multiple of 8 bytes. All numbers are
//! little-endian:
//!
//! | bytes | content |
//! |---|---|
//! | 0 to 4 | `PLMS` |
//! | 4 to 6 | version of the format |
//! | 6 to 8 | form: 1 features in 16 bits, 2 features in 32 bits, 3 content hash |
//! | 8 to 24 | key |
//! | 24 to 32 | number of items in the payload |
//! | 32 to 40 | xxh3-64 checksum of the payload with its padding |
//! | 40 to 48 | xxh3-64 checksum of bytes 0 to 40 |
//!
//! The header has its own checksum, so that the index can be built and lengths trusted without reading payloads.

use half::f16;
use half::slice::HalfFloatSliceExt;
use xxhash_rust::xxh3::xxh3_64;

use super::config::StorePrecision;
use super::key::StoreKey;
use plimsoll_audio::buffers::{take, zeroed};

/// Size of a record's header, in bytes.
pub(super) const HEADER: usize = 48;
/// Alignment in bytes: records start at multiples of this offset.
pub(super) const ALIGNMENT: usize = 8;

const MAGIC: [u8; 4] = *b"PLMS";
/// Version of the format, to be raised with every change. Records of another version are ignored.
const VERSION: u16 = 1;
/// Number of feature values that are converted between memory and file format at a time: few enough for the L1 cache.
const BLOCK: usize = 1024;

/// Kind of payload of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    F16 = 1,
    F32 = 2,
    ContentHash = 3,
}

impl Form {
    fn from_code(code: u16) -> Option<Self> {
        [Self::F16, Self::F32, Self::ContentHash].into_iter().find(|&form| form as u16 == code)
    }

    /// Returns the size of one item, in bytes.
    fn width(self) -> u64 {
        match self {
            Self::F16 => 2,
            Self::F32 => 4,
            Self::ContentHash => 16,
        }
    }
}

/// Decoded payload of a record.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Payload {
    /// Values of features.
    Values(Vec<f32>),
    /// Hash of the content of a file.
    ContentHash(u128),
}

/// Header of a record, with a correct checksum.
pub(super) struct Header {
    /// Key of the record.
    pub(super) key: StoreKey,
    /// Size of the whole record in bytes, never more than the `room` that was given to `read`.
    pub(super) size: u64,
    form: Form,
    count: usize,
    payload_sum: u64,
}

impl Header {
    /// Reads the header at the beginning of `bytes`; `None` if it is damaged or its record does not fit into `room`
    /// bytes.
    pub(super) fn read(bytes: &[u8], room: u64) -> Option<Self> {
        let bytes = bytes.first_chunk::<HEADER>()?;
        // The cheap test first: a search tries every possible offset.
        if bytes[..4] != MAGIC || bytes[4..6] != VERSION.to_le_bytes() {
            return None;
        }
        if xxh3_64(&bytes[..40]) != number(bytes, 40) {
            return None;
        }
        let form = Form::from_code(u16::from_le_bytes([bytes[6], bytes[7]]))?;
        let count = number(bytes, 24);
        // A checksum finds accidents, not malice, so a length that the file cannot hold is rejected.
        let size = size(form, count).filter(|&size| size <= room)?;
        let key = StoreKey::from_bytes(*bytes[8..].first_chunk()?);
        Some(Self { key, size, form, count: usize::try_from(count).ok()?, payload_sum: number(bytes, 32) })
    }
}

fn number(bytes: &[u8; HEADER], at: usize) -> u64 {
    u64::from_le_bytes(*bytes[at..].first_chunk().expect("no field crosses the end of the header"))
}

/// Computes the size of a whole record with `count` items, in bytes; `None` if the size overflows.
fn size(form: Form, count: u64) -> Option<u64> {
    let payload = count.checked_mul(form.width())?;
    payload.checked_next_multiple_of(ALIGNMENT as u64)?.checked_add(HEADER as u64)
}

/// Encodes features as a record of the store. All values are written in 32 bits if 16 bits cannot hold one of them.
pub(super) fn values_record(key: StoreKey, values: &[f32], precision: StorePrecision) -> Vec<u8> {
    let form = if precision == StorePrecision::F16 && fits_half(values) { Form::F16 } else { Form::F32 };
    record(key, form, values.len(), |payload| match form {
        Form::F16 => narrow(values, payload),
        _ => payload.chunks_exact_mut(4).zip(values).for_each(|(to, value)| to.copy_from_slice(&value.to_le_bytes())),
    })
}

/// Encodes a content hash as a record.
pub(super) fn content_hash_record(key: StoreKey, content: u128) -> Vec<u8> {
    record(key, Form::ContentHash, 1, |payload| payload.copy_from_slice(&content.to_le_bytes()))
}

fn record(key: StoreKey, form: Form, count: usize, fill: impl FnOnce(&mut [u8])) -> Vec<u8> {
    let size = size(form, count as u64).expect("the size of values in memory does not overflow");
    let mut bytes = vec![0; size as usize];
    let (header, payload) = bytes.split_at_mut(HEADER);
    fill(&mut payload[..count * form.width() as usize]);
    header[..4].copy_from_slice(&MAGIC);
    header[4..6].copy_from_slice(&VERSION.to_le_bytes());
    header[6..8].copy_from_slice(&(form as u16).to_le_bytes());
    header[8..24].copy_from_slice(&key.to_bytes());
    header[24..32].copy_from_slice(&(count as u64).to_le_bytes());
    header[32..40].copy_from_slice(&xxh3_64(payload).to_le_bytes());
    let sum = xxh3_64(&header[..40]);
    header[40..].copy_from_slice(&sum.to_le_bytes());
    bytes
}

/// Decodes the payload of the record `bytes`; `None` if the record is damaged or has another key than `key`.
pub(super) fn open(bytes: &[u8], key: StoreKey) -> Option<Payload> {
    let header = Header::read(bytes, bytes.len() as u64)?;
    let payload = &bytes[HEADER..];
    if header.key != key || header.size != bytes.len() as u64 || xxh3_64(payload) != header.payload_sum {
        return None;
    }
    let items = &payload[..header.count * header.form.width() as usize];
    Some(match header.form {
        Form::F16 => Payload::Values(widen(items)),
        Form::F32 => {
            let mut values = take(header.count);
            values.extend(items.as_chunks().0.iter().map(|&four| f32::from_le_bytes(four)));
            Payload::Values(values)
        }
        Form::ContentHash => Payload::ContentHash(u128::from_le_bytes(*items.first_chunk()?)),
    })
}

/// Returns whether 16-bit floats can hold all values. False for NaN, which fails every comparison.
pub(super) fn fits_half(values: &[f32]) -> bool {
    values.iter().all(|value| value.abs() <= f16::MAX.to_f32())
}

fn narrow(values: &[f32], payload: &mut [u8]) {
    let mut block = [f16::ZERO; BLOCK];
    for (values, payload) in values.chunks(BLOCK).zip(payload.chunks_mut(2 * BLOCK)) {
        let block = &mut block[..values.len()];
        block.convert_from_f32_slice(values);
        payload.chunks_exact_mut(2).zip(block).for_each(|(to, value)| to.copy_from_slice(&value.to_le_bytes()));
    }
}

fn widen(payload: &[u8]) -> Vec<f32> {
    let mut values = zeroed(payload.len() / 2);
    let mut block = [f16::ZERO; BLOCK];
    for (values, payload) in values.chunks_mut(BLOCK).zip(payload.chunks(2 * BLOCK)) {
        let block = &mut block[..values.len()];
        block.iter_mut().zip(payload.as_chunks().0).for_each(|(to, &two)| *to = f16::from_le_bytes(two));
        block.convert_to_f32_slice(values);
    }
    values
}
