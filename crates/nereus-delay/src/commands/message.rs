//! One message: schedule, cancel, reschedule, show.

use std::fs;
use std::io::Read as _;

use client::api::message::{
    Content, ContentSpec, HeaderSpec, Message, MessageReceipt, Payload, RescheduleRequest, ScheduleRequest, Status,
};
use client::http::HttpClient;
use hyper::Method;

use super::confirm::confirm;
use crate::cli::{CancelArgs, GetArgs, RescheduleArgs, ScheduleArgs};
use crate::failure::{Exit, Failure};
use crate::host::fill_random;
use crate::output::{Output, fields, say};

/// Schedules one message.
pub(super) async fn schedule(client: &HttpClient, args: &ScheduleArgs, output: &Output) -> Result<(), Failure> {
    let read = |text: &Option<String>| text.as_deref().map(content).transpose();
    if args.key.as_deref() == Some("-") && args.value.as_deref() == Some("-") {
        return Err(Failure::usage("only one of --key and --value can be read from standard input"));
    }
    let request = ScheduleRequest {
        destination: args.destination.clone().unwrap_or_default(),
        id: args.id.clone(),
        deliver_at: args.deliver_at.clone(),
        delay: args.delay.clone(),
        key: read(&args.key)?,
        value: read(&args.value)?,
        headers: args.headers.iter().map(|text| header(text)).collect::<Result<_, _>>()?,
        expires_after: args.expires_after.clone(),
        ..ScheduleRequest::default()
    };
    let idempotency_key = args.idempotency_key.clone().unwrap_or_else(random_key);
    let call = client
        .call(Method::POST, &["v1", "messages"])
        .query("wait", Some(args.wait.name()))
        .query("timeout", args.timeout.as_ref())
        .header("idempotency-key", Some(idempotency_key.clone()))
        .json(&request);
    let answer = match call.send::<MessageReceipt>().await {
        Ok(answer) => answer,
        Err(error) => {
            let mut failure = Failure::from(error);
            if failure.exit == Exit::OutcomeUnknown {
                failure.text.push_str(&format!("\nRepeat with --idempotency-key {idempotency_key} to learn it"));
            }
            return Err(failure);
        }
    };
    if answer.is_replay {
        say("this request was answered before; the first answer stands");
    }
    output.item(&answer.body, receipt_text)?;
    if answer.body.status == Status::Queued && args.wait != crate::cli::WaitFor::Queued {
        let text = format!(
            "it is durable, but its verdict was not known in time; repeat with --idempotency-key {idempotency_key} to learn it"
        );
        return Err(Failure::new(Exit::OutcomeUnknown, text));
    }
    Ok(())
}

/// Cancels messages, one after the other; the worst outcome is the exit code.
pub(super) async fn cancel(client: &HttpClient, args: &CancelArgs, output: &Output) -> Result<(), Failure> {
    if args.ids.len() > 1 {
        confirm(&format!("{} messages will be canceled; they cannot be brought back", args.ids.len()), args.yes)?;
    }
    let mut worst: Option<Failure> = None;
    for id in &args.ids {
        let call = client
            .call(Method::DELETE, &["v1", "messages", id])
            .header("if-match", args.if_version.map(|version| format!("\"{version}\"")));
        match call.send::<MessageReceipt>().await {
            Ok(answer) => output.item(&answer.body, receipt_text)?,
            Err(error) => {
                let failure = Failure::from(error);
                if args.ids.len() > 1 {
                    say(&format!("{id}: {}", failure.text));
                }
                if worst.as_ref().is_none_or(|worst| failure.exit > worst.exit) {
                    worst = Some(failure);
                }
            }
        }
    }
    match worst {
        None => Ok(()),
        Some(failure) if args.ids.len() == 1 => Err(failure),
        Some(failure) => Err(Failure::new(failure.exit, "not every message was canceled")),
    }
}

/// Moves a message.
pub(super) async fn reschedule(client: &HttpClient, args: &RescheduleArgs, output: &Output) -> Result<(), Failure> {
    let request = RescheduleRequest {
        deliver_at: args.when.deliver_at.clone(),
        delay: args.when.delay.clone(),
        expires_after: args.expires_after.clone(),
        ..RescheduleRequest::default()
    };
    let answer = client
        .call(Method::PATCH, &["v1", "messages", &args.id])
        .header("if-match", args.if_version.map(|version| format!("\"{version}\"")))
        .json(&request)
        .send::<MessageReceipt>()
        .await?;
    output.item(&answer.body, receipt_text)
}

/// Shows a message.
pub(super) async fn get(client: &HttpClient, args: &GetArgs, output: &Output) -> Result<(), Failure> {
    let answer = client
        .call(Method::GET, &["v1", "messages", &args.id])
        .query("include", args.payload.then_some("payload"))
        .send::<Message>()
        .await?;
    output.item(&answer.body, message_text)
}

fn receipt_text(receipt: &MessageReceipt) -> String {
    fields(&[
        ("message_id", Some(receipt.message_id.clone())),
        ("id", receipt.id.clone()),
        ("status", Some(receipt.status.to_string())),
        ("deliver_at", Some(receipt.deliver_at.clone())),
        ("expires_at", Some(receipt.expires_at.clone())),
        ("version", receipt.version.map(|version| version.to_string())),
        ("delivery", receipt.delivery.as_ref().map(delivery_text)),
        ("lateness_ms", receipt.lateness_ms.map(|lateness| lateness.to_string())),
    ])
}

fn message_text(message: &Message) -> String {
    let mut text = fields(&[
        ("message_id", Some(message.message_id.clone())),
        ("id", message.id.clone()),
        ("status", Some(message.status.to_string())),
        ("destination", Some(format!("{} (version {})", message.destination, message.destination_version))),
        ("deliver_at", Some(message.deliver_at.clone())),
        ("expires_at", Some(message.expires_at.clone())),
        ("scheduled_at", Some(message.scheduled_at.clone())),
        ("version", Some(message.version.to_string())),
        ("attempts", Some(message.attempts.to_string())),
        ("next_attempt_at", message.next_attempt_at.clone()),
        ("last_error", message.last_error.clone()),
        ("waiting_for", message.waiting_for.as_ref().map(|waiting| format!("{}: {}", waiting.code, waiting.detail))),
        ("possible_duplicate", message.possible_duplicate.then(|| "yes".to_owned())),
        ("ended_at", message.ended_at.clone()),
        ("delivery", message.delivery.as_ref().map(delivery_text)),
        ("lateness_ms", message.lateness_ms.map(|lateness| lateness.to_string())),
    ]);
    if let Some(payload) = &message.payload {
        text.push_str(&payload_text(payload));
    }
    text
}

fn payload_text(payload: &Payload) -> String {
    let mut rows = vec![("key", payload.key.as_ref().map(content_text))];
    rows.push(("value", Some(payload.value.as_ref().map_or_else(|| "null".to_owned(), content_text))));
    let mut text = fields(&rows);
    for header in &payload.headers {
        let value = header.value.as_ref().map_or_else(|| "null".to_owned(), content_text);
        text.push_str(&format!("header {}={value}\n", header.name));
    }
    text
}

fn delivery_text(delivery: &client::api::message::Delivery) -> String {
    let offset = delivery.offset.map_or_else(String::new, |offset| format!(" offset {offset}"));
    let timestamp = delivery.timestamp.as_deref().map_or_else(String::new, |timestamp| format!(" at {timestamp}"));
    format!("{} partition {}{offset}{timestamp}", delivery.topic, delivery.partition)
}

/// Content in one line: text as it is, anything else as base64.
pub(super) fn content_text(content: &Content) -> String {
    match content {
        Content::Text(text) => text.clone(),
        Content::Binary(binary) => format!("base64:{}", binary.data),
    }
}

/// A key that no other request has.
pub(super) fn random_key() -> String {
    let mut bytes = [0; 16];
    fill_random(&mut bytes);
    data_encoding::HEXLOWER.encode(&bytes)
}

/// Content from the command line: text, `@FILE` or `-`.
fn content(text: &str) -> Result<ContentSpec, Failure> {
    let read = |error: std::io::Error, what: &str| Failure::new(Exit::Failed, format!("cannot read {what}: {error}"));
    if text == "-" {
        let mut bytes = Vec::new();
        std::io::stdin().read_to_end(&mut bytes).map_err(|error| read(error, "standard input"))?;
        return Ok(ContentSpec::new(&bytes));
    }
    match text.strip_prefix('@') {
        Some(path) => Ok(ContentSpec::new(&fs::read(path).map_err(|error| read(error, path))?)),
        None => Ok(ContentSpec::Text(text.to_owned())),
    }
}

fn header(text: &str) -> Result<HeaderSpec, Failure> {
    let (name, value) =
        text.split_once('=').ok_or_else(|| Failure::usage(format!("--header takes NAME=TEXT; found {text:?}")))?;
    Ok(HeaderSpec { name: name.to_owned(), value: Some(ContentSpec::Text(value.to_owned())) })
}
