//! Open files: too few to start with, and connections that would take all of them.

use std::time::Duration;

use futures_util::future::join_all;
use harness::process::{ServerOptions, ServerProcess};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::{Stage, said, wait_until};
use crate::world::{Http, run};

/// The fewest a server starts with.
const LIMIT_MIN: usize = 1_024;
/// As many connections as it lets in then: with those of the load a few wait in the kernel's queue.
const IDLE_CONNECTIONS: usize = LIMIT_MIN / 2;

/// Has a server started with so many open files at most, whatever it asks for.
fn limited(options: &mut ServerOptions, limit: usize) {
    let script = format!("ulimit -n {limit} && exec \"$0\" \"$@\"");
    options.under = ["sh", "-c", &script].map(str::to_owned).to_vec();
}

#[test]
fn a_limit_of_open_files_that_is_too_low_is_refused_with_numbers() {
    run(async {
        let stage = Stage::with(|options| limited(options, LIMIT_MIN - 1));
        let refused = ServerProcess::start_refused(&stage.options()).await.expect("it ends");
        assert_eq!((refused.exit_code, refused.announced.as_str()), (Some(1), ""));
        assert!(refused.said.contains("may open 1023 files, a server needs 1024"), "{}", refused.said);
        assert!(refused.said.contains("ulimit -n"), "{}", refused.said);
        assert!(!stage.options().data().exists(), "nothing was made");
    });
}

#[test]
fn connections_that_would_take_every_file_wait_and_the_log_still_gets_its_own() {
    run(async {
        let mut stage = Stage::with(|options| limited(options, LIMIT_MIN));
        let stage_log = stage.options();
        let server = stage.start().await;
        let http = Http::new(server.address());
        http.count("published").await;
        stage.load(&server).await;
        let crowd = async {
            let connect = || TcpStream::connect(server.address());
            let idle = join_all((0..IDLE_CONNECTIONS).map(|_| connect())).await;
            assert!(idle.iter().all(Result::is_ok), "the kernel lets them wait");
            let log = || said(&stage_log);
            wait_until("the last connection that is let in", async || log().contains("all connections are taken"))
                .await;
            // Whoever is in goes on.
            let published = http.count("published").await;
            wait_until("the next delivery", async || http.count("published").await > published).await;
            let newcomer = Http::new(server.address());
            let mut waiting = std::pin::pin!(newcomer.get("/v1/counts"));
            assert!(timeout(Duration::from_secs(1), &mut waiting).await.is_err(), "there is no room for one more");
            let open = server.open_files().expect("it lives");
            assert!(open < LIMIT_MIN - 100, "{open} files are open, none are left for the log");
            drop(idle);
            waiting.await.expect(200);
        };
        stage.trial.under_load(server.client(), crowd).await.expect("requests end");
        stage.close(server).await;
    });
}
