//! Tests of the store from outside, on real folders.

mod common;
mod conformance;
mod opening;
mod persistence;
mod release;
mod replay;
mod shared;
