//! What every [`Store`] must do.
//!
//! [`run`] makes a new store for each check and panics, with the check's name in the backtrace, at the first promise of
//! `shard::store` that is not kept. Persistence, crashes and closing are not in it: they differ by implementation and are tested
//! where each is.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use shard::state::envelope;
use shard::store::{Batch, Change, Family, Read, Reader, Store};

/// Runs every check; `make` gives a new, empty store each time.
pub fn run<S: Store>(mut make: impl FnMut() -> S) {
    empty_store_has_nothing(&make());
    committed_rows_are_found(&mut make());
    families_do_not_mix(&mut make());
    later_changes_of_a_batch_win(&mut make());
    empty_batch_changes_nothing(&mut make());
    get_many_keeps_order_duplicates_and_gaps(&mut make());
    scans_are_ordered_and_bounded(&mut make());
    scans_of_empty_ranges_are_empty(&mut make());
    scans_step_over_deleted_rows(&mut make());
    every_byte_may_stand_in_a_key(&mut make());
    values_may_be_empty_and_large(&mut make());
    readers_see_returned_commits(&mut make());
    readers_see_whole_commits(&mut make());
    released_rows_may_go_and_others_stay(&mut make());
    released_rows_do_not_uncover_older_ones(&mut make());
    random_batches_match_a_map(&mut make());
}

fn commit<S: Store>(store: &mut S, change: impl FnOnce(&mut Batch)) {
    let mut batch = Batch::default();
    change(&mut batch);
    store.commit(batch).expect("commit");
}

fn put(batch: &mut Batch, family: Family, key: &[u8], value: &[u8]) {
    batch.put(family, Bytes::copy_from_slice(key), Bytes::copy_from_slice(value));
}

fn delete(batch: &mut Batch, family: Family, key: &[u8]) {
    batch.delete(family, Bytes::copy_from_slice(key));
}

fn get(store: &(impl Read + ?Sized), family: Family, key: &[u8]) -> Option<Bytes> {
    store.get(family, key).expect("get")
}

fn keys_of(store: &(impl Read + ?Sized), family: Family, from: &[u8], until: &[u8], limit: usize) -> Vec<Bytes> {
    store.scan(family, from, until, limit).expect("scan").into_iter().map(|(key, _)| key).collect()
}

fn empty_store_has_nothing(store: &impl Store) {
    for family in Family::ALL {
        assert_eq!(get(store, family, b"key"), None);
        assert_eq!(store.get_many(family, &[b"a", b"b"]).expect("get_many"), [None, None]);
        assert_eq!(store.scan(family, b"", b"\xff", 10).expect("scan"), []);
    }
}

fn committed_rows_are_found(store: &mut impl Store) {
    commit(store, |batch| put(batch, Family::Messages, b"key", b"one"));
    assert_eq!(get(store, Family::Messages, b"key").as_deref(), Some(&b"one"[..]));
    assert_eq!(get(store, Family::Messages, b"ke"), None, "a prefix is another key");
    assert_eq!(get(store, Family::Messages, b"key\0"), None, "an extension is another key");
    commit(store, |batch| put(batch, Family::Messages, b"key", b"two"));
    assert_eq!(get(store, Family::Messages, b"key").as_deref(), Some(&b"two"[..]));
    commit(store, |batch| delete(batch, Family::Messages, b"key"));
    assert_eq!(get(store, Family::Messages, b"key"), None);
    commit(store, |batch| delete(batch, Family::Messages, b"never there"));
}

fn families_do_not_mix(store: &mut impl Store) {
    commit(store, |batch| {
        for family in Family::ALL {
            put(batch, family, b"key", family.name().as_bytes());
        }
    });
    commit(store, |batch| delete(batch, Family::Open, b"key"));
    for family in Family::ALL {
        let expected = (family != Family::Open).then(|| Bytes::from_static(family.name().as_bytes()));
        assert_eq!(get(store, family, b"key"), expected, "{}", family.name());
        assert_eq!(keys_of(store, family, b"", b"\xff", 10).len(), usize::from(expected.is_some()));
    }
}

fn later_changes_of_a_batch_win(store: &mut impl Store) {
    commit(store, |batch| put(batch, Family::Timeline, b"was there", b"old"));
    commit(store, |batch| {
        put(batch, Family::Timeline, b"put twice", b"1");
        put(batch, Family::Timeline, b"put twice", b"2");
        put(batch, Family::Timeline, b"put, deleted", b"1");
        delete(batch, Family::Timeline, b"put, deleted");
        delete(batch, Family::Timeline, b"deleted, put");
        put(batch, Family::Timeline, b"deleted, put", b"3");
        delete(batch, Family::Timeline, b"was there");
        put(batch, Family::Timeline, b"was there", b"new");
        delete(batch, Family::Timeline, b"was there");
    });
    assert_eq!(get(store, Family::Timeline, b"put twice").as_deref(), Some(&b"2"[..]));
    assert_eq!(get(store, Family::Timeline, b"put, deleted"), None);
    assert_eq!(get(store, Family::Timeline, b"deleted, put").as_deref(), Some(&b"3"[..]));
    assert_eq!(get(store, Family::Timeline, b"was there"), None);
    assert_eq!(keys_of(store, Family::Timeline, b"", b"\xff", 10), [&b"deleted, put"[..], b"put twice"]);
}

fn empty_batch_changes_nothing(store: &mut impl Store) {
    commit(store, |batch| put(batch, Family::Meta, b"key", b"value"));
    commit(store, |_| {});
    assert_eq!(get(store, Family::Meta, b"key").as_deref(), Some(&b"value"[..]));
}

fn get_many_keeps_order_duplicates_and_gaps(store: &mut impl Store) {
    commit(store, |batch| {
        for number in 0..50_u8 {
            put(batch, Family::Dedupe, &[number], &[number, number]);
        }
        delete(batch, Family::Dedupe, &[7]);
    });
    assert_eq!(store.get_many(Family::Dedupe, &[]).expect("get_many"), []);
    let ascending: Vec<u8> = (0..60).collect();
    let descending: Vec<u8> = (0..60).rev().collect();
    for numbers in [&ascending[..], &descending, &[3], &[3, 3], &[5, 1, 5, 200, 1, 7, 7, 49], &[60, 61, 62, 63, 64]] {
        let keys: Vec<&[u8]> = numbers.iter().map(std::slice::from_ref).collect();
        let expected: Vec<Option<Bytes>> = numbers
            .iter()
            .map(|number| (*number < 50 && *number != 7).then(|| Bytes::copy_from_slice(&[*number, *number])))
            .collect();
        assert_eq!(store.get_many(Family::Dedupe, &keys).expect("get_many"), expected, "{numbers:?}");
    }
}

fn scans_are_ordered_and_bounded(store: &mut impl Store) {
    commit(store, |batch| {
        // Not in key order, with neighbours of the range on both sides and in the families beside it.
        for key in [&b"c"[..], b"a", b"b\xff", b"b", b"bb", b"b\0", b"d", b"bz"] {
            put(batch, Family::Timeline, key, key);
        }
        put(batch, Family::Payloads, b"b1", b"");
        put(batch, Family::Open, b"b2", b"");
    });
    let scan = |from: &[u8], until: &[u8], limit| keys_of(store, Family::Timeline, from, until, limit);
    let whole: [&[u8]; 8] = [b"a", b"b", b"b\0", b"bb", b"bz", b"b\xff", b"c", b"d"];
    assert_eq!(scan(b"", b"\xff", 100), whole);
    assert_eq!(scan(b"b", b"c", 100), whole[1..6], "from is included, until is not");
    assert_eq!(scan(b"b\0", b"b\xff", 100), whole[2..5]);
    assert_eq!(scan(b"b", b"b\0", 100), whole[1..2]);
    assert_eq!(scan(b"aa", b"cc", 100), whole[1..7], "neither end need exist");
    for limit in 0..=6 {
        assert_eq!(scan(b"b", b"c", limit), whole[1..6][..limit.min(5)]);
    }
    let pairs = store.scan(Family::Timeline, b"b", b"c", 2).expect("scan");
    assert_eq!(pairs, [(Bytes::from("b"), Bytes::from("b")), (Bytes::from("b\0"), Bytes::from("b\0"))]);
}

fn scans_of_empty_ranges_are_empty(store: &mut impl Store) {
    commit(store, |batch| put(batch, Family::Timeline, b"b", b""));
    for (from, until) in [(&b"b"[..], &b"b"[..]), (b"c", b"a"), (b"b\0", b"c"), (b"", b"b"), (b"", b"")] {
        assert_eq!(keys_of(store, Family::Timeline, from, until, 10).len(), 0, "{from:?}..{until:?}");
    }
}

fn scans_step_over_deleted_rows(store: &mut impl Store) {
    commit(store, |batch| {
        for number in 0..1_000_u32 {
            put(batch, Family::Timeline, &number.to_be_bytes(), b"");
        }
    });
    commit(store, |batch| {
        for number in (0..1_000_u32).filter(|number| number % 100 != 99) {
            delete(batch, Family::Timeline, &number.to_be_bytes());
        }
    });
    let left = keys_of(store, Family::Timeline, &0_u32.to_be_bytes(), &500_u32.to_be_bytes(), 3);
    assert_eq!(left, [99_u32, 199, 299].map(|number| Bytes::copy_from_slice(&number.to_be_bytes())));
}

fn every_byte_may_stand_in_a_key(store: &mut impl Store) {
    let mut keys: Vec<Vec<u8>> = (0..=255).map(|byte| vec![byte]).collect();
    keys.extend((0..=255).map(|byte| vec![0, byte]));
    keys.extend((0..=255).map(|byte| vec![255, byte]));
    keys.extend([vec![0; 32], vec![255; 32], b"\0\xff\0\xff".to_vec(), b"\xff\0\xff\0".to_vec()]);
    commit(store, |batch| {
        for key in &keys {
            put(batch, Family::Messages, key, key);
        }
    });
    for key in &keys {
        assert_eq!(get(store, Family::Messages, key).as_deref(), Some(&key[..]));
    }
    keys.sort();
    keys.dedup();
    assert_eq!(keys_of(store, Family::Messages, b"", &[255; 33], 10_000), keys);
}

fn values_may_be_empty_and_large(store: &mut impl Store) {
    let sizes = [0_usize, 1, 1_000, 1_023, 1_024, 1_025, 4_096, 100_000, 5_000_000];
    let value = |size: usize| (0..=250_u8).cycle().take(size).collect::<Bytes>();
    commit(store, |batch| {
        for size in sizes {
            batch.put(Family::Payloads, size.to_be_bytes().to_vec(), value(size));
        }
    });
    for size in sizes {
        let found = get(store, Family::Payloads, &size.to_be_bytes());
        assert!(found == Some(value(size)), "value of {size} bytes");
    }
    let scanned = store.scan(Family::Payloads, b"", &[255; 9], 100).expect("scan");
    assert_eq!(scanned.iter().map(|(_, value)| value.len()).collect::<Vec<_>>(), sizes);
}

fn readers_see_returned_commits(store: &mut impl Store) {
    let reader = store.reader();
    for number in 0..20_u8 {
        commit(store, |batch| put(batch, Family::Meta, b"applied", &[number]));
        let other = reader.clone();
        for reader in [&reader, &other] {
            let (one, many, scan) = reader.read(|read| {
                (
                    get(read, Family::Meta, b"applied"),
                    read.get_many(Family::Meta, &[b"absent", b"applied"]).expect("get_many"),
                    read.scan(Family::Meta, b"a", b"b", 10).expect("scan"),
                )
            });
            let value = Bytes::copy_from_slice(&[number]);
            assert_eq!(one, Some(value.clone()));
            assert_eq!(many, [None, Some(value.clone())]);
            assert_eq!(scan, [(Bytes::from("applied"), value)]);
        }
    }
}

fn readers_see_whole_commits<S: Store>(store: &mut S) {
    let write = |store: &mut S, number: u64| {
        commit(store, |batch| {
            for family in Family::ALL {
                put(batch, family, b"a", &number.to_be_bytes());
                put(batch, family, b"b", &number.to_be_bytes());
            }
        });
    };
    write(store, 0);
    let reader = store.reader();
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..2)
            .map(|_| {
                let reader = reader.clone();
                let is_done = &is_done;
                scope.spawn(move || {
                    let mut last = Bytes::new();
                    while !is_done.load(Ordering::Relaxed) {
                        let seen = reader.read(|read| {
                            let seen = get(read, Family::Meta, b"a").expect("written before the readers started");
                            for family in Family::ALL {
                                assert_eq!(get(read, family, b"b").as_ref(), Some(&seen), "half a commit");
                                let both = read.scan(family, b"a", b"c", 10).expect("scan");
                                assert!(
                                    both.iter().all(|(_, value)| *value == seen) && both.len() == 2,
                                    "half a commit"
                                );
                            }
                            seen
                        });
                        assert!(last <= seen, "a later read saw an earlier state");
                        last = seen;
                    }
                })
            })
            .collect();
        for number in 1..=100 {
            write(store, number);
        }
        is_done.store(true, Ordering::Relaxed);
        for reader in readers {
            reader.join().expect("a reader saw half a commit");
        }
    });
}

fn released_rows_may_go_and_others_stay(store: &mut impl Store) {
    let ends = [None, Some(i64::MIN), Some(0), Some(99), Some(100), Some(101), Some(i64::MAX)];
    let rows = || (0_u8..).zip(ends);
    commit(store, |batch| {
        for family in Family::ALL {
            for (number, end_ms) in rows() {
                batch.put(family, vec![number], envelope::encode_bytes(b"body", end_ms));
            }
            // A foreign value has no end that anybody could read.
            put(batch, family, b"foreign", b"\x81short");
        }
    });
    store.release_ended(100);
    // A lower watermark than before takes nothing back.
    store.release_ended(0);
    for family in Family::ALL {
        for (number, end_ms) in rows() {
            let is_there = get(store, family, &[number]).is_some();
            assert!(is_there || end_ms.is_some_and(|end_ms| end_ms <= 100), "{} {end_ms:?}", family.name());
            let is_scanned = !keys_of(store, family, &[number], &[number + 1], 1).is_empty();
            assert_eq!(is_scanned, is_there, "scan and get agree");
        }
        assert!(get(store, family, b"foreign").is_some());
    }
}

fn released_rows_do_not_uncover_older_ones(store: &mut impl Store) {
    commit(store, |batch| batch.put(Family::Messages, "key", envelope::encode_bytes(b"live", None)));
    commit(store, |batch| batch.put(Family::Messages, "key", envelope::encode_bytes(b"terminal", Some(100))));
    store.release_ended(100);
    commit(store, |batch| put(batch, Family::Messages, b"other", b""));
    if let Some(value) = get(store, Family::Messages, b"key") {
        assert_eq!(envelope::body(&value).expect("ours"), "terminal");
    }
}

fn random_batches_match_a_map<S: Store>(store: &mut S) {
    let mut random = Random(0x5eed);
    let mut model: BTreeMap<(Family, Bytes), Bytes> = BTreeMap::new();
    let reader = store.reader();
    for _ in 0..150 {
        let mut batch = Batch::default();
        for _ in 0..random.below(40) {
            let family = Family::ALL[random.below(7)];
            let key = random.bytes(3);
            if random.below(3) == 0 {
                batch.delete(family, key);
            } else {
                batch.put(family, key, random.bytes(40));
            }
        }
        for (family, change) in batch.changes() {
            match change {
                Change::Put(key, value) => model.insert((*family, key.clone()), value.clone()),
                Change::Delete(key) => model.remove(&(*family, key.clone())),
            };
        }
        store.commit(batch).expect("commit");

        let family = Family::ALL[random.below(7)];
        let (from, until, limit) = (random.bytes(3), random.bytes(3), random.below(30));
        let expected: Vec<_> = if from < until {
            let range = (Bound::Included((family, from.clone())), Bound::Excluded((family, until.clone())));
            model.range(range).take(limit).map(|((_, key), value)| (key.clone(), value.clone())).collect()
        } else {
            Vec::new()
        };
        assert_eq!(store.scan(family, &from, &until, limit).expect("scan"), expected);
        assert_eq!(reader.read(|read| read.scan(family, &from, &until, limit)).expect("scan"), expected);

        let keys: Vec<Bytes> = (0..random.below(20)).map(|_| random.bytes(2)).collect();
        let expected: Vec<_> = keys.iter().map(|key| model.get(&(family, key.clone())).cloned()).collect();
        let keys: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
        assert_eq!(store.get_many(family, &keys).expect("get_many"), expected);
        let one_by_one: Vec<_> = keys.iter().map(|key| get(store, family, key)).collect();
        assert_eq!(one_by_one, expected);
    }
}

/// SplitMix64: enough randomness for tests, the same on every run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % bound as u64).expect("below a usize")
    }

    /// Up to `length_max` bytes from a small alphabet, so that keys meet.
    fn bytes(&mut self, length_max: usize) -> Bytes {
        let length = self.below(length_max + 1);
        (0..length).map(|_| [0, 1, b'a', 0xff][self.below(4)]).collect()
    }
}

#[cfg(test)]
mod tests {
    use shard::memory::MemoryStore;

    #[test]
    fn the_store_in_memory_conforms() {
        super::run(MemoryStore::new);
    }
}
