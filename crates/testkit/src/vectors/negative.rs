//! Malformed values: the registry's verdict on each must be ours.

use bytes::Bytes;
use protocol::command::PayloadCommitProof;
use protocol::id::{CommandId, MessageId};
use protocol::lane::LaneTuple;
use protocol::position::SourcePosition;
use protocol::receipt::{
    AnyReceipt, AppliedReceipt, ControlOperationReceipt, NativeDeliveryReceipt, PayloadReservationReceipt,
    QueuedReceipt, Receipt,
};
use protocol::receipt_frame;
use protocol::record::{self, LogRecord, RecordError};

use super::Verdict;
use super::json::{Node, Problem};
use super::receipt::{ack_layout, with_wrapper};

/// What a decoder says of an input.
enum Answer {
    /// It decodes, and encodes to the same bytes again.
    Accepted,
    /// It is refused, for this reason.
    Refused(String),
    /// It is sound and of something that is not activated.
    Unactivated(String),
}

pub(super) fn check(case: &Node<'_>) -> Verdict {
    let decoder = case.get("decoder")?.text()?;
    let answer = match case.maybe("input_text") {
        Some(text) => decode_text(decoder, text.text()?)?,
        None => decode(decoder, &case.get("input_hex")?.bytes()?)?,
    };
    let wanted = case.get("spec_verdict")?.text()?;
    let (found, reason) = match answer {
        Answer::Accepted => ("accept", String::new()),
        Answer::Refused(reason) => ("reject", reason),
        // Whoever decodes frames of version 1 alone must refuse these too.
        Answer::Unactivated(reason) if wanted == "reject" => ("reject", reason),
        Answer::Unactivated(reason) => ("unactivated", reason),
    };
    match wanted {
        "unspecified" => {
            let ours = if reason.is_empty() { found.to_owned() } else { format!("{found} ({reason})") };
            Ok((Vec::new(), vec![format!("the registry leaves this open; here: {ours}")]))
        }
        "accept" | "reject" | "unactivated" if wanted == found => Ok((Vec::new(), Vec::new())),
        "accept" | "reject" | "unactivated" => {
            let reason = if reason.is_empty() { String::new() } else { format!(": {reason}") };
            Ok((vec![format!("{decoder}: the verdict is {wanted}, found {found}{reason}")], Vec::new()))
        }
        other => Err(Problem::Refused(format!("verdict {other} is not known here"))),
    }
}

/// The answer to a value that was decoded; what it encodes to must be what it was decoded from.
fn answer<T, E: std::fmt::Display>(
    input: &[u8],
    decoded: Result<T, E>,
    encode: impl Fn(&T) -> Bytes,
) -> Result<Answer, Problem> {
    match decoded {
        Err(error) => Ok(Answer::Refused(error.to_string())),
        Ok(value) if encode(&value) == input => Ok(Answer::Accepted),
        Ok(_) => Err(Problem::Refused("it decodes to a value that encodes to other bytes".to_owned())),
    }
}

fn decode(decoder: &str, input: &Bytes) -> Result<Answer, Problem> {
    match decoder {
        "command_frame" => record(input, |record| matches!(record, LogRecord::Command(_))),
        "system_mutation_frame" => record(input, |record| !matches!(record, LogRecord::Command(_))),
        "log_record" => record(input, |_| true),
        "queued_receipt_frame" => receipt::<QueuedReceipt>(input),
        "applied_receipt_frame" => receipt::<AppliedReceipt>(input),
        "payload_reservation_receipt_frame" => receipt::<PayloadReservationReceipt>(input),
        "control_operation_receipt_frame" => receipt::<ControlOperationReceipt>(input),
        "native_delivery_receipt_frame" => receipt::<NativeDeliveryReceipt>(input),
        "source_position" => answer(input, SourcePosition::from_bytes(input), |position| position.to_bytes().into()),
        "lane_tuple" => answer(input, LaneTuple::from_bytes(input), |tuple| tuple.to_bytes().into()),
        "message_id" => answer(input, MessageId::from_bytes(input), |id| Bytes::copy_from_slice(&id.to_bytes())),
        "command_id" | "self_routing_id" => {
            answer(input, CommandId::from_bytes(input), |id| Bytes::copy_from_slice(&id.to_bytes()))
        }
        "payload_commit_proof" => answer(input, PayloadCommitProof::decode(input), PayloadCommitProof::encode),
        unknown => Err(Problem::Refused(format!("decoder {unknown} is not known here"))),
    }
}

fn decode_text(decoder: &str, input: &str) -> Result<Answer, Problem> {
    match decoder {
        "receipt_text" => match receipt_frame::from_text(input) {
            Err(error) => Ok(Answer::Refused(error.to_string())),
            Ok(frame) if receipt_frame::to_text(&frame) == input => {
                answer(&frame, AnyReceipt::decode_frame(&wrapped(&frame)), |_| frame.clone())
            }
            Ok(_) => Err(Problem::Refused("it decodes to bytes that have another text".to_owned())),
        },
        "message_id_text" => answer(input.as_bytes(), input.parse::<MessageId>(), |id| id.to_string().into()),
        "command_id_text" => answer(input.as_bytes(), input.parse::<CommandId>(), |id| id.to_string().into()),
        unknown => Err(Problem::Refused(format!("decoder {unknown} of text is not known here"))),
    }
}

fn record(input: &Bytes, wanted: impl Fn(&LogRecord) -> bool) -> Result<Answer, Problem> {
    match record::decode(input) {
        Ok(record) if wanted(&record) => answer(input, Ok::<_, RecordError>(record), LogRecord::encode_frame),
        Ok(_) => Ok(Answer::Refused("a record of the other kind".to_owned())),
        Err(error @ RecordError::Malformed(_)) => Ok(Answer::Refused(error.to_string())),
        Err(error) => Ok(Answer::Unactivated(error.to_string())),
    }
}

/// Receipts of another implementation are given the wrapper that the registry asks for, so that what is refused is the fault that
/// the case is about.
fn receipt<R: Receipt>(input: &Bytes) -> Result<Answer, Problem> {
    let frame = wrapped(input);
    answer(&frame, R::decode_frame(&frame), R::encode_frame)
}

fn wrapped(frame: &Bytes) -> Bytes {
    let rewritten = receipt_frame::decode(frame).ok().and_then(|receipt| {
        let payload = with_wrapper(&receipt.payload, &ack_layout(receipt.kind)?)?;
        Some(receipt_frame::encode(receipt.kind, &payload))
    });
    rewritten.unwrap_or_else(|| frame.clone())
}
