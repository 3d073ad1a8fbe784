//! Servers of a world in which anything may stop or fail, and what holds of their services there.

pub(crate) mod source;
mod uncertain_appends;
pub(crate) mod world;
