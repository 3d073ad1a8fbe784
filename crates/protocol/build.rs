//! Compiles the .proto files with protox, so that building needs no protoc.

use std::error::Error;
use std::path::Path;

const FILES: [&str; 10] = [
    "v1/common.proto",
    "v1/envelope.proto",
    "v1/command.proto",
    "v1/publish.proto",
    "v1/evidence.proto",
    "v1/mutation.proto",
    "v1/semantic.proto",
    "v1/receipt.proto",
    "v2/control.proto",
    "v2/mutation.proto",
];

fn main() -> Result<(), Box<dyn Error>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../proto");
    println!("cargo::rerun-if-changed={}", root.display());
    let descriptors = protox::compile(FILES.map(|file| root.join(file)), [&root])?;
    prost_build::Config::new()
        // A byte field is a slice of the frame it came in, not a copy of it.
        .bytes(["."])
        .compile_fds(descriptors)?;
    Ok(())
}
