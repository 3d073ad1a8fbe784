//! A process that stands still for a minute, as under a debugger, a freezer or a machine that swaps.

use std::time::Duration;

use tokio::time::Instant;

use super::{Stage, metric, said, wait_until};
use crate::world::{Http, pause, run};

/// Longer than any lease and any sample of the clock is good for.
const PAUSE: Duration = Duration::from_secs(60);

#[test]
fn a_server_that_stood_still_for_a_minute_goes_on_early_with_nothing_and_late_with_everything() {
    run(async {
        let mut stage = Stage::new();
        let server = stage.start().await;
        let http = Http::new(server.address());
        stage.load(&server).await;
        // What is admitted when it stops is appended when it goes on, and its message may have expired meanwhile.
        stage.trial.allow_late_appends(PAUSE);
        let stand_still = async {
            wait_until("a first delivery", async || http.count("published").await > 0).await;
            server.freeze().expect("it lives");
            let asked = Instant::now();
            let mut waiting = std::pin::pin!(http.get("/v1/counts"));
            let answered = tokio::time::timeout(PAUSE, &mut waiting).await;
            assert!(answered.is_err(), "a server that stands still answers nothing");
            server.thaw().expect("it lives");
            let published = waiting.await.expect(200).number("published");
            assert!(asked.elapsed() >= PAUSE);
            server.ready().await.expect("it is ready again by itself");
            wait_until("what fell due", async || http.count("published").await > published).await;
        };
        stage.trial.under_load(server.client(), stand_still).await.expect("requests end");
        pause(Duration::from_millis(500)).await;
        assert!(metric(&http, "nereus_delay_clock_withdrawals_total").await >= 1.0);
        let log = said(&stage.options());
        let doubt = log.lines().find(|line| line.contains("the clock is not trusted"));
        let doubt = doubt.unwrap_or_else(|| panic!("the log does not tell of the pause:\n{log}"));
        assert!(doubt.contains("last clock sample is 6"), "{doubt}");
        assert!(log.contains("the clock is trusted again"), "{log}");
        stage.close(server).await;
    });
}
