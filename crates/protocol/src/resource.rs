//! The exact broker resource that records go to or come from (protocol registry §2.9).
//!
//! A topic that was deleted and made again has the same name and is another resource: the identity holds what the broker does
//! not reuse.

use std::sync::Arc;

use bytes::Bytes;

use crate::field::{self, FieldError, Within};
use crate::text;
use crate::v1;
pub use crate::v1::AdapterKind;
use crate::v2;

/// One topic, by an identity that a recreated topic does not share.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Resource {
    /// A Kafka topic.
    Kafka {
        /// The cluster's own id.
        cluster_id: Arc<str>,
        /// The topic's id.
        topic: [u8; 16],
    },
    /// A Pulsar topic.
    Pulsar {
        /// The cluster's name.
        cluster_id: Arc<str>,
        /// The token put into the topic's properties when it was taken into use.
        incarnation: [u8; 32],
        /// The full name of the physical topic.
        topic: Arc<str>,
        /// When the broker made the topic, in milliseconds since the epoch as the broker states it.
        creation_time_ms: u64,
    },
    /// A topic of the embedded system.
    Embedded {
        /// The topic's id.
        topic: [u8; 16],
    },
}

impl Resource {
    /// Which adapter it belongs to.
    #[must_use]
    pub fn adapter(&self) -> AdapterKind {
        match self {
            Self::Kafka { .. } => AdapterKind::Kafka,
            Self::Pulsar { .. } => AdapterKind::Pulsar,
            Self::Embedded { .. } => AdapterKind::Embedded,
        }
    }

    /// The protobuf form.
    #[must_use]
    pub fn to_proto(&self) -> v1::BrokerResourceIdentity {
        use v1::broker_resource_identity::Resource as Branch;
        let copy = Bytes::copy_from_slice;
        let branch = match self {
            Self::Kafka { cluster_id, topic } => Branch::Kafka(v1::KafkaResourceIdentity {
                cluster_id: copy(cluster_id.as_bytes()),
                topic_uuid: copy(topic),
            }),
            Self::Pulsar { cluster_id, incarnation, topic, creation_time_ms } => {
                Branch::Pulsar(v1::PulsarResourceIdentity {
                    cluster_id: copy(cluster_id.as_bytes()),
                    resource_incarnation: copy(incarnation),
                    topic: copy(topic.as_bytes()),
                    creation_time_ms: *creation_time_ms,
                })
            }
            Self::Embedded { topic } => Branch::Embedded(v1::EmbeddedResourceIdentity { topic_uuid: copy(topic) }),
        };
        v1::BrokerResourceIdentity { resource: Some(branch) }
    }

    /// Takes the protobuf form.
    ///
    /// # Errors
    /// [`FieldError`] for a wrong length or a name that is not text.
    pub fn from_proto(proto: &v1::BrokerResourceIdentity) -> Result<Self, FieldError> {
        use v1::broker_resource_identity::Resource as Branch;
        match field::required("resource", proto.resource.as_ref())? {
            Branch::Kafka(proto) => kafka(proto).within("kafka"),
            Branch::Pulsar(proto) => pulsar(proto).within("pulsar"),
            Branch::Embedded(proto) => {
                field::array("topic_uuid", &proto.topic_uuid).map(|topic| Self::Embedded { topic }).within("embedded")
            }
        }
    }

    /// The protobuf form of bodies and rows of version 2.
    #[must_use]
    pub fn to_v2(&self) -> v2::Resource {
        use v2::resource::Resource as Branch;
        let copy = Bytes::copy_from_slice;
        let branch = match self {
            Self::Kafka { cluster_id, topic } => {
                Branch::Kafka(v2::KafkaTopic { cluster_id: cluster_id.to_string(), topic_id: copy(topic) })
            }
            Self::Pulsar { cluster_id, incarnation, topic, creation_time_ms } => Branch::Pulsar(v2::PulsarTopic {
                cluster: cluster_id.to_string(),
                incarnation_token: copy(incarnation),
                topic: topic.to_string(),
                creation_ms: *creation_time_ms,
            }),
            Self::Embedded { topic } => Branch::Embedded(v2::EmbeddedTopic { topic_id: copy(topic) }),
        };
        v2::Resource { resource: Some(branch) }
    }

    /// Takes the protobuf form of bodies and rows of version 2.
    ///
    /// # Errors
    /// [`FieldError`] for a wrong length or a name that is not text.
    pub fn from_v2(proto: &v2::Resource) -> Result<Self, FieldError> {
        use v2::resource::Resource as Branch;
        Ok(match field::required("resource", proto.resource.as_ref())? {
            Branch::Kafka(topic) => Self::Kafka {
                cluster_id: text_field("cluster_id", topic.cluster_id.as_bytes()).within("kafka")?,
                topic: field::array("topic_id", &topic.topic_id).within("kafka")?,
            },
            Branch::Pulsar(topic) => Self::Pulsar {
                cluster_id: text_field("cluster", topic.cluster.as_bytes()).within("pulsar")?,
                incarnation: field::array("incarnation_token", &topic.incarnation_token).within("pulsar")?,
                topic: text_field("topic", topic.topic.as_bytes()).within("pulsar")?,
                creation_time_ms: topic.creation_ms,
            },
            Branch::Embedded(topic) => {
                Self::Embedded { topic: field::array("topic_id", &topic.topic_id).within("embedded")? }
            }
        })
    }
}

fn text_field(name: &'static str, bytes: &[u8]) -> Result<Arc<str>, FieldError> {
    text::check(bytes).map(Arc::from).map_err(|error| FieldError::new(name, error))
}

fn kafka(proto: &v1::KafkaResourceIdentity) -> Result<Resource, FieldError> {
    Ok(Resource::Kafka {
        cluster_id: text_field("cluster_id", &proto.cluster_id)?,
        topic: field::array("topic_uuid", &proto.topic_uuid)?,
    })
}

fn pulsar(proto: &v1::PulsarResourceIdentity) -> Result<Resource, FieldError> {
    Ok(Resource::Pulsar {
        cluster_id: text_field("cluster_id", &proto.cluster_id)?,
        incarnation: field::array("resource_incarnation", &proto.resource_incarnation)?,
        topic: text_field("topic", &proto.topic)?,
        creation_time_ms: proto.creation_time_ms,
    })
}
