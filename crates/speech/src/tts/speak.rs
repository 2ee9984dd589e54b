//! Speaking freely: step after step from what was said before, until it says that it is done.

use burn::tensor::{Tensor, TensorData};
use plimsoll_core::{Key, SampleId};
use plimsoll_layers::Lengths;
use plimsoll_tape::{Noise, Pass};

use super::Synthesiser;

// Shapes: b texts, r frames of a step, t frames, f features, v width of a voice.

/// What a synthesiser said of a text.
#[derive(Clone, Debug, PartialEq)]
pub struct Spoken {
    /// Log-mels, frame after frame.
    pub mels: Vec<f32>,
    /// The same before the postnet: what each step knew of those before it.
    pub rough: Vec<f32>,
    /// How it came to its end.
    pub ending: Ending,
}

/// How a synthesiser came to the end of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// It said that it was done.
    Stopped,
    /// It was cut off at the longest that the text can take.
    CutOff,
}

/// A text that is being said.
struct Saying {
    /// Its place among all texts.
    place: usize,
    id: SampleId,
    /// The fewest and the most frames.
    guards: [usize; 2],
}

impl Saying {
    /// Whether it has come to its end, with so many frames said and these odds of a stop.
    fn ending(&self, frames: usize, stop: f32) -> Option<Ending> {
        let [fewest, most] = self.guards;
        match stop > 0.0 && frames >= fewest {
            true => Some(Ending::Stopped),
            false => (frames >= most).then_some(Ending::CutOff),
        }
    }
}

impl Synthesiser {
    /// Says `texts`, tokens each, in `voices` `[b, 1, v]`, all at the same time.
    ///
    /// What the prenet forgets follows from `key` and from the `ids` of the texts: the same say the same, whatever else
    /// is said with them. The model should be off the tape. Every step takes as long as any other, but for attention,
    /// which looks back at all of them.
    ///
    /// # Panics
    /// Where there is not one id and one voice for each text.
    pub fn speak(&self, texts: &[Vec<u32>], ids: &[SampleId], voices: Tensor<3>, key: Key) -> Vec<Spoken> {
        assert!(texts.len() == ids.len() && texts.len() == voices.dims()[0], "an id and a voice for each text");
        if texts.is_empty() {
            return Vec::new();
        }
        let ended = self.say(texts, ids, voices, key);
        let fine = self.refined(&ended);
        let outward = |values: Vec<f32>| -> Vec<f32> {
            let scale = self.config().scale;
            values.into_iter().map(|x| x * scale.spread + scale.centre).collect()
        };
        let spoken = |((rough, ending), mels)| Spoken { mels: outward(mels), rough: outward(rough), ending };
        ended.into_iter().zip(fine).map(spoken).collect()
    }

    /// The frames of each text before the postnet, in the model's scale, and how it came to its end.
    fn say(&self, texts: &[Vec<u32>], ids: &[SampleId], voices: Tensor<3>, key: Key) -> Vec<(Vec<f32>, Ending)> {
        let pass = &self.by(&Pass::plain());
        let text = self.read(texts, pass);
        let mut memory = self.decoder.begin(&text, voices, pass);
        let f = self.config().features;
        let mut said: Vec<(Vec<f32>, Ending)> = vec![(Vec::new(), Ending::CutOff); texts.len()];
        let saying = |(place, text): (usize, &Vec<u32>)| {
            let guards = self.config().pace.guards(text.len());
            Saying { place, id: ids[place], guards }
        };
        let mut saying: Vec<Saying> = texts.iter().enumerate().map(saying).collect();
        let mut last = Tensor::<3>::zeros([texts.len(), 1, f], &text.tokens.device());
        while !saying.is_empty() {
            let forgetting = Noise::new(key, &saying.iter().map(|each| each.id).collect::<Vec<_>>());
            let (frames, stop) = self.decoder.extend(last, &mut memory, &forgetting, pass);
            let [b, r, _] = frames.dims();
            last = frames.clone().narrow(1, r - 1, 1);
            let [values, stops]: [Vec<f32>; 2] =
                [frames.into_data(), stop.into_data()].map(|data| data.try_into_vec().expect("they are in fp32"));
            let mut left = Vec::with_capacity(b);
            for (row, each) in saying.iter().enumerate() {
                let (all, ending) = &mut said[each.place];
                all.extend_from_slice(&values[row * r * f..(row + 1) * r * f]);
                match each.ending(all.len() / f, stops[row]) {
                    Some(end) => *ending = end,
                    None => left.push(row),
                }
            }
            if left.len() < b {
                let rows: Vec<i32> = left.iter().map(|&row| row as i32).collect();
                let mut row = 0..;
                saying.retain(|_| row.next().is_some_and(|row| left.contains(&row)));
                if !left.is_empty() {
                    memory.select(&left);
                    last = last.clone().select(0, Tensor::from_ints(rows.as_slice(), &last.device()));
                }
            }
        }
        said
    }

    /// The frames of each text as the postnet leaves them.
    fn refined(&self, said: &[(Vec<f32>, Ending)]) -> Vec<Vec<f32>> {
        if self.postnet.is_none() {
            return said.iter().map(|(rough, _)| rough.clone()).collect();
        }
        let f = self.config().features;
        let lengths: Vec<u32> = said.iter().map(|(rough, _)| (rough.len() / f) as u32).collect();
        let width = lengths.iter().copied().max().unwrap_or(1).max(1) as usize;
        let padded = |(rough, _): &(Vec<f32>, Ending)| -> Vec<f32> {
            rough.iter().copied().chain(std::iter::repeat(0.0)).take(width * f).collect()
        };
        let rows: Vec<f32> = said.iter().flat_map(padded).collect();
        let device = burn::module::Module::devices(self).into_iter().next().expect("a model has parameters");
        let rough = Tensor::<3>::from_data(TensorData::new(rows, [said.len(), width, f]), &device);
        let fine = self.finer(rough, &Lengths::new(lengths.clone(), width), &Pass::plain());
        let values: Vec<f32> = fine.into_data().try_into_vec().expect("frames are in fp32");
        let cut = |(row, length): (&[f32], u32)| row[..length as usize * f].to_vec();
        values.chunks_exact(width * f).zip(lengths).map(cut).collect()
    }
}
