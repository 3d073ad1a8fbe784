//! Receipts: as text, as frames, and as fields under a digest and a check sum that hold.

use bytes::Bytes;
use protocol::receipt::{AnyReceipt, Receipt};
use protocol::receipt_frame::{self, ReceiptKind};

use crate::input::Input;
use crate::{check_error, forge};

/// A receipt: one byte says whether the rest is text, a frame, a frame whose check sum is put right, or the fields of a receipt
/// of one of the five kinds.
pub fn receipt(input: &[u8]) {
    let mut input = Input::new(input);
    match input.below(3 + ReceiptKind::ALL.len()) {
        0 => {
            let Ok(text) = std::str::from_utf8(input.rest()) else { return };
            match receipt_frame::from_text(text) {
                Ok(frame) => {
                    assert_eq!(receipt_frame::to_text(&frame), text, "a receipt with two texts");
                    check(&frame);
                }
                Err(error) => check_error(&error),
            }
        }
        1 => check(&input.rest_bytes()),
        2 => {
            if let Some(frame) = forge::sound_frame(input.rest(), receipt_frame::MAGIC) {
                check(&frame);
            }
        }
        kind => check(&forge::receipt(ReceiptKind::ALL[kind - 3], input.rest())),
    }
}

fn check(frame: &Bytes) {
    match AnyReceipt::decode_frame(frame) {
        Ok(receipt) => {
            let written = match receipt {
                AnyReceipt::CommandQueued(receipt) => receipt.encode_frame(),
                AnyReceipt::CommandApplied(receipt) => receipt.encode_frame(),
                AnyReceipt::NativeDelivery(receipt) => receipt.encode_frame(),
                AnyReceipt::PayloadReservation(receipt) => receipt.encode_frame(),
                AnyReceipt::ControlOperation(receipt) => receipt.encode_frame(),
            };
            assert_eq!(written, frame, "another receipt than was read");
        }
        Err(error) => check_error(&error),
    }
}
