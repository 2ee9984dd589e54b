//! How long words of a stream take until they are final: `taskset -c 0 ... --example bench_live [RUN]`.
//!
//! Without the folder of a run it takes the small configuration with random weights, whose words have no meaning: the time
//! that a step computes is the same. With a run it compares with the true ends of the words.

use std::time::Instant;

use burn::tensor::Device;
use plimsoll_core::Key;
use plimsoll_corpus::{SAMPLE_RATE, Voice, synthesize};
use plimsoll_speech::asr::{
    LiveOptions, LiveTranscriber, LiveUpdate, RecognizerConfig, RecognizerMetadata, Search, Transcriber,
};
use plimsoll_speech::audio::LogMelConfig;
use plimsoll_speech::text::Tokenizer;

/// Samples that come at once.
const BLOCK: usize = SAMPLE_RATE as usize / 10;
/// Largest distance between the end of a word in the speech and in the transcript, in seconds.
const NEAR: f64 = 0.3;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let run = std::env::args().nth(1).filter(|argument| !argument.starts_with('-'));
    let transcriber = match &run {
        Some(folder) => Transcriber::load(folder.as_ref(), &Device::flex())?,
        None => small()?,
    };
    let (samples, ends) = speech();
    let options = LiveOptions::default();
    let mut live = LiveTranscriber::new(&transcriber, Search::Greedy, None, options);
    // What a machine that computes each step as soon as it can has shown at which time: the stream does not wait.
    let (mut clock, mut busy, mut steps, mut delays, mut tail) = (0.0f64, Vec::new(), 0, Vec::new(), Vec::new());
    let mut take = |update: &LiveUpdate, clock: f64| {
        for word in &update.words {
            tail.push(clock - word.end);
            let near = ends.iter().copied().min_by(|a, b| (a - word.end).abs().total_cmp(&(b - word.end).abs()));
            delays.extend(near.filter(|end| (end - word.end).abs() < NEAR).map(|end| clock - end));
        }
    };
    for (index, block) in samples.chunks(BLOCK).enumerate() {
        let arrived = (index + 1) as f64 * BLOCK as f64 / f64::from(SAMPLE_RATE);
        let start = Instant::now();
        let update = live.push(block);
        let seconds = start.elapsed().as_secs_f64();
        clock = clock.max(arrived) + seconds;
        if seconds > 1e-3 {
            busy.push(seconds);
            steps += 1;
        }
        take(&update, clock);
    }
    let length = samples.len() as f64 / f64::from(SAMPLE_RATE);
    println!(
        "{length:.0} s of speech in blocks of 100 ms, {steps} steps; stated delay {:.2} s without computing",
        options.delay().0
    );
    print("time of a step", &mut busy);
    print("from the end that the transcript gives a word until it is final", &mut tail);
    if run.is_some() {
        println!("{} of {} words were found within {NEAR} s", delays.len(), ends.len());
        print("from the true end of a word until it is final", &mut delays);
    }
    Ok(())
}

fn print(what: &str, seconds: &mut [f64]) {
    seconds.sort_by(f64::total_cmp);
    let at = |share: f64| seconds.get(((seconds.len() as f64 * share) as usize).min(seconds.len().saturating_sub(1)));
    let [half, most, all] = [0.5, 0.95, 1.0].map(|share| at(share).copied().unwrap_or(f64::NAN));
    println!("{what}: median {half:.3} s, 95 % {most:.3} s, worst {all:.3} s ({} values)", seconds.len());
}

/// Makes the small configuration with random weights.
fn small() -> Result<Transcriber, Box<dyn std::error::Error>> {
    let tokenizer = Tokenizer::characters(["the quick brown fox jumps over the lazy dog"]);
    let config = RecognizerConfig::recommended(128, 6, 3, tokenizer.size());
    let model = config.init(&Device::flex(), Key::new(1));
    Ok(Transcriber::new(model, &RecognizerMetadata::new(config, LogMelConfig::default(), tokenizer))?)
}

/// Speaks a minute of digits with pauses, and returns the true ends of the words in seconds.
fn speech() -> (Vec<f32>, Vec<f64>) {
    let (mut samples, mut ends) = (Vec::new(), Vec::new());
    for sentence in 0..20 {
        let key = Key::new(2).at(sentence);
        let words: Vec<usize> = (0..5).map(|word| key.at(word).below(10) as usize).collect();
        let spoken = synthesize(&words, &Voice::new(1, 0), key);
        ends.extend(spoken.words.iter().map(|(_, place)| (samples.len() + place.end) as f64 / f64::from(SAMPLE_RATE)));
        samples.extend(spoken.samples);
        samples.extend(vec![0.0; 6_000]);
    }
    samples.iter_mut().enumerate().for_each(|(n, sample)| *sample += (n * 7919 % 1009) as f32 * 1e-5);
    (samples, ends)
}
