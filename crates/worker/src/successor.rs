//! Whether records follow each other in their log without a gap (invariant 6), where positions can tell.

use ports::log::SourceRecord;
use protocol::position::SourcePosition;
use shard::planted::{self, Mistake};

/// The first place where something is missing between an applied position and these records, for people.
///
/// Offsets of the embedded log count every record. Kafka's and Pulsar's leave numbers out, so there only the log itself can
/// tell; that positions ascend is checked where they are applied.
pub(crate) fn gap(after: Option<&SourcePosition>, records: &[SourceRecord]) -> Option<String> {
    let positions = records.iter().map(|record| &record.position);
    let before = std::iter::once(after).chain(positions.clone().map(Some));
    before.zip(positions).find_map(|(before, position)| {
        let SourcePosition::Embedded(found) = position else { return None };
        let expected = match before {
            Some(SourcePosition::Embedded(before)) => before.offset.saturating_add(1),
            Some(_) => return None,
            None => 0,
        };
        (found.offset > expected && !planted::is(Mistake::PassOverGaps))
            .then(|| format!("expected the record at offset {expected}, got {position:?}"))
    })
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use protocol::id::RouteId;
    use protocol::position::EmbeddedPosition;

    use super::*;

    fn at(offset: u64) -> SourcePosition {
        let (route, log) = (RouteId([1; 16]), [2; 16]);
        SourcePosition::Embedded(EmbeddedPosition { route, log, partition: 0, offset, append_time_ms: 0 })
    }

    fn records(offsets: &[u64]) -> Vec<SourceRecord> {
        offsets.iter().map(|offset| SourceRecord { position: at(*offset), frame: Bytes::new() }).collect()
    }

    #[test]
    fn a_missing_record_is_found_at_the_start_in_front_and_between() {
        assert_eq!(gap(None, &records(&[0, 1, 2])), None);
        assert_eq!(gap(Some(&at(6)), &records(&[7, 8])), None);
        assert!(gap(None, &records(&[1])).is_some());
        assert!(gap(Some(&at(6)), &records(&[8])).is_some());
        assert!(gap(Some(&at(6)), &records(&[7, 9])).is_some());
    }
}
