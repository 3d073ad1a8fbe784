//! `nereus-crash`: kills a server under load, again and again, and checks every promise.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use harness::console::{print, say};
use harness::crash;
use harness::interrupt::unless_interrupted;

const AFTER_HELP: &str = "\
Progress goes to standard error, the account to standard output. Exit code 0 means that every check held, 1 that one did not \
(the violations are printed and the folder with data and log is kept), 2 wrong usage.

  dev/crash                         30 rounds with a seed of chance, which is printed
  dev/crash --rounds 5              half a minute
  dev/crash --rounds 5 --seed 42    the same workload again; the timing is the machine's";

/// Kills the server at random moments under load, starts it again on the same folder, and checks in the end that nothing
/// accepted is lost, nothing is early, nothing canceled is delivered, and nothing is delivered twice without a warning.
#[derive(Debug, Parser)]
#[command(name = "dev/crash", after_help = AFTER_HELP, max_term_width = 110)]
struct Cli {
    /// How often the server is killed under load
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

fn main() -> ExitCode {
    let cli = Cli::parse();
    let seed = cli.seed.unwrap_or_else(|| u64::from(fastrand::u32(..)));
    let options = crash::Options { binary: cli.binary, rounds: cli.rounds, seed, keep: cli.keep, parent: cli.folder };
    say(&format!("dev/crash --rounds {} --seed {seed}", options.rounds));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let report = match runtime
        .map_err(anyhow::Error::from)
        .and_then(|runtime| runtime.block_on(unless_interrupted(crash::run(&options))))
    {
        Ok(report) => report,
        Err(error) => {
            say(&format!("dev/crash: {error:#}"));
            return ExitCode::FAILURE;
        }
    };
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
        return ExitCode::SUCCESS;
    }
    print(report.violation_lines().trim_end());
    ExitCode::FAILURE
}
