//! Standard output: data only, as text for people or JSON for programs.

use std::io::{self, ErrorKind, Write};

use serde::Serialize;

use crate::failure::{Exit, Failure};

/// How data is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// For people.
    Text,
    /// For programs.
    Json,
}

/// Writes whole lines to standard output.
#[derive(Debug)]
pub(crate) struct Output {
    form: Form,
}

impl Output {
    /// An output of a form.
    pub(crate) fn new(json: bool) -> Output {
        Output { form: if json { Form::Json } else { Form::Text } }
    }

    /// Whether JSON is wanted.
    pub(crate) fn is_json(&self) -> bool {
        self.form == Form::Json
    }

    /// One thing: its JSON on one line, or the text made for it.
    ///
    /// # Errors
    /// When standard output is closed.
    pub(crate) fn item<T: Serialize>(&self, item: &T, text: impl FnOnce(&T) -> String) -> Result<(), Failure> {
        match self.form {
            Form::Json => self.line(&to_json(item)?),
            Form::Text => self.line(text(item).trim_end_matches('\n')),
        }
    }

    /// Many things: an object a line, or a table.
    ///
    /// # Errors
    /// When standard output is closed.
    pub(crate) fn table<T: Serialize, const N: usize>(
        &self,
        items: &[T],
        header: [&'static str; N],
        row: impl Fn(&T) -> [String; N],
    ) -> Result<(), Failure> {
        match self.form {
            Form::Json => items.iter().try_for_each(|item| self.line(&to_json(item)?)),
            Form::Text => self.line(table(&header, &items.iter().map(row).collect::<Vec<_>>()).trim_end_matches('\n')),
        }
    }

    /// A line of text as it is.
    ///
    /// # Errors
    /// When standard output is closed.
    pub(crate) fn line(&self, text: &str) -> Result<(), Failure> {
        let mut out = io::stdout().lock();
        match writeln!(out, "{text}").and_then(|()| out.flush()) {
            // Whoever read from us has seen enough.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => Err(Failure::new(Exit::Done, "")),
            other => Ok(other?),
        }
    }
}

/// Says something to people.
pub(crate) fn say(text: &str) {
    // Nobody listens when standard error is closed, and that is no failure.
    let _ = writeln!(io::stderr().lock(), "{text}");
}

fn to_json(item: &impl Serialize) -> Result<String, Failure> {
    serde_json::to_string(item).map_err(|error| Failure::new(Exit::Failed, error.to_string()))
}

/// Columns wide enough for their content, two spaces apart.
fn table<const N: usize>(header: &[&'static str; N], rows: &[[String; N]]) -> String {
    let width = |text: &str| text.chars().count();
    let mut widths = header.map(width);
    for row in rows {
        for (column, cell) in widths.iter_mut().zip(row) {
            *column = (*column).max(width(cell));
        }
    }
    let mut text = String::new();
    let mut push = |cells: Vec<&str>| {
        let mut line = String::new();
        for (cell, column) in cells.into_iter().zip(widths) {
            line.push_str(cell);
            line.extend(std::iter::repeat_n(' ', column - width(cell) + 2));
        }
        text.push_str(line.trim_end());
        text.push('\n');
    };
    push(header.to_vec());
    for row in rows {
        push(row.iter().map(String::as_str).collect());
    }
    text
}

/// Name and value a line, the values in one column; what has no value is left out.
pub(crate) fn fields(fields: &[(&str, Option<String>)]) -> String {
    let width = fields.iter().filter(|(_, value)| value.is_some()).map(|(name, _)| name.len()).max().unwrap_or(0);
    let mut text = String::new();
    for (name, value) in fields {
        if let Some(value) = value {
            text.push_str(&format!("{name:width$}  {value}\n"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_align_and_fields_leave_out_what_is_absent() {
        let rows = [["a".to_owned(), "ä-long".to_owned()], ["bcd".to_owned(), String::new()]];
        assert_eq!(table(&["ID", "NAME"], &rows), "ID   NAME\na    ä-long\nbcd\n");
        let lines = fields(&[("id", Some("x".to_owned())), ("last_error", None), ("status", Some("y".to_owned()))]);
        assert_eq!(lines, "id      x\nstatus  y\n");
    }
}
