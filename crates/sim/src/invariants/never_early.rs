//! > Uncertain time delays, never advances. Due needs the earliest end of the interval, admission the latest end before expiry.
//! > (invariant 7)
//!
//! By true time, which no worker knows: nothing is delivered before its time, and no deadline is closed before it has passed.

use crate::story::Story;

pub(super) fn check(story: &Story<'_>) -> Result<(), String> {
    for one in &story.delivered {
        let Some(told) = &story.told[one.shard.partition as usize] else { continue };
        let deliver_at_ms = told.deliver_at_ms.get(&(one.attempt.message, one.attempt.generation));
        if deliver_at_ms != Some(&one.deliver_at_ms) {
            return Err(format!("{one:?} was sent for another time than {deliver_at_ms:?}"));
        }
        let early_us = one.deliver_at_ms * 1_000 - one.at_us;
        if early_us > 0 {
            return Err(format!("{one:?} was delivered {early_us} us early"));
        }
    }
    for (shard, told) in story.told() {
        if let Some(fence) = told.fences.iter().find(|fence| fence.close_through_ms > fence.at_ms) {
            return Err(format!("{fence:?} of shard {shard} closed deadlines that had not passed"));
        }
    }
    Ok(())
}
