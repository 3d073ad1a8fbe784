//! Many messages: lists and counts.

use client::api::message::{Counts, Message, MessagePage};
use client::http::HttpClient;
use hyper::Method;

use crate::cli::{CountArgs, ListArgs};
use crate::failure::Failure;
use crate::output::{Output, fields, say};

/// Messages asked for at once.
const PAGE_MAX: u64 = 500;

/// Lists messages, page after page, up to the limit.
pub(super) async fn list(client: &HttpClient, args: &ListArgs, output: &Output) -> Result<(), Failure> {
    let limit = if args.all { u64::MAX } else { args.limit };
    let (mut shown, mut cursor) = (0_u64, None::<String>);
    loop {
        let page = client
            .call(Method::GET, &["v1", "messages"])
            .query("destination", args.destination.as_ref())
            .query("status", args.status.as_ref())
            .query("due_after", args.due_after.as_ref())
            .query("due_before", args.due_before.as_ref())
            .query("id_prefix", args.id_prefix.as_ref())
            .query("include", args.payload.then_some("payload"))
            .query("limit", Some(PAGE_MAX.min(limit - shown)))
            .query("cursor", cursor.take())
            .send::<MessagePage>()
            .await?
            .body;
        if shown == 0 && !page.items.is_empty() && !output.is_json() {
            output.line(&row(["STATUS", "DELIVER AT", "DESTINATION", "ATTEMPTS", "MESSAGE ID", "ID"]))?;
        }
        for message in &page.items {
            output.item(message, message_row)?;
        }
        shown += page.items.len() as u64;
        cursor = page.next_cursor;
        match &cursor {
            None => return Ok(()),
            Some(_) if shown >= limit => {
                say(&format!("{shown} shown; there may be more (--limit N, or --all)"));
                return Ok(());
            }
            Some(_) => {}
        }
    }
}

fn message_row(message: &Message) -> String {
    row([
        message.status.name(),
        &message.deliver_at,
        &message.destination,
        &message.attempts.to_string(),
        &message.message_id,
        message.id.as_deref().unwrap_or("-"),
    ])
}

/// Rows come page by page, so that columns have fixed widths and only the last ones may run over.
fn row([status, deliver_at, destination, attempts, message_id, id]: [&str; 6]) -> String {
    format!("{status:11}  {deliver_at:24}  {destination:16}  {attempts:8}  {message_id:68}  {id}")
}

/// Counts messages by status.
pub(super) async fn count(client: &HttpClient, args: &CountArgs, output: &Output) -> Result<(), Failure> {
    let counts = client
        .call(Method::GET, &["v1", "counts"])
        .query("destination", args.destination.as_ref())
        .send::<Counts>()
        .await?
        .body;
    output.item(&counts, |counts| {
        let row = |name, count: u64| (name, Some(count.to_string()));
        fields(&[
            row("scheduled", counts.scheduled),
            row("retrying", counts.retrying),
            row("publishing", counts.publishing),
            row("uncertain", counts.uncertain),
            row("published", counts.published),
            row("canceled", counts.canceled),
            row("expired", counts.expired),
            row("dead_letter", counts.dead_letter),
        ])
    })
}
