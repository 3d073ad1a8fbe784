//! `nereus-bench`: measures a server from outside, and RocksDB or a Kafka broker alone beside it.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Parser, ValueEnum};
use harness::bench;
use harness::console::{print, say};
use harness::interrupt::unless_interrupted;

const AFTER_HELP: &str = "\
Progress goes to standard error, the figures to standard output. Exit code 0 means that everything was measured, whatever the \
figures are; 1 that a stage failed or a message came early (the folder with data and log is kept); 2 wrong usage.

  dev/bench                                all figures with up to 2 million messages pending: about ten minutes
  dev/bench --quick                        the same figures at a smaller scale: less than three minutes
  dev/bench --json figures.jsonl           one object a figure, one a line, with what it is compared to and the ratio
  dev/bench --page docs/performance.md     puts the tables of this run into the page
  dev/bench --destination kafka            the figures of a server that delivers to Kafka: about twelve minutes

Run it on a machine that does nothing else: generator and server share its processors.";

/// Measures throughput, lateness, costs, memory and restarts of a release server with few and many messages pending, and the same
/// synced batches on RocksDB alone beside it.
///
/// With Kafka as destination: throughput, lateness and a burst against the same records produced to the same broker without us,
/// and what a destination's messages notice of another one in trouble.
#[derive(Debug, Parser)]
#[command(name = "dev/bench", after_help = AFTER_HELP, max_term_width = 110)]
struct Cli {
    /// Where messages go
    #[arg(long, value_enum, default_value_t = Destination::Embedded)]
    destination: Destination,
    /// The same figures at a smaller scale, which every figure states
    #[arg(long)]
    quick: bool,
    /// Write the figures to this file, one JSON object a line
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Put the tables into this page, between its two marks
    #[arg(long, value_name = "FILE")]
    page: Option<PathBuf>,
    /// Keep the run's folder
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
    /// A topic of the server's own log
    Embedded,
    /// A topic of a Kafka broker that belongs to the run
    Kafka,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    match measure(&cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(&format!("dev/bench: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn measure(cli: &Cli) -> anyhow::Result<()> {
    let target = match cli.destination {
        Destination::Embedded => bench::Target::Embedded,
        Destination::Kafka => bench::Target::Kafka,
    };
    // What cannot be written in the end is refused before the minutes are spent.
    if let Some(page) = &cli.page {
        bench::check_page(&read(page)?, target).with_context(|| page.display().to_string())?;
    }
    if let Some(json) = &cli.json {
        write(json, "")?;
    }
    let options = bench::Options {
        binary: cli.binary.clone(),
        target,
        is_quick: cli.quick,
        keep: cli.keep,
        parent: cli.folder.clone(),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let report = runtime.block_on(unless_interrupted(bench::run(&options)))?;
    print(report.text().trim_end());
    say(&format!("{} s", report.took.as_secs()));
    if let Some(folder) = &report.folder {
        say(&format!("the run's folder is {}", folder.display()));
    }
    if let Some(json) = &cli.json {
        write(json, &report.figures.json_lines())?;
    }
    if let Some(page) = &cli.page {
        write(page, &report.page(&read(page)?)?)?;
    }
    Ok(())
}

fn read(path: &Path) -> anyhow::Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}
