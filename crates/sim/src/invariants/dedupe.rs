//! One command is one effect, however often its bytes come: a message is scheduled once, and one whose record says nothing of a
//! possible duplicate is delivered once a generation.

use std::collections::BTreeMap;

use crate::story::Story;

pub(super) fn check(story: &Story<'_>) -> Result<(), String> {
    let mut delivered: BTreeMap<_, usize> = BTreeMap::new();
    for one in &story.delivered {
        *delivered.entry((one.shard, one.attempt.message, one.attempt.generation)).or_default() += 1;
    }
    for ((shard, message, generation), count) in delivered {
        let Some(told) = &story.told[shard.partition as usize] else { continue };
        if count > 1 {
            let view = told.message(message);
            let is_past = view.row.generation != generation;
            if !is_past && !view.row.possible_duplicate && !view.row.has_uncertain_attempt() {
                return Err(format!(
                    "generation {generation} of {message} was delivered {count} times and says nothing"
                ));
            }
        }
    }
    // Every copy in the log is known to the ledger of verdicts, and there is one verdict for all of them.
    for (shard, told) in story.told() {
        if let Some((command, _)) = told.copies.iter().find(|(command, _)| !told.verdicts.contains_key(command)) {
            return Err(format!("command {command} of shard {shard} is in the log and came to nothing"));
        }
    }
    Ok(())
}
