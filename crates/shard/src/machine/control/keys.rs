//! KEY_ADD and KEY_RETIRE: which keys may sign from here on (v2 §7).

use protocol::code::StableCode;
use protocol::mutation_v2::SigningKeyEntry;

use super::Done;
use crate::machine::verdict::Rule;
use crate::state::constitution::SigningKey;
use crate::state::transaction::Transaction;

/// Adds a key. The same key again is no change; another key under a used version is refused.
pub(crate) fn add(transaction: &mut Transaction<'_>, entry: SigningKeyEntry) -> Done {
    if let Some(existing) = transaction.constitution.keys().get(&entry.version) {
        return if existing.entry == entry {
            Done::ok()
        } else {
            Done::refused(StableCode::VersionConflict, Rule::None)
        };
    }
    let Some(key) = SigningKey::new(entry) else {
        return Done::refused(StableCode::ServerInvalidCommand, Rule::InvalidBody);
    };
    let mut constitution = (*transaction.constitution).clone();
    constitution.insert_key(key);
    transaction.set_constitution(constitution);
    Done::ok()
}

/// Marks a key for retirement. It still verifies until another key signs an OWNER_EPOCH, so no record in flight is refused;
/// the last key of a role stays.
pub(crate) fn retire(transaction: &mut Transaction<'_>, version: u32) -> Done {
    let mut constitution = (*transaction.constitution).clone();
    if !constitution.keys().contains_key(&version) {
        return Done::refused(StableCode::NotFound, Rule::None);
    }
    if !constitution.retire_key(version) {
        return Done::refused(StableCode::ServerInvalidCommand, Rule::LastKey);
    }
    transaction.set_constitution(constitution);
    Done::ok()
}
