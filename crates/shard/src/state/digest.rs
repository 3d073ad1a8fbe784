//! The logical state digest: one hash over everything the log decided.
//!
//! Two stores that applied the same log have the same digest, whatever the batching, restarts, owners and physical clean-up
//! between. Rows whose logical end is reached and rows that are local to one store (format, low-water marks) do not count.

use sha2::{Digest, Sha256};

use crate::state::constitution::successor;
use crate::state::keys::meta;
use crate::state::{envelope, row};
use crate::store::{Family, Read, StoreError};

const PAGE_LENGTH: usize = 1_000;

/// SHA-256 of the logical state. Reads the whole store.
///
/// # Errors
/// When the store does not answer or holds rows of another format.
pub fn state_digest(store: &dyn Read) -> Result<[u8; 32], StoreError> {
    let progress: row::Progress = match store.get(Family::Meta, meta::PROGRESS)? {
        Some(value) => envelope::decode(&value)?,
        None => row::Progress::default(),
    };
    let mut digest = Sha256::new();
    digest.update(b"nereus-delay-state-v2\0");
    for family in Family::ALL {
        let mut from = bytes::Bytes::new();
        loop {
            let page = store.scan(family, &from, &[0xff; 64], PAGE_LENGTH)?;
            for (key, value) in &page {
                let local = family == Family::Meta && meta::is_local(key);
                if !local && !envelope::has_ended(value, progress.closed_ms) {
                    update(&mut digest, family, key, value);
                }
            }
            match page.last() {
                Some((last, _)) if page.len() == PAGE_LENGTH => from = successor(last),
                _ => break,
            }
        }
    }
    Ok(digest.finalize().into())
}

fn update(digest: &mut Sha256, family: Family, key: &[u8], value: &[u8]) {
    digest.update([family as u8]);
    for part in [key, value] {
        digest.update((part.len() as u64).to_be_bytes());
        digest.update(part);
    }
}
