//! Receipts: what a caller holds of a command, a reservation or an operation (protocol registry §2.13).
//!
//! A receipt is made from what is durable and can be read without the service. Its digest binds its fields to each other; it
//! proves nothing to a shard, which compares it with what it has.

mod ack;
mod command;
mod other;

use bytes::Bytes;
use prost::Message;

pub use self::ack::{BrokerAck, KafkaAck, PulsarAck};
pub use self::command::{AppliedReceipt, ApplyStatus, DestinationBinding, PreparedCommandRef, QueuedReceipt};
pub use self::other::{ControlOperationReceipt, NativeDeliveryReceipt, NativePreparedRef, PayloadReservationReceipt};
use crate::canonical::{DecodeError, decode_canonical};
use crate::field::{self, FieldError};
use crate::hash::{Hash, Preimage};
use crate::receipt_frame::{self, FrameError, ReceiptKind, TextFormError};

const RECEIPT_VERSION: u32 = 1;

/// Why bytes or text are not a receipt: what the registry calls `INVALID_RECEIPT`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReceiptError {
    /// No text form.
    #[error(transparent)]
    Text(#[from] TextFormError),
    /// No frame.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// A receipt for something else.
    #[error("a receipt of kind {found:?} instead of {expected:?}")]
    Kind {
        /// What was asked for.
        expected: ReceiptKind,
        /// What it is.
        found: ReceiptKind,
    },
    /// No canonical payload, or a field that breaks a rule.
    #[error(transparent)]
    Content(#[from] DecodeError),
}

mod sealed {
    use super::{DecodeError, Hash};

    /// How one receipt's payload is written and read.
    pub trait Payload: Sized {
        type Proto: crate::canonical::Canonical;
        const DIGEST_DOMAIN: &'static str;

        fn from_proto(proto: Self::Proto) -> Result<Self, DecodeError>;
        /// The payload without its digest.
        fn to_proto(&self) -> Self::Proto;
        fn set_digest(proto: &mut Self::Proto, digest: Hash);
        fn take_digest(proto: &mut Self::Proto) -> Option<bytes::Bytes>;
    }
}
use sealed::Payload;

/// One of the five receipts.
pub trait Receipt: sealed::Payload {
    /// Which of them.
    const KIND: ReceiptKind;

    /// The digest over all fields before it; what a later receipt refers to this one by.
    fn digest(&self) -> Hash {
        Preimage::new(Self::DIGEST_DOMAIN).bytes(&self.to_proto().encode_to_vec()).sha256()
    }

    /// The canonical payload, digest included.
    fn encode_payload(&self) -> Bytes {
        let mut proto = self.to_proto();
        Self::set_digest(&mut proto, self.digest());
        proto.encode_to_vec().into()
    }

    /// The receipt as bytes.
    fn encode_frame(&self) -> Bytes {
        receipt_frame::encode(Self::KIND, &self.encode_payload())
    }

    /// The receipt as text.
    fn to_text(&self) -> String {
        receipt_frame::to_text(&self.encode_frame())
    }

    /// Reads a payload.
    ///
    /// # Errors
    /// [`DecodeError`] for bytes that are not canonical, a field that breaks a rule, or a digest that does not follow.
    fn decode_payload(payload: &Bytes) -> Result<Self, DecodeError> {
        let mut proto: Self::Proto = decode_canonical(payload)?;
        let digest = Self::take_digest(&mut proto);
        let digest: Hash = field::array("payload_digest", &field::required("payload_digest", digest)?)?;
        let receipt = Self::from_proto(proto)?;
        field::derived("payload_digest", &digest, &receipt.digest())?;
        Ok(receipt)
    }

    /// Reads a receipt from bytes.
    ///
    /// # Errors
    /// [`ReceiptError`].
    fn decode_frame(frame: &Bytes) -> Result<Self, ReceiptError> {
        let frame = receipt_frame::decode(frame)?;
        if frame.kind != Self::KIND {
            return Err(ReceiptError::Kind { expected: Self::KIND, found: frame.kind });
        }
        Ok(Self::decode_payload(&frame.payload)?)
    }

    /// Reads a receipt from text.
    ///
    /// # Errors
    /// [`ReceiptError`].
    fn from_text(text: &str) -> Result<Self, ReceiptError> {
        Self::decode_frame(&receipt_frame::from_text(text)?)
    }
}

/// Any receipt, for whoever is handed one without knowing what it is for.
#[derive(Debug, Clone, PartialEq)]
pub enum AnyReceipt {
    /// A command that stands in the log.
    CommandQueued(Box<QueuedReceipt>),
    /// A command that was applied.
    CommandApplied(Box<AppliedReceipt>),
    /// A message handed to Pulsar's own delayed delivery.
    NativeDelivery(Box<NativeDeliveryReceipt>),
    /// A reservation for a large payload.
    PayloadReservation(Box<PayloadReservationReceipt>),
    /// An operation of an operator.
    ControlOperation(Box<ControlOperationReceipt>),
}

impl AnyReceipt {
    /// Reads a receipt of any kind from bytes.
    ///
    /// # Errors
    /// [`ReceiptError`].
    pub fn decode_frame(frame: &Bytes) -> Result<Self, ReceiptError> {
        fn read<R: Receipt>(payload: &Bytes) -> Result<Box<R>, ReceiptError> {
            Ok(Box::new(R::decode_payload(payload)?))
        }
        let frame = receipt_frame::decode(frame)?;
        Ok(match frame.kind {
            ReceiptKind::CommandQueued => Self::CommandQueued(read(&frame.payload)?),
            ReceiptKind::CommandApplied => Self::CommandApplied(read(&frame.payload)?),
            ReceiptKind::NativeDelivery => Self::NativeDelivery(read(&frame.payload)?),
            ReceiptKind::PayloadReservation => Self::PayloadReservation(read(&frame.payload)?),
            ReceiptKind::ControlOperation => Self::ControlOperation(read(&frame.payload)?),
        })
    }

    /// Reads a receipt of any kind from text.
    ///
    /// # Errors
    /// [`ReceiptError`].
    pub fn from_text(text: &str) -> Result<Self, ReceiptError> {
        Self::decode_frame(&receipt_frame::from_text(text)?)
    }
}

fn check_version(version: u32) -> Result<(), FieldError> {
    field::fixed("receipt_version", version, RECEIPT_VERSION.into())
}
