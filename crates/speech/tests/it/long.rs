//! Recordings of any length, and streams: the parts change nothing but what they must.

use burn::tensor::Device;
use plimsoll_core::{CountingAllocator, Key, MemoryMeter, Seconds};
use plimsoll_corpus::{SAMPLE_RATE, Voice, synthesize};
use plimsoll_speech::asr::{
    LiveOptions, LiveTranscriber, LiveUpdate, LongOptions, LongScores, LongTranscriber, RecognizerConfig,
    RecognizerMetadata, Search, Transcriber,
};
use plimsoll_speech::audio::LogMelConfig;
use plimsoll_speech::text::Tokenizer;
use plimsoll_speech::text::transcript::{Segment, Word};

#[global_allocator]
static MEMORY: CountingAllocator = CountingAllocator::new();

/// Makes a small recognizer with random weights. Its texts have no meaning, but they depend on what it hears.
fn transcriber() -> Transcriber {
    let tokenizer = Tokenizer::characters(["the quick brown fox jumps over the lazy dog"]);
    let config = RecognizerConfig { kernel: 5, ..RecognizerConfig::recommended(16, 1, 1, tokenizer.size()) };
    let model = config.init(&Device::flex(), Key::new(1));
    Transcriber::new(model, &RecognizerMetadata::new(config, LogMelConfig::default(), tokenizer)).unwrap()
}

/// Speaks sentences of the built-in corpus, with a pause after each, until `seconds` are full.
fn speech(seconds: f64) -> Vec<f32> {
    let voice = Voice::new(1, 0);
    let length = (seconds * f64::from(SAMPLE_RATE)) as usize;
    let mut samples = Vec::new();
    for sentence in 0.. {
        let key = Key::new(2).at(sentence);
        let words: Vec<usize> = (0..4).map(|word| key.at(word).below(60) as usize).collect();
        samples.extend(synthesize(&words, &voice, key).samples);
        samples.extend(vec![0.0; 4_000]);
        if samples.len() >= length {
            break;
        }
    }
    samples.truncate(length);
    // Faint noise, as in every recording.
    samples.iter_mut().enumerate().for_each(|(n, sample)| *sample += (n * 7919 % 1009) as f32 * 1e-6);
    samples
}

fn in_parts(transcriber: &Transcriber, samples: &[f32], search: Search, block: usize) -> Vec<Segment> {
    let mut long = LongTranscriber::new(transcriber, search, None, LongOptions::default());
    let mut segments: Vec<Segment> = samples.chunks(block).flat_map(|block| long.push(block)).collect();
    segments.extend(long.finish());
    segments
}

#[test]
fn a_short_recording_is_one_part() {
    let transcriber = transcriber();
    for (seconds, name) in [(0.3, "greedy"), (7.0, "greedy"), (29.0, "prefix-beam"), (4.0, "joint"), (4.0, "rescore")] {
        let samples = speech(seconds);
        let search = Search::from_name(name, 4.try_into().unwrap(), 0.3, 0.0).unwrap();
        let whole = transcriber.transcribe_timed(&samples, &search, None);
        let texts: Vec<String> = in_parts(&transcriber, &samples, search, 777).into_iter().map(|s| s.text).collect();
        let expected = Some(whole.text).filter(|text| !text.trim().is_empty());
        assert_eq!(texts, expected.into_iter().collect::<Vec<_>>(), "{seconds} s, {name}");
    }
    assert!(in_parts(&transcriber, &[], Search::Greedy, 1).is_empty());
}

#[test]
fn blocks_change_no_segment_and_times_go_on() {
    let transcriber = transcriber();
    let samples = speech(70.0);
    for name in ["greedy", "joint"] {
        let search = Search::from_name(name, 2.try_into().unwrap(), 0.3, 0.0).unwrap();
        let segments = in_parts(&transcriber, &samples, search, samples.len());
        assert!(segments.len() >= 3, "{name}: {}", segments.len());
        assert_eq!(in_parts(&transcriber, &samples, search, 16_001), segments, "{name}");
        let times: Vec<(f64, f64)> = segments.iter().flat_map(|s| s.words.iter().map(|w| (w.start, w.end))).collect();
        assert!(times.windows(2).all(|pair| pair[0].0 <= pair[0].1 && pair[0].1 <= pair[1].0 + 1e-9), "{name}");
        assert!(times.last().unwrap().1 <= 70.0);
    }
}

/// Parts of any length have the frames of the whole, and times go on. Random weights hear pauses anywhere, so all ways to end
/// a part are tried.
#[test]
fn no_frame_is_lost_between_parts() {
    let transcriber = transcriber();
    let samples = speech(40.0);
    let whole = transcriber.log_probs(&samples).frames();
    let joint = Search::from_name("joint", 2.try_into().unwrap(), 0.3, 0.0).unwrap();
    for longest in [0.1, 1.0, 2.0, 3.3, 5.0, 8.0, 13.0, 20.0] {
        for context in [0.0, 0.5, 3.0] {
            let options = LongOptions { longest: Seconds(longest), context: Seconds(context) };
            let mut scores = LongScores::new(&transcriber, options);
            samples.chunks(5_003).for_each(|block| scores.push(block));
            let frames = scores.finish().frames();
            assert!(frames.abs_diff(whole) <= 2, "{longest} s, {context} s: {frames} of {whole}");
        }
        for search in [Search::Greedy, joint] {
            let options = LongOptions { longest: Seconds(longest), ..LongOptions::default() };
            let mut long = LongTranscriber::new(&transcriber, search, None, options);
            let mut segments: Vec<Segment> = samples.chunks(5_003).flat_map(|block| long.push(block)).collect();
            segments.extend(long.finish());
            let words: Vec<&Word> = segments.iter().flat_map(|segment| &segment.words).collect();
            assert!(words.windows(2).all(|pair| pair[0].end <= pair[1].start + 1e-9), "{longest} s, {search:?}");
            assert!(words.last().is_some_and(|word| word.end > 30.0 && word.end <= 40.0), "{longest} s, {search:?}");
        }
    }
}

/// Features that are normalized over noise alone would make it as loud as speech.
#[test]
fn noise_between_utterances_has_no_words() {
    let transcriber = transcriber();
    let noise = |n: usize| (n * 7919 % 1009) as f32 * 2e-5;
    let alone: Vec<f32> = (0..70 * SAMPLE_RATE as usize).map(noise).collect();
    assert!(in_parts(&transcriber, &alone, Search::Greedy, 16_000).is_empty());
    let mut samples = speech(8.0);
    samples.extend((0..60 * SAMPLE_RATE as usize).map(noise));
    samples.extend(speech(8.0));
    let segments = in_parts(&transcriber, &samples, Search::Greedy, 16_000);
    let inside = |segment: &&Segment| segment.words.iter().any(|word| (30.0..38.0).contains(&word.start));
    assert_eq!(segments.iter().filter(inside).count(), 0, "{segments:?}");
}

/// Parts hear less than the whole recording, and features are normalized over what is heard at once. So scores differ a
/// little, and the best token of a frame only where two are nearly equal.
#[test]
fn frames_of_parts_are_nearly_those_of_the_whole() {
    let transcriber = transcriber();
    let samples = speech(80.0);
    let scores = |longest, context| {
        let options = LongOptions { longest: Seconds(longest), context: Seconds(context) };
        let mut scores = LongScores::new(&transcriber, options);
        scores.push(&samples);
        scores.finish()
    };
    let whole = scores(1e6, 3.0);
    let best = |row: &[f32]| (0..row.len()).max_by(|&a, &b| row[a].total_cmp(&row[b])).unwrap();
    for (longest, context, least) in [(30.0, 3.0, 0.9), (20.0, 2.0, 0.85)] {
        let parts = scores(longest, context);
        assert!(parts.frames().abs_diff(whole.frames()) <= 1, "{} {}", parts.frames(), whole.frames());
        let count = parts.frames().min(whole.frames());
        let same = (0..count).filter(|&frame| best(parts.row(frame)) == best(whole.row(frame))).count();
        eprintln!(
            "parts of {longest} s with {context} s of context: {same} of {count} frames have the same best token"
        );
        assert!(same as f64 >= least * count as f64, "{same} of {count}");
    }
}

/// Transcribes `seconds` of silence with a sentence in each minute, made while it is read, and returns the most memory that
/// was in use at once.
fn memory_for(transcriber: &Transcriber, seconds: usize) -> u64 {
    let sentence = speech(8.0);
    let mut long = LongTranscriber::new(transcriber, Search::Greedy, None, LongOptions::default());
    let (before, mut words) = (MEMORY.current().0, 0);
    MEMORY.reset_peak();
    for second in 0..seconds {
        let at = second % 60 * SAMPLE_RATE as usize;
        let mut block = vec![0.0; SAMPLE_RATE as usize];
        if let Some(spoken) = sentence.get(at..at + block.len()) {
            block.copy_from_slice(spoken);
        }
        words += long.push(&block).iter().map(|segment| segment.words.len()).sum::<usize>();
    }
    words += long.finish().iter().map(|segment| segment.words.len()).sum::<usize>();
    assert!(words > seconds / 60, "{words}");
    MEMORY.peak().0 - before
}

/// Other tests of the same process would be counted, too.
fn is_alone() -> bool {
    let is_alone = std::env::var_os("NEXTEST").is_some();
    if !is_alone {
        eprintln!("skipped: memory is counted only in a process of its own, by cargo-nextest");
    }
    is_alone
}

#[test]
fn memory_does_not_grow_with_the_recording() {
    if is_alone() {
        let transcriber = transcriber();
        memory_for(&transcriber, 180);
        let (short, long) = (memory_for(&transcriber, 180), memory_for(&transcriber, 1_800));
        eprintln!("3 minutes: {short} B, 30 minutes: {long} B");
        assert!(long as f64 <= 1.05 * short as f64, "{short} {long}");
    }
}

#[test]
fn long_ten_hours_take_the_memory_of_one() {
    if std::env::var_os("PLIMSOLL_LONG").is_some() && is_alone() {
        let transcriber = transcriber();
        let (short, long) = (memory_for(&transcriber, 3_600), memory_for(&transcriber, 36_000));
        eprintln!("1 hour: {short} B, 10 hours: {long} B");
        assert!(long as f64 <= 1.05 * short as f64, "{short} {long}");
    }
}

/// Feeds a stream, and returns all final words.
fn live(transcriber: &Transcriber, samples: &[f32], block: usize, search: Search) -> Vec<Word> {
    let mut live = LiveTranscriber::new(transcriber, search, None, LiveOptions::default());
    let mut words: Vec<Word> = Vec::new();
    let mut take = |update: LiveUpdate, length: f64| {
        for word in update.words {
            assert!(words.last().is_none_or(|last| last.end <= word.start + 1e-6), "{words:?} {word:?}");
            assert!(word.end <= length + 0.05, "{word:?} at {length}");
            words.push(word);
        }
    };
    for block in samples.chunks(block) {
        let update = live.push(block);
        take(update, live.length().0);
    }
    let length = live.length().0;
    take(live.finish(), length);
    words
}

#[test]
fn blocks_of_a_stream_change_no_word() {
    let transcriber = transcriber();
    let samples = speech(12.0);
    for name in ["greedy", "prefix-beam"] {
        let search = Search::from_name(name, 4.try_into().unwrap(), 0.3, 0.0).unwrap();
        // The first step is 16,000 samples, and every other 4,800.
        let expected = live(&transcriber, &samples, 1_600, search);
        assert!(!expected.is_empty());
        for block in [100, 400, 800] {
            assert_eq!(live(&transcriber, &samples, block, search), expected, "{name} in blocks of {block}");
        }
        assert!(!live(&transcriber, &samples, samples.len(), search).is_empty());
    }
    assert!(live(&transcriber, &[], 1, Search::Greedy).is_empty());
    assert!(live(&transcriber, &[0.0; 160_000], 1_600, Search::Greedy).is_empty(), "silence has no words");
}
