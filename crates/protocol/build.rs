//! Compiles the .proto files with protox, so that building needs no protoc, and writes down the schema of every message, so that
//! canonical form can be checked in one pass (see `src/schema.rs`).

use std::error::Error;
use std::fmt::Write;
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

    let mut schemas = String::new();
    for file in &descriptors.file {
        let proto3 = file.syntax() == "proto3";
        let module = file.package().rsplit('.').next().unwrap_or_default();
        for message in &file.message_type {
            let constant = format!("{}_{}", module.to_uppercase(), message.name().to_uppercase());
            let mut fields: Vec<_> = message.field.iter().collect();
            fields.sort_by_key(|field| field.number());
            writeln!(schemas, "static {constant}: Schema = Schema {{ name: {:?}, fields: &[", message.name())?;
            for field in fields {
                let repeated = field.label().as_str_name() == "LABEL_REPEATED";
                let of_choice = field.oneof_index.is_some() && !field.proto3_optional();
                let scalar = field.type_name.is_none() || field.r#type().as_str_name() == "TYPE_ENUM";
                let kind = match field.r#type().as_str_name() {
                    "TYPE_ENUM" if repeated && proto3 => "PackedEnum".to_owned(),
                    _ if repeated && scalar => {
                        return Err(format!("{constant}: repeated scalars are not taught").into());
                    }
                    "TYPE_BOOL" => "Bool".to_owned(),
                    "TYPE_ENUM" => "Enum".to_owned(),
                    "TYPE_UINT32" => "Uint32".to_owned(),
                    "TYPE_UINT64" | "TYPE_INT64" => "Int64".to_owned(),
                    "TYPE_BYTES" => "Bytes".to_owned(),
                    "TYPE_STRING" => "Text".to_owned(),
                    "TYPE_MESSAGE" => {
                        let path: Vec<&str> = field.type_name().rsplit('.').take(2).collect();
                        format!("Message(&{}_{})", path[1].to_uppercase(), path[0].to_uppercase())
                    }
                    other => return Err(format!("{constant}: {other} does not occur in canonical messages").into()),
                };
                let presence = match field.label().as_str_name() {
                    "LABEL_REQUIRED" => "Required".to_owned(),
                    "LABEL_REPEATED" if kind == "PackedEnum" => "Implicit".to_owned(),
                    "LABEL_REPEATED" => "Repeated".to_owned(),
                    _ if of_choice => format!("Choice({})", field.oneof_index()),
                    _ if proto3 && scalar && !field.proto3_optional() => "Implicit".to_owned(),
                    _ => "Optional".to_owned(),
                };
                let varint = matches!(kind.as_str(), "Bool" | "Enum" | "Uint32" | "Int64");
                let key = field.number() << 3 | if varint { 0 } else { 2 };
                let (name, kind) = (field.name(), format!("Kind::{kind}"));
                let presence = format!("Presence::{presence}");
                writeln!(schemas, "Field {{ key: {key}, name: {name:?}, kind: {kind}, presence: {presence} }},")?;
            }
            writeln!(schemas, "] }};")?;
            let message = message.name();
            writeln!(schemas, "impl Canonical for crate::{module}::{message} {{")?;
            writeln!(schemas, "const SCHEMA: &'static Schema = &{constant};\n}}")?;
        }
    }
    std::fs::write(Path::new(&std::env::var_os("OUT_DIR").ok_or("cargo sets OUT_DIR")?).join("schemas.rs"), schemas)?;

    prost_build::Config::new()
        // A byte field is a slice of the frame it came in, not a copy of it.
        .bytes(["."])
        .compile_fds(descriptors)?;
    Ok(())
}
