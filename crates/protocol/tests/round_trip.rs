//! Whatever is written is read back the same, in every form it has.

#![allow(clippy::unwrap_used, reason = "a refusal of what was just written fails the test")]

mod strategies;

use std::cmp::Ordering;

use ed25519_dalek::SigningKey;
use proptest::prelude::*;
use protocol::command::ScheduleIntent;
use protocol::command::{CommandBody, prepare};
use protocol::id::{CommandId, MessageId};
use protocol::position::SourcePosition;
use protocol::record::{self, LogRecord};
use strategies::{command, intent, message_id, mutation, position, rebinding};

proptest! {
    #[test]
    fn ids(id in message_id()) {
        prop_assert_eq!(MessageId::from_bytes(&id.to_bytes()), Ok(id));
        prop_assert_eq!(id.to_string().parse(), Ok(id));
        let command = CommandId::new(id.shard, id.uuid);
        prop_assert_eq!(command.to_string().parse(), Ok(command));
        prop_assert!(id.to_string().parse::<CommandId>().is_err());
    }

    #[test]
    fn ids_are_ordered_as_their_bytes(a in message_id(), b in message_id()) {
        // The checksum stands behind everything that can differ.
        prop_assert_eq!(a.cmp(&b), a.to_bytes().cmp(&b.to_bytes()));
    }

    #[test]
    fn positions(position in position()) {
        let bytes = position.to_bytes();
        prop_assert_eq!(SourcePosition::from_bytes(&bytes), Ok(position.clone()));
        prop_assert_eq!(SourcePosition::from_proto(&position.to_proto()), Ok(position));
        for end in 0..bytes.len() {
            prop_assert!(SourcePosition::from_bytes(&bytes[..end]).is_err());
        }
        let mut longer = bytes;
        longer.push(0);
        prop_assert!(SourcePosition::from_bytes(&longer).is_err());
    }

    #[test]
    fn intents(intent in intent()) {
        prop_assert_eq!(ScheduleIntent::decode(&intent.encode()), Ok(intent));
    }

    #[test]
    fn commands(command in command()) {
        let frame = command.encode_frame();
        let decoded = match record::decode(&frame).unwrap() {
            LogRecord::Command(decoded) => decoded,
            other => return Err(TestCaseError::fail(format!("{other:?}"))),
        };
        if let CommandBody::Schedule(schedule) = &decoded.body {
            prop_assert_eq!(schedule.intent_bytes(), &schedule.intent().encode());
            // A slice of the frame, not a copy.
            prop_assert!(frame.as_ptr_range().contains(&schedule.intent_bytes().as_ptr()));
            prop_assert!(prepare::check_metadata(schedule.intent()).is_ok());
        }
        prop_assert_eq!(decoded.encode_frame(), frame);
        prop_assert_eq!(decoded, command);
    }

    #[test]
    fn mutations(mutation in prop_oneof![4 => mutation(), 1 => rebinding()]) {
        let frame = mutation.encode_frame();
        let LogRecord::MutationV2(decoded) = record::decode(&frame).unwrap() else {
            return Err(TestCaseError::fail("another kind of record"));
        };
        prop_assert!(decoded.verify(&SigningKey::from_bytes(&[9; 32]).verifying_key()));
        prop_assert!(!decoded.verify(&SigningKey::from_bytes(&[8; 32]).verifying_key()));
        prop_assert_eq!(decoded.encode_frame(), frame);
        prop_assert_eq!(decoded, mutation);
    }
}

/// Another position of the same source.
fn moved(position: &SourcePosition, offset: u64, entry: u64) -> SourcePosition {
    let mut position = position.clone();
    match &mut position {
        SourcePosition::Kafka(position) => {
            position.offset = offset;
            position.leader_epoch = None;
        }
        SourcePosition::Pulsar(position) => (position.ledger, position.entry) = (offset, entry),
        SourcePosition::Embedded(position) => position.offset = offset,
    }
    position
}

proptest! {
    #[test]
    fn tokens_are_ordered_as_positions(
        source in position(),
        (a, b) in (strategies::number(), strategies::number()),
        (c, d) in (strategies::number(), strategies::number()),
    ) {
        let (first, second) = (moved(&source, a, c), moved(&source, b, d));
        let order = first.compare(&second);
        prop_assert_eq!(order, Some(first.order_token().cmp(&second.order_token())));
        prop_assert_eq!(second.compare(&first), order.map(Ordering::reverse));
        let tokens = first.order_token().as_bytes().cmp(second.order_token().as_bytes());
        prop_assert_eq!(order, Some(tokens));
    }

    #[test]
    fn positions_of_two_sources_have_no_order(a in position(), b in position()) {
        prop_assert_eq!(a.compare(&a.clone()), Some(Ordering::Equal));
        if a.shard() != b.shard() {
            prop_assert_eq!(a.compare(&b), None);
        }
    }
}
