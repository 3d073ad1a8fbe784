//! Ends a run early without leaving its server behind: dropped, the run kills what it started.

use anyhow::bail;
use tokio::signal::unix::{SignalKind, signal};

/// What `run` comes to, unless SIGINT or SIGTERM comes first.
///
/// # Errors
/// Those of `run`; and the signal that ended it.
pub async fn unless_interrupted<T>(run: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    tokio::select! {
        biased;
        result = run => result,
        _ = interrupt.recv() => bail!("interrupted; the server that was started is killed"),
        _ = terminate.recv() => bail!("told to end; the server that was started is killed"),
    }
}
