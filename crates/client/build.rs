//! Embeds the pages of docs/errors, so that the server and the command line show what the repository says.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/errors").canonicalize()?;
    println!("cargo:rerun-if-changed={}", folder.display());
    let mut names = Vec::new();
    for entry in fs::read_dir(&folder)? {
        let name = entry?.file_name().into_string().map_err(|name| format!("{name:?} is no text"))?;
        if let Some(code) = name.strip_suffix(".md").filter(|code| *code != "README") {
            names.push(code.to_owned());
        }
    }
    names.sort();
    let mut source = String::from("&[\n");
    for name in names {
        let path = folder.join(format!("{name}.md"));
        println!("cargo:rerun-if-changed={}", path.display());
        writeln!(source, "    ({name:?}, include_str!({path:?})),")?;
    }
    source.push_str("]\n");
    let out = std::env::var_os("OUT_DIR").ok_or("OUT_DIR is not set")?;
    fs::write(Path::new(&out).join("pages.rs"), source)?;
    Ok(())
}
