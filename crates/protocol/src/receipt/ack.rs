//! What a broker said when it took a record, without anything that only operators may see.

use std::sync::Arc;

use bytes::Bytes;

use crate::field::{self, Fault, FieldError, Within};
use crate::hash::Hash;
use crate::position::SourcePosition;
use crate::resource::Resource;
use crate::v1;
use v1::safe_broker_ack::Ack as Branch;

/// A broker's acknowledgement.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum BrokerAck {
    /// Of a Kafka broker.
    Kafka(KafkaAck),
    /// Of a Pulsar broker.
    Pulsar(PulsarAck),
    /// Of the embedded log, which is in the same process and proves nothing.
    Embedded {
        /// The log's id.
        log: [u8; 16],
        /// The partition.
        partition: u32,
        /// The offset.
        offset: u64,
        /// When the log took the record, in milliseconds since the epoch.
        append_time_ms: i64,
    },
}

/// A Kafka broker's acknowledgement.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct KafkaAck {
    /// The cluster's own id.
    pub cluster_id: Arc<str>,
    /// The topic's id.
    pub topic: [u8; 16],
    /// The partition.
    pub partition: u32,
    /// The offset.
    pub offset: u64,
    /// The leader epoch, where the answer has one.
    pub leader_epoch: Option<u32>,
    /// `LogAppendTime`, in milliseconds since the epoch.
    pub append_time_ms: i64,
    /// SHA-256 of the broker's answer.
    pub response_sha256: Hash,
}

/// A Pulsar broker's acknowledgement.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PulsarAck {
    /// The cluster's name.
    pub cluster_id: Arc<str>,
    /// The topic's incarnation.
    pub incarnation: [u8; 32],
    /// The full name of the physical topic.
    pub topic: Arc<str>,
    /// When the broker made the topic, in milliseconds since the epoch as the broker states it.
    pub creation_time_ms: u64,
    /// The partition.
    pub partition: u32,
    /// The ledger.
    pub ledger: u64,
    /// The entry.
    pub entry: u64,
    /// The place within a batch, 0 for a single message.
    pub batch_index: u32,
    /// Members of the batch, 1 for a single message.
    pub batch_size: u32,
    /// The broker's entry timestamp, in milliseconds since the epoch.
    pub entry_time_ms: i64,
    /// SHA-256 of the broker's send receipt.
    pub send_receipt_sha256: Hash,
}

impl BrokerAck {
    /// The protobuf form.
    #[must_use]
    pub fn to_proto(&self) -> v1::SafeBrokerAck {
        let branch = match self {
            Self::Kafka(ack) => Branch::Kafka(v1::KafkaQueuedAck {
                resource: ack.resource().to_proto(),
                partition: ack.partition,
                offset: ack.offset,
                leader_epoch: ack.leader_epoch,
                append_time_ms: ack.append_time_ms,
                response_sha256: Bytes::copy_from_slice(&ack.response_sha256),
            }),
            Self::Pulsar(ack) => Branch::Pulsar(v1::PulsarQueuedAck {
                resource: ack.resource().to_proto(),
                partition: ack.partition,
                ledger: ack.ledger,
                entry: ack.entry,
                batch_index: ack.batch_index,
                batch_size: ack.batch_size,
                entry_time_ms: ack.entry_time_ms,
                send_receipt_sha256: Bytes::copy_from_slice(&ack.send_receipt_sha256),
            }),
            Self::Embedded { log, partition, offset, append_time_ms } => Branch::Embedded(v1::EmbeddedQueuedAck {
                resource: Resource::Embedded { topic: *log }.to_proto(),
                partition: *partition,
                offset: *offset,
                append_time_ms: *append_time_ms,
            }),
        };
        v1::SafeBrokerAck { ack: Some(branch) }
    }

    /// Takes the protobuf form.
    ///
    /// # Errors
    /// [`FieldError`] for a resource of another adapter, or a value that no acknowledgement has.
    pub fn from_proto(proto: &v1::SafeBrokerAck) -> Result<Self, FieldError> {
        match field::required("ack", proto.ack.as_ref())? {
            Branch::Kafka(ack) => kafka(ack).map(Self::Kafka).within("kafka"),
            Branch::Pulsar(ack) => pulsar(ack).map(Self::Pulsar).within("pulsar"),
            Branch::Embedded(ack) => embedded(ack).within("embedded"),
        }
    }

    /// Checks that an acknowledgement is of the record at `position`.
    pub(super) fn check_position(&self, position: &SourcePosition) -> Result<(), FieldError> {
        let same = match (self, position) {
            (Self::Kafka(ack), SourcePosition::Kafka(position)) => {
                ack.cluster_id == position.cluster_id
                    && ack.topic == position.topic
                    && (ack.partition, ack.offset, ack.append_time_ms)
                        == (position.partition, position.offset, position.append_time_ms)
            }
            (Self::Pulsar(ack), SourcePosition::Pulsar(position)) => {
                let member = position.member;
                ack.topic == position.topic
                    && ack.incarnation[..] == position.incarnation[..]
                    && (ack.partition, ack.ledger, ack.entry) == (position.partition, position.ledger, position.entry)
                    && (ack.batch_index, ack.batch_size, ack.entry_time_ms)
                        == (member.index(), member.size(), position.entry_time_ms)
            }
            (Self::Embedded { log, partition, offset, append_time_ms }, SourcePosition::Embedded(position)) => {
                (*log, *partition, *offset, *append_time_ms)
                    == (position.log, position.partition, position.offset, position.append_time_ms)
            }
            _ => false,
        };
        if same { Ok(()) } else { Err(FieldError::new("broker_ack", Fault::Differs { other: "source_position" })) }
    }
}

impl KafkaAck {
    fn resource(&self) -> Resource {
        Resource::Kafka { cluster_id: self.cluster_id.clone(), topic: self.topic }
    }
}

impl PulsarAck {
    fn resource(&self) -> Resource {
        Resource::Pulsar {
            cluster_id: self.cluster_id.clone(),
            incarnation: self.incarnation,
            topic: self.topic.clone(),
            creation_time_ms: self.creation_time_ms,
        }
    }
}

fn wrong_adapter() -> FieldError {
    FieldError::new("resource", Fault::Conflict { with: "the acknowledgement's branch" })
}

fn kafka(proto: &v1::KafkaQueuedAck) -> Result<KafkaAck, FieldError> {
    let Resource::Kafka { cluster_id, topic } = Resource::from_proto(&proto.resource).within("resource")? else {
        return Err(wrong_adapter());
    };
    Ok(KafkaAck {
        cluster_id,
        topic,
        partition: proto.partition,
        offset: proto.offset,
        leader_epoch: proto.leader_epoch,
        append_time_ms: field::not_negative("append_time_ms", proto.append_time_ms)?,
        response_sha256: field::array("response_sha256", &proto.response_sha256)?,
    })
}

fn pulsar(proto: &v1::PulsarQueuedAck) -> Result<PulsarAck, FieldError> {
    let Resource::Pulsar { cluster_id, incarnation, topic, creation_time_ms } =
        Resource::from_proto(&proto.resource).within("resource")?
    else {
        return Err(wrong_adapter());
    };
    Ok(PulsarAck {
        cluster_id,
        incarnation,
        topic,
        creation_time_ms,
        partition: proto.partition,
        ledger: proto.ledger,
        entry: proto.entry,
        batch_index: proto.batch_index,
        batch_size: proto.batch_size,
        entry_time_ms: field::not_negative("entry_time_ms", proto.entry_time_ms)?,
        send_receipt_sha256: field::array("send_receipt_sha256", &proto.send_receipt_sha256)?,
    })
}

fn embedded(proto: &v1::EmbeddedQueuedAck) -> Result<BrokerAck, FieldError> {
    match Resource::from_proto(&proto.resource).within("resource")? {
        Resource::Embedded { topic } => Ok(BrokerAck::Embedded {
            log: topic,
            partition: proto.partition,
            offset: proto.offset,
            append_time_ms: field::not_negative("append_time_ms", proto.append_time_ms)?,
        }),
        Resource::Kafka { .. } | Resource::Pulsar { .. } => Err(wrong_adapter()),
    }
}
