//! What is known of an attempt, and what proves it (protocol registry §2.17).
//!
//! A timeout proves nothing: without evidence an attempt is unknown, neither published nor not. The types hold exactly the
//! legal combinations of side effect, disposition and evidence.

use bytes::Bytes;

use crate::field::{self, Fault, FieldError, Within};
use crate::hash::Hash;
use crate::text;
use crate::v2;
use v2::evidence::Evidence as Branch;

/// The result of an attempt.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum AttemptResult {
    /// The destination has it.
    Published(PublishedEvidence),
    /// The destination does not have it and will not get it from this attempt.
    NotPublished {
        /// What follows for the message.
        disposition: Disposition,
        /// What proves it.
        absence: Absence,
    },
    /// Nobody can tell.
    Unknown,
}

/// What follows from an attempt that did not publish.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Disposition {
    /// The message may be tried again; the attempt is charged.
    MessageRetriable,
    /// The message can never be published there.
    MessagePermanent,
    /// The destination is at fault, not the message; the attempt is not charged.
    LaneUnavailable,
}

/// What proves that a message was published.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum PublishedEvidence {
    /// The embedded topic took it.
    Embedded(TopicAck),
    /// A Kafka broker acknowledged it.
    Kafka(TopicAck),
    /// A Pulsar broker acknowledged it.
    Pulsar(PulsarAck),
    /// A receipt that was written in one transaction with it.
    KafkaReceipt(KafkaReceipt),
    /// An operator says so.
    Operator(OperatorStatement),
}

/// Where an embedded or Kafka topic put a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TopicAck {
    /// The topic's id.
    pub topic: [u8; 16],
    /// The partition.
    pub partition: u32,
    /// The offset.
    pub offset: u64,
    /// The broker's time of it, in milliseconds since the epoch.
    pub time_ms: i64,
}

/// Where a Pulsar topic put a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PulsarAck {
    /// The partition.
    pub partition: u32,
    /// The ledger.
    pub ledger: u64,
    /// The entry.
    pub entry: u64,
    /// The place within a batch, 0 for a single message.
    pub batch_index: u32,
    /// The broker's time of it, in milliseconds since the epoch.
    pub time_ms: i64,
}

/// A receipt in a receipt topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct KafkaReceipt {
    /// The receipt topic's id.
    pub topic: [u8; 16],
    /// The partition.
    pub partition: u32,
    /// The offset.
    pub offset: u64,
}

/// Proof that nothing was published.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Absence {
    /// How it is known.
    pub kind: AbsenceKind,
    /// Digest of what says so.
    pub digest: Hash,
}

/// How it is known that nothing was published.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum AbsenceKind {
    /// It was never handed to the destination's client.
    NotSubmitted = 1,
    /// The broker refused it.
    RefusedByBroker = 2,
    /// There is no receipt of it behind a fence that keeps it from coming.
    ReceiptAbsent = 3,
    /// The destination's removal of duplicates has not seen it.
    DeduplicationProof = 4,
}

/// An operator's word.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct OperatorStatement {
    /// Who says so.
    pub principal: String,
    /// SHA-256 of what was said.
    pub statement_sha256: Hash,
}

impl AbsenceKind {
    /// The kind with this wire number.
    #[must_use]
    pub const fn from_u32(number: u32) -> Option<Self> {
        match number {
            1 => Some(Self::NotSubmitted),
            2 => Some(Self::RefusedByBroker),
            3 => Some(Self::ReceiptAbsent),
            4 => Some(Self::DeduplicationProof),
            _ => None,
        }
    }
}

impl AttemptResult {
    /// The registry's number of the side effect.
    #[must_use]
    pub fn side_effect(&self) -> v2::SideEffect {
        match self {
            Self::Published(_) => v2::SideEffect::Published,
            Self::NotPublished { .. } => v2::SideEffect::NotPublished,
            Self::Unknown => v2::SideEffect::Unknown,
        }
    }

    pub(super) fn check(&self) -> Result<(), FieldError> {
        let time = |time_ms, branch| field::not_negative("time_ms", time_ms).within(branch).within("evidence");
        match self {
            Self::Published(PublishedEvidence::Embedded(ack)) => time(ack.time_ms, "embedded").map(drop),
            Self::Published(PublishedEvidence::Kafka(ack)) => time(ack.time_ms, "kafka").map(drop),
            Self::Published(PublishedEvidence::Pulsar(ack)) => time(ack.time_ms, "pulsar").map(drop),
            Self::Published(PublishedEvidence::Operator(statement)) => {
                check_name("principal", &statement.principal).within("operator").within("evidence")
            }
            Self::Published(PublishedEvidence::KafkaReceipt(_)) | Self::NotPublished { .. } | Self::Unknown => Ok(()),
        }
    }

    pub(super) fn from_proto(
        side_effect: i32,
        disposition: i32,
        evidence: Option<v2::Evidence>,
    ) -> Result<Self, FieldError> {
        let conflict = |name| FieldError::new(name, Fault::Conflict { with: "side_effect" });
        let side_effect: v2::SideEffect = field::known("side_effect", side_effect)?;
        let disposition: v2::Disposition = field::known("disposition", disposition)?;
        let evidence = match evidence {
            Some(evidence) => Some(field::required("evidence", evidence.evidence).within("evidence")?),
            None => None,
        };
        match (side_effect, disposition, evidence) {
            (v2::SideEffect::Published, v2::Disposition::None, Some(branch)) => {
                published(branch).within("evidence")?.map(Self::Published).ok_or_else(|| conflict("evidence"))
            }
            (v2::SideEffect::NotPublished, disposition, Some(Branch::Absence(proto))) => {
                let disposition = match disposition {
                    v2::Disposition::MessageRetriable => Disposition::MessageRetriable,
                    v2::Disposition::MessagePermanent => Disposition::MessagePermanent,
                    v2::Disposition::LaneUnavailable => Disposition::LaneUnavailable,
                    v2::Disposition::None => return Err(conflict("disposition")),
                };
                let absence = absence(&proto).within("absence").within("evidence")?;
                Ok(Self::NotPublished { disposition, absence })
            }
            (v2::SideEffect::Unknown, v2::Disposition::None, None) => Ok(Self::Unknown),
            (v2::SideEffect::Unspecified, ..) => Err(FieldError::new("side_effect", Fault::UnknownValue { found: 0 })),
            (v2::SideEffect::Published | v2::SideEffect::Unknown, disposition, _)
                if disposition != v2::Disposition::None =>
            {
                Err(conflict("disposition"))
            }
            _ => Err(conflict("evidence")),
        }
    }

    pub(super) fn to_proto(&self) -> (v2::SideEffect, v2::Disposition, Option<v2::Evidence>) {
        let (disposition, branch) = match self {
            Self::Published(evidence) => (v2::Disposition::None, Some(published_to_proto(evidence))),
            Self::NotPublished { disposition, absence } => {
                let disposition = match disposition {
                    Disposition::MessageRetriable => v2::Disposition::MessageRetriable,
                    Disposition::MessagePermanent => v2::Disposition::MessagePermanent,
                    Disposition::LaneUnavailable => v2::Disposition::LaneUnavailable,
                };
                let digest = Bytes::copy_from_slice(&absence.digest);
                (disposition, Some(Branch::Absence(v2::Absence { kind: absence.kind as u32, digest })))
            }
            Self::Unknown => (v2::Disposition::None, None),
        };
        (self.side_effect(), disposition, branch.map(|branch| v2::Evidence { evidence: Some(branch) }))
    }
}

impl PublishedEvidence {
    /// The form in which records and rows carry it.
    #[must_use]
    pub fn to_proto(&self) -> v2::Evidence {
        v2::Evidence { evidence: Some(published_to_proto(self)) }
    }

    /// Reads evidence of a publication.
    ///
    /// # Errors
    /// [`FieldError`] for a branch that is missing, is no evidence of a publication, or has a field out of range.
    pub fn from_proto(proto: v2::Evidence) -> Result<Self, FieldError> {
        let branch = field::required("evidence", proto.evidence)?;
        published(branch)?.ok_or_else(|| FieldError::new("evidence", Fault::Conflict { with: "side_effect" }))
    }

    /// When the destination says that it has the record, in milliseconds since the epoch; not all evidence says so.
    #[must_use]
    pub fn time_ms(&self) -> Option<i64> {
        match self {
            Self::Embedded(ack) | Self::Kafka(ack) => Some(ack.time_ms),
            Self::Pulsar(ack) => Some(ack.time_ms),
            Self::KafkaReceipt(_) | Self::Operator(_) => None,
        }
    }
}

/// A name that people read: not empty, and text.
pub(super) fn check_name(name: &'static str, value: &str) -> Result<(), FieldError> {
    field::not_empty(name, value.as_bytes())?;
    text::check(value.as_bytes()).map_err(|error| FieldError::new(name, error))?;
    Ok(())
}

fn absence(proto: &v2::Absence) -> Result<Absence, FieldError> {
    let kind = AbsenceKind::from_u32(proto.kind)
        .ok_or_else(|| FieldError::new("kind", Fault::UnknownValue { found: proto.kind.into() }))?;
    Ok(Absence { kind, digest: field::array("digest", &proto.digest)? })
}

/// Evidence of publication, or `None` for a branch that is none.
fn published(branch: Branch) -> Result<Option<PublishedEvidence>, FieldError> {
    let topic = |bytes: &Bytes| field::array("topic", bytes);
    Ok(Some(match branch {
        Branch::Embedded(ack) => PublishedEvidence::Embedded(TopicAck {
            topic: topic(&ack.topic).within("embedded")?,
            partition: ack.partition,
            offset: ack.offset,
            time_ms: ack.time_ms,
        }),
        Branch::Kafka(ack) => PublishedEvidence::Kafka(TopicAck {
            topic: topic(&ack.topic).within("kafka")?,
            partition: ack.partition,
            offset: ack.offset,
            time_ms: ack.time_ms,
        }),
        Branch::Pulsar(ack) => PublishedEvidence::Pulsar(PulsarAck {
            partition: ack.partition,
            ledger: ack.ledger,
            entry: ack.entry,
            batch_index: ack.batch_index,
            time_ms: ack.time_ms,
        }),
        Branch::Receipt(receipt) => PublishedEvidence::KafkaReceipt(KafkaReceipt {
            topic: topic(&receipt.topic).within("receipt")?,
            partition: receipt.partition,
            offset: receipt.offset,
        }),
        Branch::Operator(statement) => PublishedEvidence::Operator(OperatorStatement {
            principal: statement.principal,
            statement_sha256: field::array("statement_sha256", &statement.statement_sha256).within("operator")?,
        }),
        Branch::Absence(_) => return Ok(None),
    }))
}

fn published_to_proto(evidence: &PublishedEvidence) -> Branch {
    let copy = Bytes::copy_from_slice;
    match evidence {
        PublishedEvidence::Embedded(ack) => Branch::Embedded(v2::EmbeddedAck {
            topic: copy(&ack.topic),
            partition: ack.partition,
            offset: ack.offset,
            time_ms: ack.time_ms,
        }),
        PublishedEvidence::Kafka(ack) => Branch::Kafka(v2::KafkaAck {
            topic: copy(&ack.topic),
            partition: ack.partition,
            offset: ack.offset,
            time_ms: ack.time_ms,
        }),
        PublishedEvidence::Pulsar(ack) => Branch::Pulsar(v2::PulsarAck {
            partition: ack.partition,
            ledger: ack.ledger,
            entry: ack.entry,
            batch_index: ack.batch_index,
            time_ms: ack.time_ms,
        }),
        PublishedEvidence::KafkaReceipt(receipt) => Branch::Receipt(v2::KafkaReceipt {
            topic: copy(&receipt.topic),
            partition: receipt.partition,
            offset: receipt.offset,
        }),
        PublishedEvidence::Operator(statement) => Branch::Operator(v2::OperatorStatement {
            principal: statement.principal.clone(),
            statement_sha256: copy(&statement.statement_sha256),
        }),
    }
}
