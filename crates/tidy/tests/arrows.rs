//! Which crate may stand on which. An arrow that is not drawn here does not exist.

use std::collections::{BTreeMap, BTreeSet};

use tidy::Crates;

/// For each of our crates, the others of ours it may name.
const ARROWS: [(&str, &[&str]); 17] = [
    ("protocol", &[]),
    ("clock", &[]),
    ("shard", &["clock", "protocol"]),
    ("ports", &["clock", "protocol", "shard"]),
    ("store", &["shard"]),
    ("embedded", &["ports", "protocol", "shard", "store"]),
    ("kafka", &["ports", "protocol", "shard"]),
    ("control", &["ports", "protocol"]),
    ("client", &["protocol"]),
    ("worker", &["clock", "control", "ports", "protocol", "shard"]),
    ("gateway", &["client", "clock", "control", "ports", "protocol", "shard", "worker"]),
    (
        "nereus-delay",
        &[
            "client", "clock", "control", "embedded", "gateway", "kafka", "ports", "protocol", "shard", "store",
            "worker",
        ],
    ),
    ("testkit", &["clock", "ports", "protocol", "shard"]),
    ("sim", &["client", "clock", "control", "ports", "protocol", "shard", "testkit", "worker"]),
    ("fuzz", &["client", "control", "gateway", "ports", "protocol", "shard", "testkit"]),
    ("harness", &["client", "protocol", "shard", "store"]),
    ("tidy", &[]),
];

#[test]
fn our_crates_name_each_other_only_along_the_arrows() {
    let crates = Crates::read();
    let arrows: BTreeMap<&str, BTreeSet<&str>> =
        ARROWS.iter().map(|(name, targets)| (*name, targets.iter().copied().collect())).collect();
    for name in crates.members() {
        let Some(allowed) = arrows.get(name.as_str()) else { panic!("crate {name} has no place in ARROWS") };
        for target in crates.direct(name).intersection(crates.members()) {
            assert!(allowed.contains(target.as_str()), "{name} may not name {target}");
        }
    }
}

#[test]
fn the_core_reaches_no_runtime_database_network_or_randomness() {
    let crates = Crates::read();
    for name in ["protocol", "clock", "shard"] {
        for reached in crates.reached(name) {
            let is_banned = reached.ends_with("-sys")
                || [
                    "tokio",
                    "async-std",
                    "smol",
                    "mio",
                    "socket2",
                    "hyper",
                    "axum",
                    "tonic",
                    "rocksdb",
                    "rand",
                    "fastrand",
                    "getrandom",
                    "uuid",
                    "chrono",
                    "jiff",
                ]
                .contains(&reached.as_str());
            assert!(!is_banned, "{name} reaches {reached}");
        }
    }
    assert!(!crates.reached("protocol").contains("libc"), "protocol asks the operating system for nothing");
    // What shard takes from clock is the interval; the system calls beside it are clock's own.
    assert!(!crates.direct("shard").contains("libc"), "shard asks the operating system for nothing");
}

#[test]
fn only_the_store_and_the_embedded_engine_reach_rocksdb() {
    let crates = Crates::read();
    let on_top: BTreeSet<&str> = ["embedded", "harness", "nereus-delay", "store"].into();
    for name in crates.members() {
        assert_eq!(
            crates.reached(name).contains("rocksdb"),
            on_top.contains(name.as_str()),
            "{name}: crates that do not need RocksDB build in seconds"
        );
    }
    for name in ["harness", "nereus-delay"] {
        assert!(!crates.direct(name).contains("rocksdb"), "{name} goes through store and embedded");
    }
}

#[test]
fn only_the_binary_names_the_outside_systems() {
    let crates = Crates::read();
    for name in crates.members().iter().filter(|name| *name != "nereus-delay") {
        assert!(
            !crates.direct(name).contains("embedded"),
            "{name} names embedded; a new system is one line in the binary"
        );
    }
}

#[test]
fn only_the_simulator_can_make_mistakes_on_purpose() {
    for name in Crates::read().members() {
        let path = tidy::root().join("crates").join(name).join("Cargo.toml");
        let manifest = std::fs::read_to_string(&path).expect("a member has a manifest");
        let asks = manifest.lines().filter(|line| line.contains("planted") && !line.starts_with('#'));
        let expected: &[&str] = match name.as_str() {
            "shard" => &["planted = []"],
            "sim" => &["planted = [\"shard/planted\"]"],
            _ => &[],
        };
        assert_eq!(asks.collect::<Vec<_>>(), expected, "{name}");
    }
}
