//! Conformance vectors: files of cases that say what bytes a value has, and which bytes are none.
//!
//! Three forms of files are read: cases that were computed by some implementation (`input` and `expected`), malformed values with
//! the verdict of the registry (`decoder` and `spec_verdict`), and the vectors that the registry itself prints. Every positive
//! case is checked both ways: encoding its input must give the expected bytes, and decoding those must give the input back. An
//! unknown kind is a failure, not a gap.

mod command;
mod compare;
mod json;
mod mutation;
mod mutation_v2;
mod negative;
mod plain;
mod position;
mod receipt;
mod registry;
mod shared;

use std::path::{Path, PathBuf};

use serde_json::Value;

use self::compare::Computed;
use self::json::{Node, Problem};

/// What came of one case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CaseReport {
    /// The case's name in its file.
    pub name: String,
    /// Everything that is not as it must be; empty for a case that passes.
    pub failures: Vec<String>,
    /// What a reader should know of a case that passes.
    pub notes: Vec<String>,
}

/// Why a file was not checked.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// It cannot be read.
    #[error("{path}: {source}")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// It is no JSON.
    #[error("{path}: not JSON: {source}")]
    NotJson {
        /// The file.
        path: PathBuf,
        /// Where and why.
        source: serde_json::Error,
    },
    /// It is JSON, but no file of vectors.
    #[error("{path}: neither a list of cases nor the registry's vectors: {reason}")]
    NoVectors {
        /// The file.
        path: PathBuf,
        /// What is missing.
        reason: String,
    },
}

/// Checks one file.
///
/// # Errors
/// [`FileError`] for a file that is unreadable or not a file of vectors. What is wrong with single cases is in their reports.
pub fn check_file(path: &Path) -> Result<Vec<CaseReport>, FileError> {
    let text = std::fs::read(path).map_err(|source| FileError::Unreadable { path: path.into(), source })?;
    let file = serde_json::from_slice(&text).map_err(|source| FileError::NotJson { path: path.into(), source })?;
    check(&file).map_err(|reason| FileError::NoVectors { path: path.into(), reason })
}

/// Checks the contents of a file.
///
/// # Errors
/// The reason why `file` is no file of vectors.
pub fn check(file: &Value) -> Result<Vec<CaseReport>, String> {
    let object = file.as_object().ok_or("the file is no object")?;
    match object.get("cases") {
        Some(Value::Array(cases)) => {
            let counted = object.get("case_count").and_then(Value::as_u64);
            if let Some(counted) = counted.filter(|counted| usize::try_from(*counted) != Ok(cases.len())) {
                return Err(format!("case_count is {counted}, the file has {} cases", cases.len()));
            }
            Ok(cases.iter().enumerate().map(|(index, case)| check_case(index, case)).collect())
        }
        Some(_) => Err("cases is no array".to_owned()),
        None => registry::check(file).ok_or_else(|| "it has no member cases and no section of the registry".to_owned()),
    }
}

/// Checks one case, positive or negative.
fn check_case(index: usize, case: &Value) -> CaseReport {
    let name = case.get("name").and_then(Value::as_str).map_or_else(|| format!("case {index}"), str::to_owned);
    let node = Node::new(case, "case");
    let result = if node.has("decoder") { negative::check(&node) } else { check_positive(&node) };
    match result {
        Ok((failures, notes)) => CaseReport { name, failures, notes },
        Err(problem) => CaseReport { name, failures: vec![problem.to_string()], notes: Vec::new() },
    }
}

/// Failures and notes.
type Verdict = Result<(Vec<String>, Vec<String>), Problem>;

fn check_positive(case: &Node<'_>) -> Verdict {
    let kind = case.get("kind")?.text()?;
    let (input, expected) = (case.get("input")?, case.get("expected")?);
    let candidates = compute(kind, &input, &expected)?;
    let mut best: Option<(Vec<String>, Vec<String>)> = None;
    for computed in &candidates {
        let (failures, mut notes) = computed.differences(&expected)?;
        notes.extend(computed.notes.iter().cloned());
        if failures.is_empty() {
            return Ok((failures, notes));
        }
        // The first candidate is what the registry says; its differences are the ones to report.
        best.get_or_insert((failures, notes));
    }
    best.ok_or_else(|| Problem::Refused(format!("nothing is computed for kind {kind}")))
}

/// Everything that follows from the input of a case. More than one candidate where a known difference of another
/// implementation is let pass; the first is ours.
fn compute(kind: &str, input: &Node<'_>, expected: &Node<'_>) -> Result<Vec<Computed>, Problem> {
    let one = |computed: Result<Computed, Problem>| computed.map(|computed| vec![computed]);
    match kind {
        "self_routing_id" => one(plain::self_routing_id(input)),
        "routing_hash" => one(plain::routing_hash(input)),
        "target_partition_hash" => one(plain::target_partition_hash(input)),
        "lane_id" => one(plain::lane_id(input)),
        "retry_jitter" => one(plain::retry_jitter(input)),
        "derived_ids" => one(plain::derived_ids(input)),
        "payload_commit_proof" => one(command::payload_commit_proof(input)),
        "command" => one(command::command(input)),
        "system_mutation" => one(mutation::system_mutation(input, expected)),
        "source_position" => one(position::source_position(input)),
        "source_position_order" => one(position::source_position_order(input)),
        "command_queued_receipt" => receipt::queued(input),
        "command_applied_receipt" => one(receipt::applied(input)),
        "payload_reservation_receipt" => one(receipt::payload_reservation(input)),
        "control_operation_receipt" => one(receipt::control_operation(input)),
        "native_delivery_receipt" => receipt::native_delivery(input),
        "system_mutation_v2" => one(mutation_v2::system_mutation_v2(input)),
        "attempt_id" => one(plain::attempt_id(input)),
        "profile_semantic_hash" => one(mutation_v2::profile_semantic_hash(input)),
        "retry_policy" => one(mutation_v2::retry_policy(input)),
        "tenant_scope" => one(plain::tenant_scope(input)),
        "null_marker" => one(plain::null_marker(input)),
        "kafka_partition" => one(plain::kafka_partition(input)),
        unknown => Err(Problem::Refused(format!("kind {unknown} is not known here"))),
    }
}

/// Fills in the `expected` of a case from its input: how new vectors are made.
///
/// # Errors
/// Why nothing can be computed.
pub fn compute_expected(kind: &str, input: &Value) -> Result<Value, String> {
    let nothing = Value::Object(serde_json::Map::new());
    let computed = compute(kind, &Node::new(input, "input"), &Node::new(&nothing, "expected"));
    match computed {
        Ok(candidates) => {
            candidates.first().map(Computed::to_expected).ok_or_else(|| format!("nothing is computed for kind {kind}"))
        }
        Err(problem) => Err(problem.to_string()),
    }
}
