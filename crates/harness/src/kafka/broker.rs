//! A Kafka broker that belongs to one test or one run: it may be paused, killed and started again.

use std::fs::File;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, bail};
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};
use tokio::time::{Instant, timeout};

use super::cluster::Cluster;
use crate::process::Usage;

/// Kafka's libraries, for a Java class path; dev/services installs them and says where.
pub const LIBRARIES_VARIABLE: &str = "NEREUS_TEST_KAFKA_LIBS";
/// The password of every user of a test broker.
pub const PASSWORD: &str = "nereus-test";
/// A user whose rights are what access control lists say.
pub const USER: &str = "alice";

const START_LIMIT: Duration = Duration::from_secs(120);
const STOP_LIMIT: Duration = Duration::from_secs(60);
const PROPERTIES: &str = include_str!("broker.properties");

/// A broker of one node, durable as any. Dropping it kills it.
#[derive(Debug)]
pub struct Broker {
    folder: PathBuf,
    libraries: PathBuf,
    plain_port: u16,
    sasl_port: u16,
    child: Option<Child>,
}

impl Broker {
    /// Makes a broker in a folder and starts it. Ready when it answers.
    ///
    /// # Errors
    /// When Kafka's libraries are not to be found, or the broker does not come up; the error has the end of its log.
    pub async fn start(folder: &Path) -> anyhow::Result<Broker> {
        let libraries = libraries()?;
        std::fs::create_dir_all(folder)?;
        let [plain_port, sasl_port, controller_port] = free_ports()?;
        let properties = PROPERTIES
            .replace("@PLAIN@", &plain_port.to_string())
            .replace("@SASL@", &sasl_port.to_string())
            .replace("@CONTROLLER@", &controller_port.to_string())
            .replace("@FOLDER@", &folder.display().to_string());
        std::fs::write(folder.join("server.properties"), properties)?;
        let mut broker = Broker { folder: folder.to_owned(), libraries, plain_port, sasl_port, child: None };
        broker.format().await?;
        broker.restart().await?;
        Ok(broker)
    }

    async fn format(&self) -> anyhow::Result<()> {
        let mut id = [0; 16];
        fastrand::Rng::new().fill(&mut id);
        let cluster_id = data_encoding::BASE64URL_NOPAD.encode(&id);
        let scram = format!("SCRAM-SHA-512=[name={USER},password={PASSWORD}]");
        let output = self
            .java("kafka.tools.StorageTool")
            .args(["format", "-t", &cluster_id, "-c"])
            .arg(self.folder.join("server.properties"))
            .args(["--add-scram", &scram])
            .output()
            .await
            .context("cannot run java")?;
        if !output.status.success() {
            bail!("the broker's storage cannot be made: {}", String::from_utf8_lossy(&output.stderr));
        }
        Ok(())
    }

    /// Starts it again on what its disk has. Ready when it answers.
    ///
    /// # Errors
    /// As for [`Broker::start`].
    pub async fn restart(&mut self) -> anyhow::Result<()> {
        let log = File::options().create(true).append(true).open(self.log())?;
        let child = self
            .java("kafka.Kafka")
            .arg(self.folder.join("server.properties"))
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            // A Ctrl-C at the terminal is for whoever runs this, who ends the broker.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .context("cannot run java")?;
        self.child = Some(child);
        let deadline = Instant::now() + START_LIMIT;
        let cluster = self.cluster()?;
        while let Err(error) = cluster.answers().await {
            let ended = self.child.as_mut().and_then(|child| child.try_wait().transpose()).transpose()?;
            if ended.is_some() || Instant::now() > deadline {
                bail!("the broker does not answer: {error}; its log ends:\n{}", crate::process::tail(&self.log()));
            }
        }
        Ok(())
    }

    fn java(&self, class: &str) -> Command {
        let mut command = Command::new("java");
        command.args(["-Xms256m", "-Xmx512m", "-cp"]).arg(format!("{}/*", self.libraries.display())).arg(class);
        command
    }

    fn log(&self) -> PathBuf {
        self.folder.join("server.log")
    }

    /// Where it answers without asking who comes: every right.
    pub fn bootstrap(&self) -> String {
        format!("127.0.0.1:{}", self.plain_port)
    }

    /// Where it wants SCRAM-SHA-512, and access control lists decide.
    pub fn bootstrap_sasl(&self) -> String {
        format!("127.0.0.1:{}", self.sasl_port)
    }

    /// A client of it with every right.
    ///
    /// # Errors
    /// When the client library refuses.
    pub fn cluster(&self) -> anyhow::Result<Cluster> {
        Cluster::new(&self.bootstrap())
    }

    /// Stops it in its tracks: connections stay, nothing answers.
    ///
    /// # Errors
    /// When it does not run.
    pub fn pause(&self) -> anyhow::Result<()> {
        self.signal(Signal::STOP)
    }

    /// Lets it go on.
    ///
    /// # Errors
    /// When it does not run.
    pub fn resume(&self) -> anyhow::Result<()> {
        self.signal(Signal::CONT)
    }

    /// Kills it without warning and waits until it is gone.
    ///
    /// # Errors
    /// When it does not run.
    pub async fn kill(&mut self) -> anyhow::Result<()> {
        let mut child = self.child.take().context("the broker does not run")?;
        child.kill().await.context("cannot kill the broker")
    }

    /// Asks it to stop and waits until it has.
    ///
    /// # Errors
    /// When it does not run, or does not stop in time.
    pub async fn stop(&mut self) -> anyhow::Result<()> {
        self.signal(Signal::TERM)?;
        let mut child = self.child.take().context("the broker does not run")?;
        timeout(STOP_LIMIT, child.wait()).await.context("the broker does not stop")??;
        Ok(())
    }

    /// What it has used and uses, as the kernel counts.
    ///
    /// # Errors
    /// When it does not run.
    pub fn usage(&self) -> anyhow::Result<Usage> {
        Usage::of(self.child.as_ref().and_then(Child::id).context("the broker does not run")?)
    }

    fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        let id = self.child.as_ref().and_then(Child::id).context("the broker does not run")?;
        let pid = i32::try_from(id).ok().and_then(Pid::from_raw).context("no process id")?;
        kill_process(pid, signal).context("cannot signal the broker")
    }

    /// Runs one of Kafka's own tools with these arguments behind `--bootstrap-server`.
    ///
    /// # Errors
    /// When it fails; the error has what it said.
    pub async fn tool(&self, class: &str, arguments: &[&str]) -> anyhow::Result<String> {
        tool(&self.libraries, &self.bootstrap(), class, arguments).await
    }
}

/// Runs one of Kafka's own tools.
pub(super) async fn tool(libraries: &Path, bootstrap: &str, class: &str, arguments: &[&str]) -> anyhow::Result<String> {
    let output = Command::new("java")
        .arg("-cp")
        .arg(format!("{}/*", libraries.display()))
        .arg(class)
        .args(["--bootstrap-server", bootstrap])
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .await
        .context("cannot run java")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        bail!("{class} {arguments:?} failed: {text}{}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(text)
}

/// Where Kafka's libraries are.
pub(super) fn libraries() -> anyhow::Result<PathBuf> {
    let folder = super::variable(LIBRARIES_VARIABLE)?;
    Ok(PathBuf::from(folder))
}

/// Ports that are free now, all at once so that they differ.
fn free_ports<const N: usize>() -> anyhow::Result<[u16; N]> {
    let listeners: Vec<TcpListener> =
        (0..N).map(|_| TcpListener::bind(("127.0.0.1", 0))).collect::<Result<_, _>>().context("no free port")?;
    let mut ports = [0; N];
    for (port, listener) in ports.iter_mut().zip(&listeners) {
        *port = listener.local_addr()?.port();
    }
    Ok(ports)
}
