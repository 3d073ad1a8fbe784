//! The vectors that the registry itself prints, in sections of their own.

use bytes::Bytes;
use protocol::command::{AdapterMetadata, CommandType, KafkaMetadata, Payload, ScheduleIntent};
use protocol::command::{
    Cancel, ClientCommand, CommandBody, OrderingMode, Precondition, Reschedule, Schedule, command_hash,
};
use protocol::frame::{self, RecordKind};
use protocol::hash::first64;
use protocol::id::{CommandId, ID_BYTES, IdError, MessageId, RouteId, ShardId, Uuid7};
use protocol::jitter::{self, RetryDomain};
use protocol::lane::{LaneId, LaneOrdering, LaneTuple, lane_incarnation};
use protocol::mutation::{MutationType, mutation_hash};
use protocol::position::{KafkaPosition, SourcePosition};
use protocol::receipt_frame::{self, ReceiptKind};
use protocol::record::{self, LogRecord};
use protocol::reference::{ProfileRef, RetryPolicyRef};
use protocol::resource::Resource;
use protocol::{derived, routing};
use serde_json::Value;

use super::CaseReport;
use super::json::{Node, Problem};
use super::shared::{count, same};

/// Checks every section that is there; `None` when none is.
pub(super) fn check(file: &Value) -> Option<Vec<CaseReport>> {
    let file = Node::new(file, "file");
    let mut reports = Vec::new();
    let mut run = |name: String, result: Result<(), Problem>| {
        let failures = result.err().map(|problem| problem.to_string()).into_iter().collect();
        reports.push(CaseReport { name, failures, notes: Vec::new() });
    };
    type Check = fn(&Node<'_>) -> Result<(), Problem>;
    let lists: [(&str, Check); 3] = [("frames", frame), ("hashes", hash), ("derived", derived_id)];
    for (section, check) in lists {
        let Some(node) = file.maybe(section) else { continue };
        match node.items() {
            Err(problem) => run(section.to_owned(), Err(problem)),
            Ok(items) => items.iter().for_each(|item| run(name(item, section), check(item))),
        }
    }
    let single: [(&str, Check); 5] = [
        ("routing", routing_hash),
        ("self_id", self_id),
        ("lane", lane),
        ("target_partition", target_partition),
        ("retry_jitter", retry_jitter),
    ];
    for (section, check) in single {
        if let Some(node) = file.maybe(section) {
            run(name(&node, section), check(&node));
        }
    }
    if let Some(node) = file.maybe("golden_frames") {
        for command in ["cancel", "reschedule", "schedule"] {
            if node.has(command) {
                run(format!("golden_frames/{command}"), golden_frame(&node, command));
            }
        }
        run("golden_frames/ids".to_owned(), golden_ids(&node));
    }
    let known = [
        "about",
        "frames",
        "hashes",
        "derived",
        "routing",
        "self_id",
        "lane",
        "target_partition",
        "retry_jitter",
        "golden_frames",
    ];
    for key in file.object().ok()?.keys().filter(|key| !known.contains(&key.as_str())) {
        run(key.clone(), Err(Problem::Refused(format!("section {key} is not known here"))));
    }
    let any_section = known.iter().skip(1).any(|section| file.has(section));
    any_section.then_some(reports)
}

fn name(node: &Node<'_>, section: &str) -> String {
    node.maybe("name").and_then(|name| name.text().ok().map(str::to_owned)).unwrap_or_else(|| section.to_owned())
}

fn expect(what: &str, found: impl AsRef<[u8]>, node: &Node<'_>) -> Result<(), Problem> {
    let (found, expected) = (hex::encode(found), hex::encode(node.bytes()?));
    same(what, &found, &expected)
}

/// A frame around nothing: its header names the magic and the kind.
fn frame(node: &Node<'_>) -> Result<(), Problem> {
    let header = node.get("header")?.bytes()?;
    let kind = header.get(5).copied().unwrap_or_default();
    let framed = if header.starts_with(&frame::MAGIC.to_be_bytes()) {
        RecordKind::from_u8(kind).map(|kind| frame::encode(kind, b""))
    } else {
        ReceiptKind::from_u8(kind).map(|kind| receipt_frame::encode(kind, b""))
    };
    let framed = framed.ok_or_else(|| Problem::Refused(format!("kind {kind} does not exist")))?;
    same("header", &hex::encode(&framed[..12]), &hex::encode(header))?;
    expect("crc32c", &framed[12..], &node.get("crc32c")?)
}

fn hash(node: &Node<'_>) -> Result<(), Problem> {
    let versions: u32 = node.get("versions")?.number()?;
    same("versions", &versions, &1)?;
    let (retry_until_ms, body) = (node.get("retry_until")?.number()?, node.get("body")?.bytes()?);
    let hash = if let Some(command_type) = node.maybe("command_type") {
        let command_type = CommandType::from_u32(command_type.number()?)
            .ok_or_else(|| Problem::Refused("no such command type".to_owned()))?;
        let command: [u8; ID_BYTES] = node.get("command_id")?.array()?;
        let message: [u8; ID_BYTES] = node.get("delay_message_id")?.array()?;
        command_hash(command_type, &command, &message, retry_until_ms, &body)
    } else {
        let mutation_type = MutationType::from_u32(node.get("mutation_type")?.number()?)
            .ok_or_else(|| Problem::Refused("no such mutation type".to_owned()))?;
        let shard =
            ShardId { route: RouteId(node.get("route")?.array()?), partition: node.get("partition")?.number()? };
        mutation_hash(mutation_type, versions, shard, retry_until_ms, &body)
    };
    expect("sha256", hash, &node.get("sha256")?)
}

fn routing_hash(node: &Node<'_>) -> Result<(), Problem> {
    let route = RouteId(node.get("route")?.array()?);
    let (scope, key) = (node.get("scope")?.array()?, node.get("key")?.bytes()?);
    expect("digest", routing::routing_hash(route, &scope, &key), &node.get("digest")?)?;
    let partition = routing::ingress_partition(route, &scope, &key, count(&node.get("partitions")?)?);
    same("partition", &partition, &node.get("partition")?.number()?)
}

/// Layout and checksum of an id that is none: the checksum must be ours, and the decoder must refuse the UUID.
fn self_id(node: &Node<'_>) -> Result<(), Problem> {
    let bytes: [u8; ID_BYTES] = node.get("bytes")?.array()?;
    let crc = crc32c::crc32c(&bytes[..ID_BYTES - 4]);
    same("checksum", &bytes[ID_BYTES - 4..], &crc.to_be_bytes()[..])?;
    match MessageId::from_bytes(&bytes) {
        Err(IdError::UuidVersion { .. }) => Ok(()),
        other => Err(Problem::Refused(format!("a uuid of version 0 gives {other:?}"))),
    }
}

fn profile(node: &Node<'_>) -> Result<ProfileRef, Problem> {
    let items = node.items()?;
    let [id, version, hash, ..] = &items[..] else {
        return Err(Problem::Refused("a profile is name, version, hash".to_owned()));
    };
    let id = Bytes::copy_from_slice(id.text()?.as_bytes());
    Ok(ProfileRef { id, version: version.number()?, semantic_hash: hash.array()? })
}

fn lane(node: &Node<'_>) -> Result<(), Problem> {
    let adapter: u8 = node.get("adapter")?.number()?;
    same("resource kind", &node.get("resource_kind")?.number()?, &adapter)?;
    let cluster_id = node.get("cluster")?.text()?.into();
    let resource = match adapter {
        1 => Resource::Kafka { cluster_id, topic: node.get("topic_uuid")?.array()? },
        other => return Err(Problem::Refused(format!("a lane of adapter {other} is not described here"))),
    };
    same("physical identity", &node.get("physical_identity")?.bytes()?, &node.get("topic_uuid")?.bytes()?)?;
    let ordering = match node.get("lane_kind")?.number()? {
        1_u8 => LaneOrdering::Domain(node.get("domain")?.array()?),
        _ => LaneOrdering::Bucket(node.get("bucket")?.number()?),
    };
    let tuple = LaneTuple {
        tenant_scope: node.get("scope")?.array()?,
        resource,
        partition: node.get("partition")?.number()?,
        destination: profile(&node.get("profile")?)?,
        capability: profile(&node.get("capability")?)?,
        ordering,
    };
    expect("lane_id", tuple.lane_id().0, &node.get("lane_id")?)
}

/// The inputs are prose: everything is zero but the numbers that are named.
fn derived_id(node: &Node<'_>) -> Result<(), Problem> {
    let inputs = node.get("inputs")?.text()?;
    let number = |name: &str, default: u32| {
        let words: Vec<&str> = inputs.split([' ', ',', '=']).filter(|word| !word.is_empty()).collect();
        let named = words.windows(2).find(|pair| pair[0] == name);
        named
            .map_or(Ok(default), |pair| pair[1].parse::<u32>())
            .map_err(|_| Problem::Refused(format!("{name} in {inputs:?} is no number")))
    };
    let (message, hash) = ([0; ID_BYTES], [0; 32]);
    let value = match node.get("name")?.text()? {
        "reservationId" => derived::reservation_id(&message, &message, &hash).to_vec(),
        "claimId" => derived::claim_id(&[0; 16], 0, 0, &message, 0, 0).to_vec(),
        "publishAttemptId" => derived::publish_attempt_id(&hash, &message, 0, number("attemptNo", 1)?).to_vec(),
        "dlqExportId" => {
            let revision = number("terminalRevision", 1)?;
            derived::dlq_export_id(&message, number("generation", 0)?, revision.into()).to_vec()
        }
        "laneIncarnation" => {
            let position = SourcePosition::Kafka(KafkaPosition {
                route: RouteId([0; 16]),
                cluster_id: "".into(),
                topic: [0; 16],
                partition: 0,
                offset: 0,
                leader_epoch: None,
                append_time_ms: 0,
            });
            lane_incarnation(LaneId(hash), &position).to_vec()
        }
        other => return Err(Problem::Refused(format!("{other} is not known here"))),
    };
    expect("value", value, &node.get("value")?)
}

fn target_partition(node: &Node<'_>) -> Result<(), Problem> {
    let (profile, version) = (node.get("profile")?.text()?.as_bytes(), node.get("version")?.number()?);
    let key = node.get("routing_bytes")?.bytes()?;
    expect("digest", routing::target_hash(profile, version, &key), &node.get("digest")?)?;
    let partition = routing::target_partition(profile, version, &key, count(&node.get("partitions")?)?);
    same("partition", &partition, &node.get("partition")?.number()?)
}

fn retry_jitter(node: &Node<'_>) -> Result<(), Problem> {
    let domain = RetryDomain::from_u8(node.get("domain")?.number()?)
        .ok_or_else(|| Problem::Refused("no such retry domain".to_owned()))?;
    let message: [u8; ID_BYTES] = node.get("message")?.array()?;
    let (generation, attempt) = (node.get("generation")?.number()?, node.get("attempt")?.number()?);
    let digest = jitter::digest(domain, &message, generation, attempt);
    expect("digest", digest, &node.get("digest")?)?;
    same("first64", &first64(&digest).to_string(), &node.get("first64")?.text()?.to_owned())?;
    let cap_ms = node.get("cap")?.number()?;
    let delay_ms = jitter::delay_ms(domain, &message, generation, attempt, cap_ms);
    same("delay", &delay_ms, &node.get("delay")?.number()?)
}

/// The ids that all golden frames share.
fn context(node: &Node<'_>) -> Result<(CommandId, MessageId, i64), Problem> {
    let context = node.get("context")?;
    let shard =
        ShardId { route: RouteId(context.get("route")?.array()?), partition: context.get("partition")?.number()? };
    let uuid = |key: &str| {
        let bytes = hex::decode(context.get(key)?.text()?.replace('-', "")).ok();
        let bytes = bytes.and_then(|bytes| <[u8; 16]>::try_from(bytes).ok());
        let bytes = bytes.ok_or_else(|| Problem::Refused(format!("{key} is no uuid")))?;
        Uuid7::from_bytes(bytes).map_err(|error| Problem::refused(key, error))
    };
    let (command, message) = (uuid("command_uuid")?, uuid("message_uuid")?);
    let retry_until_ms = context.get("retry_until")?.number()?;
    Ok((CommandId::new(shard, command), MessageId::new(shard, message), retry_until_ms))
}

fn golden_ids(node: &Node<'_>) -> Result<(), Problem> {
    let (command, message, _) = context(node)?;
    expect("message_id", message.to_bytes(), &node.get("message_id")?)?;
    expect("command_id", command.to_bytes(), &node.get("command_id")?)
}

fn golden_frame(golden: &Node<'_>, name: &str) -> Result<(), Problem> {
    let (command_id, message_id, retry_until_ms) = context(golden)?;
    let node = golden.get(name)?;
    let body = golden_body(name, &node)?;
    let command = ClientCommand::new(command_id, message_id, retry_until_ms, body)
        .map_err(|error| Problem::refused("command", error))?;
    expect("body", &command.body_bytes, &node.get("body")?)?;
    expect("hash", command.hash, &node.get("hash")?)?;
    let frame = command.encode_frame();
    same("frame_length", &frame.len(), &node.get("frame_length")?.number()?)?;
    if let Some(header) = node.maybe("header") {
        expect("header", &frame[..12], &header)?;
    }
    if let Some(crc) = node.maybe("crc32c") {
        expect("crc32c", &frame[frame.len() - 4..], &crc)?;
    }
    match record::decode(&frame) {
        Ok(LogRecord::Command(decoded)) => same("command", &decoded, &command),
        Ok(_) => Err(Problem::Refused("the frame holds another kind of record".to_owned())),
        Err(error) => Err(Problem::refused("frame", error)),
    }
}

fn golden_body(name: &str, node: &Node<'_>) -> Result<CommandBody, Problem> {
    let precondition = || {
        let node = node.get("precondition")?;
        let generation = node.maybe("expected_generation").map(|n| n.number()).transpose()?;
        let state_version = node.maybe("expected_state_version").map(|n| n.number()).transpose()?;
        Ok::<_, Problem>(Precondition { generation, state_version })
    };
    let time = |key: &str| node.get(key)?.number::<i64>();
    Ok(match name {
        "cancel" => CommandBody::Cancel(Cancel { precondition: precondition()? }),
        "reschedule" => CommandBody::Reschedule(Reschedule {
            precondition: precondition()?,
            deliver_at_ms: time("deliver_at")?,
            expire_at_ms: time("expire_at")?,
        }),
        _ => {
            let policy = profile(&node.get("policy")?)?;
            let ordering = match node.get("ordering")?.text()? {
                "BEST_EFFORT" => OrderingMode::BestEffort,
                _ => OrderingMode::DeliveryTimeFifo,
            };
            let intent = ScheduleIntent {
                profile: profile(&node.get("profile")?)?,
                retry_policy: RetryPolicyRef {
                    id: policy.id,
                    version: policy.version,
                    semantic_hash: policy.semantic_hash,
                },
                deliver_at_ms: time("deliver_at")?,
                expire_at_ms: time("expire_at")?,
                ordering,
                ordering_key: Bytes::copy_from_slice(node.get("ordering_key")?.text()?.as_bytes()),
                payload: Some(Payload::Inline(node.get("inline_payload")?.bytes()?)),
                metadata: AdapterMetadata::Kafka(KafkaMetadata {
                    key: Some(node.get("kafka_key")?.bytes()?),
                    headers: Vec::new(),
                }),
                business_key: None,
                event_time_ms: None,
            };
            let schedule = Schedule::new(intent).map_err(|error| Problem::refused("intent", error))?;
            CommandBody::Schedule(Box::new(schedule))
        }
    })
}
