//! Packets: what ranks send each other. A packet is a header with the bytes that belong to it.

use std::sync::Arc;

/// Bytes of one message between two ranks. Several sends can share one.
pub type Packet = Arc<Vec<u8>>;

/// Length of a header. A multiple of 8, so that the numbers behind it can be aligned.
pub(crate) const HEADER_LEN: usize = 32;

/// What a packet is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A sign of life.
    Beat,
    /// A failure: the sender takes part in no further operation.
    Failure,
    /// The sender has ended and takes part in no further operation.
    Leave,
    /// A part of the bytes of a gather.
    Gather,
    /// The sender is ready for a sum by the network's library.
    Begin,
}

const KINDS: [Kind; 5] = [Kind::Beat, Kind::Failure, Kind::Leave, Kind::Gather, Kind::Begin];

impl Kind {
    /// Returns the name of the operation that sends such packets.
    pub(crate) fn operation(self) -> &'static str {
        match self {
            Self::Gather => "gather",
            Self::Begin => "sum",
            Self::Beat | Self::Failure | Self::Leave => "no operation",
        }
    }
}

/// First bytes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) kind: Kind,
    /// Number of the operation, from 1. For failure and leave: of the last operation that the sender has completed.
    pub(crate) operation: u64,
    /// Index of a chunk. For a failure: the rank that failed.
    pub(crate) part: u64,
    /// Bytes of a gather, or numbers of a sum, in all packets together. For leave: whether a sum by the library was cut off.
    pub(crate) total: u64,
}

impl Header {
    /// Makes a header without part and total.
    pub(crate) fn new(kind: Kind, operation: u64) -> Self {
        Self { kind, operation, part: 0, total: 0 }
    }

    /// Returns the bytes of the header.
    pub(crate) fn to_bytes(self) -> [u8; HEADER_LEN] {
        let mut bytes = [0; HEADER_LEN];
        bytes[0] = self.kind as u8;
        for (index, number) in [self.operation, self.part, self.total].into_iter().enumerate() {
            bytes[8 * (index + 1)..][..8].copy_from_slice(&number.to_le_bytes());
        }
        bytes
    }

    /// Reads the header of a packet, or returns `None` if it has none.
    pub(crate) fn read(packet: &[u8]) -> Option<Self> {
        let number = |at: usize| Some(u64::from_le_bytes(packet.get(at..at + 8)?.try_into().ok()?));
        let kind = *KINDS.get(usize::from(*packet.first()?))?;
        Some(Self { kind, operation: number(8)?, part: number(16)?, total: number(24)? })
    }

    /// Makes a packet of the header and `body`.
    pub(crate) fn packet(&self, body: &[u8]) -> Packet {
        let mut buffer = Vec::with_capacity(HEADER_LEN + body.len());
        buffer.extend_from_slice(&self.to_bytes());
        buffer.extend_from_slice(body);
        Arc::new(buffer)
    }
}

/// Returns the bytes behind the header.
pub(crate) fn body(packet: &[u8]) -> &[u8] {
    packet.get(HEADER_LEN..).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_header_is_read_as_written(kind in 0..KINDS.len(), numbers: [u64; 3], rest: Vec<u8>) {
            let [operation, part, total] = numbers;
            let header = Header { kind: KINDS[kind], operation, part, total };
            let packet = header.packet(&rest);
            prop_assert_eq!(Header::read(&packet), Some(header));
            prop_assert_eq!(body(&packet), &rest[..]);
        }

        #[test]
        fn any_bytes_are_read_without_panic(bytes: Vec<u8>) {
            if let Some(header) = Header::read(&bytes) {
                prop_assert!(bytes.len() >= HEADER_LEN && header.kind as u8 == bytes[0]);
            }
            let _ = body(&bytes);
        }
    }
}
