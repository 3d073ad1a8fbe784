//! Bodies and authors of system mutations of both versions, in an envelope whose hash, id and signature hold.

use bytes::Bytes;
use protocol::mutation::MutationType;

use crate::input::Input;
use crate::{forge, record};

/// A mutation: a byte for its type, a byte for the version of its body, the author behind its length (none: the one who writes such
/// records), and the rest is the body.
pub fn mutation(input: &[u8]) {
    let mut input = Input::new(input);
    let mutation_type = MutationType::ALL[input.below(MutationType::ALL.len())];
    let body_version = if input.byte() == 1 { 1 } else { 2 };
    let author = input.part();
    let mutation = forge::Mutation {
        shard: forge::SHARD,
        mutation_type,
        body_version,
        author: (!author.is_empty()).then(|| Bytes::copy_from_slice(author)),
        retry_until_ms: 1_760_000_100_000,
        body: input.rest_bytes(),
    };
    record::check(&mutation.frame());
}
