//! Receipts, and the one place where another implementation writes other bytes than the registry.
//!
//! The registry types the first field of a broker's acknowledgement as a `BrokerResourceIdentity`, a choice between adapters.
//! Another implementation writes the chosen resource bare. A case that expects those bytes passes when they are exactly ours with
//! the choice taken off, and says so.

use protocol::code::StableCode;
use protocol::hash::Preimage;
use protocol::receipt::{
    AppliedReceipt, ApplyStatus, BrokerAck, ControlOperationReceipt, DestinationBinding, KafkaAck,
    NativeDeliveryReceipt, NativePreparedRef, PayloadReservationReceipt, PreparedCommandRef, PulsarAck, QueuedReceipt,
    Receipt,
};
use protocol::receipt_frame::{self, ReceiptKind};
use protocol::resource::AdapterKind;
use protocol::text::Text;

use super::command::client_command;
use super::compare::Computed;
use super::json::{Node, Problem};
use super::mutation::code;
use super::position::position;
use super::shared::{
    ADAPTERS, ORDERING_MODES, interval, maybe_number, message_id, profile_ref, resource, same, shard, trust_set_ref,
};
use prost::Message;

const BARE_ACK_NOTE: &str = "field 1 of the acknowledgement is expected without its BrokerResourceIdentity wrapper, as another \
                             implementation writes it; ours has the wrapper and its digest, as the registry types it";

/// Payload, digest, frame and text of a receipt, read back before they are used.
fn pieces<R: Receipt + PartialEq + std::fmt::Debug>(receipt: &R) -> Result<Computed, Problem> {
    let frame = receipt.encode_frame();
    let decoded = R::decode_frame(&frame).map_err(|error| Problem::refused("receipt", error))?;
    same("receipt", &decoded, receipt)?;
    let text = receipt.to_text();
    let decoded = R::from_text(&text).map_err(|error| Problem::refused("receipt text", error))?;
    same("receipt text", &decoded, receipt)?;
    Ok(payload_pieces(R::KIND, &receipt.encode_payload(), &receipt.digest()))
}

fn payload_pieces(kind: ReceiptKind, payload: &[u8], digest: &[u8]) -> Computed {
    let frame = receipt_frame::encode(kind, payload);
    let mut computed = Computed::default();
    computed.bytes("payload", payload);
    computed.bytes("payload_digest", digest);
    computed.json("frame_length", frame.len());
    computed.bytes("frame_sha256", protocol::hash::sha256(&frame));
    computed.json("text", receipt_frame::to_text(&frame));
    computed.bytes("frame", frame);
    computed
}

fn broker_ack(node: &Node<'_>) -> Result<BrokerAck, Problem> {
    let partition = node.get("partition")?.number()?;
    let cluster = || Ok::<_, Problem>(node.get("cluster_id")?.text()?.into());
    Ok(match node.get("adapter")?.text()? {
        "KAFKA" => BrokerAck::Kafka(KafkaAck {
            cluster_id: cluster()?,
            topic: node.get("topic_uuid_hex")?.array()?,
            partition,
            offset: node.get("offset")?.number()?,
            leader_epoch: maybe_number(node, "leader_epoch")?,
            append_time_ms: node.get("log_append_time_epoch_ms")?.number()?,
            response_sha256: node.get("response_sha256_hex")?.array()?,
        }),
        "PULSAR" => BrokerAck::Pulsar(PulsarAck {
            cluster_id: cluster()?,
            incarnation: node.get("resource_incarnation_hex")?.array()?,
            topic: node.get("physical_topic")?.text()?.into(),
            creation_time_ms: node.get("topic_creation_timestamp")?.number()?,
            partition,
            ledger: node.get("ledger_id")?.number()?,
            entry: node.get("entry_id")?.number()?,
            batch_index: node.get("batch_index")?.number()?,
            batch_size: node.get("batch_size")?.number()?,
            entry_time_ms: node.get("entry_timestamp_epoch_ms")?.number()?,
            send_receipt_sha256: node.get("send_receipt_sha256_hex")?.array()?,
        }),
        "EMBEDDED" => BrokerAck::Embedded {
            log: node.get("log_uuid_hex")?.array()?,
            partition,
            offset: node.get("offset")?.number()?,
            append_time_ms: node.get("append_time_epoch_ms")?.number()?,
        },
        other => return Err(Problem::Refused(format!("adapter {other} is not known here"))),
    })
}

pub(super) fn queued(input: &Node<'_>) -> Result<Vec<Computed>, Problem> {
    let command = client_command(&input.get("command")?)?;
    let command = PreparedCommandRef::from(&command);
    let ack = broker_ack(&input.get("broker_ack")?)?;
    let receipt = QueuedReceipt {
        command,
        position: position(&input.get("source_position")?)?,
        ack: ack.clone(),
        query_until_ms: input.get("receipt_query_until_epoch_ms")?.number()?,
        physical_enqueue_attempt_id: input.get("physical_enqueue_attempt_id_hex")?.array()?,
    };
    let ack = ack.to_proto().encode_to_vec();
    let mut ours = pieces(&receipt)?;
    let add = |computed: &mut Computed, ack: &[u8]| {
        computed.bytes("prepared_command_ref", command.to_proto().encode_to_vec());
        computed.bytes("prepared_frame_sha256", command.frame_sha256);
        computed.bytes("broker_ack", ack);
    };
    add(&mut ours, &ack);
    let mut candidates = vec![ours];
    let domain = "nereus-delay-command-queued-receipt-v1\0";
    let layout = AckLayout { kind: ReceiptKind::CommandQueued, ack_field: 4, digest_field: 8, domain };
    if let Some((bare, mut computed)) = without_wrapper(&receipt.encode_payload(), &layout) {
        add(&mut computed, &bare);
        candidates.push(computed);
    }
    Ok(candidates)
}

pub(super) fn native_delivery(input: &Node<'_>) -> Result<Vec<Computed>, Problem> {
    let native = input.get("native")?;
    let ack = broker_ack(&input.get("broker_ack")?)?;
    let receipt = NativeDeliveryReceipt {
        native: NativePreparedRef {
            native_delivery_id: native.get("native_delivery_id_hex")?.array()?,
            submission_hash: native.get("submission_hash_hex")?.array()?,
            destination: profile_ref(&native.get("destination_profile")?)?,
            target: resource(&native.get("target")?)?,
            physical_partition: native.get("physical_partition")?.number()?,
            capability_snapshot_digest: native.get("capability_snapshot_digest_hex")?.array()?,
            capability_expiry_ms: native.get("capability_expiry_epoch_ms")?.number()?,
            prepared_sha256: native.get("prepared_sha256_hex")?.array()?,
        },
        ack: ack.clone(),
        physical_enqueue_attempt_id: input.get("physical_enqueue_attempt_id_hex")?.array()?,
    };
    let mut ours = pieces(&receipt)?;
    ours.bytes("broker_ack", ack.to_proto().encode_to_vec());
    let mut candidates = vec![ours];
    let layout = AckLayout { kind: ReceiptKind::NativeDelivery, ack_field: 3, digest_field: 6, domain: "" };
    if let Some((bare, mut computed)) = without_wrapper(&receipt.encode_payload(), &layout) {
        computed.bytes("broker_ack", bare);
        candidates.push(computed);
    }
    Ok(candidates)
}

pub(super) fn applied(input: &Node<'_>) -> Result<Computed, Problem> {
    let status = match input.wire("apply_status", &[("APPLIED", 1), ("REJECTED", 2)])? {
        1_u32 => ApplyStatus::Applied,
        2 => ApplyStatus::Rejected,
        other => return Err(Problem::Refused(format!("apply status {other}"))),
    };
    let code = StableCode::try_from(code(input, "stable_code")?);
    pieces(&AppliedReceipt {
        queued_digest: input.get("queued_receipt_payload_digest_hex")?.array()?,
        status,
        code: code.map_err(|error| Problem::refused("stable code", error))?,
        position: position(&input.get("applied_source_position")?)?,
        generation: maybe_number(input, "generation")?,
        state_version: maybe_number(input, "state_version")?,
        binding: input.maybe("binding").map(|binding| self::binding(&binding)).transpose()?,
        full_result_retain_until_ms: input.get("full_result_retain_until_epoch_ms")?.number()?,
    })
}

fn binding(node: &Node<'_>) -> Result<DestinationBinding, Problem> {
    use protocol::command::OrderingMode;
    let adapter = match node.wire("adapter_kind", &ADAPTERS)? {
        1_u32 => AdapterKind::Kafka,
        2 => AdapterKind::Pulsar,
        3 => AdapterKind::Embedded,
        other => return Err(Problem::Refused(format!("adapter {other}"))),
    };
    let ordering = match node.wire("ordering_mode", &ORDERING_MODES)? {
        1_u32 => OrderingMode::BestEffort,
        2 => OrderingMode::DeliveryTimeFifo,
        other => return Err(Problem::Refused(format!("ordering mode {other}"))),
    };
    Ok(DestinationBinding {
        destination: profile_ref(&node.get("destination_profile")?)?,
        capability: profile_ref(&node.get("capability_profile")?)?,
        adapter,
        alias: Text::new(node.get("destination_alias_utf8_hex")?.bytes()?)
            .map_err(|error| Problem::refused("alias", error))?,
        physical_partition: node.get("physical_partition")?.number()?,
        ordering,
    })
}

pub(super) fn payload_reservation(input: &Node<'_>) -> Result<Computed, Problem> {
    let message_id = message_id(&input.get("delay_message_id_hex")?)?;
    same("the message's shard", &shard(input)?, &message_id.shard)?;
    pieces(&PayloadReservationReceipt {
        reservation_id: input.get("reservation_id_hex")?.array()?,
        message_id,
        position: position(&input.get("applied_source_position")?)?,
        state_version: input.get("state_version")?.number()?,
        object_store: profile_ref(&input.get("object_store_profile")?)?,
        container: input.get("container_hex")?.bytes()?,
        object_key: input.get("object_key_hex")?.bytes()?,
        expected_length: input.get("expected_length")?.number()?,
        payload_sha256: input.get("payload_sha256_hex")?.array()?,
        reservation_expiry_ms: input.get("reservation_expiry_epoch_ms")?.number()?,
        trust_set: trust_set_ref(&input.get("trust_set")?)?,
    })
}

pub(super) fn control_operation(input: &Node<'_>) -> Result<Computed, Problem> {
    pieces(&ControlOperationReceipt {
        operation_id: input.get("operation_id_hex")?.array()?,
        request_hash: input.get("request_hash_hex")?.array()?,
        scope_hash: input.get("scope_hash_hex")?.array()?,
        target_snapshot_hash: input.get("target_snapshot_hash_hex")?.array()?,
        operation_revision: input.get("operation_revision")?.number()?,
        registered_at: interval(&input.get("registered_at")?)?,
        query_until_ms: input.get("query_until_epoch_ms")?.number()?,
    })
}

/// Where a receipt has its acknowledgement and its digest.
pub(super) struct AckLayout {
    kind: ReceiptKind,
    ack_field: u32,
    digest_field: u32,
    domain: &'static str,
}

/// The layout of receipts of this kind, for those that have an acknowledgement.
pub(super) fn ack_layout(kind: ReceiptKind) -> Option<AckLayout> {
    match kind {
        ReceiptKind::CommandQueued => {
            let domain = "nereus-delay-command-queued-receipt-v1\0";
            Some(AckLayout { kind, ack_field: 4, digest_field: 8, domain })
        }
        ReceiptKind::NativeDelivery => Some(AckLayout { kind, ack_field: 3, digest_field: 6, domain: "" }),
        _ => None,
    }
}

/// The same receipt as another implementation writes it, and its acknowledgement.
fn without_wrapper(payload: &[u8], layout: &AckLayout) -> Option<(Vec<u8>, Computed)> {
    let (ack, payload, digest) = rewrite_ack(payload, layout, |resource| {
        let [inner] = &wire::fields(resource)?[..] else { return None };
        Some(resource[inner.content.clone()].to_vec())
    })?;
    let mut computed = payload_pieces(layout.kind, &payload, &digest);
    computed.note(BARE_ACK_NOTE);
    Some((ack, computed))
}

/// A payload whose acknowledgement has a bare resource, with the wrapper put around it and the digest computed anew; `None`
/// when the payload cannot be taken apart that way.
pub(super) fn with_wrapper(payload: &[u8], layout: &AckLayout) -> Option<Vec<u8>> {
    let ack = wire::fields(payload)?.into_iter().find(|field| field.number == layout.ack_field)?;
    let branch = wire::fields(&payload[ack.content])?.first()?.number;
    let (_, payload, _) = rewrite_ack(payload, layout, |resource| {
        // A wrapped resource has one field; a bare one of Kafka has two and one of Pulsar four.
        if wire::fields(resource)?.len() < 2 {
            return None;
        }
        let mut wrapped = Vec::new();
        wire::put(&mut wrapped, branch, resource);
        Some(wrapped)
    })?;
    Some(payload)
}

/// Replaces the resource in the acknowledgement of a payload and computes the digest anew: acknowledgement, payload, digest.
fn rewrite_ack(
    payload: &[u8],
    layout: &AckLayout,
    resource: impl Fn(&[u8]) -> Option<Vec<u8>>,
) -> Option<(Vec<u8>, Vec<u8>, [u8; 32])> {
    let fields = wire::fields(payload)?;
    let field = |number: u32| fields.iter().find(|field| field.number == number);
    let (ack, digest) = (field(layout.ack_field)?, field(layout.digest_field)?);
    let branch = &payload[ack.content.clone()];
    let [chosen] = &wire::fields(branch)?[..] else { return None };
    let content = &branch[chosen.content.clone()];
    let first = wire::fields(content)?.into_iter().next().filter(|field| field.number == 1)?;
    let mut rewritten = Vec::new();
    wire::put(&mut rewritten, 1, &resource(&content[first.content.clone()])?);
    rewritten.extend_from_slice(&content[first.content.end..]);
    let mut new_ack = Vec::new();
    wire::put(&mut new_ack, chosen.number, &rewritten);
    let mut covered = payload[..ack.start].to_vec();
    wire::put(&mut covered, layout.ack_field, &new_ack);
    covered.extend_from_slice(&payload[ack.content.end..digest.start]);
    let digest = Preimage::new(layout.domain).bytes(&covered).sha256();
    wire::put(&mut covered, layout.digest_field, &digest);
    Some((new_ack, covered, digest))
}

/// Just enough of the wire format to take length-delimited fields out and put them back.
mod wire {
    use std::ops::Range;

    use prost::encoding::{WireType, decode_key, decode_varint, encode_key, encode_varint};

    pub(super) struct Field {
        pub(super) number: u32,
        /// Where its key stands.
        pub(super) start: usize,
        /// Its value, without key and length.
        pub(super) content: Range<usize>,
    }

    /// The fields of a message, `None` for bytes that are none.
    pub(super) fn fields(message: &[u8]) -> Option<Vec<Field>> {
        let mut fields = Vec::new();
        let mut rest = message;
        while !rest.is_empty() {
            let start = message.len() - rest.len();
            let (number, wire_type) = decode_key(&mut rest).ok()?;
            let length = match wire_type {
                WireType::Varint => {
                    let before = rest.len();
                    decode_varint(&mut rest).ok()?;
                    let length = before - rest.len();
                    let at = message.len() - before;
                    fields.push(Field { number, start, content: at..at + length });
                    continue;
                }
                WireType::LengthDelimited => usize::try_from(decode_varint(&mut rest).ok()?).ok()?,
                _ => return None,
            };
            let at = message.len() - rest.len();
            rest = rest.get(length..)?;
            fields.push(Field { number, start, content: at..at + length });
        }
        Some(fields)
    }

    pub(super) fn put(message: &mut Vec<u8>, number: u32, value: &[u8]) {
        encode_key(number, WireType::LengthDelimited, message);
        encode_varint(u64::try_from(value.len()).expect("usize has at most 64 bits"), message);
        message.extend_from_slice(value);
    }
}
