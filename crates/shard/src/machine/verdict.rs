//! What a record came to: the result of a command, of a position, of an owner's or operator's record.

use std::fmt;

use protocol::code::StableCode;
use protocol::id::{CommandId, MessageId};

use crate::state::{MessageUuid, message_uuid, row, uuid_bytes};

/// Whether a command was evaluated against state, or not admitted to it (protocol registry §4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Status {
    /// Evaluated; the code says with what result, which may be "not found" or "too late".
    Applied,
    /// Refused before evaluation.
    Rejected,
}

/// Which rule of a code refused, so that an answer can name the limit. Numbers are persisted and never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u32)]
pub enum Rule {
    /// The code says it all.
    None = 0,
    /// T12: the command id's time is older than a preparation may be.
    CommandTooOld = 1,
    /// T12: the command id's time is too far ahead of the log's clock.
    CommandInFuture = 2,
    /// T13a: the retry deadline is not the command id's time plus the retry window.
    RetryUntilMismatch = 3,
    /// T12 for the message id.
    MessageTooOld = 4,
    /// T12 for the message id.
    MessageInFuture = 5,
    /// T1: less than the shortest window between delivery and expiry.
    WindowTooShort = 6,
    /// T2: delivery too far ahead.
    DelayTooLong = 7,
    /// T3: expiry too far ahead.
    LifetimeTooLong = 8,
    /// The deadline is closed already.
    DeadlineClosed = 9,
    /// The shard's number of live messages.
    ActiveMessages = 10,
    /// The shard's bytes of live payloads.
    ActiveBytes = 11,
    /// A live message has this business key.
    BusinessKeyInUse = 12,
    /// A header name that only delivery may write.
    ReservedHeader = 13,
    /// A null marker that contradicts the record.
    NullMarker = 14,
    /// Metadata of another adapter than the profile's.
    AdapterMismatch = 15,
    /// The business key is longer than allowed.
    BusinessKeyTooLong = 16,
    /// The log does not accept this trusted interval: too wide.
    IntervalTooWide = 17,
    /// The policy waits for evidence, which nobody can attach yet.
    HoldPolicy = 18,
    /// The body is well-formed and contradicts itself.
    InvalidBody = 19,
    /// Another record of this epoch or run is in force.
    NotTheOwner = 20,
    /// The signature does not verify under a key of this role.
    Signature = 21,
    /// The record is for another shard.
    WrongShard = 22,
    /// A fence that its own time does not prove, or that is ahead of the log's clock.
    FenceNotProven = 23,
    /// A record type or control kind that this build does not apply.
    NotBuilt = 24,
    /// A second genesis.
    GenesisRepeated = 25,
    /// More entries than the log allows in one record.
    TooManyEntries = 26,
    /// The last key of a role may not go.
    LastKey = 27,
    /// A rebinding to a topic of another kind of destination system than the profile's.
    ResourceMismatch = 28,
}

impl Rule {
    /// Every rule, ascending by number.
    pub const ALL: [Rule; 29] = [
        Rule::None,
        Rule::CommandTooOld,
        Rule::CommandInFuture,
        Rule::RetryUntilMismatch,
        Rule::MessageTooOld,
        Rule::MessageInFuture,
        Rule::WindowTooShort,
        Rule::DelayTooLong,
        Rule::LifetimeTooLong,
        Rule::DeadlineClosed,
        Rule::ActiveMessages,
        Rule::ActiveBytes,
        Rule::BusinessKeyInUse,
        Rule::ReservedHeader,
        Rule::NullMarker,
        Rule::AdapterMismatch,
        Rule::BusinessKeyTooLong,
        Rule::IntervalTooWide,
        Rule::HoldPolicy,
        Rule::InvalidBody,
        Rule::NotTheOwner,
        Rule::Signature,
        Rule::WrongShard,
        Rule::FenceNotProven,
        Rule::NotBuilt,
        Rule::GenesisRepeated,
        Rule::TooManyEntries,
        Rule::LastKey,
        Rule::ResourceMismatch,
    ];

    /// The rule of a persisted number; [`Rule::None`] for one of a newer version.
    pub fn from_number(number: u32) -> Rule {
        Rule::ALL.into_iter().find(|rule| *rule as u32 == number).unwrap_or(Rule::None)
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Rule::None => "no further rule",
            Rule::CommandTooOld => "the command was prepared too long ago",
            Rule::CommandInFuture => "the command's id is ahead of the log's clock",
            Rule::RetryUntilMismatch => "the retry deadline does not follow from the command's id",
            Rule::MessageTooOld => "the message's id was made too long ago",
            Rule::MessageInFuture => "the message's id is ahead of the log's clock",
            Rule::WindowTooShort => "too little time between delivery and expiry",
            Rule::DelayTooLong => "delivery is too far ahead",
            Rule::LifetimeTooLong => "expiry is too far ahead",
            Rule::DeadlineClosed => "the expiry has passed",
            Rule::ActiveMessages => "the shard holds as many live messages as it may",
            Rule::ActiveBytes => "the shard holds as many bytes of live messages as it may",
            Rule::BusinessKeyInUse => "the id is in use by a live message",
            Rule::ReservedHeader => "a header's name is reserved for delivery",
            Rule::NullMarker => "the null marker contradicts the record",
            Rule::AdapterMismatch => "the metadata is of another kind of destination",
            Rule::BusinessKeyTooLong => "the id is too long",
            Rule::IntervalTooWide => "the trusted interval is too wide",
            Rule::HoldPolicy => "a policy that holds attempts for evidence is not supported",
            Rule::InvalidBody => "the body contradicts itself",
            Rule::NotTheOwner => "another owner's record is in force",
            Rule::Signature => "the signature does not verify",
            Rule::WrongShard => "it is for another shard",
            Rule::FenceNotProven => "the fence's time does not prove it",
            Rule::NotBuilt => "this version does not carry it out",
            Rule::GenesisRepeated => "the shard has its genesis",
            Rule::TooManyEntries => "more entries than one record may have",
            Rule::LastKey => "the last key of a role may not go",
            Rule::ResourceMismatch => "the topic is of another kind of destination system",
        })
    }
}

/// The logical result of a command. The first copy of a command decides it, for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Evaluated or refused.
    pub status: Status,
    /// The stable code.
    pub code: StableCode,
    /// Which rule of the code.
    pub rule: Rule,
    /// The message's generation after the command, where there is a message.
    pub generation: Option<u32>,
    /// The message's state version after the command, where there is a message.
    pub state_version: Option<u64>,
    /// The message that stands in the way, where it is another than the command's.
    pub other_message: Option<MessageUuid>,
}

impl Verdict {
    pub(crate) fn rejected(code: StableCode, rule: Rule) -> Verdict {
        Verdict { status: Status::Rejected, code, rule, generation: None, state_version: None, other_message: None }
    }

    pub(crate) fn applied(code: StableCode, row: Option<&row::Message>) -> Verdict {
        Verdict {
            status: Status::Applied,
            code,
            rule: Rule::None,
            generation: row.map(|row| row.generation),
            state_version: row.map(|row| row.state_version),
            other_message: None,
        }
    }

    pub(crate) fn to_row(self) -> row::Verdict {
        row::Verdict {
            status: match self.status {
                Status::Applied => 1,
                Status::Rejected => 2,
            },
            code: self.code.as_u32(),
            rule: self.rule as u32,
            // State versions start at 1, so the pair is there exactly when the version is not zero.
            generation: self.generation.unwrap_or_default(),
            state_version: self.state_version.unwrap_or_default(),
            message: self.other_message.map(uuid_bytes).unwrap_or_default(),
        }
    }

    /// Reads a stored verdict. `None` for one that this version cannot have written.
    pub(crate) fn from_row(row: &row::Verdict) -> Option<Verdict> {
        let has_message = row.state_version > 0;
        Some(Verdict {
            status: match row.status {
                1 => Status::Applied,
                2 => Status::Rejected,
                _ => return None,
            },
            code: StableCode::from_u32(row.code)?,
            rule: Rule::from_number(row.rule),
            generation: has_message.then_some(row.generation),
            state_version: has_message.then_some(row.state_version),
            other_message: message_uuid(&row.message),
        })
    }
}

/// What a position came to that holds no first copy of an admissible command or mutation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PositionVerdict {
    /// The stable code.
    pub code: StableCode,
    /// Which rule of the code.
    pub rule: Rule,
    /// For people: what was wrong, with numbers.
    pub detail: String,
}

/// What one record of a run came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordResult {
    /// The first copy of a command.
    Command {
        /// The command.
        command: CommandId,
        /// The message it names.
        message: MessageId,
        /// Its result.
        verdict: Verdict,
    },
    /// Another copy of a command that was already decided.
    Duplicate {
        /// The command.
        command: CommandId,
        /// The message it names.
        message: MessageId,
        /// The result of the first copy, which stands.
        verdict: Verdict,
    },
    /// A record that was refused, quarantined or stale as a whole.
    Position(PositionVerdict),
    /// An owner's record that was in force.
    Owner {
        /// Entries that took effect.
        accepted: u32,
        /// Entries whose precondition no longer held.
        failed: u32,
    },
    /// An operator's record.
    Control {
        /// The operation.
        operation_id: [u8; 32],
        /// Its result.
        code: StableCode,
        /// Which rule of the code.
        rule: Rule,
    },
}
