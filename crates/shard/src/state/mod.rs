//! What a shard stores: keys, rows, and the working copy a run of records is decided on.

pub mod constitution;
pub mod digest;
pub mod envelope;
pub mod generation;
pub mod keys;
pub(crate) mod low_water;
pub(crate) mod replace;
pub(crate) mod transaction;

/// Rows as stored, generated from `proto/v2/row.proto`.
#[allow(missing_docs, unreachable_pub, clippy::all, clippy::pedantic)]
pub mod row {
    include!(concat!(env!("OUT_DIR"), "/nereus.delay.row.rs"));
}

/// A lane's number in its shard, given at the lane's first Schedule and never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LaneNo(pub u32);

/// A retry policy version's number in its shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PolicyNo(pub u32);

/// Taken from a shard counter once a generation, and part of every key of that generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Seq(pub u64);

/// The logical UUID of a message: its message id without route and partition, which are the store's own.
pub use protocol::id::Uuid7 as MessageUuid;

/// A message uuid from a row's field; `None` for bytes that are none.
pub(crate) fn message_uuid(bytes: &[u8]) -> Option<MessageUuid> {
    MessageUuid::from_bytes(bytes.try_into().ok()?).ok()
}

/// A message uuid as a key or as a row's field.
pub(crate) fn uuid_bytes(message: MessageUuid) -> bytes::Bytes {
    bytes::Bytes::copy_from_slice(message.as_bytes())
}
