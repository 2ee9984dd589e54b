//! The parts of TensorFlow's `Event` in Protocol Buffers that are needed here.
//!
//! Written by hand: these few messages have not changed in years, and a generator would add more code than it saves.
//! Field numbers are those of `event.proto`, `summary.proto` and `tensor.proto` in TensorBoard's `compat/proto`.

const WIRE_VARINT: u64 = 0;
const WIRE_64: u64 = 1;
const WIRE_LENGTH: u64 = 2;
const WIRE_32: u64 = 5;
/// `DataType.DT_STRING`.
const STRINGS: u64 = 7;
/// `SessionLog.SessionStatus.START`.
const START: u64 = 1;

/// A message for TensorBoard.
pub(super) enum Message<'a> {
    /// Version of the file. Version 2 drops steps by [`Message::Start`] instead of guessing.
    Version,
    /// The run starts or resumes with this step.
    Start { step: u64 },
    /// A point of a curve.
    Scalar { tag: &'a str, step: u64, value: f32 },
    /// A text.
    Text { tag: &'a str, step: u64, text: &'a str },
}

impl Message<'_> {
    /// The encoded message at `time`, in seconds since 1970.
    pub(super) fn encoded(&self, time: f64) -> Vec<u8> {
        let event = Fields::default().double(1, time);
        let event = match *self {
            Message::Version => event.bytes(3, b"brain.Event:2"),
            Message::Start { step } => event.int(2, step).nested(7, Fields::default().int(1, START)),
            Message::Scalar { tag, step, value } => {
                let point = Fields::default().bytes(1, tag.as_bytes()).float(2, value);
                event.int(2, step).nested(5, Fields::default().nested(1, point))
            }
            Message::Text { tag, step, text } => {
                event.int(2, step).nested(5, Fields::default().nested(1, text_value(tag, text)))
            }
        };
        event.0
    }
}

/// A tensor of one string, and the name of the plugin that shows it.
fn text_value(tag: &str, text: &str) -> Fields {
    let shape = Fields::default().nested(2, Fields::default().int(1, 1));
    let tensor = Fields::default().int(1, STRINGS).nested(2, shape).bytes(8, text.as_bytes());
    let page = Fields::default().nested(1, Fields::default().bytes(1, b"text"));
    Fields::default().bytes(1, tag.as_bytes()).nested(8, tensor).nested(9, page)
}

/// The encoded fields of a message.
#[derive(Default)]
struct Fields(Vec<u8>);

impl Fields {
    fn int(self, field: u64, value: u64) -> Self {
        self.varint(field << 3 | WIRE_VARINT).varint(value)
    }

    fn double(self, field: u64, value: f64) -> Self {
        self.varint(field << 3 | WIRE_64).raw(&value.to_le_bytes())
    }

    fn float(self, field: u64, value: f32) -> Self {
        self.varint(field << 3 | WIRE_32).raw(&value.to_le_bytes())
    }

    fn bytes(self, field: u64, value: &[u8]) -> Self {
        self.varint(field << 3 | WIRE_LENGTH).varint(value.len() as u64).raw(value)
    }

    fn nested(self, field: u64, value: Fields) -> Self {
        self.bytes(field, &value.0)
    }

    /// Seven bits per byte, the lowest first; the highest bit says that more bytes follow.
    fn varint(mut self, mut value: u64) -> Self {
        while value > 0x7f {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
        self
    }

    fn raw(mut self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(bytes);
        self
    }
}
