//! Destination profiles, body schema 2 (protocol registry §2.18).
//!
//! A profile says everything that decides how a message is published, and nothing secret: connection and credentials live in
//! the destination record of the metadata store. Its hash is the V1 formula with schema version 2.

use bytes::Bytes;

use crate::canonical::{self, DecodeError, decode_canonical};
use crate::field::{self, Fault, FieldError, Within};
use crate::hash::Hash;
use crate::reference::{ProfileKind, ProfileRef, RetryPolicyRef, profile_semantic_hash};
use crate::resource::Resource;
use crate::text::Text;
use crate::v2;

/// The schema version of this body in the semantic hash.
pub const BODY_SCHEMA: u32 = 2;

const ORDERING_BEST_EFFORT: u32 = 1;
const ORDERING_DELIVERY_TIME_FIFO: u32 = 2;

/// One version of a destination.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct DestinationProfile {
    /// The target topic; also says which adapter publishes to it.
    pub resource: Resource,
    /// Its partitions, from 1.
    pub partition_count: u32,
    /// How a message gets its partition.
    pub partition_policy: PartitionPolicy,
    /// What can be known of an attempt there.
    pub outcome_capability: OutcomeCapability,
    /// The orders that messages may ask for; at least one.
    pub ordering: AllowedOrdering,
    /// Most bytes of key, value and headers of one record, with our own headers.
    pub record_bytes_max: u32,
    /// Most bytes of our own headers; below `record_bytes_max`.
    pub header_reserve_bytes: u32,
    /// Unordered lanes a partition, from 1.
    pub lane_bucket_count: u32,
    /// From delivery time to expiry where the caller states none, in milliseconds, from 1.
    pub expires_after_ms: i64,
    /// Longest delay, in milliseconds, from 1.
    pub delay_ms_max: i64,
    /// The retry policy of messages that name none.
    pub retry_policy: RetryPolicyRef,
    /// What people call it.
    pub display_name: Text,
    /// What timestamp delivered records have.
    pub timestamp_policy: TimestampPolicy,
}

/// How a message gets its partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PartitionPolicy {
    /// As Kafka's own default partitioner would, by the record's key; without a key by the message id's registry hash.
    Murmur2Key,
    /// By the registry's hash over the key, or over the message's UUID where there is none.
    RegistryHash,
    /// Always the same one.
    Explicit {
        /// Below the profile's partition count.
        partition: u32,
    },
}

/// What timestamp a delivered record has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum TimestampPolicy {
    /// The message's event time where it has one, else its `deliverAt`.
    #[default]
    EventTime,
    /// Its `deliverAt`.
    DeliveryTime,
}

/// What can be known of an attempt; the numbers are the registry's (protocol registry §2.8).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum OutcomeCapability {
    /// A lost answer may mean a duplicate.
    AtLeastOnce = 1,
    /// Kafka transactions with receipts tell afterwards.
    KafkaTransactionalReceipt = 2,
    /// Pulsar's removal of duplicates tells afterwards.
    PulsarBrokerDedup = 3,
}

/// The orders that messages may ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct AllowedOrdering {
    /// None at all.
    pub best_effort: bool,
    /// By delivery time within an ordering key.
    pub delivery_time_fifo: bool,
}

impl OutcomeCapability {
    /// The capability with this wire number.
    #[must_use]
    pub const fn from_u32(number: u32) -> Option<Self> {
        match number {
            1 => Some(Self::AtLeastOnce),
            2 => Some(Self::KafkaTransactionalReceipt),
            3 => Some(Self::PulsarBrokerDedup),
            _ => None,
        }
    }
}

impl DestinationProfile {
    /// Reads a profile body.
    ///
    /// # Errors
    /// [`DecodeError`] for bytes that are no canonical body, or a profile that contradicts itself.
    pub fn decode(bytes: &Bytes) -> Result<Self, DecodeError> {
        Ok(Self::from_proto(decode_canonical(bytes)?)?)
    }

    /// The canonical bytes.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        canonical::encode(&self.to_proto())
    }

    /// The hash of this body as version `version` of the profile `id`.
    #[must_use]
    pub fn semantic_hash(&self, id: &[u8], version: u64) -> Hash {
        profile_semantic_hash(ProfileKind::Destination, id, version, BODY_SCHEMA, &self.encode())
    }

    /// The reference to this body as version `version` of the profile `id`.
    #[must_use]
    pub fn reference(&self, id: &Bytes, version: u64) -> ProfileRef {
        ProfileRef { id: id.clone(), version, semantic_hash: self.semantic_hash(id, version) }
    }

    /// The rules between the fields.
    ///
    /// # Errors
    /// [`FieldError`] for the first that is broken.
    pub fn check(&self) -> Result<(), FieldError> {
        field::not_zero("partition_count", self.partition_count)?;
        if let PartitionPolicy::Explicit { partition } = self.partition_policy
            && partition >= self.partition_count
        {
            return Err(FieldError::new("explicit_partition", Fault::Conflict { with: "partition_count" }));
        }
        let fits = matches!(
            (self.outcome_capability, &self.resource),
            (OutcomeCapability::AtLeastOnce, _)
                | (OutcomeCapability::KafkaTransactionalReceipt, Resource::Kafka { .. })
                | (OutcomeCapability::PulsarBrokerDedup, Resource::Pulsar { .. })
        );
        if !fits {
            return Err(FieldError::new("outcome_capability", Fault::Conflict { with: "adapter" }));
        }
        if self.ordering == AllowedOrdering::default() {
            return Err(FieldError::new("ordering_bits", Fault::Zero));
        }
        if self.header_reserve_bytes >= self.record_bytes_max {
            return Err(FieldError::new("header_reserve_bytes", Fault::Conflict { with: "record_bytes_max" }));
        }
        field::not_zero("lane_bucket_count", self.lane_bucket_count)?;
        for (name, duration_ms) in [("expires_after_ms", self.expires_after_ms), ("delay_ms_max", self.delay_ms_max)] {
            if field::not_negative(name, duration_ms)? == 0 {
                return Err(FieldError::new(name, Fault::Zero));
            }
        }
        self.retry_policy.check().within("retry_policy")
    }

    pub(super) fn from_proto(proto: v2::DestinationProfile) -> Result<Self, FieldError> {
        let resource = field::required("resource", proto.resource.as_ref())?;
        let resource = Resource::from_v2(resource).within("resource")?;
        let adapter: v2::Adapter = field::known("adapter", proto.adapter)?;
        field::same("adapter", &adapter, "the resource's", &adapter_of(&resource))?;
        let outcome_capability = OutcomeCapability::from_u32(proto.outcome_capability).ok_or_else(|| {
            FieldError::new("outcome_capability", Fault::UnknownValue { found: proto.outcome_capability.into() })
        })?;
        if proto.ordering_bits & !(ORDERING_BEST_EFFORT | ORDERING_DELIVERY_TIME_FIFO) != 0 {
            return Err(FieldError::new("ordering_bits", Fault::UnknownValue { found: proto.ordering_bits.into() }));
        }
        let profile = Self {
            resource,
            partition_count: proto.partition_count,
            partition_policy: match field::known("partition_policy", proto.partition_policy)? {
                v2::PartitionPolicy::Murmur2Key => PartitionPolicy::Murmur2Key,
                v2::PartitionPolicy::RegistryHash => PartitionPolicy::RegistryHash,
                v2::PartitionPolicy::Explicit => PartitionPolicy::Explicit { partition: proto.explicit_partition },
                v2::PartitionPolicy::Unspecified => {
                    return Err(FieldError::new("partition_policy", Fault::UnknownValue { found: 0 }));
                }
            },
            outcome_capability,
            ordering: AllowedOrdering {
                best_effort: proto.ordering_bits & ORDERING_BEST_EFFORT != 0,
                delivery_time_fifo: proto.ordering_bits & ORDERING_DELIVERY_TIME_FIFO != 0,
            },
            record_bytes_max: proto.record_bytes_max,
            header_reserve_bytes: proto.header_reserve_bytes,
            lane_bucket_count: proto.lane_bucket_count,
            expires_after_ms: proto.expires_after_ms,
            delay_ms_max: proto.delay_ms_max,
            retry_policy: policy_from_proto(field::required("retry_policy", proto.retry_policy)?)
                .within("retry_policy")?,
            display_name: Text::new(proto.display_name).map_err(|error| FieldError::new("display_name", error))?,
            timestamp_policy: match field::known("timestamp_policy", proto.timestamp_policy)? {
                v2::TimestampPolicy::EventTime => TimestampPolicy::EventTime,
                v2::TimestampPolicy::DeliveryTime => TimestampPolicy::DeliveryTime,
            },
        };
        let is_explicit = matches!(profile.partition_policy, PartitionPolicy::Explicit { .. });
        if !is_explicit && proto.explicit_partition != 0 {
            return Err(FieldError::new("explicit_partition", Fault::Conflict { with: "partition_policy" }));
        }
        profile.check()?;
        Ok(profile)
    }

    pub(super) fn to_proto(&self) -> v2::DestinationProfile {
        let bit = |allowed, bit| if allowed { bit } else { 0 };
        v2::DestinationProfile {
            adapter: adapter_of(&self.resource).into(),
            resource: Some(self.resource.to_v2()),
            partition_count: self.partition_count,
            partition_policy: match self.partition_policy {
                PartitionPolicy::Murmur2Key => v2::PartitionPolicy::Murmur2Key,
                PartitionPolicy::RegistryHash => v2::PartitionPolicy::RegistryHash,
                PartitionPolicy::Explicit { .. } => v2::PartitionPolicy::Explicit,
            }
            .into(),
            explicit_partition: match self.partition_policy {
                PartitionPolicy::Explicit { partition } => partition,
                PartitionPolicy::Murmur2Key | PartitionPolicy::RegistryHash => 0,
            },
            outcome_capability: self.outcome_capability as u32,
            ordering_bits: bit(self.ordering.best_effort, ORDERING_BEST_EFFORT)
                | bit(self.ordering.delivery_time_fifo, ORDERING_DELIVERY_TIME_FIFO),
            record_bytes_max: self.record_bytes_max,
            header_reserve_bytes: self.header_reserve_bytes,
            lane_bucket_count: self.lane_bucket_count,
            expires_after_ms: self.expires_after_ms,
            delay_ms_max: self.delay_ms_max,
            retry_policy: Some(v2::RetryPolicyRef {
                policy_id: self.retry_policy.id.clone(),
                version: self.retry_policy.version,
                semantic_hash: Bytes::copy_from_slice(&self.retry_policy.semantic_hash),
            }),
            display_name: self.display_name.as_str().to_owned(),
            timestamp_policy: match self.timestamp_policy {
                TimestampPolicy::EventTime => v2::TimestampPolicy::EventTime,
                TimestampPolicy::DeliveryTime => v2::TimestampPolicy::DeliveryTime,
            }
            .into(),
        }
    }
}

fn adapter_of(resource: &Resource) -> v2::Adapter {
    match resource {
        Resource::Kafka { .. } => v2::Adapter::Kafka,
        Resource::Pulsar { .. } => v2::Adapter::Pulsar,
        Resource::Embedded { .. } => v2::Adapter::Embedded,
    }
}

fn policy_from_proto(proto: v2::RetryPolicyRef) -> Result<RetryPolicyRef, FieldError> {
    Ok(RetryPolicyRef {
        id: proto.policy_id,
        version: proto.version,
        semantic_hash: field::array("semantic_hash", &proto.semantic_hash)?,
    })
}
