//! Every value has one encoding: bytes that were changed are refused, or are another value's only encoding.
//!
//! Checksums and hashes would hide what lies behind them, so each is computed anew after the change. What is left to catch a change
//! is the layer under test.

#![allow(clippy::unwrap_used, reason = "a refusal of what was just written fails the test")]

mod strategies;
#[allow(dead_code, reason = "the bodies are needed here, not what is broken in them")]
mod v1_bodies;

use bytes::Bytes;
use ed25519_dalek::SigningKey;
use proptest::prelude::*;
use prost::Message;
use protocol::canonical::{Canonical, decode_canonical};
use protocol::command::{ClientCommand, ScheduleIntent, command_hash};
use protocol::frame::{self, RecordKind};
use protocol::mutation::{mutation_hash, mutation_id};
use protocol::mutation_v2::MutationV2;
use protocol::position::SourcePosition;
use protocol::record::{self, LogRecord};
use protocol::{v1, v2};
use strategies::{command, intent, mutation, position};

/// Every change of one place: cut, one byte more, one bit, one varint written longer, one byte twice, one field more.
fn changes(bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut changes = Vec::new();
    for at in 0..bytes.len() {
        changes.push(bytes[..at].to_vec());
        for bit in 0..8 {
            let mut flipped = bytes.to_vec();
            flipped[at] ^= 1 << bit;
            changes.push(flipped);
        }
        if bytes[at] < 0x80 {
            let mut longer = bytes.to_vec();
            longer.splice(at..=at, [bytes[at] | 0x80, 0]);
            changes.push(longer);
        }
        let mut twice = bytes.to_vec();
        twice.insert(at, bytes[at]);
        changes.push(twice);
    }
    changes.push([bytes, &[0]].concat());
    // A field of number 1000 as a varint, as bytes, and as eight fixed bytes.
    changes.push([bytes, &[0xc0, 0x3e, 0x01]].concat());
    changes.push([bytes, &[0xc2, 0x3e, 0x00]].concat());
    changes.push([bytes, &[0xc1, 0x3e, 0, 0, 0, 0, 0, 0, 0, 0]].concat());
    changes
}

/// Either refused, or the only encoding of something.
fn one_encoding(frame: &Bytes) -> bool {
    match record::decode(frame) {
        Ok(record) => record.encode_frame() == frame,
        Err(_) => true,
    }
}

fn framed(kind: RecordKind, record: v1::shard_log_envelope::Record) -> Bytes {
    let log = v1::ShardLogEnvelope { log_envelope_version: 1, record: Some(record) };
    frame::encode(kind, &log.encode_to_vec())
}

/// A command with another body, and the hash of it.
fn with_body(command: &ClientCommand, body: Vec<u8>) -> Bytes {
    let hash =
        command_hash(command.command_type(), &command.command_id, &command.message_id, command.retry_until_ms, &body);
    let envelope = v1::DelayCommandEnvelope {
        envelope_version: 1,
        command_id: Bytes::copy_from_slice(&command.command_id.to_bytes()),
        delay_message_id: Bytes::copy_from_slice(&command.message_id.to_bytes()),
        command_type: command.command_type().as_u32(),
        retry_until_ms: command.retry_until_ms,
        canonical_body: body.into(),
        command_hash_sha256: Bytes::copy_from_slice(&hash),
        body_version: 1,
    };
    framed(RecordKind::ClientCommand, v1::shard_log_envelope::Record::ClientCommand(envelope))
}

/// A mutation with another body, and hash and id of it.
fn with_mutation_body(mutation: &MutationV2, body: Vec<u8>) -> Bytes {
    let (mutation_type, shard) = (mutation.mutation_type(), mutation.shard);
    let hash = mutation_hash(mutation_type, 2, shard, 0, &body);
    let id = mutation_id(mutation_type, &mutation.body.logical_identity(), shard, &hash);
    let envelope = v1::ShardSystemMutationEnvelope {
        envelope_version: 1,
        system_mutation_id: Bytes::copy_from_slice(&id),
        shard_subject: v1::ShardSubject { route: Bytes::copy_from_slice(&shard.route.0), partition: shard.partition },
        mutation_type: mutation_type.as_u32(),
        retry_until_ms: 0,
        canonical_body: body.into(),
        mutation_hash_sha256: Bytes::copy_from_slice(&hash),
        body_version: 2,
        author_identity: mutation.author.encode(),
        signing_key_version: mutation.signing_key_version,
        signature: Bytes::copy_from_slice(&mutation.signature),
    };
    framed(RecordKind::SystemMutation, v1::shard_log_envelope::Record::SystemMutation(envelope))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn of_envelopes(command in command(), mutation in mutation()) {
        for frame in [command.encode_frame(), mutation.encode_frame()] {
            let frame = frame::decode(&frame).unwrap();
            for payload in changes(&frame.payload) {
                let changed = frame::encode(frame.kind, &payload);
                prop_assert!(one_encoding(&changed), "{}", hex::encode(&changed));
            }
        }
    }

    #[test]
    fn of_command_bodies(command in command()) {
        prop_assert_eq!(with_body(&command, command.body_bytes.to_vec()), command.encode_frame());
        for body in changes(&command.body_bytes) {
            let changed = with_body(&command, body);
            prop_assert!(one_encoding(&changed), "{}", hex::encode(&changed));
        }
    }

    #[test]
    fn of_mutation_bodies(mutation in mutation()) {
        prop_assert_eq!(with_mutation_body(&mutation, mutation.body_bytes.to_vec()), mutation.encode_frame());
        for body in changes(&mutation.body_bytes) {
            let changed = with_mutation_body(&mutation, body);
            prop_assert!(one_encoding(&changed), "{}", hex::encode(&changed));
        }
    }

    #[test]
    fn of_intents(intent in intent()) {
        for changed in changes(&intent.encode()) {
            let changed = Bytes::from(changed);
            if let Ok(decoded) = ScheduleIntent::decode(&changed) {
                prop_assert_eq!(decoded.encode(), changed);
            }
        }
    }

    #[test]
    fn of_positions(position in position()) {
        for changed in changes(&position.to_bytes()) {
            if let Ok(decoded) = SourcePosition::from_bytes(&changed) {
                prop_assert_eq!(decoded.to_bytes(), changed);
            }
        }
    }

    #[test]
    fn of_anything(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
        let bytes = Bytes::from(bytes);
        for kind in [RecordKind::ClientCommand, RecordKind::SystemMutation] {
            prop_assert!(one_encoding(&frame::encode(kind, &bytes)));
        }
        if let Ok(message) = decode_canonical::<v2::Outcome>(&bytes) {
            prop_assert_eq!(message.encode_to_vec(), bytes.to_vec());
        }
        prop_assert!(record::decode(&bytes).is_err());
    }
}

/// Canonical form is defined by encoding again; it is checked against the schema, in one pass. Panics where they differ.
fn same_verdict<M: Canonical>(bytes: Vec<u8>) {
    let bytes = Bytes::from(bytes);
    let defined = M::decode(bytes.clone()).is_ok_and(|message| message.encode_to_vec() == bytes);
    let checked = decode_canonical::<M>(&bytes).map(drop);
    assert_eq!(defined, checked.is_ok(), "{}: {checked:?}", hex::encode(&bytes));
}

/// Every change of one place of a message, and of its bytes taken for another message.
fn verdicts_agree<M: Canonical>(message: &M) {
    let bytes = message.encode_to_vec();
    assert!(decode_canonical::<M>(&bytes.clone().into()).is_ok());
    for changed in changes(&bytes) {
        same_verdict::<M>(changed.clone());
        same_verdict::<v1::AdapterMetadata>(changed.clone());
        same_verdict::<v2::ShardControl>(changed);
    }
}

#[test]
fn the_check_in_one_pass_is_the_definition() {
    use protocol::mutation_v1::MutationBodyV1 as Body;
    use v2::shard_control::Payload;
    for (_, author, body) in v1_bodies::bodies() {
        verdicts_agree(&author);
        match body {
            Body::ApplyShardControl(body) => verdicts_agree(&*body),
            Body::ReplayDeadLetter(body) => verdicts_agree(&*body),
            Body::ResolveUncertain(body) => verdicts_agree(&*body),
            Body::TimeFence(body) => verdicts_agree(&*body),
            // One admission holds every type there is around it, so its bytes are the longest.
            Body::PublishAdmission(body) => verdicts_agree(&*body),
            Body::PublishOutcome(body) => verdicts_agree(&*body),
            Body::ExpireGeneration(body) => verdicts_agree(&*body),
            Body::EvidenceResolution(body) => verdicts_agree(&*body),
            Body::ResourceRetireIntent(body) => verdicts_agree(&*body),
            Body::ResourceDeleteConfirmed(body) => verdicts_agree(&*body),
            Body::ClaimResult(body) => verdicts_agree(&*body),
            Body::DlqExportResult(body) => verdicts_agree(&*body),
        }
    }
    for (kind, branch) in v1_bodies::evidence_branches() {
        verdicts_agree(&v1_bodies::evidence(kind, v1::EvidenceStatus::Unresolved, branch));
    }
    let key = v2::SigningKey { version: 1, public_key: Bytes::from_static(&[1; 32]), roles: vec![1, 2] };
    let genesis = v2::Genesis {
        limits: Some(v2::Limits { lanes_max: 1, ..Default::default() }),
        keys: vec![key],
        ..Default::default()
    };
    let profile = v2::DestinationProfile {
        adapter: 1,
        resource: Some(v2::Resource {
            resource: Some(v2::resource::Resource::Kafka(v2::KafkaTopic {
                cluster_id: "ü".to_owned(),
                topic_id: Bytes::new(),
            })),
        }),
        display_name: "é".to_owned(),
        ..Default::default()
    };
    let activate = v2::ProfileActivate { profile_id: Bytes::from_static(b"p"), version: 1, profile: Some(profile) };
    let rebind = v2::DestinationRebind {
        profile_id: Bytes::from_static(b"p"),
        resource: Some(v2::Resource {
            resource: Some(v2::resource::Resource::Pulsar(v2::PulsarTopic { creation_ms: 1, ..Default::default() })),
        }),
    };
    for payload in [Payload::Genesis(genesis), Payload::ProfileActivate(activate), Payload::DestinationRebind(rebind)] {
        verdicts_agree(&v2::ShardControl { expected_version: Some(0), payload: Some(payload), ..Default::default() });
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, ..ProptestConfig::default() })]

    #[test]
    fn the_check_in_one_pass_is_the_definition_of_commands_and_mutations(command in command(), mutation in mutation()) {
        use protocol::command::CommandType;
        use protocol::mutation::MutationType;
        for changed in changes(&command.body_bytes) {
            match command.command_type() {
                CommandType::Schedule => same_verdict::<v1::ScheduleBody>(changed),
                CommandType::PrepareLargeSchedule => same_verdict::<v1::PrepareLargeScheduleBody>(changed),
                CommandType::CommitLargeSchedule => same_verdict::<v1::CommitLargeScheduleBody>(changed),
                CommandType::Cancel => same_verdict::<v1::CancelBody>(changed),
                CommandType::Reschedule => same_verdict::<v1::RescheduleBody>(changed),
            }
        }
        for changed in changes(&mutation.body_bytes) {
            match mutation.mutation_type() {
                MutationType::OwnerEpoch => same_verdict::<v2::OwnerEpoch>(changed),
                MutationType::PublishAdmission => same_verdict::<v2::PublishAdmission>(changed),
                MutationType::ClaimResult => same_verdict::<v2::ClaimResult>(changed),
                MutationType::TimeFence => same_verdict::<v2::TimeFence>(changed),
                _ => same_verdict::<v2::PublishOutcome>(changed),
            }
        }
        for frame in [command.encode_frame(), mutation.encode_frame()] {
            for changed in changes(&frame::decode(&frame).unwrap().payload) {
                same_verdict::<v1::ShardLogEnvelope>(changed);
            }
        }
    }

    #[test]
    fn the_check_in_one_pass_is_the_definition_of_anything(bytes in proptest::collection::vec(any::<u8>(), 0..24)) {
        same_verdict::<v1::MessagePrecondition>(bytes.clone());
        same_verdict::<v1::KafkaMetadata>(bytes.clone());
        same_verdict::<v1::SourcePosition>(bytes.clone());
        same_verdict::<v2::Stamp>(bytes.clone());
        same_verdict::<v2::Outcome>(bytes.clone());
        same_verdict::<v2::SigningKey>(bytes);
    }
}

/// The smallest command, changed at every place of the whole frame without mending anything.
#[test]
fn a_frame_changed_anywhere_is_refused() {
    let frame = strategies_example();
    for changed in changes(&frame) {
        assert!(record::decode(&changed.into()).is_err());
    }
    assert!(matches!(record::decode(&frame), Ok(LogRecord::Command(_))));
}

fn strategies_example() -> Bytes {
    use protocol::command::{Cancel, CommandBody};
    use protocol::id::{CommandId, MessageId, RouteId, ShardId, Uuid7};
    let shard = ShardId { route: RouteId([0xa1; 16]), partition: 3 };
    let message = MessageId::new(shard, Uuid7::from_parts(1, [1; 10]).unwrap());
    let command = CommandId::new(shard, Uuid7::from_parts(1, [2; 10]).unwrap());
    ClientCommand::new(command, message, 5_000, CommandBody::Cancel(Cancel::default())).unwrap().encode_frame()
}

/// A signature covers everything: a record signed by one key is nobody else's, whichever field is changed.
#[test]
fn every_signed_field_is_covered() {
    use protocol::id::{RouteId, ShardId};
    use protocol::mutation_v2::{Author, MutationBody, Stamp, TimeFence};
    let key = SigningKey::from_bytes(&[3; 32]);
    let sign = |partition, run, close_through_ms, version| {
        let shard = ShardId { route: RouteId([1; 16]), partition };
        let stamp = Stamp { epoch: 1, owner_sequence: 1, earliest_ms: 0, latest_ms: 0 };
        let body = MutationBody::TimeFence(TimeFence { stamp, close_through_ms, expire_max: 0 });
        MutationV2::sign(shard, Author::Owner { epoch: 1, worker_run_id: run }, 0, body, version, &key).unwrap()
    };
    let record = sign(1, [1; 16], 1, 1);
    assert!(record.verify(&key.verifying_key()));
    for other in [sign(2, [1; 16], 1, 1), sign(1, [2; 16], 1, 1), sign(1, [1; 16], 2, 1), sign(1, [1; 16], 1, 2)] {
        assert!(other.verify(&key.verifying_key()));
        let forged = MutationV2 { signature: record.signature, ..other };
        assert!(!forged.verify(&key.verifying_key()));
    }
}
