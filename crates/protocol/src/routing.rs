//! Which partition a message goes to: of its route, and of its destination (protocol registry §2.7).
//!
//! Both are pure functions of the message, so that a client, a gateway and every replay agree without asking anyone.

use std::num::NonZeroU32;

use crate::hash::{Hash, Preimage, first64};
use crate::id::{RouteId, Uuid7};
use crate::v1::OrderingMode;

/// The routing hash of `key` within a tenant's part of a route.
#[must_use]
pub fn routing_hash(route: RouteId, tenant_scope: &Hash, key: &[u8]) -> Hash {
    Preimage::new("nereus-delay-routing-v1").lp32(&route.0).lp32(tenant_scope).lp32(key).sha256()
}

/// The partition of the route that a message with this routing key belongs to.
#[must_use]
pub fn ingress_partition(route: RouteId, tenant_scope: &Hash, key: &[u8], partition_count: NonZeroU32) -> u32 {
    remainder(first64(&routing_hash(route, tenant_scope, key)), partition_count)
}

/// What a message is routed by: an ordered one by its ordering key, an unordered one by its business key if it has one, so that
/// the key lives in one shard, and otherwise by its own UUID.
#[must_use]
pub fn routing_key<'a>(
    ordering: OrderingMode,
    ordering_key: &'a [u8],
    business_key: Option<&'a [u8]>,
    message: &'a Uuid7,
) -> &'a [u8] {
    match (ordering, business_key) {
        (OrderingMode::DeliveryTimeFifo, _) => ordering_key,
        (OrderingMode::BestEffort, Some(key)) => key,
        (OrderingMode::BestEffort, None) => message.as_bytes(),
    }
}

/// The routing scope of a tenant: what its messages are routed and laned by, beside those of other tenants.
#[must_use]
pub fn tenant_scope(name: &str) -> Hash {
    Preimage::new("nereus-delay-tenant-v1\0").bytes(name.as_bytes()).sha256()
}

/// The registry's hash for a destination partition over the bytes that the profile selects; no bytes at all hash as empty.
#[must_use]
pub fn target_hash(profile_id: &[u8], profile_version: u64, routing_bytes: &[u8]) -> Hash {
    Preimage::new("nereus-delay-target-partition-v1").lp32(profile_id).u64(profile_version).lp32(routing_bytes).sha256()
}

/// The destination partition under [`target_hash`].
#[must_use]
pub fn target_partition(
    profile_id: &[u8],
    profile_version: u64,
    routing_bytes: &[u8],
    partition_count: NonZeroU32,
) -> u32 {
    remainder(first64(&target_hash(profile_id, profile_version, routing_bytes)), partition_count)
}

/// The destination partition that Kafka's own default partitioner gives a record with this key, so that a delayed record lands
/// where its producer would have put it.
#[must_use]
pub fn kafka_partition(key: &[u8], partition_count: NonZeroU32) -> u32 {
    (murmur2(key) & 0x7fff_ffff) % partition_count
}

/// Kafka's murmur2. Kafka's own tests print it as a signed number.
#[must_use]
pub fn murmur2(data: &[u8]) -> u32 {
    const SEED: u32 = 0x9747_b28c;
    const M: u32 = 0x5bd1_e995;
    const R: u32 = 24;
    // The length of the input is below 4 GiB; Kafka's is below 2 GiB.
    #[allow(clippy::cast_possible_truncation, reason = "keys are bounded by the record limit")]
    let mut hash = SEED ^ data.len() as u32;
    let (words, tail) = data.as_chunks::<4>();
    for word in words {
        let mut k = u32::from_le_bytes(*word).wrapping_mul(M);
        k ^= k >> R;
        hash = hash.wrapping_mul(M) ^ k.wrapping_mul(M);
    }
    if !tail.is_empty() {
        for (index, byte) in tail.iter().enumerate() {
            hash ^= u32::from(*byte) << (8 * index);
        }
        hash = hash.wrapping_mul(M);
    }
    hash ^= hash >> 13;
    hash = hash.wrapping_mul(M);
    hash ^ (hash >> 15)
}

/// `value mod count`, which fits the count's type.
pub(crate) fn remainder(value: u64, count: NonZeroU32) -> u32 {
    u32::try_from(value % u64::from(count.get())).expect("a remainder is below its u32 divisor")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn murmur2_agrees_with_kafka() {
        let cases = [
            ("21", -973_932_308),
            ("foobar", -790_332_482),
            ("a-little-bit-long-string", -985_981_536),
            ("a-little-bit-longer-string", -1_486_304_829),
            ("lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58_897_971),
            ("abc", 479_470_107),
        ];
        for (key, expected) in cases {
            assert_eq!(murmur2(key.as_bytes()).cast_signed(), expected, "{key}");
        }
        let three = NonZeroU32::new(3).unwrap();
        assert_eq!(kafka_partition(b"abc", three), 479_470_107 % 3);
        assert_eq!(kafka_partition(b"21", three), ((-973_932_308_i32).cast_unsigned() & 0x7fff_ffff) % 3);
    }

    #[test]
    fn an_unordered_message_is_routed_by_its_business_key() {
        let uuid = Uuid7::from_parts(1, [7; 10]).unwrap();
        let key = |mode, business| routing_key(mode, b"account", business, &uuid).to_vec();
        assert_eq!(key(OrderingMode::DeliveryTimeFifo, Some(b"order-1")), b"account");
        assert_eq!(key(OrderingMode::BestEffort, Some(b"order-1")), b"order-1");
        assert_eq!(key(OrderingMode::BestEffort, None), uuid.to_bytes());
    }
}
