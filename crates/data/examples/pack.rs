//! Packs a corpus into shards: `cargo run -p plimsoll-data --example pack -- CORPUS FOLDER [webdataset|shar|parquet] [AUDIO ROOT]`.

use std::error::Error;
use std::path::PathBuf;

use plimsoll_data::pack::{PackFormat, PackOptions, pack};
use plimsoll_data::{ImportOptions, Manifest};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let usage = "CORPUS FOLDER [webdataset|shar|parquet] [AUDIO ROOT]";
    let (corpus, folder) = (arguments.next().ok_or(usage)?, arguments.next().ok_or(usage)?);
    let format = PackFormat::from_name(&arguments.next().unwrap_or("webdataset".into())).ok_or(usage)?;
    let options = ImportOptions { audio_root: arguments.next().map(PathBuf::from), ..ImportOptions::default() };
    let manifest = Manifest::read_with(corpus, &options)?;
    let packed = pack(&manifest.utterances, folder, &PackOptions::new(format), &|_, _| {})?;
    println!("{} utterances, {}, in {} shards", packed.utterances, packed.bytes, packed.shards.len());
    manifest.issues.iter().chain(&packed.issues).for_each(|issue| println!("not packed: {issue}"));
    Ok(())
}
