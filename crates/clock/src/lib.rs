//! The only clock of the system.
//!
//! A delayed message must never be early, so nobody here asks what time *it is*: they ask for an interval that contains the
//! true time ([`TrustedInterval`]) and decide with the bound that can only make them later. [`TrustedUtc`] is the guard that
//! hands such intervals out, or says why it cannot; [`TrustedClock`] feeds it from a [`ClockSource`]: the machine's clock
//! ([`SystemClock`]) or one that a test or the simulator owns ([`VirtualClock`]).
//!
//! Wall times are UTC milliseconds since 1970 at the surface and microseconds inside; monotonic readings are [`Duration`]s
//! since an arbitrary origin of the machine. Every rounding is outward.
//!
//! [`Duration`]: std::time::Duration

mod guard;
mod interval;
mod options;
mod source;
mod system;
mod trusted;
mod virtual_clock;

pub use guard::{Reading, TrustedUtc, Unqualified};
pub use interval::TrustedInterval;
pub use options::{ClockOptions, ClockOptionsError};
pub use source::{ClockSource, Sample};
pub use system::{SystemClock, SystemClockOptions};
pub use trusted::{ClockStatus, TrustedClock};
pub use virtual_clock::{VirtualClock, VirtualTime};
