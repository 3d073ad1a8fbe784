//! A store in a temporary folder.

use std::path::Path;

use bytes::Bytes;
use shard::store::{Batch, Family, Store};
use store::{OpenError, ResourceOptions, RocksStore, StoreOptions, StoreResources};

pub(crate) const IDENTITY: &[u8] = b"default/0";
pub(crate) const INCARNATION: [u8; 16] = [7; 16];

pub(crate) fn resources() -> StoreResources {
    StoreResources::new(ResourceOptions::default()).expect("defaults fit")
}

pub(crate) fn open(folder: &Path) -> Result<RocksStore, OpenError> {
    RocksStore::open(folder, IDENTITY, INCARNATION, &resources(), &StoreOptions::default())
}

pub(crate) fn commit_row(store: &mut RocksStore, family: Family, key: &[u8], value: impl Into<Bytes>) {
    let mut batch = Batch::default();
    batch.put(family, Bytes::copy_from_slice(key), value);
    store.commit(batch).expect("commit");
}
