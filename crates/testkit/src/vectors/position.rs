//! Source Positions: bytes, tokens, order.

use prost::Message;
use protocol::id::RouteId;
use protocol::lane::{LaneId, lane_incarnation};
use protocol::position::{EmbeddedPosition, EntryMember, KafkaPosition, PulsarPosition, SourcePosition};
use serde_json::Value;

use super::compare::Computed;
use super::json::{Node, Problem};
use super::shared::{maybe_number, same};

/// A position as files give it.
pub(super) fn position(node: &Node<'_>) -> Result<SourcePosition, Problem> {
    let route = RouteId(node.get("route_incarnation_hex")?.array()?);
    let partition = node.get("partition")?.number()?;
    Ok(match node.get("adapter")?.text()? {
        "KAFKA" => SourcePosition::Kafka(KafkaPosition {
            route,
            cluster_id: node.get("cluster_id")?.text()?.into(),
            topic: node.get("topic_uuid_hex")?.array()?,
            partition,
            offset: node.get("offset")?.number()?,
            leader_epoch: maybe_number(node, "leader_epoch")?,
            append_time_ms: node.get("log_append_time_epoch_ms")?.number()?,
        }),
        "PULSAR" => SourcePosition::Pulsar(PulsarPosition {
            route,
            incarnation: node.get("resource_incarnation_hex")?.bytes()?,
            topic: node.get("physical_topic")?.text()?.into(),
            partition,
            ledger: node.get("ledger_id")?.number()?,
            entry: node.get("entry_id")?.number()?,
            member: member(node)?,
            entry_time_ms: node.get("entry_timestamp_epoch_ms")?.number()?,
        }),
        "EMBEDDED" => SourcePosition::Embedded(EmbeddedPosition {
            route,
            log: node.get("log_uuid_hex")?.array()?,
            partition,
            offset: node.get("offset")?.number()?,
            append_time_ms: node.get("append_time_epoch_ms")?.number()?,
        }),
        other => return Err(Problem::Refused(format!("adapter {other} is not known here"))),
    })
}

fn member(node: &Node<'_>) -> Result<EntryMember, Problem> {
    const KINDS: [(&str, i128); 3] = [("NON_BATCH", 1), ("SINGLE", 1), ("BATCH", 2)];
    let (index, size) = (node.get("batch_index")?.number()?, node.get("batch_size")?.number()?);
    match (node.wire::<u32>("entry_kind", &KINDS)?, index, size) {
        (1, 0, 1) => Ok(EntryMember::Single),
        (2, index, size) => Ok(EntryMember::Batch { index, size }),
        (kind, ..) => Err(Problem::Refused(format!("entry kind {kind} with index {index} of {size}"))),
    }
}

pub(super) fn source_position(input: &Node<'_>) -> Result<Computed, Problem> {
    let position = position(&input.get("position")?)?;
    let bytes = position.to_bytes();
    let decoded = SourcePosition::from_bytes(&bytes).map_err(|error| Problem::refused("position", error))?;
    same("position", &decoded, &position)?;
    let proto = position.to_proto();
    let decoded = SourcePosition::from_proto(&proto).map_err(|error| Problem::refused("position", error))?;
    same("position in protobuf", &decoded, &position)?;
    let mut computed = Computed::default();
    computed.bytes("canonical", bytes);
    computed.bytes("source_order_token", position.order_token().as_bytes());
    computed.bytes("protobuf", proto.encode_to_vec());
    computed.json("broker_persistence_time_epoch_ms", position.broker_time_ms());
    if let Some(lane) = input.maybe("lane_id_hex") {
        computed.bytes("initial_lane_incarnation", lane_incarnation(LaneId(lane.array()?), &position));
    }
    Ok(computed)
}

pub(super) fn source_position_order(input: &Node<'_>) -> Result<Computed, Problem> {
    let positions = input.get("positions")?.items()?;
    let positions: Vec<SourcePosition> = positions.iter().map(position).collect::<Result<_, _>>()?;
    let order = |a: &SourcePosition, b: &SourcePosition| match a.compare(b) {
        Some(order) => Value::from(order as i8),
        None => Value::Null,
    };
    let matrix: Vec<Value> =
        positions.iter().map(|a| positions.iter().map(|b| order(a, b)).collect::<Value>()).collect();
    let agrees = positions.iter().all(|a| {
        positions.iter().all(|b| a.compare(b).is_none_or(|order| order == a.order_token().cmp(&b.order_token())))
    });
    let tokens: Value = positions.iter().map(|position| hex::encode(position.order_token().as_bytes())).collect();
    let mut computed = Computed::default();
    computed.json("source_order_tokens_hex", tokens);
    computed.json("compare_matrix", matrix);
    computed.json("token_bytewise_order_agrees", agrees);
    Ok(computed)
}
