//! Messages: taken, moved, cancelled, asked about.

pub(crate) mod change;
pub(crate) mod locate;
pub(crate) mod parse;
pub(crate) mod read;
mod refusal;
pub(crate) mod schedule;
pub(crate) mod submit;
pub(crate) mod view;
