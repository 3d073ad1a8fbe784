//! Runs every file of vectors that the project keeps, and makes sure that the checker would notice.
#![allow(clippy::unwrap_used, reason = "a test that cannot read its files has failed")]

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use testkit::vectors::{self, CaseReport};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/vectors")
}

fn failures(reports: &[CaseReport]) -> Vec<String> {
    let lines = |report: &CaseReport| -> Vec<String> {
        report.failures.iter().map(|failure| format!("{}: {failure}", report.name)).collect()
    };
    reports.iter().flat_map(lines).collect()
}

fn file(name: &str) -> Value {
    serde_json::from_slice(&std::fs::read(folder().join(name)).unwrap()).unwrap()
}

#[test]
fn every_kept_vector_holds() {
    let mut checked = 0;
    let mut names: Vec<_> = std::fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path()).collect();
    names.sort();
    for path in names.into_iter().filter(|path| path.extension().is_some_and(|extension| extension == "json")) {
        let reports = vectors::check_file(&path).unwrap();
        assert_eq!(failures(&reports), Vec::<String>::new(), "{}", path.display());
        checked += reports.len();
    }
    assert!(checked > 250, "only {checked} cases: is a file missing?");
}

#[test]
fn only_receipts_of_another_implementation_pass_with_another_encoding() {
    let noted: Vec<String> = vectors::check(&file("golden.json"))
        .unwrap()
        .into_iter()
        .filter(|report| !report.notes.is_empty())
        .map(|report| report.name)
        .collect();
    assert_eq!(
        noted,
        ["receipt/queued/kafka-no-epoch", "receipt/queued/kafka-epoch-cancel", "receipt/queued/pulsar-batch-prepare"]
    );
}

/// Changes one digit of one expected value at a time: no value may be expected in vain.
#[test]
fn a_wrong_expectation_fails() {
    let golden = file("golden.json");
    for case in golden["cases"].as_array().unwrap() {
        for (key, value) in case["expected"].as_object().unwrap() {
            if key.starts_with("reference_") {
                continue;
            }
            let mut case = case.clone();
            case["expected"][key] = changed(value);
            let reports = vectors::check(&json!({ "cases": [case] })).unwrap();
            assert!(!failures(&reports).is_empty(), "{} passes with another {key}", reports[0].name);
        }
    }
}

fn changed(value: &Value) -> Value {
    match value {
        Value::Null => json!("00"),
        Value::Bool(value) => json!(!value),
        Value::Number(number) => json!(number.as_u64().unwrap() ^ 1),
        Value::String(text) => {
            let last = if text.ends_with('0') { "1" } else { "0" };
            json!(format!("{}{last}", &text[..text.len() - 1]))
        }
        Value::Array(items) => items.iter().skip(1).cloned().collect(),
        Value::Object(object) => {
            object.iter().map(|(key, value)| (key.clone(), changed(value))).collect::<serde_json::Map<_, _>>().into()
        }
    }
}

#[test]
fn a_wrong_verdict_fails() {
    let negative = file("negative.json");
    for case in negative["cases"].as_array().unwrap() {
        let turned = match case["spec_verdict"].as_str().unwrap() {
            "accept" => "reject",
            "reject" => "accept",
            _ => continue,
        };
        let mut case = case.clone();
        case["spec_verdict"] = turned.into();
        assert!(!failures(&vectors::check(&json!({ "cases": [case] })).unwrap()).is_empty());
    }
}

#[test]
fn what_is_not_known_fails_and_says_so() {
    let failures_of = |case: Value| failures(&vectors::check(&json!({ "cases": [case] })).unwrap());
    assert_eq!(
        failures_of(json!({"name": "a", "kind": "teapot", "input": {}, "expected": {}})),
        ["a: kind teapot is not known here"]
    );
    assert_eq!(
        failures_of(json!({"name": "b", "decoder": "teapot", "input_hex": "00", "spec_verdict": "reject"})),
        ["b: decoder teapot is not known here"]
    );
    assert_eq!(
        failures_of(json!({"kind": "routing_hash", "input": {}, "expected": {}})),
        ["case 0: case.input.route_incarnation_hex is not there"]
    );
    assert_eq!(failures_of(json!({"input": {}})), ["case 0: case.kind is not there"]);
    let unread = json!({"kind": "tenant_scope", "input": {"tenant": "a"}, "expected": {"teapot": 1}});
    let reports = vectors::check(&json!({ "cases": [unread] })).unwrap();
    assert_eq!(reports[0].notes, ["expected.teapot is not known here and was not compared"]);
}

#[test]
fn large_inputs_may_be_repeated() {
    let golden = file("golden.json");
    let mut case = golden["cases"].as_array().unwrap().iter().find(|case| case["kind"] == "command").unwrap().clone();
    let intent = &mut case["input"]["body"]["intent"];
    intent["inline_payload"] = json!({"repeat_hex": "33", "count": 5});
    intent["ordering_key"] = json!({"repeat_hex": "ab", "count": 0});
    intent.as_object_mut().unwrap().remove("ordering_key_hex");
    assert_eq!(failures(&vectors::check(&json!({ "cases": [case] })).unwrap()), Vec::<String>::new());
}

#[test]
fn a_body_in_unknown_terms_is_read_from_its_frame() {
    let golden = file("golden.json");
    for case in golden["cases"].as_array().unwrap().iter().filter(|case| case["kind"] == "system_mutation") {
        let mut case = case.clone();
        case["input"]["body"] = json!({"in_other_terms": true});
        let reports = vectors::check(&json!({ "cases": [case.clone()] })).unwrap();
        assert_eq!(reports[0].failures, Vec::<String>::new());
        assert_eq!(reports[0].notes.len(), 1, "{:?}", reports[0].notes);
        // What the frame says must still be what the input says of it.
        for key in ["partition", "retry_until_epoch_ms", "signing_key_version", "mutation_type_wire"] {
            let mut case = case.clone();
            case["input"][key] = changed(&case["input"][key]);
            assert!(!failures(&vectors::check(&json!({ "cases": [case] })).unwrap()).is_empty(), "{key}");
        }
    }
}

#[test]
fn a_file_that_is_none_is_refused() {
    assert!(vectors::check(&json!([])).is_err());
    assert!(vectors::check(&json!({"about": "nothing"})).is_err());
    assert!(vectors::check(&json!({"cases": 1})).is_err());
    assert!(vectors::check(&json!({"case_count": 2, "cases": []})).is_err());
    let missing = vectors::check_file(Path::new("/nowhere.json")).unwrap_err();
    assert!(missing.to_string().starts_with("/nowhere.json: "), "{missing}");
}

#[test]
fn the_registry_vectors_are_held_against_the_formulas() {
    let registry = file("registry.json");
    let before = vectors::check(&registry).unwrap().len();
    for section in ["routing", "lane", "target_partition", "retry_jitter", "self_id"] {
        let mut changed_file = registry.clone();
        let key = match section {
            "lane" => "lane_id",
            "self_id" => "bytes",
            _ => "digest",
        };
        changed_file[section][key] = changed(&registry[section][key]);
        let reports = vectors::check(&changed_file).unwrap();
        assert_eq!((reports.len(), failures(&reports).len()), (before, 1), "{section}");
    }
    for section in ["frames", "hashes", "derived"] {
        let mut changed_file = registry.clone();
        let key = match section {
            "frames" => "crc32c",
            "hashes" => "sha256",
            _ => "value",
        };
        changed_file[section][0][key] = changed(&registry[section][0][key]);
        assert_eq!(failures(&vectors::check(&changed_file).unwrap()).len(), 1, "{section}");
    }
    for command in ["cancel", "reschedule", "schedule"] {
        let mut changed_file = registry.clone();
        changed_file["golden_frames"][command]["hash"] = changed(&registry["golden_frames"][command]["hash"]);
        assert_eq!(failures(&vectors::check(&changed_file).unwrap()).len(), 1, "{command}");
    }
}
