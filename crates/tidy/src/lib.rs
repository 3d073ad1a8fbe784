//! What the tests of the house look at: the repository's own files, and the graph of its crates.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
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

/// A test that a document names in backticks, as `path::function` with the path of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NamedTest<'a> {
    /// The file, relative to the repository.
    pub path: &'a str,
    /// The test in it.
    pub function: &'a str,
}

impl<'a> NamedTest<'a> {
    /// What stands between backticks, if it names a test.
    pub fn parse(quoted: &'a str) -> Option<NamedTest<'a>> {
        let (path, function) = quoted.split_once("::")?;
        path.ends_with(".rs").then_some(NamedTest { path, function })
    }

    /// Whether the file has this function, and the function is a test.
    pub fn exists(self) -> bool {
        let Ok(text) = fs::read_to_string(root().join(self.path)) else { return false };
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        let opening = format!("fn {}(", self.function);
        let is_function = |line: &str| line.strip_prefix("async ").unwrap_or(line).starts_with(&opening);
        let makes_a_test = |line: &&str| line.starts_with("#[test]") || line.starts_with("#[tokio::test");
        let attributes = |at: usize| lines[..at].iter().rev().take_while(|line| line.starts_with("#["));
        (0..lines.len()).any(|at| is_function(lines[at]) && attributes(at).any(makes_a_test))
    }
}

impl fmt::Display for NamedTest<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}::{}", self.path, self.function)
    }
}

/// Everything between backticks, in its order.
pub fn quoted(document: &str) -> impl Iterator<Item = &str> {
    document.split('`').skip(1).step_by(2)
}

/// Every test that a document names.
pub fn named_tests(document: &str) -> impl Iterator<Item = NamedTest<'_>> {
    quoted(document).filter_map(NamedTest::parse)
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
