//! The bodies that the owner of a shard writes: one record, one signature, many messages (protocol registry §2.17).

use std::cmp::Ordering;

use bytes::Bytes;

use super::evidence::AttemptResult;
use crate::code::StableCode;
use crate::field::{self, Fault, FieldError, Within};
use crate::id::Uuid7;
use crate::v2;

/// Which record of an owner this is and the trusted UTC interval at which it was decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Stamp {
    /// The owner's epoch, the author's.
    pub epoch: u64,
    /// From 1, per epoch.
    pub owner_sequence: u64,
    /// The true time was not before this, in milliseconds since the epoch.
    pub earliest_ms: i64,
    /// The true time was not after this, in milliseconds since the epoch.
    pub latest_ms: i64,
}

/// A new owner's first record: behind it every owner record with another epoch or run is stale, for every reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct OwnerEpoch {
    /// Epoch, sequence and time.
    pub stamp: Stamp,
    /// The store the owner works on.
    pub store_incarnation: [u8; 16],
    /// The epoch the owner found.
    pub previous_epoch: u64,
}

/// The point of no return for each entry that apply accepts.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PublishAdmission {
    /// Epoch, sequence and time.
    pub stamp: Stamp,
    /// Strictly ascending by message and generation, at least one.
    pub entries: Vec<Admission>,
}

/// One message that is to be published.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Admission {
    /// The message, within the record's shard.
    pub message: Uuid7,
    /// Its generation.
    pub generation: u32,
    /// What the owner expects the row's `log_rev` to be.
    pub log_rev: u64,
    /// The sequence id at a destination that removes duplicates.
    pub sequence: Option<u64>,
}

/// What became of attempts. Also the body of an `EVIDENCE_RESOLUTION`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Outcomes {
    /// Epoch, sequence and time.
    pub stamp: Stamp,
    /// Strictly ascending by message, generation and attempt, at least one.
    pub entries: Vec<Outcome>,
}

/// What became of one attempt.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Outcome {
    /// The message, within the record's shard.
    pub message: Uuid7,
    /// Its generation.
    pub generation: u32,
    /// The attempt, from 1.
    pub attempt: u32,
    /// The result, with what proves it.
    pub result: AttemptResult,
    /// The code that goes with it: `OK` exactly for a published message.
    pub code: StableCode,
}

/// Messages that can never be published, found out before an attempt.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ClaimResult {
    /// Epoch, sequence and time.
    pub stamp: Stamp,
    /// Strictly ascending by message and generation, at least one.
    pub entries: Vec<Refusal>,
}

/// One message that can never be published.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Refusal {
    /// The message, within the record's shard.
    pub message: Uuid7,
    /// Its generation.
    pub generation: u32,
    /// What the owner expects the row's `log_rev` to be.
    pub log_rev: u64,
    /// Why; not `OK`.
    pub code: StableCode,
}

/// Closes every deadline up to an instant and sweeps expiries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TimeFence {
    /// Epoch, sequence and time.
    pub stamp: Stamp,
    /// Deadlines up to here are closed, in milliseconds since the epoch.
    pub close_through_ms: i64,
    /// Expiry rows that apply visits at most.
    pub expire_max: u32,
}

impl Stamp {
    pub(super) fn check(&self) -> Result<(), FieldError> {
        field::not_zero("owner_sequence", self.owner_sequence)?;
        field::not_negative("earliest_ms", self.earliest_ms)?;
        if self.earliest_ms > self.latest_ms {
            return Err(FieldError::new("latest_ms", Fault::Conflict { with: "earliest_ms" }));
        }
        Ok(())
    }

    pub(super) fn from_proto(proto: Option<v2::Stamp>) -> Result<Self, FieldError> {
        let proto = field::required("stamp", proto)?;
        let v2::Stamp { epoch, owner_sequence, earliest_ms, latest_ms } = proto;
        let stamp = Self { epoch, owner_sequence, earliest_ms, latest_ms };
        stamp.check().within("stamp")?;
        Ok(stamp)
    }

    pub(super) fn to_proto(self) -> Option<v2::Stamp> {
        let Self { epoch, owner_sequence, earliest_ms, latest_ms } = self;
        Some(v2::Stamp { epoch, owner_sequence, earliest_ms, latest_ms })
    }
}

fn message(bytes: &Bytes) -> Result<Uuid7, FieldError> {
    Uuid7::from_bytes(field::array("message", bytes)?).map_err(|error| FieldError::new("message", error))
}

fn message_bytes(message: Uuid7) -> Bytes {
    Bytes::copy_from_slice(message.as_bytes())
}

pub(super) fn code(number: u32) -> Result<StableCode, FieldError> {
    StableCode::from_u32(number).ok_or_else(|| FieldError::new("code", Fault::UnknownValue { found: number.into() }))
}

/// At least one entry, and each above the one before by `key`.
fn check_entries<T, K: Ord>(entries: &[T], key: impl Fn(&T) -> K) -> Result<(), FieldError> {
    if entries.is_empty() {
        return Err(FieldError::new("entries", Fault::Empty));
    }
    field::ascending("entries", entries, key)
}

fn entries<P, T>(entries: Vec<P>, entry: impl Fn(P) -> Result<T, FieldError>) -> Result<Vec<T>, FieldError> {
    entries.into_iter().map(entry).collect::<Result<_, _>>().within("entries")
}

impl OwnerEpoch {
    pub(super) fn from_proto(proto: &v2::OwnerEpoch) -> Result<Self, FieldError> {
        Ok(Self {
            stamp: Stamp::from_proto(proto.stamp)?,
            store_incarnation: field::array("store_incarnation", &proto.store_incarnation)?,
            previous_epoch: proto.previous_epoch,
        })
    }

    pub(super) fn to_proto(self) -> v2::OwnerEpoch {
        v2::OwnerEpoch {
            stamp: self.stamp.to_proto(),
            store_incarnation: Bytes::copy_from_slice(&self.store_incarnation),
            previous_epoch: self.previous_epoch,
        }
    }
}

impl PublishAdmission {
    pub(super) fn check(&self) -> Result<(), FieldError> {
        check_entries(&self.entries, |entry| (entry.message, entry.generation))
    }

    pub(super) fn from_proto(proto: v2::PublishAdmission) -> Result<Self, FieldError> {
        let stamp = Stamp::from_proto(proto.stamp)?;
        let entry = |proto: v2::Admission| {
            let message = message(&proto.message)?;
            let v2::Admission { generation, log_rev, sequence, .. } = proto;
            Ok(Admission { message, generation, log_rev, sequence })
        };
        let body = Self { stamp, entries: entries(proto.entries, entry)? };
        body.check()?;
        Ok(body)
    }

    pub(super) fn to_proto(&self) -> v2::PublishAdmission {
        let entry = |entry: &Admission| v2::Admission {
            message: message_bytes(entry.message),
            generation: entry.generation,
            log_rev: entry.log_rev,
            sequence: entry.sequence,
        };
        v2::PublishAdmission { stamp: self.stamp.to_proto(), entries: self.entries.iter().map(entry).collect() }
    }
}

impl Outcome {
    /// The order of entries in a record.
    #[must_use]
    pub fn compare(&self, other: &Self) -> Ordering {
        let key = |outcome: &Self| (outcome.message, outcome.generation, outcome.attempt);
        key(self).cmp(&key(other))
    }

    fn check(&self) -> Result<(), FieldError> {
        field::not_zero("attempt", self.attempt)?;
        let published = matches!(self.result, AttemptResult::Published(_));
        if published != (self.code == StableCode::Ok) {
            return Err(FieldError::new("code", Fault::Conflict { with: "side_effect" }));
        }
        self.result.check()
    }

    fn from_proto(proto: v2::Outcome) -> Result<Self, FieldError> {
        let outcome = Self {
            message: message(&proto.message)?,
            generation: proto.generation,
            attempt: proto.attempt,
            result: AttemptResult::from_proto(proto.side_effect, proto.disposition, proto.evidence)?,
            code: code(proto.code)?,
        };
        outcome.check()?;
        Ok(outcome)
    }

    fn to_proto(&self) -> v2::Outcome {
        let (side_effect, disposition, evidence) = self.result.to_proto();
        v2::Outcome {
            message: message_bytes(self.message),
            generation: self.generation,
            attempt: self.attempt,
            side_effect: side_effect.into(),
            disposition: disposition.into(),
            code: self.code.as_u32(),
            evidence,
        }
    }
}

impl Outcomes {
    pub(super) fn check(&self) -> Result<(), FieldError> {
        check_entries(&self.entries, |entry| (entry.message, entry.generation, entry.attempt))?;
        self.entries.iter().try_for_each(Outcome::check).within("entries")
    }

    pub(super) fn from_proto(stamp: Option<v2::Stamp>, proto: Vec<v2::Outcome>) -> Result<Self, FieldError> {
        let stamp = Stamp::from_proto(stamp)?;
        let body = Self { stamp, entries: entries(proto, Outcome::from_proto)? };
        body.check()?;
        Ok(body)
    }

    pub(super) fn to_proto(&self) -> (Option<v2::Stamp>, Vec<v2::Outcome>) {
        (self.stamp.to_proto(), self.entries.iter().map(Outcome::to_proto).collect())
    }
}

impl ClaimResult {
    pub(super) fn check(&self) -> Result<(), FieldError> {
        check_entries(&self.entries, |entry| (entry.message, entry.generation))?;
        if self.entries.iter().any(|entry| entry.code == StableCode::Ok) {
            return Err(FieldError::new("code", Fault::Zero).within("entries"));
        }
        Ok(())
    }

    pub(super) fn from_proto(proto: v2::ClaimResult) -> Result<Self, FieldError> {
        let stamp = Stamp::from_proto(proto.stamp)?;
        let entry = |proto: v2::Refusal| {
            let (message, code) = (message(&proto.message)?, code(proto.code)?);
            Ok(Refusal { message, generation: proto.generation, log_rev: proto.log_rev, code })
        };
        let body = Self { stamp, entries: entries(proto.entries, entry)? };
        body.check()?;
        Ok(body)
    }

    pub(super) fn to_proto(&self) -> v2::ClaimResult {
        let entry = |entry: &Refusal| v2::Refusal {
            message: message_bytes(entry.message),
            generation: entry.generation,
            log_rev: entry.log_rev,
            code: entry.code.as_u32(),
        };
        v2::ClaimResult { stamp: self.stamp.to_proto(), entries: self.entries.iter().map(entry).collect() }
    }
}

impl TimeFence {
    pub(super) fn check(&self) -> Result<(), FieldError> {
        field::not_negative("close_through_ms", self.close_through_ms)?;
        Ok(())
    }

    pub(super) fn from_proto(proto: &v2::TimeFence) -> Result<Self, FieldError> {
        let stamp = Stamp::from_proto(proto.stamp)?;
        let body = Self { stamp, close_through_ms: proto.close_through_ms, expire_max: proto.expire_max };
        body.check()?;
        Ok(body)
    }

    pub(super) fn to_proto(self) -> v2::TimeFence {
        v2::TimeFence {
            stamp: self.stamp.to_proto(),
            close_through_ms: self.close_through_ms,
            expire_max: self.expire_max,
        }
    }
}
