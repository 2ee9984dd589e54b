//! TensorFlow's `Event` in Protocol Buffers, as far as we need it.
//!
//! By hand, since these few messages have not changed in years and a generator would bring more code than it saves.
//! Numbers of fields are those of `event.proto`, `summary.proto` and `tensor.proto` in TensorBoard's `compat/proto`.

const WIRE_VARINT: u64 = 0;
const WIRE_64: u64 = 1;
const WIRE_LENGTH: u64 = 2;
const WIRE_32: u64 = 5;
/// `DataType.DT_STRING`.
const STRINGS: u64 = 7;
/// `SessionLog.SessionStatus.START`.
const START: u64 = 1;

/// Something to tell TensorBoard.
pub(super) enum Event<'a> {
    /// What kind of file this is. The second version drops steps by [`Event::Start`] and not by guessing.
    Version,
    /// The run starts, or goes on, with this step.
    Start { step: u64 },
    /// A point of a curve.
    Scalar { tag: &'a str, step: u64, value: f32 },
    /// A text.
    Text { tag: &'a str, step: u64, text: &'a str },
}

impl Event<'_> {
    /// The message, told at `time`, in seconds since 1970.
    pub(super) fn encoded(&self, time: f64) -> Vec<u8> {
        let event = Message::default().double(1, time);
        let event = match *self {
            Event::Version => event.bytes(3, b"brain.Event:2"),
            Event::Start { step } => event.int(2, step).message(7, Message::default().int(1, START)),
            Event::Scalar { tag, step, value } => {
                let point = Message::default().bytes(1, tag.as_bytes()).float(2, value);
                event.int(2, step).message(5, Message::default().message(1, point))
            }
            Event::Text { tag, step, text } => {
                event.int(2, step).message(5, Message::default().message(1, text_value(tag, text)))
            }
        };
        event.0
    }
}

/// A tensor of one string, and the name of the page that shows it.
fn text_value(tag: &str, text: &str) -> Message {
    let shape = Message::default().message(2, Message::default().int(1, 1));
    let tensor = Message::default().int(1, STRINGS).message(2, shape).bytes(8, text.as_bytes());
    let page = Message::default().message(1, Message::default().bytes(1, b"text"));
    Message::default().bytes(1, tag.as_bytes()).message(8, tensor).message(9, page)
}

/// A message in the making.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
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

    fn message(self, field: u64, value: Message) -> Self {
        self.bytes(field, &value.0)
    }

    /// Seven bits a byte, the lowest first; the highest bit says that more follow.
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
