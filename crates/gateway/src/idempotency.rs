//! Idempotency-Key: the same request again gets the first answer, also across a crash.
//!
//! The exact command is durable under the key before it is appended. A repetition without an answer appends the same bytes
//! again, and apply's dedupe gives both the first verdict; a delay was turned into a time when the command was prepared, so it
//! does not move.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use client::api::message::MessageReceipt;
use client::api::problem::{Problem, SurfaceCode};
use control::cas::{RecordError, Stored};
use control::idempotency::{self, Answer, IdempotencyRecord, PreparedCommand};
use data_encoding::HEXLOWER;
use protocol::command::ClientCommand;
use protocol::hash::{Hash, sha256};
use protocol::record::{self, LogRecord};

use crate::problem::record_problem;
use crate::state::Gateway;

/// The longest key.
const KEY_BYTES_MAX: usize = 255;
/// What problems with a key name as their field.
const KEY_FIELD: &str = "Idempotency-Key";
/// Records read at once by the sweep.
const SWEEP_PAGE_LENGTH: usize = 256;

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
    Run(Box<ClientCommand>, BoundKey<'a>),
}

/// A key with the command that is durable under it.
pub(crate) struct BoundKey<'a> {
    held: HeldKey<'a>,
    stored: Stored<IdempotencyRecord>,
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
    prepare: impl Future<Output = Result<ClientCommand, Problem>>,
) -> Result<Bound<'a>, Problem> {
    let key_hash = hash_of_key(key)?;
    let request_sha256 = HEXLOWER.encode(&sha256(&request.join(&b'\n')));
    let metadata_key = idempotency::key(&gateway.config.tenant, &HEXLOWER.encode(&key_hash));
    let in_use = || {
        let detail = format!("the first request with Idempotency-Key {key:?} is not answered yet");
        Problem::new(SurfaceCode::IdempotencyKeyInUse, detail).field(KEY_FIELD)
    };
    let held = gateway.keys_in_use.hold(key_hash, metadata_key).ok_or_else(in_use)?;
    let stored = gateway.records.get::<IdempotencyRecord>(&held.metadata_key).await.map_err(record_problem)?;
    if let Some(stored) = stored {
        return resume(key, &request_sha256, stored, held);
    }
    let command = prepare.await?;
    let record = IdempotencyRecord {
        request_sha256,
        created_at_ms: gateway.now_ms(),
        prepared: Some(PreparedCommand::new(command.shard().partition, &command.encode_frame())),
        answer: None,
    };
    let swapped = gateway.records.swap(&held.metadata_key, None, record).await.map_err(record_problem)?;
    // Another server came first: it is answering the same key.
    let stored = swapped.ok_or_else(in_use)?;
    Ok(Bound::Run(Box::new(command), BoundKey { held, stored }))
}

fn resume<'a>(
    key: &str,
    request_sha256: &str,
    stored: Stored<IdempotencyRecord>,
    held: HeldKey<'a>,
) -> Result<Bound<'a>, Problem> {
    let record = &stored.record;
    if record.request_sha256 != request_sha256 {
        let detail = format!("Idempotency-Key {key:?} was used for another request; take a new one for a new request");
        return Err(Problem::new(SurfaceCode::IdempotencyKeyReused, detail).field(KEY_FIELD));
    }
    if let Some(answer) = &record.answer {
        return Ok(Bound::Replay(answer.clone()));
    }
    let frame = record.prepared.as_ref().and_then(PreparedCommand::frame);
    match frame.map(|frame| record::decode(&frame)) {
        Some(Ok(LogRecord::Command(command))) => Ok(Bound::Run(Box::new(command), BoundKey { held, stored })),
        _ => Err(Problem::new(SurfaceCode::Internal, "the record of this Idempotency-Key is damaged")),
    }
}

/// What becomes of a key once its request is answered.
pub(crate) enum Settlement {
    /// The answer is final: a repetition gets it again.
    Keep(Answer),
    /// Nothing was taken and later it may be: a repetition is a new request.
    Release,
    /// Not decided yet: a repetition sends the same command again.
    Open,
}

impl Settlement {
    /// Of an answer with a status below 400.
    pub(crate) fn of_receipt(status: u16, receipt: &MessageReceipt) -> Settlement {
        match status {
            202 => Settlement::Open,
            // A plain struct of strings and numbers serialises.
            status => Settlement::Keep(Answer { status, body: serde_json::to_value(receipt).unwrap_or_default() }),
        }
    }

    /// Of a refusal.
    pub(crate) fn of_problem(problem: &Problem) -> Settlement {
        match problem.status {
            429 => Settlement::Release,
            500.. => Settlement::Open,
            _ if problem.retryable => Settlement::Open,
            status => Settlement::Keep(Answer { status, body: serde_json::to_value(problem).unwrap_or_default() }),
        }
    }
}

/// Settles a key. If that fails the request is answered all the same: a repetition finds the verdict in the log.
pub(crate) async fn settle(gateway: &Gateway, key: BoundKey<'_>, settlement: Settlement) {
    let BoundKey { held, stored } = key;
    let settled = match settlement {
        Settlement::Open => return,
        Settlement::Release => gateway.records.delete(&held.metadata_key, &stored).await.map(drop),
        Settlement::Keep(answer) => {
            let next = IdempotencyRecord { prepared: None, answer: Some(answer), ..stored.record.clone() };
            gateway.records.swap(&held.metadata_key, Some(&stored), next).await.map(drop)
        }
    };
    if let Err(error) = settled {
        tracing::warn!(%error, "an idempotent answer was not kept");
    }
}

/// Drops records whose time is over, page by page. Returns how many.
///
/// # Errors
/// When the metadata store does not answer; what is left is for the next sweep.
pub(crate) async fn sweep(gateway: &Gateway) -> Result<usize, RecordError> {
    let retention_ms = i64::try_from(gateway.config.idempotency_retention.as_millis()).unwrap_or(i64::MAX);
    let horizon_ms = gateway.now_ms().saturating_sub(retention_ms);
    let (mut dropped, mut after) = (0, None::<String>);
    loop {
        let page =
            gateway.records.page::<IdempotencyRecord>(idempotency::PREFIX, after.as_deref(), SWEEP_PAGE_LENGTH).await?;
        let Some((last, _)) = page.last() else { return Ok(dropped) };
        after = Some(last.clone());
        for (key, stored) in page {
            if stored.record.created_at_ms < horizon_ms {
                // A record that changed meanwhile stays until the next sweep.
                dropped += usize::from(gateway.records.delete(&key, &stored).await?);
            }
        }
        // Requests go first.
        tokio::task::yield_now().await;
    }
}

fn hash_of_key(key: &str) -> Result<Hash, Problem> {
    if key.is_empty() || key.len() > KEY_BYTES_MAX {
        let detail = format!("an Idempotency-Key has 1 to {KEY_BYTES_MAX} bytes; this one has {}", key.len());
        return Err(Problem::new(SurfaceCode::InvalidHeader, detail).field(KEY_FIELD));
    }
    Ok(sha256(key.as_bytes()))
}
