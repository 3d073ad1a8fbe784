//! Keys of [`Family::Timeline`](crate::store::Family::Timeline): what happens when.
//!
//! ```text
//! 01 | lane_no u32 | eligible_at u64 | seq u64      DUE           work waiting for its time, while the message is live
//! 02 | expire_at u64 | seq u64                      EXPIRY        every live generation until its fence or its end
//! 04 | lane_no u32 | dead_at u64 | seq u64          DEAD_LETTER   until the row's logical end
//! 05 | lane_no u32 | message uuid 16                UNCERTAIN     while the row has an uncertain attempt
//! ```
//!
//! DUE, EXPIRY and DEAD_LETTER hold a [`row::TimelineEntry`](crate::state::row::TimelineEntry). `seq` is taken once a
//! generation, so two messages with one time never share a key. Tag 03 is kept for payload reservations.

use bytes::{BufMut, Bytes, BytesMut};

use crate::state::{LaneNo, MessageUuid, Seq};
use crate::store::StoreError;

const DUE: u8 = 0x01;
const EXPIRY: u8 = 0x02;
const DEAD_LETTER: u8 = 0x04;
const UNCERTAIN: u8 = 0x05;

/// When work may be admitted, within a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DueKey {
    /// Earliest admission.
    pub eligible_at_ms: i64,
    /// Tie break: the generation's own number.
    pub seq: Seq,
}

impl DueKey {
    /// The first key there can be.
    pub const MIN: DueKey = DueKey { eligible_at_ms: 0, seq: Seq(0) };

    /// The key's bytes in the timeline of a lane.
    pub fn encode(self, lane_no: LaneNo) -> Bytes {
        lane_time_seq(DUE, lane_no, self.eligible_at_ms, self.seq)
    }

    /// Splits a DUE key.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] for bytes that are no such key.
    pub fn decode(key: &[u8]) -> Result<(LaneNo, DueKey), StoreError> {
        let (lane_no, eligible_at_ms, seq) = decode_lane_time_seq(key, "due")?;
        Ok((lane_no, DueKey { eligible_at_ms, seq }))
    }

    /// The first key of the next millisecond.
    pub fn next_millisecond(self) -> DueKey {
        DueKey { eligible_at_ms: self.eligible_at_ms.saturating_add(1), seq: Seq(0) }
    }

    /// The key right behind this one.
    pub fn successor(self) -> DueKey {
        match self.seq.0.checked_add(1) {
            Some(seq) => DueKey { seq: Seq(seq), ..self },
            None => self.next_millisecond(),
        }
    }
}

/// The range of a lane's DUE keys at or behind `from`.
pub fn due_from(lane_no: LaneNo, from: DueKey) -> (Bytes, Bytes) {
    (from.encode(lane_no), lane_end(DUE, lane_no))
}

/// Key of a live generation's deadline.
pub fn expiry(expire_at_ms: i64, seq: Seq) -> Bytes {
    let mut key = BytesMut::with_capacity(17);
    key.put_u8(EXPIRY);
    key.put_slice(&super::time_bytes(expire_at_ms));
    key.put_u64(seq.0);
    key.freeze()
}

/// The range of deadlines from `from_ms` through `through_ms`.
pub fn expiries(from_ms: i64, through_ms: i64) -> (Bytes, Bytes) {
    let until = match through_ms.checked_add(1) {
        Some(until_ms) => expiry(until_ms, Seq(0)),
        None => Bytes::from_static(&[EXPIRY + 1]),
    };
    (expiry(from_ms, Seq(0)), until)
}

/// Splits an EXPIRY key into deadline and seq.
///
/// # Errors
/// [`StoreError::Corrupt`] for bytes that are no such key.
pub fn decode_expiry(mut key: &[u8]) -> Result<(i64, Seq), StoreError> {
    let [_tag] = super::take::<1>(&mut key, "expiry")?;
    let expire_at_ms = i64::from_be_bytes(super::take::<8>(&mut key, "expiry")?);
    let seq = Seq(u64::from_be_bytes(super::take::<8>(&mut key, "expiry")?));
    super::finish(key, "expiry")?;
    Ok((expire_at_ms, seq))
}

/// Key of a dead letter, in the order they died.
pub fn dead_letter(lane_no: LaneNo, dead_at_ms: i64, seq: Seq) -> Bytes {
    lane_time_seq(DEAD_LETTER, lane_no, dead_at_ms, seq)
}

/// The range of a lane's dead letters from this time and number on.
pub fn dead_letters(lane_no: LaneNo, from_ms: i64, from_seq: Seq) -> (Bytes, Bytes) {
    (dead_letter(lane_no, from_ms, from_seq), lane_end(DEAD_LETTER, lane_no))
}

/// Splits a DEAD_LETTER key into lane, time and seq.
///
/// # Errors
/// [`StoreError::Corrupt`] for bytes that are no such key.
pub fn decode_dead_letter(key: &[u8]) -> Result<(LaneNo, i64, Seq), StoreError> {
    decode_lane_time_seq(key, "dead letter")
}

/// Key of a message with an uncertain attempt.
pub fn uncertain(lane_no: LaneNo, message: MessageUuid) -> Bytes {
    let mut key = lane_prefix(UNCERTAIN, lane_no, 21);
    key.put_slice(message.as_bytes());
    key.freeze()
}

/// The range of a lane's messages with uncertain attempts.
pub fn uncertains(lane_no: LaneNo) -> (Bytes, Bytes) {
    (lane_prefix(UNCERTAIN, lane_no, 5).freeze(), lane_end(UNCERTAIN, lane_no))
}

/// The message an UNCERTAIN key is about.
///
/// # Errors
/// [`StoreError::Corrupt`] for bytes that are no such key.
pub fn decode_uncertain(mut key: &[u8]) -> Result<(LaneNo, MessageUuid), StoreError> {
    let [_tag] = super::take::<1>(&mut key, "uncertain")?;
    let lane_no = LaneNo(u32::from_be_bytes(super::take::<4>(&mut key, "uncertain")?));
    let uuid = super::take::<16>(&mut key, "uncertain")?;
    super::finish(key, "uncertain")?;
    let message = MessageUuid::from_bytes(uuid).map_err(|_| super::malformed("uncertain", &uuid))?;
    Ok((lane_no, message))
}

fn lane_prefix(tag: u8, lane_no: LaneNo, capacity: usize) -> BytesMut {
    let mut key = BytesMut::with_capacity(capacity);
    key.put_u8(tag);
    key.put_u32(lane_no.0);
    key
}

fn lane_end(tag: u8, lane_no: LaneNo) -> Bytes {
    match lane_no.0.checked_add(1) {
        Some(next) => lane_prefix(tag, LaneNo(next), 5).freeze(),
        None => Bytes::copy_from_slice(&[tag + 1]),
    }
}

fn lane_time_seq(tag: u8, lane_no: LaneNo, time_ms: i64, seq: Seq) -> Bytes {
    let mut key = lane_prefix(tag, lane_no, 21);
    key.put_slice(&super::time_bytes(time_ms));
    key.put_u64(seq.0);
    key.freeze()
}

fn decode_lane_time_seq(mut key: &[u8], table: &'static str) -> Result<(LaneNo, i64, Seq), StoreError> {
    let [_tag] = super::take::<1>(&mut key, table)?;
    let lane_no = LaneNo(u32::from_be_bytes(super::take::<4>(&mut key, table)?));
    let time_ms = i64::from_be_bytes(super::take::<8>(&mut key, table)?);
    let seq = Seq(u64::from_be_bytes(super::take::<8>(&mut key, table)?));
    super::finish(key, table)?;
    Ok((lane_no, time_ms, seq))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn due_key() -> impl Strategy<Value = (LaneNo, DueKey)> {
        (any::<u32>(), 0..=i64::MAX, any::<u64>())
            .prop_map(|(lane_no, eligible_at_ms, seq)| (LaneNo(lane_no), DueKey { eligible_at_ms, seq: Seq(seq) }))
    }

    proptest! {
        #[test]
        fn due_keys_round_trip((lane_no, key) in due_key()) {
            prop_assert_eq!(DueKey::decode(&key.encode(lane_no)).expect("own key"), (lane_no, key));
        }

        #[test]
        fn memory_order_is_byte_order(a in due_key(), b in due_key()) {
            prop_assert_eq!(a.cmp(&b), a.1.encode(a.0).cmp(&b.1.encode(b.0)));
        }

        #[test]
        fn a_successor_is_the_next_key((lane_no, key) in due_key(), other in due_key()) {
            prop_assume!(key.eligible_at_ms < i64::MAX);
            let other = other.1;
            prop_assert_eq!(other > key, other >= key.successor());
            let (from, until) = due_from(lane_no, key);
            prop_assert!(from <= key.encode(lane_no) && key.encode(lane_no) < until);
        }

        #[test]
        fn expiries_hold_their_bounds(from in 0..1_000_i64, length in 0..1_000_i64, at in 0..3_000_i64, seq: u64) {
            let (start, until) = expiries(from, from + length);
            let key = expiry(at, Seq(seq));
            prop_assert_eq!(start <= key && key < until, (from..=from + length).contains(&at));
            prop_assert_eq!(decode_expiry(&key).expect("own key"), (at, Seq(seq)));
        }
    }

    #[test]
    fn ranges_stop_at_the_next_lane() {
        let (from, until) = due_from(LaneNo(7), DueKey::MIN);
        let key = |lane_no| DueKey { eligible_at_ms: 5, seq: Seq(9) }.encode(LaneNo(lane_no));
        assert!(key(6) < from);
        assert!(from <= key(7) && key(7) < until);
        assert!(until <= key(8));
        assert!(due_from(LaneNo(u32::MAX), DueKey::MIN).1 > key(u32::MAX));
    }

    #[test]
    fn a_truncated_key_is_corrupt() {
        let message = MessageUuid::from_parts(5, [3; 10]).expect("fits");
        let key = uncertain(LaneNo(1), message);
        assert_eq!(decode_uncertain(&key).expect("own key"), (LaneNo(1), message));
        for length in 0..key.len() {
            assert!(matches!(decode_uncertain(&key[..length]), Err(StoreError::Corrupt { .. })));
        }
    }
}
