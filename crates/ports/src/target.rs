//! Setting up destinations: from what a person asks for to a pinned resource.

use futures_util::future::BoxFuture;
use protocol::resource::Resource;

/// One thing that was checked about a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetCheck {
    /// What was checked.
    pub name: &'static str,
    /// Whether it is well.
    pub ok: bool,
    /// What was found, with names and numbers.
    pub detail: String,
}

/// A target that exists and was checked.
#[derive(Clone, Debug, PartialEq)]
pub struct Target {
    /// What messages will be pinned to.
    pub resource: Resource,
    /// The topic's name, for people.
    pub topic: String,
    /// Its partitions.
    pub partition_count: u32,
    /// What one record may have: key, value and all headers.
    pub record_bytes_max: u32,
    /// What was checked, all of it well.
    pub checks: Vec<TargetCheck>,
}

/// A target that cannot be had.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum TargetError {
    /// The request is not well-formed; nothing was changed.
    #[error("{reason}")]
    Malformed {
        /// What is wrong, with names and numbers.
        reason: String,
        /// The field at fault.
        field: &'static str,
    },
    /// The request contradicts what exists; nothing was changed.
    #[error("{reason}")]
    Refused {
        /// What is wrong, with names and numbers.
        reason: String,
        /// The field at fault.
        field: &'static str,
    },
    /// A check failed; nothing was changed.
    #[error("a check failed: {}", .checks.iter().filter(|check| !check.ok).map(|check| check.detail.as_str()).collect::<Vec<_>>().join("; "))]
    CheckFailed {
        /// Everything that was checked.
        checks: Vec<TargetCheck>,
    },
    /// The system cannot be reached now.
    #[error("the destination system is unavailable: {reason}")]
    Unavailable {
        /// Why.
        reason: String,
    },
}

/// A kind of system that can be a destination, as the one who sets it up sees it.
pub trait TargetSystem: Send + Sync + 'static {
    /// Checks what is asked for and, unless it is a dry run, creates what is missing. The same request again changes nothing.
    /// `fresh_id` is 16 random bytes for a resource that has to be created.
    fn resolve(
        &self,
        spec: serde_json::Value,
        fresh_id: [u8; 16],
        dry_run: bool,
    ) -> BoxFuture<'static, Result<Target, TargetError>>;
}
