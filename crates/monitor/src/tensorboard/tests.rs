//! Tests that the event files are equal to the files of TensorBoard's own writer.

use super::frame::masked;
use super::*;

/// TFRecords of four event messages with their times, in hexadecimal, written by `tensorboard` 2.21.0: its
/// `event_pb2.Event` with `SerializeToString`, framed by `tensorboard.summary.writer.record_writer.RecordWriter`.
const GOLDEN: [&str; 4] = [
    "1800000000000000a37f4b220900001040fc54d9411a0d627261696e2e4576656e743a32338d2fe9",
    "100000000000000095fbfe180900001040fc54d94110ad023a020801cb79b93b",
    "2100000000000000017becf60900006040fc54d94110ad022a130a110a0a747261696e2f6c6f73731500002040b0021753",
    "31000000000000009d8383e90900008040fc54d94110f0a2042a220a200a046e6f7465420e0807120412020801420468c3a46c\
     4a080a060a047465787453ac4e9c",
];

#[test]
fn bytes_match_tensorboard() {
    let events = [
        (1_700_000_000.25, Message::Version),
        (1_700_000_000.25, Message::Start { step: 301 }),
        (1_700_000_001.5, Message::Scalar { tag: "train/loss", step: 301, value: 2.5 }),
        (1_700_000_002.0, Message::Text { tag: "note", step: 70_000, text: "häl" }),
    ];
    for ((time, event), golden) in events.iter().zip(GOLDEN) {
        let hex: String = framed(&event.encoded(*time)).iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, golden);
    }
}

/// Returns the encoded messages of an event file without their times, after a check of all checksums.
fn messages(path: &Path) -> Vec<Vec<u8>> {
    let bytes = fs::read(path).unwrap();
    let (mut rest, mut messages) = (&bytes[..], Vec::new());
    while !rest.is_empty() {
        let (length, after) = rest.split_at(8);
        let (sum, after) = after.split_at(4);
        assert_eq!(sum, masked(length).to_le_bytes());
        let (data, after) = after.split_at(u64::from_le_bytes(length.try_into().unwrap()) as usize);
        let (sum, after) = after.split_at(4);
        assert_eq!(sum, masked(data).to_le_bytes());
        messages.push(data[9..].to_vec());
        rest = after;
    }
    messages
}

fn expected(events: &[Message<'_>]) -> Vec<Vec<u8>> {
    events.iter().map(|event| event.encoded(0.0)[9..].to_vec()).collect()
}

#[test]
fn a_dropped_file_holds_all_messages() {
    let folder = tempfile::tempdir().unwrap();
    let mut events = TensorBoardFile::create(&folder.path().join("run"), 0).unwrap();
    let path = events.path().to_path_buf();
    assert_eq!(messages(&path), expected(&[Message::Version, Message::Start { step: 1 }]));
    events.scalar("loss", 1, f64::NAN).unwrap();
    events.text("truth", 1, &"long ".repeat(4000)).unwrap();
    drop(events);
    let long = "long ".repeat(4000);
    let scalar = Message::Scalar { tag: "loss", step: 1, value: f32::NAN };
    let text = Message::Text { tag: "truth", step: 1, text: &long };
    assert_eq!(messages(&path), expected(&[Message::Version, Message::Start { step: 1 }, scalar, text]));
}

#[test]
fn a_resumed_run_has_its_own_file() {
    let folder = tempfile::tempdir().unwrap();
    let paths: Vec<PathBuf> =
        (0..3).map(|leg| TensorBoardFile::create(folder.path(), leg * 100).unwrap().path().to_path_buf()).collect();
    let mut sorted = paths.clone();
    sorted.sort();
    sorted.dedup();
    assert_eq!(sorted, paths);
    assert_eq!(messages(&paths[2]), expected(&[Message::Version, Message::Start { step: 201 }]));
}

#[test]
fn an_error_names_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    fs::write(&path, "").unwrap();
    let message = TensorBoardFile::create(&path, 0).unwrap_err().to_string();
    assert_eq!(message, format!("cannot access {}", path.display()));
}
