//! A data folder that a newer build has written, under this one.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use harness::process::ServerProcess;
use store::format_file::Format;

use super::Stage;
use crate::world::run;

/// Every file of a folder, with its bytes.
fn files(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            files.extend(self::files(&path));
        } else {
            let bytes = std::fs::read(&path).expect("readable");
            files.insert(path, bytes);
        }
    }
    files
}

#[test]
fn a_folder_of_a_newer_build_is_refused_whole_and_left_as_it_is() {
    run(async {
        let mut stage = Stage::new();
        let options = stage.options();
        let server = stage.start().await;
        stage.load(&server).await;
        assert!(server.stop().await.expect("it stops").success());

        let formats: Vec<PathBuf> =
            files(&options.data()).into_keys().filter(|path| path.ends_with("FORMAT")).collect();
        assert_eq!(formats.len(), 4, "the embedded log and three shards: {formats:?}");
        for path in formats {
            let folder = path.parent().expect("a folder");
            let format = Format::read(folder).expect("readable").expect("there");
            Format { version: 7, ..format.clone() }.write(folder).expect("written");
            let before = files(&options.data());
            let refused = ServerProcess::start_refused(&options).await.expect("it ends");
            assert_eq!((refused.exit_code, refused.announced.as_str()), (Some(1), ""), "{}", refused.said);
            let expected = format!("{} has format version 7, this build reads up to 1", path.display());
            assert!(refused.said.contains(&expected), "{expected}\n{}", refused.said);
            let after = files(&options.data());
            let changed: Vec<_> = before.iter().filter(|(path, bytes)| after.get(*path) != Some(bytes)).collect();
            assert!(changed.is_empty() && before.len() == after.len(), "{changed:?}");
            format.write(folder).expect("written");
        }
        let server = stage.start().await;
        stage.close(server).await;
    });
}
