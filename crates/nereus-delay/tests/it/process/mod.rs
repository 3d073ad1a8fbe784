//! Troubles of the machine, on the release binary and under load: what callers and operators see of each, and that the account
//! closes behind it. accepted = published + canceled + expired + dead-lettered + pending, nothing early, nothing twice unsaid.

mod clock_steps;
mod damage;
mod downgrade;
mod files;
mod full_disk;
mod kills;
mod pause;

use std::time::Duration;

use harness::console::say;
use harness::crash::{Report, Trial};
use harness::process::{ServerOptions, ServerProcess};
use tempfile::TempDir;
use tokio::time::Instant;

use crate::world::{Http, LIMIT, pause};

/// How long the load works where nothing else says when it ends.
const LOAD: Duration = Duration::from_secs(1);

/// A load and its account, in a folder of its own.
struct Stage {
    seed: u64,
    trial: Trial,
    folder: TempDir,
}

impl Stage {
    /// Servers of the load's own configuration.
    fn new() -> Stage {
        Stage::with(|_| ())
    }

    /// Servers with other options.
    fn with(set: impl FnOnce(&mut ServerOptions)) -> Stage {
        let folder = tempfile::tempdir().expect("a folder");
        let mut options = ServerOptions::new(env!("CARGO_BIN_EXE_nereus-delay"), folder.path());
        set(&mut options);
        let seed = u64::from(fastrand::u32(..));
        say(&format!("the seed of this load is {seed}"));
        Stage { seed, trial: Trial::new(options, seed), folder }
    }

    fn options(&self) -> ServerOptions {
        self.trial.options().clone()
    }

    /// A server that is ready.
    async fn start(&self) -> ServerProcess {
        ServerProcess::start_ready(self.trial.options()).await.expect("a server")
    }

    /// Puts a healthy server under load for a while.
    async fn load(&mut self, server: &ServerProcess) {
        let loaded = self.trial.under_load(server.client(), pause(LOAD)).await;
        loaded.unwrap_or_else(|error| panic!("seed {}: {error:#}", self.seed));
    }

    /// A second of load on a healthy server, and the check of everything since the beginning.
    async fn close(mut self, server: ServerProcess) -> Report {
        self.load(&server).await;
        let Stage { seed, trial, folder } = self;
        let options = trial.options().clone();
        let closed = trial.close(server).await;
        let report =
            closed.unwrap_or_else(|error| panic!("seed {seed}: {error:#}; the servers said:\n{}", said(&options)));
        if !report.violations.is_empty() {
            panic!("seed {seed}, in {}:\n{}", folder.keep().display(), report.violation_lines());
        }
        let account = &report.account;
        assert_eq!(account.accepted(), account.accounted(), "seed {seed}: {}", report.table());
        assert!(account.published > 0 && account.answered > 0, "seed {seed}: {}", report.table());
        report
    }
}

/// Everything the servers of these options said to people.
fn said(options: &ServerOptions) -> String {
    std::fs::read_to_string(options.log()).expect("a log")
}

/// What a metric stands at.
async fn metric(http: &Http, name: &str) -> f64 {
    let metrics = http.get("/metrics").await.expect(200);
    let text = metrics.body.as_str().expect("text");
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("no {name} in {text}"))
}

/// Waits until a condition holds; only the far limit of every wait ends it otherwise.
async fn wait_until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + LIMIT;
    while !holds().await {
        assert!(Instant::now() < deadline, "{what} does not come");
        pause(Duration::from_millis(20)).await;
    }
}
