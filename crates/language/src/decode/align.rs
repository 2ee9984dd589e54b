//! The frames in which the tokens of a text are said.

/// Finds the first and the last frame of each token on the likeliest CTC path that reads as `tokens`.
///
/// `log_probs` has a row of `n_tokens` for each frame. Nothing if there are too few frames.
pub(super) fn align(log_probs: &[f32], n_tokens: usize, tokens: &[u32]) -> Option<Vec<(usize, usize)>> {
    // States: a blank before each token and behind the last, and the tokens: 0, 2, 4 are blanks.
    let n_states = 2 * tokens.len() + 1;
    let n_frames = log_probs.len() / n_tokens;
    let token = |state: usize| if state.is_multiple_of(2) { 0 } else { tokens[state / 2] };
    let mut scores = vec![f64::NEG_INFINITY; n_states];
    // How many states back the best path to each state comes from, for each frame.
    let mut steps = vec![0u8; n_frames * n_states];
    for (frame, row) in log_probs.chunks(n_tokens).enumerate() {
        let before = std::mem::replace(&mut scores, vec![f64::NEG_INFINITY; n_states]);
        for state in 0..n_states {
            let mut best = (if frame == 0 && state <= 1 { 0.0 } else { before[state] }, 0);
            // Two equal tokens need a blank between them.
            let may_skip = state % 2 == 1 && state > 1 && token(state) != token(state - 2);
            for step in 1..=(1 + usize::from(may_skip)).min(state) {
                if before[state - step] > best.0 {
                    best = (before[state - step], step as u8);
                }
            }
            let log_prob = row[token(state) as usize];
            scores[state] = best.0 + f64::from(if log_prob.is_nan() { f32::NEG_INFINITY } else { log_prob });
            steps[frame * n_states + state] = best.1;
        }
    }
    let ends_in_token = n_states > 1 && scores[n_states - 2] > scores[n_states - 1];
    let mut state = n_states - 1 - usize::from(ends_in_token);
    if scores[state] == f64::NEG_INFINITY {
        return None;
    }
    let mut frames = vec![(usize::MAX, 0); tokens.len()];
    for frame in (0..n_frames).rev() {
        if state % 2 == 1 {
            let (first, last) = &mut frames[state / 2];
            *first = frame;
            *last = frame.max(*last);
        }
        state -= usize::from(steps[frame * n_states + state]);
    }
    Some(frames)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(likeliest: &[u32], tokens: &[u32], expected: &[(usize, usize)]) {
        let row = |&token: &u32| (0..3).map(move |other| if other == token { -0.1f32 } else { -4.0 });
        let log_probs: Vec<f32> = likeliest.iter().flat_map(row).collect();
        assert_eq!(align(&log_probs, 3, tokens).as_deref(), Some(expected), "{likeliest:?}");
    }

    #[test]
    fn finds_the_frames_of_the_likeliest_path() {
        check(&[0, 1, 1, 0, 2, 0], &[1, 2], &[(1, 2), (4, 4)]);
        check(&[1, 1, 0, 1, 1, 2], &[1, 1, 2], &[(0, 1), (3, 4), (5, 5)]);
        check(&[0, 0], &[], &[]);
        check(&[0, 2], &[2], &[(1, 1)]);
    }

    #[test]
    fn too_few_frames_have_no_path() {
        assert_eq!(align(&[-1.0; 6], 3, &[1, 1]), None);
        assert_eq!(align(&[], 3, &[1]), None);
        assert_eq!(align(&[], 3, &[]), None);
    }
}
