//! The host's clock, in one place: what an observer outside the server holds against the times that the server states.

use std::time::{SystemTime, UNIX_EPOCH};

/// Milliseconds since 1970 by the host's clock.
#[expect(clippy::disallowed_methods, reason = "an observer needs a clock that is not the server's")]
pub fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}
