//! Retry policies: the V1 semantic object, unchanged (protocol registry §2.12).
//!
//! A policy is published once and named by its hash from then on, so a message keeps the policy it was scheduled with.

use bytes::Bytes;

use crate::canonical::{self, DecodeError, decode_canonical};
use crate::field::{self, Fault, FieldError};
use crate::hash::{Hash, Preimage};
use crate::reference::RetryPolicyRef;
use crate::v1;
pub use crate::v1::UncertainPolicy;

const ENVELOPE_VERSION: u32 = 1;
const JITTER_ALGORITHM_VERSION: u32 = 1;

/// How publishing of a message is retried.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RetryPolicy {
    /// Its name, at least one byte.
    pub id: Bytes,
    /// Its version, from 1.
    pub version: u64,
    /// Longest wait after the first attempt, in milliseconds.
    pub initial_backoff_ms: u64,
    /// Longest wait ever, in milliseconds; at least the initial one.
    pub backoff_ms_max: u64,
    /// Attempts in all, from 1.
    pub publish_admissions_max: u32,
    /// Time from the first attempt to the last, in milliseconds, from 1.
    pub retry_duration_ms_max: u64,
    /// What follows an attempt whose outcome nobody knows.
    pub uncertain: UncertainPolicy,
    /// Automatic retries beside an uncertain attempt: from 1 to below `publish_admissions_max` when the policy allows a
    /// possible duplicate, otherwise 0.
    pub uncertain_retries_max: u32,
    /// Whether and how dead letters are exported.
    pub dlq: DlqExport,
    /// Digest of the terminal policy.
    pub terminal_policy_digest: Hash,
}

/// Whether and how dead letters are exported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DlqExport {
    /// They stay inside.
    NotConfigured,
    /// They are published at least once.
    AtLeastOnce {
        /// Longest wait after the first attempt, in milliseconds.
        initial_backoff_ms: u64,
        /// Longest wait ever, in milliseconds; at least the initial one.
        backoff_ms_max: u64,
        /// Attempts in all, from 1.
        attempts_max: u32,
        /// Time from the first attempt to the last, in milliseconds, from 1.
        retry_duration_ms_max: u64,
        /// Whether an attempt of unknown outcome may be repeated.
        allow_possible_duplicate: bool,
    },
}

impl RetryPolicy {
    /// Reads a policy.
    ///
    /// # Errors
    /// [`DecodeError`] for bytes that are no canonical policy, a policy that contradicts itself, or a hash that is not its
    /// own.
    pub fn decode(bytes: &Bytes) -> Result<Self, DecodeError> {
        Ok(Self::from_proto(decode_canonical(bytes)?)?)
    }

    /// The canonical bytes.
    ///
    /// # Errors
    /// [`FieldError`] for a policy that contradicts itself.
    pub fn encode(&self) -> Result<Bytes, FieldError> {
        self.check()?;
        Ok(canonical::encode(&self.to_proto()))
    }

    /// The hash that names this version.
    #[must_use]
    pub fn semantic_hash(&self) -> Hash {
        let covered = v1::RetryPolicySemantic { policy_id: None, version: None, ..self.body() };
        Preimage::new("nereus-delay-retry-policy-semantic-v1\0")
            .lp32(&self.id)
            .u64(self.version)
            .lp32(&canonical::encode(&covered))
            .sha256()
    }

    /// The reference to this version.
    #[must_use]
    pub fn reference(&self) -> RetryPolicyRef {
        RetryPolicyRef { id: self.id.clone(), version: self.version, semantic_hash: self.semantic_hash() }
    }

    /// All fields but the hash.
    fn body(&self) -> v1::RetryPolicySemantic {
        let (mode, initial, most, attempts, duration, duplicate) = match self.dlq {
            DlqExport::NotConfigured => (v1::DlqExportMode::NotConfigured, 0, 0, 0, 0, false),
            DlqExport::AtLeastOnce {
                initial_backoff_ms,
                backoff_ms_max,
                attempts_max,
                retry_duration_ms_max,
                allow_possible_duplicate,
            } => (
                v1::DlqExportMode::BaselineAtLeastOnce,
                initial_backoff_ms,
                backoff_ms_max,
                attempts_max,
                retry_duration_ms_max,
                allow_possible_duplicate,
            ),
        };
        v1::RetryPolicySemantic {
            envelope_version: Some(ENVELOPE_VERSION),
            policy_id: Some(self.id.clone()),
            version: Some(self.version),
            initial_backoff_ms: Some(self.initial_backoff_ms),
            max_backoff_ms: Some(self.backoff_ms_max),
            max_publish_admissions: Some(self.publish_admissions_max),
            max_retry_duration_ms: Some(self.retry_duration_ms_max),
            uncertain_policy: Some(self.uncertain.into()),
            max_uncertain_retries: Some(self.uncertain_retries_max),
            dlq_export_mode: Some(mode.into()),
            dlq_initial_backoff_ms: Some(initial),
            dlq_max_backoff_ms: Some(most),
            dlq_max_attempts: Some(attempts),
            dlq_max_retry_duration_ms: Some(duration),
            dlq_allow_possible_duplicate: Some(duplicate),
            jitter_algorithm_version: Some(JITTER_ALGORITHM_VERSION),
            terminal_policy_digest: Some(Bytes::copy_from_slice(&self.terminal_policy_digest)),
            semantic_hash: None,
        }
    }

    fn to_proto(&self) -> v1::RetryPolicySemantic {
        v1::RetryPolicySemantic { semantic_hash: Some(Bytes::copy_from_slice(&self.semantic_hash())), ..self.body() }
    }

    fn from_proto(proto: v1::RetryPolicySemantic) -> Result<Self, FieldError> {
        let need = field::required::<u64>;
        let version = field::required("envelope_version", proto.envelope_version)?;
        field::fixed("envelope_version", version, ENVELOPE_VERSION.into())?;
        let jitter = field::required("jitter_algorithm_version", proto.jitter_algorithm_version)?;
        field::fixed("jitter_algorithm_version", jitter, JITTER_ALGORITHM_VERSION.into())?;
        let initial_backoff_ms = need("dlq_initial_backoff_ms", proto.dlq_initial_backoff_ms)?;
        let backoff_ms_max = need("dlq_max_backoff_ms", proto.dlq_max_backoff_ms)?;
        let attempts_max = field::required("dlq_max_attempts", proto.dlq_max_attempts)?;
        let retry_duration_ms_max = need("dlq_max_retry_duration_ms", proto.dlq_max_retry_duration_ms)?;
        let allow_possible_duplicate =
            field::required("dlq_allow_possible_duplicate", proto.dlq_allow_possible_duplicate)?;
        let dlq = match known("dlq_export_mode", proto.dlq_export_mode)? {
            v1::DlqExportMode::BaselineAtLeastOnce => DlqExport::AtLeastOnce {
                initial_backoff_ms,
                backoff_ms_max,
                attempts_max,
                retry_duration_ms_max,
                allow_possible_duplicate,
            },
            v1::DlqExportMode::NotConfigured => {
                let unused = (initial_backoff_ms, backoff_ms_max, attempts_max, retry_duration_ms_max);
                if unused != (0, 0, 0, 0) || allow_possible_duplicate {
                    return Err(FieldError::new("dlq_export_mode", Fault::Conflict { with: "fields 11 to 15" }));
                }
                DlqExport::NotConfigured
            }
        };
        let digest = field::required("terminal_policy_digest", proto.terminal_policy_digest)?;
        let policy = Self {
            id: field::required("policy_id", proto.policy_id)?,
            version: need("version", proto.version)?,
            initial_backoff_ms: need("initial_backoff_ms", proto.initial_backoff_ms)?,
            backoff_ms_max: need("max_backoff_ms", proto.max_backoff_ms)?,
            publish_admissions_max: field::required("max_publish_admissions", proto.max_publish_admissions)?,
            retry_duration_ms_max: need("max_retry_duration_ms", proto.max_retry_duration_ms)?,
            uncertain: known("uncertain_policy", proto.uncertain_policy)?,
            uncertain_retries_max: field::required("max_uncertain_retries", proto.max_uncertain_retries)?,
            dlq,
            terminal_policy_digest: field::array("terminal_policy_digest", &digest)?,
        };
        policy.check()?;
        let hash: Hash = field::array("semantic_hash", &field::required("semantic_hash", proto.semantic_hash)?)?;
        field::derived("semantic_hash", &hash, &policy.semantic_hash())?;
        Ok(policy)
    }

    /// The rules between the fields.
    fn check(&self) -> Result<(), FieldError> {
        field::not_empty("policy_id", &self.id)?;
        field::not_zero("version", self.version)?;
        field::not_zero("max_publish_admissions", self.publish_admissions_max)?;
        field::not_zero("max_retry_duration_ms", self.retry_duration_ms_max)?;
        at_most("initial_backoff_ms", self.initial_backoff_ms, self.backoff_ms_max)?;
        let (least, most) = match self.uncertain {
            UncertainPolicy::BoundedRetryPossibleDuplicate => (1, u64::from(self.publish_admissions_max) - 1),
            UncertainPolicy::HoldForEvidence | UncertainPolicy::BoundedTerminalPossibleDelivery => (0, 0),
        };
        let retries = u64::from(self.uncertain_retries_max);
        if retries < least || retries > most {
            let fault = Fault::OutOfRange { found: retries, least, most };
            return Err(FieldError::new("max_uncertain_retries", fault));
        }
        if let DlqExport::AtLeastOnce {
            initial_backoff_ms, backoff_ms_max, attempts_max, retry_duration_ms_max, ..
        } = self.dlq
        {
            field::not_zero("dlq_max_attempts", attempts_max)?;
            field::not_zero("dlq_max_retry_duration_ms", retry_duration_ms_max)?;
            at_most("dlq_initial_backoff_ms", initial_backoff_ms, backoff_ms_max)?;
        }
        Ok(())
    }
}

fn known<T: TryFrom<i32>>(name: &'static str, value: Option<i32>) -> Result<T, FieldError> {
    field::known(name, field::required(name, value)?)
}

fn at_most(name: &'static str, found: u64, most: u64) -> Result<(), FieldError> {
    if found <= most { Ok(()) } else { Err(FieldError::new(name, Fault::OutOfRange { found, least: 0, most })) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy() -> RetryPolicy {
        RetryPolicy {
            id: Bytes::from_static(b"std"),
            version: 1,
            initial_backoff_ms: 1_000,
            backoff_ms_max: 300_000,
            publish_admissions_max: 500,
            retry_duration_ms_max: 86_400_000,
            uncertain: UncertainPolicy::BoundedRetryPossibleDuplicate,
            uncertain_retries_max: 5,
            dlq: DlqExport::NotConfigured,
            terminal_policy_digest: [0; 32],
        }
    }

    #[test]
    fn a_policy_reads_as_it_was_written() {
        let dlq = DlqExport::AtLeastOnce {
            initial_backoff_ms: 1,
            backoff_ms_max: 1,
            attempts_max: 1,
            retry_duration_ms_max: 1,
            allow_possible_duplicate: true,
        };
        for policy in [policy(), RetryPolicy { dlq, ..policy() }] {
            assert_eq!(RetryPolicy::decode(&policy.encode().unwrap()), Ok(policy));
        }
    }

    #[test]
    fn a_policy_that_contradicts_itself_is_refused() {
        let refused = |policy: RetryPolicy| policy.encode().unwrap_err().path();
        assert_eq!(refused(RetryPolicy { uncertain_retries_max: 500, ..policy() }), "max_uncertain_retries");
        assert_eq!(refused(RetryPolicy { uncertain_retries_max: 0, ..policy() }), "max_uncertain_retries");
        assert_eq!(
            refused(RetryPolicy { uncertain: UncertainPolicy::HoldForEvidence, ..policy() }),
            "max_uncertain_retries"
        );
        assert_eq!(refused(RetryPolicy { initial_backoff_ms: 300_001, ..policy() }), "initial_backoff_ms");
        assert_eq!(refused(RetryPolicy { publish_admissions_max: 0, ..policy() }), "max_publish_admissions");
    }

    #[test]
    fn the_hash_covers_every_field() {
        let hash = policy().semantic_hash();
        assert_ne!(hash, RetryPolicy { version: 2, ..policy() }.semantic_hash());
        assert_ne!(hash, RetryPolicy { id: Bytes::from_static(b"st"), ..policy() }.semantic_hash());
        assert_ne!(hash, RetryPolicy { terminal_policy_digest: [1; 32], ..policy() }.semantic_hash());
    }
}
