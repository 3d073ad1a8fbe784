//! Checks files of conformance vectors: prints every failure with its reason, notes about cases that pass, and a count.
//!
//! Exits with 0 when all cases pass, 1 when one fails, 2 when a file cannot be checked or none is given.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use testkit::vectors::{self, CaseReport};

fn main() -> ExitCode {
    let files: Vec<_> = std::env::args_os().skip(1).collect();
    let mut out = std::io::stdout().lock();
    if files.is_empty() || files.iter().any(|file| file == "--help" || file == "-h") {
        let usage =
            "usage: nereus-vectors FILE…\nchecks files of conformance vectors in the formats of testdata/vectors\n";
        let asked = !files.is_empty();
        let written =
            if asked { out.write_all(usage.as_bytes()) } else { std::io::stderr().write_all(usage.as_bytes()) };
        return if asked && written.is_ok() { ExitCode::SUCCESS } else { ExitCode::from(2) };
    }
    match check(&files, &mut out) {
        Ok(code) => code,
        // Nobody reads the output any more.
        Err(_) => ExitCode::FAILURE,
    }
}

fn check(files: &[std::ffi::OsString], out: &mut impl Write) -> std::io::Result<ExitCode> {
    let (mut passed, mut failed, mut unchecked) = (0_usize, 0_usize, 0_usize);
    for file in files {
        let reports = match vectors::check_file(Path::new(file)) {
            Ok(reports) => reports,
            Err(error) => {
                unchecked += 1;
                writeln!(std::io::stderr(), "{error}")?;
                continue;
            }
        };
        for report in &reports {
            print(report, out)?;
        }
        let failures = reports.iter().filter(|report| !report.failures.is_empty()).count();
        failed += failures;
        passed += reports.len() - failures;
    }
    writeln!(out, "{passed} passed, {failed} failed")?;
    out.flush()?;
    Ok(match (unchecked, failed) {
        (0, 0) => ExitCode::SUCCESS,
        (0, _) => ExitCode::FAILURE,
        _ => ExitCode::from(2),
    })
}

fn print(report: &CaseReport, out: &mut impl Write) -> std::io::Result<()> {
    for failure in &report.failures {
        writeln!(out, "FAILED {}: {failure}", report.name)?;
    }
    for note in report.notes.iter().filter(|_| report.failures.is_empty()) {
        writeln!(out, "note   {}: {note}", report.name)?;
    }
    Ok(())
}
