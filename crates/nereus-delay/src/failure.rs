//! What a command ends with when it does not succeed: a line for people and an exit code for scripts.

use client::api::problem::Problem;
use client::http::ClientError;

/// Why a command ends as it does.
#[derive(Debug)]
pub(crate) struct Failure {
    /// The exit code.
    pub(crate) exit: Exit,
    /// For standard error.
    pub(crate) text: String,
    /// The server's answer, where it gave one.
    pub(crate) problem: Option<Box<Problem>>,
}

/// Exit codes, as `--help` lists them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Exit {
    /// Done.
    Done = 0,
    /// Failed, or refused.
    Failed = 1,
    /// The command line is wrong.
    Usage = 2,
    /// A conflict, or too late.
    Conflict = 3,
    /// Not there, or not any more.
    NotFound = 4,
    /// It may or may not have happened.
    OutcomeUnknown = 5,
}

impl Exit {
    /// What an HTTP status means for a script.
    pub(crate) fn from_status(status: u16) -> Exit {
        match status {
            409 | 412 => Exit::Conflict,
            404 | 410 => Exit::NotFound,
            504 => Exit::OutcomeUnknown,
            _ => Exit::Failed,
        }
    }
}

impl Failure {
    /// A failure that is nobody's answer.
    pub(crate) fn new(exit: Exit, text: impl Into<String>) -> Failure {
        Failure { exit, text: text.into(), problem: None }
    }

    /// A command line that makes no sense.
    pub(crate) fn usage(text: impl Into<String>) -> Failure {
        Failure::new(Exit::Usage, text)
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Failure {
        match error {
            ClientError::Problem(problem) => {
                let mut text = format!("{}: {}", problem.code, problem.detail);
                if let Some(field) = &problem.field {
                    text.push_str(&format!(" [{field}]"));
                }
                for check in problem.checks.iter().filter(|check| !check.ok) {
                    text.push_str(&format!("\n  {}: {}", check.name, check.detail));
                }
                text.push_str(&format!("\nnereus-delay explain {} says more", problem.code));
                Failure { exit: Exit::from_status(problem.status), text, problem: Some(problem) }
            }
            ClientError::Unreachable { ref server, .. } => {
                let text =
                    format!("{error}\nIs it running? nereus-delay serve starts one; --server names another ({server})");
                Failure::new(Exit::Failed, text)
            }
            ClientError::OutcomeUnknown { .. } => Failure::new(Exit::OutcomeUnknown, error.to_string()),
            ClientError::Address { .. } => Failure::usage(error.to_string()),
            ClientError::NotUnderstood { .. } => Failure::new(Exit::Failed, error.to_string()),
        }
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Failure {
        Failure::new(Exit::Failed, format!("{error:#}"))
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Failure {
        Failure::new(Exit::Failed, format!("cannot write the output: {error}"))
    }
}
