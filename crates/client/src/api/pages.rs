//! The page of every code: what `nereus-delay explain CODE` prints and `/errors/CODE` answers.

use super::problem::Code;

/// Name and page, ascending by name; made from docs/errors by build.rs.
static PAGES: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/pages.rs"));

/// The page of a code, Markdown. `None` for a code without a page, which a test of this module forbids.
pub fn page(code: Code) -> Option<&'static str> {
    let index = PAGES.binary_search_by_key(&code.name(), |(name, _)| name).ok()?;
    PAGES.get(index).map(|(_, page)| *page)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_code_has_a_page_that_agrees_with_its_table_and_every_page_has_a_code() {
        for code in Code::all() {
            let page = page(code).unwrap_or_else(|| panic!("docs/errors/{code}.md is missing"));
            assert!(page.starts_with(&format!("# {code}\n\n")), "docs/errors/{code}.md: its heading is not the code");
            let repeat = if code.is_retryable() { "can help" } else { "does not help" };
            let status = format!("HTTP status {}. Sending the same request again {repeat}.", code.status());
            assert!(page.contains(&status), "docs/errors/{code}.md does not say: {status}");
        }
        let codes: BTreeSet<&str> = Code::all().map(Code::name).collect();
        let strays: Vec<_> = PAGES.iter().map(|(name, _)| name).filter(|name| !codes.contains(**name)).collect();
        assert!(strays.is_empty(), "pages without a code: {strays:?}");
    }
}
