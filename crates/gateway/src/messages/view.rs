//! Messages as callers see them.

use client::api::message::{Content, Delivery, HeaderContent, Message, MessageReceipt, Payload, Status};
use client::instant::format_instant_ms;
use data_encoding::HEXLOWER;
use protocol::code::StableCode;
use protocol::command::ScheduleIntent;
use protocol::id::MessageId;
use protocol::mutation_v2::PublishedEvidence;
use shard::query::MessageView;
use shard::schedule::outgoing::OutgoingRecord;
use shard::state::generation::MessageState;
use shard::state::row;

use super::locate::Located;
use crate::state::Gateway;

/// The word for a state.
pub(crate) fn status(state: MessageState) -> Status {
    match state {
        MessageState::Scheduled => Status::Scheduled,
        MessageState::Publishing => Status::Publishing,
        MessageState::RetryWait => Status::Retrying,
        MessageState::Uncertain => Status::Uncertain,
        MessageState::Published => Status::Published,
        MessageState::Canceled => Status::Canceled,
        MessageState::Expired => Status::Expired,
        MessageState::DeadLetter => Status::DeadLetter,
    }
}

/// The state of a word.
pub(crate) fn state(status: Status) -> Option<MessageState> {
    MessageState::ALL.into_iter().find(|state| self::status(*state) == status)
}

/// Everything about a message.
pub(crate) fn message(gateway: &Gateway, located: &Located<'_>) -> Message {
    let payload = located.intent.as_ref().and_then(payload);
    Message { payload, ..listed(gateway, located.message_id, &located.view, &located.progress) }
}

/// A message of a list.
pub(crate) fn listed(
    gateway: &Gateway,
    message_id: MessageId,
    view: &MessageView,
    progress: &row::Progress,
) -> Message {
    let row = &view.row;
    let destination = String::from_utf8_lossy(&view.lane.profile_id).into_owned();
    let delivery = delivery(gateway, &destination, view);
    let lateness_ms = delivery.as_ref().and_then(|delivery| Some(delivery.timestamp_ms? - row.deliver_at_ms));
    let next_attempt_at_ms = (matches!(view.state, MessageState::RetryWait | MessageState::Uncertain)
        && row.due_key().is_some())
    .then_some(row.eligible_at_ms);
    // A generation that the fence has closed ended at its deadline, whether or not the sweep has written it down.
    let ended_at_ms = row
        .terminal
        .as_ref()
        .map(|terminal| terminal.at_ms)
        .or_else(|| view.state.is_terminal().then_some(row.expire_at_ms));
    let error = row.terminal.as_ref().map(|terminal| terminal.code).filter(|_| view.state == MessageState::DeadLetter);
    let error = error.unwrap_or(row.error_last);
    Message {
        message_id: message_id.to_string(),
        id: own_id(row),
        status: status(view.state),
        destination,
        destination_version: view.lane.profile_version,
        deliver_at: format_instant_ms(row.deliver_at_ms),
        deliver_at_ms: row.deliver_at_ms,
        expires_at: format_instant_ms(row.expire_at_ms),
        expires_at_ms: row.expire_at_ms,
        scheduled_at: format_instant_ms(row.scheduled_at_ms),
        scheduled_at_ms: row.scheduled_at_ms,
        version: row.state_version,
        generation: row.generation,
        attempts: row.attempts_used,
        next_attempt_at: next_attempt_at_ms.map(format_instant_ms),
        next_attempt_at_ms,
        last_error: (error != 0)
            .then(|| StableCode::from_u32(error).map(StableCode::name))
            .flatten()
            .map(str::to_owned),
        waiting_for: None,
        possible_duplicate: row.possible_duplicate,
        ended_at: ended_at_ms.map(format_instant_ms),
        ended_at_ms,
        delivery,
        lateness_ms,
        payload: None,
        applied_position: HEXLOWER.encode(&progress.applied_position),
    }
}

/// A message's receipt from what is stored of it.
pub(crate) fn receipt(gateway: &Gateway, message_id: MessageId, view: &MessageView) -> MessageReceipt {
    let row = &view.row;
    let destination = String::from_utf8_lossy(&view.lane.profile_id);
    let delivery = delivery(gateway, &destination, view);
    let lateness_ms = delivery.as_ref().and_then(|delivery| Some(delivery.timestamp_ms? - row.deliver_at_ms));
    MessageReceipt {
        delivery,
        lateness_ms,
        ..receipt_of(
            gateway,
            message_id,
            own_id(row),
            status(view.state),
            (row.deliver_at_ms, row.expire_at_ms),
            Some(row.state_version),
        )
    }
}

/// A receipt from what is known without asking the store.
pub(crate) fn receipt_of(
    gateway: &Gateway,
    message_id: MessageId,
    id: Option<String>,
    status: Status,
    (deliver_at_ms, expires_at_ms): (i64, i64),
    version: Option<u64>,
) -> MessageReceipt {
    let server_time_ms = gateway.now_ms();
    MessageReceipt {
        message_id: message_id.to_string(),
        id,
        status,
        deliver_at: format_instant_ms(deliver_at_ms),
        deliver_at_ms,
        expires_at: format_instant_ms(expires_at_ms),
        expires_at_ms,
        version,
        server_time: format_instant_ms(server_time_ms),
        server_time_ms,
        delivery: None,
        lateness_ms: None,
    }
}

fn own_id(row: &row::Message) -> Option<String> {
    (!row.business_key.is_empty()).then(|| String::from_utf8_lossy(&row.business_key).into_owned())
}

fn delivery(gateway: &Gateway, destination: &str, view: &MessageView) -> Option<Delivery> {
    let evidence = view.row.terminal.as_ref()?.evidence.clone()?;
    let evidence = PublishedEvidence::from_proto(evidence).ok()?;
    let topic = gateway
        .destinations
        .get(destination)
        .and_then(|cached| cached.topic(view.lane.profile_version))
        .unwrap_or_else(|| destination.to_owned());
    let (partition, offset) = match &evidence {
        PublishedEvidence::Embedded(ack) | PublishedEvidence::Kafka(ack) => (ack.partition, Some(ack.offset)),
        PublishedEvidence::KafkaReceipt(receipt) => (receipt.partition, Some(receipt.offset)),
        PublishedEvidence::Pulsar(ack) => (ack.partition, None),
        PublishedEvidence::Operator(_) => (view.lane.partition, None),
    };
    let timestamp_ms = evidence.time_ms();
    Some(Delivery { topic, partition, offset, timestamp: timestamp_ms.map(format_instant_ms), timestamp_ms })
}

pub(crate) fn payload(intent: &bytes::Bytes) -> Option<Payload> {
    let record = OutgoingRecord::from_intent(&ScheduleIntent::decode(intent).ok()?)?;
    let content = |bytes: &Option<bytes::Bytes>| bytes.as_deref().map(Content::new);
    let headers = record.headers.iter().map(|header| HeaderContent {
        name: String::from_utf8_lossy(&header.name).into_owned(),
        value: content(&header.value),
    });
    Some(Payload { key: content(&record.key), value: content(&record.value), headers: headers.collect() })
}
