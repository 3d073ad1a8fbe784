//! RocksDB does what the port promises.

#[test]
fn rocksdb_conforms() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let mut number = 0;
    testkit::store_suite::run(|| {
        number += 1;
        crate::common::open(&folder.path().join(format!("{number}"))).expect("open")
    });
}
