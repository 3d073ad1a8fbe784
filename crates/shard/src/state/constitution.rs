//! What genesis fixed and control records changed since: limits, keys, profiles, retry policies.
//!
//! Small, read by every record and changed by few, so it is kept decoded in memory and shared between runs. The rows below are
//! its durable form.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use bytes::Bytes;
use ed25519_dalek::VerifyingKey;
use protocol::id::{RouteId, ShardId};
use protocol::mutation_v2::{DestinationProfile, Genesis, Limits, Roles, SigningKeyEntry};
use protocol::policy::RetryPolicy;
use protocol::resource::Resource;

use crate::state::keys::meta;
use crate::state::{PolicyNo, envelope, row};
use crate::store::{Family, Read, StoreError};

/// Tables are read in pages of this many rows.
const PAGE_LENGTH: usize = 1_000;

/// For what a key may sign.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Records of a shard's owner.
    Owner,
    /// Records of operators.
    Control,
}

impl Role {
    const ALL: [Role; 2] = [Role::Owner, Role::Control];

    fn is_among(self, roles: Roles) -> bool {
        match self {
            Role::Owner => roles.owner,
            Role::Control => roles.control,
        }
    }
}

/// What may sign owner and control records.
#[derive(Clone, Debug, PartialEq)]
pub struct SigningKey {
    /// Version, public key and roles.
    pub entry: SigningKeyEntry,
    /// The public key, ready to verify.
    pub verifying_key: VerifyingKey,
    /// Retired by a control record, but not yet replaced at an OWNER_EPOCH.
    pub retiring: bool,
}

impl SigningKey {
    /// A key in force. `None` when the entry's key is no point of the curve.
    pub(crate) fn new(entry: SigningKeyEntry) -> Option<SigningKey> {
        Some(SigningKey { entry, verifying_key: entry.verifying_key()?, retiring: false })
    }
}

/// Identity, limits and keys of a shard.
#[derive(Clone, Debug)]
pub struct Constitution {
    shard: ShardId,
    partition_count: NonZeroU32,
    tenant_scope: [u8; 32],
    limits: Limits,
    keys: BTreeMap<u32, SigningKey>,
    genesis_hash: [u8; 32],
}

impl Constitution {
    /// What a genesis record says, under its mutation hash. `None` when a key of it is no point of the curve, which its decoder
    /// does not let through.
    pub(crate) fn found(genesis: &Genesis, genesis_hash: [u8; 32]) -> Option<Constitution> {
        let key = |entry: &SigningKeyEntry| Some((entry.version, SigningKey::new(*entry)?));
        Some(Constitution {
            shard: genesis.shard,
            partition_count: NonZeroU32::new(genesis.partition_count)?,
            tenant_scope: genesis.tenant_scope,
            limits: genesis.limits,
            keys: genesis.keys.iter().map(key).collect::<Option<_>>()?,
            genesis_hash,
        })
    }

    /// Which shard this is.
    pub fn shard(&self) -> ShardId {
        self.shard
    }

    /// Partitions of the route.
    pub fn partition_count(&self) -> NonZeroU32 {
        self.partition_count
    }

    /// The tenant's routing scope.
    pub fn tenant_scope(&self) -> &[u8; 32] {
        &self.tenant_scope
    }

    /// The limits that apply reads.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Mutation hash of the genesis record.
    pub fn genesis_hash(&self) -> &[u8; 32] {
        &self.genesis_hash
    }

    /// Signing keys by version.
    pub fn keys(&self) -> &BTreeMap<u32, SigningKey> {
        &self.keys
    }

    /// The key of a version, if it may sign for this role.
    pub fn verifying_key(&self, version: u32, role: Role) -> Option<&VerifyingKey> {
        self.keys.get(&version).filter(|key| role.is_among(key.entry.roles)).map(|key| &key.verifying_key)
    }

    pub(crate) fn insert_key(&mut self, key: SigningKey) {
        self.keys.insert(key.entry.version, key);
    }

    /// Marks a key for retirement, unless it is the last that stays of one of its roles.
    pub(crate) fn retire_key(&mut self, version: u32) -> bool {
        let Some(key) = self.keys.get(&version) else { return false };
        let stays = |role: Role| {
            self.keys.iter().any(|(other, key)| *other != version && !key.retiring && role.is_among(key.entry.roles))
        };
        if Role::ALL.into_iter().any(|role| role.is_among(key.entry.roles) && !stays(role)) {
            return false;
        }
        if let Some(key) = self.keys.get_mut(&version) {
            key.retiring = true;
        }
        true
    }

    pub(crate) fn retiring_keys(&self) -> impl Iterator<Item = u32> {
        self.keys.iter().filter(|(_, key)| key.retiring).map(|(version, _)| *version)
    }

    /// Drops the keys marked for retirement, except the one that signs still.
    pub(crate) fn drop_retiring_keys(&mut self, signed_with: u32) {
        self.keys.retain(|version, key| !key.retiring || *version == signed_with);
    }

    pub(crate) fn to_row(&self) -> row::Constitution {
        let key = |key: &SigningKey| row::Key {
            version: key.entry.version,
            public_key: Bytes::copy_from_slice(&key.entry.public_key),
            owner: key.entry.roles.owner,
            control: key.entry.roles.control,
            retiring: key.retiring,
        };
        row::Constitution {
            route: Bytes::copy_from_slice(&self.shard.route.0),
            partition: self.shard.partition,
            partition_count: self.partition_count.get(),
            tenant_scope: Bytes::copy_from_slice(&self.tenant_scope),
            limits: Some(self.limits),
            keys: self.keys.values().map(key).collect(),
            genesis_hash: Bytes::copy_from_slice(&self.genesis_hash),
        }
    }

    /// Reads the stored constitution, `None` before genesis.
    pub(crate) fn load(store: &dyn Read) -> Result<Option<Constitution>, StoreError> {
        let Some(value) = store.get(Family::Meta, meta::CONSTITUTION)? else { return Ok(None) };
        let row: row::Constitution = envelope::decode(&value)?;
        Constitution::from_row(&row).map(Some).ok_or_else(|| StoreError::Corrupt {
            detail: "the constitution row is not one that genesis writes".to_owned(),
        })
    }

    fn from_row(row: &row::Constitution) -> Option<Constitution> {
        let mut keys = BTreeMap::new();
        for stored in &row.keys {
            let roles = Roles { owner: stored.owner, control: stored.control };
            let public_key = stored.public_key[..].try_into().ok()?;
            let entry = SigningKeyEntry { version: stored.version, public_key, roles };
            keys.insert(entry.version, SigningKey { retiring: stored.retiring, ..SigningKey::new(entry)? });
        }
        Some(Constitution {
            shard: ShardId { route: RouteId(row.route[..].try_into().ok()?), partition: row.partition },
            partition_count: NonZeroU32::new(row.partition_count)?,
            tenant_scope: row.tenant_scope[..].try_into().ok()?,
            limits: row.limits?,
            keys,
            genesis_hash: row.genesis_hash[..].try_into().ok()?,
        })
    }
}

/// One version of a destination profile.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// The semantic object.
    pub profile: DestinationProfile,
    /// Its registry hash, which every Schedule that binds it must name.
    pub semantic_hash: [u8; 32],
    /// Refuses new bindings.
    pub closed: bool,
    /// Where it delivers instead of the resource that its body pins: the topic was made anew. Never the body's own.
    pub rebound: Option<Resource>,
}

impl Profile {
    /// Where its messages go now.
    pub fn resource(&self) -> &Resource {
        self.rebound.as_ref().unwrap_or(&self.profile.resource)
    }

    /// The profile as its messages are delivered: the body with the resource of now. Its hash is not the one that messages
    /// bind.
    pub fn in_force(&self) -> DestinationProfile {
        DestinationProfile { resource: self.resource().clone(), ..self.profile.clone() }
    }

    /// The same profile, delivering to `resource`.
    pub(crate) fn rebound_to(self, resource: &Resource) -> Profile {
        let rebound = (self.profile.resource != *resource).then(|| resource.clone());
        Profile { rebound, ..self }
    }

    pub(crate) fn to_row(&self) -> row::Profile {
        let rebound = self.rebound.as_ref().map(Resource::to_v2);
        row::Profile { profile: self.profile.encode(), closed: self.closed, rebound }
    }

    pub(crate) fn from_row(row: &row::Profile, profile_id: &[u8], version: u64) -> Result<Profile, StoreError> {
        let profile = DestinationProfile::decode(&row.profile)
            .map_err(|error| corrupt(&format!("a profile does not decode: {error}")))?;
        let rebound = row.rebound.as_ref().map(Resource::from_v2).transpose();
        let rebound = rebound.map_err(|error| corrupt(&format!("a profile is bound to no resource: {error}")))?;
        let semantic_hash = profile.semantic_hash(profile_id, version);
        Ok(Profile { profile, semantic_hash, closed: row.closed, rebound })
    }
}

/// One version of a retry policy.
#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    /// The semantic object.
    pub policy: RetryPolicy,
    /// Its canonical bytes.
    pub bytes: Bytes,
    /// Its registry hash, which every Schedule that binds it must name.
    pub semantic_hash: [u8; 32],
    /// Refuses new bindings.
    pub closed: bool,
}

/// What messages may be bound to.
#[derive(Clone, Debug, Default)]
pub struct Bindings {
    profiles: BTreeMap<(Bytes, u64), Profile>,
    profile_gates: BTreeMap<Bytes, row::ProfileGate>,
    policies: BTreeMap<PolicyNo, Policy>,
    policy_numbers: BTreeMap<(Bytes, u64), PolicyNo>,
}

impl Bindings {
    /// A profile version.
    pub fn profile(&self, profile_id: &[u8], version: u64) -> Option<&Profile> {
        self.profiles.get(&(Bytes::copy_from_slice(profile_id), version))
    }

    /// Every profile version, ascending by id and version.
    pub fn profiles(&self) -> impl Iterator<Item = (&[u8], u64, &Profile)> {
        self.profiles.iter().map(|((profile_id, version), profile)| (&profile_id[..], *version, profile))
    }

    /// Every version of a profile that was ever activated, ascending.
    pub fn versions(&self, profile_id: &Bytes) -> impl Iterator<Item = (u64, &Profile)> {
        let versions = self.profiles.range((profile_id.clone(), 0)..=(profile_id.clone(), u64::MAX));
        versions.map(|((_, version), profile)| (*version, profile))
    }

    /// Whether any version of the profile was ever activated.
    pub fn has_profile(&self, profile_id: &Bytes) -> bool {
        self.versions(profile_id).next().is_some()
    }

    /// The gate of a profile; open in version 0 if it was never set.
    pub fn profile_gate(&self, profile_id: &[u8]) -> row::ProfileGate {
        self.profile_gates.get(profile_id).copied().unwrap_or_default()
    }

    /// Whether a profile's gate is closed.
    pub fn is_paused(&self, profile_id: &[u8]) -> bool {
        self.profile_gate(profile_id).paused
    }

    /// A retry policy.
    pub fn policy(&self, policy_no: PolicyNo) -> Option<&Policy> {
        self.policies.get(&policy_no)
    }

    /// The number of a retry policy version.
    pub fn policy_no(&self, policy_id: &[u8], version: u64) -> Option<PolicyNo> {
        self.policy_numbers.get(&(Bytes::copy_from_slice(policy_id), version)).copied()
    }

    /// A retry policy version.
    pub fn policy_by_version(&self, policy_id: &[u8], version: u64) -> Option<&Policy> {
        self.policy(self.policy_no(policy_id, version)?)
    }

    pub(crate) fn insert_profile(&mut self, profile_id: Bytes, version: u64, profile: Profile) {
        self.profiles.insert((profile_id, version), profile);
    }

    pub(crate) fn insert_profile_gate(&mut self, profile_id: Bytes, gate: row::ProfileGate) {
        self.profile_gates.insert(profile_id, gate);
    }

    pub(crate) fn insert_policy(&mut self, policy_no: PolicyNo, policy: Policy) {
        self.policy_numbers.insert((policy.policy.id.clone(), policy.policy.version), policy_no);
        self.policies.insert(policy_no, policy);
    }

    /// Reads the stored bindings.
    pub(crate) fn load(store: &dyn Read) -> Result<Bindings, StoreError> {
        let mut bindings = Bindings::default();
        for_each(store, meta::profiles(), |key, value| {
            let (profile_id, version) = meta::decode_profile(key)?;
            let profile = Profile::from_row(&envelope::decode(value)?, &profile_id, version)?;
            bindings.insert_profile(profile_id, version, profile);
            Ok(())
        })?;
        for_each(store, meta::profile_gates(), |key, value| {
            bindings.insert_profile_gate(meta::decode_profile_gate(key), envelope::decode(value)?);
            Ok(())
        })?;
        for_each(store, meta::policies(), |key, value| {
            let row: row::Policy = envelope::decode(value)?;
            let policy = RetryPolicy::decode(&row.policy)
                .map_err(|error| corrupt(&format!("a retry policy does not decode: {error}")))?;
            let semantic_hash = policy.semantic_hash();
            let policy = Policy { policy, bytes: row.policy, semantic_hash, closed: row.closed };
            bindings.insert_policy(meta::decode_policy(key)?, policy);
            Ok(())
        })?;
        Ok(bindings)
    }
}

/// Visits every row of a table in [`Family::Meta`].
pub(crate) fn for_each(
    store: &dyn Read,
    range: (Bytes, Bytes),
    visit: impl FnMut(&Bytes, &Bytes) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    for_each_of(store, Family::Meta, range, visit)
}

/// Visits every row of a range.
pub(crate) fn for_each_of(
    store: &dyn Read,
    family: Family,
    (mut from, until): (Bytes, Bytes),
    mut visit: impl FnMut(&Bytes, &Bytes) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    loop {
        let page = store.scan(family, &from, &until, PAGE_LENGTH)?;
        for (key, value) in &page {
            visit(key, value)?;
        }
        match page.last() {
            Some((last, _)) if page.len() == PAGE_LENGTH => from = successor(last),
            _ => return Ok(()),
        }
    }
}

/// The first key behind `key`.
pub(crate) fn successor(key: &[u8]) -> Bytes {
    let mut next = Vec::with_capacity(key.len() + 1);
    next.extend_from_slice(key);
    next.push(0);
    next.into()
}

fn corrupt(detail: &str) -> StoreError {
    StoreError::Corrupt { detail: detail.to_owned() }
}
