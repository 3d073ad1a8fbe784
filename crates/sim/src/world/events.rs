//! What happened in a world, as lines of text: what two runs of one seed must agree on, and what a person reads of a failed one.

use std::io::Write as _;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use protocol::hash::{Hash, Preimage, sha256};

/// The lines of a failed run that its panic shows.
const LINES_SHOWN: usize = 60;

#[derive(Debug)]
struct Written {
    lines: Vec<String>,
    count: usize,
    digest: Hash,
}

/// The event log of a world.
#[derive(Debug)]
pub(crate) struct Events {
    written: Mutex<Written>,
    /// Lines that are kept; the digest covers all.
    kept_max: usize,
    /// Whether each line is told as it comes.
    prints: bool,
}

impl Events {
    pub(crate) fn new(kept_max: usize, prints: bool) -> Events {
        Events { written: Mutex::new(Written { lines: Vec::new(), count: 0, digest: [0; 32] }), kept_max, prints }
    }

    pub(crate) fn write(&self, elapsed: Duration, line: &str) {
        let line = format!("{:>9}.{:03} {line}", elapsed.as_millis(), elapsed.subsec_micros() % 1_000);
        if self.prints {
            // A reader that went away ends nothing.
            let _ = writeln!(std::io::stdout().lock(), "{line}");
        }
        let mut written = self.lock();
        written.count += 1;
        written.digest = sha256(&[&written.digest[..], line.as_bytes()].concat());
        if written.lines.len() >= self.kept_max.saturating_mul(2) {
            let surplus = written.lines.len() - self.kept_max;
            written.lines.drain(..surplus);
        }
        written.lines.push(line);
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        self.lock().lines.clone()
    }

    pub(crate) fn digest(&self) -> Hash {
        let written = self.lock();
        Preimage::new("nereus-delay-events\0").u64(written.count as u64).bytes(&written.digest).sha256()
    }

    pub(crate) fn tail(&self) -> String {
        let written = self.lock();
        let from = written.lines.len().saturating_sub(LINES_SHOWN);
        written.lines[from..].join("\n")
    }

    fn lock(&self) -> MutexGuard<'_, Written> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
