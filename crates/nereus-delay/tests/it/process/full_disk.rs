//! A disk that is full, and has room again.

use std::fs::File;
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use harness::process::ServerProcess;
use tempfile::TempDir;
use tokio::time::{Instant, timeout};

use super::{Stage, said};
use crate::world::{LIMIT, run};

const DISK_MIB: u64 = 256;
/// What is left when the load begins: enough to begin, and soon used up.
const LEFT_BYTES: u64 = 1 << 20;
/// How long what is left lasts at most.
const LOAD_MAX: Duration = Duration::from_secs(5);

/// A file system of its own, in memory; gone with this value.
struct SmallDisk {
    folder: TempDir,
}

impl SmallDisk {
    fn mount() -> SmallDisk {
        let folder = tempfile::tempdir().expect("a folder");
        let size = format!("size={DISK_MIB}m");
        let mount = Command::new("mount").args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(folder.path()).output();
        let output = mount.expect("mount runs");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success(),
            "this test mounts a tmpfs and needs the right to (root, or CAP_SYS_ADMIN): {said}"
        );
        SmallDisk { folder }
    }

    fn ballast(&self) -> PathBuf {
        self.folder.path().join("ballast")
    }

    /// Writes until nothing more goes in.
    fn fill(&self) {
        let mut ballast = File::options().create(true).append(true).open(self.ballast()).expect("a file");
        for length in [1 << 20, 4 << 10, 1] {
            let bytes = vec![0; length];
            let full = loop {
                if let Err(error) = ballast.write_all(&bytes) {
                    break error;
                }
            };
            assert_eq!(full.kind(), ErrorKind::StorageFull, "{full}");
        }
    }

    fn free(&self, bytes: u64) {
        let ballast = File::options().write(true).open(self.ballast()).expect("a file");
        let length = ballast.metadata().expect("a length").len();
        ballast.set_len(length.checked_sub(bytes).expect("there is ballast")).expect("shorter");
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily: a server that was killed just before may still be on its way out.
        let unmounted = Command::new("umount").arg("--lazy").arg(self.folder.path()).status();
        if !std::thread::panicking() {
            assert!(unmounted.is_ok_and(|status| status.success()), "{} stays mounted", self.folder.path().display());
        }
    }
}

fn assert_says_what_to_do(text: &str, data: &Path) {
    for part in ["No space left on device", "nothing that was answered is lost", "free some space"] {
        assert!(text.contains(part), "it does not say {part:?}:\n{text}");
    }
    assert!(text.contains(&data.display().to_string()), "it does not name the folder:\n{text}");
}

#[test]
fn a_full_disk_stops_the_server_and_loses_nothing_and_room_lets_it_go_on() {
    run(async {
        let mut stage = Stage::new();
        let options = stage.options();
        let disk = SmallDisk::mount();
        symlink(disk.folder.path(), options.data()).expect("a link");
        let mut server = stage.start().await;
        stage.load(&server).await;

        let client = server.client().clone();
        let deadline = Instant::now() + LIMIT;
        // A shard's own database may be what fails first: opened again it gives room back, and the server goes on.
        let status = loop {
            assert!(Instant::now() < deadline, "a server without room for its log ends by itself:\n{}", said(&options));
            disk.fill();
            disk.free(LEFT_BYTES);
            match stage.trial.under_load(&client, timeout(LOAD_MAX, server.ended())).await {
                Ok(Err(_)) => {}
                Ok(Ok(status)) => break status,
                // It ended just before.
                Err(_) => break timeout(LIMIT, server.ended()).await.expect("a server that answers nothing ends"),
            }
        }
        .expect("it can be waited for");
        assert_eq!(status.code(), Some(1));
        assert_says_what_to_do(&said(&options), &options.data());

        // It does not start on a disk that is still full, and says the same.
        disk.fill();
        let refused = ServerProcess::start_refused(&options).await.expect("it ends");
        assert_eq!((refused.exit_code, refused.announced.as_str()), (Some(1), ""), "{}", refused.said);
        assert_says_what_to_do(&refused.said, &options.data());

        std::fs::remove_file(disk.ballast()).expect("removed");
        let server = stage.start().await;
        stage.close(server).await;
    });
}
