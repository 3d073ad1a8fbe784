//! Keys of [`Family::Meta`](crate::store::Family::Meta).
//!
//! ```text
//! 00                                             format      (not in the digest)
//! 01                                             progress
//! 02                                             constitution
//! 03 | lane_no u32                               lane
//! 04 | profile id length u16 | profile id | version u64 | partition u32 | bucket u32    → lane_no u32
//! 05 | profile id length u16 | profile id | version u64                                 profile
//! 06 | profile id                                profile gate
//! 07 | policy_no u32                             policy
//! 08 | lane_no u32                               low-water mark of the due scan (not in the digest)
//! 09 | lane_no u32 | state u8 | end hour u32     terminal count
//! ```

use bytes::{BufMut, Bytes, BytesMut};

use crate::state::{LaneNo, PolicyNo};
use crate::store::StoreError;

/// Format version and identity of the store.
pub const FORMAT: &[u8] = &[0x00];
/// What every commit moves.
pub const PROGRESS: &[u8] = &[0x01];
/// What genesis fixed.
pub const CONSTITUTION: &[u8] = &[0x02];

/// The longest profile id that has a key: its length stands in two bytes.
pub const PROFILE_ID_BYTES_MAX: usize = u16::MAX as usize;

const LANE: u8 = 0x03;
const LANE_LOOKUP: u8 = 0x04;
const PROFILE: u8 = 0x05;
const PROFILE_GATE: u8 = 0x06;
const POLICY: u8 = 0x07;
const LOW_WATER: u8 = 0x08;
const TERMINAL_COUNT: u8 = 0x09;

/// Whether rows under this key are left out of the state digest, because they are not a function of the log.
pub fn is_local(key: &[u8]) -> bool {
    matches!(key.first(), Some(0x00 | &LOW_WATER))
}

/// The row of a lane.
pub fn lane(lane_no: LaneNo) -> Bytes {
    numbered(LANE, lane_no.0)
}

/// The range of all lane rows.
pub fn lanes() -> (Bytes, Bytes) {
    table(LANE)
}

/// Which lane serves a partition and bucket of a profile version.
pub fn lane_lookup(profile_id: &[u8], version: u64, partition: u32, bucket: u32) -> Bytes {
    let mut key = versioned(LANE_LOOKUP, profile_id, version);
    key.put_u32(partition);
    key.put_u32(bucket);
    key.freeze()
}

/// The row of a profile version.
pub fn profile(profile_id: &[u8], version: u64) -> Bytes {
    versioned(PROFILE, profile_id, version).freeze()
}

/// The range of all profile rows.
pub fn profiles() -> (Bytes, Bytes) {
    table(PROFILE)
}

/// Splits a profile key into id and version.
///
/// # Errors
/// [`StoreError::Corrupt`] for bytes that are no such key.
pub fn decode_profile(mut key: &[u8]) -> Result<(Bytes, u64), StoreError> {
    let [_tag] = super::take::<1>(&mut key, "profile")?;
    let id_length = usize::from(u16::from_be_bytes(super::take::<2>(&mut key, "profile")?));
    let Some((id, mut rest)) = key.split_at_checked(id_length) else {
        return Err(super::malformed("profile", key));
    };
    let version = u64::from_be_bytes(super::take::<8>(&mut rest, "profile")?);
    super::finish(rest, "profile")?;
    Ok((Bytes::copy_from_slice(id), version))
}

/// The gate of a profile, all versions.
pub fn profile_gate(profile_id: &[u8]) -> Bytes {
    let mut key = BytesMut::with_capacity(1 + profile_id.len());
    key.put_u8(PROFILE_GATE);
    key.put_slice(profile_id);
    key.freeze()
}

/// The profile id in a key of that table.
pub fn decode_profile_gate(key: &Bytes) -> Bytes {
    key.slice(1..)
}

/// The range of all profile gates.
pub fn profile_gates() -> (Bytes, Bytes) {
    table(PROFILE_GATE)
}

/// The row of a retry policy.
pub fn policy(policy_no: PolicyNo) -> Bytes {
    numbered(POLICY, policy_no.0)
}

/// The range of all policy rows.
pub fn policies() -> (Bytes, Bytes) {
    table(POLICY)
}

/// Splits a policy key.
///
/// # Errors
/// [`StoreError::Corrupt`] for bytes that are no such key.
pub fn decode_policy(mut key: &[u8]) -> Result<PolicyNo, StoreError> {
    let [_tag] = super::take::<1>(&mut key, "policy")?;
    let policy_no = u32::from_be_bytes(super::take::<4>(&mut key, "policy")?);
    super::finish(key, "policy")?;
    Ok(PolicyNo(policy_no))
}

/// Splits a lane key.
///
/// # Errors
/// [`StoreError::Corrupt`] for bytes that are no such key.
pub fn decode_lane(mut key: &[u8]) -> Result<LaneNo, StoreError> {
    let [_tag] = super::take::<1>(&mut key, "lane")?;
    let lane_no = u32::from_be_bytes(super::take::<4>(&mut key, "lane")?);
    super::finish(key, "lane")?;
    Ok(LaneNo(lane_no))
}

/// The low-water mark of a lane's due scan.
pub fn low_water(lane_no: LaneNo) -> Bytes {
    numbered(LOW_WATER, lane_no.0)
}

/// Splits a low-water key.
///
/// # Errors
/// [`StoreError::Corrupt`] for bytes that are no such key.
pub fn decode_low_water(mut key: &[u8]) -> Result<LaneNo, StoreError> {
    let [_tag] = super::take::<1>(&mut key, "low water")?;
    let lane_no = u32::from_be_bytes(super::take::<4>(&mut key, "low water")?);
    super::finish(key, "low water")?;
    Ok(LaneNo(lane_no))
}

/// The range of all low-water marks.
pub fn low_waters() -> (Bytes, Bytes) {
    table(LOW_WATER)
}

/// How many terminal rows of a lane and state end at an hour.
pub fn terminal_count(lane_no: LaneNo, state: u8, end_hour: u32) -> Bytes {
    let mut key = BytesMut::with_capacity(10);
    key.put_u8(TERMINAL_COUNT);
    key.put_u32(lane_no.0);
    key.put_u8(state);
    key.put_u32(end_hour);
    key.freeze()
}

/// The range of a lane's terminal counts of one state.
pub fn terminal_counts(lane_no: LaneNo, state: u8) -> (Bytes, Bytes) {
    (terminal_count(lane_no, state, 0), terminal_count(lane_no, state, u32::MAX))
}

fn table(tag: u8) -> (Bytes, Bytes) {
    (Bytes::copy_from_slice(&[tag]), Bytes::copy_from_slice(&[tag + 1]))
}

fn numbered(tag: u8, number: u32) -> Bytes {
    let mut key = BytesMut::with_capacity(5);
    key.put_u8(tag);
    key.put_u32(number);
    key.freeze()
}

fn versioned(tag: u8, id: &[u8], version: u64) -> BytesMut {
    let id_length = u16::try_from(id.len()).expect("no longer profile id is ever activated");
    let mut key = BytesMut::with_capacity(19 + id.len());
    key.put_u8(tag);
    key.put_u16(id_length);
    key.put_slice(id);
    key.put_u64(version);
    key
}
