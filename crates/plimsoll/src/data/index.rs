//! `plimsoll data index`: makes the index of a long list.

use std::process::ExitCode;

use plimsoll_config::invocation::command;
use plimsoll_core::{Bytes, counted, error_chain};
use plimsoll_data::utterances::{IndexError, ListIndex, index_list};
use plimsoll_recipes::{Failure, FailureExt, load_run};
use serde_json::json;

use super::args::IndexArgs;
use crate::environment;
use crate::terminal::{Terminal, spinner};

/// Makes the index of the list that `args` name, and prints its file.
pub(super) fn run(args: &IndexArgs) -> Result<ExitCode, Failure> {
    let config = load_run(&args.config, environment(), &Terminal)?.config;
    let list = args.list.clone().or(config.data.manifest);
    let list = list.ok_or_else(|| Failure::invalid("the list is missing", "give it, or its folder, as an argument"))?;
    let working = spinner("reading the list");
    let made = index_list(&list);
    working.finish_and_clear();
    let ListIndex { file, utterances, bytes } = match made {
        Err(error @ (IndexError::Incomplete { .. } | IndexError::NoList { .. })) => {
            let import = command(&format!("data import {} --out NEW", list.display()));
            return Err(Failure::invalid(error_chain(&error), format!("`{import}` writes a list of what can be used")));
        }
        Err(error @ IndexError::Taken(_)) => {
            return Err(Failure::invalid(error_chain(&error), "move that file away, or rename the list"));
        }
        Err(error @ IndexError::Changed(_)) => return Err(error).failed(),
        made => made.invalid()?,
    };
    if args.json {
        println!("{}", json!({"file": file, "utterances": utterances, "bytes": bytes}));
    } else {
        println!("{}: {}, {}", file.display(), counted(utterances, "utterance"), Bytes(bytes));
    }
    Ok(ExitCode::SUCCESS)
}
