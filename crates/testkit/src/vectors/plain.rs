//! Cases that are one formula: ids, partitions, lanes, waits, derived identities.

use prost::Message;
use protocol::command::KafkaHeader;
use protocol::hash::{Hash, first64};
use protocol::id::{CommandId, MessageId, RouteId};
use protocol::jitter::{self, RetryDomain};
use protocol::lane::{self, LaneId, LaneOrdering, LaneTuple};
use protocol::text::Text;
use protocol::{derived, nulls, routing};

use super::compare::Computed;
use super::json::{Node, Problem};
use super::position::position;
use super::shared::{count, maybe_number, profile_ref, resource, same, shard, uuid};

pub(super) fn self_routing_id(input: &Node<'_>) -> Result<Computed, Problem> {
    let (shard, uuid) = (shard(input)?, uuid(&input.get("logical_uuid_hex")?)?);
    let (message, command) = (MessageId::new(shard, uuid), CommandId::new(shard, uuid));
    let bytes = message.to_bytes();
    same("id", &MessageId::from_bytes(&bytes).map_err(|e| Problem::refused("id", e))?, &message)?;
    same("id", &CommandId::from_bytes(&bytes).map_err(|e| Problem::refused("id", e))?, &command)?;
    let (message_text, command_text) = (message.to_string(), command.to_string());
    let parsed = message_text.parse().map_err(|error| Problem::refused("message id text", error))?;
    same("message id text", &parsed, &message)?;
    let parsed = command_text.parse().map_err(|error| Problem::refused("command id text", error))?;
    same("command id text", &parsed, &command)?;
    let mut computed = Computed::default();
    computed.bytes("id", bytes);
    computed.bytes("crc32c", &bytes[bytes.len() - 4..]);
    computed.json("logical_timestamp_epoch_ms", uuid.unix_ms());
    computed.json("message_id_text", message_text);
    computed.json("command_id_text", command_text);
    Ok(computed)
}

/// A digest, its first eight bytes as a number, and the partition taken from them.
fn hashed_partition(digest: &Hash, partition: u32) -> Computed {
    let mut computed = Computed::default();
    computed.bytes("digest", digest);
    computed.json("first64", first64(digest));
    computed.json("partition", partition);
    computed
}

pub(super) fn routing_hash(input: &Node<'_>) -> Result<Computed, Problem> {
    let route = RouteId(input.get("route_incarnation_hex")?.array()?);
    let scope = input.get("tenant_routing_scope_hex")?.array()?;
    let key = input.get("routing_key_hex")?.bytes()?;
    let partition = routing::ingress_partition(route, &scope, &key, count(&input.get("partition_count")?)?);
    Ok(hashed_partition(&routing::routing_hash(route, &scope, &key), partition))
}

pub(super) fn target_partition_hash(input: &Node<'_>) -> Result<Computed, Problem> {
    let id = input.get("profile_id_hex")?.bytes()?;
    let version = input.get("profile_version")?.number()?;
    let key = input.get("routing_bytes_hex")?.bytes()?;
    let partition = routing::target_partition(&id, version, &key, count(&input.get("target_partition_count")?)?);
    Ok(hashed_partition(&routing::target_hash(&id, version, &key), partition))
}

pub(super) fn kafka_partition(input: &Node<'_>) -> Result<Computed, Problem> {
    let key = input.get("key_hex")?.bytes()?;
    let mut computed = Computed::default();
    computed.json("murmur2", routing::murmur2(&key).cast_signed());
    computed.json("partition", routing::kafka_partition(&key, count(&input.get("partition_count")?)?));
    Ok(computed)
}

pub(super) fn lane_tuple(input: &Node<'_>) -> Result<LaneTuple, Problem> {
    let ordering = match (input.maybe("ordering_domain_hash_hex"), input.maybe("unordered_bucket")) {
        (Some(domain), None) => LaneOrdering::Domain(domain.array()?),
        (None, Some(bucket)) => LaneOrdering::Bucket(bucket.number()?),
        _ => return Err(Problem::Refused("a lane has either an ordering domain or a bucket".to_owned())),
    };
    Ok(LaneTuple {
        tenant_scope: input.get("tenant_routing_scope_hex")?.array()?,
        resource: resource(&input.get("target_resource")?)?,
        partition: input.get("physical_partition")?.number()?,
        destination: profile_ref(&input.get("destination_profile")?)?,
        capability: profile_ref(&input.get("capability_profile")?)?,
        ordering,
    })
}

pub(super) fn lane_id(input: &Node<'_>) -> Result<Computed, Problem> {
    let tuple = lane_tuple(input)?;
    let bytes = tuple.to_bytes();
    let decoded = LaneTuple::from_bytes(&bytes).map_err(|error| Problem::refused("lane tuple", error))?;
    same("lane tuple", &decoded, &tuple)?;
    let mut computed = Computed::default();
    computed.bytes("target_resource_protobuf", tuple.resource.to_proto().encode_to_vec());
    computed.bytes("lane_tuple", bytes);
    computed.bytes("lane_id", tuple.lane_id().0);
    Ok(computed)
}

pub(super) fn retry_jitter(input: &Node<'_>) -> Result<Computed, Problem> {
    let domain = RetryDomain::from_u8(input.get("retry_domain")?.number()?)
        .ok_or_else(|| Problem::Refused("no such retry domain".to_owned()))?;
    let message: [u8; protocol::id::ID_BYTES] = input.get("delay_message_id_hex")?.array()?;
    let generation = input.get("generation")?.number()?;
    let attempt = input.get("attempt_no")?.number()?;
    let cap_ms = match input.maybe("initial_backoff_ms") {
        Some(initial) => jitter::backoff_cap_ms(initial.number()?, input.get("max_backoff_ms")?.number()?, attempt),
        None => input.get("max_backoff_ms")?.number()?,
    };
    let digest = jitter::digest(domain, &message, generation, attempt);
    let mut computed = Computed::default();
    computed.bytes("digest", digest);
    computed.json("first64", first64(&digest));
    computed.json("cap_ms", cap_ms);
    computed.json("delay_ms", jitter::delay_ms(domain, &message, generation, attempt, cap_ms));
    Ok(computed)
}

/// Computes every identity whose inputs the case has.
pub(super) fn derived_ids(input: &Node<'_>) -> Result<Computed, Problem> {
    let hash = |key: &str| input.maybe(key).map(|node| node.array::<32>()).transpose();
    let number = |key: &str| maybe_number::<u32>(input, key);
    let message: [u8; protocol::id::ID_BYTES] = input.get("delay_message_id_hex")?.array()?;
    let generation = number("generation")?;
    let attempt_no = number("attempt_no")?;
    let mut computed = Computed::default();
    if let (Some(command), Some(hash)) = (input.maybe("command_id_hex"), hash("command_hash_hex")?) {
        let command: [u8; protocol::id::ID_BYTES] = command.array()?;
        computed.bytes("reservation_id", derived::reservation_id(&command, &message, &hash));
    }
    let mut claim_id = hash("claim_id_hex")?;
    if let (Some(store), Some(generation)) = (input.maybe("store_incarnation_hex"), generation) {
        let id = derived::claim_id(
            &store.array()?,
            input.get("owner_epoch")?.number()?,
            input.get("claim_sequence")?.number()?,
            &message,
            generation,
            input.get("lane_version")?.number()?,
        );
        computed.bytes("claim_id", id);
        claim_id.get_or_insert(id);
    }
    if let (Some(claim), Some(generation), Some(attempt_no)) = (claim_id, generation, attempt_no) {
        let id = derived::publish_attempt_id(&claim, &message, generation, attempt_no);
        computed.bytes("publish_attempt_id", id);
        if let Some(evidence) = hash("evidence_id_hex")? {
            computed.bytes("evidence_resolution_logical_id", derived::evidence_resolution_logical_id(&id, &evidence));
        }
    }
    if let (Some(revision), Some(generation)) = (maybe_number(input, "terminal_revision")?, generation) {
        let export = derived::dlq_export_id(&message, generation, revision);
        computed.bytes("dlq_export_id", export);
        if let Some(attempt_no) = attempt_no {
            let id = derived::dlq_export_attempt_logical_id(&export, attempt_no);
            computed.bytes("dlq_export_attempt_logical_id", id);
        }
        if let Some(evidence) = hash("evidence_id_hex")? {
            computed
                .bytes("dlq_export_evidence_logical_id", derived::dlq_export_evidence_logical_id(&export, &evidence));
        }
    }
    if let (Some(expire_at_ms), Some(generation)) = (maybe_number(input, "expire_at_epoch_ms")?, generation) {
        computed.bytes("expiry_logical_id", derived::expiry_logical_id(&message, generation, expire_at_ms));
    }
    if let Some(buckets) = input.maybe("unordered_lane_bucket_count") {
        computed.json("unordered_bucket", lane::unordered_bucket(&message, count(&buckets)?));
    }
    if let (Some(lane), Some(at)) = (hash("lane_id_hex")?, input.maybe("source_position")) {
        computed.bytes("lane_incarnation", lane::lane_incarnation(LaneId(lane), &position(&at)?));
    }
    Ok(computed)
}

/// The attempt id of body version 2.
pub(super) fn attempt_id(input: &Node<'_>) -> Result<Computed, Problem> {
    let message: [u8; protocol::id::ID_BYTES] = input.get("delay_message_id_hex")?.array()?;
    let at = position(&input.get("admission_position")?)?;
    let id = derived::attempt_id(&message, input.get("generation")?.number()?, input.get("attempt")?.number()?, &at);
    let mut computed = Computed::default();
    computed.bytes("attempt_id", id);
    Ok(computed)
}

pub(super) fn tenant_scope(input: &Node<'_>) -> Result<Computed, Problem> {
    let mut computed = Computed::default();
    computed.bytes("tenant_routing_scope", routing::tenant_scope(input.get("tenant")?.text()?));
    Ok(computed)
}

/// The marker of null values, both ways.
pub(super) fn null_marker(input: &Node<'_>) -> Result<Computed, Problem> {
    let value_is_null = input.get("value_is_null")?.boolean()?;
    let indices: Vec<u16> = input.get("null_headers")?.items()?.iter().map(Node::number).collect::<Result<_, _>>()?;
    let marker = nulls::encode(value_is_null, &indices);
    let caller_headers: usize = input.get("header_count")?.number()?;
    let name = |name: &str| Text::try_from(name).map_err(|error| Problem::refused("header name", error));
    let mut headers = Vec::new();
    for _ in 0..caller_headers {
        headers.push(KafkaHeader { name: name("h")?, value: bytes::Bytes::new() });
    }
    if let Some(value) = marker.clone() {
        headers.push(KafkaHeader { name: name(nulls::MARKER_NAME)?, value });
    }
    let (found, caller) = nulls::split(&headers, 0).map_err(|error| Problem::refused("null marker", error))?;
    same(
        "null marker",
        &(found.value_is_null, found.headers, caller.len()),
        &(value_is_null, indices, caller_headers),
    )?;
    let mut computed = Computed::default();
    computed.json("header_name", nulls::MARKER_NAME);
    computed.maybe_bytes("header_value", marker);
    Ok(computed)
}
