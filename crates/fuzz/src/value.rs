//! Values that stand in rows, in hashes and in front of people: positions, ids, lanes, policies, profiles, intents, proofs, null
//! markers, acknowledgements and evidence.

use std::cmp::Ordering;
use std::str::FromStr;

use bytes::Bytes;
use prost::Message;
use protocol::canonical::decode_canonical;
use protocol::code::StableCode;
use protocol::command::{KafkaHeader, PayloadCommitProof, ScheduleIntent, prepare};
use protocol::id::{CommandId, MessageId, Uuid7};
use protocol::lane::LaneTuple;
use protocol::mutation_v2::{DestinationProfile, PublishedEvidence};
use protocol::nulls::{self, MARKER_NAME};
use protocol::policy::RetryPolicy;
use protocol::position::SourcePosition;
use protocol::receipt::BrokerAck;
use protocol::resource::Resource;
use protocol::text::Text;
use protocol::{v1, v2};

use crate::input::Input;
use crate::{check_error, forge};

/// A value: one byte says of which kind the rest is.
pub fn value(input: &[u8]) {
    let mut input = Input::new(input);
    match input.below(14) {
        0 => drop(position(input.rest())),
        1 => two_positions(input.part(), input.rest()),
        2 => position_message(&input.rest_bytes()),
        3 => id(input.rest()),
        4 => id_text(input.rest()),
        5 => lane(input.rest()),
        6 => retry_policy(&input.rest_bytes()),
        7 => profile(&input.rest_bytes()),
        8 => intent(&input.rest_bytes()),
        9 => proof(&input.rest_bytes()),
        10 => null_marker(input),
        11 => resource(&input.rest_bytes()),
        12 => acknowledgement(&input.rest_bytes()),
        _ => evidence(&input.rest_bytes()),
    }
}

fn position(bytes: &[u8]) -> Option<SourcePosition> {
    match SourcePosition::from_bytes(bytes) {
        Ok(position) => {
            assert_eq!(position.to_bytes(), bytes, "another position than was read");
            assert_eq!(SourcePosition::from_proto(&position.to_proto()).as_ref(), Ok(&position));
            assert_eq!(position.compare(&position), Some(Ordering::Equal));
            assert!(position.broker_time_ms() >= 0);
            let token = position.order_token();
            let length = if bytes[0] == 2 { 21 } else { 9 };
            assert_eq!((token.as_bytes().len(), token.as_bytes()[0]), (length, bytes[0]));
            Some(position)
        }
        Err(error) => {
            check_error(&error);
            None
        }
    }
}

/// Order tokens are in the order of their positions.
fn two_positions(a: &[u8], b: &[u8]) {
    let (Some(a), Some(b)) = (position(a), position(b)) else { return };
    assert_eq!(a.compare(&b), b.compare(&a).map(Ordering::reverse));
    if let Some(order) = a.compare(&b) {
        assert_eq!(a.order_token().as_bytes().cmp(b.order_token().as_bytes()), order);
        assert_eq!(a.shard(), b.shard(), "one source, two shards");
    }
}

fn position_message(bytes: &Bytes) {
    match decode_canonical::<v1::SourcePosition>(bytes) {
        Ok(proto) => match SourcePosition::from_proto(&proto) {
            Ok(read) => {
                assert_eq!(read.to_proto(), proto, "another position than was read");
                assert_eq!(position(&read.to_bytes()), Some(read));
            }
            Err(error) => check_error(&error),
        },
        Err(error) => check_error(&error),
    }
}

fn id(bytes: &[u8]) {
    match MessageId::from_bytes(bytes) {
        Ok(id) => {
            assert_eq!(id.to_bytes()[..], *bytes, "another id than was read");
            assert_eq!(id.to_string().parse(), Ok(id));
            assert!(id.uuid.unix_ms() >= 0);
        }
        Err(error) => check_error(&error),
    }
    let Some(first) = bytes.first_chunk::<16>() else { return };
    match Uuid7::from_bytes(*first) {
        Ok(uuid) => assert_eq!(uuid.to_bytes(), *first),
        Err(error) => check_error(&error),
    }
}

fn id_text(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    parsed::<MessageId>(text);
    parsed::<CommandId>(text);
    if let Some(code) = StableCode::from_name(text) {
        assert_eq!(code.name(), text);
    }
    match Text::try_from(text) {
        Ok(kept) => assert_eq!(kept.as_str(), text),
        Err(error) => check_error(&error),
    }
    // Names of ours are refused in any case of letters.
    if text.to_ascii_lowercase().starts_with("nereus.delay.") {
        assert!(prepare::is_reserved_name(text), "{text:?}");
    }
}

fn parsed<Id: FromStr<Err = protocol::id::IdError> + std::fmt::Display>(text: &str) {
    match text.parse::<Id>() {
        Ok(id) => assert_eq!(id.to_string(), text, "an id with two texts"),
        Err(error) => check_error(&error),
    }
}

fn lane(bytes: &[u8]) {
    match LaneTuple::from_bytes(bytes) {
        Ok(lane) => {
            assert_eq!(lane.to_bytes(), bytes, "another lane than was read");
            let _ = lane.lane_id();
        }
        Err(error) => check_error(&error),
    }
}

fn retry_policy(bytes: &Bytes) {
    for bytes in [Some(bytes.clone()), forge::retry_policy(bytes)].into_iter().flatten() {
        match RetryPolicy::decode(&bytes) {
            Ok(policy) => assert_eq!(policy.encode(), Ok(bytes), "another policy than was read"),
            Err(error) => check_error(&error),
        }
    }
}

fn profile(bytes: &Bytes) {
    match DestinationProfile::decode(bytes) {
        Ok(profile) => {
            assert_eq!(profile.encode(), bytes, "another profile than was read");
            assert_eq!(profile.check(), Ok(()), "what decodes keeps the rules");
            let _ = profile.semantic_hash(b"id", 1);
        }
        Err(error) => check_error(&error),
    }
}

fn intent(bytes: &Bytes) {
    match ScheduleIntent::decode(bytes) {
        Ok(intent) => {
            assert_eq!(intent.encode(), bytes, "another intent than was read");
            let _ = (intent.payload_length(), prepare::check_metadata(&intent));
        }
        Err(error) => check_error(&error),
    }
}

fn proof(bytes: &Bytes) {
    for bytes in [Some(bytes.clone()), forge::payload_proof(bytes)].into_iter().flatten() {
        match PayloadCommitProof::decode(&bytes) {
            Ok(proof) => {
                assert_eq!(proof.encode(), bytes, "another proof than was read");
                let _ = proof.signature_digest();
            }
            Err(error) => check_error(&error),
        }
    }
}

/// Headers by their number and which of them are empty, the payload's length, and the marker's value behind them.
fn null_marker(mut input: Input<'_>) {
    let name = |name: &str| Text::try_from(name).expect("it is text");
    let mut headers: Vec<KafkaHeader> = (0..input.below(20))
        .map(|_| {
            let value = if input.byte() & 1 == 0 { Bytes::new() } else { Bytes::from_static(b"x") };
            KafkaHeader { name: name("h"), value }
        })
        .collect();
    let payload_length = u64::from(input.byte());
    let marker = input.rest_bytes();
    headers.push(KafkaHeader { name: name(MARKER_NAME), value: marker.clone() });
    match nulls::split(&headers, payload_length) {
        Ok((nulls, callers)) => {
            assert_eq!(callers.len() + 1, headers.len(), "the marker is taken off, and only it");
            let written = nulls::encode(nulls.value_is_null, &nulls.headers);
            assert_eq!(written, Some(marker), "another marker than was read");
            assert!(!nulls.value_is_null || payload_length == 0);
        }
        Err(error) => check_error(&error),
    }
}

fn resource(bytes: &Bytes) {
    if let Ok(proto) = decode_canonical::<v1::BrokerResourceIdentity>(bytes) {
        match Resource::from_proto(&proto) {
            Ok(resource) => {
                assert_eq!(resource.to_proto(), proto, "another resource than was read");
                assert_eq!(Resource::from_v2(&resource.to_v2()), Ok(resource));
            }
            Err(error) => check_error(&error),
        }
    }
    match v2::Resource::decode(bytes.clone()).map(|proto| Resource::from_v2(&proto)) {
        Ok(Ok(resource)) => assert_eq!(Resource::from_v2(&resource.to_v2()), Ok(resource)),
        Ok(Err(error)) => check_error(&error),
        Err(error) => check_error(&error),
    }
}

fn acknowledgement(bytes: &Bytes) {
    match decode_canonical::<v1::SafeBrokerAck>(bytes) {
        Ok(proto) => match BrokerAck::from_proto(&proto) {
            Ok(ack) => assert_eq!(ack.to_proto(), proto, "another acknowledgement than was read"),
            Err(error) => check_error(&error),
        },
        Err(error) => check_error(&error),
    }
}

fn evidence(bytes: &Bytes) {
    match v2::Evidence::decode(bytes.clone()).map(PublishedEvidence::from_proto) {
        Ok(Ok(evidence)) => {
            assert_eq!(PublishedEvidence::from_proto(evidence.to_proto()).as_ref(), Ok(&evidence));
        }
        Ok(Err(error)) => check_error(&error),
        Err(error) => check_error(&error),
    }
}
