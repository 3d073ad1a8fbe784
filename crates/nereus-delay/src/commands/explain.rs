//! The page of a code, as the server's `/errors/CODE` shows it.

use client::api::pages;
use client::api::problem::Code;
use serde::Serialize;

use crate::cli::ExplainArgs;
use crate::failure::{Exit, Failure};
use crate::output::Output;

/// A code as a row, or with its page.
#[derive(Serialize)]
struct Explained {
    code: &'static str,
    title: String,
    status: u16,
    retryable: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    page: Option<&'static str>,
}

fn explained(code: Code, page: Option<&'static str>) -> Explained {
    Explained { code: code.name(), title: code.title(), status: code.status(), retryable: code.is_retryable(), page }
}

/// Prints the page of a code, or lists the codes.
pub(super) fn explain(args: &ExplainArgs, output: &Output) -> Result<(), Failure> {
    let Some(name) = &args.code else {
        let codes: Vec<Explained> = Code::all().map(|code| explained(code, None)).collect();
        return output.table(&codes, ["CODE", "STATUS", "TITLE"], |code| {
            [code.code.to_owned(), code.status.to_string(), code.title.clone()]
        });
    };
    let unknown = || {
        let wanted = name.to_ascii_uppercase();
        let similar: Vec<&str> = Code::all().map(Code::name).filter(|known| known.contains(&wanted)).collect();
        let hint = match similar.as_slice() {
            [] => "nereus-delay explain lists all".to_owned(),
            similar => format!("there are {}", similar.join(", ")),
        };
        Failure::new(Exit::NotFound, format!("there is no code {name:?}; {hint}"))
    };
    let code = Code::from_name(name).ok_or_else(unknown)?;
    output.item(&explained(code, pages::page(code)), |explained| explained.page.unwrap_or(&explained.title).to_owned())
}
