//! Reading messages: one, many, how many.

use std::collections::BTreeSet;

use bytes::Bytes;
use client::api::message::{Counts, Message, MessagePage, Status, WaitingFor};
use client::api::problem::{Problem, SurfaceCode};
use client::instant::parse_instant_ms;
use data_encoding::BASE64URL_NOPAD;
use protocol::id::MessageId;
use shard::query::list::{ListFilter, ListOrder, ListPage};
use shard::query::{self, list};
use shard::schedule::lane::Readiness;
use shard::state::generation::MessageState;
use shard::state::row;

use super::locate::{Located, locate};
use super::view;
use crate::destinations;
use crate::problem::shard_problem;
use crate::state::Gateway;

/// A message that has been due for so long waits for something.
const OVERDUE_MS: i64 = 500;
/// Items of a page when the request does not say.
const PAGE_ITEMS_DEFAULT: usize = 50;

/// One message.
///
/// # Errors
/// NOT_FOUND, MESSAGE_FORGOTTEN, or what keeps the shard from answering.
pub(crate) async fn get(gateway: &Gateway, id: &str, with_payload: bool) -> Result<Message, Problem> {
    let located = locate(gateway, id, with_payload, gateway.read_deadline()).await?;
    let mut message = view::message(gateway, &located);
    message.waiting_for = waiting_for(gateway, &located, &message).await;
    Ok(message)
}

/// Why a message has not gone out although it is due for a while: its lane's owner says. One that cannot be asked now has no
/// reason to tell, and the message is what matters.
async fn waiting_for(gateway: &Gateway, located: &Located<'_>, message: &Message) -> Option<WaitingFor> {
    let is_waiting = matches!(message.status, Status::Scheduled | Status::Retrying);
    if !is_waiting || message.deliver_at_ms.saturating_add(OVERDUE_MS) > gateway.now_ms() {
        return None;
    }
    let lanes = located.place.handle.lanes().await.ok()?;
    let lane_no = located.view.row.lane_no();
    let lane = lanes.into_iter().find(|lane| lane.lane_no == lane_no)?;
    let Readiness::Blocked(code) = lane.readiness else { return None };
    Some(WaitingFor { code: code.name().to_owned(), detail: lane.detail })
}

/// The query of a list, as sent.
#[derive(Debug, Default)]
pub(crate) struct ListQuery {
    pub(crate) destination: Option<String>,
    pub(crate) status: Option<String>,
    pub(crate) due_after: Option<String>,
    pub(crate) due_before: Option<String>,
    pub(crate) id_prefix: Option<String>,
    pub(crate) limit: Option<String>,
    pub(crate) cursor: Option<String>,
    pub(crate) include: Option<String>,
}

/// A page of messages over all shards.
///
/// # Errors
/// INVALID_PARAMETER, or what keeps a shard from answering.
pub(crate) async fn list(gateway: &Gateway, query: &ListQuery) -> Result<MessagePage, Problem> {
    let filter = filter(gateway, query)?;
    let limit = limit(gateway, query.limit.as_deref())?;
    let with_payload = includes_payload(query.include.as_deref())?;
    let order = filter.order();
    let after = query.cursor.as_deref().map(|cursor| decode_cursor(cursor, order)).transpose()?;

    let mut pages = Vec::new();
    let deadline = gateway.read_deadline();
    for place in gateway.routes.shards() {
        place.caught_up(deadline).await?;
        let shard = place.handle.shard();
        let rows_max = gateway.config.page_rows_max;
        let read = place.handle.read(|read| {
            let page = list::list(read, shard.partition, &filter, after.as_deref(), limit, rows_max)?;
            let intents = page
                .items
                .iter()
                .map(|(_, view)| if with_payload { query::intent(read, view.message) } else { Ok(None) });
            let intents: Vec<Option<Bytes>> = intents.collect::<Result<_, _>>()?;
            Ok((page, intents, query::progress(read)?))
        });
        let (page, intents, progress) = read.map_err(shard_problem)?;
        pages.push(ShardPage { shard, page, intents, progress });
    }
    Ok(merge(gateway, pages, order, limit))
}

struct ShardPage {
    shard: protocol::id::ShardId,
    page: ListPage,
    intents: Vec<Option<Bytes>>,
    progress: row::Progress,
}

/// Merges the shards' pages as far as all of them have looked.
fn merge(gateway: &Gateway, pages: Vec<ShardPage>, order: ListOrder, limit: usize) -> MessagePage {
    let bound: Option<Bytes> = pages.iter().filter_map(|page| page.page.looked_through.clone()).min();
    let mut rows = Vec::new();
    for ShardPage { shard, page, intents, progress } in &pages {
        for ((sort_key, view), intent) in page.items.iter().zip(intents) {
            if bound.as_ref().is_none_or(|bound| sort_key <= bound) {
                rows.push((sort_key.clone(), *shard, view, intent, progress));
            }
        }
    }
    rows.sort_by(|a, b| a.0.cmp(&b.0));
    let cut = rows.len() > limit;
    rows.truncate(limit);
    let last = rows.last().map(|row| row.0.clone());
    let next = if cut { last } else { bound };
    let items = rows
        .into_iter()
        .map(|(_, shard, view, intent, progress)| {
            let message_id = MessageId { shard, uuid: view.message };
            let payload = intent.as_ref().and_then(view::payload);
            Message { payload, ..view::listed(gateway, message_id, view, progress) }
        })
        .collect();
    MessagePage { items, next_cursor: next.map(|key| encode_cursor(order, &key)) }
}

fn filter(gateway: &Gateway, query: &ListQuery) -> Result<ListFilter, Problem> {
    let profile_ids = query.destination.as_deref().map(|name| destination_ids(gateway, name)).transpose()?;
    let states = query.status.as_deref().map(states).transpose()?;
    let instant =
        |name: &'static str, text: &Option<String>| text.as_deref().map(|text| instant(name, text)).transpose();
    let prefix = query.id_prefix.as_ref();
    if prefix.is_some_and(|prefix| prefix.starts_with(MessageId::PREFIX)) {
        return Err(parameter(
            "id_prefix",
            "id_prefix is of your own ids; message ids of the service are looked up whole",
        ));
    }
    Ok(ListFilter {
        profile_ids,
        states,
        due_from_ms: instant("due_after", &query.due_after)?,
        due_until_ms: instant("due_before", &query.due_before)?,
        business_key_prefix: prefix.map(|prefix| Bytes::copy_from_slice(prefix.as_bytes())),
    })
}

fn destination_ids(gateway: &Gateway, name: &str) -> Result<BTreeSet<Bytes>, Problem> {
    match gateway.destinations.get(name) {
        Some(_) => Ok(BTreeSet::from([Bytes::copy_from_slice(name.as_bytes())])),
        None => Err(destinations::unknown(gateway, name)),
    }
}

fn states(text: &str) -> Result<BTreeSet<MessageState>, Problem> {
    text.split(',')
        .map(|name| {
            Status::from_name(name).and_then(view::state).ok_or_else(|| {
                let known: Vec<&str> = Status::STORED.into_iter().map(Status::name).collect();
                parameter("status", &format!("{name:?} is no status; there are {}", known.join(", ")))
            })
        })
        .collect()
}

/// A time in a query: RFC 3339, or epoch milliseconds.
fn instant(name: &'static str, text: &str) -> Result<i64, Problem> {
    if let Ok(epoch_ms) = text.parse::<u64>() {
        return i64::try_from(epoch_ms).map_err(|_| parameter(name, "is larger than any time"));
    }
    parse_instant_ms(text).map_err(|error| parameter(name, &error.to_string()))
}

fn limit(gateway: &Gateway, text: Option<&str>) -> Result<usize, Problem> {
    let most = gateway.config.page_items_max;
    let Some(text) = text else { return Ok(PAGE_ITEMS_DEFAULT.min(most)) };
    match text.parse::<usize>() {
        Ok(limit) if (1..=most).contains(&limit) => Ok(limit),
        _ => Err(parameter("limit", &format!("limit is a number from 1 to {most}; found {text:?}"))),
    }
}

pub(crate) fn includes_payload(include: Option<&str>) -> Result<bool, Problem> {
    match include {
        None => Ok(false),
        Some("payload") => Ok(true),
        Some(other) => Err(parameter("include", &format!("include knows \"payload\" only; found {other:?}"))),
    }
}

pub(crate) fn parameter(name: &'static str, detail: &str) -> Problem {
    Problem::new(SurfaceCode::InvalidParameter, detail).field(name)
}

fn encode_cursor(order: ListOrder, key: &[u8]) -> String {
    let mut bytes = vec![order_tag(order)];
    bytes.extend_from_slice(key);
    BASE64URL_NOPAD.encode(&bytes)
}

fn decode_cursor(cursor: &str, order: ListOrder) -> Result<Bytes, Problem> {
    let bytes = BASE64URL_NOPAD.decode(cursor.as_bytes()).unwrap_or_default();
    match bytes.split_first() {
        Some((tag, key)) if *tag == order_tag(order) => Ok(Bytes::copy_from_slice(key)),
        _ => {
            Err(parameter("cursor", "the cursor is not one of this list: pass next_cursor back with the same filters"))
        }
    }
}

fn order_tag(order: ListOrder) -> u8 {
    match order {
        ListOrder::Due => 1,
        ListOrder::DeadLetters => 2,
        ListOrder::BusinessKey => 3,
        ListOrder::MessageId => 4,
    }
}

/// How many messages are kept, by status.
///
/// # Errors
/// UNKNOWN_DESTINATION, or what keeps a shard from answering.
pub(crate) async fn counts(gateway: &Gateway, destination: Option<&str>) -> Result<Counts, Problem> {
    let wanted = destination.map(|name| destination_ids(gateway, name)).transpose()?;
    let mut counts = Counts::default();
    let deadline = gateway.read_deadline();
    for place in gateway.routes.shards() {
        place.caught_up(deadline).await?;
        let part = place.handle.read(|read| {
            let mut part = Counts::default();
            for (lane_no, lane) in query::lanes(read)? {
                if wanted.as_ref().is_some_and(|wanted| !wanted.contains(&lane.profile_id)) {
                    continue;
                }
                let live = lane.live.unwrap_or_default();
                part.scheduled += live.scheduled;
                part.retrying += live.retrying;
                part.publishing += live.publishing;
                part.uncertain += live.uncertain;
                part.published += query::terminal_count(read, lane_no, MessageState::Published)?;
                part.canceled += query::terminal_count(read, lane_no, MessageState::Canceled)?;
                part.expired += query::terminal_count(read, lane_no, MessageState::Expired)?;
                part.dead_letter += query::terminal_count(read, lane_no, MessageState::DeadLetter)?;
            }
            Ok(part)
        });
        let part = part.map_err(shard_problem)?;
        counts.scheduled += part.scheduled;
        counts.retrying += part.retrying;
        counts.publishing += part.publishing;
        counts.uncertain += part.uncertain;
        counts.published += part.published;
        counts.canceled += part.canceled;
        counts.expired += part.expired;
        counts.dead_letter += part.dead_letter;
    }
    Ok(counts)
}
