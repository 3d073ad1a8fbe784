//! What the programs print: results to standard output, progress to standard error.

use std::io::{self, Write as _};

/// Prints a line of the result.
pub fn print(text: &str) {
    // Whoever closed our output has seen enough of it.
    let _ = writeln!(io::stdout().lock(), "{text}");
}

/// Tells people how far it is.
pub fn say(text: &str) {
    // Nobody listens when standard error is closed, and that is no failure.
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// Columns wide enough for their content, two spaces apart; the first to the left, the others to the right.
pub fn table(rows: &[Vec<String>]) -> String {
    let column_count = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width_of = |text: &str| text.chars().count();
    let mut widths = vec![0; column_count];
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = width_of(cell).max(*width);
        }
    }
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (index, (cell, width)) in row.iter().zip(&widths).enumerate() {
            let padding = " ".repeat(width - width_of(cell));
            match index {
                0 => line.push_str(&format!("{cell}{padding}")),
                _ => line.push_str(&format!("  {padding}{cell}")),
            }
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// A whole number with its thousands apart.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_align() {
        let rows = [vec!["name".to_owned(), "n".to_owned()], vec!["ä".to_owned(), "1,000".to_owned()]];
        assert_eq!(table(&rows), "name      n\nä     1,000\n");
    }

    #[test]
    fn thousands_are_apart() {
        assert_eq!([0, 999, 1_000, 12_345_678].map(grouped), ["0", "999", "1,000", "12,345,678"]);
    }
}
