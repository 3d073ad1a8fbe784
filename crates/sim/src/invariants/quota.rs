//! Quotas are conserved: what live messages are charged is what the shard counts, and when none is live nothing is charged.
//!
//! The model and the tables are compared wherever a log is told; here is the end, in which every message has ended.

use crate::story::Story;

pub(super) fn check(story: &Story<'_>) -> Result<(), String> {
    for (shard, told) in story.told() {
        let live = told.messages().into_iter().filter(|message| told.message(*message).row.is_live()).count() as u64;
        let (messages, bytes) = told.active();
        if messages != live || (live == 0 && bytes != 0) {
            return Err(format!("shard {shard} counts {messages} live messages of {bytes} bytes, and has {live}"));
        }
    }
    Ok(())
}
