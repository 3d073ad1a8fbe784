//! The first record of every partition (protocol registry §2.18).
//!
//! It makes the shard: who may sign, and every limit that apply reads. Configuration only seeds the limits; after genesis the
//! log's values hold, so that two nodes with different configurations still give the same answers.

use bytes::Bytes;
use ed25519_dalek::VerifyingKey;

use crate::field::{self, Fault, FieldError, Within};
use crate::hash::Hash;
use crate::id::{RouteId, ShardId};
use crate::v2;
pub use crate::v2::Limits;

/// What a shard begins with.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Genesis {
    /// The shard: the record's own.
    pub shard: ShardId,
    /// Partitions of the route, above the shard's own.
    pub partition_count: u32,
    /// The routing scope of the tenant whose route it is.
    pub tenant_scope: Hash,
    /// What apply goes by.
    pub limits: Limits,
    /// Strictly ascending by version; at least one with each role.
    pub keys: Vec<SigningKeyEntry>,
}

/// A key that may sign records of a shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SigningKeyEntry {
    /// Its version, from 1.
    pub version: u32,
    /// The Ed25519 public key.
    pub public_key: [u8; 32],
    /// What it may sign.
    pub roles: Roles,
}

/// What a key may sign; at least one of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Roles {
    /// Records of the shard's owner.
    pub owner: bool,
    /// Operations of operators.
    pub control: bool,
}

impl SigningKeyEntry {
    /// The key to verify with, `None` when the 32 bytes are no point of the curve: such a key signs nothing.
    #[must_use]
    pub fn verifying_key(&self) -> Option<VerifyingKey> {
        VerifyingKey::from_bytes(&self.public_key).ok()
    }

    /// A key that no signature could ever be verified with would leave a shard without an owner.
    pub(super) fn check(&self) -> Result<(), FieldError> {
        field::not_zero("version", self.version)?;
        if self.verifying_key().is_none_or(|key| key.is_weak()) {
            return Err(FieldError::new("public_key", Fault::NoKey));
        }
        if self.roles == Roles::default() {
            return Err(FieldError::new("roles", Fault::Empty));
        }
        Ok(())
    }

    pub(super) fn from_proto(proto: &v2::SigningKey) -> Result<Self, FieldError> {
        let mut roles = Roles::default();
        field::ascending("roles", &proto.roles, |role| *role)?;
        for role in &proto.roles {
            match field::known("roles", *role)? {
                v2::Role::Owner => roles.owner = true,
                v2::Role::Control => roles.control = true,
                v2::Role::Unspecified => return Err(FieldError::new("roles", Fault::UnknownValue { found: 0 })),
            }
        }
        Ok(Self { version: proto.version, public_key: field::array("public_key", &proto.public_key)?, roles })
    }

    pub(super) fn to_proto(self) -> v2::SigningKey {
        let roles = [(self.roles.owner, v2::Role::Owner), (self.roles.control, v2::Role::Control)];
        v2::SigningKey {
            version: self.version,
            public_key: Bytes::copy_from_slice(&self.public_key),
            roles: roles.into_iter().filter(|(has, _)| *has).map(|(_, role)| role.into()).collect(),
        }
    }
}

impl Genesis {
    pub(super) fn check(&self) -> Result<(), FieldError> {
        if self.shard.partition >= self.partition_count {
            return Err(FieldError::new("partition", Fault::Conflict { with: "partition_count" }));
        }
        check_limits(&self.limits).within("limits")?;
        field::ascending("keys", &self.keys, |key| key.version)?;
        self.keys.iter().try_for_each(SigningKeyEntry::check).within("keys")?;
        let (owner, control) =
            (self.keys.iter().any(|key| key.roles.owner), self.keys.iter().any(|key| key.roles.control));
        if !(owner && control) {
            return Err(FieldError::new("keys", Fault::Conflict { with: "the roles owner and control" }));
        }
        Ok(())
    }

    pub(super) fn from_proto(proto: &v2::Genesis) -> Result<Self, FieldError> {
        let shard = ShardId { route: RouteId(field::array("route", &proto.route)?), partition: proto.partition };
        let keys: Result<_, _> = proto.keys.iter().map(SigningKeyEntry::from_proto).collect();
        Ok(Self {
            shard,
            partition_count: proto.partition_count,
            tenant_scope: field::array("tenant_scope", &proto.tenant_scope)?,
            limits: field::required("limits", proto.limits)?,
            keys: keys.within("keys")?,
        })
    }

    pub(super) fn to_proto(&self) -> v2::Genesis {
        v2::Genesis {
            route: Bytes::copy_from_slice(&self.shard.route.0),
            partition: self.shard.partition,
            partition_count: self.partition_count,
            tenant_scope: Bytes::copy_from_slice(&self.tenant_scope),
            limits: Some(self.limits),
            keys: self.keys.iter().map(|key| key.to_proto()).collect(),
        }
    }
}

/// Durations are not negative. That limits fit each other is checked by whoever seeds them.
fn check_limits(limits: &Limits) -> Result<(), FieldError> {
    let durations = [
        ("delay_ms_max", limits.delay_ms_max),
        ("lifetime_ms_max", limits.lifetime_ms_max),
        ("delivery_window_ms_min", limits.delivery_window_ms_min),
        ("preparation_age_ms_max", limits.preparation_age_ms_max),
        ("uuid_future_skew_ms_max", limits.uuid_future_skew_ms_max),
        ("command_retry_window_ms", limits.command_retry_window_ms),
        ("control_retry_window_ms_max", limits.control_retry_window_ms_max),
        ("broker_time_divergence_ms_max", limits.broker_time_divergence_ms_max),
        ("fence_margin_ms", limits.fence_margin_ms),
        ("clock_interval_ms_max", limits.clock_interval_ms_max),
        ("terminal_retention_ms", limits.terminal_retention_ms),
        ("dead_letter_retention_ms", limits.dead_letter_retention_ms),
        ("receipt_query_window_ms", limits.receipt_query_window_ms),
    ];
    for (name, duration_ms) in durations {
        field::not_negative(name, duration_ms)?;
    }
    Ok(())
}
