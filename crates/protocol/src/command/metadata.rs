//! What a caller attaches to a message for its destination's adapter: key, headers, properties (protocol registry §2.9).

use bytes::Bytes;

use crate::field::{self, Fault, FieldError, Within};
use crate::resource::AdapterKind;
use crate::text::Text;
use crate::v1;
pub use crate::v1::PulsarKeyEncoding;

/// What names of ours begin with. The decoder refuses exactly this; preparation and apply refuse it in any case of letters,
/// see [`super::prepare`].
pub const RESERVED_NAME_PREFIX: &str = "nereus.delay.";

/// Metadata in the terms of one adapter. Embedded destinations take the Kafka form.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum AdapterMetadata {
    /// Key and headers.
    Kafka(KafkaMetadata),
    /// Keys and properties.
    Pulsar(PulsarMetadata),
}

/// Key and headers of a Kafka record.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct KafkaMetadata {
    /// The record's key; an empty key is one, `None` is null in Kafka.
    pub key: Option<Bytes>,
    /// In the caller's order, duplicates kept. For null values see [`crate::nulls`].
    pub headers: Vec<KafkaHeader>,
}

/// One header.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct KafkaHeader {
    /// Its name.
    pub name: Text,
    /// Its value.
    pub value: Bytes,
}

/// Keys and properties of a Pulsar message.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct PulsarMetadata {
    /// The partition key.
    pub partition_key: Option<PulsarKey>,
    /// The ordering key.
    pub ordering_key: Option<Bytes>,
    /// Strictly ascending by the bytes of the key.
    pub properties: Vec<PulsarProperty>,
}

/// A partition key and how a Pulsar client is to write it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PulsarKey {
    /// The key itself.
    pub bytes: Bytes,
    /// As text or as base64 of bytes.
    pub encoding: PulsarKeyEncoding,
}

/// One property.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PulsarProperty {
    /// Its key.
    pub key: Text,
    /// Its value.
    pub value: Text,
}

impl AdapterMetadata {
    /// The adapters this metadata can go to, by the kind that gives it its form.
    #[must_use]
    pub fn form(&self) -> AdapterKind {
        match self {
            Self::Kafka(_) => AdapterKind::Kafka,
            Self::Pulsar(_) => AdapterKind::Pulsar,
        }
    }

    /// Names that the caller chose: header names or property keys, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let (headers, properties): (&[KafkaHeader], &[PulsarProperty]) = match self {
            Self::Kafka(metadata) => (&metadata.headers, &[]),
            Self::Pulsar(metadata) => (&[], &metadata.properties),
        };
        headers.iter().map(|header| header.name.as_str()).chain(properties.iter().map(|property| property.key.as_str()))
    }

    pub(crate) fn check(&self) -> Result<(), FieldError> {
        if self.names().any(|name| name.starts_with(RESERVED_NAME_PREFIX)) {
            return Err(match self {
                Self::Kafka(_) => FieldError::new("name", Fault::ReservedName).within("headers").within("kafka"),
                Self::Pulsar(_) => FieldError::new("key", Fault::ReservedName).within("properties").within("pulsar"),
            });
        }
        match self {
            Self::Kafka(_) => Ok(()),
            Self::Pulsar(metadata) => {
                field::ascending("properties", &metadata.properties, |property| property.key.to_bytes())
                    .within("pulsar")
            }
        }
    }

    pub(crate) fn from_proto(proto: v1::AdapterMetadata) -> Result<Self, FieldError> {
        use v1::adapter_metadata::Metadata;
        let metadata = match field::required("metadata", proto.metadata)? {
            Metadata::Kafka(proto) => Self::Kafka(KafkaMetadata::from_proto(proto).within("kafka")?),
            Metadata::Pulsar(proto) => Self::Pulsar(PulsarMetadata::from_proto(proto).within("pulsar")?),
        };
        metadata.check()?;
        Ok(metadata)
    }

    /// The protobuf form.
    #[must_use]
    pub fn to_proto(&self) -> v1::AdapterMetadata {
        use v1::adapter_metadata::Metadata;
        let metadata = match self {
            Self::Kafka(metadata) => Metadata::Kafka(metadata.to_proto()),
            Self::Pulsar(metadata) => Metadata::Pulsar(metadata.to_proto()),
        };
        v1::AdapterMetadata { metadata: Some(metadata) }
    }
}

fn text(name: &'static str, bytes: Bytes) -> Result<Text, FieldError> {
    Text::new(bytes).map_err(|error| FieldError::new(name, error))
}

impl KafkaMetadata {
    fn from_proto(proto: v1::KafkaMetadata) -> Result<Self, FieldError> {
        let header = |proto: v1::KafkaHeader| Ok(KafkaHeader { name: text("name", proto.name)?, value: proto.value });
        let headers = proto.headers.into_iter().map(header).collect::<Result<_, _>>().within("headers")?;
        Ok(Self { key: proto.key, headers })
    }

    fn to_proto(&self) -> v1::KafkaMetadata {
        let header =
            |header: &KafkaHeader| v1::KafkaHeader { name: header.name.to_bytes(), value: header.value.clone() };
        v1::KafkaMetadata { key: self.key.clone(), headers: self.headers.iter().map(header).collect() }
    }
}

impl PulsarMetadata {
    fn from_proto(proto: v1::PulsarMetadata) -> Result<Self, FieldError> {
        let partition_key = match (proto.partition_key, proto.key_encoding) {
            (Some(bytes), Some(encoding)) => {
                Some(PulsarKey { bytes, encoding: field::known("key_encoding", encoding)? })
            }
            (None, None) => None,
            (Some(_), None) => return Err(FieldError::new("key_encoding", Fault::Missing)),
            (None, Some(_)) => return Err(FieldError::new("key_encoding", Fault::Conflict { with: "partition_key" })),
        };
        let property = |proto: v1::PulsarProperty| {
            Ok(PulsarProperty { key: text("key", proto.key)?, value: text("value", proto.value)? })
        };
        let properties = proto.properties.into_iter().map(property).collect::<Result<_, _>>().within("properties")?;
        Ok(Self { partition_key, ordering_key: proto.ordering_key, properties })
    }

    fn to_proto(&self) -> v1::PulsarMetadata {
        let property = |property: &PulsarProperty| v1::PulsarProperty {
            key: property.key.to_bytes(),
            value: property.value.to_bytes(),
        };
        v1::PulsarMetadata {
            partition_key: self.partition_key.as_ref().map(|key| key.bytes.clone()),
            key_encoding: self.partition_key.as_ref().map(|key| key.encoding.into()),
            ordering_key: self.ordering_key.clone(),
            properties: self.properties.iter().map(property).collect(),
        }
    }
}
