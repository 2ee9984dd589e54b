//! Measures start, resume and memory of a long list. The argument is the number of utterances: ten million.
//!
//! The list is made once, in `target/bench-ten-million`: JSON lines, whose audio is in shards of a thousand utterances. All
//! shards are links to one file, so ten million utterances need 25 MB besides the list.

use std::error::Error;
use std::fs::{self, File};
use std::io::{BufReader, BufWriter, Write};
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use plimsoll_audio::{LogMel, LogMelConfig};
use plimsoll_core::{CountingAllocator, Key, MemoryMeter, Position, Seconds};
use plimsoll_data::utterances::index_list;
use plimsoll_data::{
    BatchSize, BatchingConfig, CorpusFingerprint, Dataset, Limits, Loader, LoaderConfig, Manifest, Mode, Shard,
    hold_out,
};
use plimsoll_text::Tokenizer;

#[global_allocator]
static MEMORY: CountingAllocator = CountingAllocator::new();

/// Number of utterances in a shard.
const PER_SHARD: u64 = 1000;
const RATE: u32 = 8000;
const BATCHES: usize = 6;

fn main() -> Result<(), Box<dyn Error>> {
    let count: u64 = std::env::args().nth(1).map_or(Ok(10_000_000), |count| count.parse())?;
    let folder = Path::new("target/bench-ten-million").join(count.to_string());
    if !folder.join("manifest.jsonl").exists() {
        make(&folder, count)?;
    }
    let list = fs::metadata(folder.join("manifest.jsonl"))?.len();
    println!("{count} utterances, {:.0} bytes each in the list", list as f64 / count as f64);
    let (summary, first) = run(&folder, count, Position::default(), "start")?;
    let lines = folder.join("utterances.jsonl");
    let resume = |what: &str| -> Result<(), Box<dyn Error>> {
        let (again, resumed) = run(&folder, count, first[2].1, what)?;
        assert_eq!(summary, again);
        assert_eq!(first[3..], resumed[..BATCHES - 3], "a resumed run has other batches");
        Ok(())
    };
    resume("resume")?;
    let begun = Instant::now();
    let index = index_list(&folder)?;
    let per = index.bytes as f64 / count as f64;
    println!("index: {:.2} s, {per:.0} bytes an utterance on disk", begun.elapsed().as_secs_f64());
    resume("resume with an index")?;
    run(&folder, count, Position { epoch: 3, batch: 9000, window: 60, within: 7 }, "resume in epoch 3")?;
    fs::remove_file(&lines)?;
    let (again, started) = run(&folder, count, Position::default(), "start with an index")?;
    assert!(again == summary && started == first, "an index changes the data");
    fs::remove_file(lines)?;
    fs::remove_file(index.file)?;
    Ok(())
}

/// Seconds and memory of the stages of a run.
struct Stages {
    count: f64,
    start: Instant,
    last: Instant,
}

impl Stages {
    fn end(&mut self, name: &str) {
        let per = |bytes: u64| bytes as f64 / self.count;
        println!(
            "  {name:<12} {:6.2} s, {:4.0} bytes an utterance in use, {:4.0} at most",
            self.last.elapsed().as_secs_f64(),
            per(MEMORY.current().0),
            per(MEMORY.peak().0)
        );
        MEMORY.reset_peak();
        self.last = Instant::now();
    }
}

/// Names of the utterances of a batch, and the position behind it.
type Named = (Vec<String>, Position);

/// Starts a run, and returns the summary of its data and the first batches.
fn run(folder: &Path, count: u64, from: Position, what: &str) -> Result<(String, Vec<Named>), Box<dyn Error>> {
    println!("{what}:");
    let mut stages = Stages { count: count as f64, start: Instant::now(), last: Instant::now() };
    let manifest = Manifest::read(folder)?;
    stages.end("read");
    let log_mel = LogMel::new(&LogMelConfig::default())?;
    let frames = |length: Seconds| u64::from(log_mel.frames_in(length).0);
    let limits = Limits { output_frames: Some(&frames), longest: Seconds(30.0), ..Limits::default() };
    let kept = manifest.select(&limits).kept;
    drop(manifest);
    stages.end("select");
    let split = hold_out(&kept, 0.001, Key::new(1).with("hold out"), None)?;
    drop(kept);
    stages.end("hold out");
    let tokenizer = Tokenizer::characters(["abcdefghijklmnopqrstuvwxyz '"]);
    let fingerprint = CorpusFingerprint::new(&split.train, &split.validation);
    let summary = fingerprint.summary();
    stages.end("fingerprint");
    let lines = folder.join("utterances.jsonl");
    if lines.exists() {
        let earlier = CorpusFingerprint::read_lines(BufReader::with_capacity(1 << 20, File::open(&lines)?))?;
        assert!(earlier.is_some_and(|earlier| fingerprint.changes_since(&earlier).is_empty()));
        stages.end("compare");
    } else {
        fingerprint.write_lines(BufWriter::with_capacity(1 << 20, File::create(&lines)?))?;
        stages.end("record");
    }
    let dataset = Arc::new(Dataset::new(split.train, log_mel, tokenizer));
    stages.end("data set");
    let size = BatchSize::Utterances(NonZeroU32::new(32).ok_or("zero")?);
    let config = LoaderConfig {
        batching: BatchingConfig { shapes: NonZeroU32::new(72), ..BatchingConfig::new(size) },
        grid: None,
        workers: NonZeroUsize::new(2),
        prefetch: NonZeroUsize::new(4),
        unreadable_share: 0.0,
        mode: Mode::Train { epochs: None },
        shard: Shard::default(),
    };
    let mut batches = Vec::new();
    for loaded in Loader::start(dataset, &config, Key::new(1).with("data"), from).take(BATCHES) {
        let loaded = loaded?;
        batches.push((loaded.batch.names, loaded.position));
        if batches.len() == 1 {
            stages.end("first batch");
        }
    }
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let resident: Vec<&str> =
        status.lines().filter(|line| line.starts_with("VmHWM") || line.starts_with("Rss")).collect();
    println!(
        "  in all       {:6.2} s; {}",
        stages.start.elapsed().as_secs_f64(),
        resident.join(", ").replace('\t', " ")
    );
    Ok((summary, batches))
}

/// Makes a list of `count` utterances and its shards.
fn make(folder: &Path, count: u64) -> Result<(), Box<dyn Error>> {
    fs::create_dir_all(folder.join("shards"))?;
    let (mut shard, mut places) = (Vec::new(), Vec::new());
    for n in 0..PER_SHARD {
        let samples = 4000 + Key::new(1).at(n).below(16_000) as u32;
        places.push((shard.len(), 44 + 2 * samples as usize, f64::from(samples) / f64::from(RATE)));
        shard.extend(wav_header(samples));
        shard.extend(
            (0..samples).flat_map(|at| ((Key::new(2).at(u64::from(at * 7)).bits() >> 52) as i16).to_le_bytes()),
        );
    }
    let first = folder.join("shards/00000.tar");
    fs::write(&first, shard)?;
    for n in 1..count.div_ceil(PER_SHARD) {
        fs::hard_link(&first, folder.join(format!("shards/{n:05}.tar")))?;
    }
    let words: Vec<&str> = "the of and a to in he have it that for they with as not on she at by this we you do but from or which \
                            one would all will there say who make when can more if no man out other so what time up go about than \
                            into could state only new year some take come these know see use get like then first any work now"
        .split_whitespace()
        .collect();
    let unfinished = folder.join("list.unfinished");
    let mut list = BufWriter::with_capacity(1 << 20, File::create(&unfinished)?);
    for n in 0..count {
        let (shard, (offset, length, seconds)) = (n / PER_SHARD, places[(n % PER_SHARD) as usize]);
        let key = Key::new(3).at(n);
        let text: Vec<&str> =
            (0..16 + key.below(8)).map(|w| words[key.at(w).below(words.len() as u64) as usize]).collect();
        writeln!(
            list,
            "{{\"id\":\"corpus-{shard:05}-{n:08}\",\"audio_filepath\":\"shards/{shard:05}.tar:{offset}+{length}\",\
             \"duration\":{seconds},\"text\":\"{}\",\"speaker\":\"speaker-{}\",\"lang\":\"en\",\"frames\":100,\"tokens\":90}}",
            text.join(" "),
            key.with("speaker").below(40_000)
        )?;
    }
    list.flush()?;
    Ok(fs::rename(unfinished, folder.join("manifest.jsonl"))?)
}

fn wav_header(samples: u32) -> Vec<u8> {
    let size = samples * 2;
    let mut header = Vec::from(*b"RIFF");
    header.extend((36 + size).to_le_bytes());
    header.extend(b"WAVEfmt ");
    header.extend([16u32, 1 | 1 << 16, RATE, 2 * RATE, 2 | 16 << 16].into_iter().flat_map(u32::to_le_bytes));
    header.extend(b"data");
    header.extend(size.to_le_bytes());
    header
}
