//! What happened in a run, gathered for those who judge it: the logs and what they say, what destinations were given, what clients
//! asked and were told, what was on disk and when.

use std::collections::BTreeSet;

use protocol::hash::Hash;
use protocol::position::SourcePosition;
use shard::machine::verdict::Verdict;

use crate::cell::Cell;
use crate::scene::HostDisk;
use crate::told::Told;
use crate::work::Operation;
use crate::world::ProcessId;
use crate::world::broker::{Delivered, Received};
use crate::world::disk::DiskCommit;

/// An answer that a client was given.
#[derive(Clone, Debug)]
pub struct Answer {
    /// When, in true time.
    pub at_us: i64,
    /// By whose worker.
    pub process: ProcessId,
    /// On which host.
    pub host: usize,
    /// To the copy at this place of the log.
    pub position: SourcePosition,
    /// What it was.
    pub verdict: Verdict,
}

/// Something that a client asked for, and everything it was told of it. No answer says nothing: it may have happened or not.
#[derive(Clone, Debug)]
pub struct Asked {
    /// What was asked, and by whom.
    pub operation: Operation,
    /// Its answers, in their order.
    pub answers: Vec<Answer>,
    /// Where a host called it applied and did not know what it came to.
    pub answered_nothing: Vec<(usize, SourcePosition)>,
}

/// A shard's disk on a host, at the end.
#[derive(Clone, Debug)]
pub struct DiskStory {
    /// Which host.
    pub host: usize,
    /// Which shard.
    pub shard: usize,
    /// Every commit that took effect on it, in their order.
    pub commits: Vec<DiskCommit>,
    /// How much of the log is applied.
    pub applied: u64,
    /// The digest of its state.
    pub digest: Hash,
}

impl DiskStory {
    /// What is to be told of a disk now.
    pub fn of(HostDisk { host, shard, disk }: HostDisk) -> DiskStory {
        let (applied, digest) = disk.state();
        DiskStory { host, shard, commits: disk.commits(), applied, digest }
    }

    /// Whether the record at this offset was applied on it by then. What is applied grows from commit to commit
    /// (`invariants::source_order`).
    pub fn holds(&self, offset: u64, by_us: i64) -> bool {
        let first = self.commits.partition_point(|commit| commit.applied <= offset);
        self.commits.get(first).is_some_and(|commit| commit.at_us <= by_us)
    }
}

/// What was on a disk at some time.
#[derive(Clone, Copy, Debug)]
pub struct Snapshot {
    /// Of which shard.
    pub shard: usize,
    /// How much of the log was applied.
    pub applied: u64,
    /// The digest of its state.
    pub digest: Hash,
}

/// What a log did that no log may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Harm {
    /// It leaves out the record at this offset.
    Skips(u64),
    /// It lost everything from this offset on.
    LostTail(u64),
    /// It lost everything before this offset.
    LostHead(u64),
    /// It was deleted and made again.
    Recreated,
}

/// A log that was harmed.
#[derive(Clone, Debug)]
pub struct Harmed {
    /// Of which shard.
    pub shard: usize,
    /// How.
    pub harm: Harm,
    /// How many of its records each disk of the story held then, or its worker had been given; the disks behind were not there yet.
    pub held: Vec<u64>,
}

/// A run, told.
pub struct Story<'a> {
    /// Where it happened.
    pub cell: &'a Cell,
    /// What each log says, for shards whose log was not harmed.
    pub told: Vec<Option<Told>>,
    /// What destinations took.
    pub delivered: Vec<Delivered>,
    /// What reached them.
    pub received: Vec<Received>,
    /// What clients asked and were told.
    pub asked: Vec<Asked>,
    /// Every disk.
    pub disks: Vec<DiskStory>,
    /// What was on disks meanwhile.
    pub snapshots: Vec<Snapshot>,
    /// The log that was harmed, if one was.
    pub harmed: Option<Harmed>,
    /// The workers that ended their shard as FAILED: host and shard.
    pub failed: BTreeSet<(usize, usize)>,
    /// A destination that nothing troubled, where all trouble was with destinations.
    pub healthy: Option<usize>,
}

impl<'a> Story<'a> {
    /// A story of which nothing is told yet.
    pub fn of(cell: &'a Cell) -> Story<'a> {
        Story {
            cell,
            told: Vec::new(),
            delivered: Vec::new(),
            received: Vec::new(),
            asked: Vec::new(),
            disks: Vec::new(),
            snapshots: Vec::new(),
            harmed: None,
            failed: BTreeSet::new(),
            healthy: None,
        }
    }

    /// What the sound logs say, with the number of their shard.
    pub fn told(&self) -> impl Iterator<Item = (usize, &Told)> {
        self.told.iter().enumerate().filter_map(|(shard, told)| Some((shard, told.as_ref()?)))
    }
}
