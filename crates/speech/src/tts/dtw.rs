//! Distance between two utterances by dynamic time warping.

/// Computes the distance between two utterances by dynamic time warping, which removes differences of speed. 0 means
/// equal.
///
/// `a` and `b` are log-mels with `width` features a frame. Each step of the warping path advances one utterance or both
/// utterances, and costs the mean absolute difference of the frames that it reaches. The cost of the cheapest path is
/// divided by the number of frames of the longer utterance, so that a slower utterance is not closer. The distance from
/// an empty utterance is infinite.
///
/// ```
/// use plimsoll_speech::tts::dtw_distance;
///
/// assert_eq!(dtw_distance(&[0.0, 0.0, 5.0, 5.0], &[0.0, 5.0], 1), 0.0);
/// ```
pub fn dtw_distance(a: &[f32], b: &[f32], width: usize) -> f64 {
    let frames = |x: &[f32]| x.len() / width;
    let (n, m) = (frames(a), frames(b));
    if n == 0 || m == 0 {
        return f64::INFINITY;
    }
    let distance = |i: usize, j: usize| {
        let pairs = a[i * width..(i + 1) * width].iter().zip(&b[j * width..(j + 1) * width]);
        f64::from(pairs.map(|(x, y)| (x - y).abs()).sum::<f32>()) / width as f64
    };
    // One row of the table at a time: the cost of the cheapest path to each pair of frames.
    let mut previous = vec![f64::INFINITY; m];
    for i in 0..n {
        let mut row = vec![f64::INFINITY; m];
        for j in 0..m {
            let left = if j > 0 { row[j - 1] } else { f64::INFINITY };
            let diagonal = if j > 0 { previous[j - 1] } else { f64::INFINITY };
            let start = if i == 0 && j == 0 { 0.0 } else { f64::INFINITY };
            row[j] = distance(i, j) + start.min(left).min(diagonal).min(previous[j]);
        }
        previous = row;
    }
    previous[m - 1] / n.max(m) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speed_costs_nothing_and_another_sound_does() {
        let slow = [0.0, 0.0, 0.0, 5.0, 5.0, 1.0, 1.0, 1.0];
        let fast = [0.0, 5.0, 1.0];
        assert_eq!(dtw_distance(&slow, &fast, 1), 0.0);
        assert_eq!(dtw_distance(&fast, &fast, 1), 0.0);
        // Three of eight frames are four off.
        assert_eq!(dtw_distance(&slow, &[0.0, 5.0, 5.0], 1), 3.0 * 4.0 / 8.0);
        assert_eq!(dtw_distance(&[1.0, 3.0], &[2.0, 2.0], 2), 1.0);
        assert!(dtw_distance(&[], &fast, 1).is_infinite());
    }
}
