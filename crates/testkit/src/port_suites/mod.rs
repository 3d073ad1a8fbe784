//! What every implementation of a port must do: [`log`], [`metadata`], [`destination`].
//!
//! Each suite takes a way to make a new, empty instance and panics at the first promise of `ports` that is not kept. It needs a
//! tokio runtime of any kind to wait on. Crashes, restarts and faults are not in it: they differ by implementation and are tested
//! where each is.

pub mod attempts;
pub mod destination;
pub mod log;
pub mod metadata;
