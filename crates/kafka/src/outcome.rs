//! What a delivery report means: for the attempt, and for the lane it came from.
//!
//! Whether anything was published is decided by how far the client library knows a message got, never by the error alone: a
//! timeout of a message that was never sent is proof, and one of a message that was sent is none (architecture §9).

use ports::destination::{AttemptOutcome, AttemptRef, LaneError};
use protocol::code::StableCode;
use protocol::mutation_v2::{AbsenceKind, Disposition, PublishedEvidence, TopicAck};
use rdkafka::error::RDKafkaErrorCode;

use crate::native::Persistence;

/// A delivery report, before it is judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Report {
    /// The broker has it.
    Acknowledged { partition: u32, offset: u64, time_ms: i64 },
    /// It failed, at least as far as anybody heard.
    Failed { persistence: Persistence, code: RDKafkaErrorCode, record_bytes: usize },
}

/// What follows from an error besides the outcome of the attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// The message alone is at fault.
    Message,
    /// It may pass by itself.
    Passing,
    /// The topic or the right to write to it may have changed, or the client is of no use any more: nothing else is sent
    /// before it was looked at again.
    Topic,
    /// The broker takes less than we thought: look again, and then judge the message.
    TooLarge,
}

/// Whose trouble an error is.
pub(crate) fn trouble(code: RDKafkaErrorCode) -> Trouble {
    use RDKafkaErrorCode as Code;
    match code {
        Code::MessageSizeTooLarge => Trouble::TooLarge,
        Code::InvalidMessage
        | Code::InvalidMessageSize
        | Code::InvalidRecord
        | Code::InvalidTimestamp
        | Code::PolicyViolation
        | Code::UnsupportedForMessageFormat => Trouble::Message,
        Code::UnknownTopic
        | Code::UnknownPartition
        | Code::UnknownTopicOrPartition
        | Code::UnknownTopicId
        | Code::InvalidTopic
        | Code::TopicAuthorizationFailed
        | Code::ClusterAuthorizationFailed
        | Code::SaslAuthenticationFailed
        | Code::Authentication
        | Code::Fatal => Trouble::Topic,
        _ => Trouble::Passing,
    }
}

/// The outcome of an attempt, where the topic takes records of up to `record_bytes_max` bytes as far as is known now.
pub(crate) fn judge(attempt: AttemptRef, topic: [u8; 16], report: Report, record_bytes_max: usize) -> AttemptOutcome {
    let (persistence, code, record_bytes) = match report {
        Report::Acknowledged { partition, offset, time_ms } => {
            let ack = TopicAck { topic, partition, offset, time_ms };
            return AttemptOutcome::published(PublishedEvidence::Kafka(ack));
        }
        Report::Failed { persistence, code, record_bytes } => (persistence, code, record_bytes),
    };
    // A persisted message that is reported as failed has no offset to show: it is not unpublished, and not proven either.
    if persistence != Persistence::Not {
        return AttemptOutcome::unknown(StableCode::DestinationOutcomeUnknown);
    }
    let (disposition, stable_code) = match trouble(code) {
        Trouble::Message => (Disposition::MessagePermanent, StableCode::DestinationDefinitivePermanent),
        Trouble::TooLarge if record_bytes > record_bytes_max => {
            (Disposition::MessagePermanent, StableCode::DestinationDefinitivePermanent)
        }
        // A batch was too large for a limit that shrank; the record by itself is not.
        Trouble::TooLarge | Trouble::Passing | Trouble::Topic => {
            (Disposition::LaneUnavailable, StableCode::BrokerDefinitiveNotPersisted)
        }
    };
    AttemptOutcome::not_published(attempt, disposition, AbsenceKind::RefusedByBroker, stable_code)
}

/// A lane that cannot be used, because of an error of the client library.
pub(crate) fn lane_error(code: RDKafkaErrorCode, detail: &str) -> LaneError {
    use RDKafkaErrorCode as Code;
    let stable_code = match code {
        Code::UnknownTopic | Code::UnknownTopicOrPartition | Code::UnknownTopicId => {
            StableCode::ResourceIncarnationMismatch
        }
        _ => StableCode::CapabilityUnavailable,
    };
    LaneError { code: stable_code, detail: format!("{detail} ({})", kafka_name(code)) }
}

/// The error's name as Kafka's own documentation writes it: TOPIC_AUTHORIZATION_FAILED.
pub(crate) fn kafka_name(code: RDKafkaErrorCode) -> String {
    let mut name = String::new();
    for character in format!("{code:?}").chars() {
        if character.is_ascii_uppercase() && !name.is_empty() {
            name.push('_');
        }
        name.push(character.to_ascii_uppercase());
    }
    name
}

#[cfg(test)]
mod tests {
    use protocol::id::Uuid7;
    use protocol::mutation_v2::AttemptResult;

    use super::*;

    fn attempt() -> AttemptRef {
        AttemptRef { message: Uuid7::from_parts(1, [1; 10]).expect("a version 7 UUID"), generation: 0, attempt: 1 }
    }

    fn judged(persistence: Persistence, code: RDKafkaErrorCode, record_bytes: usize) -> AttemptOutcome {
        judge(attempt(), [7; 16], Report::Failed { persistence, code, record_bytes }, 1_000)
    }

    fn disposition(outcome: &AttemptOutcome) -> Option<Disposition> {
        match &outcome.result {
            AttemptResult::NotPublished { disposition, .. } => Some(*disposition),
            AttemptResult::Published(_) | AttemptResult::Unknown => None,
        }
    }

    #[test]
    fn only_the_client_librarys_word_on_persistence_is_proof() {
        use RDKafkaErrorCode as Code;
        let codes =
            [Code::MessageTimedOut, Code::TopicAuthorizationFailed, Code::MessageSizeTooLarge, Code::PurgeInflight];
        for code in codes {
            for persistence in [Persistence::Possibly, Persistence::Persisted] {
                assert_eq!(judged(persistence, code, 10).result, AttemptResult::Unknown, "{code:?} {persistence:?}");
            }
            assert!(disposition(&judged(Persistence::Not, code, 10)).is_some(), "{code:?}");
        }
    }

    #[test]
    fn each_error_is_charged_to_whom_it_belongs() {
        use RDKafkaErrorCode as Code;
        let lane = Some(Disposition::LaneUnavailable);
        let message = Some(Disposition::MessagePermanent);
        let cases = [
            (Code::MessageTimedOut, 10, lane),
            (Code::PurgeQueue, 10, lane),
            (Code::NotEnoughReplicas, 10, lane),
            (Code::UnknownTopicOrPartition, 10, lane),
            (Code::TopicAuthorizationFailed, 10, lane),
            (Code::InvalidRecord, 10, message),
            (Code::MessageSizeTooLarge, 1_000, lane),
            (Code::MessageSizeTooLarge, 1_001, message),
        ];
        for (code, record_bytes, expected) in cases {
            assert_eq!(disposition(&judged(Persistence::Not, code, record_bytes)), expected, "{code:?}");
        }
    }

    #[test]
    fn an_acknowledgement_is_evidence_with_the_pinned_topic() {
        let report = Report::Acknowledged { partition: 3, offset: 42, time_ms: 1_000 };
        let ack = TopicAck { topic: [7; 16], partition: 3, offset: 42, time_ms: 1_000 };
        let expected = AttemptOutcome::published(PublishedEvidence::Kafka(ack));
        assert_eq!(judge(attempt(), [7; 16], report, 0), expected);
    }

    #[test]
    fn operators_read_kafkas_own_names() {
        assert_eq!(kafka_name(RDKafkaErrorCode::TopicAuthorizationFailed), "TOPIC_AUTHORIZATION_FAILED");
        let missing = lane_error(RDKafkaErrorCode::UnknownTopicOrPartition, "topic orders");
        assert_eq!(missing.code, StableCode::ResourceIncarnationMismatch);
        assert_eq!(missing.detail, "topic orders (UNKNOWN_TOPIC_OR_PARTITION)");
    }
}
