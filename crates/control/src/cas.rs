//! Typed records over the metadata port, changed by compare-and-set only.

use std::sync::Arc;

use bytes::Bytes;
use ports::metadata::{ChangeError, Expected, Metadata, MetadataUnavailable};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// How often a change is tried again after losing a race before the caller hears of it.
const ATTEMPTS_MAX: usize = 16;

/// A kind of record.
pub trait Record: Serialize + DeserializeOwned + Clone + PartialEq {
    /// What the record is called in errors.
    const NAME: &'static str;

    /// Checks that `next` may follow `self`. A refusal names the rule.
    fn check_successor(&self, next: &Self) -> Result<(), String>;
}

/// A change or read that did not come about.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The metadata store cannot be reached; nothing was changed.
    #[error(transparent)]
    Unavailable(#[from] MetadataUnavailable),
    /// The change may have happened and reading did not settle it.
    #[error("{name} {key}: outcome of the change is unknown: {reason}")]
    Unknown {
        /// Kind of record.
        name: &'static str,
        /// Its key.
        key: String,
        /// What was seen.
        reason: String,
    },
    /// Others changed the record every time.
    #[error("{name} {key}: changed by others {ATTEMPTS_MAX} times in a row")]
    Contended {
        /// Kind of record.
        name: &'static str,
        /// Its key.
        key: String,
    },
    /// The stored bytes are not such a record, or are of a newer version.
    #[error("{name} {key} is not readable: {reason}")]
    Unreadable {
        /// Kind of record.
        name: &'static str,
        /// Its key.
        key: String,
        /// Where and why.
        reason: String,
    },
    /// The change would break a rule of the record.
    #[error("{name} {key}: {rule}")]
    RuleBroken {
        /// Kind of record.
        name: &'static str,
        /// Its key.
        key: String,
        /// The rule.
        rule: String,
    },
    /// The session of an ephemeral record is over.
    #[error("{name} {key}: metadata session {session} is over")]
    SessionOver {
        /// Kind of record.
        name: &'static str,
        /// Its key.
        key: String,
        /// The session.
        session: u64,
    },
}

/// A record with the version to swap it by.
#[derive(Clone, Debug, PartialEq)]
pub struct Stored<R> {
    /// The record.
    pub record: R,
    /// Its version.
    pub version: u64,
}

/// What a change makes of a record.
pub enum Change<R, T> {
    /// Store this and return that.
    Write(R, T),
    /// Leave the record and return that.
    Keep(T),
}

/// Typed access to a metadata store.
#[derive(Clone)]
pub struct Records {
    metadata: Arc<dyn Metadata>,
}

impl Records {
    /// Over a metadata store.
    pub fn new(metadata: Arc<dyn Metadata>) -> Records {
        Records { metadata }
    }

    /// The store below.
    pub fn metadata(&self) -> &Arc<dyn Metadata> {
        &self.metadata
    }

    /// Reads a record.
    ///
    /// # Errors
    /// [`RecordError::Unavailable`] or [`RecordError::Unreadable`].
    pub async fn get<R: Record>(&self, key: &str) -> Result<Option<Stored<R>>, RecordError> {
        let Some(versioned) = self.metadata.get(key).await? else { return Ok(None) };
        let record = decode(key, &versioned.value)?;
        Ok(Some(Stored { record, version: versioned.version }))
    }

    /// Reads every record whose key starts with `prefix`, ascending by key.
    ///
    /// # Errors
    /// As for [`Records::get`].
    pub async fn list<R: Record>(&self, prefix: &str) -> Result<Vec<(String, Stored<R>)>, RecordError> {
        const PAGE_LENGTH: usize = 256;
        let mut records = Vec::new();
        let mut after: Option<String> = None;
        loop {
            let page = self.page(prefix, after.as_deref(), PAGE_LENGTH).await?;
            let is_last = page.len() < PAGE_LENGTH;
            after = page.last().map(|(key, _)| key.clone());
            records.extend(page);
            if is_last {
                return Ok(records);
            }
        }
    }

    /// Reads at most `limit` records whose key starts with `prefix` and is greater than `after`, ascending by key.
    ///
    /// # Errors
    /// As for [`Records::get`].
    pub async fn page<R: Record>(
        &self,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<(String, Stored<R>)>, RecordError> {
        let page = self.metadata.list(prefix, after, limit).await?;
        page.into_iter()
            .map(|(key, versioned)| {
                let record = decode(&key, &versioned.value)?;
                Ok((key, Stored { record, version: versioned.version }))
            })
            .collect()
    }

    /// Changes a record: `decide` gets what is stored and says what should be. It may be called several times.
    ///
    /// # Errors
    /// [`RecordError`]; the record is then as others left it, or the error says that this is unknown.
    pub async fn change<R: Record, T, E: From<RecordError>>(
        &self,
        key: &str,
        mut decide: impl FnMut(Option<&R>) -> Result<Change<R, T>, E>,
    ) -> Result<T, E> {
        for _ in 0..ATTEMPTS_MAX {
            let stored = self.get::<R>(key).await?;
            let (next, result) = match decide(stored.as_ref().map(|stored| &stored.record))? {
                Change::Keep(result) => return Ok(result),
                Change::Write(next, result) => (next, result),
            };
            if self.swap(key, stored.as_ref(), next).await?.is_some() {
                return Ok(result);
            }
        }
        Err(RecordError::Contended { name: R::NAME, key: key.to_owned() }.into())
    }

    /// Writes `next` if the record is still what it was. `None` when others came first.
    ///
    /// # Errors
    /// [`RecordError`] but not [`RecordError::Contended`].
    pub async fn swap<R: Record>(
        &self,
        key: &str,
        current: Option<&Stored<R>>,
        next: R,
    ) -> Result<Option<Stored<R>>, RecordError> {
        if let Some(current) = current {
            current.record.check_successor(&next).map_err(|rule| RecordError::RuleBroken {
                name: R::NAME,
                key: key.to_owned(),
                rule,
            })?;
        }
        let expected = current.map_or(Expected::Absent, |current| Expected::Version(current.version));
        match self.metadata.put(key, encode(&next), expected).await {
            Ok(version) => Ok(Some(Stored { record: next, version })),
            Err(ChangeError::Conflict { .. }) => Ok(None),
            // The response was lost: only what is stored can tell.
            Err(ChangeError::Unknown { reason }) => match self.get::<R>(key).await? {
                Some(found) if found.record == next => Ok(Some(found)),
                found if found.as_ref() == current => Ok(None),
                _ => Err(RecordError::Unknown { name: R::NAME, key: key.to_owned(), reason }),
            },
            Err(other) => Err(failed::<R>(key, other)),
        }
    }

    /// Deletes a record if it is still what it was, and says whether it was.
    ///
    /// # Errors
    /// [`RecordError`] but not [`RecordError::Contended`].
    pub async fn delete<R: Record>(&self, key: &str, current: &Stored<R>) -> Result<bool, RecordError> {
        match self.metadata.delete(key, current.version).await {
            Ok(()) => Ok(true),
            Err(ChangeError::Conflict { .. }) => Ok(false),
            Err(ChangeError::Unknown { reason }) => match self.get::<R>(key).await? {
                None => Ok(true),
                Some(_) => Err(RecordError::Unknown { name: R::NAME, key: key.to_owned(), reason }),
            },
            Err(other) => Err(failed::<R>(key, other)),
        }
    }
}

/// A change that certainly did not happen, other than by a conflict.
fn failed<R: Record>(key: &str, error: ChangeError) -> RecordError {
    match error {
        ChangeError::SessionOver { session } => {
            RecordError::SessionOver { name: R::NAME, key: key.to_owned(), session }
        }
        error => RecordError::Unavailable(MetadataUnavailable { reason: error.to_string() }),
    }
}

/// A record's stored bytes.
pub fn encode<R: Record>(record: &R) -> Bytes {
    // Records are plain structs of strings and numbers: serialising them cannot fail.
    serde_json::to_vec(record).expect("a record serialises").into()
}

/// Reads a record from its stored bytes.
///
/// # Errors
/// [`RecordError::Unreadable`].
pub fn decode<R: Record>(key: &str, value: &[u8]) -> Result<R, RecordError> {
    serde_json::from_slice(value).map_err(|error| RecordError::Unreadable {
        name: R::NAME,
        key: key.to_owned(),
        reason: error.to_string(),
    })
}
