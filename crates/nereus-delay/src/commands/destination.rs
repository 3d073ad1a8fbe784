//! Destinations: create, show, list, pause, resume, deprecate, activate, rebind.

use client::api::destination::{
    Destination, DestinationList, DestinationSpec, EmbeddedSpec, Partitioner, RetrySpec, TimestampSpec,
};
use client::duration::DisplayDelay;
use client::http::HttpClient;
use hyper::Method;

use super::confirm::confirm;
use crate::cli::{DestinationArgs, DestinationCommand, PartitionerArg, TimestampArg};
use crate::failure::Failure;
use crate::output::{Output, fields, say};

/// Runs a destination command.
pub(super) async fn run(client: &HttpClient, command: DestinationCommand, output: &Output) -> Result<(), Failure> {
    match command {
        DestinationCommand::Create(args) => create(client, &args, output).await,
        DestinationCommand::Get { name } => {
            let answer = client.call(Method::GET, &["v1", "destinations", &name]).send::<Destination>().await?;
            output.item(&answer.body, text)
        }
        DestinationCommand::List => list(client, output).await,
        DestinationCommand::Pause { name, yes } => {
            let what = format!(
                "deliveries of destination {name:?} will wait until it is resumed; messages may expire meanwhile"
            );
            confirm(&what, yes)?;
            set(client, &name, ":pause", output).await
        }
        DestinationCommand::Resume { name } => set(client, &name, ":resume", output).await,
        DestinationCommand::Deprecate { name, yes } => {
            let what = format!("destination {name:?} will take no new messages; those it has are delivered");
            confirm(&what, yes)?;
            set(client, &name, ":deprecate", output).await
        }
        DestinationCommand::Activate { name } => set(client, &name, ":activate", output).await,
        DestinationCommand::Rebind { name, yes } => {
            let what = format!(
                "what is pending for destination {name:?} will be delivered to the topic that has its topic's name now; what \
                 was delivered to the one before is not delivered again"
            );
            confirm(&what, yes)?;
            set(client, &name, ":rebind", output).await
        }
    }
}

async fn create(client: &HttpClient, args: &DestinationArgs, output: &Output) -> Result<(), Failure> {
    let retry = RetrySpec {
        initial_backoff: args.initial_backoff.clone(),
        max_backoff: args.max_backoff.clone(),
        max_attempts: args.max_attempts,
        max_duration: args.max_retry_duration.clone(),
        ..RetrySpec::default()
    };
    let spec = DestinationSpec {
        embedded: match args.kafka {
            Some(_) => None,
            None => Some(EmbeddedSpec { topic: args.topic.clone(), partitions: args.partitions }),
        },
        kafka: args.kafka.as_ref().map(|servers| args.security.connection(servers, &args.topic)),
        partitioner: args.partitioner.map(|partitioner| match partitioner {
            PartitionerArg::Murmur2 => Partitioner::Murmur2,
            PartitionerArg::RegistryHash => Partitioner::RegistryHash,
        }),
        partition: args.partition,
        timestamp: args.timestamp.map(|timestamp| match timestamp {
            TimestampArg::EventTime => TimestampSpec::EventTime,
            TimestampArg::DeliveryTime => TimestampSpec::DeliveryTime,
        }),
        retry: (retry != RetrySpec::default()).then_some(retry),
        max_delay: args.max_delay.clone(),
        expires_after: args.expires_after.clone(),
    };
    let answer = client
        .call(Method::PUT, &["v1", "destinations", &args.name])
        .query("dry_run", args.dry_run.then_some("true"))
        .json(&spec)
        .send::<Destination>()
        .await?;
    for check in &answer.body.checks {
        say(&format!("{} {}: {}", if check.ok { "ok    " } else { "failed" }, check.name, check.detail));
    }
    if args.dry_run {
        say("nothing was changed (--dry-run)");
    }
    output.item(&answer.body, text)
}

async fn list(client: &HttpClient, output: &Output) -> Result<(), Failure> {
    let list = client.call(Method::GET, &["v1", "destinations"]).send::<DestinationList>().await?.body;
    output.table(&list.items, ["NAME", "SYSTEM", "TOPIC", "PARTITIONS", "VERSION", "STATE"], |destination| {
        [
            destination.name.clone(),
            destination.system.clone(),
            destination.topic.clone(),
            destination.partitions.to_string(),
            destination.version.to_string(),
            state(destination),
        ]
    })
}

async fn set(client: &HttpClient, name: &str, verb: &str, output: &Output) -> Result<(), Failure> {
    let answer = client.call(Method::POST, &["v1", "destinations", name]).verb(verb).send::<Destination>().await?;
    output.item(&answer.body, text)
}

fn state(destination: &Destination) -> String {
    if destination.paused { "paused".to_owned() } else { destination.state.clone() }
}

fn text(destination: &Destination) -> String {
    fields(&[
        ("name", Some(destination.name.clone())),
        ("version", Some(destination.version.to_string())),
        ("state", Some(state(destination))),
        ("system", Some(destination.system.clone())),
        ("topic", Some(destination.topic.clone())),
        ("partitions", Some(destination.partitions.to_string())),
        ("max_delay", Some(DisplayDelay(destination.max_delay_ms).to_string())),
        ("expires_after", Some(DisplayDelay(destination.expires_after_ms).to_string())),
        ("max_record_bytes", Some(destination.max_record_bytes.to_string())),
        ("created_at", Some(destination.created_at.clone())),
    ])
}
