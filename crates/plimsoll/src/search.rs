//! The flags that say how the best text is looked for, the same for every command that reads.

use std::num::NonZeroUsize;

use plimsoll_speech::asr::Search;

use plimsoll_recipes::Failure;

/// Flags that choose a search.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Search")]
pub(crate) struct SearchArgs {
    /// How the best text is looked for; greedy is the fastest, and the last three ask the attention decoder.
    #[arg(long, value_name = "NAME", value_parser = Search::NAMES, default_value = "greedy")]
    pub(crate) search: String,
    /// Texts that are kept at a time; greedy keeps one.
    #[arg(long, value_name = "N", default_value = "10")]
    pub(crate) width: NonZeroUsize,
    /// Share of CTC in the score of joint and rescore, from 0 to 1.
    #[arg(long, value_name = "SHARE", default_value_t = 0.3, allow_negative_numbers = true)]
    pub(crate) ctc_weight: f64,
    /// Added for each letter to the score of attention and joint; above 0, longer texts win more often.
    #[arg(long, value_name = "SCORE", default_value_t = 0.0, allow_negative_numbers = true)]
    pub(crate) length_bonus: f64,
}

impl SearchArgs {
    /// The search that the flags ask for.
    pub(crate) fn settle(&self) -> Result<Search, Failure> {
        if !(0.0..=1.0).contains(&self.ctc_weight) {
            let message = format!("`--ctc-weight` is {}, and a share from 0 to 1 was expected", self.ctc_weight);
            return Err(Failure::invalid(message, "0 listens to the decoder alone, 1 to CTC alone"));
        }
        if !self.length_bonus.is_finite() {
            let message = format!("`--length-bonus` is {}, and a number was expected", self.length_bonus);
            return Err(Failure::invalid(message, "0 favours no length"));
        }
        let search = Search::from_name(&self.search, self.width, self.ctc_weight, self.length_bonus);
        Ok(search.expect("the flag takes these names alone"))
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Program {
        #[command(flatten)]
        search: SearchArgs,
    }

    fn check(flags: &[&str], expected: Option<Search>) {
        let program = Program::try_parse_from(["plimsoll"].iter().chain(flags)).unwrap();
        assert_eq!(program.search.settle().ok(), expected, "{flags:?}");
    }

    #[test]
    fn flags_become_a_search() {
        let width = |n| NonZeroUsize::new(n).unwrap();
        check(&[], Some(Search::Greedy));
        check(&["--search", "prefix-beam", "--width", "3"], Some(Search::PrefixBeam { width: width(3) }));
        let joint = Search::Joint { width: width(10), ctc_weight: 0.3, length_bonus: -0.5 };
        check(&["--search", "joint", "--length-bonus", "-0.5"], Some(joint));
        for flags in
            [["--ctc-weight", "1.5"], ["--ctc-weight", "-1"], ["--ctc-weight", "NaN"], ["--length-bonus", "inf"]]
        {
            check(&flags, None);
        }
    }

    #[test]
    fn every_search_has_a_flag() {
        for name in Search::NAMES {
            let program = Program::try_parse_from(["plimsoll", "--search", name]).unwrap();
            assert!(program.search.settle().is_ok(), "{name}");
        }
        assert!(Program::try_parse_from(["plimsoll", "--search", "luck"]).is_err());
        assert!(Program::try_parse_from(["plimsoll", "--width", "0"]).is_err());
    }
}
