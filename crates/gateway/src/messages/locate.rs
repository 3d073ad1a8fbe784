//! From what a caller calls a message to where it is: its own id, or the service's.

use client::api::problem::Problem;
use protocol::code::StableCode;
use protocol::id::MessageId;
use shard::query::{self, MessageView};
use shard::state::row;
use shard::store::{Read, StoreError};
use tokio::time::Instant;

use crate::problem::shard_problem;
use crate::routes::ShardPlace;
use crate::state::Gateway;

/// A message that was found, as it stood behind the barrier.
pub(crate) struct Located<'a> {
    pub(crate) place: ShardPlace<'a>,
    pub(crate) message_id: MessageId,
    pub(crate) view: MessageView,
    pub(crate) progress: row::Progress,
    /// The canonical intent, when it was asked for and is still kept.
    pub(crate) intent: Option<bytes::Bytes>,
}

/// Finds a message and reads it behind everything that was appended before this call.
///
/// # Errors
/// NOT_FOUND, MESSAGE_FORGOTTEN for an `ndm1_` id whose retention is over, or what keeps the shard from answering.
pub(crate) async fn locate<'a>(
    gateway: &'a Gateway,
    id: &str,
    with_intent: bool,
    deadline: Instant,
) -> Result<Located<'a>, Problem> {
    let name = Name::parse(id)?;
    let place = name.place(gateway)?;
    place.caught_up(deadline).await?;
    let found = place.handle.read(|read| find(read, &name, with_intent)).map_err(shard_problem)?;
    match found {
        Some((view, progress, intent)) => {
            let message_id = MessageId { shard: place.handle.shard(), uuid: view.message };
            Ok(Located { place, message_id, view, progress, intent })
        }
        None => Err(missing(gateway, place, id, &name)),
    }
}

/// The shard where a message of this id is, if it is anywhere.
///
/// # Errors
/// NOT_FOUND for an id that no shard here can have.
pub(crate) fn place<'a>(gateway: &'a Gateway, id: &str) -> Result<ShardPlace<'a>, Problem> {
    Name::parse(id)?.place(gateway)
}

/// What a path segment names.
enum Name<'a> {
    Message(MessageId),
    Key(&'a str),
}

impl<'a> Name<'a> {
    fn parse(id: &'a str) -> Result<Name<'a>, Problem> {
        if !id.starts_with(MessageId::PREFIX) {
            return Ok(Name::Key(id));
        }
        id.parse().map(Name::Message).map_err(|error| {
            Problem::new(StableCode::NotFound, format!("{id:?} is no message id: {error}")).field("id")
        })
    }

    fn place<'b>(&self, gateway: &'b Gateway) -> Result<ShardPlace<'b>, Problem> {
        match self {
            Name::Message(message_id) => gateway.routes.of_message(*message_id),
            Name::Key(key) => gateway.routes.of_key(key.as_bytes()),
        }
    }
}

type Found = (MessageView, row::Progress, Option<bytes::Bytes>);

fn find(read: &dyn Read, name: &Name<'_>, with_intent: bool) -> Result<Option<Found>, StoreError> {
    let message = match name {
        Name::Message(message_id) => Some(message_id.uuid),
        Name::Key(key) => query::by_business_key(read, key.as_bytes())?,
    };
    let Some(message) = message else { return Ok(None) };
    let Some(view) = query::message(read, message)? else { return Ok(None) };
    let intent = if with_intent { query::intent(read, message)? } else { None };
    Ok(Some((view, query::progress(read)?, intent)))
}

fn missing(gateway: &Gateway, place: ShardPlace<'_>, id: &str, name: &Name<'_>) -> Problem {
    let limits = &place.route.snapshot.limits;
    let kept_ms = limits.terminal_retention_ms.max(limits.preparation_age_ms_max);
    if let Name::Message(message_id) = name {
        let age_ms = gateway.now_ms().saturating_sub(message_id.uuid.unix_ms());
        if age_ms > kept_ms {
            let detail = format!(
                "message {id} was made {} ago; ended messages are kept for {}",
                client::duration::DisplayDelay(age_ms),
                client::duration::DisplayDelay(kept_ms)
            );
            return Problem::new(client::api::problem::SurfaceCode::MessageForgotten, detail).field("id");
        }
    }
    Problem::new(StableCode::NotFound, format!("there is no message {id:?}, or its retention is over")).field("id")
}
