//! Source Positions: where in which log a record stands (protocol registry §3.1, embedded: §2.9).
//!
//! A position is both an identity (all of it) and an order (a part of it, within one source). It is written into receipts,
//! rows and hashes, so it has one byte form, which is not protobuf.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use bytes::{BufMut, Bytes};

use crate::field::{self, FieldError, Within};
use crate::id::{RouteId, ShardId};
use crate::reader::Reader;
pub use crate::reader::Truncated;
use crate::text::{self, TextError};
use crate::v1;

/// Longest order token.
const TOKEN_BYTES_MAX: usize = 21;

/// Why bytes are not a position.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PositionError {
    /// Too short.
    #[error(transparent)]
    Truncated(#[from] Truncated),
    /// Longer than the position.
    #[error("{count} bytes follow the position at offset {offset}")]
    Trailing {
        /// Where the position ends.
        offset: usize,
        /// How many bytes follow.
        count: usize,
    },
    /// An adapter that does not exist.
    #[error("adapter {found} is not known")]
    Adapter {
        /// The first byte.
        found: u8,
    },
    /// A presence byte other than 0 and 1.
    #[error("leader epoch presence {found} is neither 0 nor 1")]
    Presence {
        /// The byte.
        found: u8,
    },
    /// A Pulsar entry kind other than single and batch.
    #[error("entry kind {found} is neither 1 nor 2")]
    EntryKind {
        /// The kind.
        found: u32,
    },
    /// A place in a batch that the batch does not have; a single entry is number 0 of 1.
    #[error("batch index {index} of {size} does not exist in an entry of kind {kind}")]
    BatchIndex {
        /// The entry kind.
        kind: u32,
        /// The place.
        index: u32,
        /// Members of the batch.
        size: u32,
    },
    /// A time before the epoch.
    #[error("broker time {found:#018x} is negative")]
    Time {
        /// The raw value.
        found: u64,
    },
    /// A cluster id or topic that is not text.
    #[error("{what} {error}")]
    Text {
        /// Which of them.
        what: &'static str,
        /// Why.
        error: TextError,
    },
}

/// The position of one record.
///
/// Equality is of the whole identity. Order exists only within one source: see [`SourcePosition::compare`]. Cloning is cheap.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum SourcePosition {
    /// In a Kafka topic.
    Kafka(KafkaPosition),
    /// In a Pulsar topic.
    Pulsar(PulsarPosition),
    /// In the log of this system itself.
    Embedded(EmbeddedPosition),
}

/// A position in a Kafka topic.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct KafkaPosition {
    /// The route whose log it is.
    pub route: RouteId,
    /// The cluster's own id.
    pub cluster_id: Arc<str>,
    /// The topic's id, which a recreated topic does not share.
    pub topic: [u8; 16],
    /// The partition.
    pub partition: u32,
    /// The offset; all 64 bits are used.
    pub offset: u64,
    /// The leader epoch the record was read with: part of the identity, not of the order.
    pub leader_epoch: Option<u32>,
    /// `LogAppendTime`, in milliseconds since the epoch.
    pub append_time_ms: i64,
}

/// A position in a Pulsar topic.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PulsarPosition {
    /// The route whose log it is.
    pub route: RouteId,
    /// The topic's incarnation, which a recreated topic does not share.
    pub incarnation: Bytes,
    /// The full name of the physical topic.
    pub topic: Arc<str>,
    /// The partition.
    pub partition: u32,
    /// The ledger.
    pub ledger: u64,
    /// The entry within the ledger.
    pub entry: u64,
    /// The record within the entry.
    pub member: EntryMember,
    /// The broker's entry timestamp, in milliseconds since the epoch.
    pub entry_time_ms: i64,
}

/// Which record of a Pulsar entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EntryMember {
    /// The entry is one record.
    Single,
    /// One record of a batch; `index` is below `size`.
    Batch {
        /// From 0.
        index: u32,
        /// Records in the entry.
        size: u32,
    },
}

/// A position in the embedded log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct EmbeddedPosition {
    /// The route whose log it is.
    pub route: RouteId,
    /// The log's own id.
    pub log: [u8; 16],
    /// The partition.
    pub partition: u32,
    /// The offset.
    pub offset: u64,
    /// When the log took the record, in milliseconds since the epoch; never falls.
    pub append_time_ms: i64,
}

/// Bytes whose order is the order of positions within one source (protocol registry §3.1).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OrderToken {
    bytes: [u8; TOKEN_BYTES_MAX],
    length: u8,
}

impl OrderToken {
    fn new(adapter: u8, parts: &[&[u8]]) -> Self {
        let mut token = Self { bytes: [0; TOKEN_BYTES_MAX], length: 1 };
        token.bytes[0] = adapter;
        for part in parts {
            let start = usize::from(token.length);
            token.bytes[start..start + part.len()].copy_from_slice(part);
            token.length += u8::try_from(part.len()).expect("parts of a token are 4 or 8 bytes");
        }
        token
    }

    /// The token: 9 bytes for Kafka and the embedded log, 21 for Pulsar.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }
}

impl fmt::Debug for OrderToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.as_bytes()))
    }
}

impl EntryMember {
    /// Checks that the place exists.
    fn new(kind: u32, index: u32, size: u32) -> Result<Self, PositionError> {
        match kind {
            1 if index == 0 && size == 1 => Ok(Self::Single),
            2 if index < size => Ok(Self::Batch { index, size }),
            1 | 2 => Err(PositionError::BatchIndex { kind, index, size }),
            _ => Err(PositionError::EntryKind { found: kind }),
        }
    }

    /// The place within the entry: 0 for a single record.
    #[must_use]
    pub const fn index(self) -> u32 {
        match self {
            Self::Single => 0,
            Self::Batch { index, .. } => index,
        }
    }

    /// Records in the entry: 1 for a single record.
    #[must_use]
    pub const fn size(self) -> u32 {
        match self {
            Self::Single => 1,
            Self::Batch { size, .. } => size,
        }
    }

    /// 1 for a single record, 2 for a member of a batch.
    #[must_use]
    pub const fn kind(self) -> u8 {
        match self {
            Self::Single => 1,
            Self::Batch { .. } => 2,
        }
    }
}

fn time(raw: u64) -> Result<i64, PositionError> {
    i64::try_from(raw).map_err(|_| PositionError::Time { found: raw })
}

fn text(what: &'static str, bytes: &[u8]) -> Result<Arc<str>, PositionError> {
    text::check(bytes).map(Arc::from).map_err(|error| PositionError::Text { what, error })
}

fn put_lp32(bytes: &mut Vec<u8>, value: &[u8]) {
    bytes.put_u32(u32::try_from(value.len()).expect("names of topics and clusters are short"));
    bytes.put_slice(value);
}

impl SourcePosition {
    /// The canonical byte form, which hashes and rows use.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(128);
        match self {
            Self::Kafka(position) => {
                bytes.put_u8(1);
                bytes.put_slice(&position.route.0);
                put_lp32(&mut bytes, position.cluster_id.as_bytes());
                bytes.put_slice(&position.topic);
                bytes.put_u32(position.partition);
                bytes.put_u64(position.offset);
                bytes.put_u8(u8::from(position.leader_epoch.is_some()));
                if let Some(epoch) = position.leader_epoch {
                    bytes.put_u32(epoch);
                }
                bytes.put_i64(position.append_time_ms);
            }
            Self::Pulsar(position) => {
                bytes.put_u8(2);
                bytes.put_slice(&position.route.0);
                put_lp32(&mut bytes, &position.incarnation);
                put_lp32(&mut bytes, position.topic.as_bytes());
                bytes.put_u32(position.partition);
                bytes.put_u64(position.ledger);
                bytes.put_u64(position.entry);
                bytes.put_u32(position.member.index());
                bytes.put_u32(position.member.size());
                bytes.put_u8(position.member.kind());
                bytes.put_i64(position.entry_time_ms);
            }
            Self::Embedded(position) => {
                bytes.put_u8(3);
                bytes.put_slice(&position.route.0);
                bytes.put_slice(&position.log);
                bytes.put_u32(position.partition);
                bytes.put_u64(position.offset);
                bytes.put_i64(position.append_time_ms);
            }
        }
        bytes
    }

    /// Reads the canonical byte form.
    ///
    /// # Errors
    /// [`PositionError`] for anything that [`SourcePosition::to_bytes`] does not write.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, PositionError> {
        let mut reader = Reader::new(bytes);
        let adapter = reader.u8("adapter")?;
        let position = match adapter {
            1 => Self::Kafka(KafkaPosition {
                route: RouteId(reader.array("route")?),
                cluster_id: text("cluster id", reader.lp32("cluster id")?)?,
                topic: reader.array("topic id")?,
                partition: reader.u32("partition")?,
                offset: reader.u64("offset")?,
                leader_epoch: match reader.u8("leader epoch presence")? {
                    0 => None,
                    1 => Some(reader.u32("leader epoch")?),
                    found => return Err(PositionError::Presence { found }),
                },
                append_time_ms: time(reader.u64("append time")?)?,
            }),
            2 => {
                let route = RouteId(reader.array("route")?);
                let incarnation = Bytes::copy_from_slice(reader.lp32("resource incarnation")?);
                let topic = text("topic", reader.lp32("topic")?)?;
                let (partition, ledger, entry) =
                    (reader.u32("partition")?, reader.u64("ledger")?, reader.u64("entry")?);
                let (index, size) = (reader.u32("batch index")?, reader.u32("batch size")?);
                let member = EntryMember::new(reader.u8("entry kind")?.into(), index, size)?;
                let entry_time_ms = time(reader.u64("entry time")?)?;
                Self::Pulsar(PulsarPosition {
                    route,
                    incarnation,
                    topic,
                    partition,
                    ledger,
                    entry,
                    member,
                    entry_time_ms,
                })
            }
            3 => Self::Embedded(EmbeddedPosition {
                route: RouteId(reader.array("route")?),
                log: reader.array("log id")?,
                partition: reader.u32("partition")?,
                offset: reader.u64("offset")?,
                append_time_ms: time(reader.u64("append time")?)?,
            }),
            found => return Err(PositionError::Adapter { found }),
        };
        match reader.left() {
            0 => Ok(position),
            count => Err(PositionError::Trailing { offset: reader.offset(), count }),
        }
    }

    /// Bytes whose order is that of the positions of this source.
    #[must_use]
    pub fn order_token(&self) -> OrderToken {
        match self {
            Self::Kafka(position) => OrderToken::new(1, &[&position.offset.to_be_bytes()]),
            Self::Pulsar(position) => OrderToken::new(
                2,
                &[
                    &position.ledger.to_be_bytes(),
                    &position.entry.to_be_bytes(),
                    &position.member.index().to_be_bytes(),
                ],
            ),
            Self::Embedded(position) => OrderToken::new(3, &[&position.offset.to_be_bytes()]),
        }
    }

    /// The order of two positions of one source, `None` for positions of different ones.
    ///
    /// Positions that compare equal but are not equal (another leader epoch, time or batch size) are an integrity failure
    /// wherever they meet: one place in a log holds one record.
    #[must_use]
    pub fn compare(&self, other: &Self) -> Option<Ordering> {
        let order = match (self, other) {
            (Self::Kafka(a), Self::Kafka(b)) => {
                let same =
                    (a.route, &a.cluster_id, a.topic, a.partition) == (b.route, &b.cluster_id, b.topic, b.partition);
                same.then(|| a.offset.cmp(&b.offset))?
            }
            (Self::Pulsar(a), Self::Pulsar(b)) => {
                let same = (a.route, &a.incarnation, &a.topic, a.partition)
                    == (b.route, &b.incarnation, &b.topic, b.partition);
                let place = |p: &PulsarPosition| (p.ledger, p.entry, p.member.index());
                same.then(|| place(a).cmp(&place(b)))?
            }
            (Self::Embedded(a), Self::Embedded(b)) => {
                let same = (a.route, a.log, a.partition) == (b.route, b.log, b.partition);
                same.then(|| a.offset.cmp(&b.offset))?
            }
            _ => return None,
        };
        Some(order)
    }

    /// When the broker persisted the record (`bp`), in milliseconds since the epoch: the only time that apply reads.
    #[must_use]
    pub fn broker_time_ms(&self) -> i64 {
        match self {
            Self::Kafka(position) => position.append_time_ms,
            Self::Pulsar(position) => position.entry_time_ms,
            Self::Embedded(position) => position.append_time_ms,
        }
    }

    /// The shard whose log it is a position of.
    #[must_use]
    pub fn shard(&self) -> ShardId {
        let (route, partition) = match self {
            Self::Kafka(position) => (position.route, position.partition),
            Self::Pulsar(position) => (position.route, position.partition),
            Self::Embedded(position) => (position.route, position.partition),
        };
        ShardId { route, partition }
    }

    /// The protobuf form, which receipts use.
    #[must_use]
    pub fn to_proto(&self) -> v1::SourcePosition {
        use v1::source_position::Position;
        let position = match self {
            Self::Kafka(position) => Position::Kafka(v1::KafkaSourcePosition {
                route: Bytes::copy_from_slice(&position.route.0),
                cluster_id: Bytes::copy_from_slice(position.cluster_id.as_bytes()),
                topic_uuid: Bytes::copy_from_slice(&position.topic),
                partition: position.partition,
                offset: position.offset,
                leader_epoch: position.leader_epoch,
                append_time_ms: position.append_time_ms,
            }),
            Self::Pulsar(position) => Position::Pulsar(v1::PulsarSourcePosition {
                route: Bytes::copy_from_slice(&position.route.0),
                resource_incarnation: position.incarnation.clone(),
                topic: Bytes::copy_from_slice(position.topic.as_bytes()),
                partition: position.partition,
                ledger: position.ledger,
                entry: position.entry,
                batch_index: position.member.index(),
                batch_size: position.member.size(),
                entry_kind: position.member.kind().into(),
                entry_time_ms: position.entry_time_ms,
            }),
            Self::Embedded(position) => Position::Embedded(v1::EmbeddedSourcePosition {
                route: Bytes::copy_from_slice(&position.route.0),
                log_uuid: Bytes::copy_from_slice(&position.log),
                partition: position.partition,
                offset: position.offset,
                append_time_ms: position.append_time_ms,
            }),
        };
        v1::SourcePosition { position: Some(position) }
    }

    /// Takes the protobuf form.
    ///
    /// # Errors
    /// [`FieldError`] for a value that no position has.
    pub fn from_proto(proto: &v1::SourcePosition) -> Result<Self, FieldError> {
        use v1::source_position::Position;
        match field::required("position", proto.position.as_ref())? {
            Position::Kafka(proto) => kafka_from_proto(proto).within("kafka"),
            Position::Pulsar(proto) => pulsar_from_proto(proto).within("pulsar"),
            Position::Embedded(proto) => embedded_from_proto(proto).within("embedded"),
        }
    }
}

fn text_field(name: &'static str, bytes: &[u8]) -> Result<Arc<str>, FieldError> {
    text::check(bytes).map(Arc::from).map_err(|error| FieldError::new(name, error))
}

fn kafka_from_proto(proto: &v1::KafkaSourcePosition) -> Result<SourcePosition, FieldError> {
    Ok(SourcePosition::Kafka(KafkaPosition {
        route: RouteId(field::array("route", &proto.route)?),
        cluster_id: text_field("cluster_id", &proto.cluster_id)?,
        topic: field::array("topic_uuid", &proto.topic_uuid)?,
        partition: proto.partition,
        offset: proto.offset,
        leader_epoch: proto.leader_epoch,
        append_time_ms: field::not_negative("append_time_ms", proto.append_time_ms)?,
    }))
}

fn pulsar_from_proto(proto: &v1::PulsarSourcePosition) -> Result<SourcePosition, FieldError> {
    let kind = u32::try_from(proto.entry_kind).unwrap_or(u32::MAX);
    let member = EntryMember::new(kind, proto.batch_index, proto.batch_size).map_err(|error| match error {
        PositionError::BatchIndex { .. } => {
            FieldError::new("batch_index", field::Fault::Conflict { with: "batch_size" })
        }
        _ => FieldError::new("entry_kind", field::Fault::UnknownValue { found: proto.entry_kind.into() }),
    })?;
    Ok(SourcePosition::Pulsar(PulsarPosition {
        route: RouteId(field::array("route", &proto.route)?),
        incarnation: proto.resource_incarnation.clone(),
        topic: text_field("topic", &proto.topic)?,
        partition: proto.partition,
        ledger: proto.ledger,
        entry: proto.entry,
        member,
        entry_time_ms: field::not_negative("entry_time_ms", proto.entry_time_ms)?,
    }))
}

fn embedded_from_proto(proto: &v1::EmbeddedSourcePosition) -> Result<SourcePosition, FieldError> {
    Ok(SourcePosition::Embedded(EmbeddedPosition {
        route: RouteId(field::array("route", &proto.route)?),
        log: field::array("log_uuid", &proto.log_uuid)?,
        partition: proto.partition,
        offset: proto.offset,
        append_time_ms: field::not_negative("append_time_ms", proto.append_time_ms)?,
    }))
}
