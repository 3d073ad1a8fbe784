//! Bodies of the five commands, in an envelope whose hash holds.

use protocol::command::CommandType;

use crate::input::Input;
use crate::{forge, record};

/// A command: one byte says which, the rest is its body.
pub fn command(input: &[u8]) {
    let mut input = Input::new(input);
    let command_type = CommandType::ALL[input.below(CommandType::ALL.len())];
    record::check(&forge::command(command_type, &input.rest_bytes(), None));
}
