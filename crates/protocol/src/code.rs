//! Stable codes: the closed set of answers that clients and operators may rely on (protocol registry §2.15).
//!
//! A number never changes its meaning and never gets a second one; what a client may do next is a function of the code alone.

use std::fmt;

use FailureStage::{Application, Control, Enqueue, Integrity, Payload, Preparation, Publish, Query, Recovery};
use Retryability::{
    Never, NewPreparationRequired, RereadAfterRepair, RetryExactBytes, RetryExactBytesAfterExternalChange,
    RetryExactBytesAfterRetryAt,
};

/// Where in a message's life a code arises.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u32)]
pub enum FailureStage {
    /// Before anything was sent.
    Preparation = 1,
    /// On the way into the log.
    Enqueue = 2,
    /// When the log record was applied.
    Application = 3,
    /// When something was asked.
    Query = 4,
    /// Around a large payload.
    Payload = 5,
    /// In an operation of an operator.
    Control = 6,
    /// On the way to the destination.
    Publish = 7,
    /// While a shard came back.
    Recovery = 8,
    /// Where stored state contradicts itself.
    Integrity = 9,
}

/// What the caller may do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u32)]
pub enum Retryability {
    /// Nothing: the answer is final.
    Never = 1,
    /// Send the same bytes again; making new ones would make a second operation.
    RetryExactBytes = 2,
    /// The same, once the time in the answer has come.
    RetryExactBytesAfterRetryAt = 3,
    /// Correct the cause and prepare a new operation with new identities.
    NewPreparationRequired = 4,
    /// Send the same bytes again once something outside has changed.
    RetryExactBytesAfterExternalChange = 5,
    /// Ask again once the service was repaired.
    RereadAfterRepair = 6,
}

/// A number that is no stable code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{number:#06x} is no stable code")]
pub struct UnknownCode {
    /// The number.
    pub number: u32,
}

macro_rules! stable_codes {
    ($($number:literal $variant:ident $name:literal $stage:ident$(($some:ident))? $retryability:ident;)*) => {
        /// A stable code. The variants are the registry's names; the registry says what each means.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u32)]
        #[allow(missing_docs, reason = "each variant is its registry name, which docs/protocol-registry.md explains")]
        pub enum StableCode {
            $($variant = $number,)*
        }

        impl StableCode {
            /// Every code, ascending by number.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The code with this number.
            #[must_use]
            pub const fn from_u32(number: u32) -> Option<Self> {
                match number {
                    $($number => Some(Self::$variant),)*
                    _ => None,
                }
            }

            /// The registry's name, in upper case with underscores.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }

            /// Its natural stage: where a code is used at two, the earlier one. `OK` has none.
            #[must_use]
            pub const fn stage(self) -> Option<FailureStage> {
                match self {
                    $(Self::$variant => $stage$(($some))?,)*
                }
            }

            /// What the caller may do next.
            #[must_use]
            pub const fn retryability(self) -> Retryability {
                match self {
                    $(Self::$variant => $retryability,)*
                }
            }
        }
    };
}

stable_codes! {
    0x0000 Ok "OK" None Never;
    0x0101 InvalidCommand "INVALID_COMMAND" Some(Preparation) NewPreparationRequired;
    0x0102 InvalidPreparedCommand "INVALID_PREPARED_COMMAND" Some(Preparation) NewPreparationRequired;
    0x0103 PayloadTooLarge "PAYLOAD_TOO_LARGE" Some(Preparation) NewPreparationRequired;
    0x0104 InvalidMetadata "INVALID_METADATA" Some(Preparation) NewPreparationRequired;
    0x0105 UnsupportedDeliveryMode "UNSUPPORTED_DELIVERY_MODE" Some(Preparation) NewPreparationRequired;
    0x0106 RouteSnapshotUnavailable "ROUTE_SNAPSHOT_UNAVAILABLE" Some(Preparation) NewPreparationRequired;
    0x0107 PreparedCommandExpired "PREPARED_COMMAND_EXPIRED" Some(Preparation) NewPreparationRequired;
    0x0108 ClientClosed "CLIENT_CLOSED" Some(Preparation) RetryExactBytes;
    0x0109 AutoFastPrerequisiteUnavailable "AUTO_FAST_PREREQUISITE_UNAVAILABLE" Some(Enqueue) NewPreparationRequired;
    0x010a NativePreparedSubmissionExpired "NATIVE_PREPARED_SUBMISSION_EXPIRED" Some(Enqueue) NewPreparationRequired;
    0x0201 SdkBackpressureNotSubmitted "SDK_BACKPRESSURE_NOT_SUBMITTED" Some(Enqueue) RetryExactBytes;
    0x0202 BrokerDefinitiveNotPersisted "BROKER_DEFINITIVE_NOT_PERSISTED" Some(Enqueue) RetryExactBytes;
    0x0203 EnqueueResultUncertain "ENQUEUE_RESULT_UNCERTAIN" Some(Enqueue) RetryExactBytes;
    0x0204 PreparedSubmissionMismatch "PREPARED_SUBMISSION_MISMATCH" Some(Enqueue) NewPreparationRequired;
    0x0205 NativeGuardDefinitiveNotPersisted "NATIVE_GUARD_DEFINITIVE_NOT_PERSISTED" Some(Enqueue) NewPreparationRequired;
    0x0206 NativeEnqueueResultUncertain "NATIVE_ENQUEUE_RESULT_UNCERTAIN" Some(Enqueue) RetryExactBytes;
    0x0207 BrokerResourceUncertified "BROKER_RESOURCE_UNCERTIFIED" Some(Enqueue) RetryExactBytesAfterExternalChange;
    0x0208 ProducerOwnershipUnknown "PRODUCER_OWNERSHIP_UNKNOWN" Some(Enqueue) RetryExactBytes;
    0x1001 Scheduled "SCHEDULED" Some(Application) Never;
    0x1002 Canceled "CANCELED" Some(Application) Never;
    0x1003 Superseded "SUPERSEDED" Some(Application) Never;
    0x1004 NotFound "NOT_FOUND" Some(Application) NewPreparationRequired;
    0x1005 TooLate "TOO_LATE" Some(Application) Never;
    0x1006 AlreadyPublished "ALREADY_PUBLISHED" Some(Application) Never;
    0x1007 AlreadyCanceled "ALREADY_CANCELED" Some(Application) Never;
    0x1008 VersionConflict "VERSION_CONFLICT" Some(Application) NewPreparationRequired;
    0x1009 AlreadyAbandoned "ALREADY_ABANDONED" Some(Application) Never;
    0x100a AlreadyCommitted "ALREADY_COMMITTED" Some(Application) Never;
    0x100b ReservationNotCommitted "RESERVATION_NOT_COMMITTED" Some(Application) NewPreparationRequired;
    0x100c AlreadyExpired "ALREADY_EXPIRED" Some(Application) Never;
    0x100d AlreadyDeadLettered "ALREADY_DEAD_LETTERED" Some(Application) Never;
    0x100e GenerationSuperseded "GENERATION_SUPERSEDED" Some(Application) Never;
    0x1101 InvalidDeliveryWindow "INVALID_DELIVERY_WINDOW" Some(Application) NewPreparationRequired;
    0x1102 Unauthorized "UNAUTHORIZED" Some(Application) NewPreparationRequired;
    0x1103 DestinationNotAllowed "DESTINATION_NOT_ALLOWED" Some(Application) NewPreparationRequired;
    0x1104 HardQuotaExceeded "HARD_QUOTA_EXCEEDED" Some(Application) NewPreparationRequired;
    0x1105 RouteNotActive "ROUTE_NOT_ACTIVE" Some(Application) NewPreparationRequired;
    0x1106 CommandIdConflict "COMMAND_ID_CONFLICT" Some(Application) NewPreparationRequired;
    0x1107 CommandRetryWindowExpired "COMMAND_RETRY_WINDOW_EXPIRED" Some(Application) NewPreparationRequired;
    0x1108 DelayMessageIdConflict "DELAY_MESSAGE_ID_CONFLICT" Some(Application) NewPreparationRequired;
    0x1109 DelayMessageIdExpired "DELAY_MESSAGE_ID_EXPIRED" Some(Application) NewPreparationRequired;
    0x110a IngressRouteMismatch "INGRESS_ROUTE_MISMATCH" Some(Application) NewPreparationRequired;
    0x110b ProfileVersionNotActiveAtSourcePosition "PROFILE_VERSION_NOT_ACTIVE_AT_SOURCE_POSITION" Some(Application) NewPreparationRequired;
    0x110c ProfileDeprecatedForNewUse "PROFILE_DEPRECATED_FOR_NEW_USE" Some(Application) NewPreparationRequired;
    0x110d LaneClosed "LANE_CLOSED" Some(Application) NewPreparationRequired;
    0x110e LaneTerminallyClosed "LANE_TERMINALLY_CLOSED" Some(Application) NewPreparationRequired;
    0x110f OrderingDomainBroken "ORDERING_DOMAIN_BROKEN" Some(Application) NewPreparationRequired;
    0x1110 DestinationLaneLimitExceeded "DESTINATION_LANE_LIMIT_EXCEEDED" Some(Application) NewPreparationRequired;
    0x1111 OrderingCapabilityUnavailable "ORDERING_CAPABILITY_UNAVAILABLE" Some(Application) NewPreparationRequired;
    0x1112 ServerInvalidCommand "SERVER_INVALID_COMMAND" Some(Application) NewPreparationRequired;
    0x1113 ServerPayloadTooLarge "SERVER_PAYLOAD_TOO_LARGE" Some(Application) NewPreparationRequired;
    0x1114 ServerInvalidMetadata "SERVER_INVALID_METADATA" Some(Application) NewPreparationRequired;
    0x1115 ServerUnsupportedDeliveryMode "SERVER_UNSUPPORTED_DELIVERY_MODE" Some(Application) NewPreparationRequired;
    0x1116 RetryPolicyNotActiveAtSourcePosition "RETRY_POLICY_NOT_ACTIVE_AT_SOURCE_POSITION" Some(Application) NewPreparationRequired;
    0x2001 UnactivatedProtocolVersion "UNACTIVATED_PROTOCOL_VERSION" Some(Application) NewPreparationRequired;
    0x2002 UnactivatedSystemProtocolVersion "UNACTIVATED_SYSTEM_PROTOCOL_VERSION" Some(Application) NewPreparationRequired;
    0x2003 UnauthorizedSystemMutation "UNAUTHORIZED_SYSTEM_MUTATION" Some(Application) NewPreparationRequired;
    0x2004 SystemMutationRetryWindowExpired "SYSTEM_MUTATION_RETRY_WINDOW_EXPIRED" Some(Application) NewPreparationRequired;
    0x2005 StaleSystemMutation "STALE_SYSTEM_MUTATION" Some(Application) NewPreparationRequired;
    0x2006 AdmissionCapacityGated "ADMISSION_CAPACITY_GATED" Some(Publish) NewPreparationRequired;
    0x2007 QuarantinedSourceRecord "QUARANTINED_SOURCE_RECORD" Some(Integrity) NewPreparationRequired;
    0x3001 InvalidReceipt "INVALID_RECEIPT" Some(Query) Never;
    0x3002 ReceiptMismatch "RECEIPT_MISMATCH" Some(Query) Never;
    0x3003 ResultExpired "RESULT_EXPIRED" Some(Query) Never;
    0x3004 ResultEvidenceExpired "RESULT_EVIDENCE_EXPIRED" Some(Query) Never;
    0x3005 NotFoundOrNotAuthorized "NOT_FOUND_OR_NOT_AUTHORIZED" Some(Query) Never;
    0x3006 ShardTransitioning "SHARD_TRANSITIONING" Some(Query) RetryExactBytesAfterRetryAt;
    0x3007 ShardUnavailable "SHARD_UNAVAILABLE" Some(Query) RereadAfterRepair;
    0x3008 IntegrityError "INTEGRITY_ERROR" Some(Integrity) RereadAfterRepair;
    0x4001 PayloadObjectConflict "PAYLOAD_OBJECT_CONFLICT" Some(Payload) NewPreparationRequired;
    0x4002 PayloadCommitConflict "PAYLOAD_COMMIT_CONFLICT" Some(Payload) NewPreparationRequired;
    0x4003 PayloadProofInvalid "PAYLOAD_PROOF_INVALID" Some(Payload) NewPreparationRequired;
    0x4004 PayloadProofKeyNotAuthorizedAtSourcePosition "PAYLOAD_PROOF_KEY_NOT_AUTHORIZED_AT_SOURCE_POSITION" Some(Payload) NewPreparationRequired;
    0x4005 ReservationExpired "RESERVATION_EXPIRED" Some(Payload) NewPreparationRequired;
    0x4006 ReservationAbandoned "RESERVATION_ABANDONED" Some(Payload) NewPreparationRequired;
    0x4007 PayloadReservationClosed "PAYLOAD_RESERVATION_CLOSED" Some(Payload) NewPreparationRequired;
    0x4008 ObjectNotReadyRetryable "OBJECT_NOT_READY_RETRYABLE" Some(Payload) RetryExactBytesAfterRetryAt;
    0x4009 ObjectStoreUnavailableRetryable "OBJECT_STORE_UNAVAILABLE_RETRYABLE" Some(Payload) RetryExactBytesAfterRetryAt;
    0x400a ObjectIdentityConflict "OBJECT_IDENTITY_CONFLICT" Some(Payload) NewPreparationRequired;
    0x400b PayloadReservationAbandoned "PAYLOAD_RESERVATION_ABANDONED" Some(Payload) NewPreparationRequired;
    0x5001 CapabilityUnavailable "CAPABILITY_UNAVAILABLE" Some(Publish) RetryExactBytesAfterExternalChange;
    0x5002 ResourceIncarnationMismatch "RESOURCE_INCARNATION_MISMATCH" Some(Publish) NewPreparationRequired;
    0x5003 SourceIncarnationMismatch "SOURCE_INCARNATION_MISMATCH" Some(Recovery) NewPreparationRequired;
    0x5004 PulsarEvidenceDivergence "PULSAR_EVIDENCE_DIVERGENCE" Some(Publish) RereadAfterRepair;
    0x5005 RecoveryFirstSendUncertain "RECOVERY_FIRST_SEND_UNCERTAIN" Some(Publish) Never;
    0x5006 ClosedWithOutstandingAttempts "CLOSED_WITH_OUTSTANDING_ATTEMPTS" Some(Control) Never;
    0x5007 LaneClosedAfterAdmissionNotPublished "LANE_CLOSED_AFTER_ADMISSION_NOT_PUBLISHED" Some(Publish) Never;
    0x5008 LaneClosedBeforeAdmission "LANE_CLOSED_BEFORE_ADMISSION" Some(Publish) Never;
    0x5009 ReplayWindowExpired "REPLAY_WINDOW_EXPIRED" Some(Control) NewPreparationRequired;
    0x500a AlreadyOpen "ALREADY_OPEN" Some(Control) Never;
    0x500b CredentialEquivalenceNotProven "CREDENTIAL_EQUIVALENCE_NOT_PROVEN" Some(Control) NewPreparationRequired;
    0x500c CredentialBindingDrift "CREDENTIAL_BINDING_DRIFT" Some(Publish) RetryExactBytesAfterExternalChange;
    0x5101 ClaimPermanentFailure "CLAIM_PERMANENT_FAILURE" Some(Publish) Never;
    0x5102 DestinationDefinitiveRetriable "DESTINATION_DEFINITIVE_RETRIABLE" Some(Publish) Never;
    0x5103 DestinationDefinitivePermanent "DESTINATION_DEFINITIVE_PERMANENT" Some(Publish) Never;
    0x5104 DestinationOutcomeUnknown "DESTINATION_OUTCOME_UNKNOWN" Some(Publish) Never;
    0x5105 DlqExportDefinitiveRetriable "DLQ_EXPORT_DEFINITIVE_RETRIABLE" Some(Publish) Never;
    0x5106 DlqExportDefinitivePermanent "DLQ_EXPORT_DEFINITIVE_PERMANENT" Some(Publish) Never;
    0x5107 DlqExportOutcomeUnknown "DLQ_EXPORT_OUTCOME_UNKNOWN" Some(Publish) Never;
    0x6001 SourceGap "SOURCE_GAP" Some(Recovery) RereadAfterRepair;
    0x6002 UnsupportedActivatedProtocol "UNSUPPORTED_ACTIVATED_PROTOCOL" Some(Recovery) RereadAfterRepair;
    0x6003 FenceStalledCapacity "FENCE_STALLED_CAPACITY" Some(Recovery) RetryExactBytesAfterExternalChange;
}

impl StableCode {
    /// The wire number.
    #[must_use]
    pub const fn as_u32(self) -> u32 {
        self as u32
    }

    /// The code with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|code| code.name() == name)
    }
}

impl TryFrom<u32> for StableCode {
    type Error = UnknownCode;

    fn try_from(number: u32) -> Result<Self, UnknownCode> {
        Self::from_u32(number).ok_or(UnknownCode { number })
    }
}

impl From<StableCode> for u32 {
    fn from(code: StableCode) -> Self {
        code.as_u32()
    }
}

impl fmt::Display for StableCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Debug for StableCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}({:#06x})", self.name(), self.as_u32())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_names_are_one_to_one_and_ascending() {
        assert_eq!(StableCode::ALL.len(), 103);
        for pair in StableCode::ALL.windows(2) {
            assert!(pair[0].as_u32() < pair[1].as_u32(), "{pair:?}");
        }
        for code in StableCode::ALL {
            assert_eq!(StableCode::from_u32(code.as_u32()), Some(*code));
            assert_eq!(StableCode::from_name(code.name()), Some(*code));
        }
        assert_eq!(StableCode::try_from(0x1117), Err(UnknownCode { number: 0x1117 }));
        assert_eq!(UnknownCode { number: 0x1117 }.to_string(), "0x1117 is no stable code");
    }

    #[test]
    fn what_may_be_done_next_follows_from_the_code() {
        let exact: Vec<_> = StableCode::ALL
            .iter()
            .filter(|code| code.retryability() == RetryExactBytes)
            .map(|code| code.name())
            .collect();
        assert_eq!(
            exact,
            [
                "CLIENT_CLOSED",
                "SDK_BACKPRESSURE_NOT_SUBMITTED",
                "BROKER_DEFINITIVE_NOT_PERSISTED",
                "ENQUEUE_RESULT_UNCERTAIN",
                "NATIVE_ENQUEUE_RESULT_UNCERTAIN",
                "PRODUCER_OWNERSHIP_UNKNOWN",
            ]
        );
        assert_eq!(StableCode::Ok.stage(), None);
        assert_eq!(StableCode::TooLate.stage(), Some(Application));
    }
}
