//! What a store may hold: values in their envelope, rows, keys, and a whole store with one foreign row in it.

use std::sync::LazyLock;

use bytes::Bytes;
use prost::Message;
use shard::commit::{Shard, ShardIdentity};
use shard::memory::{MemoryDisk, MemoryStore};
use shard::query;
use shard::state::digest::state_digest;
use shard::state::keys::timeline::{self, DueKey};
use shard::state::keys::{dedupe, meta};
use shard::state::{envelope, row};
use shard::store::{Batch, Family, Store};
use testkit::log::{LogWriter, default_limits};

use crate::check_error;
use crate::input::Input;

/// A row: one byte says whether the rest is a value of one of the tables, a key, or a key and a value in a store.
pub fn row(input: &[u8]) {
    let mut input = Input::new(input);
    match input.below(ROWS.len() + 2) {
        0 => key(&input.rest_bytes()),
        1 => foreign_row(input),
        table => {
            let value = input.rest_bytes();
            check_envelope(&value);
            ROWS[table - 2](&value);
        }
    }
}

/// One decoder for each message that is stored as a row.
const ROWS: [fn(&Bytes); 18] = [
    table::<row::Format>,
    table::<row::LowWater>,
    table::<row::Progress>,
    table::<row::Constitution>,
    table::<row::Lane>,
    table::<row::LaneLookup>,
    table::<row::Profile>,
    table::<row::ProfileGate>,
    table::<row::Policy>,
    table::<row::TerminalCount>,
    table::<row::Message>,
    table::<row::TimelineEntry>,
    table::<row::Admitted>,
    table::<row::Remaining>,
    table::<row::CommandResult>,
    table::<row::BusinessKey>,
    table::<row::ControlResult>,
    table::<row::PositionException>,
];

/// What is read from a value is written and read again as the same.
fn table<Row: Message + Default + PartialEq>(value: &Bytes) {
    match envelope::decode::<Row>(value) {
        Ok(row) => {
            let end_ms = envelope::logical_end(value);
            let written = envelope::encode(&row, end_ms);
            assert_eq!(envelope::logical_end(&written), end_ms);
            assert!(envelope::decode::<Row>(&written).is_ok_and(|again| again == row), "another row than was written");
        }
        Err(error) => check_error(&error),
    }
}

fn check_envelope(value: &Bytes) {
    let end_ms = envelope::logical_end(value);
    assert_eq!(envelope::has_ended(value, i64::MAX), end_ms.is_some());
    match envelope::body(value) {
        Ok(body) => assert_eq!(envelope::encode_bytes(&body, end_ms), value, "another value than was read"),
        Err(error) => check_error(&error),
    }
}

/// A key of any table: what a decoder takes apart is what the encoder puts together, but for the tag, which a scan fixes, and for
/// times before the epoch, which no record has.
fn key(key: &Bytes) {
    let Some((_, behind_tag)) = key.split_first() else { return };
    let same = |written: &Bytes| assert_eq!(&written[1..], behind_tag, "another key than was read");
    if let Ok((lane_no, due)) = DueKey::decode(key)
        && due.eligible_at_ms >= 0
    {
        same(&due.encode(lane_no));
        assert!(due.successor() > due || due.eligible_at_ms == i64::MAX);
        let (from, until) = timeline::due_from(lane_no, due);
        assert!(from < until);
    }
    if let Ok((expire_at_ms, seq)) = timeline::decode_expiry(key)
        && expire_at_ms >= 0
    {
        same(&timeline::expiry(expire_at_ms, seq));
    }
    if let Ok((lane_no, dead_at_ms, seq)) = timeline::decode_dead_letter(key)
        && dead_at_ms >= 0
    {
        same(&timeline::dead_letter(lane_no, dead_at_ms, seq));
    }
    if let Ok((lane_no, message)) = timeline::decode_uncertain(key) {
        same(&timeline::uncertain(lane_no, message));
    }
    if let Ok((profile_id, version)) = meta::decode_profile(key) {
        same(&meta::profile(&profile_id, version));
    }
    same(&meta::profile_gate(&meta::decode_profile_gate(key)));
    same(&dedupe::business_key(&dedupe::decode_business_key(key)));
    if let Ok(policy_no) = meta::decode_policy(key) {
        same(&meta::policy(policy_no));
    }
    if let Ok(lane_no) = meta::decode_lane(key) {
        same(&meta::lane(lane_no));
    }
    if let Ok(lane_no) = meta::decode_low_water(key) {
        same(&meta::low_water(lane_no));
    }
    let (from, until) = dedupe::business_keys(behind_tag, None);
    assert!(from < until, "an empty range of keys with a prefix");
}

/// A store behind its genesis.
static FOUNDED: LazyLock<(MemoryDisk, ShardIdentity)> = LazyLock::new(|| {
    let mut log = LogWriter::default();
    let genesis_hash = log.genesis_mutation(default_limits()).hash;
    let identity = ShardIdentity { shard: log.shard(), genesis_hash };
    let disk = MemoryDisk::new();
    let mut shard = Shard::open(disk.open(), identity).expect("an empty store opens");
    shard.commit(&[log.genesis(default_limits())]).expect("a store in memory answers");
    (disk, identity)
});

/// A founded store with a row that nobody of ours wrote: it opens or says why not.
fn foreign_row(mut input: Input<'_>) {
    let (disk, identity) = &*FOUNDED;
    let family = Family::ALL[input.below(Family::ALL.len())];
    let key = Bytes::copy_from_slice(input.part());
    let mut store: MemoryStore = disk.fork().open();
    let mut batch = Batch::default();
    batch.put(family, key, input.rest_bytes());
    store.commit(batch).expect("a store in memory answers");
    match Shard::open(store, *identity) {
        Ok(shard) => {
            for error in [query::lanes(shard.store()).err(), state_digest(shard.store()).err()].into_iter().flatten() {
                check_error(&error);
            }
        }
        Err(error) => check_error(&error),
    }
}
