//! Generates the row types from proto/v2/row.proto, with protox: no protoc needed.

use std::path::Path;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let proto_dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../proto");
    let row = proto_dir.join("v2/row.proto");
    println!("cargo:rerun-if-changed={}", proto_dir.display());
    let descriptors = protox::compile([row], [proto_dir])?;
    prost_build::Config::new()
        .bytes(["."])
        .extern_path(".nereus.delay.v2", "::protocol::v2")
        .compile_fds(descriptors)?;
    Ok(())
}
