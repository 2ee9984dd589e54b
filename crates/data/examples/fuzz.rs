//! Reads hostile input for some minutes: `fuzz WHAT [MINUTES] [SEED]`, where `WHAT` is `manifests`, `metadata`, `audio`,
//! `cache`, `containers` for all of them together, or one of `webdataset`, `shar`, `kaldi` and `parquet`.
//!
//! Valid files are changed at random (bits, bytes, pieces removed, doubled or taken from other files, words of the
//! format) and read. The report names panics with the seed of the case, the slowest case, the peak memory and the
//! memory that stays in use. The exit code is 1 after a panic.

use std::error::Error;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use plimsoll_audio::{audio_info, read_recording};
use plimsoll_core::{Bytes, CountingAllocator, Key, MemoryMeter};
use plimsoll_data::store::{Store, StoreConfig, StoreKey, StorePrecision, survey};
use plimsoll_data::{Format, ImportOptions, import};
use plimsoll_text::Tokenizer;

#[global_allocator]
static MEMORY: CountingAllocator = CountingAllocator::new();

/// Names and contents of the files of a corpus.
type Files = Vec<(String, Vec<u8>)>;

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let what = args.first().map_or("", String::as_str);
    let minutes: f64 = args.get(1).map_or(Ok(10.0), |minutes| minutes.parse())?;
    let seed: u64 = args.get(2).map_or(Ok(1), |seed| seed.parse())?;
    let corpora: Vec<Files> = match what {
        "manifests" => vec![manifests(), lhotse()],
        "metadata" => metadata(),
        "containers" => ["webdataset", "shar-flac", "shar-wav", "kaldi", "parquet"]
            .map(container)
            .into_iter()
            .collect::<Result<_, _>>()?,
        "webdataset" | "kaldi" => vec![container(what)?],
        "shar" => vec![container("shar-flac")?, container("shar-wav")?],
        "parquet" => vec![container("parquet")?, container("parquet-splits/data")?, container("parquet-flawed")?],
        "audio" => audio_files()?,
        "cache" => vec![segments()?],
        _ => {
            let whats = "manifests|metadata|audio|cache|containers|webdataset|shar|kaldi|parquet";
            return Err(format!("usage: fuzz {whats} [MINUTES] [SEED]").into());
        }
    };
    let read: fn(&Path) = match what {
        "audio" => read_audio,
        "containers" | "webdataset" | "shar" | "kaldi" | "parquet" => read_container,
        "cache" => read_cache,
        _ => read_lists,
    };
    // Panics are counted; there could be thousands of messages.
    std::panic::set_hook(Box::new(|_| {}));
    let (start, mut cases, mut panics) = (Instant::now(), 0u64, 0u64);
    let (mut slowest, mut peak, mut early) = (Duration::ZERO, Bytes(0), None);
    while start.elapsed() < Duration::from_secs_f64(minutes * 60.0) {
        let key = Key::new(seed).at(cases);
        let folder = tempfile::tempdir()?;
        write(folder.path(), &corpora[key.with("corpus").below(corpora.len() as u64) as usize], key)?;
        MEMORY.reset_peak();
        let (before, begun) = (MEMORY.current(), Instant::now());
        if catch_unwind(AssertUnwindSafe(|| read(folder.path()))).is_err() {
            panics += 1;
            println!("panic in case {cases} of seed {seed}");
            let kept = std::env::temp_dir().join(format!("plimsoll-fuzz-{what}-{seed}-{cases}"));
            fs::rename(folder.keep(), &kept)?;
            println!("  kept in {}", kept.display());
        }
        (slowest, peak) = (slowest.max(begun.elapsed()), peak.max(Bytes(MEMORY.peak().0.saturating_sub(before.0))));
        cases += 1;
        if cases == 100 {
            early = Some(MEMORY.current());
        }
    }
    let early = early.unwrap_or_default();
    println!(
        "{what}: {cases} cases in {:.1} min, {panics} panics, slowest case {slowest:.1?}, peak memory {peak}; in use after a \
         hundred cases {early}, at the end {}",
        start.elapsed().as_secs_f64() / 60.0,
        MEMORY.current()
    );
    Ok(if panics == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Writes the files of a corpus, with random changes.
fn write(folder: &Path, files: &Files, key: Key) -> std::io::Result<()> {
    for (file_idx, (name, content)) in files.iter().enumerate() {
        let key = key.with("file").at(file_idx as u64);
        let other = &files[key.with("other").below(files.len() as u64) as usize].1;
        let path = folder.join(name);
        fs::create_dir_all(path.parent().unwrap_or(folder))?;
        fs::write(path, changed(content.clone(), other, key))?;
    }
    Ok(())
}

/// Words of the file formats, which reach deeper into the readers than random bytes.
const WORDS: [&str; 18] =
    ["\"", "|", "\t", "\n", "\r\n", "{", "}", "[", "]", ":", "-1", "1e308", "NaN", "null", "\u{feff}", "..", "/", "é"];

fn changed(mut bytes: Vec<u8>, other: &[u8], key: Key) -> Vec<u8> {
    for n in 0..key.with("changes").below(6) {
        let key = key.with("change").at(n);
        let length = bytes.len() as u64;
        let at = |name: &str| key.with(name).below(length.max(1)) as usize;
        let (from, to) = (at("a").min(at("b")), at("a").max(at("b")));
        let short = from..to.min(from + key.with("short").below(64) as usize);
        match key.with("kind").below(8) {
            _ if bytes.is_empty() => bytes.extend(other.iter().take(100)),
            0 => bytes[from] ^= 1 << key.with("bit").below(8),
            1 => bytes[from] = key.with("byte").below(256) as u8,
            2 => bytes.truncate(from),
            3 => drop(bytes.drain(short)),
            4 => {
                let doubled = bytes[short].to_vec();
                bytes.splice(to..to, doubled);
            }
            5 => drop(bytes.splice(from..from, WORDS[key.with("word").below(WORDS.len() as u64) as usize].bytes())),
            6 => {
                let end = other.len().min(from + 200);
                drop(bytes.splice(to..to, other[from.min(end)..end].iter().copied()));
            }
            // Large numbers, where lengths may be.
            _ => bytes[short].fill(0xff),
        }
    }
    bytes
}

fn read_lists(folder: &Path) {
    let _ = import(folder, &ImportOptions::default());
    for format in Format::ALL {
        let _ = import(folder, &ImportOptions { format: Some(format), ..ImportOptions::default() });
    }
    let _ = Tokenizer::from_file(folder.join("model.json"));
}

/// Reads a corpus in containers, with its audio.
fn read_container(folder: &Path) {
    let Ok(listing) = import(folder, &ImportOptions { audio_root: Some(folder.into()), ..ImportOptions::default() })
    else {
        return;
    };
    for entry in listing.entries {
        let _ = audio_info(&entry.audio);
        let _ = read_recording(&entry.audio);
    }
}

fn read_audio(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let _ = audio_info(entry.path());
        let _ = read_recording(entry.path());
    }
}

fn key(n: u64) -> StoreKey {
    StoreKey::new(&[b"fuzz", &n.to_le_bytes()])
}

fn values(n: u64) -> Vec<f32> {
    (0..20 + n * 13).map(|i| (i * n) as f32 * 0.25).collect()
}

/// Reads a store and checks that every record found has the stored values.
fn read_cache(folder: &Path) {
    let _ = survey(folder, &|_| {});
    let config = StoreConfig { limit: Bytes::mib(1), precision: StorePrecision::F32 };
    let Ok(store) = Store::open(folder, &config) else { return };
    for n in 0..20 {
        match store.get(key(n)) {
            Some(found) => assert_eq!(found, values(n)),
            None => store.put(key(n), &values(n)),
        }
        assert_eq!(store.get(key(n)), Some(values(n)));
    }
}

fn segments() -> Result<Files, Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let store = Store::open(folder.path(), &StoreConfig { limit: Bytes::mib(1), precision: StorePrecision::F32 })?;
    (0..20).for_each(|n| store.put(key(n), &values(n)));
    drop(store);
    let mut files = Files::new();
    for entry in fs::read_dir(folder.path())? {
        let path = entry?.path();
        let name = path.file_name().ok_or("a file without a name")?.to_string_lossy().into_owned();
        files.push((name, fs::read(path)?));
    }
    Ok(files)
}

fn audio_files() -> Result<Vec<Files>, Box<dyn Error>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/data/audio");
    let one = |name: &str| -> Result<Files, Box<dyn Error>> { Ok(vec![(name.into(), fs::read(folder.join(name))?)]) };
    ["sweep.wav", "sweep.flac", "sweep.mp3", "sweep.ogg"].into_iter().map(one).collect()
}

/// Returns the files of a corpus in containers, which other programs wrote.
fn container(name: &str) -> Result<Files, Box<dyn Error>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/data/containers").join(name);
    let mut files = Files::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        files.push((path.file_name().ok_or("a file without a name")?.to_string_lossy().into_owned(), fs::read(path)?));
    }
    files.sort();
    Ok(files)
}

fn named(files: &[(&str, &str)]) -> Files {
    files.iter().map(|(name, content)| ((*name).to_owned(), content.as_bytes().to_vec())).collect()
}

fn manifests() -> Files {
    let line = |n: u32| {
        format!(
            "{{\"id\": \"u{n}\", \"audio_filepath\": \"wavs/{n}.wav\", \"text\": \"नमस्ते दुनिया {n}\", \"duration\": {n}.5, \
             \"offset\": 0.25, \"speaker\": {n}, \"lang\": \"hi\"}}\n"
        )
    };
    vec![
        ("manifest.jsonl".into(), (0..20).map(line).collect::<String>().into_bytes()),
        ("model.json".into(), b"{\"tokenizer\": {\"characters\": [\"a\", \"b\", \"c\"]}}".to_vec()),
    ]
}

fn lhotse() -> Files {
    let cut = |n: u32| {
        format!(
            "{{\"id\":\"c{n}\",\"start\":{n}.5,\"duration\":2.0,\"channel\":0,\"type\":\"MonoCut\",\"supervisions\":[{{\"id\":\"s{n}\",\
             \"recording_id\":\"r\",\"start\":0.0,\"duration\":1.5,\"text\":\"hello\",\"speaker\":\"x\",\"language\":\"en\"}}],\
             \"recording\":{{\"id\":\"r\",\"sources\":[{{\"type\":\"file\",\"channels\":[0],\"source\":\"r.flac\"}}],\
             \"sampling_rate\":16000,\"num_samples\":160000,\"duration\":10.0}}}}\n"
        )
    };
    vec![("cuts.jsonl".into(), (0..10).map(cut).collect::<String>().into_bytes())]
}

fn metadata() -> Vec<Files> {
    vec![
        named(&[("metadata.csv", "a|Dr. Who|Doctor Who\nb|two|two\nc|\"three|three\n")]),
        named(&[
            ("metadata.csv", "file_name,transcription,speaker_id\na.wav,\"hello, \"\"you\"\"\",1\nb/c.flac,two,2\n"),
            ("train/metadata.jsonl", "{\"file_name\": \"x.mp3\", \"text\": \"x\"}\n"),
        ]),
        named(&[
            ("validated.tsv", "client_id\tpath\tsentence\tlocale\nx\tc_1.mp3\tone \"two\ten\ny\tc_2\tthree\tfa\n"),
            ("clip_durations.tsv", "clip\tduration[ms]\nc_1.mp3\t1200\nc_2.mp3\t900\n"),
        ]),
        named(&[
            ("wav.scp", "r1 a.wav\nr2 flac -c -d -s b.flac |\nr3 sph2pipe -f wav -p c.wav |\n"),
            ("text", "u1 hello there\nu2 two\nu3\n"),
            ("segments", "u1 r1 0.0 1.5\nu2 r2 1.0 -1\nu3 r3 0.5 0.4\n"),
            ("utt2spk", "u1 s1\nu2 s2\n"),
            ("utt2dur", "u1 1.5\nu2 2\n"),
        ]),
        named(&[("1/2/1-2.trans.txt", "1-2-0001 HELLO\n1-2-0002 TWO\n"), ("1/2/1-2-0001.flac", "x")]),
        named(&[("1/2/1_2_3_4.normalized.txt", "Hello."), ("1/2/1_2_3_4.wav", "x")]),
        named(&[("s1/a.txt", "hello"), ("s1/a.wav", "x"), ("s2/b.lab", "two"), ("s2/b.flac", "x")]),
    ]
}
