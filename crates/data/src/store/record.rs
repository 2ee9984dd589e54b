//! How a record lies in a file, and what makes it whole.
//!
//! A header of 48 bytes and a payload padded with zeros to a multiple of 8, all numbers with their lowest byte first:
//!
//! | bytes | |
//! |---|---|
//! | 0 to 4 | `PLMS` |
//! | 4 to 6 | version of the format |
//! | 6 to 8 | form: what the payload is, and in which numbers |
//! | 8 to 24 | key |
//! | 24 to 32 | number of items in the payload |
//! | 32 to 40 | xxh3-64 sum of the payload and its padding |
//! | 40 to 48 | xxh3-64 sum of the 40 bytes before |
//!
//! The header has its own sum so that an index can be made, and lengths trusted, without reading any payload.

use half::f16;
use half::slice::HalfFloatSliceExt;
use xxhash_rust::xxh3::xxh3_64;

use super::config::StoreNumbers;
use super::key::StoreKey;
use plimsoll_audio::buffers::{room, zeros};

/// Bytes of a header.
pub(super) const HEADER: usize = 48;
/// Where records may begin: at multiples of this.
pub(super) const ALIGNMENT: usize = 8;

const MAGIC: [u8; 4] = *b"PLMS";
/// To be raised with every change of the format: records of another version are not read.
const VERSION: u16 = 1;
/// How many numbers are converted at a time: few enough to stay in the nearest cache.
const BLOCK: usize = 1024;

/// What the payload of a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    F16 = 1,
    F32 = 2,
    Content = 3,
}

impl Form {
    fn of(code: u16) -> Option<Self> {
        [Self::F16, Self::F32, Self::Content].into_iter().find(|&form| form as u16 == code)
    }

    /// Bytes of one item.
    fn width(self) -> u64 {
        match self {
            Self::F16 => 2,
            Self::F32 => 4,
            Self::Content => 16,
        }
    }
}

/// What a record holds.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Kept {
    /// Features.
    Values(Vec<f32>),
    /// The hash of a file.
    Content(u128),
}

/// The beginning of a record, found whole.
pub(super) struct Header {
    /// What the record is found by.
    pub(super) key: StoreKey,
    /// Bytes of the whole record, never more than there was room for.
    pub(super) size: u64,
    form: Form,
    count: usize,
    payload_sum: u64,
}

impl Header {
    /// The header that `bytes` begin with, if it is whole and its record fits into `room` bytes.
    pub(super) fn read(bytes: &[u8], room: u64) -> Option<Self> {
        let bytes = bytes.first_chunk::<HEADER>()?;
        // The cheap question first: a search asks at every place.
        if bytes[..4] != MAGIC || bytes[4..6] != VERSION.to_le_bytes() {
            return None;
        }
        if xxh3_64(&bytes[..40]) != number(bytes, 40) {
            return None;
        }
        let form = Form::of(u16::from_le_bytes([bytes[6], bytes[7]]))?;
        let count = number(bytes, 24);
        // The sum speaks against accidents and not against malice, so no length is believed that the file cannot hold.
        let size = size(form, count).filter(|&size| size <= room)?;
        let key = StoreKey::from_bytes(*bytes[8..].first_chunk()?);
        Some(Self { key, size, form, count: usize::try_from(count).ok()?, payload_sum: number(bytes, 32) })
    }
}

fn number(bytes: &[u8; HEADER], at: usize) -> u64 {
    u64::from_le_bytes(*bytes[at..].first_chunk().expect("no field crosses the end of the header"))
}

/// Bytes of a whole record.
fn size(form: Form, count: u64) -> Option<u64> {
    let payload = count.checked_mul(form.width())?;
    payload.checked_next_multiple_of(ALIGNMENT as u64)?.checked_add(HEADER as u64)
}

/// The record of features; numbers that 16 bits cannot hold stay as they are, and so does the whole record.
pub(super) fn of_values(key: StoreKey, values: &[f32], numbers: StoreNumbers) -> Vec<u8> {
    // Written so that what is not a number fails as well.
    let form = if numbers == StoreNumbers::F16 && fits_half(values) { Form::F16 } else { Form::F32 };
    record(key, form, values.len(), |payload| match form {
        Form::F16 => narrow(values, payload),
        _ => payload.chunks_exact_mut(4).zip(values).for_each(|(to, value)| to.copy_from_slice(&value.to_le_bytes())),
    })
}

/// The record of a file's hash.
pub(super) fn of_content(key: StoreKey, content: u128) -> Vec<u8> {
    record(key, Form::Content, 1, |payload| payload.copy_from_slice(&content.to_le_bytes()))
}

fn record(key: StoreKey, form: Form, count: usize, fill: impl FnOnce(&mut [u8])) -> Vec<u8> {
    let size = size(form, count as u64).expect("what is in memory is small enough");
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

/// What the record `bytes` holds, if it is whole, and the one of `key`.
pub(super) fn open(bytes: &[u8], key: StoreKey) -> Option<Kept> {
    let header = Header::read(bytes, bytes.len() as u64)?;
    let payload = &bytes[HEADER..];
    if header.key != key || header.size != bytes.len() as u64 || xxh3_64(payload) != header.payload_sum {
        return None;
    }
    let items = &payload[..header.count * header.form.width() as usize];
    Some(match header.form {
        Form::F16 => Kept::Values(widen(items)),
        Form::F32 => {
            let mut values = room(header.count);
            values.extend(items.as_chunks().0.iter().map(|&four| f32::from_le_bytes(four)));
            Kept::Values(values)
        }
        Form::Content => Kept::Content(u128::from_le_bytes(*items.first_chunk()?)),
    })
}

/// Whether all values are in the range of 16 bits.
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
    let mut values = zeros(payload.len() / 2);
    let mut block = [f16::ZERO; BLOCK];
    for (values, payload) in values.chunks_mut(BLOCK).zip(payload.chunks(2 * BLOCK)) {
        let block = &mut block[..values.len()];
        block.iter_mut().zip(payload.as_chunks().0).for_each(|(to, &two)| *to = f16::from_le_bytes(two));
        block.convert_to_f32_slice(values);
    }
    values
}
