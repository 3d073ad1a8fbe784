//! A sick lane never delays a healthy one: where all trouble is with other destinations, a healthy one's messages are there within a
//! second of their time, or of being scheduled where that is later.

use crate::story::Story;

/// Far above what a healthy lane takes here, far below what trouble with a destination lasts.
const LATE_MS_MAX: i64 = 1_000;

pub(super) fn check(story: &Story<'_>) -> Result<(), String> {
    let Some(healthy) = story.healthy else { return Ok(()) };
    let place = story.cell.place(healthy);
    for one in story.delivered.iter().filter(|one| one.place == place) {
        let Some(told) = &story.told[one.shard.partition as usize] else { continue };
        let admitted_at_ms = told.admissions.get(&one.attempt).map_or(0, |admission| admission.at_ms);
        let scheduled_at_ms = told.scheduled_at_ms(one.attempt.message, one.attempt.generation);
        let from_ms = one.deliver_at_ms.max(scheduled_at_ms);
        let late_ms = one.at_us / 1_000 - from_ms;
        if late_ms > LATE_MS_MAX {
            return Err(format!("{one:?} was {late_ms} ms late, admitted {} ms late", admitted_at_ms - from_ms));
        }
    }
    Ok(())
}
