//! Keys of [`Family::Dedupe`](crate::store::Family::Dedupe): what was answered.
//!
//! ```text
//! 01 | command uuid 16          result of a command             ends when its retry window is closed
//! 02 | business key             the newest message of the key   ends with that message
//! 03 | operation id 32          result of a control operation   ends when its retry window is closed
//! 04 | order token              position exception              ends after the receipt query window
//! ```

use bytes::{BufMut, Bytes, BytesMut};

const COMMAND: u8 = 0x01;
const BUSINESS_KEY: u8 = 0x02;
const CONTROL: u8 = 0x03;
const POSITION: u8 = 0x04;

/// The result of a command.
pub fn command(command_uuid: [u8; 16]) -> Bytes {
    key(COMMAND, &command_uuid)
}

/// The newest message of a business key.
pub fn business_key(business_key: &[u8]) -> Bytes {
    key(BUSINESS_KEY, business_key)
}

/// The range of business keys that start with `prefix` and are greater than `after`.
pub fn business_keys(prefix: &[u8], after: Option<&[u8]>) -> (Bytes, Bytes) {
    let from = match after {
        Some(after) if after >= prefix => {
            let mut from = BytesMut::from(&key(BUSINESS_KEY, after)[..]);
            from.put_u8(0);
            from.freeze()
        }
        _ => key(BUSINESS_KEY, prefix),
    };
    (from, prefix_end(&key(BUSINESS_KEY, prefix)))
}

/// The business key in a key of that table.
pub fn decode_business_key(key: &Bytes) -> Bytes {
    key.slice(1..)
}

/// The result of a control operation.
pub fn control(operation_id: &[u8]) -> Bytes {
    key(CONTROL, operation_id)
}

/// What became of the record at a position, where that is not the plain result of its command.
pub fn position(order_token: &[u8]) -> Bytes {
    key(POSITION, order_token)
}

fn key(tag: u8, rest: &[u8]) -> Bytes {
    let mut key = BytesMut::with_capacity(1 + rest.len());
    key.put_u8(tag);
    key.put_slice(rest);
    key.freeze()
}

/// The first key behind all that start with `prefix`. A prefix here starts with a tag below 0xff, so there is one.
fn prefix_end(prefix: &[u8]) -> Bytes {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            break;
        }
    }
    end.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_range_holds_exactly_the_keys_with_the_prefix() {
        let keys: [&[u8]; 7] = [b"a", b"ab", b"ab\0", b"ab\xff", b"ac", b"b", b"\xff\xff"];
        let within = |prefix: &[u8], after: Option<&[u8]>| {
            let (from, until) = business_keys(prefix, after);
            keys.into_iter()
                .filter(|key| (from.clone()..until.clone()).contains(&business_key(key)))
                .collect::<Vec<_>>()
        };
        assert_eq!(within(b"ab", None), [&b"ab"[..], b"ab\0", b"ab\xff"]);
        assert_eq!(within(b"ab", Some(b"ab")), [&b"ab\0"[..], b"ab\xff"]);
        assert_eq!(within(b"", None).len(), keys.len());
        assert_eq!(within(b"\xff\xff", None), [b"\xff\xff"]);
        assert!(within(b"ab", Some(b"ab\xff")).is_empty());
    }
}
