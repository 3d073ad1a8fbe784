//! Keys of [`Family::Open`](crate::store::Family::Open): admission records with attempts that are still publishing.
//!
//! ```text
//! 01 | order token of the admission record      the accepted entries, written once
//! 02 | order token of the admission record      how many of them are still publishing
//! ```
//!
//! Both go when the last attempt of the record stops publishing. They are two rows so that an outcome never rewrites the list.

use bytes::{BufMut, Bytes, BytesMut};

const ADMITTED: u8 = 0x01;
const REMAINING: u8 = 0x02;

/// The entries of an admission record.
pub fn admitted(order_token: &[u8]) -> Bytes {
    key(ADMITTED, order_token)
}

/// The range of all admission records with open attempts, in log order.
pub fn all_admitted() -> (Bytes, Bytes) {
    (Bytes::from_static(&[ADMITTED]), Bytes::from_static(&[ADMITTED + 1]))
}

/// The number of attempts of an admission record that are still publishing.
pub fn remaining(order_token: &[u8]) -> Bytes {
    key(REMAINING, order_token)
}

fn key(tag: u8, order_token: &[u8]) -> Bytes {
    let mut key = BytesMut::with_capacity(1 + order_token.len());
    key.put_u8(tag);
    key.put_slice(order_token);
    key.freeze()
}
