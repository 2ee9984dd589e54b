//! Proof that the corpus is not trivial: a connected-word recognizer of stored templates must fail on it.
//!
//! The recognizer was the best method of its time (Bridle, Brown and Chamberlain, 1982: dynamic time warping over all
//! templates in one pass). It gets normalized cepstra, templates of several voices for every word, and the best value
//! of its one parameter, the cost of a new word.

use crate::lexicon::{Lexicon, sentence};
use crate::recording::Recording;
use crate::synthesizer::{SAMPLE_RATE, SynthesizedSpeech, synthesize};
use crate::voice::Voice;
use plimsoll_core::Key;
use rayon::prelude::*;
use realfft::RealFftPlanner;
use realfft::num_complex::Complex;
use std::f32::consts::PI;
use std::ops::Range;

const SEED: u64 = 17;
const HOP: usize = 160;
const WINDOW: usize = 512;
const N_MELS: usize = 26;
const N_CEPSTRA: usize = 13;
const WIDTH: usize = 2 * N_CEPSTRA;
const TEMPLATES_OF_A_WORD: usize = 5;
/// Costs of a new word that are tried, in units of the distance of one frame; the cost with the best result counts.
const ENTRIES: [f32; 6] = [0.0, 1.5, 3.0, 6.0, 10.0, 20.0];

type Frame = [f32; WIDTH];

struct Utterance {
    words: Vec<(usize, Range<usize>)>,
    frames: Vec<Frame>,
}

impl Utterance {
    fn text(&self) -> String {
        text_of_words(self.words.iter().map(|(word, _)| *word))
    }
}

fn text_of_words(words: impl Iterator<Item = usize>) -> String {
    words.map(|word| Lexicon::english().words()[word].spelling).collect::<Vec<_>>().join(" ")
}

/// Synthesizes utterance `index` as `make_corpus` would record it; without room and noise if `recorded` is false.
fn utterance(speaker: usize, index: u64, recorded: bool) -> Utterance {
    let key = Key::new(SEED).with("baseline").at(index);
    let words = sentence(Lexicon::english().words().len(), key.with("sentence"));
    let SynthesizedSpeech { samples, words } = synthesize(&words, &Voice::new(SEED, speaker), key.with("speech"));
    // Digital silence has no logarithm, so speech without noise gets some very soft noise as well.
    let faint =
        || super::noise::background(samples.len(), key).iter().zip(&samples).map(|(n, s)| s + 1e-4 * n).collect();
    let samples = if recorded { Recording::new(key.with("recording")).record(&samples) } else { faint() };
    Utterance { words, frames: cepstra(&samples) }
}

/// Computes mel cepstra and their slopes, normalized to zero mean and unit variance over the utterance.
fn cepstra(samples: &[f32]) -> Vec<Frame> {
    let fft = RealFftPlanner::<f32>::new().plan_fft_forward(WINDOW);
    let (filters, mut spectrum) = (mel_filters(), fft.make_output_vec());
    let statics: Vec<[f32; N_CEPSTRA]> = samples
        .windows(WINDOW)
        .step_by(HOP)
        .map(|window| {
            let hann = |n: usize| 0.5 - 0.5 * (2.0 * PI * n as f32 / WINDOW as f32).cos();
            let mut windowed: Vec<f32> = window.iter().enumerate().map(|(n, s)| s * hann(n)).collect();
            fft.process(&mut windowed, &mut spectrum).unwrap();
            let power: Vec<f32> = spectrum.iter().map(Complex::norm_sqr).collect();
            cosines(&filters.iter().map(|f| f.iter().map(|(bin, w)| w * power[*bin]).sum()).collect::<Vec<f32>>())
        })
        .collect();
    normalized(statics)
}

/// Returns the bins of every mel band, each with its weight.
fn mel_filters() -> Vec<Vec<(usize, f32)>> {
    let mel = |hertz: f32| 1127.0 * (1.0 + hertz / 700.0).ln();
    let (low, high) = (mel(60.0), mel(7600.0));
    let step = (high - low) / (N_MELS + 1) as f32;
    let place = |bin: usize| (mel(bin as f32 * SAMPLE_RATE as f32 / WINDOW as f32) - low) / step;
    let weight = |band: usize, bin: usize| (1.0 - (place(bin) - (band + 1) as f32).abs()).max(0.0);
    (0..N_MELS)
        .map(|band| (0..=WINDOW / 2).map(|bin| (bin, weight(band, bin))).filter(|(_, w)| *w > 0.0).collect())
        .collect()
}

fn cosines(mels: &[f32]) -> [f32; N_CEPSTRA] {
    let basis = |order: usize, band: usize| (PI * order as f32 * (band as f32 + 0.5) / N_MELS as f32).cos();
    std::array::from_fn(|order| mels.iter().enumerate().map(|(band, mel)| basis(order, band) * (mel + 1e-7).ln()).sum())
}

fn normalized(statics: Vec<[f32; N_CEPSTRA]>) -> Vec<Frame> {
    let at = |frame: isize| statics[frame.clamp(0, statics.len() as isize - 1) as usize];
    let mut frames: Vec<Frame> = (0..statics.len() as isize)
        .map(|t| {
            let slope = |i: usize| (1..=2).map(|d| d as f32 * (at(t + d)[i] - at(t - d)[i])).sum::<f32>() / 10.0;
            std::array::from_fn(|i| if i < N_CEPSTRA { at(t)[i] } else { slope(i - N_CEPSTRA) })
        })
        .collect();
    for i in 0..WIDTH {
        let count = frames.len() as f32;
        let mean = frames.iter().map(|f| f[i]).sum::<f32>() / count;
        let width = (frames.iter().map(|f| (f[i] - mean).powi(2)).sum::<f32>() / count).sqrt();
        frames.iter_mut().for_each(|f| f[i] = (f[i] - mean) / width);
    }
    frames
}

fn distance(a: &Frame, b: &Frame) -> f32 {
    a.iter().zip(b).map(|(a, b)| (a - b).powi(2)).sum::<f32>().sqrt()
}

/// Stored frames of a word, or of silence when `word` is `None`.
struct Template {
    word: Option<usize>,
    frames: Vec<Frame>,
}

/// Cuts templates of words out of recordings of voices `0..n_voices`, every word from different voices if there are
/// enough, and adds templates of silence.
fn templates(n_voices: usize, recorded: bool) -> Vec<Template> {
    let n_words = Lexicon::english().words().len();
    let mut heard: Vec<Vec<usize>> = vec![Vec::new(); n_words];
    let mut templates = Vec::new();
    for index in 0.. {
        let speaker = index as usize % n_voices;
        let utterance = utterance(speaker, index, recorded);
        if index < 24 {
            templates.extend(gaps(&utterance).map(|frames| Template { word: None, frames }));
        }
        for (word, samples) in &utterance.words {
            let known = n_voices >= TEMPLATES_OF_A_WORD && heard[*word].contains(&speaker);
            if heard[*word].len() < TEMPLATES_OF_A_WORD && !known {
                heard[*word].push(speaker);
                templates.push(Template { word: Some(*word), frames: cut(&utterance.frames, samples) });
            }
        }
        if heard.iter().all(|voices| voices.len() == TEMPLATES_OF_A_WORD) {
            return templates;
        }
    }
    unreachable!("every word is drawn in the end")
}

/// Returns, for the lead-in and each long enough gap between words (silence, breath or hum), three frames from its
/// middle. Templates of silence are this short so that a recognized gap may have almost any length.
fn gaps(utterance: &Utterance) -> impl Iterator<Item = Vec<Frame>> {
    let lead = std::iter::once(0..utterance.words[0].1.start);
    let inner = utterance.words.windows(2).map(|pair| pair[0].1.end..pair[1].1.start);
    let long = |gap: &Range<usize>| gap.len() > 6 * HOP;
    lead.chain(inner).filter(long).map(|gap| {
        let frames = cut(&utterance.frames, &gap);
        let middle = frames.len() / 2;
        frames[middle - 1..=middle + 1].to_vec()
    })
}

/// Returns the frames whose windows are centered on `samples`.
fn cut(frames: &[Frame], samples: &Range<usize>) -> Vec<Frame> {
    let frame = |sample: usize| (sample.saturating_sub(WINDOW / 2) / HOP).min(frames.len() - 1);
    frames[frame(samples.start)..=frame(samples.end)].to_vec()
}

/// Path of the recognizer through the templates: its total cost so far, and the frame of the utterance at which it
/// entered its current template.
#[derive(Clone, Copy)]
struct Path {
    cost: f32,
    entered: usize,
}

/// Finds the words of the path of lowest cost through any templates in any order, where each word adds the cost
/// `entry`. `distances` has a row for each frame of the utterance, with its distances to the frames of all templates.
fn recognize(distances: &[Vec<f32>], templates: &[Template], entry: f32) -> Vec<usize> {
    let nowhere = Path { cost: f32::MAX / 2.0, entered: 0 };
    let mut paths: Vec<Path> = vec![nowhere; distances[0].len()];
    // The best path that ends before each frame, and its word.
    let mut ends: Vec<(Path, Option<usize>)> = vec![(Path { cost: 0.0, entered: 0 }, None)];
    for (t, row) in distances.iter().enumerate() {
        let (mut best, mut start) = ((nowhere, None), 0);
        for template in templates {
            let states = start..start + template.frames.len();
            let toll = if template.word.is_some() { entry } else { 0.0 };
            let fresh = Path { cost: ends[t].0.cost + toll, entered: t };
            advance(&mut paths[states.clone()], &row[states.clone()], fresh);
            start = states.end;
            if paths[start - 1].cost < best.0.cost {
                best = (paths[start - 1], template.word);
            }
        }
        ends.push(best);
    }
    let (mut words, mut t) = (Vec::new(), distances.len());
    while t > 0 {
        let (path, word) = ends[t];
        words.extend(word);
        t = path.entered;
    }
    words.reverse();
    words
}

/// Advances the paths in one template by one frame of the utterance: a path stays at its frame of the template, steps
/// to the next frame or skips one. `fresh` is the path that enters the template at its first frame.
fn advance(paths: &mut [Path], distances: &[f32], fresh: Path) {
    for state in (0..paths.len()).rev() {
        let step = if state == 0 { fresh } else { paths[state - 1] };
        let skip = if state < 2 { step } else { paths[state - 2] };
        let best = [step, skip].into_iter().fold(paths[state], |a, b| if b.cost < a.cost { b } else { a });
        paths[state] = Path { cost: best.cost + distances[state], ..best };
    }
}

fn edits(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, a) in a.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, b) in b.iter().enumerate() {
            let here = (diagonal + usize::from(a != *b)).min(row[j] + 1).min(row[j + 1] + 1);
            diagonal = std::mem::replace(&mut row[j + 1], here);
        }
    }
    row[b.len()]
}

/// Computes the total number of edits divided by the total number of reference characters.
fn pooled_cer(pairs: &[(String, String)]) -> f64 {
    let edits: usize = pairs.iter().map(|(reference, guess)| edits(reference, guess)).sum();
    edits as f64 / pairs.iter().map(|(reference, _)| reference.chars().count()).sum::<usize>() as f64
}

/// Computes the character error rate of the recognizer on `tests`, with the best cost of a new word.
fn baseline_cer(templates: &[Template], tests: &[Utterance]) -> f64 {
    let states: Vec<&Frame> = templates.iter().flat_map(|t| &t.frames).collect();
    let guesses = |test: &Utterance| {
        let row = |frame: &Frame| states.iter().map(|state| distance(frame, state)).collect();
        let distances: Vec<Vec<f32>> = test.frames.iter().map(row).collect();
        ENTRIES.map(|entry| (test.text(), text_of_words(recognize(&distances, templates, entry).into_iter())))
    };
    let all: Vec<[(String, String); 6]> = tests.par_iter().map(guesses).collect();
    let cer = |entry: usize| pooled_cer(&all.iter().map(|guesses| guesses[entry].clone()).collect::<Vec<_>>());
    let cers: Vec<f64> = (0..ENTRIES.len()).map(cer).collect();
    println!("CER {cers:.3?} for entry costs {ENTRIES:?}");
    cers.into_iter().fold(f64::MAX, f64::min)
}

#[test]
fn templates_fail_on_unseen_voices() {
    let tests: Vec<Utterance> = (0..30).map(|i| utterance(100 + i, 10_000 + i as u64, true)).collect();
    let cer = baseline_cer(&templates(24, true), &tests);
    println!("connected-word templates, unseen voices: CER {cer:.3}");
    assert!(cer > 0.40, "a nearest-template recognizer reads this corpus with a CER of {cer:.3}");
}

#[test]
fn templates_work_in_easy_conditions() {
    // One voice, no noise, no room: the conditions that the method was made for.
    let tests: Vec<Utterance> = (0..10).map(|i| utterance(0, 10_000 + i, false)).collect();
    let cer = baseline_cer(&templates(1, false), &tests);
    assert!(cer < 0.15, "the recognizer itself is broken: CER {cer:.3}");
}

/// Matches whole stored utterances instead of words, which measures the result of memorizing alone.
#[test]
#[ignore = "a number for the record, half a minute long"]
fn whole_utterances_fail_too() {
    let stored: Vec<Utterance> = (0..150).map(|i| utterance(i as usize % 24, i, true)).collect();
    let guess = |i: usize| {
        let test = utterance(100 + i, 10_000 + i as u64, true);
        let cost = |stored: &&Utterance| warped(&test.frames, &stored.frames);
        let nearest = stored.iter().min_by(|a, b| cost(a).total_cmp(&cost(b))).unwrap();
        (test.text(), nearest.text())
    };
    let cer = pooled_cer(&(0..30).into_par_iter().map(guess).collect::<Vec<_>>());
    println!("whole stored utterances, unseen voices: CER {cer:.3}");
    assert!(cer > 0.60, "{cer:.3}");
}

/// Computes the cost of warping one utterance onto another, divided by the total number of frames; a step in both
/// utterances costs double.
fn warped(a: &[Frame], b: &[Frame]) -> f32 {
    let mut row = vec![f32::MAX; b.len() + 1];
    row[0] = 0.0;
    for a in a {
        let mut diagonal = std::mem::replace(&mut row[0], f32::MAX);
        for (j, b) in b.iter().enumerate() {
            let here = distance(a, b);
            let cost = (diagonal + 2.0 * here).min(row[j] + here).min(row[j + 1] + here);
            diagonal = std::mem::replace(&mut row[j + 1], cost);
        }
    }
    row[b.len()] / (a.len() + b.len()) as f32
}
