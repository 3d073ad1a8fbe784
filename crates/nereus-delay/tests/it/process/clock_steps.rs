//! A host clock that somebody sets by minutes. The server's clock is moved through its test hook; the test's own stays right.

use std::path::{Path, PathBuf};
use std::time::Duration;

use harness::crash::CONFIG;
use harness::process::{ServerOptions, ServerProcess};
use tokio::time::Instant;

use super::{Stage, metric, said, wait_until};
use crate::world::{Http, pause, run};

const FIVE_MINUTES_MS: i64 = 300_000;
/// How long the clock has to agree with itself after a step: longer than a wrong one is left alone here.
const WINDOW: Duration = Duration::from_secs(10);
/// Long enough for many messages to fall due.
const HOLD: Duration = Duration::from_secs(1);

/// The file that moves a server's clock.
struct Offset {
    file: PathBuf,
}

impl Offset {
    fn set(&self, offset_ms: i64) {
        let partial = self.file.with_extension("partial");
        std::fs::write(&partial, offset_ms.to_string()).expect("written");
        std::fs::rename(&partial, &self.file).expect("in place");
    }
}

/// Has a server started on a clock that the file moves.
fn moved_by(options: &mut ServerOptions, file: &Path, hooks: &str) {
    let clock = format!("NEREUS_DELAY_TEST_CLOCK={}", file.display());
    options.under = vec!["env".to_owned(), clock, hooks.to_owned()];
}

async fn is_trusted(http: &Http) -> bool {
    metric(http, "nereus_delay_clock_qualified").await > 0.0
}

/// What is published once nothing moves any more: what was admitted before is still sent.
async fn settled(http: &Http) -> i64 {
    let mut before = -1;
    loop {
        let published = http.count("published").await;
        if published == before {
            return published;
        }
        before = published;
        pause(Duration::from_millis(250)).await;
    }
}

/// Nothing is delivered for a while, although messages fall due.
async fn assert_holds_back(http: &Http, what: &str) {
    let published = settled(http).await;
    pause(HOLD).await;
    assert_eq!(http.count("published").await, published, "deliveries while {what}");
}

async fn withdrawn(http: &Http, times: f64) {
    wait_until("doubt", async || metric(http, "nereus_delay_clock_withdrawals_total").await >= times).await;
}

#[test]
fn steps_of_minutes_make_nothing_early_and_deliveries_go_on_once_the_clock_is_trusted() {
    run(async {
        let mut offset = Offset { file: PathBuf::new() };
        let mut stage = Stage::with(|options| {
            offset.file = options.folder.join("clock-offset-ms");
            options.config =
                CONFIG.replace("[clock]", &format!("[clock]\nstabilisation_window = \"{}s\"", WINDOW.as_secs()));
            moved_by(options, &offset.file, "NEREUS_DELAY_TEST_HOOKS=true");
        });
        offset.set(0);
        let server = stage.start().await;
        let http = Http::new(server.address());
        stage.load(&server).await;

        // Ahead by minutes, and found out before anybody can believe it.
        let ahead = async {
            let stepped = Instant::now();
            offset.set(FIVE_MINUTES_MS);
            withdrawn(&http, 1.0).await;
            assert_holds_back(&http, "the clock is ahead").await;
            offset.set(0);
            assert!(stepped.elapsed() < WINDOW, "this machine is too slow to say anything: {:?}", stepped.elapsed());
            let published = http.count("published").await;
            server.ready().await.expect("the clock is trusted again");
            wait_until("the next delivery", async || http.count("published").await > published).await;
        };
        stage.trial.under_load(server.client(), ahead).await.expect("requests end");

        // Behind by minutes, for so long that it is believed, and set right.
        stage.load(&server).await;
        let behind = async {
            offset.set(-FIVE_MINUTES_MS);
            withdrawn(&http, 2.0).await;
            assert_holds_back(&http, "nobody knows the time").await;
            server.ready().await.expect("the clock is trusted again");
            assert_holds_back(&http, "the clock is behind").await;
            let published = http.count("published").await;
            offset.set(0);
            withdrawn(&http, 3.0).await;
            wait_until("trust", async || is_trusted(&http).await).await;
            wait_until("what fell due meanwhile", async || http.count("published").await > published).await;
        };
        stage.trial.watched(server.client(), behind).await.expect("it ends");

        let log = said(&stage.options());
        assert_eq!(log.matches("the clock is not trusted").count(), 3, "{log}");
        let is_told =
            |steps: [&str; 2]| steps.iter().any(|step| log.contains(&format!("wall clock stepped by {step}")));
        assert!(is_told(["3000", "29999"]) && is_told(["-3000", "-29999"]), "{log}");
        stage.close(server).await;
    });
}

#[test]
fn the_test_hook_is_refused_unless_it_is_asked_for_twice() {
    run(async {
        let stage = Stage::with(|options| moved_by(options, Path::new("anything"), "NEREUS_DELAY_TEST_HOOKS=false"));
        let refused = ServerProcess::start_refused(&stage.options()).await.expect("it ends");
        assert_eq!((refused.exit_code, refused.announced.as_str()), (Some(2), ""), "{}", refused.said);
        assert!(refused.said.contains("NEREUS_DELAY_TEST_CLOCK"), "{}", refused.said);
        assert!(!stage.options().data().exists(), "nothing was made");
    });
}
