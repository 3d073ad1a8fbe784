//! The release binary as its users see it: over HTTP and on the command line, across stops, crashes and bad input.

mod bad_input;
mod batch;
mod changes;
mod command_line;
mod crash;
mod idempotency;
mod kafka;
mod process;
mod reading;
mod restart;
mod world;
