//! Crash rounds: the release binary is killed at random moments under load and started again on the same folder, and in the end
//! every promise is checked from outside, by what callers were answered, what consumers saw and what the service then says.
//!
//! [`ledger`] keeps what was asked and answered, [`load`] asks, [`reader`] consumes, [`check`] holds one against the other. The
//! workload follows from the seed; when exactly what happens is the machine's affair.

mod chance;
mod check;
mod content;
pub mod ledger;
mod load;
mod reader;
mod report;
#[cfg(test)]
mod tests;

use std::cell::{Cell, RefCell};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, bail};
use client::api::admin::ShardList;
use client::api::destination::{Destination, DestinationSpec, EmbeddedSpec};
use client::api::message::Counts;
use client::http::HttpClient;
use futures_util::future::{join, join_all};
use hyper::Method;
use tokio::time::{Instant, sleep_until, timeout};

use self::chance::stream;
pub use self::check::Account;
use self::check::{Evidence, check};
use self::ledger::{Ledger, Rule};
use self::load::{Round, Worker};
use self::reader::Followers;
pub use self::report::Report;
use crate::console::say;
use crate::process::{ServerOptions, ServerProcess};
use crate::run_folder::RunFolder;
use crate::wall_clock::now_ms;

/// A destination of the load.
struct TestDestination {
    name: &'static str,
    topic: &'static str,
    partitions: u32,
}

/// Out of so many rounds the second destination is paused in all but one.
const PAUSE_PERIOD: u64 = 4;
const DESTINATIONS: [TestDestination; 2] = [
    TestDestination { name: "alpha", topic: "alpha.due", partitions: 3 },
    TestDestination { name: "beta", topic: "beta.due", partitions: 2 },
];
const SHARDS: u32 = 3;
const WORKERS: u64 = 12;
/// The shortest expiry that the configuration below lets messages have, and a little more.
const EXPIRY_MS_MIN: i64 = 2_400;
/// Short expiries, so that some expire within a run; small memory and log, so that flushes and trims fall into the rounds.
const CONFIG: &str = "\
[clock]
uncertainty_max = \"200ms\"
[limits]
delivery_window_min = \"2300ms\"
[storage]
cache_bytes_max = \"32MiB\"
write_buffer_bytes_max = \"8MiB\"
log_bytes_max = \"1MiB\"
";
/// How long requests may take to notice that their server is gone.
const BREAK_OFF_LIMIT: Duration = Duration::from_secs(30);
/// How long everything due may take once nothing disturbs it any more.
const SETTLE_LIMIT: Duration = Duration::from_secs(60);
const SETTLE_PAUSE: Duration = Duration::from_millis(200);
/// The longest time from a request to the message's due time, far ones aside; and the clock's bound.
const HORIZON: Duration = Duration::from_millis(4_100);

/// What to run.
#[derive(Clone, Debug)]
pub struct Options {
    /// The program.
    pub binary: PathBuf,
    /// How often it is killed, kills during a start not counted.
    pub rounds: u64,
    /// What the workload follows from.
    pub seed: u64,
    /// Keep the folder of a good run too.
    pub keep: bool,
    /// Where the run's folder is made; where temporary files go, if not given.
    pub parent: Option<PathBuf>,
}

/// Runs the rounds and checks. A broken promise is in the report, not an error.
///
/// # Errors
/// When the run itself could not be carried out; the folder is kept then.
pub async fn run(options: &Options) -> anyhow::Result<Report> {
    let folder = RunFolder::new(options.parent.as_deref(), "crash")?;
    let mut server = ServerOptions::new(&options.binary, folder.path());
    server.config = CONFIG.to_owned();
    server.shards = SHARDS;
    let mut run = Run {
        seed: options.seed,
        rounds: options.rounds,
        server,
        ledger: RefCell::new(Ledger::default()),
        followers: Followers::default(),
        workers: (0..WORKERS).map(Worker::new).collect(),
        verified: 0,
        start_kills: 0,
        is_paused: false,
        started: Instant::now(),
    };
    let outcome = run.rounds_and_check().await;
    let mut report = match outcome {
        Ok(report) => report,
        Err(error) => {
            let kept = folder.keep();
            return Err(error.context(format!("the run broke off; its folder is {}", kept.display())));
        }
    };
    if options.keep || !report.violations.is_empty() {
        report.folder = Some(folder.keep());
    }
    Ok(report)
}

struct Run {
    seed: u64,
    rounds: u64,
    server: ServerOptions,
    ledger: RefCell<Ledger>,
    followers: Followers,
    workers: Vec<Worker>,
    /// Messages below this number were looked up after a restart.
    verified: u64,
    start_kills: u64,
    is_paused: bool,
    started: Instant,
}

impl Run {
    async fn rounds_and_check(&mut self) -> anyhow::Result<Report> {
        for number in 1..=self.rounds {
            self.round(number).await.with_context(|| format!("round {number}"))?;
        }
        let server = ServerProcess::start_ready(&self.server).await?;
        let account = self.settle(server.client()).await?;
        let status = server.stop().await?;
        let ledger = self.ledger.get_mut();
        if !status.success() {
            ledger.violate(Rule::WrongAnswer, None, format!("asked to stop, the server ended with {status}"));
        }
        Ok(Report {
            seed: self.seed,
            rounds: self.rounds,
            start_kills: self.start_kills,
            took: self.started.elapsed(),
            account,
            asked: ledger.len(),
            answers_lost: ledger.answers_lost,
            repeats_answered: ledger.repeats_answered,
            refusals: ledger.refusals.clone(),
            violations: ledger.violations().to_vec(),
            folder: None,
        })
    }

    /// One life of the server.
    async fn round(&mut self, number: u64) -> anyhow::Result<()> {
        let chance = &mut stream(self.seed, "round", number);
        let life = Duration::from_millis(chance.u64(150..1_500));
        if chance.u32(..5) == 0 {
            let after = Duration::from_millis(chance.u64(0..300));
            ServerProcess::start_and_kill(&self.server, after).await?;
            self.start_kills += 1;
        }
        let started = Instant::now();
        let server = ServerProcess::start_ready(&self.server).await?;
        let ready_ms = started.elapsed().as_millis();
        let client = server.client().clone();
        self.verify(&client).await?;
        match number % PAUSE_PERIOD {
            _ if number == 1 => create_destinations(&client).await?,
            2 => self.set_paused(&client, true).await?,
            1 => self.set_paused(&client, false).await?,
            _ => {}
        }
        let before = self.ledger.borrow().len();
        let is_over = Cell::new(false);
        let round = Round {
            seed: self.seed,
            number,
            client: &client,
            ledger: &self.ledger,
            is_over: &is_over,
            is_paused: self.is_paused,
        };
        let followers = &self.followers;
        let follow = DESTINATIONS.iter().flat_map(|destination| {
            let client = &client;
            (0..destination.partitions).map(move |partition| followers.follow(client, destination.topic, partition))
        });
        let kill = async {
            sleep_until(Instant::now() + life).await;
            // Not before the kill: what is under way then is what the round is about.
            let killed = server.kill().await;
            is_over.set(true);
            killed
        };
        let work = join_all(self.workers.iter_mut().map(|worker| worker.work(&round)));
        let everything = join(kill, join(work, join_all(follow)));
        let limit = life + BREAK_OFF_LIMIT;
        let (killed, _) = timeout(limit, everything).await.context("requests to a killed server do not end")?;
        killed?;
        let ledger = self.ledger.borrow();
        say(&format!(
            "round {number} of {}: ready in {ready_ms} ms, killed after {} ms; {} messages asked for, {} answers lost \
             so far, {} violations",
            self.rounds,
            life.as_millis(),
            ledger.len() - before,
            ledger.answers_lost,
            ledger.violations().len()
        ));
        Ok(())
    }

    /// Every message that was accepted since the last restart is there.
    async fn verify(&mut self, client: &HttpClient) -> anyhow::Result<()> {
        let is_over = Cell::new(false);
        let round = Round {
            seed: self.seed,
            number: 0,
            client,
            ledger: &self.ledger,
            is_over: &is_over,
            is_paused: self.is_paused,
        };
        let until = self.ledger.borrow().len();
        let accepted = |number: &u64| self.ledger.borrow().entry(*number).is_some_and(ledger::Entry::is_taken);
        let numbers: Vec<u64> = (self.verified..until).filter(accepted).collect();
        for numbers in numbers.chunks(64) {
            let read = join_all(numbers.iter().map(|number| load::read(&round, *number))).await;
            if read.contains(&false) {
                bail!("a server that nobody disturbs does not answer reads");
            }
        }
        self.verified = until;
        Ok(())
    }

    async fn set_paused(&mut self, client: &HttpClient, paused: bool) -> anyhow::Result<()> {
        let verb = if paused { ":pause" } else { ":resume" };
        let call = client.call(Method::POST, &["v1", "destinations", DESTINATIONS[1].name]).verb(verb);
        call.send::<Destination>().await.context("pausing and resuming a destination")?;
        self.is_paused = paused;
        Ok(())
    }

    /// With nothing in the way any more, everything due has to be delivered or to end. Then all is read and checked.
    async fn settle(&mut self, client: &HttpClient) -> anyhow::Result<Account> {
        say("settling: everything due is to be delivered or to end");
        self.verify(client).await?;
        if self.is_paused {
            // Long enough for some to expire.
            sleep_until(Instant::now() + HORIZON).await;
            self.set_paused(client, false).await?;
        }
        let is_over = Cell::new(false);
        let (seed, number) = (self.seed, self.rounds + 1);
        let round = Round { seed, number, client, ledger: &self.ledger, is_over: &is_over, is_paused: false };
        let settled = join_all(self.workers.iter_mut().map(|worker| worker.settle(&round))).await;
        if settled.contains(&false) {
            bail!("a server that nobody disturbs does not answer");
        }
        let quiet = Instant::now() + HORIZON;
        sleep_until(quiet).await;
        while !reader::overdue(client, now_ms()).await?.is_empty() && quiet.elapsed() < SETTLE_LIMIT {
            sleep_until(Instant::now() + SETTLE_PAUSE).await;
        }
        say("checking");
        let shards = client.call(Method::GET, &["v1", "admin", "shards"]).send::<ShardList>().await?.body;
        let evidence = Evidence {
            asked_at_ms: now_ms(),
            messages: reader::list_messages(client).await?,
            records: reader::read_topics(client, self.seed).await?,
            counts: client.call(Method::GET, &["v1", "counts"]).send::<Counts>().await?.body,
            scheduled_total: shards.items.iter().map(|shard| shard.totals.scheduled).sum(),
            arrivals: self.followers.arrivals.take(),
            topics: DESTINATIONS.iter().map(|destination| destination.topic.to_owned()).collect(),
        };
        Ok(check(self.ledger.get_mut(), &evidence))
    }
}

async fn create_destinations(client: &HttpClient) -> anyhow::Result<()> {
    for destination in &DESTINATIONS {
        let embedded = EmbeddedSpec { topic: destination.topic.to_owned(), partitions: Some(destination.partitions) };
        let spec = DestinationSpec { embedded: Some(embedded), ..DestinationSpec::default() };
        let call = client.call(Method::PUT, &["v1", "destinations", destination.name]).json(&spec);
        call.send::<Destination>().await.context("creating a destination")?;
    }
    Ok(())
}
