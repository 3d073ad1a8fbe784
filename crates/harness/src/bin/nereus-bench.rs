//! `nereus-bench`: measures a server from outside, and RocksDB alone beside it.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Parser;
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

Run it on a machine that does nothing else: generator and server share its processors.";

/// Measures throughput, lateness, costs, memory and restarts of a release server with few and many messages pending, and the same
/// synced batches on RocksDB alone beside it.
#[derive(Debug, Parser)]
#[command(name = "dev/bench", after_help = AFTER_HELP, max_term_width = 110)]
struct Cli {
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
    // What cannot be written in the end is refused before the minutes are spent.
    if let Some(page) = &cli.page {
        bench::check_page(&read(page)?).with_context(|| page.display().to_string())?;
    }
    if let Some(json) = &cli.json {
        write(json, "")?;
    }
    let options =
        bench::Options { binary: cli.binary.clone(), is_quick: cli.quick, keep: cli.keep, parent: cli.folder.clone() };
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
