//! Makes the vectors of what is ours: bodies of version 2, control payloads, embedded positions and lanes, receipts.
//!
//! `UPDATE_VECTORS=1` writes `testdata/vectors/v2.json` anew; otherwise the file must be what this test computes, so that bytes
//! once written never change unnoticed.
#![allow(clippy::unwrap_used, reason = "a test that cannot read its files has failed")]
#![allow(clippy::needless_pass_by_value, reason = "JSON values are made where they are passed")]

mod v2_inputs;
mod v2_negatives;

use std::path::Path;

use serde_json::{Value, json};
use testkit::vectors::{self, compute_expected};

#[test]
fn the_kept_vectors_are_what_is_computed() {
    let mut cases: Vec<Value> = v2_inputs::cases()
        .into_iter()
        .map(|(name, kind, input)| {
            let expected = compute_expected(kind, &input).unwrap_or_else(|error| panic!("{name}: {error}"));
            json!({"name": name, "kind": kind, "input": input, "expected": expected})
        })
        .collect();
    cases.extend(v2_negatives::cases());
    let names: std::collections::BTreeSet<_> = cases.iter().map(|case| case["name"].to_string()).collect();
    assert_eq!(names.len(), cases.len(), "every case has a name of its own");
    let file = json!({
        "schema": "nereus-delay-v2-vectors/1",
        "title": "Nereus Delay: what body version 2 and the embedded system write",
        "conventions": {
            "format": "as the V1 vectors beside this file: integers are exact, *_hex is lower-case hex, null is an absent field",
            "decoder": "cases with a decoder are refused (reject) or sound and not activated (unactivated)",
            "signing_key": "a key for tests; nothing trusts it",
        },
        "case_count": cases.len(),
        "cases": cases,
    });
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/vectors/v2.json");
    let text = serde_json::to_string_pretty(&file).unwrap() + "\n";
    // Asked once, by the one test that may write.
    #[allow(clippy::disallowed_methods, reason = "a test has no configuration but its environment")]
    if std::env::var("UPDATE_VECTORS").is_ok_and(|update| update == "1") {
        std::fs::write(&path, text).unwrap();
    } else {
        let kept = std::fs::read_to_string(&path).unwrap();
        assert!(kept == text, "testdata/vectors/v2.json differs: if the change is meant, run with UPDATE_VECTORS=1");
    }
    let failures: Vec<_> =
        vectors::check(&file).unwrap().into_iter().filter(|report| !report.failures.is_empty()).collect();
    assert_eq!(failures, []);
}
