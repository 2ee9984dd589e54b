//! Tests with damaged bytes. What `datasets` and `pyarrow` write is in the tests of import.

use proptest::prelude::*;
use tempfile::TempDir;

use super::*;
use crate::columns::ColumnFile;

proptest! {
    #[test]
    fn any_bytes_are_no_file(bytes in prop::collection::vec(any::<u8>(), 0..200), is_marked in any::<bool>()) {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("a.arrow");
        let mut content = bytes;
        if is_marked {
            let length = content.len() as u32;
            content.splice(0..0, [&[0xff; 4][..], &length.to_le_bytes()].concat());
        }
        std::fs::write(&path, &content).unwrap();
        // A file that names no columns has no rows.
        let rows = ArrowFile::open(&path).unwrap().map_or(0, |file| file.groups().iter().sum::<u64>());
        prop_assert_eq!(rows, 0);
    }
}
