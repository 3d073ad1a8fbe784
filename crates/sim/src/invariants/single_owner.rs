//! > The OWNER_EPOCH record is the fence: whatever an older epoch appended behind it is stale, for every reader. (invariant 5)
//!
//! No record of an owner takes effect behind the OWNER_EPOCH of a newer one, and what is sent was admitted by the one who sends it.

use crate::story::Story;
use crate::told::Told;

pub(super) fn check(story: &Story<'_>) -> Result<(), String> {
    for (shard, told) in story.told() {
        check_records(told).map_err(|detail| format!("shard {shard}: {detail}"))?;
        for received in story.received.iter().filter(|received| received.shard.partition as usize == shard) {
            let Some(admission) = told.admissions.get(&received.attempt) else { continue };
            if admission.epoch != received.owner_epoch {
                return Err(format!("{received:?} was sent by another owner than the one of {admission:?}"));
            }
        }
    }
    Ok(())
}

fn check_records(told: &Told) -> Result<(), String> {
    let mut owner = (0, [0; 16]);
    for record in &told.owner_records {
        let author = (record.epoch, record.worker_run_id);
        match (record.is_owner_epoch, record.took_effect) {
            // A second copy says nothing new.
            (true, true) if author == owner => {}
            (true, true) if record.epoch <= owner.0 => {
                return Err(format!("{record:?} took over from epoch {}", owner.0));
            }
            (true, true) => owner = author,
            (false, true) if author != owner => return Err(format!("{record:?} took effect under epoch {}", owner.0)),
            _ => {}
        }
    }
    Ok(())
}
