//! The limit of open files: raised as far as it goes, refused when it is too low, and shared out.
//!
//! A connection is a file. A database that cannot make its next file fails its commit, and a log that fails a commit stops the
//! server. So connections never get all of them.

use anyhow::bail;

/// Sockets and files that a busy server needs.
const WANTED: u64 = 65_536;
/// What a small server needs: half for the databases, half for callers. It is what nearly every system allows by default.
const NEEDED: u64 = 1_024;
/// What the databases of a few shards and the clients of brokers have open at most.
const KEPT_MAX: u64 = 4_096;

/// Raises the limit, and returns how many connections may be open at once.
///
/// # Errors
/// When the limit is too low to serve anybody.
pub(crate) fn connections_max() -> anyhow::Result<usize> {
    let limit = match rlimit::increase_nofile_limit(WANTED) {
        Ok(limit) => limit,
        Err(error) => {
            tracing::warn!(%error, "the limit of open files could not be raised");
            rlimit::getrlimit(rlimit::Resource::NOFILE).map_or(NEEDED, |(soft, _)| soft)
        }
    };
    if limit < NEEDED {
        bail!(
            "this process may open {limit} files, a server needs {NEEDED} and wants {WANTED}: raise the limit (ulimit -n, \
             or LimitNOFILE= of a systemd unit)"
        );
    }
    let connections_max = limit - kept(limit);
    if limit < WANTED {
        tracing::warn!(
            limit,
            wanted = WANTED,
            connections_max,
            "the limit of open files is low; more connections wait"
        );
    }
    Ok(usize::try_from(connections_max).unwrap_or(usize::MAX))
}

/// How many files are not for connections.
fn kept(limit: u64) -> u64 {
    (limit / 2).min(KEPT_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_files_for_the_databases() {
        let left = [NEEDED, 4_000, 20_000, WANTED].map(|limit| (limit - kept(limit), kept(limit)));
        assert_eq!(left, [(512, 512), (2_000, 2_000), (15_904, 4_096), (61_440, 4_096)]);
    }
}
