//! A server process: started, asked, killed, stopped.

use std::ffi::OsStr;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context as _, bail};
use client::api::admin::Readiness;
use client::http::HttpClient;
use hyper::Method;
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep_until, timeout};

/// How long a start may take until the server listens, and until it is ready.
pub const START_LIMIT: Duration = Duration::from_secs(120);
/// How long a stop may take: the drain deadline and more.
pub const STOP_LIMIT: Duration = Duration::from_secs(60);
/// Pause between questions whether the server is ready.
const READY_PAUSE: Duration = Duration::from_millis(20);

/// How a server is started.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// The program.
    pub binary: PathBuf,
    /// Everything it keeps, its log of this and earlier starts among it.
    pub folder: PathBuf,
    /// The configuration file's text; empty for the defaults.
    pub config: String,
    /// Shards of a new route.
    pub shards: u32,
    /// A command that it is started under and that becomes it, such as `env NAME=VALUE`; empty for none.
    pub under: Vec<String>,
}

impl ServerOptions {
    /// A server of defaults in a folder.
    pub fn new(binary: impl Into<PathBuf>, folder: impl Into<PathBuf>) -> ServerOptions {
        ServerOptions {
            binary: binary.into(),
            folder: folder.into(),
            config: String::new(),
            shards: 2,
            under: Vec::new(),
        }
    }

    /// The data folder.
    pub fn data(&self) -> PathBuf {
        self.folder.join("data")
    }

    /// What the server says to people, of all starts.
    pub fn log(&self) -> PathBuf {
        self.folder.join("server.log")
    }
}

/// A running server. Dropping it kills it.
#[derive(Debug)]
pub struct ServerProcess {
    child: Child,
    id: u32,
    address: String,
    client: HttpClient,
    log: PathBuf,
}

impl ServerProcess {
    /// Starts a server and waits until it listens.
    ///
    /// # Errors
    /// When it cannot be started or ends before it listens; the error has the end of its log.
    pub async fn start(options: &ServerOptions) -> anyhow::Result<ServerProcess> {
        let log = options.log();
        let mut child = spawn(options)?;
        let id = child.id().context("the server has ended at once")?;
        let stdout = child.stdout.take().context("the server has no standard output")?;
        let mut lines = BufReader::new(stdout).lines();
        let line = timeout(START_LIMIT, lines.next_line()).await.context("the server does not listen in time")??;
        let Some(address) = line.as_deref().and_then(|line| line.split_once("http://")).map(|(_, address)| address)
        else {
            let status = child.wait().await?;
            bail!("the server ended ({status}) before it listened; its log ends:\n{}", tail(&log));
        };
        let client = HttpClient::new(address)?;
        Ok(ServerProcess { child, id, address: address.to_owned(), client, log })
    }

    /// Starts a server and kills it after a moment, wherever its start is by then.
    ///
    /// # Errors
    /// When it cannot be started or killed.
    pub async fn start_and_kill(options: &ServerOptions, after: Duration) -> anyhow::Result<()> {
        let mut child = spawn(options)?;
        sleep_until(Instant::now() + after).await;
        child.kill().await.context("cannot kill the server")
    }

    /// Runs a server that is to end by itself before it listens, to its end.
    ///
    /// # Errors
    /// When it cannot be started, or does not end in time; it is killed then.
    pub async fn start_refused(options: &ServerOptions) -> anyhow::Result<Refused> {
        let said_before = std::fs::metadata(options.log()).map_or(0, |log| log.len());
        let child = spawn(options)?;
        let output = timeout(START_LIMIT, child.wait_with_output()).await;
        let output =
            output.with_context(|| format!("the server goes on; its log ends:\n{}", tail(&options.log())))??;
        let log = std::fs::read(options.log())?;
        let said = log.get(usize::try_from(said_before)?..).unwrap_or_default();
        Ok(Refused {
            exit_code: output.status.code(),
            announced: String::from_utf8_lossy(&output.stdout).into_owned(),
            said: String::from_utf8_lossy(said).into_owned(),
        })
    }

    /// Starts a server and waits until every shard is active.
    ///
    /// # Errors
    /// As for [`ServerProcess::start`], and when it is not ready in time.
    pub async fn start_ready(options: &ServerOptions) -> anyhow::Result<ServerProcess> {
        let server = ServerProcess::start(options).await?;
        server.ready().await?;
        Ok(server)
    }

    /// Waits until every shard is active and the clock is trusted.
    ///
    /// # Errors
    /// When that takes too long; the error says what is not ready.
    pub async fn ready(&self) -> anyhow::Result<()> {
        let deadline = Instant::now() + START_LIMIT;
        loop {
            let answer = self.client.call(Method::GET, &["readyz"]).send_any::<Readiness>().await;
            match answer {
                Ok(answer) if answer.body.ready => return Ok(()),
                Ok(answer) if Instant::now() > deadline => {
                    bail!("not ready in time: {}; its log ends:\n{}", answer.body.reasons.join("; "), tail(&self.log))
                }
                Err(error) if Instant::now() > deadline => {
                    bail!("not ready in time: {error}; its log ends:\n{}", tail(&self.log))
                }
                _ => sleep_until(Instant::now() + READY_PAUSE).await,
            }
        }
    }

    /// A client of this server.
    pub fn client(&self) -> &HttpClient {
        &self.client
    }

    /// `HOST:PORT`.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Kills it without warning, as a crash would, and waits until it is gone.
    ///
    /// # Errors
    /// When it cannot be killed.
    pub async fn kill(mut self) -> anyhow::Result<()> {
        self.child.kill().await.context("cannot kill the server")
    }

    /// Asks it to stop and waits until it has.
    ///
    /// # Errors
    /// When it cannot be asked, or does not stop in time.
    pub async fn stop(mut self) -> anyhow::Result<ExitStatus> {
        self.signal(Signal::TERM)?;
        timeout(STOP_LIMIT, self.child.wait())
            .await
            .with_context(|| format!("the server does not stop in time; its log ends:\n{}", tail(&self.log)))?
            .context("cannot wait for the server")
    }

    /// Sends it a signal.
    ///
    /// # Errors
    /// When it is gone.
    pub fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        let pid = i32::try_from(self.id).ok().and_then(Pid::from_raw).context("the process id is none")?;
        kill_process(pid, signal).context("cannot signal the server")
    }

    /// Lets it stand still, as a debugger or a freezer would, until [`thaw`](ServerProcess::thaw).
    ///
    /// # Errors
    /// When it is gone.
    pub fn freeze(&self) -> anyhow::Result<()> {
        self.signal(Signal::STOP)
    }

    /// Lets it go on.
    ///
    /// # Errors
    /// When it is gone.
    pub fn thaw(&self) -> anyhow::Result<()> {
        self.signal(Signal::CONT)
    }

    /// Waits until it ends by itself.
    ///
    /// # Errors
    /// When it cannot be waited for.
    pub async fn ended(&mut self) -> anyhow::Result<ExitStatus> {
        Ok(self.child.wait().await?)
    }

    /// What it has used and uses, as the kernel counts.
    ///
    /// # Errors
    /// When it is gone.
    pub fn usage(&self) -> anyhow::Result<Usage> {
        Usage::of(self.id)
    }

    /// How many files and sockets it has open.
    ///
    /// # Errors
    /// When it is gone.
    pub fn open_files(&self) -> anyhow::Result<usize> {
        Ok(std::fs::read_dir(format!("/proc/{}/fd", self.id)).context("the process is gone")?.count())
    }

    /// The end of its log, for failures.
    pub fn log_tail(&self) -> String {
        tail(&self.log)
    }
}

fn spawn(options: &ServerOptions) -> anyhow::Result<Child> {
    std::fs::create_dir_all(&options.folder)?;
    let config = options.folder.join("nereus-delay.toml");
    std::fs::write(&config, &options.config)?;
    let errors = File::options().create(true).append(true).open(options.log())?;
    let words = options.under.iter().map(OsStr::new).chain([options.binary.as_os_str()]);
    let words: Vec<&OsStr> = words.collect();
    Command::new(words[0])
        .args(&words[1..])
        .args(["serve", "--listen", "127.0.0.1:0", "--shards", &options.shards.to_string()])
        .arg("--data")
        .arg(options.data())
        .arg("--config")
        .arg(&config)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(errors)
        .kill_on_drop(true)
        .spawn()
        .with_context(|| format!("cannot start {}", options.binary.display()))
}

/// A start that came to nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// What it ended with; `None` when a signal ended it.
    pub exit_code: Option<i32>,
    /// Its standard output, where a server that listens says so.
    pub announced: String,
    /// What it said to people.
    pub said: String,
}

/// What a process has used and uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Processor time of all its threads, in user and kernel mode.
    pub cpu: Duration,
    /// Memory it has resident.
    pub resident_bytes: u64,
}

impl Usage {
    pub(crate) fn of(id: u32) -> anyhow::Result<Usage> {
        let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).context("the process is gone")?;
        // The name in parentheses may hold anything; the numbers begin behind it, with field 3.
        let fields: Vec<&str> = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace().collect();
        let field = |number: usize| -> anyhow::Result<u64> {
            fields.get(number - 3).and_then(|text| text.parse().ok()).context("/proc/…/stat is not understood")
        };
        let ticks = field(14)? + field(15)?;
        let pages = field(24)?;
        Ok(Usage {
            cpu: Duration::from_millis(ticks * 1_000 / rustix::param::clock_ticks_per_second()),
            resident_bytes: pages * rustix::param::page_size() as u64,
        })
    }
}

/// The last lines of a file.
pub(crate) fn tail(path: &Path) -> String {
    const LINES: usize = 40;
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(LINES)..].join("\n")
}
