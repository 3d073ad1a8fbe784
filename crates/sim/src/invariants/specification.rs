//! Every record comes to what the protocol registry says it comes to.
//!
//! > The core is a function of the log.
//!
//! The shard's word is held against a model that was written from the registry and shares no code with it.

use crate::story::Story;

pub(super) fn check(story: &Story<'_>) -> Result<(), String> {
    let disagreement = |(shard, told): (usize, &crate::told::Told)| {
        told.disagreement.as_ref().map(|disagreement| format!("shard {shard}, {disagreement}"))
    };
    story.told().find_map(disagreement).map_or(Ok(()), Err)
}
