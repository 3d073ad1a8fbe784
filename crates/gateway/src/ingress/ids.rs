//! The ids of what a source record comes to: functions of the record's place and of its run's time, so that whoever finds the
//! run again finds the same ids.

use protocol::hash::sha256;
use protocol::id::Uuid7;

/// What is hashed begins with this.
const DOMAIN: &[u8] = b"nereus-ingress-id-v1\0";
const MESSAGE: u8 = 1;
const COMMAND: u8 = 2;

/// A source record's place, in the words of the ingress that reads it. Two ingresses of one topic derive different ids.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place<'a> {
    pub(super) ingress: &'a str,
    pub(super) topic: [u8; 16],
    pub(super) partition: u32,
    pub(super) offset: u64,
}

impl Place<'_> {
    /// The UUID of the message that the record schedules.
    pub(super) fn message(&self, uuid_ms: i64) -> Uuid7 {
        self.derive(uuid_ms, MESSAGE, 0)
    }

    /// The UUID of the command that carries the record out. A command that was refused for the shard's state and not for the
    /// record's fault is followed by one of the next number, as often as need be.
    pub(super) fn command(&self, uuid_ms: i64, number: u32) -> Uuid7 {
        self.derive(uuid_ms, COMMAND, number)
    }

    fn derive(&self, uuid_ms: i64, kind: u8, number: u32) -> Uuid7 {
        let mut input = Vec::with_capacity(DOMAIN.len() + self.ingress.len() + 41);
        input.extend_from_slice(DOMAIN);
        input.extend_from_slice(&(self.ingress.len() as u64).to_be_bytes());
        input.extend_from_slice(self.ingress.as_bytes());
        input.extend_from_slice(&self.topic);
        input.extend_from_slice(&self.partition.to_be_bytes());
        input.extend_from_slice(&self.offset.to_be_bytes());
        input.push(kind);
        input.extend_from_slice(&number.to_be_bytes());
        let hash = sha256(&input);
        let mut random = [0; 10];
        random.copy_from_slice(&hash[..10]);
        let unix_ms = uuid_ms.max(0).unsigned_abs().min(Uuid7::UNIX_MS_MAX);
        Uuid7::from_parts(unix_ms, random).expect("the time was cut to what a uuid holds")
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const PLACE: Place<'static> =
        Place { ingress: "orders", topic: *b"0123456789abcdef", partition: 3, offset: 1 << 40 };

    /// Ids of runs under way are derived again by later versions: this may never change.
    #[test]
    fn ids_are_for_ever() {
        let text = |uuid: Uuid7| data_encoding::HEXLOWER.encode(uuid.as_bytes());
        assert_eq!(text(PLACE.message(1_800_000_000_000)), "01a3185c50007fcc8c8a2c113b20da82");
        assert_eq!(text(PLACE.command(1_800_000_000_000, 0)), "01a3185c50007ebe8f04a3b5da2f0844");
        assert_eq!(text(PLACE.command(1_800_000_000_000, 1)), "01a3185c50007edc824a69f5a0fd8754");
    }

    #[test]
    fn every_part_of_a_place_makes_another_id() {
        let others = [
            Place { ingress: "order", ..PLACE },
            Place { topic: [0; 16], ..PLACE },
            Place { partition: 4, ..PLACE },
            Place { offset: 0, ..PLACE },
        ];
        let mut ids: BTreeSet<Uuid7> = others.iter().map(|place| place.message(7)).collect();
        ids.extend([PLACE.message(7), PLACE.message(8), PLACE.command(7, 0), PLACE.command(7, 1)]);
        assert_eq!(ids.len(), 8);
        assert_eq!(PLACE.message(7).unix_ms(), 7);
    }
}
