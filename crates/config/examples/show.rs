//! Prints a configuration with the origin of each value: `cargo run -p plimsoll-config --example show -- FILE.toml`.

use std::process::ExitCode;

use plimsoll_config::{ConfigArgs, load, to_toml};
use plimsoll_core::Bytes;

fn main() -> ExitCode {
    let args = ConfigArgs { config: std::env::args_os().nth(1).map(Into::into), ..ConfigArgs::default() };
    match load(&args, std::env::vars(), &|| Bytes::gib(8)) {
        Ok(loaded) => {
            print!("{}", to_toml(&loaded));
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{:?}", miette::Report::new(error));
            ExitCode::FAILURE
        }
    }
}
