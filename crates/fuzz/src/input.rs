//! Takes numbers and parts off the front of an input.

use bytes::Bytes;

/// What is left of an input. What it lacks is zero or empty.
pub(crate) struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Input<'a> {
        Input(bytes)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn byte(&mut self) -> u8 {
        match self.0.split_first() {
            Some((first, rest)) => {
                self.0 = rest;
                *first
            }
            None => 0,
        }
    }

    /// A number below `bound`, which is at most 256.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        usize::from(self.byte()) % bound.max(1)
    }

    pub(crate) fn u16(&mut self) -> u16 {
        u16::from_be_bytes([self.byte(), self.byte()])
    }

    /// A part behind its length in two bytes; as much of it as there is.
    pub(crate) fn part(&mut self) -> &'a [u8] {
        let length = usize::from(self.u16());
        let (part, rest) = self.0.split_at(length.min(self.0.len()));
        self.0 = rest;
        part
    }

    /// Everything that is left.
    pub(crate) fn rest(&self) -> &'a [u8] {
        self.0
    }

    pub(crate) fn rest_bytes(&self) -> Bytes {
        Bytes::copy_from_slice(self.0)
    }
}
