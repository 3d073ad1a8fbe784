//! The commands that talk to a server, one file for each kind of thing they are about.

mod admin;
mod batch;
mod completion;
mod confirm;
mod consume;
mod destination;
mod explain;
mod ingress;
mod list;
mod message;

use client::http::HttpClient;

use crate::cli::{Command, Global, LaneCommand, RouteCommand, ShardCommand};
use crate::failure::Failure;
use crate::output::Output;

/// Runs a command other than `serve`.
///
/// # Errors
/// [`Failure`], with the exit code that says what kind it is.
pub(crate) fn run(command: Command, global: &Global, output: &Output) -> Result<(), Failure> {
    match command {
        Command::Explain(args) => return explain::explain(&args, output),
        Command::Completion(args) => return completion::write(&args),
        _ => {}
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let client = HttpClient::new(&global.server)?;
    runtime.block_on(async {
        match command {
            Command::Schedule(args) if args.batch.is_some() => batch::schedule(&client, &args, output).await,
            Command::Schedule(args) => message::schedule(&client, &args, output).await,
            Command::Cancel(args) => message::cancel(&client, &args, output).await,
            Command::Reschedule(args) => message::reschedule(&client, &args, output).await,
            Command::Get(args) => message::get(&client, &args, output).await,
            Command::List(args) => list::list(&client, &args, output).await,
            Command::Count(args) => list::count(&client, &args, output).await,
            Command::Destination(command) => destination::run(&client, command, output).await,
            Command::Ingress(command) => ingress::run(&client, command, output).await,
            Command::Topic(command) => consume::topics(&client, command, output).await,
            Command::Consume(args) => consume::consume(&client, &args, output).await,
            Command::Lane(LaneCommand::List { destination }) => admin::lanes(&client, destination, output).await,
            Command::Shard(ShardCommand::List) => admin::shards(&client, output).await,
            Command::Route(RouteCommand::List) => admin::routes(&client, output).await,
            Command::Status => admin::status(&client, output).await,
            Command::Serve(_) | Command::Explain(_) | Command::Completion(_) => Ok(()),
        }
    })
}
