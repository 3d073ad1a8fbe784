//! One record of the shard log: what apply is given for every value that the broker has.
//!
//! A record that cannot be trusted is set aside at its position; one that is sound but of a version nobody activated is
//! answered as such. Both verdicts must be the same on every node and every replay, so both are made here, from the bytes
//! alone (protocol registry §3.6).

use std::fmt;

use bytes::Bytes;

use crate::canonical::{self, CanonicalError, DecodeError};
use crate::command::{self, ClientCommand, CommandIdentity, ENVELOPE_VERSION, LOG_ENVELOPE_VERSION};
use crate::field::{Fault, FieldError};
use crate::frame::{self, FRAMING_VERSION, FrameError, RecordKind};
use crate::mutation::{self, Envelope, MutationType, Pair};
use crate::mutation_v1::MutationV1;
use crate::mutation_v2::{self, Author, BodyError, ControlKind, MutationV2};
use crate::v1;
use v1::shard_log_envelope::Record;

/// A record that is sound.
#[derive(Debug, Clone, PartialEq)]
pub enum LogRecord {
    /// A command of a client.
    Command(ClientCommand),
    /// A mutation of body version 1: sound, and never applied.
    MutationV1(Box<MutationV1>),
    /// A mutation of body version 2.
    MutationV2(MutationV2),
}

/// Why a record is not to be applied.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// It cannot be trusted.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// A command of a version that is not activated.
    #[error("a command of protocol tuple {0} is not activated")]
    UnactivatedCommand(ProtocolTuple),
    /// A mutation of something that is not activated.
    #[error("{0} is not activated")]
    UnactivatedSystem(UnactivatedSystem),
}

/// A record that cannot be trusted, and the first thing wrong with it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("malformed {part}: {fault}")]
pub struct Malformed {
    /// Which part of the record is at fault.
    pub part: Part,
    /// What is wrong.
    pub fault: MalformedFault,
    /// Of a command whose envelope is sound and whose hash holds, but whose body is not legal: who sent it, so that it can be
    /// answered instead of only set aside.
    pub identity: Option<Box<CommandIdentity>>,
}

/// What is wrong with a record.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MalformedFault {
    /// No frame.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// No canonical encoding, or a field that breaks a rule.
    #[error(transparent)]
    Content(#[from] DecodeError),
}

/// A part of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Part {
    /// The frame around everything.
    Frame,
    /// The envelope within the frame.
    Envelope,
    /// The author within the envelope.
    Author,
    /// The body within the envelope.
    Body,
}

/// The unit of version activation (protocol registry §2.4). A number that could not be read is 0; versions begin at 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProtocolTuple {
    /// Version of the frame.
    pub framing_version: u32,
    /// Version of the log envelope.
    pub log_envelope_version: u32,
    /// Kind of the record: 1 command, 2 mutation.
    pub record_kind: u32,
    /// Version of the command or mutation envelope.
    pub envelope_version: u32,
    /// Version of the body.
    pub body_version: u32,
}

/// What of a mutation is not activated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum UnactivatedSystem {
    /// A version that this code does not know.
    Version(ProtocolTuple),
    /// A legal pair of type and body version whose body is not written yet.
    Body {
        /// The type.
        mutation_type: MutationType,
        /// The version.
        body_version: u32,
    },
    /// A control kind that has no payload yet.
    ControlKind(ControlKind),
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Frame => "frame",
            Self::Envelope => "envelope",
            Self::Author => "author identity",
            Self::Body => "body",
        })
    }
}

impl fmt::Display for ProtocolTuple {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { framing_version, log_envelope_version, record_kind, envelope_version, body_version } = self;
        write!(f, "({framing_version}, {log_envelope_version}, {record_kind}, {envelope_version}, {body_version})")
    }
}

impl fmt::Display for UnactivatedSystem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Version(tuple) => write!(f, "a mutation of protocol tuple {tuple}"),
            Self::Body { mutation_type, body_version } => {
                write!(f, "{} of body version {body_version}", mutation_type.name())
            }
            Self::ControlKind(kind) => write!(f, "control kind {}", kind.as_u32()),
        }
    }
}

impl Malformed {
    fn new(part: Part, fault: impl Into<MalformedFault>) -> Self {
        Self { part, fault: fault.into(), identity: None }
    }

    /// The first byte at fault within [`Malformed::part`], where one byte is.
    #[must_use]
    pub fn offset(&self) -> Option<usize> {
        match &self.fault {
            MalformedFault::Frame(_) => None,
            MalformedFault::Content(error) => error.offset(),
        }
    }
}

impl From<CanonicalError> for MalformedFault {
    fn from(error: CanonicalError) -> Self {
        Self::Content(error.into())
    }
}

impl From<FieldError> for MalformedFault {
    fn from(error: FieldError) -> Self {
        Self::Content(error.into())
    }
}

/// Wraps whatever is wrong with one part.
fn at<E: Into<MalformedFault>>(part: Part) -> impl Fn(E) -> RecordError {
    move |error| Malformed::new(part, error).into()
}

/// Reads one value of the shard log. Byte fields of the result are slices of `value`.
///
/// # Errors
/// [`RecordError`] says whether the record cannot be trusted or is not activated. A mutation's signature is not verified here:
/// that takes the key set of the shard's state.
pub fn decode(value: &Bytes) -> Result<LogRecord, RecordError> {
    let frame = match frame::decode(value) {
        Ok(frame) => frame,
        Err(error) => return Err(foreign_frame(error)),
    };
    // Versions are read before canonical form is asked for: what is canonical in a version that we do not know, we do not know.
    let log: v1::ShardLogEnvelope = canonical::decode(&frame.payload).map_err(at(Part::Envelope))?;
    let tuple = ProtocolTuple {
        framing_version: FRAMING_VERSION.into(),
        log_envelope_version: log.log_envelope_version,
        record_kind: frame.kind.as_u8().into(),
        envelope_version: 0,
        body_version: 0,
    };
    let branch = match (&log.record, frame.kind) {
        (Some(Record::ClientCommand(envelope)), RecordKind::ClientCommand) => {
            (envelope.envelope_version, envelope.body_version)
        }
        (Some(Record::SystemMutation(envelope)), RecordKind::SystemMutation) => {
            (envelope.envelope_version, envelope.body_version)
        }
        (None, _) if log.log_envelope_version > LOG_ENVELOPE_VERSION => (0, 0),
        (None, _) => return Err(at(Part::Envelope)(FieldError::new("record", Fault::Missing))),
        (Some(_), _) => {
            return Err(at(Part::Envelope)(FieldError::new("record", Fault::Conflict { with: "the frame's kind" })));
        }
    };
    let tuple = ProtocolTuple { envelope_version: branch.0, body_version: branch.1, ..tuple };
    let body_version_known = match frame.kind {
        RecordKind::ClientCommand => command::BODY_VERSION,
        RecordKind::SystemMutation => mutation_v2::BODY_VERSION,
    };
    if tuple.log_envelope_version > LOG_ENVELOPE_VERSION
        || tuple.envelope_version > ENVELOPE_VERSION
        || tuple.body_version > body_version_known
    {
        return Err(unactivated(frame.kind, tuple));
    }
    canonical::check::<v1::ShardLogEnvelope>(&frame.payload).map_err(at(Part::Envelope))?;
    check_versions(&tuple).map_err(at(Part::Envelope))?;
    match log.record {
        Some(Record::ClientCommand(envelope)) => decode_command(envelope).map(LogRecord::Command),
        Some(Record::SystemMutation(envelope)) => decode_mutation(envelope),
        None => Err(at(Part::Envelope)(FieldError::new("record", Fault::Missing))),
    }
}

/// A whole frame of another framing version is not activated; anything else that is no frame cannot be trusted.
fn foreign_frame(error: FrameError) -> RecordError {
    if let FrameError::Version { found, kind } = error
        && let Some(kind) = RecordKind::from_u8(kind)
        && found > FRAMING_VERSION
    {
        return unactivated(
            kind,
            ProtocolTuple {
                framing_version: found.into(),
                log_envelope_version: 0,
                record_kind: kind.as_u8().into(),
                envelope_version: 0,
                body_version: 0,
            },
        );
    }
    at(Part::Frame)(error)
}

fn unactivated(kind: RecordKind, tuple: ProtocolTuple) -> RecordError {
    match kind {
        RecordKind::ClientCommand => RecordError::UnactivatedCommand(tuple),
        RecordKind::SystemMutation => RecordError::UnactivatedSystem(UnactivatedSystem::Version(tuple)),
    }
}

/// Versions above the known ones are dealt with before; zero is none.
fn check_versions(tuple: &ProtocolTuple) -> Result<(), FieldError> {
    let versions = [
        ("log_envelope_version", tuple.log_envelope_version),
        ("envelope_version", tuple.envelope_version),
        ("body_version", tuple.body_version),
    ];
    match versions.into_iter().find(|(_, version)| *version == 0) {
        Some((name, _)) => Err(FieldError::new(name, Fault::Zero)),
        None => Ok(()),
    }
}

fn decode_command(envelope: v1::DelayCommandEnvelope) -> Result<ClientCommand, RecordError> {
    let (command_type, identity) = command::check_envelope(&envelope).map_err(at(Part::Envelope))?;
    command::decode_body(command_type, &identity, envelope.canonical_body)
        .map_err(|error| Malformed { part: Part::Body, fault: error.into(), identity: Some(Box::new(identity)) }.into())
}

fn decode_mutation(envelope: v1::ShardSystemMutationEnvelope) -> Result<LogRecord, RecordError> {
    let body_version = envelope.body_version;
    let mutation_type = mutation::known_type(envelope.mutation_type).map_err(at(Part::Envelope))?;
    match mutation::pair(mutation_type, body_version) {
        Pair::Built => {}
        Pair::NotBuilt => {
            return Err(RecordError::UnactivatedSystem(UnactivatedSystem::Body { mutation_type, body_version }));
        }
        Pair::Illegal => {
            return Err(at(Part::Envelope)(FieldError::new("mutation_type", Fault::Conflict { with: "body_version" })));
        }
    }
    let envelope = Envelope::from_proto(envelope, mutation_type).map_err(at(Part::Envelope))?;
    if body_version == mutation_v2::BODY_VERSION {
        let author = Author::decode(&envelope.author).map_err(at(Part::Author))?;
        return match MutationV2::decode(envelope, author) {
            Ok(mutation) => Ok(LogRecord::MutationV2(mutation)),
            Err(BodyError::Malformed(error)) => Err(at(Part::Body)(error)),
            Err(BodyError::ControlKindNotBuilt(kind)) => {
                Err(RecordError::UnactivatedSystem(UnactivatedSystem::ControlKind(kind)))
            }
        };
    }
    let author = MutationV1::decode_author(&envelope.author).map_err(at(Part::Author))?;
    let mutation = MutationV1::decode(envelope, author).map_err(at(Part::Body))?;
    Ok(LogRecord::MutationV1(Box::new(mutation)))
}

impl LogRecord {
    /// The record's bytes again.
    #[must_use]
    pub fn encode_frame(&self) -> Bytes {
        match self {
            Self::Command(command) => command.encode_frame(),
            Self::MutationV1(mutation) => mutation.encode_frame(),
            Self::MutationV2(mutation) => mutation.encode_frame(),
        }
    }
}
