//! Tests of the reader and the writer on each other. What `pyarrow` writes is in the tests of import.

use proptest::prelude::*;
use tempfile::TempDir;

use std::io;

use super::*;
use crate::columns::{ColumnFile, Value};
use plimsoll_audio::AudioSource;

const COLUMNS: &[ColumnSpec] = &[
    ColumnSpec { path: &["audio", "bytes"], kind: CellKind::Bytes },
    ColumnSpec { path: &["audio", "path"], kind: CellKind::Text },
    ColumnSpec { path: &["duration"], kind: CellKind::F64 },
];

type Row = (Option<Vec<u8>>, Option<String>, f64);

fn row() -> impl Strategy<Value = Row> {
    // Long audio begins a page of its own.
    let audio = prop_oneof![prop::collection::vec(any::<u8>(), 0..40), Just(vec![7; 600_000])];
    (prop::option::of(audio), prop::option::of("[a-zé]{0,9}"), -1e9..1e9f64)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn rows_are_read_as_written(groups in prop::collection::vec(prop::collection::vec(row(), 1..9), 0..4)) {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("a.parquet");
        let mut writer = ParquetWriter::create(&path, COLUMNS).unwrap();
        for group in &groups {
            let mut cells: Vec<Cells> = COLUMNS.iter().map(|_| Cells::default()).collect();
            for (audio, name, duration) in group {
                cells[0].push_bytes(audio.as_deref());
                cells[1].push_bytes(name.as_deref().map(str::as_bytes));
                cells[2].push_number(*duration);
            }
            writer.write_group(&cells).unwrap();
        }
        let size = writer.finish(&[("a", "b".into())]).unwrap();
        prop_assert_eq!(size, std::fs::metadata(&path).unwrap().len());
        let file = ParquetFile::open(&path).unwrap().unwrap();
        prop_assert_eq!(file.fact("a"), Some("b"));
        prop_assert_eq!(file.groups(), groups.iter().map(|g| g.len() as u64).collect::<Vec<_>>());
        for (number, group) in groups.iter().enumerate() {
            let [audio, name, duration] = [0, 1, 2].map(|leaf| file.values(number, &file.leaves()[leaf]));
            let places = file.places(number, &file.leaves()[0]);
            let rows: Vec<_> = audio.zip(name).zip(duration).zip(places).zip(group).collect();
            prop_assert_eq!(rows.len(), group.len());
            for ((((audio, name), duration), place), expected) in rows {
                let bytes = |value: Option<Value>| match value {
                    Some(Value::Bytes(bytes)) => Some(bytes),
                    _ => None,
                };
                prop_assert_eq!(bytes(audio.unwrap()), expected.0.clone());
                prop_assert_eq!(bytes(name.unwrap()), expected.1.as_ref().map(|name| name.as_bytes().to_vec()));
                prop_assert_eq!(duration.unwrap(), Some(Value::Real(expected.2)));
                let Some(Value::Place(part)) = place.unwrap() else { continue };
                let mut read = Vec::new();
                let source = AudioSource { file: path.clone(), part: Some(part), channel: None };
                io::Read::read_to_end(&mut source.open().unwrap(), &mut read).unwrap();
                prop_assert_eq!(Some(read), expected.0.clone());
            }
        }
    }

    #[test]
    fn any_bytes_are_no_file(bytes in prop::collection::vec(any::<u8>(), 0..200), is_marked in any::<bool>()) {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("a.parquet");
        let mut content = bytes;
        if is_marked {
            content.splice(0..0, *b"PAR1");
            let length = content.len() as u32 - 4;
            content.extend(length.to_le_bytes());
            content.extend(b"PAR1");
        }
        std::fs::write(&path, &content).unwrap();
        prop_assert!(ParquetFile::open(&path).unwrap().is_err());
    }
}
