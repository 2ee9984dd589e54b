//! Recordings of any length, cut where it is quiet into stretches that a model can hear at once.

use plimsoll_core::Seconds;

/// The longest stretch: what `data.max_seconds` lets a model hear in training when nobody says otherwise.
///
/// Attention over two hours at once would take hundreds of gigabytes, and no model has learned from the like.
const LONGEST: Seconds = Seconds(30.0);

/// How long it must be quiet: shorter than the pause between two words, longer than a closed consonant.
const PAUSE: Seconds = Seconds(0.1);

/// All of `samples`, in order, in stretches no longer than [`LONGEST`].
pub(super) fn stretches(samples: &[f32], rate: u32) -> Vec<&[f32]> {
    let most = count(LONGEST, rate);
    let (mut cut, mut rest) = (Vec::new(), samples);
    while rest.len() > most {
        let (stretch, after) = rest.split_at(quietest(&rest[..most], count(PAUSE, rate)));
        cut.push(stretch);
        rest = after;
    }
    cut.push(rest);
    cut
}

fn count(time: Seconds, rate: u32) -> usize {
    ((time.0 * f64::from(rate)) as usize).max(1)
}

/// The middle of the quietest `pause` samples in the second half of `samples`.
fn quietest(samples: &[f32], pause: usize) -> usize {
    let loudness = |start: usize| samples[start..start + pause].iter().map(|x| x * x).sum::<f32>();
    let starts = (samples.len() / 2..=samples.len() - pause).step_by(pause.div_ceil(4));
    let quietest = starts.map(|start| (loudness(start), start)).min_by(|a, b| a.0.total_cmp(&b.0));
    quietest.map_or(samples.len(), |(_, start)| start + pause.div_ceil(2))
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: u32 = 1000;

    /// So many seconds of a steady tone.
    fn tone(seconds: usize) -> Vec<f32> {
        (0..seconds * RATE as usize).map(|i| if i % 2 == 0 { 0.5 } else { -0.5 }).collect()
    }

    #[test]
    fn what_is_short_enough_stays_whole() {
        for seconds in [0, 1, 30] {
            let samples = tone(seconds);
            assert_eq!(stretches(&samples, RATE), [samples.as_slice()]);
        }
    }

    #[test]
    fn long_ones_are_cut_in_the_pause() {
        let mut samples = tone(50);
        samples[21_000..21_300].fill(0.0);
        let cut = stretches(&samples, RATE);
        assert_eq!(cut.len(), 2);
        assert!((21_000..21_300).contains(&cut[0].len()), "{}", cut[0].len());
        assert_eq!(cut.concat(), samples);
    }

    #[test]
    fn hours_lose_no_sample() {
        let samples = tone(2 * 3600);
        let cut = stretches(&samples, RATE);
        assert!(cut.iter().all(|stretch| !stretch.is_empty() && stretch.len() <= 30_000));
        assert_eq!(cut.iter().map(|stretch| stretch.len()).sum::<usize>(), samples.len());
    }
}
