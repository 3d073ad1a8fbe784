//! Asking before something is done that people may regret.

use std::io::{self, IsTerminal as _};

use crate::failure::{Exit, Failure};
use crate::output::say;

/// Says what will be done, and has it agreed to: by `--yes`, or by an answer at a terminal.
///
/// # Errors
/// When it is not agreed to.
pub(super) fn confirm(what: &str, yes: bool) -> Result<(), Failure> {
    say(what);
    if yes {
        return Ok(());
    }
    if !io::stdin().is_terminal() {
        return Err(Failure::usage("nothing was done; pass --yes to do it"));
    }
    say("Go on? [y/N]");
    let mut answer = String::new();
    io::stdin().read_line(&mut answer)?;
    match answer.trim() {
        "y" | "Y" | "yes" => Ok(()),
        _ => Err(Failure::new(Exit::Failed, "nothing was done")),
    }
}
