//! The load, the ledger and the check for a trouble that somebody else makes: a script says what becomes of the server while the
//! workers ask and consumers follow, and in the end the account has to close as after crash rounds.

use std::cell::Cell;
use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use anyhow::Context as _;
use client::http::HttpClient;
use futures_util::future::{Either, join, join_all, select};
use tokio::time::timeout;

use super::load::Round;
use super::reader::Followers;
use super::topics::Topics;
use super::{CONFIG, Report, Run, SHARDS, Scene};
use crate::process::{ServerOptions, ServerProcess};

/// How long a script and the requests beside it may take: far beyond what any does.
const SCRIPT_LIMIT: Duration = Duration::from_secs(180);

/// One server's load and account, over as many lives and troubles as a script wants.
pub struct Trial {
    run: Run,
}

impl Trial {
    /// A trial of servers with these options. Without a configuration they get [`CONFIG`]; one of the caller's own keeps its
    /// limits.
    pub fn new(mut server: ServerOptions, seed: u64) -> Trial {
        if server.config.is_empty() {
            CONFIG.clone_into(&mut server.config);
        }
        server.shards = SHARDS;
        Trial { run: Run::new(seed, Scene::Embedded, 0, server, Topics::Embedded(Followers::default())) }
    }

    /// How its servers are started.
    pub fn options(&self) -> &ServerOptions {
        &self.run.server
    }

    /// From here on a record may be appended this much later behind its message's expiry: it was admitted before, and the
    /// server stood still.
    pub fn allow_late_appends(&mut self, by: Duration) {
        self.run.expiry_grace_ms += i64::try_from(by.as_millis()).unwrap_or(i64::MAX);
    }

    /// Runs a script beside the load, on a server that answers now. Whatever the script does to it: a worker that loses an
    /// answer has stopped by itself, and finds out at the next load what became of its request.
    ///
    /// # Errors
    /// When a server that is to answer does not, or script or load do not end.
    pub async fn under_load<T>(&mut self, client: &HttpClient, script: impl Future<Output = T>) -> anyhow::Result<T> {
        self.run.rounds += 1;
        if self.run.rounds == 1 {
            self.run.topics.create_destinations(client).await?;
        }
        self.run.verify(client).await?;
        let is_over = Cell::new(false);
        let round = Round {
            seed: self.run.seed,
            number: self.run.rounds,
            client,
            ledger: &self.run.ledger,
            is_over: &is_over,
            is_paused: false,
        };
        let script = async {
            let outcome = script.await;
            is_over.set(true);
            outcome
        };
        let work = join_all(self.run.workers.iter_mut().map(|worker| worker.work(&round)));
        let (outcome, _) = beside_followers(&self.run.topics, client, join(script, work)).await?;
        Ok(outcome)
    }

    /// Runs a script while consumers follow and nobody asks for anything.
    ///
    /// # Errors
    /// When the script does not end.
    pub async fn watched<T>(&self, client: &HttpClient, script: impl Future<Output = T>) -> anyhow::Result<T> {
        beside_followers(&self.run.topics, client, script).await
    }

    /// Waits until everything due is delivered or has ended, checks every promise, and stops the server. A broken promise is in
    /// the report, not an error.
    ///
    /// # Errors
    /// When the server does not answer or does not stop.
    pub async fn close(mut self, server: ServerProcess) -> anyhow::Result<Report> {
        self.run.finish(server).await
    }
}

/// Followers end with their server; when it lives on, they are left where they are.
async fn beside_followers<T>(
    topics: &Topics,
    client: &HttpClient,
    script: impl Future<Output = T>,
) -> anyhow::Result<T> {
    let both = async {
        match select(pin!(script), pin!(topics.follow(client))).await {
            Either::Left((outcome, _)) => outcome,
            Either::Right(((), script)) => script.await,
        }
    };
    timeout(SCRIPT_LIMIT, both).await.context("the script and its load do not end")
}
