//! What the tests of the house look at: the repository's own files, and the graph of its crates.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// The repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A file of the repository as text.
///
/// # Panics
/// When it cannot be read: the tests of the house name only what must be there.
pub fn text(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Every file that git tracks and that is there, relative to the repository.
///
/// # Panics
/// When git does not answer.
pub fn tracked() -> Vec<String> {
    let output = Command::new("git").args(["ls-files", "-z"]).current_dir(root()).output().expect("git runs");
    assert!(output.status.success(), "git ls-files failed");
    let names = String::from_utf8(output.stdout).expect("file names are text");
    names.split('\0').filter(|name| !name.is_empty() && root().join(name).is_file()).map(str::to_owned).collect()
}

/// The crates of the workspace and everything they stand on.
#[derive(Debug)]
pub struct Crates {
    /// By name: the crates a crate names itself, for its library and build, not for its tests.
    direct: BTreeMap<String, BTreeSet<String>>,
    /// Ours.
    members: BTreeSet<String>,
}

impl Crates {
    /// As `cargo metadata` tells it, with every feature as the workspace has it.
    ///
    /// # Panics
    /// When cargo does not answer.
    pub fn read() -> Crates {
        let output = Command::new(env!("CARGO"))
            .args([
                "metadata",
                "--format-version",
                "1",
                "--locked",
                "--offline",
                "--filter-platform",
                "x86_64-unknown-linux-gnu",
            ])
            .current_dir(root())
            .output()
            .expect("cargo runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let metadata: Value = serde_json::from_slice(&output.stdout).expect("cargo writes JSON");
        let name_of: BTreeMap<&str, &str> =
            items(&metadata["packages"]).map(|package| (string(&package["id"]), string(&package["name"]))).collect();
        let members = items(&metadata["workspace_members"]).map(|id| name_of[string(id)].to_owned()).collect();
        let mut direct: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for node in items(&metadata["resolve"]["nodes"]) {
            // Crates of several versions count as one: what any of them reaches is reached.
            let reached = direct.entry(name_of[string(&node["id"])].to_owned()).or_default();
            for dependency in items(&node["deps"]) {
                let runs = items(&dependency["dep_kinds"]).any(|kind| kind["kind"].is_null());
                if runs {
                    reached.insert(name_of[string(&dependency["pkg"])].to_owned());
                }
            }
        }
        Crates { direct, members }
    }

    /// Our crates.
    pub fn members(&self) -> &BTreeSet<String> {
        &self.members
    }

    /// What a crate names itself.
    pub fn direct(&self, name: &str) -> &BTreeSet<String> {
        static NONE: BTreeSet<String> = BTreeSet::new();
        self.direct.get(name).unwrap_or(&NONE)
    }

    /// Everything a crate stands on, down to the last.
    pub fn reached(&self, name: &str) -> BTreeSet<String> {
        let mut reached = BTreeSet::new();
        let mut open = vec![name.to_owned()];
        while let Some(next) = open.pop() {
            for dependency in self.direct(&next) {
                if reached.insert(dependency.clone()) {
                    open.push(dependency.clone());
                }
            }
        }
        reached
    }
}

fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().map(Vec::as_slice).unwrap_or_default().iter()
}

fn string(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
