//! Idempotency-Key: the same request again gets the first answer, also across a crash.
//!
//! The exact command is durable under the key before it is appended. A repetition without an answer appends the same bytes
//! again, and apply's dedupe gives both the first verdict; a delay was turned into a time when the command was prepared, so it
//! does not move.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use client::api::problem::{Problem, SurfaceCode};
use control::cas::{Change, RecordError};
use control::idempotency::{self, Answer, IdempotencyRecord, PreparedCommand};
use data_encoding::HEXLOWER;
use protocol::command::ClientCommand;
use protocol::hash::{Hash, sha256};
use protocol::record::{self, LogRecord};

use crate::problem::record_problem;
use crate::state::Gateway;

/// The longest key.
const KEY_BYTES_MAX: usize = 255;

/// Keys whose first request is being answered by this process.
#[derive(Default)]
pub(crate) struct KeysInUse {
    hashes: Mutex<BTreeSet<Hash>>,
}

/// A key that this request holds until it is answered.
pub(crate) struct HeldKey<'a> {
    keys: &'a KeysInUse,
    hash: Hash,
    metadata_key: String,
}

impl Drop for HeldKey<'_> {
    fn drop(&mut self) {
        self.keys.hashes.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.hash);
    }
}

impl KeysInUse {
    fn hold(&self, hash: Hash, metadata_key: String) -> Option<HeldKey<'_>> {
        let inserted = self.hashes.lock().unwrap_or_else(PoisonError::into_inner).insert(hash);
        inserted.then_some(HeldKey { keys: self, hash, metadata_key })
    }
}

/// What a key leads to.
pub(crate) enum Bound<'a> {
    /// The first answer, again.
    Replay(Answer),
    /// Carry this command out: prepared now, or by an earlier request that was not answered.
    Run(Box<ClientCommand>, HeldKey<'a>),
}

/// Binds a key to a request. `prepare` makes the command if the key is new.
///
/// # Errors
/// IDEMPOTENCY_KEY_REUSED for another request, IDEMPOTENCY_KEY_IN_USE while the first is being answered, or what `prepare`
/// refuses; a refusal binds nothing.
pub(crate) async fn bind<'a>(
    gateway: &'a Gateway,
    key: &str,
    request: &[&[u8]],
    prepare: impl FnOnce() -> Result<ClientCommand, Problem>,
) -> Result<Bound<'a>, Problem> {
    let key_hash = hash_of_key(key)?;
    let request_sha256 = HEXLOWER.encode(&sha256(&request.join(&b'\n')));
    let metadata_key = idempotency::key(&gateway.config.tenant, &HEXLOWER.encode(&key_hash));
    let Some(held) = gateway.keys_in_use.hold(key_hash, metadata_key.clone()) else {
        let detail = format!("the first request with Idempotency-Key {key:?} is not answered yet");
        return Err(Problem::new(SurfaceCode::IdempotencyKeyInUse, detail).field("Idempotency-Key"));
    };
    let stored = gateway.records.get::<IdempotencyRecord>(&metadata_key).await.map_err(record_problem)?;
    if let Some(stored) = stored {
        return resume(key, &request_sha256, stored.record, held);
    }
    let command = prepare()?;
    let prepared = PreparedCommand::new(command.shard().partition, &command.encode_frame());
    let record = IdempotencyRecord {
        request_sha256: request_sha256.clone(),
        created_at_ms: gateway.now_ms(),
        prepared: Some(prepared),
        answer: None,
    };
    let raced: Result<Option<IdempotencyRecord>, RecordError> = gateway
        .records
        .change(&metadata_key, |current: Option<&IdempotencyRecord>| {
            Ok(match current {
                None => Change::Write(record.clone(), None),
                Some(current) => Change::Keep(Some(current.clone())),
            })
        })
        .await;
    match raced.map_err(record_problem)? {
        None => Ok(Bound::Run(Box::new(command), held)),
        Some(current) => resume(key, &request_sha256, current, held),
    }
}

fn resume<'a>(
    key: &str,
    request_sha256: &str,
    record: IdempotencyRecord,
    held: HeldKey<'a>,
) -> Result<Bound<'a>, Problem> {
    if record.request_sha256 != request_sha256 {
        let detail = format!("Idempotency-Key {key:?} was used for another request; take a new one for a new request");
        return Err(Problem::new(SurfaceCode::IdempotencyKeyReused, detail).field("Idempotency-Key"));
    }
    if let Some(answer) = record.answer {
        return Ok(Bound::Replay(answer));
    }
    let frame = record.prepared.as_ref().and_then(PreparedCommand::frame);
    match frame.map(|frame| record::decode(&frame)) {
        Some(Ok(LogRecord::Command(command))) => Ok(Bound::Run(Box::new(command), held)),
        _ => Err(Problem::new(SurfaceCode::Internal, "the record of this Idempotency-Key is damaged")),
    }
}

/// Keeps the answer. If that fails the request is still answered: a repetition finds the verdict in the log.
pub(crate) async fn answered(gateway: &Gateway, held: HeldKey<'_>, answer: Answer) {
    let kept: Result<(), RecordError> = gateway
        .records
        .change(&held.metadata_key, |current: Option<&IdempotencyRecord>| {
            Ok(match current {
                Some(current) if current.answer.is_none() => {
                    let next = IdempotencyRecord { prepared: None, answer: Some(answer.clone()), ..current.clone() };
                    Change::Write(next, ())
                }
                _ => Change::Keep(()),
            })
        })
        .await;
    if let Err(error) = kept {
        tracing::warn!(%error, "an idempotent answer was not kept");
    }
}

/// Drops records whose time is over. Returns how many.
pub(crate) async fn sweep(gateway: &Gateway) -> Result<usize, RecordError> {
    let retention_ms = i64::try_from(gateway.config.idempotency_retention.as_millis()).unwrap_or(i64::MAX);
    let horizon_ms = gateway.now_ms().saturating_sub(retention_ms);
    let mut dropped = 0;
    for (key, stored) in gateway.records.list::<IdempotencyRecord>(idempotency::PREFIX).await? {
        if stored.record.created_at_ms < horizon_ms {
            // A record that changed meanwhile stays until the next sweep.
            dropped += usize::from(gateway.records.metadata().delete(&key, stored.version).await.is_ok());
        }
    }
    Ok(dropped)
}

fn hash_of_key(key: &str) -> Result<Hash, Problem> {
    if key.is_empty() || key.len() > KEY_BYTES_MAX {
        let detail = format!("an Idempotency-Key has 1 to {KEY_BYTES_MAX} bytes; this one has {}", key.len());
        return Err(Problem::new(SurfaceCode::InvalidHeader, detail).field("Idempotency-Key"));
    }
    Ok(sha256(key.as_bytes()))
}
