//! Client commands and payload proofs.

use bytes::Bytes;
use prost::Message;
use protocol::command::metadata::PulsarKeyEncoding;
use protocol::command::{
    AdapterMetadata, Cancel, ClientCommand, CommandBody, CommitLarge, CommittedPayload, KafkaHeader, KafkaMetadata,
    OrderingMode, Payload, PayloadCommitProof, Precondition, PrepareLarge, ProofClaims, PulsarKey, PulsarMetadata,
    PulsarProperty, Reschedule, Schedule, ScheduleIntent,
};
use protocol::hash::sha256;
use protocol::id::{CommandId, MessageId};
use protocol::record::{self, LogRecord};
use protocol::text::Text;

use super::compare::Computed;
use super::json::{Node, Problem};
use super::shared::{
    COMMAND_TYPES, ORDERING_MODES, maybe_bytes, maybe_number, message_id, policy_ref, profile_ref, same, shard,
    signing_key, trust_set_ref, uuid,
};

pub(super) fn command(input: &Node<'_>) -> Result<Computed, Problem> {
    let command = client_command(input)?;
    let frame = command.encode_frame();
    match record::decode(&frame) {
        Ok(LogRecord::Command(decoded)) => same("command", &decoded, &command)?,
        Ok(other) => return Err(Problem::Refused(format!("the frame decodes to no command: {other:?}"))),
        Err(error) => return Err(Problem::refused("frame", error)),
    }
    let mut computed = Computed::default();
    computed.bytes("message_id", command.message_id.to_bytes());
    computed.json("message_id_text", command.message_id.to_string());
    computed.bytes("command_id", command.command_id.to_bytes());
    computed.json("command_id_text", command.command_id.to_string());
    if let Some(intent) = intent(&command.body) {
        computed.bytes("adapter_metadata", intent.metadata.to_proto().encode_to_vec());
        computed.bytes("intent", intent.encode());
    }
    computed.bytes("canonical_body", &command.body_bytes);
    computed.bytes("command_hash", command.hash);
    computed.json("frame_length", frame.len());
    computed.bytes("frame_sha256", sha256(&frame));
    computed.bytes("frame", &frame);
    if matches!(command.body, CommandBody::PrepareLarge(_)) {
        computed.bytes("reservation_id", command.reservation_id());
    }
    Ok(computed)
}

/// The intent of a command; that its bytes are read back as they were written is part of the check.
fn intent(body: &CommandBody) -> Option<&ScheduleIntent> {
    match body {
        CommandBody::Schedule(body) => Some(body.intent()),
        CommandBody::PrepareLarge(body) => Some(body.intent()),
        CommandBody::CommitLarge(_) | CommandBody::Cancel(_) | CommandBody::Reschedule(_) => None,
    }
}

pub(super) fn client_command(input: &Node<'_>) -> Result<ClientCommand, Problem> {
    let shard = shard(input)?;
    let message_id = MessageId::new(shard, uuid(&input.get("message_uuid_hex")?)?);
    let command_id = CommandId::new(shard, uuid(&input.get("command_uuid_hex")?)?);
    let body = body(input.wire("command_type", &COMMAND_TYPES)?, &input.get("body")?)?;
    let retry_until_ms = input.get("retry_until_epoch_ms")?.number()?;
    ClientCommand::new(command_id, message_id, retry_until_ms, body).map_err(|error| Problem::refused("command", error))
}

fn body(command_type: u32, node: &Node<'_>) -> Result<CommandBody, Problem> {
    let refused = |error| Problem::refused("body", error);
    Ok(match command_type {
        1 => {
            let schedule = Schedule::new(schedule_intent(&node.get("intent")?)?).map_err(refused)?;
            CommandBody::Schedule(Box::new(schedule))
        }
        2 => {
            let prepare = PrepareLarge::new(
                schedule_intent(&node.get("intent_without_payload")?)?,
                node.get("expected_payload_length")?.number()?,
                node.get("payload_sha256_hex")?.array()?,
                node.get("reservation_ttl_ms")?.number()?,
                trust_set_ref(&node.get("trust_set")?)?,
                profile_ref(&node.get("object_store_profile")?)?,
            );
            CommandBody::PrepareLarge(Box::new(prepare.map_err(refused)?))
        }
        3 => CommandBody::CommitLarge(Box::new(CommitLarge {
            reservation_id: node.get("reservation_id_hex")?.array()?,
            proof: given_proof(node)?,
        })),
        4 => CommandBody::Cancel(Cancel { precondition: precondition(&node.get("precondition")?)? }),
        5 => CommandBody::Reschedule(Reschedule {
            precondition: precondition(&node.get("precondition")?)?,
            deliver_at_ms: node.get("new_deliver_at_epoch_ms")?.number()?,
            expire_at_ms: node.get("new_expire_at_epoch_ms")?.number()?,
        }),
        other => return Err(Problem::Refused(format!("command type {other} is not known here"))),
    })
}

fn precondition(node: &Node<'_>) -> Result<Precondition, Problem> {
    Ok(Precondition {
        generation: maybe_number(node, "expected_generation")?,
        state_version: maybe_number(node, "expected_state_version")?,
    })
}

pub(super) fn schedule_intent(node: &Node<'_>) -> Result<ScheduleIntent, Problem> {
    let payload = match (node.maybe("inline_payload"), node.maybe("committed_payload")) {
        (Some(inline), None) => Some(Payload::Inline(inline.bytes()?)),
        (None, Some(committed)) => Some(Payload::Committed(Box::new(committed_payload(&committed)?))),
        (None, None) => None,
        (Some(_), Some(_)) => return Err(Problem::Refused("an intent with two payloads".to_owned())),
    };
    let ordering = match node.wire("ordering_mode", &ORDERING_MODES)? {
        1_u32 => OrderingMode::BestEffort,
        2 => OrderingMode::DeliveryTimeFifo,
        other => return Err(Problem::Refused(format!("ordering mode {other}"))),
    };
    let mode: u32 = node.wire("delivery_mode", &[("MANAGED", 1)])?;
    let accounting: u32 = node.get("quota_accounting_version")?.number()?;
    if (mode, accounting) != (1, 1) {
        return Err(Problem::Refused(format!("delivery mode {mode} with accounting version {accounting}")));
    }
    Ok(ScheduleIntent {
        profile: profile_ref(&node.get("profile")?)?,
        retry_policy: policy_ref(&node.get("retry_policy")?)?,
        deliver_at_ms: node.get("deliver_at_epoch_ms")?.number()?,
        expire_at_ms: node.get("expire_at_epoch_ms")?.number()?,
        ordering,
        ordering_key: node.get("ordering_key_hex")?.bytes()?,
        payload,
        metadata: metadata(&node.get("adapter_metadata")?)?,
        business_key: maybe_bytes(node, "business_key_hex")?,
        event_time_ms: maybe_number(node, "event_time_epoch_ms")?,
    })
}

fn committed_payload(node: &Node<'_>) -> Result<CommittedPayload, Problem> {
    Ok(CommittedPayload {
        object_store: profile_ref(&node.get("object_store_profile")?)?,
        container: node.get("container_hex")?.bytes()?,
        object_key: node.get("object_key_hex")?.bytes()?,
        object_version: node.get("immutable_object_version_hex")?.bytes()?,
        etag: maybe_bytes(node, "etag_hex")?,
        length: node.get("length")?.number()?,
        sha256: node.get("payload_sha256_hex")?.array()?,
        reservation_id: node.get("reservation_id_hex")?.array()?,
        proof_id: node.get("proof_id_hex")?.array()?,
    })
}

fn text(node: &Node<'_>) -> Result<Text, Problem> {
    Text::new(node.bytes()?).map_err(|error| Problem::refused("text", error))
}

fn metadata(node: &Node<'_>) -> Result<AdapterMetadata, Problem> {
    if let Some(kafka) = node.maybe("kafka") {
        let header = |node: &Node<'_>| {
            Ok(KafkaHeader { name: text(&node.get("name_utf8_hex")?)?, value: node.get("value_hex")?.bytes()? })
        };
        let headers = kafka.get("headers")?.items()?.iter().map(header).collect::<Result<_, Problem>>()?;
        return Ok(AdapterMetadata::Kafka(KafkaMetadata { key: maybe_bytes(&kafka, "key_hex")?, headers }));
    }
    let pulsar = node.get("pulsar")?;
    let encoding = |node: &Node<'_>| match node.wire("key_encoding", &[("UTF8", 1), ("BASE64_BYTES", 2)])? {
        1_u32 => Ok(PulsarKeyEncoding::Utf8),
        2 => Ok(PulsarKeyEncoding::Base64Bytes),
        other => Err(Problem::Refused(format!("key encoding {other}"))),
    };
    let partition_key = match maybe_bytes(&pulsar, "partition_key_hex")? {
        Some(bytes) => Some(PulsarKey { bytes, encoding: encoding(&pulsar)? }),
        None => None,
    };
    let property = |node: &Node<'_>| {
        Ok(PulsarProperty { key: text(&node.get("key_utf8_hex")?)?, value: text(&node.get("value_utf8_hex")?)? })
    };
    let properties = pulsar.get("properties")?.items()?.iter().map(property).collect::<Result<_, Problem>>()?;
    let ordering_key = maybe_bytes(&pulsar, "ordering_key_hex")?;
    Ok(AdapterMetadata::Pulsar(PulsarMetadata { partition_key, ordering_key, properties }))
}

fn claims(node: &Node<'_>) -> Result<ProofClaims, Problem> {
    let version: u32 = node.get("proof_version")?.number()?;
    if version != 1 {
        return Err(Problem::Refused(format!("proof version {version}")));
    }
    Ok(ProofClaims {
        reservation_id: node.get("reservation_id_hex")?.array()?,
        tenant_scope: node.get("tenant_routing_scope_hex")?.array()?,
        shard: shard(node)?,
        message_id: message_id(&node.get("delay_message_id_hex")?)?,
        object_store: profile_ref(&node.get("object_store_profile")?)?,
        trust_set_version: node.get("trust_set_version")?.number()?,
        container: node.get("container_hex")?.bytes()?,
        object_key: node.get("object_key_hex")?.bytes()?,
        object_version: node.get("immutable_object_version_hex")?.bytes()?,
        etag: maybe_bytes(node, "etag_hex")?,
        length: node.get("length")?.number()?,
        payload_sha256: node.get("payload_sha256_hex")?.array()?,
        not_after_ms: node.get("not_after_epoch_ms")?.number()?,
    })
}

/// The proof inside a commit: claims, and an id and signature that are given, so that they are checked here as well.
fn given_proof(node: &Node<'_>) -> Result<PayloadCommitProof, Problem> {
    let fields = node.get("proof")?;
    let claims = claims(&fields)?;
    if let Some(id) = node.maybe("proof_id_hex") {
        same("proof_id", &claims.proof_id(), &id.array()?)?;
    }
    let key_version = fields.get("proof_key_version")?.number()?;
    let key = node.maybe("proof_signing_key").map(|key| signing_key(&key)).transpose()?;
    let signature = match (node.maybe("proof_signature_hex"), &key) {
        (Some(signature), _) => signature.array()?,
        (None, Some(key)) => PayloadCommitProof::sign(claims.clone(), key_version, key).signature,
        (None, None) => return Err(Problem::Missing { path: "case.input.body.proof_signature_hex".to_owned() }),
    };
    let proof = PayloadCommitProof { claims, key_version, signature };
    if let Some(key) = key {
        same("proof signature", &proof, &PayloadCommitProof::sign(proof.claims.clone(), key_version, &key))?;
        same("verdict on the proof's signature", &proof.verify(&key.verifying_key()), &true)?;
    }
    Ok(proof)
}

pub(super) fn payload_commit_proof(input: &Node<'_>) -> Result<Computed, Problem> {
    let fields = input.get("proof")?;
    let key = signing_key(&input.get("signing_key")?)?;
    let key_version = fields.get("proof_key_version")?.number()?;
    let proof = PayloadCommitProof::sign(claims(&fields)?, key_version, &key);
    let bytes: Bytes = proof.encode();
    let decoded = PayloadCommitProof::decode(&bytes).map_err(|error| Problem::refused("proof", error))?;
    same("proof", &decoded, &proof)?;
    same("verdict on the proof's signature", &proof.verify(&key.verifying_key()), &true)?;
    let mut computed = Computed::default();
    computed.bytes("proof_id", proof.claims.proof_id());
    computed.bytes("signature_digest", proof.signature_digest());
    computed.bytes("signature", proof.signature);
    computed.bytes("canonical", bytes);
    Ok(computed)
}
