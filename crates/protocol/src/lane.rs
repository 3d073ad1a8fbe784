//! Destination Lanes: what may never wait for each other has different lanes (protocol registry §2.7).
//!
//! A lane's id is a hash of everything that makes two deliveries independent: tenant, exact target, partition, profile and
//! capability versions, and the ordering domain or the unordered bucket.

use std::fmt;
use std::num::NonZeroU32;

use bytes::{BufMut, Bytes};

use crate::hash::{Hash, Preimage, first64};
use crate::id::{IdBytes, MessageId};
use crate::position::SourcePosition;
use crate::reader::{Reader, Truncated};
use crate::reference::ProfileRef;
use crate::resource::Resource;
use crate::routing::remainder;
use crate::text::{self, TextError};

/// The identity of a Destination Lane.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LaneId(pub Hash);

impl fmt::Display for LaneId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl fmt::Debug for LaneId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Everything that a lane's identity is made of.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct LaneTuple {
    /// The tenant's routing scope.
    pub tenant_scope: Hash,
    /// The target topic.
    pub resource: Resource,
    /// The target partition.
    pub partition: u32,
    /// The destination profile.
    pub destination: ProfileRef,
    /// The capability profile.
    pub capability: ProfileRef,
    /// What shares order within it.
    pub ordering: LaneOrdering,
}

/// What shares a lane within one target partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LaneOrdering {
    /// Messages of one ordering domain, see [`ordering_domain`].
    Domain(Hash),
    /// Unordered messages of one bucket, see [`unordered_bucket`].
    Bucket(u32),
}

/// Why bytes are not a lane tuple.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LaneTupleError {
    /// Too short.
    #[error(transparent)]
    Truncated(#[from] Truncated),
    /// Longer than the tuple.
    #[error("{count} bytes follow the tuple at offset {offset}")]
    Trailing {
        /// Where the tuple ends.
        offset: usize,
        /// How many bytes follow.
        count: usize,
    },
    /// A number that is none of a closed set, or one that another part of the tuple contradicts.
    #[error("{what} {found} is not known or does not go with the rest")]
    Unknown {
        /// What the number says.
        what: &'static str,
        /// The number.
        found: u8,
    },
    /// A Kafka or embedded topic whose two copies differ, or an embedded one with a cluster id.
    #[error("{what} contradicts the topic id")]
    Contradiction {
        /// The field at fault.
        what: &'static str,
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

impl LaneTuple {
    /// The canonical bytes.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(256);
        bytes.put_slice(&self.tenant_scope);
        // The kind of a resource has the number of its adapter.
        match &self.resource {
            Resource::Kafka { cluster_id, topic } => {
                bytes.put_u8(1);
                put_lp32(&mut bytes, cluster_id.as_bytes());
                bytes.put_u8(1);
                bytes.put_slice(topic);
                put_lp32(&mut bytes, topic);
            }
            Resource::Pulsar { cluster_id, incarnation, topic, creation_time_ms } => {
                bytes.put_u8(2);
                put_lp32(&mut bytes, cluster_id.as_bytes());
                bytes.put_u8(2);
                bytes.put_slice(incarnation);
                bytes.put_u64(*creation_time_ms);
                put_lp32(&mut bytes, topic.as_bytes());
            }
            Resource::Embedded { topic } => {
                bytes.put_u8(3);
                put_lp32(&mut bytes, b"");
                bytes.put_u8(3);
                bytes.put_slice(topic);
                put_lp32(&mut bytes, topic);
            }
        }
        bytes.put_u32(self.partition);
        for profile in [&self.destination, &self.capability] {
            put_lp32(&mut bytes, &profile.id);
            bytes.put_u64(profile.version);
            bytes.put_slice(&profile.semantic_hash);
        }
        match &self.ordering {
            LaneOrdering::Domain(domain) => {
                bytes.put_u8(1);
                bytes.put_slice(domain);
            }
            LaneOrdering::Bucket(bucket) => {
                bytes.put_u8(2);
                bytes.put_u32(*bucket);
            }
        }
        bytes
    }

    /// Reads the canonical bytes.
    ///
    /// # Errors
    /// [`LaneTupleError`] for anything that [`LaneTuple::to_bytes`] does not write.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, LaneTupleError> {
        let mut reader = Reader::new(bytes);
        let tenant_scope = reader.array("tenant scope")?;
        let resource = read_resource(&mut reader)?;
        let partition = reader.u32("partition")?;
        let (destination, capability) = (read_profile(&mut reader)?, read_profile(&mut reader)?);
        let ordering = match reader.u8("lane kind")? {
            1 => LaneOrdering::Domain(reader.array("ordering domain")?),
            2 => LaneOrdering::Bucket(reader.u32("bucket")?),
            found => return Err(LaneTupleError::Unknown { what: "lane kind", found }),
        };
        match reader.left() {
            0 => Ok(Self { tenant_scope, resource, partition, destination, capability, ordering }),
            count => Err(LaneTupleError::Trailing { offset: reader.offset(), count }),
        }
    }

    /// The lane's identity.
    #[must_use]
    pub fn lane_id(&self) -> LaneId {
        LaneId(Preimage::new("nereus-delay-destination-lane-v1").u8(1).bytes(&self.to_bytes()).sha256())
    }
}

fn put_lp32(bytes: &mut Vec<u8>, value: &[u8]) {
    bytes.put_u32(u32::try_from(value.len()).expect("ids of profiles, topics and clusters are short"));
    bytes.put_slice(value);
}

fn read_text(reader: &mut Reader<'_>, what: &'static str) -> Result<std::sync::Arc<str>, LaneTupleError> {
    let bytes = reader.lp32(what)?;
    text::check(bytes).map(Into::into).map_err(|error| LaneTupleError::Text { what, error })
}

fn read_resource(reader: &mut Reader<'_>) -> Result<Resource, LaneTupleError> {
    let adapter = reader.u8("adapter")?;
    let cluster_id = read_text(reader, "cluster id")?;
    let kind = reader.u8("resource kind")?;
    if kind != adapter {
        return Err(LaneTupleError::Unknown { what: "resource kind", found: kind });
    }
    match adapter {
        1 | 3 => {
            let topic = reader.array("topic id")?;
            if reader.lp32("physical topic")? != topic {
                return Err(LaneTupleError::Contradiction { what: "physical topic" });
            }
            if adapter == 1 {
                return Ok(Resource::Kafka { cluster_id, topic });
            }
            if !cluster_id.is_empty() {
                return Err(LaneTupleError::Contradiction { what: "cluster id" });
            }
            Ok(Resource::Embedded { topic })
        }
        2 => Ok(Resource::Pulsar {
            cluster_id,
            incarnation: reader.array("resource incarnation")?,
            creation_time_ms: reader.u64("creation time")?,
            topic: read_text(reader, "physical topic")?,
        }),
        found => Err(LaneTupleError::Unknown { what: "adapter", found }),
    }
}

fn read_profile(reader: &mut Reader<'_>) -> Result<ProfileRef, LaneTupleError> {
    Ok(ProfileRef {
        id: Bytes::copy_from_slice(reader.lp32("profile id")?),
        version: reader.u64("profile version")?,
        semantic_hash: reader.array("profile hash")?,
    })
}

/// The ordering domain of a key: messages of one domain are delivered in the order of their delivery times.
#[must_use]
pub fn ordering_domain(tenant_scope: &Hash, profile_id: &[u8], profile_version: u64, ordering_key: &[u8]) -> Hash {
    Preimage::new("nereus-delay-ordering-domain-v1\0")
        .bytes(tenant_scope)
        .lp32(profile_id)
        .u64(profile_version)
        .lp32(ordering_key)
        .sha256()
}

/// The unordered bucket of a message among the `bucket_count` of its profile.
#[must_use]
pub fn unordered_bucket(message: &impl IdBytes<MessageId>, bucket_count: NonZeroU32) -> u32 {
    let digest = Preimage::new("nereus-delay-lane-v1").bytes(&message.id_bytes()).sha256();
    remainder(first64(&digest), bucket_count)
}

/// Tells a lane from a later one with the same id: by the position of the record that made it.
#[must_use]
pub fn lane_incarnation(lane: LaneId, created_at: &SourcePosition) -> [u8; 16] {
    let digest =
        Preimage::new("nereus-delay-lane-incarnation-v1\0").bytes(&lane.0).lp32(&created_at.to_bytes()).sha256();
    let (incarnation, _) = digest.split_first_chunk().expect("a digest has 32 bytes");
    *incarnation
}
