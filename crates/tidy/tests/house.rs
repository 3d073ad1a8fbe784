//! Files, headers, documents: what a reader may rely on everywhere.

use std::collections::BTreeSet;

use tidy::{named_tests, root, text, tracked};

/// A file longer than this needs a reason here.
const LINES_MAX: usize = 800;
const LONG_FILES: [&str; 0] = [];
/// `ARCHITECTURE.md` stays a map.
const ARCHITECTURE_LINES_MAX: usize = 400;

/// Items that are the one home of something the lints ban, by file.
const EXCEPTIONS: [(&str, &str); 0] = [];

fn rust_files() -> Vec<String> {
    tracked().into_iter().filter(|name| name.ends_with(".rs")).collect()
}

#[test]
fn every_module_says_why_it_exists() {
    for name in rust_files() {
        let text = text(&name);
        assert!(text.starts_with("//! "), "{name} has no module header");
    }
}

#[test]
fn no_file_is_too_long() {
    for name in rust_files().into_iter().filter(|name| !LONG_FILES.contains(&name.as_str())) {
        let lines = text(&name).lines().count();
        assert!(lines <= LINES_MAX, "{name} has {lines} lines; {LINES_MAX} is the limit without a reason");
    }
    let lines = text("ARCHITECTURE.md").lines().count();
    assert!(lines <= ARCHITECTURE_LINES_MAX, "ARCHITECTURE.md has {lines} lines");
}

#[test]
fn bans_are_lifted_only_where_the_reason_stands_beside() {
    for name in rust_files() {
        let text = text(&name);
        for (number, line) in text.lines().enumerate() {
            // Spelt in parts, so that this file does not find itself.
            let lifts = ["expect", "allow"].iter().any(|verb| line.contains(&format!("{verb}(clippy::disallowed")));
            if lifts {
                assert!(line.contains("reason = "), "{name}:{}: a lifted ban states its reason", number + 1);
                let in_core = ["crates/protocol/src", "crates/shard/src"].iter().any(|core| name.starts_with(core));
                assert!(
                    !in_core || EXCEPTIONS.contains(&(name.as_str(), line.trim())),
                    "{name}: the core lifts no ban"
                );
            }
            assert!(
                !line.contains(&["#[ig", "nore"].concat()),
                "{name}:{}: a test that does not run is none",
                number + 1
            );
        }
    }
}

#[test]
fn the_lints_ban_what_the_house_bans() {
    let clippy = text("clippy.toml");
    for banned in [
        "std::time::SystemTime::now",
        "std::time::Instant::now",
        "std::thread::sleep",
        "tokio::time::sleep",
        "std::thread::spawn",
        "tokio::spawn",
        "tokio::sync::mpsc::unbounded_channel",
        "std::sync::mpsc::channel",
        "std::collections::HashMap",
        "std::collections::HashSet",
    ] {
        assert!(clippy.contains(&format!("\"{banned}\"")), "clippy.toml does not ban {banned}");
    }
    let manifest = text("Cargo.toml");
    for lint in
        ["unwrap_used = \"deny\"", "print_stdout = \"deny\"", "await_holding_lock = \"deny\"", "unsafe_code = \"deny\""]
    {
        assert!(manifest.contains(lint), "Cargo.toml does not have {lint}");
    }
    for name in tracked().iter().filter(|name| name.starts_with("crates/") && name.ends_with("Cargo.toml")) {
        assert!(text(name).contains("[lints]\nworkspace = true"), "{name} has lints of its own");
        assert!(text(name).contains("license.workspace = true"), "{name} has no licence");
    }
}

#[test]
fn every_dependency_says_why_it_is_here() {
    let documented = text("docs/dependencies.md");
    let manifest = text("Cargo.toml");
    let dependencies =
        manifest.split("[workspace.dependencies]").nth(1).and_then(|rest| rest.split("\n[").next()).unwrap_or_default();
    for line in dependencies.lines().filter(|line| line.contains('=') && !line.contains("path = ")) {
        let name = line.split('=').next().unwrap_or_default().trim();
        assert!(documented.contains(&format!("| `{name}` |")), "docs/dependencies.md has no line for {name}");
    }
}

#[test]
fn decisions_are_numbered_and_listed() {
    let index = text("docs/adr/README.md");
    let mut numbers = BTreeSet::new();
    for name in tracked().iter().filter_map(|name| name.strip_prefix("docs/adr/")).filter(|name| *name != "README.md") {
        let number = name.get(..4).and_then(|number| number.parse::<u32>().ok());
        let number = number.unwrap_or_else(|| panic!("docs/adr/{name} has no number"));
        assert!(numbers.insert(number), "docs/adr has {number} twice");
        assert!(index.contains(&format!("({name})")), "docs/adr/README.md does not list {name}");
        let record = text(&format!("docs/adr/{name}"));
        assert!(record.starts_with(&format!("# {number:04}: ")), "docs/adr/{name} does not begin with its number");
        for part in ["**Context.**", "**Decision.**", "**Cost.**", "**Tests.**"] {
            assert!(record.contains(part), "docs/adr/{name} has no {part}");
        }
    }
}

#[test]
fn the_map_names_every_crate_and_only_tests_that_exist() {
    let map = text("ARCHITECTURE.md");
    for name in tracked() {
        if let Some(crate_name) = name.strip_prefix("crates/").and_then(|name| name.strip_suffix("/Cargo.toml")) {
            assert!(map.contains(&format!("`{crate_name}`")), "ARCHITECTURE.md does not name the crate {crate_name}");
        }
    }
    let mut named = 0;
    for test in named_tests(&map) {
        assert!(test.exists(), "ARCHITECTURE.md names {test}, which is no test here");
        named += 1;
    }
    assert!(named >= 7, "each of the seven invariants names its tests");
}

#[test]
fn the_error_index_lists_every_page() {
    let index = text("docs/errors/README.md");
    for name in tracked().iter().filter_map(|name| name.strip_prefix("docs/errors/")) {
        let code = name.trim_end_matches(".md");
        assert!(code == "README" || index.contains(code), "docs/errors/README.md does not list {code}");
    }
}

#[test]
fn links_between_documents_lead_somewhere() {
    for name in tracked().iter().filter(|name| name.ends_with(".md")) {
        let folder = root().join(name).parent().map(std::path::Path::to_owned).unwrap_or_default();
        let text = text(name);
        for target in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let path = target.split('#').next().unwrap_or_default();
            let is_elsewhere = path.is_empty() || path.contains("://");
            assert!(is_elsewhere || folder.join(path).exists(), "{name} links to {target}, which is not there");
        }
    }
}

#[test]
fn nothing_names_a_place_of_one_machine() {
    // Spelt in parts, so that this file does not find itself.
    let places = [["/ro", "ot/"].concat(), ["/wo", "rk/"].concat(), ["/ho", "me/"].concat()];
    for name in tracked().iter().filter(|name| !name.ends_with(".lock")) {
        let Ok(text) = std::fs::read_to_string(root().join(name)) else { continue };
        for place in &places {
            assert!(!text.contains(place), "{name} names {place}");
        }
    }
}
