//! The `nereus-delay` program: the server, and the command line that talks to one.
//!
//! Reads top to bottom: [`cli`] says what can be asked for, [`commands`] does it over HTTP, [`serve`] is the server.

mod bootstrap;
mod cli;
mod commands;
mod config;
mod data_folder;
mod failure;
mod host;
mod open_files;
mod output;
mod serve;
mod test_clock;
mod time;

use std::io::IsTerminal as _;
use std::path::Path;
use std::process::ExitCode;

use clap::Parser as _;
use tracing_subscriber::EnvFilter;

use crate::cli::{Cli, Command, ServeArgs};
use crate::config::Configuration;
use crate::failure::{Exit, Failure};
use crate::output::{Output, say};

// Memory freed by one thread is used by the others, RocksDB's threads included; the system's allocator keeps it apart, and the
// process grows.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    let Cli { command, global } = Cli::parse();
    let output = Output::new(global.json);
    let result = match command {
        Command::Serve(args) => run_server(&args, &output),
        command => commands::run(command, &global, &output),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            report(&failure, &output);
            ExitCode::from(failure.exit as u8)
        }
    }
}

fn report(failure: &Failure, output: &Output) {
    if !failure.text.is_empty() {
        say(&format!("nereus-delay: {}", failure.text));
    }
    if let (true, Some(problem)) = (output.is_json(), &failure.problem) {
        // Programs read the answer where they read every answer; a closed standard output was said above.
        let _ = output.item(problem, |_| String::new());
    }
}

fn run_server(args: &ServeArgs, output: &Output) -> Result<(), Failure> {
    let config = configuration(args)?;
    if args.show_config {
        return output.line(config.to_toml()?.trim_end());
    }
    let filter =
        EnvFilter::try_new(&args.log).map_err(|error| Failure::usage(format!("--log {:?}: {error}", args.log)))?;
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .init();
    serve::serve(&config, test_clock(args)?).map_err(Failure::from)
}

/// The clock of a test, where both that and the right to it were asked for.
fn test_clock(args: &ServeArgs) -> Result<Option<&Path>, Failure> {
    if args.test_clock.is_some() && !args.test_hooks {
        let text = "NEREUS_DELAY_TEST_CLOCK moves the server's clock: it is for this project's tests, and refused without \
                    NEREUS_DELAY_TEST_HOOKS=true";
        return Err(Failure::usage(text));
    }
    Ok(args.test_clock.as_deref())
}

/// Defaults, the file over them, environment and flags over both; refused when its relations do not hold.
fn configuration(args: &ServeArgs) -> Result<Configuration, Failure> {
    let mut config = match &args.config {
        Some(path) => Configuration::load(path)?,
        None => Configuration::default(),
    };
    let server = &mut config.server;
    if let Some(data) = &args.data {
        server.data.clone_from(data);
    }
    server.listen = args.listen.unwrap_or(server.listen);
    server.shards = args.shards.unwrap_or(server.shards);
    config.check().map_err(|broken| Failure::new(Exit::Usage, format!("the configuration is refused:\n{broken}")))?;
    Ok(config)
}
