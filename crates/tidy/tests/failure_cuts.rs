//! The page of failure cuts: each of them once and in order, a test or a reason for each, and no test that is not there.

use tidy::{NamedTest, named_tests, quoted, text};

const PAGE: &str = "docs/failure-cuts.md";
/// How many the published design counts.
const CUTS: u32 = 93;
/// The columns of the page.
const COLUMNS: usize = 5;

/// What the note of a row begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mark {
    Covered,
    Partly,
    /// Later, does not apply: no test is asked for.
    Reason,
}

/// Everything but what is covered: the words on the page.
const MARKS: [(&str, Mark); 3] =
    [("**partly:**", Mark::Partly), ("**later:**", Mark::Reason), ("**does not apply:**", Mark::Reason)];

struct Row<'a> {
    number: u32,
    happens: &'a str,
    holds: &'a str,
    tests: &'a str,
    note: &'a str,
}

impl<'a> Row<'a> {
    /// A line of a table whose first cell is a number.
    fn parse(line: &'a str) -> Option<Row<'a>> {
        let inner = line.strip_prefix('|')?.strip_suffix('|')?;
        let cells: Vec<&str> = inner.split('|').map(str::trim).collect();
        let number = cells[0].parse().ok()?;
        assert_eq!(cells.len(), COLUMNS, "cut {number} has {} cells", cells.len());
        Some(Row { number, happens: cells[1], holds: cells[2], tests: cells[3], note: cells[4] })
    }

    /// The mark, and what follows it.
    fn mark(&self) -> (Mark, &'a str) {
        let marked = MARKS.iter().find_map(|(words, mark)| Some((*mark, self.note.strip_prefix(words)?.trim())));
        marked.unwrap_or((Mark::Covered, self.note))
    }
}

#[test]
fn every_cut_has_one_row_in_its_order() {
    let page = text(PAGE);
    let numbers: Vec<u32> = page.lines().filter_map(Row::parse).map(|row| row.number).collect();
    for number in 1..=CUTS {
        let count = numbers.iter().filter(|found| **found == number).count();
        assert_eq!(count, 1, "{PAGE} has cut {number} so many times");
    }
    assert!(numbers.is_sorted() && numbers.len() == CUTS as usize, "{PAGE} has the cuts in another order: {numbers:?}");
}

#[test]
fn every_row_has_a_test_or_a_reason() {
    let page = text(PAGE);
    for row in page.lines().filter_map(Row::parse) {
        let number = row.number;
        assert!(!row.happens.is_empty() && !row.holds.is_empty(), "cut {number} does not say what it is about");
        let (mark, rest) = row.mark();
        // So that a misspelt mark is noticed: remarks are whole sentences.
        let is_remark = !rest.starts_with(|first: char| first == '*' || first.is_lowercase());
        assert!(mark != Mark::Covered || is_remark, "cut {number} has a mark of its own: {rest}");
        assert!(mark == Mark::Covered || !rest.is_empty(), "cut {number} has a mark and does not say why");
        assert!(mark == Mark::Reason || !row.tests.is_empty(), "cut {number} names no test and no reason");
    }
}

#[test]
fn every_test_that_is_named_exists() {
    let page = text(PAGE);
    for row in page.lines().filter_map(Row::parse) {
        for name in quoted(row.tests) {
            let test = NamedTest::parse(name).unwrap_or_else(|| panic!("cut {} names {name}, not a test", row.number));
            assert!(test.exists(), "cut {} names {test}, which is no test here", row.number);
        }
    }
    // Also outside of the rows.
    for test in named_tests(&page) {
        assert!(test.exists(), "{PAGE} names {test}, which is no test here");
    }
}
