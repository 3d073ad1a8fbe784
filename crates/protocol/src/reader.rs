//! Reads the fixed-layout byte strings that are not protobuf: positions and lane tuples.

/// The input ended before a value did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{what} needs {needed} bytes at offset {offset}, {left} are left")]
pub struct Truncated {
    /// The value that does not fit.
    pub what: &'static str,
    /// Where it starts.
    pub offset: usize,
    /// Its length.
    pub needed: usize,
    /// What the input still holds.
    pub left: usize,
}

/// A cursor over `bytes` that knows its offset.
pub(crate) struct Reader<'a> {
    bytes: &'a [u8],
    offset: usize,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, offset: 0 }
    }

    pub(crate) fn offset(&self) -> usize {
        self.offset
    }

    /// Bytes not read yet.
    pub(crate) fn left(&self) -> usize {
        self.bytes.len() - self.offset
    }

    pub(crate) fn slice(&mut self, what: &'static str, length: usize) -> Result<&'a [u8], Truncated> {
        let rest = &self.bytes[self.offset..];
        let value =
            rest.get(..length).ok_or(Truncated { what, offset: self.offset, needed: length, left: rest.len() })?;
        self.offset += length;
        Ok(value)
    }

    pub(crate) fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], Truncated> {
        let value = self.slice(what, N)?;
        Ok(value.try_into().expect("the slice was taken with this length"))
    }

    pub(crate) fn u8(&mut self, what: &'static str) -> Result<u8, Truncated> {
        Ok(u8::from_be_bytes(self.array(what)?))
    }

    pub(crate) fn u32(&mut self, what: &'static str) -> Result<u32, Truncated> {
        Ok(u32::from_be_bytes(self.array(what)?))
    }

    pub(crate) fn u64(&mut self, what: &'static str) -> Result<u64, Truncated> {
        Ok(u64::from_be_bytes(self.array(what)?))
    }

    /// A value behind its four-byte length.
    pub(crate) fn lp32(&mut self, what: &'static str) -> Result<&'a [u8], Truncated> {
        let length = self.u32(what)?;
        self.slice(what, usize::try_from(length).expect("this code runs where usize has at least 32 bits"))
    }
}
