//! Files of a person: read only if they are files, and written whole or not at all.

mod draft;
mod regular;

pub use draft::{Draft, remove_drafts, replace_file};
pub use regular::{open_regular_file, open_text_file, read_regular_file, read_text_file, regular_file_metadata};
