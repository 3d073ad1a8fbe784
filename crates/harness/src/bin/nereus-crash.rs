//! `nereus-crash`: kills a server, or its Kafka broker, under load, again and again, and checks every promise.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, ValueEnum};
use harness::console::{print, say};
use harness::crash::{self, Report, Scene};
use harness::interrupt::unless_interrupted;

const AFTER_HELP: &str = "\
Progress goes to standard error, the account to standard output. Exit code 0 means that every check held, 1 that one did not \
(the violations are printed and the folder with data and log is kept), 2 wrong usage.

  dev/crash                         30 rounds with a seed of chance, which is printed
  dev/crash --rounds 5              half a minute
  dev/crash --rounds 5 --seed 42    the same workload again; the timing is the machine's
  dev/crash --destination kafka     30 rounds in which the server is killed, and 30 in which the broker is: ten minutes
  dev/crash --destination kafka --kill broker --rounds 5";

/// Kills the server at random moments under load, starts it again on the same folder, and checks in the end that nothing
/// accepted is lost, nothing is early, nothing canceled is delivered, and nothing is delivered twice without a warning.
///
/// With Kafka as destination a broker of the run's own is killed as well, records that schedule by their headers are part of the
/// load, and a second record of a message is explained by the service's warning or by another attempt of the same generation.
#[derive(Debug, Parser)]
#[command(name = "dev/crash", after_help = AFTER_HELP, max_term_width = 110)]
struct Cli {
    /// Where messages go
    #[arg(long, value_enum, default_value_t = Destination::Embedded)]
    destination: Destination,
    /// What is killed, with Kafka as destination: one of them, or one after the other in a run of its own each
    #[arg(long, value_enum, default_value_t = Kill::Both)]
    kill: Kill,
    /// How often it is killed under load
    #[arg(long, value_name = "N", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    rounds: u64,
    /// What the workload follows from [default: by chance]
    #[arg(long, value_name = "S")]
    seed: Option<u64>,
    /// Keep the run's folder though all is well
    #[arg(long)]
    keep: bool,
    /// Where the run's folder is made [default: where temporary files go]
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,
    /// The server's program
    #[arg(long, value_name = "FILE", env = "NEREUS_DELAY_BINARY")]
    binary: PathBuf,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Destination {
    /// Topics of the server's own log
    Embedded,
    /// Topics of a Kafka broker that belongs to the run
    Kafka,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Kill {
    Server,
    Broker,
    Both,
}

impl Cli {
    /// The runs that are asked for, one after the other.
    fn scenes(&self) -> Result<&'static [Scene], &'static str> {
        match (self.destination, self.kill) {
            (Destination::Embedded, Kill::Broker) => Err("there is no broker to kill without --destination kafka"),
            (Destination::Embedded, _) => Ok(&[Scene::Embedded]),
            (Destination::Kafka, Kill::Server) => Ok(&[Scene::KafkaServer]),
            (Destination::Kafka, Kill::Broker) => Ok(&[Scene::KafkaBroker]),
            (Destination::Kafka, Kill::Both) => Ok(&[Scene::KafkaServer, Scene::KafkaBroker]),
        }
    }
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let scenes = match cli.scenes() {
        Ok(scenes) => scenes,
        Err(reason) => {
            say(&format!("dev/crash: {reason}"));
            return ExitCode::from(2);
        }
    };
    let seed = cli.seed.unwrap_or_else(|| u64::from(fastrand::u32(..)));
    let mut is_well = true;
    for scene in scenes {
        match run(&cli, *scene, seed) {
            Ok(report) => is_well &= tell(&report),
            Err(error) => {
                say(&format!("dev/crash: {error:#}"));
                return ExitCode::FAILURE;
            }
        }
    }
    if is_well { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn run(cli: &Cli, scene: Scene, seed: u64) -> anyhow::Result<Report> {
    let options = crash::Options {
        binary: cli.binary.clone(),
        scene,
        rounds: cli.rounds,
        seed,
        keep: cli.keep,
        parent: cli.folder.clone(),
    };
    say(&options.command());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(unless_interrupted(crash::run(&options)))
}

/// Prints what a run came to. Returns whether every check held.
fn tell(report: &Report) -> bool {
    print(report.table().trim_end());
    if !report.refusals.is_empty() {
        let refusals: Vec<String> = report.refusals.iter().map(|(code, count)| format!("{code} {count}")).collect();
        print(&format!("refusals: {}", refusals.join(", ")));
    }
    print(&format!("{} s; repeat with: {}", report.took.as_secs(), report.command()));
    if let Some(folder) = &report.folder {
        print(&format!("the run's folder is {}", folder.display()));
    }
    if report.violations.is_empty() {
        print("every check held");
    } else {
        print(report.violation_lines().trim_end());
    }
    report.violations.is_empty()
}
