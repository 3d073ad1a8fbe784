//! The `nereus-delay` program.

fn main() {}
