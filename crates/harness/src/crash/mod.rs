//! Crash rounds: the release binary is killed at random moments under load and started again on the same folder, and in the end
//! every promise is checked from outside, by what callers were answered, what consumers saw and what the service then says.
//!
//! [`ledger`] keeps what was asked and answered, [`load`] asks over HTTP and [`ingress`] by records, [`topics`] says where messages
//! go, [`reader`] consumes, [`check`] holds one against the other. The workload follows from the seed; when exactly what happens
//! is the machine's affair. [`trial`] has the same load and check for any other trouble.

mod chance;
mod check;
mod content;
mod ingress;
mod kafka;
pub mod ledger;
mod load;
mod reader;
mod report;
#[cfg(test)]
mod tests;
mod topics;
mod trial;

use std::cell::{Cell, RefCell};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail};
use client::api::admin::ShardList;
use client::api::destination::Destination;
use client::api::message::Counts;
use client::http::HttpClient;
use futures_util::future::{join, join_all};
use hyper::Method;
use tokio::time::{Instant, sleep_until, timeout};

use self::chance::stream;
pub use self::check::Account;
use self::check::{EXPIRY_GRACE_MS, Evidence, check};
pub use self::ingress::IngressAccount;
use self::kafka::KafkaSide;
use self::ledger::{Ledger, Rule};
use self::load::{Round, Worker};
use self::reader::Followers;
pub use self::report::Report;
use self::topics::{DESTINATIONS, Topics};
pub use self::trial::Trial;
use crate::console::say;
use crate::process::{ServerOptions, ServerProcess};
use crate::run_folder::RunFolder;
use crate::wall_clock::now_ms;

/// Out of so many rounds the second destination is paused in all but one.
const PAUSE_PERIOD: u64 = 4;
const SHARDS: u32 = 3;
const WORKERS: u64 = 12;
/// The shortest expiry that the configuration below lets messages have, and a little more.
const EXPIRY_MS_MIN: i64 = 2_400;
/// What the load is made for: short expiries, so that some expire within a run; small memory and log, so that flushes and trims fall into the rounds.
pub const CONFIG: &str = "\
[clock]
uncertainty_max = \"200ms\"
[limits]
delivery_window_min = \"2300ms\"
[storage]
cache_bytes_max = \"32MiB\"
write_buffer_bytes_max = \"8MiB\"
log_bytes_max = \"1MiB\"
";
/// Deadlines about as long as a broker is away, so that some attempts outlive it and some do not.
const KAFKA_CONFIG: &str = "\
[delivery]
send_deadline = \"8s\"
recovery_deadline = \"8s\"
circuit_pause_min = \"100ms\"
circuit_pause_max = \"500ms\"
";
/// An attempt that was admitted before its message's expiry may still be appended until it is given up: the send deadline above.
const KAFKA_EXPIRY_GRACE_MS: i64 = EXPIRY_GRACE_MS + 8_000;
/// How long requests may take to notice that their server is gone.
const BREAK_OFF_LIMIT: Duration = Duration::from_secs(30);
/// How long everything due may take once nothing disturbs it any more.
const SETTLE_LIMIT: Duration = Duration::from_secs(60);
const SETTLE_PAUSE: Duration = Duration::from_millis(200);
/// The longest time from a request to the message's due time, far ones aside; and the clock's bound.
const HORIZON: Duration = Duration::from_millis(4_100);

/// Where messages go, and what is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scene {
    /// To topics of the server's own log. The server is killed.
    Embedded,
    /// To topics of Kafka, with header ingress beside HTTP. The server is killed.
    KafkaServer,
    /// To topics of Kafka, with header ingress beside HTTP. The broker is killed.
    KafkaBroker,
}

impl Scene {
    /// What is killed, in a word.
    pub const fn victim(self) -> &'static str {
        match self {
            Scene::Embedded | Scene::KafkaServer => "server",
            Scene::KafkaBroker => "broker",
        }
    }
}

/// What to run.
#[derive(Clone, Debug)]
pub struct Options {
    /// The program.
    pub binary: PathBuf,
    /// Where messages go, and what is killed.
    pub scene: Scene,
    /// How often it is killed, kills during a start not counted.
    pub rounds: u64,
    /// What the workload follows from.
    pub seed: u64,
    /// Keep the folder of a good run too.
    pub keep: bool,
    /// Where the run's folder is made; where temporary files go, if not given.
    pub parent: Option<PathBuf>,
}

impl Options {
    /// The command that runs the same workload.
    pub fn command(&self) -> String {
        report::command(self.scene, self.rounds, self.seed)
    }
}

/// Runs the rounds and checks. A broken promise is in the report, not an error.
///
/// # Errors
/// When the run itself could not be carried out; the folder is kept then.
pub async fn run(options: &Options) -> anyhow::Result<Report> {
    let folder = RunFolder::new(options.parent.as_deref(), "crash")?;
    let outcome = run_in(options, folder.path()).await;
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

async fn run_in(options: &Options, folder: &Path) -> anyhow::Result<Report> {
    let mut server = ServerOptions::new(&options.binary, folder);
    server.config = CONFIG.to_owned();
    server.shards = SHARDS;
    let topics = match options.scene {
        Scene::Embedded => Topics::Embedded(Followers::default()),
        Scene::KafkaServer | Scene::KafkaBroker => {
            server.config.push_str(KAFKA_CONFIG);
            say("starting a broker");
            Topics::Kafka(Box::new(KafkaSide::start(&folder.join("kafka")).await?))
        }
    };
    Run::new(options.seed, options.scene, options.rounds, server, topics).rounds_and_check().await
}

struct Run {
    seed: u64,
    scene: Scene,
    rounds: u64,
    server: ServerOptions,
    ledger: RefCell<Ledger>,
    topics: Topics,
    workers: Vec<Worker>,
    /// Messages below this number were looked up after a restart.
    verified: u64,
    start_kills: u64,
    is_paused: bool,
    /// How long behind its expiry a record may be appended that was admitted before.
    expiry_grace_ms: i64,
    started: Instant,
}

impl Run {
    fn new(seed: u64, scene: Scene, rounds: u64, server: ServerOptions, topics: Topics) -> Run {
        Run {
            seed,
            scene,
            rounds,
            server,
            ledger: RefCell::new(Ledger::default()),
            topics,
            workers: (0..WORKERS).map(Worker::new).collect(),
            verified: 0,
            start_kills: 0,
            is_paused: false,
            expiry_grace_ms: if scene == Scene::Embedded { EXPIRY_GRACE_MS } else { KAFKA_EXPIRY_GRACE_MS },
            started: Instant::now(),
        }
    }

    async fn rounds_and_check(&mut self) -> anyhow::Result<Report> {
        let server = match self.scene {
            Scene::Embedded | Scene::KafkaServer => {
                for number in 1..=self.rounds {
                    self.life(number).await.with_context(|| format!("round {number}"))?;
                }
                ServerProcess::start_ready(&self.server).await?
            }
            Scene::KafkaBroker => {
                let server = ServerProcess::start_ready(&self.server).await?;
                for number in 1..=self.rounds {
                    self.outage(&server, number).await.with_context(|| format!("round {number}"))?;
                }
                server
            }
        };
        self.finish(server).await
    }

    /// Checks everything on a server that nothing disturbs any more, and stops it.
    async fn finish(&mut self, server: ServerProcess) -> anyhow::Result<Report> {
        let (account, ingress) = self.settle(server.client()).await?;
        let status = server.stop().await?;
        let ledger = self.ledger.get_mut();
        if !status.success() {
            ledger.violate(Rule::WrongAnswer, None, format!("asked to stop, the server ended with {status}"));
        }
        Ok(Report {
            seed: self.seed,
            scene: self.scene,
            rounds: self.rounds,
            start_kills: self.start_kills,
            took: self.started.elapsed(),
            account,
            ingress,
            asked: ledger.len(),
            answers_lost: ledger.answers_lost,
            repeats_answered: ledger.repeats_answered,
            refusals: ledger.refusals.clone(),
            violations: ledger.violations().to_vec(),
            folder: None,
        })
    }

    /// One life of the server.
    async fn life(&mut self, number: u64) -> anyhow::Result<()> {
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
        self.prepare_round(&client, number).await?;
        let before = self.ledger.borrow().len();
        let is_over = Cell::new(false);
        let kill = async {
            sleep_until(Instant::now() + life).await;
            // Not before the kill: what is under way then is what the round is about.
            let killed = server.kill().await;
            is_over.set(true);
            killed
        };
        let round = Round {
            seed: self.seed,
            number,
            client: &client,
            ledger: &self.ledger,
            is_over: &is_over,
            is_paused: self.is_paused,
        };
        let topics = &self.topics;
        let work = join_all(self.workers.iter_mut().map(|worker| worker.work(&round)));
        let beside = join(topics.follow(&client), topics.write_records(&round));
        let limit = life + BREAK_OFF_LIMIT;
        let (killed, (_, ((), written))) =
            timeout(limit, join(kill, join(work, beside))).await.context("requests to a killed server do not end")?;
        killed?;
        written?;
        self.tell(number, before, &format!("ready in {ready_ms} ms, killed after {} ms", life.as_millis()));
        Ok(())
    }

    /// One life of the broker, and its absence. The server goes on.
    async fn outage(&mut self, server: &ServerProcess, number: u64) -> anyhow::Result<()> {
        let chance = &mut stream(self.seed, "round", number);
        let life = Duration::from_millis(chance.u64(300..2_500));
        let absence = Duration::from_millis(chance.u64(0..1_500));
        let client = server.client();
        self.prepare_round(client, number).await?;
        let before = self.ledger.borrow().len();
        let is_over = Cell::new(false);
        let round = Round {
            seed: self.seed,
            number,
            client,
            ledger: &self.ledger,
            is_over: &is_over,
            is_paused: self.is_paused,
        };
        let Topics::Kafka(kafka) = &mut self.topics else { bail!("there is no broker") };
        let KafkaSide { broker, ingress, .. } = &mut **kafka;
        let kill = async {
            sleep_until(Instant::now() + life).await;
            let killed = broker.kill().await;
            // Messages fall due and records are written while nobody is there for them.
            sleep_until(Instant::now() + absence).await;
            is_over.set(true);
            killed
        };
        let work = join_all(self.workers.iter_mut().map(|worker| worker.work(&round)));
        let limit = life + absence + BREAK_OFF_LIMIT;
        let (killed, (_, written)) = timeout(limit, join(kill, join(work, ingress.write(&round))))
            .await
            .context("a server whose broker was killed does not answer")?;
        killed?;
        written?;
        let killed_at = Instant::now();
        broker.restart().await?;
        let back_ms = (absence + killed_at.elapsed()).as_millis();
        self.tell(number, before, &format!("broker killed after {} ms, back after {back_ms} ms", life.as_millis()));
        Ok(())
    }

    /// Looks up what the rounds before left, and has the second destination paused in some rounds.
    async fn prepare_round(&mut self, client: &HttpClient, number: u64) -> anyhow::Result<()> {
        self.verify(client).await?;
        match number % PAUSE_PERIOD {
            _ if number == 1 => self.topics.create_destinations(client).await,
            2 => self.set_paused(client, true).await,
            1 => self.set_paused(client, false).await,
            _ => Ok(()),
        }
    }

    fn tell(&self, number: u64, asked_before: u64, what: &str) {
        let ledger = self.ledger.borrow();
        say(&format!(
            "round {number} of {}: {what}; {} messages asked for, {} answers lost so far, {} violations",
            self.rounds,
            ledger.len() - asked_before,
            ledger.answers_lost,
            ledger.violations().len()
        ));
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
    async fn settle(&mut self, client: &HttpClient) -> anyhow::Result<(Account, Option<IngressAccount>)> {
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
        self.topics.settle().await?;
        let quiet = Instant::now() + HORIZON;
        sleep_until(quiet).await;
        while !reader::overdue(client, now_ms()).await?.is_empty() && quiet.elapsed() < SETTLE_LIMIT {
            sleep_until(Instant::now() + SETTLE_PAUSE).await;
        }
        say("checking");
        let ingress = self.topics.replay(self.ledger.get_mut())?;
        let shards = client.call(Method::GET, &["v1", "admin", "shards"]).send::<ShardList>().await?.body;
        let evidence = Evidence {
            asked_at_ms: now_ms(),
            messages: reader::list_messages(client).await?,
            records: self.topics.read(client, self.seed).await?,
            counts: client.call(Method::GET, &["v1", "counts"]).send::<Counts>().await?.body,
            scheduled_total: shards.items.iter().map(|shard| shard.totals.scheduled).sum(),
            arrivals: self.topics.take_arrivals()?,
            topics: DESTINATIONS.iter().map(|destination| destination.topic.to_owned()).collect(),
            attempts_tell_apart: self.scene != Scene::Embedded,
            expiry_grace_ms: self.expiry_grace_ms,
        };
        Ok((check(self.ledger.get_mut(), &evidence), ingress))
    }
}
