//! Operations of operators on a shard: everything that replay needs stands in the record itself (protocol registry §2.18).

use bytes::Bytes;
use prost::Message;

use super::genesis::{Genesis, SigningKeyEntry};
use super::profile::DestinationProfile;
use crate::field::{self, Fault, FieldError, Within};
use crate::hash::Hash;
use crate::lane::LaneId;
use crate::policy::RetryPolicy;
use crate::resource::Resource;
use crate::v2;
use v2::shard_control::Payload as Branch;

/// One operation of an operator.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ShardControl {
    /// The operation's identity; a second record with it changes nothing.
    pub operation_id: Hash,
    /// What the operator expects the version of the thing operated on to be.
    pub expected_version: Option<u64>,
    /// What is to be done.
    pub payload: ControlPayload,
}

/// What an operation does.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ControlPayload {
    /// First bindings to this profile version are allowed from here on.
    ProfileActivate(ProfileActivate),
    /// New bindings to this profile version are refused; messages already bound keep it.
    ProfileClose(ProfileVersion),
    /// Later first-seen schedules are refused.
    StopNewSchedules,
    /// A lane is paused.
    LanePause(LaneId),
    /// A lane goes on.
    LaneResume(LaneId),
    /// The first record of every partition.
    Genesis(Box<Genesis>),
    /// A key may sign from here on.
    KeyAdd(SigningKeyEntry),
    /// A key is given up; takes effect at the next `OWNER_EPOCH` that another key signs.
    KeyRetire {
        /// The key's version.
        version: u32,
    },
    /// Every version of a profile is paused, for the lanes that exist and those that come.
    DestinationPause {
        /// The profile's name.
        profile_id: Bytes,
    },
    /// A profile goes on.
    DestinationResume {
        /// The profile's name.
        profile_id: Bytes,
    },
    /// Messages may name this policy from here on.
    RetryPolicyActivate(Box<RetryPolicy>),
    /// Messages may not name this policy any more; those that do keep it.
    RetryPolicyClose {
        /// The policy's name.
        policy_id: Bytes,
        /// Its version.
        version: u64,
    },
    /// Every version of a profile delivers to a topic that was made anew, messages that are bound already included.
    DestinationRebind(Box<DestinationRebind>),
}

/// A destination whose topic was deleted and made again.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct DestinationRebind {
    /// The profile's name, at least one byte.
    pub profile_id: Bytes,
    /// The topic that takes the place of the one that the profile's body pins.
    pub resource: Resource,
}

/// A profile version that may be bound.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ProfileActivate {
    /// Which profile version.
    pub profile: ProfileVersion,
    /// What it says.
    pub body: Box<DestinationProfile>,
}

/// One version of a profile, by name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProfileVersion {
    /// The profile's name, at least one byte.
    pub id: Bytes,
    /// Its version, from 1.
    pub version: u64,
}

/// Control kinds: 1 to 14 are the registry's, 15 to 22 ours (protocol registry §2.8 and §2.18).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
#[allow(missing_docs, reason = "the names are the registry's; those that are built are explained at ControlPayload")]
pub enum ControlKind {
    ProtocolVersionActivate = 1,
    ProfileBindingActivate = 2,
    ProfileNewBindingClose = 3,
    StopNewSchedules = 4,
    GrantDecreaseOrHold = 5,
    GrantShrinkDrained = 6,
    GrantIncreaseActivate = 7,
    PauseDestinationLane = 8,
    ResumeDestinationLane = 9,
    BreakOrderingDomain = 10,
    CloseDestinationLane = 11,
    PayloadProofTrustSetActivate = 12,
    PayloadProofIssuanceClose = 13,
    InitialRouteControlActivate = 14,
    KeyAdd = 15,
    KeyRetire = 16,
    PauseDestination = 17,
    ResumeDestination = 18,
    RetryPolicyActivate = 19,
    RetryPolicyClose = 20,
    DestinationRebind = 21,
    LimitsUpdate = 22,
}

impl ControlKind {
    /// Every kind, ascending by number.
    pub const ALL: [Self; 22] = [
        Self::ProtocolVersionActivate,
        Self::ProfileBindingActivate,
        Self::ProfileNewBindingClose,
        Self::StopNewSchedules,
        Self::GrantDecreaseOrHold,
        Self::GrantShrinkDrained,
        Self::GrantIncreaseActivate,
        Self::PauseDestinationLane,
        Self::ResumeDestinationLane,
        Self::BreakOrderingDomain,
        Self::CloseDestinationLane,
        Self::PayloadProofTrustSetActivate,
        Self::PayloadProofIssuanceClose,
        Self::InitialRouteControlActivate,
        Self::KeyAdd,
        Self::KeyRetire,
        Self::PauseDestination,
        Self::ResumeDestination,
        Self::RetryPolicyActivate,
        Self::RetryPolicyClose,
        Self::DestinationRebind,
        Self::LimitsUpdate,
    ];

    /// The wire number.
    #[must_use]
    pub const fn as_u32(self) -> u32 {
        self as u32
    }

    /// The kind with this number.
    #[must_use]
    pub fn from_u32(number: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_u32() == number)
    }

    /// Whether this code has a payload for it; a record of another kind is not activated.
    #[must_use]
    pub const fn is_built(self) -> bool {
        match self {
            Self::ProfileBindingActivate
            | Self::ProfileNewBindingClose
            | Self::StopNewSchedules
            | Self::PauseDestinationLane
            | Self::ResumeDestinationLane
            | Self::InitialRouteControlActivate
            | Self::KeyAdd
            | Self::KeyRetire
            | Self::PauseDestination
            | Self::ResumeDestination
            | Self::RetryPolicyActivate
            | Self::RetryPolicyClose
            | Self::DestinationRebind => true,
            Self::ProtocolVersionActivate
            | Self::GrantDecreaseOrHold
            | Self::GrantShrinkDrained
            | Self::GrantIncreaseActivate
            | Self::BreakOrderingDomain
            | Self::CloseDestinationLane
            | Self::PayloadProofTrustSetActivate
            | Self::PayloadProofIssuanceClose
            | Self::LimitsUpdate => false,
        }
    }
}

impl ControlPayload {
    /// The kind it is the payload of.
    #[must_use]
    pub fn kind(&self) -> ControlKind {
        match self {
            Self::ProfileActivate(_) => ControlKind::ProfileBindingActivate,
            Self::ProfileClose(_) => ControlKind::ProfileNewBindingClose,
            Self::StopNewSchedules => ControlKind::StopNewSchedules,
            Self::LanePause(_) => ControlKind::PauseDestinationLane,
            Self::LaneResume(_) => ControlKind::ResumeDestinationLane,
            Self::Genesis(_) => ControlKind::InitialRouteControlActivate,
            Self::KeyAdd(_) => ControlKind::KeyAdd,
            Self::KeyRetire { .. } => ControlKind::KeyRetire,
            Self::DestinationPause { .. } => ControlKind::PauseDestination,
            Self::DestinationResume { .. } => ControlKind::ResumeDestination,
            Self::RetryPolicyActivate(_) => ControlKind::RetryPolicyActivate,
            Self::RetryPolicyClose { .. } => ControlKind::RetryPolicyClose,
            Self::DestinationRebind(_) => ControlKind::DestinationRebind,
        }
    }

    fn check(&self) -> Result<(), FieldError> {
        match self {
            Self::ProfileActivate(payload) => {
                payload.profile.check()?;
                payload.body.check().within("profile")
            }
            Self::ProfileClose(profile) => profile.check(),
            Self::StopNewSchedules | Self::LanePause(_) | Self::LaneResume(_) => Ok(()),
            Self::Genesis(genesis) => genesis.check(),
            Self::KeyAdd(key) => key.check().within("key"),
            Self::KeyRetire { version } => field::not_zero("version", *version),
            Self::DestinationPause { profile_id } | Self::DestinationResume { profile_id } => {
                field::not_empty("profile_id", profile_id)
            }
            Self::RetryPolicyActivate(policy) => policy.encode().map(drop).within("policy"),
            Self::RetryPolicyClose { policy_id, version } => {
                field::not_empty("policy_id", policy_id)?;
                field::not_zero("version", *version)
            }
            Self::DestinationRebind(rebind) => field::not_empty("profile_id", &rebind.profile_id),
        }
    }

    fn from_proto(branch: Branch) -> Result<Self, FieldError> {
        Ok(match branch {
            Branch::ProfileActivate(proto) => {
                let body = field::required("profile", proto.profile)?;
                Self::ProfileActivate(ProfileActivate {
                    profile: ProfileVersion { id: proto.profile_id, version: proto.version },
                    body: Box::new(DestinationProfile::from_proto(body).within("profile")?),
                })
            }
            Branch::ProfileClose(proto) => {
                Self::ProfileClose(ProfileVersion { id: proto.profile_id, version: proto.version })
            }
            Branch::StopNewSchedules(_) => Self::StopNewSchedules,
            Branch::LanePause(proto) => Self::LanePause(LaneId(field::array("lane_id", &proto.lane_id)?)),
            Branch::LaneResume(proto) => Self::LaneResume(LaneId(field::array("lane_id", &proto.lane_id)?)),
            Branch::Genesis(proto) => Self::Genesis(Box::new(Genesis::from_proto(&proto)?)),
            Branch::KeyAdd(proto) => {
                Self::KeyAdd(SigningKeyEntry::from_proto(field::required("key", proto.key.as_ref())?).within("key")?)
            }
            Branch::KeyRetire(proto) => Self::KeyRetire { version: proto.version },
            Branch::DestinationPause(proto) => Self::DestinationPause { profile_id: proto.profile_id },
            Branch::DestinationResume(proto) => Self::DestinationResume { profile_id: proto.profile_id },
            Branch::RetryPolicyActivate(proto) => {
                let policy = RetryPolicy::decode(&proto.policy)
                    .map_err(|error| FieldError::new("policy", Fault::Nested(Box::new(error))))?;
                Self::RetryPolicyActivate(Box::new(policy))
            }
            Branch::RetryPolicyClose(proto) => {
                Self::RetryPolicyClose { policy_id: proto.policy_id, version: proto.version }
            }
            Branch::DestinationRebind(proto) => {
                let resource = field::required("resource", proto.resource.as_ref())?;
                let resource = Resource::from_v2(resource).within("resource")?;
                Self::DestinationRebind(Box::new(DestinationRebind { profile_id: proto.profile_id, resource }))
            }
        })
    }

    fn to_proto(&self) -> Result<Branch, FieldError> {
        let lane = |lane: &LaneId| Bytes::copy_from_slice(&lane.0);
        Ok(match self {
            Self::ProfileActivate(payload) => Branch::ProfileActivate(v2::ProfileActivate {
                profile_id: payload.profile.id.clone(),
                version: payload.profile.version,
                profile: Some(payload.body.to_proto()),
            }),
            Self::ProfileClose(profile) => {
                Branch::ProfileClose(v2::ProfileClose { profile_id: profile.id.clone(), version: profile.version })
            }
            Self::StopNewSchedules => Branch::StopNewSchedules(v2::StopNewSchedules {}),
            Self::LanePause(id) => Branch::LanePause(v2::LanePause { lane_id: lane(id) }),
            Self::LaneResume(id) => Branch::LaneResume(v2::LaneResume { lane_id: lane(id) }),
            Self::Genesis(genesis) => Branch::Genesis(genesis.to_proto()),
            Self::KeyAdd(key) => Branch::KeyAdd(v2::KeyAdd { key: Some(key.to_proto()) }),
            Self::KeyRetire { version } => Branch::KeyRetire(v2::KeyRetire { version: *version }),
            Self::DestinationPause { profile_id } => {
                Branch::DestinationPause(v2::DestinationPause { profile_id: profile_id.clone() })
            }
            Self::DestinationResume { profile_id } => {
                Branch::DestinationResume(v2::DestinationResume { profile_id: profile_id.clone() })
            }
            Self::RetryPolicyActivate(policy) => {
                Branch::RetryPolicyActivate(v2::RetryPolicyActivate { policy: policy.encode().within("policy")? })
            }
            Self::RetryPolicyClose { policy_id, version } => {
                Branch::RetryPolicyClose(v2::RetryPolicyClose { policy_id: policy_id.clone(), version: *version })
            }
            Self::DestinationRebind(rebind) => Branch::DestinationRebind(v2::DestinationRebind {
                profile_id: rebind.profile_id.clone(),
                resource: Some(rebind.resource.to_v2()),
            }),
        })
    }
}

impl ProfileVersion {
    fn check(&self) -> Result<(), FieldError> {
        field::not_empty("profile_id", &self.id)?;
        field::not_zero("version", self.version)
    }
}

impl ShardControl {
    pub(super) fn check(&self) -> Result<(), FieldError> {
        self.payload.check().within("payload")
    }

    pub(super) fn from_proto(proto: v2::ShardControl) -> Result<Self, FieldError> {
        let branch = field::required("payload", proto.payload)?;
        let control = Self {
            operation_id: field::array("operation_id", &proto.operation_id)?,
            expected_version: proto.expected_version,
            payload: ControlPayload::from_proto(branch).within("payload")?,
        };
        field::same("kind", &proto.kind, "the payload's", &control.payload.kind().as_u32())?;
        control.check()?;
        Ok(control)
    }

    pub(super) fn encode(&self) -> Result<Bytes, FieldError> {
        let proto = v2::ShardControl {
            operation_id: Bytes::copy_from_slice(&self.operation_id),
            kind: self.payload.kind().as_u32(),
            expected_version: self.expected_version,
            payload: Some(self.payload.to_proto().within("payload")?),
        };
        Ok(proto.encode_to_vec().into())
    }
}
