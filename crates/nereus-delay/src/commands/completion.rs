//! Completion scripts.

use std::io;

use clap::CommandFactory as _;

use crate::cli::{Cli, CompletionArgs};
use crate::failure::Failure;

/// Writes the script of a shell to standard output.
pub(super) fn write(args: &CompletionArgs) -> Result<(), Failure> {
    clap_complete::generate(args.shell, &mut Cli::command(), "nereus-delay", &mut io::stdout().lock());
    Ok(())
}
