//! A few rounds of `dev/crash`: the server is killed under load, and every promise is checked from outside.

use std::path::PathBuf;

use harness::crash;

use crate::world::run;

#[test]
fn nothing_is_lost_early_or_doubled_unsaid_when_the_server_is_killed_under_load() {
    let seed = u64::from(fastrand::u32(..));
    let binary = PathBuf::from(env!("CARGO_BIN_EXE_nereus-delay"));
    run(async move {
        let options =
            crash::Options { binary, scene: crash::Scene::Embedded, rounds: 4, seed, keep: false, parent: None };
        let report = crash::run(&options).await.unwrap_or_else(|error| panic!("seed {seed}: {error:#}"));
        assert!(
            report.violations.is_empty(),
            "{}\n{}\n{:?}",
            report.command(),
            report.violation_lines(),
            report.folder
        );
        let account = &report.account;
        assert_eq!(account.accepted(), account.accounted(), "{}", report.command());
        assert!(account.published > 0, "the load delivers: {}", report.table());
    });
}
