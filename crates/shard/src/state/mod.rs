//! What a shard stores, table by table.

pub mod envelope;
