//! > A run is durable before anything is said of it. The pump acknowledges and answers only positions that a commit returned.
//! > (invariant 1)

use protocol::position::SourcePosition;

use crate::story::Story;

pub(super) fn check(story: &Story<'_>) -> Result<(), String> {
    for asked in story.asked.iter().filter(|asked| story.told[asked.operation.shard()].is_some()) {
        if let Some((host, position)) = asked.answered_nothing.first() {
            let id = asked.operation.id;
            return Err(format!("host {host} called {id:?} applied at {position:?}, and knew nothing of it"));
        }
    }
    let all = story.asked.iter().flat_map(|asked| asked.answers.iter().map(move |answer| (asked, answer)));
    for (asked, answer) in all {
        let SourcePosition::Embedded(position) = &answer.position else { continue };
        let shard = asked.operation.shard();
        let mut disks = story.disks.iter().filter(|disk| disk.host == answer.host && disk.shard == shard);
        if !disks.any(|disk| disk.holds(position.offset, answer.at_us)) {
            return Err(format!(
                "{:?} was answered before it was on a disk of its host: {answer:?}",
                asked.operation.id
            ));
        }
    }
    Ok(())
}
