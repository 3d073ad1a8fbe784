//! Files of a stopped server that are cut or have other bytes than it wrote.

use std::fs;
use std::path::{Path, PathBuf};

use client::api::admin::Readiness;
use harness::process::{ServerOptions, ServerProcess};
use hyper::Method;

use super::{Stage, said, wait_until};
use crate::world::run;

/// What is done to a file.
#[derive(Clone, Copy, Debug)]
enum Harm {
    Cut,
    Flip,
    /// Near the end, where a table has what it is found by.
    FlipEnd,
    Remove,
}

impl Harm {
    fn to(self, file: &Path) {
        let mut bytes = fs::read(file).expect("readable");
        let length = bytes.len();
        assert!(length > 1, "{} has nothing to harm", file.display());
        match self {
            Harm::Cut => bytes.truncate(length / 2),
            Harm::Flip => bytes[length / 2] ^= 0x55,
            Harm::FlipEnd => bytes[length - 6] ^= 0x55,
            Harm::Remove => return fs::remove_file(file).expect("removed"),
        }
        fs::write(file, bytes).expect("written");
    }
}

/// Which database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// The log, the topics and the metadata of all.
    Embedded,
    /// One shard's.
    Shard,
}

/// How the server takes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// It does not start.
    Refused,
    /// It starts, and a shard is FAILED.
    Failed,
}

/// What the whole server stands on stops all of it; a log that lost its end may show at the shards only. What is of one shard
/// stops that one.
const CASES: [(Part, &str, Harm, &[Verdict]); 14] = [
    (Part::Embedded, "FORMAT", Harm::Flip, &[Verdict::Refused]),
    (Part::Embedded, "FORMAT", Harm::Cut, &[Verdict::Refused]),
    (Part::Embedded, "CURRENT", Harm::Cut, &[Verdict::Refused]),
    (Part::Embedded, "MANIFEST", Harm::Flip, &[Verdict::Refused]),
    (Part::Embedded, ".log", Harm::Flip, &[Verdict::Refused]),
    (Part::Embedded, ".log", Harm::Cut, &[Verdict::Refused, Verdict::Failed]),
    (Part::Embedded, ".sst", Harm::Cut, &[Verdict::Refused]),
    (Part::Embedded, ".sst", Harm::Remove, &[Verdict::Refused]),
    (Part::Shard, "FORMAT", Harm::Flip, &[Verdict::Failed]),
    (Part::Shard, "CURRENT", Harm::Cut, &[Verdict::Failed]),
    (Part::Shard, "MANIFEST", Harm::Flip, &[Verdict::Failed]),
    (Part::Shard, ".log", Harm::Flip, &[Verdict::Failed]),
    (Part::Shard, ".sst", Harm::Cut, &[Verdict::Failed]),
    (Part::Shard, ".sst", Harm::FlipEnd, &[Verdict::Failed]),
];

/// The largest file of a database whose name begins or ends so.
fn find(data: &Path, part: Part, name: &str) -> PathBuf {
    let folder = match part {
        Part::Embedded => data.join("embedded"),
        Part::Shard => {
            let route = fs::read_dir(data.join("shards")).expect("shards").next().expect("a route").expect("an entry");
            route.path().join("1")
        }
    };
    let mut found: Vec<(u64, PathBuf)> = Vec::new();
    for folder in [folder.join("db"), folder] {
        for entry in fs::read_dir(folder).expect("a folder") {
            let entry = entry.expect("an entry");
            let file_name = entry.file_name().into_string().expect("text");
            if file_name.starts_with(name) || file_name.ends_with(name) {
                found.push((entry.metadata().expect("a length").len(), entry.path()));
            }
        }
    }
    found.into_iter().max().unwrap_or_else(|| panic!("no {name} in {}", data.display())).1
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a folder");
    for entry in fs::read_dir(from).expect("a folder") {
        let path = entry.expect("an entry").path();
        let target = to.join(path.file_name().expect("a name"));
        if path.is_dir() {
            copy(&path, &target);
        } else {
            fs::copy(&path, &target).expect("copied");
        }
    }
}

/// Starts a server on a damaged folder: how it takes it, and what it says.
async fn verdict(options: &ServerOptions) -> (Option<Verdict>, String) {
    let Ok(server) = ServerProcess::start(options).await else { return (Some(Verdict::Refused), said(options)) };
    let mut failed = None;
    wait_until("a verdict", async || {
        let answer = server.client().call(Method::GET, &["readyz"]).send_any::<Readiness>().await;
        let readiness = answer.expect("it answers").body;
        failed = readiness.reasons.iter().any(|reason| reason.contains("FAILED")).then_some(Verdict::Failed);
        readiness.ready || failed.is_some()
    })
    .await;
    server.kill().await.expect("it dies");
    (failed, said(options))
}

#[test]
fn no_server_starts_with_less_than_it_had_and_every_damage_is_named() {
    run(async {
        let mut stage = Stage::new();
        // Twice, so that there are tables as well as logs.
        for _ in 0..2 {
            let server = stage.start().await;
            stage.load(&server).await;
            server.kill().await.expect("it dies");
        }
        let mut surprises = Vec::new();
        for (number, (part, name, harm, expected)) in CASES.into_iter().enumerate() {
            let folder = stage.folder.path().join(format!("case-{number}"));
            let options = ServerOptions { folder, ..stage.options() };
            copy(&stage.options().data(), &options.data());
            let file = find(&options.data(), part, name);
            harm.to(&file);
            let (verdict, said) = verdict(&options).await;
            // The database's folder, where its engine does not say which file it was.
            let place = file.parent().expect("a folder").display().to_string();
            let is_said = verdict == Some(Verdict::Failed) && part == Part::Embedded
                || said.contains(&place) && said.contains("Restore the whole data folder");
            if !is_said || !verdict.is_some_and(|verdict| expected.contains(&verdict)) {
                surprises.push(format!("{harm:?} {name} of {part:?}: {verdict:?}, not {expected:?}:\n{said}"));
            }
            fs::remove_dir_all(&options.folder).expect("removed");
        }
        assert!(surprises.is_empty(), "seed {}:\n{}", stage.seed, surprises.join("\n"));
        let server = stage.start().await;
        stage.close(server).await;
    });
}
