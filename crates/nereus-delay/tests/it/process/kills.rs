//! A storm of kills: under load, and again and again while a server recovers from the one before.

use std::time::Duration;

use harness::process::ServerProcess;
use tokio::time::Instant;

use super::{Stage, said};
use crate::world::{pause, run};

const KILLS_UNDER_LOAD: usize = 5;
/// After each of them, so many of the next starts are killed before they are done.
const KILLS_OF_STARTS: usize = 2;

#[test]
fn a_storm_of_kills_under_load_and_during_recovery_loses_and_doubles_nothing() {
    run(async {
        let mut stage = Stage::new();
        let mut chance = fastrand::Rng::with_seed(stage.seed);
        for _ in 0..KILLS_UNDER_LOAD {
            let starting = Instant::now();
            let server = stage.start().await;
            let start = starting.elapsed();
            let life = Duration::from_millis(chance.u64(100..700));
            let client = server.client().clone();
            let kill = async move {
                pause(life).await;
                server.kill().await
            };
            let killed = stage.trial.under_load(&client, kill).await.expect("requests to a killed server end");
            killed.expect("it dies");
            for _ in 0..KILLS_OF_STARTS {
                // Somewhere in a start that takes about as long as the last one.
                let after = start.mul_f64(chance.f64());
                ServerProcess::start_and_kill(&stage.options(), after).await.expect("it dies");
            }
        }
        let starts = KILLS_UNDER_LOAD * (1 + KILLS_OF_STARTS);
        let listened = said(&stage.options()).matches("listening data=").count();
        assert!((KILLS_UNDER_LOAD..starts).contains(&listened), "{listened} of {starts} servers came to listen");
        let server = stage.start().await;
        stage.close(server).await;
    });
}
