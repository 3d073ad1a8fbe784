//! What must hold of any bytes: one function for each decoder of bytes that others may have written.
//!
//! A target takes an input, decodes it and panics when something does not hold that users depend on: nothing panics, what
//! decodes encodes to the same bytes again, what is refused is refused with a short error, and the shard says what the model
//! says. `tests/seeds.rs` plays the committed seeds and random changes of them; `dev/fuzz` looks for more with a fuzzer.
//!
//! Check sums, hashes and signatures would stop nearly every changed input at the first look. So most targets also put the input
//! where a sound frame has it: [`forge`] computes what stands around it.

mod body;
mod command;
pub mod forge;
mod header;
mod input;
mod log;
mod mutation;
mod receipt;
mod record;
mod row;
mod value;

pub use body::body;
pub use command::command;
pub use header::header;
pub use log::log;
pub use mutation::mutation;
pub use receipt::receipt;
pub use record::record;
pub use row::row;
pub use value::value;

/// One target.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Its name, and the folder of its seeds in `testdata/fuzz`.
    pub name: &'static str,
    /// Plays one input.
    pub run: fn(&[u8]),
}

/// Every target, ascending by name.
pub const TARGETS: [Target; 9] = [
    Target { name: "body", run: body },
    Target { name: "command", run: command },
    Target { name: "header", run: header },
    Target { name: "log", run: log },
    Target { name: "mutation", run: mutation },
    Target { name: "receipt", run: receipt },
    Target { name: "record", run: record },
    Target { name: "row", run: row },
    Target { name: "value", run: value },
];

/// The target of this name.
#[must_use]
pub fn target(name: &str) -> Option<Target> {
    TARGETS.into_iter().find(|target| target.name == name)
}

/// Errors are shown to people and kept in logs: no input may make one long.
const ERROR_BYTES_MAX: usize = 1_024;

/// Holds the text of an error to its limit.
fn check_error(error: &impl std::fmt::Display) {
    let text = error.to_string();
    assert!(text.len() <= ERROR_BYTES_MAX, "an error of {} bytes: {text}", text.len());
}
