//! Chance from one seed, in streams: another draw in one place leaves all others as they are.

/// The stream of a name and number.
pub(crate) fn stream(seed: u64, name: &str, number: u64) -> fastrand::Rng {
    // FNV-1a: short, and the same on every machine.
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for byte in seed.to_le_bytes().into_iter().chain(name.bytes()).chain(number.to_le_bytes()) {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    fastrand::Rng::with_seed(hash)
}

/// Whether something that happens in so many of a hundred cases happens now.
pub(crate) fn percent(chance: &mut fastrand::Rng, share: u32) -> bool {
    chance.u32(..100) < share
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_repeat_and_differ() {
        let draws = |seed, name, number| {
            let mut chance = stream(seed, name, number);
            [chance.u64(..), chance.u64(..)]
        };
        assert_eq!(draws(1, "a", 2), draws(1, "a", 2));
        assert_ne!(draws(1, "a", 2), draws(2, "a", 2));
        assert_ne!(draws(1, "a", 2), draws(1, "b", 2));
        assert_ne!(draws(1, "a", 2), draws(1, "a", 3));
    }
}
