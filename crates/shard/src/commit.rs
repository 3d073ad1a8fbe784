//! One run of records, one synced write: the only way a shard's state changes.
//!
//! [`Shard::commit`] decides a run against state and what the run itself changed, writes everything in one atomic synced batch
//! and returns [`Committed`]. Nothing may be acknowledged, answered or sent before it returns, and only a [`Committed`] can
//! turn claims into attempts that a destination accepts ([`Committed::admit`]).

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use protocol::code::StableCode;
use protocol::id::ShardId;
use protocol::mutation_v2::MutationBody;
use protocol::position::SourcePosition;
use protocol::record::{self, LogRecord, RecordError};

use crate::effect::Effect;
use crate::machine::verdict::{RecordResult, Rule};
use crate::machine::{self, ApplyError, GenesisRefusal, SourceRecord};
use crate::planted::{self, Mistake};
use crate::state::constitution::{Bindings, Constitution};
use crate::state::keys::meta;
use crate::state::low_water::{self, LowWater};
use crate::state::transaction::{Finished, Transaction};
use crate::state::{LaneNo, MessageUuid, envelope, row};
use crate::store::{CommitError, Family, Read, Store, StoreError};

/// The version of keys and rows that this build writes, and the newest it reads.
pub const FORMAT_VERSION: u32 = 1;

/// Which shard a store must be of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShardIdentity {
    /// Route and partition.
    pub shard: ShardId,
    /// Mutation hash of the genesis record in the route record.
    pub genesis_hash: [u8; 32],
}

/// Why a store cannot be opened as a shard.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The store did not answer.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Written by a newer build.
    #[error("store has format version {found}, this build reads up to {FORMAT_VERSION}")]
    NewerFormat {
        /// The version in the store.
        found: u32,
    },
    /// The store of another shard, or of another incarnation of the route.
    #[error("store is of {found}, expected {expected}")]
    OtherShard {
        /// What the store says.
        found: String,
        /// What was asked for.
        expected: String,
    },
}

/// Why a run was not committed.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The write failed; the variant says whether anything can have been written.
    #[error(transparent)]
    Commit(#[from] CommitError),
    /// The run could not be decided. Nothing was written.
    #[error(transparent)]
    Apply(#[from] ApplyError),
    /// The log does not start with this shard's genesis. Nothing was written.
    #[error(transparent)]
    Genesis(#[from] GenesisRefusal),
}

/// A record and what it came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    /// Where the record stands.
    pub position: SourcePosition,
    /// What it came to.
    pub result: RecordResult,
}

/// A run that is durable.
#[derive(Debug)]
pub struct Committed {
    pub(crate) results: Vec<Applied>,
    pub(crate) effects: Vec<Effect>,
    pub(crate) owner_epoch: u64,
    pub(crate) worker_run_id: [u8; 16],
    closed_ms: i64,
    keys_written: usize,
    bytes_written: usize,
}

impl Committed {
    /// What each record came to, in log order. Records that were applied before are not among them.
    pub fn results(&self) -> &[Applied] {
        &self.results
    }

    /// What follows from the run, in log order.
    pub fn effects(&self) -> &[Effect] {
        &self.effects
    }

    /// Every deadline through this time is closed.
    pub fn closed_ms(&self) -> i64 {
        self.closed_ms
    }

    /// Keys the run put or deleted.
    pub fn keys_written(&self) -> usize {
        self.keys_written
    }

    /// Bytes of those keys and their values.
    pub fn bytes_written(&self) -> usize {
        self.bytes_written
    }
}

/// A Delay Shard: a store, and the small part of its state that every record reads.
pub struct Shard<S: Store> {
    store: S,
    identity: ShardIdentity,
    /// `None` before genesis.
    state: Option<State>,
    low_water: LowWater,
    applied: Option<SourcePosition>,
}

struct State {
    progress: row::Progress,
    constitution: Arc<Constitution>,
    bindings: Arc<Bindings>,
    expiry_floor_ms: i64,
}

impl<S: Store> Shard<S> {
    /// Opens a store as this shard. An empty store becomes it at its genesis record.
    ///
    /// # Errors
    /// [`OpenError`]; nothing is changed.
    pub fn open(store: S, identity: ShardIdentity) -> Result<Shard<S>, OpenError> {
        let low_water = LowWater::load(&store)?;
        let Some(value) = store.get(Family::Meta, meta::FORMAT)? else {
            return Ok(Shard { store, identity, state: None, low_water, applied: None });
        };
        let format: row::Format = envelope::decode(&value)?;
        if format.version > FORMAT_VERSION {
            return Err(OpenError::NewerFormat { found: format.version });
        }
        let constitution = Constitution::load(&store)?
            .ok_or_else(|| StoreError::Corrupt { detail: "a store with a format has no constitution".to_owned() })?;
        if constitution.shard() != identity.shard || *constitution.genesis_hash() != identity.genesis_hash {
            return Err(OpenError::OtherShard {
                found: describe(constitution.shard(), constitution.genesis_hash()),
                expected: describe(identity.shard, &identity.genesis_hash),
            });
        }
        let progress: row::Progress = match store.get(Family::Meta, meta::PROGRESS)? {
            Some(value) => envelope::decode(&value)?,
            None => return Err(StoreError::Corrupt { detail: "a founded store has no progress".to_owned() }.into()),
        };
        let applied = SourcePosition::from_bytes(&progress.applied_position)
            .map_err(|error| StoreError::Corrupt { detail: format!("applied position: {error}") })?;
        let bindings = Arc::new(Bindings::load(&store)?);
        let expiry_floor_ms = low_water.mark(low_water::EXPIRY);
        let state = State { progress, constitution: Arc::new(constitution), bindings, expiry_floor_ms };
        Ok(Shard { store, identity, state: Some(state), low_water, applied: Some(applied) })
    }

    /// Applies a run of records in log order and makes it durable in one write. Records at or before the applied position
    /// are already applied and are passed over.
    ///
    /// # Errors
    /// [`RunError`]. Nothing of the run is visible in this shard then; after [`CommitError::OutcomeUncertain`] the shard is
    /// unusable and must be opened again.
    pub fn commit(&mut self, run: &[SourceRecord]) -> Result<Committed, RunError> {
        let run = self.behind_applied(run)?;
        let (Some(first), Some(last)) = (run.first(), run.last()) else { return Ok(self.nothing_to_commit()) };
        let mut results = Vec::with_capacity(run.len());

        let mut transaction = match &self.state {
            Some(state) => state.begin(&self.store),
            None => {
                let constitution = machine::begin(record::decode(&first.frame), &self.identity)?;
                let mut transaction = State::founded(constitution).begin(&self.store);
                results.push(found(&mut transaction, first));
                transaction
            }
        };
        let rest = &run[results.len()..];
        let decoded: Vec<_> = rest.iter().map(|record| record::decode(&record.frame)).collect();
        prefetch(&mut transaction, &decoded)?;
        for (record, decoded) in rest.iter().copied().zip(decoded) {
            let result = machine::apply(&mut transaction, record, decoded)?;
            results.push(Applied { position: record.position.clone(), result });
        }

        let (mut batch, effects, finished) = transaction.finish();
        let marks = self.low_water.write(finished.expiry_floor_ms, &effects, &mut batch);
        let (keys_written, bytes_written) = (batch.len(), batch.byte_count());
        match self.store.commit(batch) {
            Err(_) if planted::is(Mistake::SendBeforeAdmission) => {}
            committed => committed?,
        }
        self.low_water.install(marks);
        let committed = Committed {
            results,
            effects,
            owner_epoch: finished.progress.owner_epoch,
            worker_run_id: worker_run_id(&finished.progress),
            closed_ms: finished.progress.closed_ms,
            keys_written,
            bytes_written,
        };
        self.applied = Some(last.position.clone());
        self.state = Some(State::from(finished));
        Ok(committed)
    }

    /// The records of a run that are not applied yet. They must ascend, and one at a known position must be that very record:
    /// anything else would apply the log in another order than its own.
    fn behind_applied<'r>(&self, run: &'r [SourceRecord]) -> Result<Vec<&'r SourceRecord>, ApplyError> {
        let mut new: Vec<&SourceRecord> = Vec::with_capacity(run.len());
        for record in run {
            let position = &record.position;
            let is_applied = self
                .applied
                .as_ref()
                .is_some_and(|applied| position == applied || position.compare(applied) == Some(Ordering::Less));
            if is_applied {
                continue;
            }
            let last = new.last().map(|record| &record.position).or(self.applied.as_ref());
            let follows = match last {
                Some(last) => position.compare(last) == Some(Ordering::Greater),
                None => position.shard() == self.identity.shard,
            };
            if follows {
                new.push(record);
            } else if !new.iter().any(|record| record.position == *position) {
                let detail = format!("record at {position:?} does not follow {last:?}");
                return Err(ApplyError::Integrity { detail });
            }
        }
        Ok(new)
    }

    fn nothing_to_commit(&self) -> Committed {
        let progress = self.progress().cloned().unwrap_or_default();
        Committed {
            results: Vec::new(),
            effects: Vec::new(),
            owner_epoch: progress.owner_epoch,
            worker_run_id: worker_run_id(&progress),
            closed_ms: progress.closed_ms,
            keys_written: 0,
            bytes_written: 0,
        }
    }

    /// Which shard this is.
    pub fn identity(&self) -> &ShardIdentity {
        &self.identity
    }

    /// The position of the last applied record, `None` before genesis.
    pub fn applied_position(&self) -> Option<&SourcePosition> {
        self.applied.as_ref()
    }

    /// What every commit moves, `None` before genesis.
    pub fn progress(&self) -> Option<&row::Progress> {
        self.state.as_ref().map(|state| &state.progress)
    }

    /// Limits and keys, `None` before genesis.
    pub fn constitution(&self) -> Option<&Arc<Constitution>> {
        self.state.as_ref().map(|state| &state.constitution)
    }

    /// Profiles and retry policies, `None` before genesis.
    pub fn bindings(&self) -> Option<&Arc<Bindings>> {
        self.state.as_ref().map(|state| &state.bindings)
    }

    /// The earliest deadline there may be: scans of the expiry index start here.
    pub fn expiry_floor_ms(&self) -> i64 {
        self.state.as_ref().map_or(0, |state| state.expiry_floor_ms)
    }

    /// The store, for reads between commits.
    pub fn store(&self) -> &S {
        &self.store
    }

    /// A handle for reads from other threads.
    pub fn reader(&self) -> S::Reader {
        self.store.reader()
    }

    /// No DUE key of the lane stands below this time.
    pub fn low_water_ms(&self, lane_no: LaneNo) -> i64 {
        self.low_water.mark(lane_no)
    }

    /// Tells that no DUE key of the lane stands below `at_ms` now; the next commit notes it.
    pub fn raise_low_water(&mut self, lane_no: LaneNo, at_ms: i64) {
        self.low_water.raise(lane_no, at_ms);
    }

    /// Lets the store drop what has logically ended.
    pub fn release_ended(&mut self) {
        if let Some(closed_ms) = self.progress().map(|progress| progress.closed_ms) {
            self.store.release_ended(closed_ms);
        }
    }

    /// Gives the store back.
    pub fn into_store(self) -> S {
        self.store
    }
}

impl State {
    fn founded(constitution: Constitution) -> State {
        State {
            progress: row::Progress::default(),
            constitution: Arc::new(constitution),
            bindings: Arc::default(),
            expiry_floor_ms: 0,
        }
    }

    fn begin<'a>(&self, store: &'a dyn Read) -> Transaction<'a> {
        Transaction::new(
            store,
            self.progress.clone(),
            self.constitution.clone(),
            self.bindings.clone(),
            self.expiry_floor_ms,
        )
    }
}

impl From<Finished> for State {
    fn from(finished: Finished) -> State {
        let Finished { progress, constitution, bindings, expiry_floor_ms } = finished;
        State { progress, constitution, bindings, expiry_floor_ms }
    }
}

/// Writes what a store says of itself from genesis on.
fn found(transaction: &mut Transaction<'_>, record: &SourceRecord) -> Applied {
    let format = row::Format { version: FORMAT_VERSION };
    transaction.put_row(Family::Meta, Bytes::from_static(meta::FORMAT), &format, None);
    let constitution = (*transaction.constitution).clone();
    transaction.set_constitution(constitution);
    transaction.progress.applied_position = record.position.to_bytes().into();
    let result = RecordResult::Control { operation_id: [0; 32], code: StableCode::Ok, rule: Rule::None };
    Applied { position: record.position.clone(), result }
}

/// Reads the rows that the run names in one go: point reads one by one would be the larger part of its cost.
fn prefetch(transaction: &mut Transaction<'_>, records: &[Result<LogRecord, RecordError>]) -> Result<(), ApplyError> {
    let mut messages = BTreeSet::new();
    for record in records.iter().flatten() {
        match record {
            LogRecord::Command(command) => {
                messages.insert(command.message_id.uuid);
            }
            LogRecord::MutationV2(mutation) => {
                messages.extend(entry_messages(&mutation.body));
            }
            LogRecord::MutationV1(_) => {}
        }
    }
    let messages: Vec<MessageUuid> = messages.into_iter().collect();
    Ok(transaction.prefetch_messages(&messages)?)
}

/// The messages that an owner's record names.
fn entry_messages(body: &MutationBody) -> Vec<MessageUuid> {
    match body {
        MutationBody::PublishAdmission(body) => body.entries.iter().map(|entry| entry.message).collect(),
        MutationBody::PublishOutcome(body) | MutationBody::EvidenceResolution(body) => {
            body.entries.iter().map(|entry| entry.message).collect()
        }
        MutationBody::ClaimResult(body) => body.entries.iter().map(|entry| entry.message).collect(),
        MutationBody::OwnerEpoch(_) | MutationBody::TimeFence(_) | MutationBody::ShardControl(_) => Vec::new(),
    }
}

/// 16 bytes once there is an owner; none before.
fn worker_run_id(progress: &row::Progress) -> [u8; 16] {
    progress.worker_run_id[..].try_into().unwrap_or_default()
}

fn describe(shard: ShardId, genesis_hash: &[u8; 32]) -> String {
    let hash: String = genesis_hash.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    format!("shard {shard} with genesis {hash}…")
}
