//! The registry's page and the code change together.

#![allow(clippy::unwrap_used, reason = "a test that cannot read its files has failed")]

use std::path::Path;

use protocol::code::{Retryability, StableCode};
use protocol::hash::sha256;

const FILES: [&str; 10] = [
    "v1/common.proto",
    "v1/envelope.proto",
    "v1/command.proto",
    "v1/publish.proto",
    "v1/evidence.proto",
    "v1/mutation.proto",
    "v1/semantic.proto",
    "v1/receipt.proto",
    "v2/control.proto",
    "v2/mutation.proto",
];

fn root() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn page() -> String {
    std::fs::read_to_string(root().join("docs/protocol-registry.md")).unwrap()
}

#[test]
fn the_page_is_about_these_schemas() {
    let schemas: Vec<u8> =
        FILES.iter().flat_map(|file| std::fs::read(root().join("proto").join(file)).unwrap()).collect();
    let hash = hex::encode(sha256(&schemas));
    assert!(
        page().contains(&hash),
        "a schema changed: bring docs/protocol-registry.md up to date and put {hash} into it"
    );
}

#[test]
fn the_page_lists_every_code_as_it_is() {
    let letters = |code: &StableCode| match code.retryability() {
        Retryability::Never => "N",
        Retryability::RetryExactBytes => "X",
        Retryability::RetryExactBytesAfterRetryAt => "XT",
        Retryability::NewPreparationRequired => "P",
        Retryability::RetryExactBytesAfterExternalChange => "XE",
        Retryability::RereadAfterRepair => "R",
    };
    let expected: Vec<[String; 4]> = StableCode::ALL
        .iter()
        .map(|code| {
            let stage = code.stage().map_or("–".to_owned(), |stage| format!("{stage:?}").to_uppercase());
            [format!("{:#06x}", code.as_u32()), code.name().to_owned(), stage, letters(code).to_owned()]
        })
        .collect();
    let mut listed: Vec<[String; 4]> = Vec::new();
    for line in page().lines() {
        let cells: Vec<String> = line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect();
        for four in cells.windows(4).filter(|four| four[0].starts_with("0x") && four[0].len() == 6) {
            listed.push(four.to_vec().try_into().unwrap());
        }
    }
    listed.sort();
    assert_eq!(listed, expected);
}
