//! What arrives is what was scheduled, byte for byte: key, value and the caller's headers in front of ours, null and empty kept apart.

use std::collections::BTreeMap;

use crate::story::Story;
use crate::work::{OperationId, content};

pub(super) fn check(story: &Story<'_>) -> Result<(), String> {
    let of_message: BTreeMap<_, OperationId> =
        story.asked.iter().rev().map(|asked| (asked.operation.command.message_id.uuid, asked.operation.id)).collect();
    for one in &story.delivered {
        // A cell's own tests schedule without clients.
        let Some(id) = of_message.get(&one.attempt.message) else { continue };
        let expected = content(story.cell.seed, *id);
        let (record, headers) = (&one.record, &expected.headers);
        let headers_agree =
            record.headers.len() >= headers.len()
                && record.headers.iter().zip(headers).all(|(found, expected)| {
                    found.name[..] == *expected.name.as_bytes() && found.value == expected.value
                });
        if record.key != expected.key || record.value != expected.value || !headers_agree {
            return Err(format!("{id:?} asked for {expected:?}, and {record:?} was delivered"));
        }
    }
    Ok(())
}
