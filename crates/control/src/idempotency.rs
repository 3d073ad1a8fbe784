//! What an `Idempotency-Key` bound: the request, the exact frames prepared for it, and the answer once there is one.
//!
//! The record is durable before the first append, so a crash in between neither loses nor doubles: a retry without an answer
//! appends the same frames again, and apply's dedupe answers both.

use data_encoding::BASE64;
use serde::{Deserialize, Serialize};

use crate::cas::Record;

/// One key's record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IdempotencyRecord {
    /// SHA-256 of the request as sent, hex.
    pub request_sha256: String,
    /// When the key was first used, epoch milliseconds.
    pub created_at_ms: i64,
    /// The prepared command, until it is answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prepared: Option<PreparedCommand>,
    /// The answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<Answer>,
}

/// A command that is or will be in a shard's log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PreparedCommand {
    /// The partition of the route's log.
    pub partition: u32,
    /// The exact frame, base64.
    pub frame: String,
}

impl PreparedCommand {
    /// Keeps a frame.
    pub fn new(partition: u32, frame: &[u8]) -> PreparedCommand {
        PreparedCommand { partition, frame: BASE64.encode(frame) }
    }

    /// The frame, `None` when the record was damaged.
    pub fn frame(&self) -> Option<bytes::Bytes> {
        BASE64.decode(self.frame.as_bytes()).ok().map(Into::into)
    }
}

/// An HTTP answer as it was first given. Its headers follow from its body.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Answer {
    /// Status code.
    pub status: u16,
    /// The JSON body.
    pub body: serde_json::Value,
}

impl Record for IdempotencyRecord {
    const NAME: &'static str = "idempotency record";

    fn check_successor(&self, next: &IdempotencyRecord) -> Result<(), String> {
        if next.request_sha256 != self.request_sha256 {
            return Err("the key is bound to another request".to_owned());
        }
        if self.answer.is_some() && next.answer != self.answer {
            return Err("the key has its answer already".to_owned());
        }
        Ok(())
    }
}

/// Key of a record: the caller's key is hashed, so that any bytes will do.
pub fn key(tenant: &str, key_sha256_hex: &str) -> String {
    format!("/nereus/idempotency/{tenant}/{key_sha256_hex}")
}

/// Prefix of all records, for their clean-up.
pub const PREFIX: &str = "/nereus/idempotency/";
