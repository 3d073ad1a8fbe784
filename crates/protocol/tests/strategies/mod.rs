//! Arbitrary values of everything that has bytes.

#![allow(dead_code, reason = "each test file uses a part")]

use std::sync::Arc;

use bytes::Bytes;
use ed25519_dalek::SigningKey;
use proptest::collection::{btree_map, btree_set, vec};
use proptest::option;
use proptest::prelude::*;
use protocol::code::StableCode;
use protocol::command::metadata::PulsarKeyEncoding;
use protocol::command::{
    AdapterMetadata, Cancel, ClientCommand, CommandBody, CommitLarge, CommittedPayload, KafkaHeader, KafkaMetadata,
    OrderingMode, Payload, PayloadCommitProof, Precondition, PrepareLarge, ProofClaims, PulsarKey, PulsarMetadata,
    PulsarProperty, Reschedule, Schedule, ScheduleIntent,
};
use protocol::id::{CommandId, MessageId, RouteId, ShardId, Uuid7};
use protocol::mutation_v2::{
    Absence, AbsenceKind, Admission, AttemptResult, Author, ClaimResult, ControlPayload, DestinationRebind,
    Disposition, KafkaReceipt, MutationBody, MutationV2, OperatorStatement, Outcome, Outcomes, OwnerEpoch,
    PublishAdmission, PublishedEvidence, PulsarAck, Refusal, ShardControl, Stamp, TimeFence, TopicAck,
};
use protocol::position::{EmbeddedPosition, EntryMember, KafkaPosition, PulsarPosition, SourcePosition};
use protocol::reference::{ProfileRef, RetryPolicyRef, TrustSetRef};
use protocol::resource::Resource;
use protocol::text::Text;

/// Numbers whose encodings have every length.
pub(crate) fn number() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0), Just(127), Just(128), Just(u64::MAX), any::<u64>(), 0..300_u64]
}

pub(crate) fn small() -> impl Strategy<Value = u32> {
    prop_oneof![Just(0), Just(u32::MAX), any::<u32>(), 0..300_u32]
}

pub(crate) fn time() -> impl Strategy<Value = i64> {
    prop_oneof![Just(0), Just(i64::MAX), 0..i64::MAX]
}

pub(crate) fn blob(length: impl Into<proptest::collection::SizeRange>) -> impl Strategy<Value = Bytes> {
    vec(any::<u8>(), length).prop_map(Bytes::from)
}

/// Text in NFC without NUL: letters that do not combine.
pub(crate) fn text() -> impl Strategy<Value = String> {
    "[a-zA-Z0-9é🚀._-]{0,12}"
}

fn name() -> impl Strategy<Value = Text> {
    text().prop_map(|text| Text::try_from(text.as_str()).expect("it is text"))
}

fn shared_text() -> impl Strategy<Value = Arc<str>> {
    text().prop_map(Arc::from)
}

pub(crate) fn uuid() -> impl Strategy<Value = Uuid7> {
    (0..=Uuid7::UNIX_MS_MAX, any::<[u8; 10]>())
        .prop_map(|(unix_ms, random)| Uuid7::from_parts(unix_ms, random).expect("the time fits"))
}

pub(crate) fn shard() -> impl Strategy<Value = ShardId> {
    (any::<[u8; 16]>(), any::<u32>()).prop_map(|(route, partition)| ShardId { route: RouteId(route), partition })
}

pub(crate) fn message_id() -> impl Strategy<Value = MessageId> {
    (shard(), uuid()).prop_map(|(shard, uuid)| MessageId::new(shard, uuid))
}

fn member() -> impl Strategy<Value = EntryMember> {
    let batch =
        (0..u32::MAX, any::<u32>()).prop_map(|(index, size)| EntryMember::Batch { index, size: size.max(index + 1) });
    prop_oneof![Just(EntryMember::Single), batch]
}

pub(crate) fn position() -> impl Strategy<Value = SourcePosition> {
    let kafka = (shard(), shared_text(), any::<[u8; 16]>(), number(), option::of(small()), time()).prop_map(
        |(shard, cluster_id, topic, offset, leader_epoch, append_time_ms)| {
            SourcePosition::Kafka(KafkaPosition {
                route: shard.route,
                cluster_id,
                topic,
                partition: shard.partition,
                offset,
                leader_epoch,
                append_time_ms,
            })
        },
    );
    let pulsar = (shard(), blob(0..40), shared_text(), number(), number(), member(), time()).prop_map(
        |(shard, incarnation, topic, ledger, entry, member, entry_time_ms)| {
            SourcePosition::Pulsar(PulsarPosition {
                route: shard.route,
                incarnation,
                topic,
                partition: shard.partition,
                ledger,
                entry,
                member,
                entry_time_ms,
            })
        },
    );
    let embedded = (shard(), any::<[u8; 16]>(), number(), time()).prop_map(|(shard, log, offset, append_time_ms)| {
        SourcePosition::Embedded(EmbeddedPosition {
            route: shard.route,
            log,
            partition: shard.partition,
            offset,
            append_time_ms,
        })
    });
    prop_oneof![kafka, pulsar, embedded]
}

fn profile_ref() -> impl Strategy<Value = ProfileRef> {
    (blob(1..12), 1..=u64::MAX, any::<[u8; 32]>()).prop_map(|(id, version, semantic_hash)| ProfileRef {
        id,
        version,
        semantic_hash,
    })
}

fn policy_ref() -> impl Strategy<Value = RetryPolicyRef> {
    (blob(1..12), 1..=u64::MAX, any::<[u8; 32]>()).prop_map(|(id, version, semantic_hash)| RetryPolicyRef {
        id,
        version,
        semantic_hash,
    })
}

fn metadata() -> impl Strategy<Value = AdapterMetadata> {
    let header = (name(), blob(0..20)).prop_map(|(name, value)| KafkaHeader { name, value });
    let kafka = (option::of(blob(0..20)), vec(header, 0..4))
        .prop_map(|(key, headers)| AdapterMetadata::Kafka(KafkaMetadata { key, headers }));
    let encoding = prop_oneof![Just(PulsarKeyEncoding::Utf8), Just(PulsarKeyEncoding::Base64Bytes)];
    let key = (blob(0..20), encoding).prop_map(|(bytes, encoding)| PulsarKey { bytes, encoding });
    let pulsar = (option::of(key), option::of(blob(0..20)), btree_map(name(), name(), 0..4)).prop_map(
        |(partition_key, ordering_key, properties)| {
            let properties = properties.into_iter().map(|(key, value)| PulsarProperty { key, value }).collect();
            AdapterMetadata::Pulsar(PulsarMetadata { partition_key, ordering_key, properties })
        },
    );
    prop_oneof![kafka, pulsar]
}

fn payload() -> impl Strategy<Value = Payload> {
    let places = (blob(0..12), blob(0..12), blob(0..12), option::of(blob(0..12)));
    let committed = (profile_ref(), places, number(), any::<[[u8; 32]; 3]>()).prop_map(
        |(object_store, (container, object_key, object_version, etag), length, [sha256, reservation_id, proof_id])| {
            Payload::Committed(Box::new(CommittedPayload {
                object_store,
                container,
                object_key,
                object_version,
                etag,
                length,
                sha256,
                reservation_id,
                proof_id,
            }))
        },
    );
    prop_oneof![blob(0..200).prop_map(Payload::Inline), committed]
}

pub(crate) fn intent() -> impl Strategy<Value = ScheduleIntent> {
    let mode = prop_oneof![Just(OrderingMode::BestEffort), Just(OrderingMode::DeliveryTimeFifo)];
    let keys = (blob(0..20), option::of(blob(1..20)), option::of(time()));
    (profile_ref(), policy_ref(), time(), time(), mode, keys, payload(), metadata()).prop_map(
        |(profile, retry_policy, deliver_at_ms, expire_at_ms, ordering, keys, payload, metadata)| {
            let (ordering_key, business_key, event_time_ms) = keys;
            ScheduleIntent {
                profile,
                retry_policy,
                deliver_at_ms,
                expire_at_ms,
                ordering,
                ordering_key,
                payload: Some(payload),
                metadata,
                business_key,
                event_time_ms,
            }
        },
    )
}

fn precondition() -> impl Strategy<Value = Precondition> {
    (option::of(small()), option::of(number()))
        .prop_map(|(generation, state_version)| Precondition { generation, state_version })
}

fn commit(message_id: MessageId) -> impl Strategy<Value = CommitLarge> {
    let hashes = any::<[[u8; 32]; 3]>();
    let places = (blob(0..12), blob(0..12), blob(0..12), option::of(blob(0..12)));
    (hashes, profile_ref(), 1..=u64::MAX, places, number(), time(), small()).prop_map(
        move |(hashes, object_store, trust_set_version, places, length, not_after_ms, key_version)| {
            let [reservation_id, tenant_scope, payload_sha256] = hashes;
            let (container, object_key, object_version, etag) = places;
            let claims = ProofClaims {
                reservation_id,
                tenant_scope,
                shard: message_id.shard,
                message_id,
                object_store,
                trust_set_version,
                container,
                object_key,
                object_version,
                etag,
                length,
                payload_sha256,
                not_after_ms,
            };
            let proof = PayloadCommitProof::sign(claims, key_version, &SigningKey::from_bytes(&[7; 32]));
            CommitLarge { reservation_id, proof }
        },
    )
}

fn body(message_id: MessageId) -> impl Strategy<Value = CommandBody> {
    let schedule = intent().prop_map(|intent| {
        CommandBody::Schedule(Box::new(Schedule::new(intent).expect("an arbitrary intent is legal")))
    });
    let trust_set =
        (1..=u64::MAX, any::<[u8; 32]>()).prop_map(|(version, semantic_hash)| TrustSetRef { version, semantic_hash });
    let prepare = (intent(), number(), any::<[u8; 32]>(), number(), trust_set, profile_ref()).prop_map(
        |(intent, length, sha256, ttl_ms, trust_set, object_store)| {
            let intent = ScheduleIntent { payload: None, ..intent };
            let prepare = PrepareLarge::new(intent, length, sha256, ttl_ms, trust_set, object_store);
            CommandBody::PrepareLarge(Box::new(prepare.expect("an arbitrary reservation is legal")))
        },
    );
    let commit = commit(message_id).prop_map(|commit| CommandBody::CommitLarge(Box::new(commit)));
    let cancel = precondition().prop_map(|precondition| CommandBody::Cancel(Cancel { precondition }));
    let reschedule = (precondition(), time(), time()).prop_map(|(precondition, deliver_at_ms, expire_at_ms)| {
        CommandBody::Reschedule(Reschedule { precondition, deliver_at_ms, expire_at_ms })
    });
    prop_oneof![3 => schedule, 1 => prepare, 1 => commit, 1 => cancel, 1 => reschedule]
}

pub(crate) fn command() -> impl Strategy<Value = ClientCommand> {
    (message_id(), uuid(), time()).prop_flat_map(|(message_id, uuid, retry_until_ms)| {
        body(message_id).prop_map(move |body| {
            let command_id = CommandId::new(message_id.shard, uuid);
            ClientCommand::new(command_id, message_id, retry_until_ms, body).expect("an arbitrary command is legal")
        })
    })
}

fn stamp() -> impl Strategy<Value = Stamp> {
    (number(), 1..=u64::MAX, time(), time()).prop_map(|(epoch, owner_sequence, a, b)| Stamp {
        epoch,
        owner_sequence,
        earliest_ms: a.min(b),
        latest_ms: a.max(b),
    })
}

fn failure() -> impl Strategy<Value = StableCode> {
    (1..StableCode::ALL.len()).prop_map(|index| StableCode::ALL[index])
}

fn published() -> impl Strategy<Value = PublishedEvidence> {
    let ack = || {
        (any::<[u8; 16]>(), small(), number(), time()).prop_map(|(topic, partition, offset, time_ms)| TopicAck {
            topic,
            partition,
            offset,
            time_ms,
        })
    };
    let pulsar =
        (small(), number(), number(), small(), time()).prop_map(|(partition, ledger, entry, batch_index, time_ms)| {
            PulsarAck { partition, ledger, entry, batch_index, time_ms }
        });
    let receipt = (any::<[u8; 16]>(), small(), number()).prop_map(|(topic, partition, offset)| KafkaReceipt {
        topic,
        partition,
        offset,
    });
    let operator = ("[a-z]{1,8}", any::<[u8; 32]>())
        .prop_map(|(principal, statement_sha256)| OperatorStatement { principal, statement_sha256 });
    prop_oneof![
        ack().prop_map(PublishedEvidence::Embedded),
        ack().prop_map(PublishedEvidence::Kafka),
        pulsar.prop_map(PublishedEvidence::Pulsar),
        receipt.prop_map(PublishedEvidence::KafkaReceipt),
        operator.prop_map(PublishedEvidence::Operator),
    ]
}

fn settled() -> impl Strategy<Value = (AttemptResult, StableCode)> {
    let disposition = proptest::sample::select(vec![
        Disposition::MessageRetriable,
        Disposition::MessagePermanent,
        Disposition::LaneUnavailable,
    ]);
    let kind = proptest::sample::select(vec![
        AbsenceKind::NotSubmitted,
        AbsenceKind::RefusedByBroker,
        AbsenceKind::ReceiptAbsent,
        AbsenceKind::DeduplicationProof,
    ]);
    let absent = (disposition, kind, any::<[u8; 32]>(), failure()).prop_map(|(disposition, kind, digest, code)| {
        (AttemptResult::NotPublished { disposition, absence: Absence { kind, digest } }, code)
    });
    prop_oneof![
        published().prop_map(|evidence| (AttemptResult::Published(evidence), StableCode::Ok)),
        absent,
        failure().prop_map(|code| (AttemptResult::Unknown, code)),
    ]
}

fn outcomes() -> impl Strategy<Value = Outcomes> {
    let entries = btree_map((uuid(), small(), 1..=u32::MAX), settled(), 1..5);
    (stamp(), entries).prop_map(|(stamp, entries)| {
        let entry =
            |((message, generation, attempt), (result, code))| Outcome { message, generation, attempt, result, code };
        Outcomes { stamp, entries: entries.into_iter().map(entry).collect() }
    })
}

fn owner_body() -> impl Strategy<Value = MutationBody> {
    let epoch = (stamp(), any::<[u8; 16]>(), number()).prop_map(|(stamp, store_incarnation, previous_epoch)| {
        MutationBody::OwnerEpoch(OwnerEpoch { stamp, store_incarnation, previous_epoch })
    });
    let admission =
        (stamp(), btree_map((uuid(), small()), (number(), option::of(number())), 1..5)).prop_map(|(stamp, entries)| {
            let entry =
                |((message, generation), (log_rev, sequence))| Admission { message, generation, log_rev, sequence };
            MutationBody::PublishAdmission(PublishAdmission {
                stamp,
                entries: entries.into_iter().map(entry).collect(),
            })
        });
    let refusals = (stamp(), btree_set((uuid(), small()), 1..5), number(), failure()).prop_map(
        |(stamp, entries, log_rev, code)| {
            let entry = |(message, generation)| Refusal { message, generation, log_rev, code };
            MutationBody::ClaimResult(ClaimResult { stamp, entries: entries.into_iter().map(entry).collect() })
        },
    );
    let fence = (stamp(), time(), small()).prop_map(|(stamp, close_through_ms, expire_max)| {
        MutationBody::TimeFence(TimeFence { stamp, close_through_ms, expire_max })
    });
    prop_oneof![
        epoch,
        admission,
        outcomes().prop_map(MutationBody::PublishOutcome),
        outcomes().prop_map(MutationBody::EvidenceResolution),
        refusals,
        fence,
    ]
}

fn resource() -> impl Strategy<Value = Resource> {
    let kafka =
        (shared_text(), any::<[u8; 16]>()).prop_map(|(cluster_id, topic)| Resource::Kafka { cluster_id, topic });
    let pulsar = (shared_text(), any::<[u8; 32]>(), shared_text(), number()).prop_map(
        |(cluster_id, incarnation, topic, creation_time_ms)| Resource::Pulsar {
            cluster_id,
            incarnation,
            topic,
            creation_time_ms,
        },
    );
    let embedded = any::<[u8; 16]>().prop_map(|topic| Resource::Embedded { topic });
    prop_oneof![kafka, pulsar, embedded]
}

/// An operator's record. The others are few and have vectors.
pub(crate) fn rebinding() -> impl Strategy<Value = MutationV2> {
    (shard(), any::<[u8; 32]>(), option::of(number()), blob(1..12), resource(), time()).prop_map(
        |(shard, operation_id, expected_version, profile_id, resource, retry_until_ms)| {
            let author = Author::Control { principal: "ops".to_owned(), role: "operator".to_owned() };
            let payload = ControlPayload::DestinationRebind(Box::new(DestinationRebind { profile_id, resource }));
            let body = MutationBody::ShardControl(ShardControl { operation_id, expected_version, payload });
            let key = SigningKey::from_bytes(&[9; 32]);
            MutationV2::sign(shard, author, retry_until_ms, body, 2, &key).expect("an arbitrary rebinding is legal")
        },
    )
}

/// An owner's record.
pub(crate) fn mutation() -> impl Strategy<Value = MutationV2> {
    (shard(), any::<[u8; 16]>(), owner_body(), 1..=u32::MAX).prop_map(|(shard, worker_run_id, body, key_version)| {
        let epoch = body.stamp().expect("owner bodies have a stamp").epoch;
        let author = Author::Owner { epoch, worker_run_id };
        let key = SigningKey::from_bytes(&[9; 32]);
        MutationV2::sign(shard, author, 0, body, key_version, &key).expect("an arbitrary body is legal")
    })
}
