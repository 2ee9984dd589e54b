//! Encoding of the parts of TensorFlow's `Event` in Protocol Buffers that an event file of a run needs.
//!
//! The encoder is written by hand: these few messages have not changed in years, and a generator would add more code
//! than it saves. The field numbers come from `event.proto`, `summary.proto` and `tensor.proto` in TensorBoard's
//! `compat/proto`.

const WIRE_VARINT: u64 = 0;
const WIRE_64: u64 = 1;
const WIRE_LENGTH: u64 = 2;
const WIRE_32: u64 = 5;
/// Number of `DataType.DT_STRING` in TensorBoard's `types.proto`.
const STRINGS: u64 = 7;
/// Number of `SessionLog.SessionStatus.START` in TensorBoard's `event.proto`.
const START: u64 = 1;

/// Message of a TensorBoard event file.
pub(super) enum Message<'a> {
    /// Version of the format of the event file: 2. In this version TensorBoard drops the repeated steps of a resumed
    /// run because of [`Message::Start`], and does not guess which steps are repeated.
    Version,
    /// Start or resumption of the run with step `step`.
    Start { step: u64 },
    /// Point of the curve `tag`: its `value` at `step`.
    Scalar { tag: &'a str, step: u64, value: f32 },
    /// Text that TensorBoard shows.
    Text { tag: &'a str, step: u64, text: &'a str },
}

impl Message<'_> {
    /// Encodes the message with the time `time`, in seconds since 1970.
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

/// Encodes a summary value: a tensor of one string, and the name of the plugin that shows the tensor.
fn text_value(tag: &str, text: &str) -> Fields {
    let shape = Fields::default().nested(2, Fields::default().int(1, 1));
    let tensor = Fields::default().int(1, STRINGS).nested(2, shape).bytes(8, text.as_bytes());
    let page = Fields::default().nested(1, Fields::default().bytes(1, b"text"));
    Fields::default().bytes(1, tag.as_bytes()).nested(8, tensor).nested(9, page)
}

/// Protocol Buffers message under construction: the bytes of the fields that were added so far.
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

    /// Appends `value` with seven bits per byte, the lowest bits first; the highest bit of a byte is set if more bytes
    /// follow.
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
