//! Ingresses: create, show, list, pause, resume, delete.

use client::api::ingress::{Ingress, IngressList, IngressPartition, IngressSpec, IngressState};
use client::http::HttpClient;
use hyper::Method;

use super::confirm::confirm;
use crate::cli::{IngressArgs, IngressCommand};
use crate::failure::Failure;
use crate::output::{Output, fields, say};

/// Runs an ingress command.
pub(super) async fn run(client: &HttpClient, command: IngressCommand, output: &Output) -> Result<(), Failure> {
    match command {
        IngressCommand::Create(args) => create(client, &args, output).await,
        IngressCommand::Get { name } => show(client, Method::GET, &name, "", output).await,
        IngressCommand::List => list(client, output).await,
        IngressCommand::Pause { name } => show(client, Method::POST, &name, ":pause", output).await,
        IngressCommand::Resume { name } => show(client, Method::POST, &name, ":resume", output).await,
        IngressCommand::Delete { name, yes } => {
            let what = format!(
                "ingress {name:?} will take no more records; what it has scheduled stays, and what it has settled stays known"
            );
            confirm(&what, yes)?;
            show(client, Method::DELETE, &name, "", output).await
        }
    }
}

async fn create(client: &HttpClient, args: &IngressArgs, output: &Output) -> Result<(), Failure> {
    let spec = IngressSpec {
        kafka: Some(args.security.connection(&args.kafka, &args.topic)),
        destination: args.destination.clone(),
        group: args.group.clone(),
        refusals: args.refusals.clone(),
        receipts: args.receipts.clone(),
    };
    let answer = client
        .call(Method::PUT, &["v1", "ingresses", &args.name])
        .query("dry_run", args.dry_run.then_some("true"))
        .json(&spec)
        .send::<Ingress>()
        .await?;
    for check in &answer.body.checks {
        say(&format!("{} {}: {}", if check.ok { "ok    " } else { "failed" }, check.name, check.detail));
    }
    if args.dry_run {
        say("nothing was changed (--dry-run)");
    }
    output.item(&answer.body, text)
}

async fn show(client: &HttpClient, method: Method, name: &str, verb: &str, output: &Output) -> Result<(), Failure> {
    let answer = client.call(method, &["v1", "ingresses", name]).verb(verb).send::<Ingress>().await?;
    output.item(&answer.body, text)
}

async fn list(client: &HttpClient, output: &Output) -> Result<(), Failure> {
    let list = client.call(Method::GET, &["v1", "ingresses"]).send::<IngressList>().await?.body;
    output.table(&list.items, ["NAME", "TOPIC", "DESTINATION", "STATE", "LAG", "REFUSED"], |ingress| {
        [
            ingress.name.clone(),
            ingress.topic.clone(),
            ingress.spec.destination.clone().unwrap_or_else(|| "-".to_owned()),
            ingress.state.name().to_owned(),
            ingress.lag.map_or_else(|| "-".to_owned(), |lag| lag.to_string()),
            ingress.records.refused.to_string(),
        ]
    })
}

fn text(ingress: &Ingress) -> String {
    let records = &ingress.records;
    let mut text = fields(&[
        ("name", Some(ingress.name.clone())),
        ("state", Some(ingress.state.name().to_owned())),
        ("reason", ingress.reason.clone()),
        ("last_error", ingress.last_error.clone().filter(|_| ingress.reason.is_none())),
        ("topic", Some(ingress.topic.clone())),
        ("destination", ingress.spec.destination.clone()),
        ("group", ingress.spec.group.clone()),
        ("refusals", ingress.spec.refusals.clone()),
        ("receipts", ingress.spec.receipts.clone()),
        ("scheduled", Some(records.scheduled.to_string())),
        ("rescheduled", Some(records.rescheduled.to_string())),
        ("canceled", Some(records.canceled.to_string())),
        ("refused", Some(records.refused.to_string())),
        ("lag", ingress.lag.map(|lag| lag.to_string())),
        ("created_at", Some(ingress.created_at.clone())),
    ]);
    for partition in &ingress.partitions {
        text.push_str(&partition_text(partition));
    }
    text
}

fn partition_text(partition: &IngressPartition) -> String {
    let state = partition.state.map_or("not here", IngressState::name);
    let lag = partition.lag.map_or_else(String::new, |lag| format!(" lag {lag}"));
    format!("partition {} settled below {}{lag}: {state}\n", partition.partition, partition.floor)
}
