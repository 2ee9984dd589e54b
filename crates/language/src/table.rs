//! A model as it lies in memory and in its file: sorted arrays that are searched where they lie.
//!
//! The n-grams of an order are sorted from their last word to their first. So the n-grams that end with a shorter one
//! lie side by side, and the shorter one has the place where they begin. A lookup goes from the new word back through
//! the context and searches one such stretch by halving at each step. Compared with hash tables this takes some more
//! steps for frequent words, but the file has no empty places, needs no hashes of 8 bytes, can list its n-grams, and is
//! the same for the same n-grams.

use std::sync::Arc;

use crate::bytes::ModelBytes;
use crate::layout::{Layout, PLACE, UNIGRAM};
use crate::ngrams::{Entry, ModelData, NgramList, NgramTable};
use crate::quantize::{CODES, Codebook, Quantization};
use crate::state::ORDER_MAX;
use crate::vocabulary::Vocabulary;

/// N-grams in the layout of a model file.
#[derive(Debug)]
pub(crate) struct Table {
    bytes: Arc<ModelBytes>,
    layout: Layout,
    places: [u64; ORDER_MAX],
    codes: u64,
}

impl Table {
    pub(crate) fn new(bytes: Arc<ModelBytes>, layout: Layout) -> Self {
        let (places, codes, _) = layout.places().expect("the layout was checked when it was made");
        Self { bytes, layout, places, codes }
    }

    /// Returns the place of an n-gram of `length` words.
    fn at(&self, length: usize, index: u64) -> u64 {
        self.places[length - 1].saturating_add(index.saturating_mul(self.layout.record(length)))
    }

    /// Finds the n-gram of `length` words that extends `shorter` by `word`.
    fn find(&self, length: usize, word: u32, shorter: &Entry) -> Option<u64> {
        let (mut low, mut high) = (shorter.begin, shorter.end.min(self.layout.counts[length - 1]));
        while low < high {
            let middle = low.midpoint(high);
            match self.bytes.u32(self.at(length, middle)).cmp(&word) {
                std::cmp::Ordering::Equal => return Some(middle),
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Greater => high = middle,
            }
        }
        None
    }

    /// Reads a number at `at`; its codes are in the table of the given number.
    fn number(&self, at: u64, codebook: usize) -> f32 {
        if !self.layout.is_quantized {
            return self.bytes.f32(at);
        }
        let code = u64::from(self.bytes.u8(at));
        self.bytes.f32(self.codes + (codebook * CODES) as u64 * 4 + code * 4)
    }

    fn prob(&self, length: usize, index: u64) -> f32 {
        self.number(self.at(length, index) + 4, 2 * (length - 2))
    }

    fn entry(&self, length: usize, index: u64) -> Entry {
        let (at, number) = (self.at(length, index), self.layout.number());
        let place = at + 4 + 2 * number;
        let (begin, end) = (self.bytes.u40(place), self.bytes.u40(place + self.layout.record(length)));
        let backoff = self.number(at + 4 + number, 2 * (length - 2) + 1);
        Entry { prob: self.prob(length, index), backoff, begin, end, extends: begin < end }
    }

    /// Adds the n-grams that end with `newest_first` to the lists.
    fn collect(&self, newest_first: &mut Vec<u32>, shorter: &Entry, lists: &mut [NgramList]) {
        let length = newest_first.len() + 1;
        if length > self.layout.order {
            return;
        }
        for index in shorter.begin..shorter.end.min(self.layout.counts[length - 1]) {
            newest_first.push(self.bytes.u32(self.at(length, index)));
            let list = &mut lists[length - 2];
            if length == self.layout.order {
                list.push(newest_first.iter().copied(), self.prob(length, index), None);
            } else {
                let entry = self.entry(length, index);
                list.push(newest_first.iter().copied(), entry.prob, Some(entry.backoff));
                self.collect(newest_first, &entry, lists);
            }
            newest_first.pop();
        }
    }
}

impl NgramTable for Table {
    fn unigram(&self, word: u32) -> Entry {
        let at = self.places[0] + u64::from(word) * UNIGRAM;
        let (begin, end) = (self.bytes.u40(at + 8), self.bytes.u40(at + 8 + UNIGRAM));
        let (prob, backoff) = (self.bytes.f32(at), self.bytes.f32(at + 4));
        Entry { prob, backoff, begin, end, extends: begin < end }
    }

    fn longer(&self, length: usize, word: u32, shorter: &Entry) -> Option<Entry> {
        self.find(length, word, shorter).map(|index| self.entry(length, index))
    }

    fn longest(&self, word: u32, shorter: &Entry) -> Option<f32> {
        self.find(self.layout.order, word, shorter).map(|index| self.prob(self.layout.order, index))
    }

    fn list(&self) -> Option<Vec<NgramList>> {
        let mut lists: Vec<NgramList> = (2..=self.layout.order).map(NgramList::new).collect();
        for word in 0..self.layout.counts[0] as u32 {
            self.collect(&mut vec![word], &self.unigram(word), &mut lists);
        }
        Some(lists)
    }
}

/// Lays out a model whose n-grams are complete and sorted: the bytes of a whole file.
pub(crate) fn encode(data: &ModelData, quantization: Quantization) -> Vec<u8> {
    let mut counts = [0; ORDER_MAX];
    counts[0] = data.words.len() as u64;
    for (count, list) in counts[1..].iter_mut().zip(&data.longer) {
        *count = list.len() as u64;
    }
    let order = 1 + data.longer.len();
    let text_len = data.words.iter().map(|word| word.len() as u64).sum();
    let is_quantized = quantization == Quantization::Bits8;
    let layout = Layout { order, is_quantized, characters: data.characters, counts, text_len };
    let mut body = Vec::new();
    Vocabulary::encode(&data.words, &mut body);
    let singles: Vec<u32> = (0..data.words.len() as u32).collect();
    let ends = ends(1, &singles, data.longer.first());
    for (index, place) in ends.iter().enumerate() {
        let (prob, backoff) = data.unigrams.get(index).copied().unwrap_or_default();
        body.extend(prob.to_le_bytes());
        body.extend(backoff.to_le_bytes());
        body.extend(&place.to_le_bytes()[..PLACE as usize]);
    }
    let mut codes = Vec::new();
    for (index, list) in data.longer.iter().enumerate() {
        encode_list(list, data.longer.get(index + 1), is_quantized, &mut body, &mut codes);
    }
    body.extend(codes);
    let mut file = layout.header(&body);
    file.append(&mut body);
    file
}

/// Computes where the n-grams of `longer` begin that end with each of `grams`, n-grams of `order` words, and the end of
/// the last.
fn ends(order: usize, grams: &[u32], longer: Option<&NgramList>) -> Vec<u64> {
    let mut places = vec![0u64];
    let mut at = 0;
    for gram in grams.chunks(order) {
        if let Some(longer) = longer {
            while at < longer.len() && &longer.gram(at)[..order] == gram {
                at += 1;
            }
        }
        places.push(at as u64);
    }
    places
}

fn encode_list(
    list: &NgramList,
    longer: Option<&NgramList>,
    is_quantized: bool,
    body: &mut Vec<u8>,
    codes: &mut Vec<u8>,
) {
    let probs = is_quantized.then(|| Codebook::for_probs(&list.probs));
    let backoffs = longer.filter(|_| is_quantized).map(|_| Codebook::for_backoffs(&list.backoffs));
    for book in [&probs, &backoffs].into_iter().flatten() {
        codes.extend(book.means.iter().flat_map(|mean| mean.to_le_bytes()));
    }
    let number = |value: f32, book: &Option<Codebook>, body: &mut Vec<u8>| match book {
        Some(book) => body.push(book.code(value)),
        None => body.extend(value.to_le_bytes()),
    };
    let places = longer.map(|longer| ends(list.order, &list.words, Some(longer)));
    for index in 0..=list.len() {
        // The record behind the last only closes the list.
        let is_last = index == list.len();
        let word = if is_last { 0 } else { list.gram(index)[list.order - 1] };
        body.extend(word.to_le_bytes());
        number(if is_last { 0.0 } else { list.probs[index] }, &probs, body);
        if let Some(places) = &places {
            number(if is_last { 0.0 } else { list.backoffs[index] }, &backoffs, body);
            body.extend(&places[index].to_le_bytes()[..PLACE as usize]);
        }
    }
}
