//! One source order per shard (invariant 4), one write a run, and a log that is not ours (invariant 6).

use std::num::NonZeroU32;

use bytes::Bytes;
use protocol::command::Precondition;
use protocol::mutation_v2::ControlPayload;
use protocol::position::SourcePosition;
use shard::commit::{OpenError, RunError, Shard, ShardIdentity};
use shard::machine::verdict::RecordResult;
use shard::machine::{ApplyError, GenesisRefusal, SourceRecord};
use shard::memory::{CommitFault, MemoryDisk, MemoryStore};
use shard::state::digest::state_digest;
use shard::state::keys::meta;
use shard::state::{LaneNo, envelope, row};
use shard::store::{Batch, CommitError, Family, Read, Reader, Store};
use testkit::log::{
    Destination, LogWriter, Operation, Owner, START_MS, cancel, default_limits, default_policy, schedule,
};
use testkit::model::audit;

fn identity(log: &LogWriter) -> ShardIdentity {
    ShardIdentity { shard: log.shard(), genesis_hash: log.genesis_mutation(default_limits()).hash }
}

fn founded() -> (LogWriter, Shard<MemoryStore>, MemoryDisk) {
    let mut log = LogWriter::default();
    let disk = MemoryDisk::new();
    let mut shard = Shard::open(disk.open(), identity(&log)).expect("an empty store opens");
    shard.commit(&[log.genesis(default_limits())]).expect("a genesis founds its shard");
    (log, shard, disk)
}

fn moved(record: &SourceRecord, change: impl FnOnce(&mut protocol::position::EmbeddedPosition)) -> SourceRecord {
    let SourcePosition::Embedded(mut position) = record.position else { panic!("logs here are embedded") };
    change(&mut position);
    SourceRecord { position: SourcePosition::Embedded(position), frame: record.frame.clone() }
}

fn assert_integrity(result: Result<shard::commit::Committed, RunError>) {
    assert!(matches!(result, Err(RunError::Apply(ApplyError::Integrity { .. }))), "{result:?}");
}

#[test]
fn a_run_is_one_write_and_what_is_applied_is_passed_over() {
    let (mut log, mut shard, disk) = founded();
    let records: Vec<SourceRecord> = (0..5).map(|_| log.append(Bytes::from_static(b"garbage"))).collect();
    let committed = shard.commit(&records[..3]).expect("the store answers");
    assert_eq!(committed.results().len(), 3);
    assert_eq!(disk.commit_count(), 2, "genesis, and one write for the run");

    let again = shard.commit(&records[..3]).expect("the store answers");
    assert_eq!((again.results().len(), again.effects().len(), again.keys_written()), (0, 0, 0));
    assert_eq!(disk.commit_count(), 2, "nothing new is no write");

    // A redelivery that begins before the applied position, with a record twice in it.
    let run = [&records[1..4], &records[2..5], &records[4..]].concat();
    let committed = shard.commit(&run).expect("the store answers");
    let positions: Vec<_> = committed.results().iter().map(|applied| applied.position.clone()).collect();
    assert_eq!(positions, [records[3].position.clone(), records[4].position.clone()]);
    assert_eq!(shard.applied_position(), Some(&records[4].position));
}

#[test]
fn records_out_of_order_stop_the_shard() {
    let (mut log, mut shard, disk) = founded();
    let records: Vec<SourceRecord> = (0..4).map(|_| log.append(Bytes::from_static(b"garbage"))).collect();
    shard.commit(&records[..1]).expect("the store answers");
    let before = (disk.commit_count(), shard.applied_position().cloned());
    assert_integrity(shard.commit(&[records[2].clone(), records[1].clone()]));
    // Another record at the applied position, and at one of the run itself.
    assert_integrity(shard.commit(&[moved(&records[0], |position| position.append_time_ms += 1)]));
    let twin = moved(&records[1], |position| position.append_time_ms += 1);
    assert_integrity(shard.commit(&[records[1].clone(), twin]));
    // Another log: a recreated topic.
    assert_integrity(shard.commit(&[moved(&records[1], |position| position.log = [0xee; 16])]));
    assert_integrity(shard.commit(&[moved(&records[1], |position| position.partition = 1)]));
    assert_eq!((disk.commit_count(), shard.applied_position().cloned()), before, "nothing was written");
    shard.commit(&records[1..]).expect("the log itself goes on");
}

#[test]
fn a_log_starts_with_its_genesis() {
    let mut log = LogWriter::new(0, NonZeroU32::new(2).expect("two"));
    let refused = |record: &SourceRecord, identity: ShardIdentity| {
        let disk = MemoryDisk::new();
        let mut shard = Shard::open(disk.open(), identity).expect("an empty store opens");
        let Err(RunError::Genesis(refusal)) = shard.commit(std::slice::from_ref(record)) else {
            panic!("a log that starts otherwise was taken")
        };
        assert_eq!(disk.commit_count(), 0);
        refusal
    };
    let own = identity(&log);

    let garbage = log.append(Bytes::from_static(b"garbage"));
    assert!(matches!(refused(&garbage, own), GenesisRefusal::NotGenesis { .. }));
    let message = log.message_id();
    let command = log.prepare(&default_limits(), message, cancel(Precondition::default()));
    let command = log.command(&command);
    assert!(matches!(refused(&command, own), GenesisRefusal::NotGenesis { .. }));
    let epoch = log.owner_epoch(&mut Owner::new(1));
    assert!(matches!(refused(&epoch, own), GenesisRefusal::NotGenesis { .. }));
    let version_1 = log.append(version_1_mutation());
    assert!(matches!(refused(&version_1, own), GenesisRefusal::NotGenesis { .. }));

    let genesis = log.genesis(default_limits());
    let other = ShardIdentity { genesis_hash: [0; 32], ..own };
    assert!(matches!(refused(&genesis, other), GenesisRefusal::OtherGenesis { .. }));

    // Rightly named, but of another partition, or not signed by its own control key.
    let other = LogWriter::new(1, NonZeroU32::new(2).expect("two"));
    let of_other = log.append(other.genesis_mutation(default_limits()).encode_frame());
    let misled = ShardIdentity { genesis_hash: identity(&other).genesis_hash, ..own };
    assert!(matches!(refused(&of_other, misled), GenesisRefusal::OtherShard { .. }));
    let mutation = log.genesis_mutation(default_limits());
    let protocol::mutation_v2::MutationBody::ShardControl(control) = mutation.body else { panic!("a genesis") };
    let forged = Operation { retry_until_ms: 0, key_version: 1, ..Operation::new(control.operation_id) };
    let forged = forged.sign(log.shard(), control.payload);
    let forged_identity = ShardIdentity { genesis_hash: forged.hash, ..own };
    let forged = log.append(forged.encode_frame());
    assert!(matches!(refused(&forged, forged_identity), GenesisRefusal::Signature { key_version: 1 }));
}

#[test]
fn a_first_record_of_another_partition_is_refused() {
    let mut log = LogWriter::new(0, NonZeroU32::new(2).expect("two"));
    let mut shard = Shard::open(MemoryStore::new(), identity(&log)).expect("an empty store opens");
    let genesis = log.genesis(default_limits());
    assert_integrity(shard.commit(&[moved(&genesis, |position| position.partition = 1)]));
    shard.commit(&[genesis]).expect("the log itself");
}

#[test]
fn a_store_is_of_one_shard_and_no_newer_than_the_build() {
    let (log, shard, disk) = founded();
    drop(shard);
    let own = identity(&log);
    let other = ShardIdentity { genesis_hash: [0; 32], ..own };
    assert!(matches!(Shard::open(disk.open(), other), Err(OpenError::OtherShard { .. })));
    let mut other = own;
    other.shard.partition = 1;
    assert!(matches!(Shard::open(disk.open(), other), Err(OpenError::OtherShard { .. })));
    Shard::open(disk.open(), own).expect("its own shard");

    let mut store = disk.open();
    let mut batch = Batch::default();
    let newer = row::Format { version: shard::commit::FORMAT_VERSION + 1 };
    batch.put(Family::Meta, Bytes::from_static(meta::FORMAT), envelope::encode(&newer, None));
    store.commit(batch).expect("the store answers");
    assert!(matches!(Shard::open(disk.open(), own), Err(OpenError::NewerFormat { found: 2 })));
}

#[test]
fn a_version_1_mutation_is_sound_and_never_applied() {
    let (mut log, mut shard, _) = founded();
    let record = log.append(version_1_mutation());
    let committed = shard.commit(&[record]).expect("the store answers");
    let RecordResult::Position(position) = &committed.results()[0].result else {
        panic!("only the position is answered")
    };
    assert_eq!(position.code, protocol::code::StableCode::UnactivatedSystemProtocolVersion);
}

/// A mutation of the published vectors.
fn version_1_mutation() -> Bytes {
    let vectors = include_str!("../../../../testdata/vectors/golden.json");
    let start = vectors.find("4e444c31010200000000").expect("a frame of kind 2");
    let hex = vectors[start..].split('"').next().expect("a string ends");
    let bytes = (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).expect("hex"));
    bytes.collect()
}

#[test]
fn a_commit_that_was_not_written_changes_nothing_and_may_be_tried_again() {
    let (mut log, shard, disk) = founded();
    let mut store = shard.into_store();
    store.fail_next_commit(CommitFault::NotWritten);
    let mut shard = Shard::open(store, identity(&log)).expect("it was open before");
    let before = state_digest(shard.store()).expect("the store answers");
    let record = log.owner_epoch(&mut Owner::new(1));
    let failed = shard.commit(std::slice::from_ref(&record));
    assert!(matches!(failed, Err(RunError::Commit(CommitError::NotWritten(_)))), "{failed:?}");
    assert_eq!(state_digest(shard.store()).expect("the store answers"), before);
    assert_eq!((shard.progress().expect("founded").owner_epoch, disk.commit_count()), (0, 1));
    assert_eq!(shard.commit(&[record]).expect("the store answers").results().len(), 1);
    assert_eq!(shard.progress().expect("founded").owner_epoch, 1);
}

#[test]
fn behind_an_uncertain_commit_nothing_more_is_read_or_written() {
    for (fault, commits) in [(CommitFault::UncertainAndLost, 1), (CommitFault::UncertainAndKept, 2)] {
        let (mut log, shard, disk) = founded();
        let mut store = shard.into_store();
        store.fail_next_commit(fault);
        let mut shard = Shard::open(store, identity(&log)).expect("it was open before");
        let record = log.owner_epoch(&mut Owner::new(1));
        let failed = shard.commit(std::slice::from_ref(&record));
        assert!(matches!(failed, Err(RunError::Commit(CommitError::OutcomeUncertain(_)))), "{failed:?}");
        assert!(shard.commit(std::slice::from_ref(&record)).is_err());
        assert!(shard.store().get(Family::Meta, meta::PROGRESS).is_err());
        assert_eq!(disk.commit_count(), commits);

        let reader = shard.reader();
        let mut shard = Shard::open(disk.open(), identity(&log)).expect("it opens again");
        assert!(reader.read(|read| read.get(Family::Meta, meta::PROGRESS)).is_err(), "a reader of the former open");
        shard.commit(&[record]).expect("the store answers");
        assert_eq!(shard.progress().expect("founded").owner_epoch, 1);
        assert_eq!(disk.commit_count(), 2);
    }
}

/// A mark that is lowered by a commit that fails must be lowered by the next one all the same.
#[test]
fn a_failed_commit_loses_no_due_key_to_the_next_owner() {
    let (mut log, mut shard, disk) = founded();
    let (policy, limits) = (default_policy(), default_limits());
    let destination = Destination::new("orders", &policy);
    let message = |log: &mut LogWriter, deliver_at_ms| {
        let id = log.message_id();
        let intent = destination.intent(&policy, deliver_at_ms, deliver_at_ms + 60_000, "");
        let command = log.prepare(&limits, id, schedule(intent));
        log.command(&command)
    };
    let mut records = vec![log.control(ControlPayload::RetryPolicyActivate(Box::new(policy.clone())))];
    records.push(log.control(destination.activate()));
    records.push(message(&mut log, START_MS + 50_000));
    shard.commit(&records).expect("the store answers");
    shard.raise_low_water(LaneNo(1), START_MS + 50_000);
    let later = message(&mut log, START_MS + 60_000);
    shard.commit(&[later]).expect("the store answers");
    assert_eq!(shard.low_water_ms(LaneNo(1)), START_MS + 50_000);

    let mut store = shard.into_store();
    store.fail_next_commit(CommitFault::NotWritten);
    let mut shard = Shard::open(store, identity(&log)).expect("it was open before");
    let earlier = message(&mut log, START_MS + 10_000);
    shard.commit(std::slice::from_ref(&earlier)).expect_err("the injected failure");
    shard.commit(&[earlier]).expect("the store answers");

    let shard = Shard::open(disk.open(), identity(&log)).expect("it opens again");
    assert!(shard.low_water_ms(LaneNo(1)) <= START_MS + 10_000);
    audit::assert_consistent(shard.store());
}

/// An operator's record may be wrong in ways that no key of the store can hold; it must not stop the shard for ever.
#[test]
fn a_profile_id_that_no_key_can_hold_is_refused() {
    let (mut log, mut shard, _) = founded();
    let name = "x".repeat(70_000);
    let destination = Destination::new(&name, &default_policy());
    let record = log.control(destination.activate());
    let committed = shard.commit(&[record]).expect("the store answers");
    let RecordResult::Control { code, .. } = committed.results()[0].result else { panic!("an operation's result") };
    assert_eq!(code, protocol::code::StableCode::ServerInvalidCommand);
}
