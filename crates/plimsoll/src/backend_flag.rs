//! The flag `--backend` of the commands that run no model.

use clap::Args;

/// Every command accepts `--backend`, so that scripts and `cargo xtask` can give it anywhere.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
pub(crate) struct BackendFlag {
    /// Has no effect: this command runs no model. Accepted so that every command takes the flag.
    #[arg(long = "backend", value_name = "NAME", value_parser = ["auto", "cpu", "cuda", "wgpu"], hide = true)]
    _backend: Option<String>,
}
