//! The small file beside a database that says what the folder is and whose.
//!
//! Without it a wrong path, an old binary or a half-made folder would show as missing rows or as RocksDB's own words. Text, so
//! that an operator can read it; one canonical form, so that any edit or torn write shows:
//!
//! ```text
//! nereus-delay shard-store
//! version 1
//! state ready
//! incarnation 0190c2f4a1b27c3d8e4f5a6b7c8d9e0f
//! identity 726f7574652d612f33
//! crc32c 5f2e8a41
//! ```
//!
//! The checksum covers every line before its own. `state creating` stands while the database beside the file is made for the
//! first time, so that a crash in between is told from a database that somebody removed.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

/// The name of the file.
pub const FILE_NAME: &str = "FORMAT";
const TEMPORARY_NAME: &str = "FORMAT.new";
/// Far more than any file of ours has.
const FILE_BYTES_MAX: u64 = 64 * 1024;

/// How far the database beside the file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DatabaseState {
    /// It is being made and holds nothing yet; a crash may have left any part of it.
    Creating,
    /// It was made and is there.
    Ready,
}

/// What the file says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Format {
    /// What kind of folder this is: lower-case letters and dashes.
    pub kind: String,
    /// The version of everything in the folder that its owner's code defines.
    pub version: u32,
    /// How far the database is.
    pub state: DatabaseState,
    /// The id this incarnation of the folder's contents was given when it was made.
    pub incarnation: [u8; 16],
    /// Whose contents these are, in the owner's own bytes.
    pub identity: Vec<u8>,
}

/// What a folder must be to be opened.
#[derive(Clone, Copy, Debug)]
pub struct Expected<'a> {
    /// The kind of folder.
    pub kind: &'a str,
    /// The newest version this build can read.
    pub version_max: u32,
    /// Whose it must be.
    pub identity: &'a [u8],
}

/// A format file that could not be used.
#[derive(Debug, thiserror::Error)]
pub enum FormatError {
    /// The operating system refused.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What it said.
        source: io::Error,
    },
    /// The file is not what any version writes: torn, edited, or of something else.
    #[error("{} is corrupt: {detail}", path.display())]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        detail: String,
    },
    /// The folder holds something else of ours.
    #[error("{} is of kind {found}, expected {expected}", path.display())]
    WrongKind {
        /// The file.
        path: PathBuf,
        /// The kind it states.
        found: String,
        /// The kind that was asked for.
        expected: String,
    },
    /// The folder was written by a newer build.
    #[error("{} has format version {found}, this build reads up to {supported}: use a newer build", path.display())]
    Newer {
        /// The file.
        path: PathBuf,
        /// The version it states.
        found: u32,
        /// The newest version this build reads.
        supported: u32,
    },
    /// The folder belongs to somebody else.
    #[error("{} belongs to {}, expected {}", path.display(), readable(found), readable(expected))]
    Foreign {
        /// The file.
        path: PathBuf,
        /// The identity it states.
        found: Vec<u8>,
        /// The identity that was asked for.
        expected: Vec<u8>,
    },
}

/// Refuses a folder that a newer build has written, without touching it. Whatever else is wrong with it shows when it is opened.
///
/// # Errors
/// [`FormatError::Newer`] only.
pub fn refuse_newer(folder: &Path, version_max: u32) -> Result<(), FormatError> {
    match Format::read(folder) {
        Ok(Some(Format { version, .. })) if version > version_max => {
            Err(FormatError::Newer { path: folder.join(FILE_NAME), found: version, supported: version_max })
        }
        _ => Ok(()),
    }
}

/// An identity as people read it: text where it is text, hex otherwise.
fn readable(identity: &[u8]) -> String {
    match std::str::from_utf8(identity) {
        Ok(text) if !text.chars().any(char::is_control) => format!("{text:?}"),
        _ => format!("0x{}", hex::encode(identity)),
    }
}

impl Format {
    /// Reads the file of `folder`; `None` when there is none.
    ///
    /// # Errors
    /// [`FormatError::Io`] and [`FormatError::Corrupt`].
    pub fn read(folder: &Path) -> Result<Option<Format>, FormatError> {
        let path = folder.join(FILE_NAME);
        let io_error = |source| FormatError::Io { path: path.clone(), source };
        let corrupt = |detail: String| FormatError::Corrupt { path: path.clone(), detail };
        let length = match fs::metadata(&path) {
            Ok(metadata) => metadata.len(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(io_error(error)),
        };
        if length > FILE_BYTES_MAX {
            return Err(corrupt(format!("{length} bytes, at most {FILE_BYTES_MAX} are possible")));
        }
        let text = fs::read(&path).map_err(io_error)?;
        let text = String::from_utf8(text).map_err(|error| corrupt(error.to_string()))?;
        let format = Format::parse(&text).map_err(|detail| corrupt(detail.to_owned()))?;
        // Whatever parsing forgave (white space, a missing newline, upper-case digits) shows here.
        if format.encode() != text {
            return Err(corrupt("not in the one form it is written in, or its checksum does not match".to_owned()));
        }
        Ok(Some(format))
    }

    /// Writes the file of `folder`, atomically and durably: a crash leaves the old one or this one.
    ///
    /// # Errors
    /// [`FormatError::Io`].
    pub fn write(&self, folder: &Path) -> Result<(), FormatError> {
        let path = folder.join(FILE_NAME);
        self.write_to(folder, &path).map_err(|source| FormatError::Io { path, source })
    }

    fn write_to(&self, folder: &Path, path: &Path) -> io::Result<()> {
        let temporary = folder.join(TEMPORARY_NAME);
        let mut file = File::create(&temporary)?;
        file.write_all(self.encode().as_bytes())?;
        file.sync_all()?;
        drop(file);
        fs::rename(&temporary, path)?;
        sync_folder(folder)
    }

    /// Checks that a folder with this file at `folder` is what the caller expects.
    ///
    /// # Errors
    /// [`FormatError::WrongKind`], [`FormatError::Newer`] and [`FormatError::Foreign`], in this order.
    pub fn check(&self, folder: &Path, expected: &Expected<'_>) -> Result<(), FormatError> {
        let path = folder.join(FILE_NAME);
        if self.kind != expected.kind {
            let (found, expected) = (self.kind.clone(), expected.kind.to_owned());
            return Err(FormatError::WrongKind { path, found, expected });
        }
        if self.version > expected.version_max {
            return Err(FormatError::Newer { path, found: self.version, supported: expected.version_max });
        }
        if self.identity != expected.identity {
            let (found, expected) = (self.identity.clone(), expected.identity.to_vec());
            return Err(FormatError::Foreign { path, found, expected });
        }
        Ok(())
    }

    fn encode(&self) -> String {
        let Format { kind, version, state, incarnation, identity } = self;
        let state = match state {
            DatabaseState::Creating => "creating",
            DatabaseState::Ready => "ready",
        };
        let mut text = format!(
            "nereus-delay {kind}\nversion {version}\nstate {state}\nincarnation {}\nidentity {}\n",
            hex::encode(incarnation),
            hex::encode(identity)
        );
        let checksum = crc32c::crc32c(text.as_bytes());
        writeln!(text, "crc32c {checksum:08x}").expect("a String takes everything");
        text
    }

    fn parse(text: &str) -> Result<Format, &'static str> {
        let mut lines = text.lines();
        let mut field = |name: &str| {
            let (found, value) = lines.next()?.split_once(' ')?;
            (found == name).then_some(value)
        };
        let kind = field("nereus-delay").ok_or("it does not start with nereus-delay")?.to_owned();
        let version = field("version").and_then(|value| value.parse().ok()).ok_or("no version")?;
        let state = match field("state").ok_or("no state")? {
            "creating" => DatabaseState::Creating,
            "ready" => DatabaseState::Ready,
            _ => return Err("unknown state"),
        };
        let incarnation = field("incarnation")
            .and_then(|value| hex::decode(value).ok())
            .and_then(|value| value.try_into().ok())
            .ok_or("no incarnation of 16 bytes")?;
        let identity = field("identity").and_then(|value| hex::decode(value).ok()).ok_or("no identity")?;
        Ok(Format { kind, version, state, incarnation, identity })
    }
}

/// Makes renames and new names in a folder durable.
///
/// # Errors
/// Those of the operating system.
pub fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn format() -> Format {
        Format {
            kind: "shard-store".to_owned(),
            version: 3,
            state: DatabaseState::Ready,
            incarnation: [0xab; 16],
            identity: b"default/0".to_vec(),
        }
    }

    fn expected() -> Expected<'static> {
        Expected { kind: "shard-store", version_max: 3, identity: b"default/0" }
    }

    #[test]
    fn what_is_written_is_read() {
        let folder = tempfile::tempdir().expect("temporary folder");
        assert!(Format::read(folder.path()).expect("no file is no error").is_none());
        format().write(folder.path()).expect("written");
        assert_eq!(Format::read(folder.path()).expect("readable"), Some(format()));
        let ready = Format { state: DatabaseState::Creating, ..format() };
        ready.write(folder.path()).expect("replaced");
        assert_eq!(Format::read(folder.path()).expect("readable"), Some(ready));
    }

    #[test]
    fn the_bytes_are_these() {
        assert_eq!(
            format().encode(),
            "nereus-delay shard-store\nversion 3\nstate ready\nincarnation abababababababababababababababab\n\
             identity 64656661756c742f30\ncrc32c d71d8bcc\n"
        );
    }

    #[test]
    fn a_torn_or_edited_file_is_corrupt() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let text = format().encode();
        let mut broken: Vec<String> = (0..text.len()).map(|length| text[..length].to_owned()).collect();
        broken.push(text.replace("version 3", "version 2"));
        broken.push(text.replace("version 3", "version 03"));
        broken.push(format!("{text}\n"));
        broken.push("x".repeat(100_000));
        for broken in broken {
            fs::write(folder.path().join(FILE_NAME), &broken).expect("written");
            let error = Format::read(folder.path()).expect_err(&broken);
            assert!(matches!(error, FormatError::Corrupt { .. }), "{error} for {broken:?}");
        }
    }

    #[test]
    fn a_file_that_was_not_renamed_does_not_count() {
        let folder = tempfile::tempdir().expect("temporary folder");
        fs::write(folder.path().join(TEMPORARY_NAME), "half").expect("written");
        assert!(Format::read(folder.path()).expect("no file is no error").is_none());
        format().write(folder.path()).expect("written over it");
    }

    #[test]
    fn every_mismatch_names_both_sides() {
        let folder = Path::new("/data/shard");
        assert!(format().check(folder, &expected()).is_ok());
        assert!(format().check(folder, &Expected { version_max: 4, ..expected() }).is_ok(), "older formats are read");
        let text = |expected| format().check(folder, &expected).expect_err("mismatch").to_string();
        assert_eq!(
            text(Expected { kind: "embedded", ..expected() }),
            "/data/shard/FORMAT is of kind shard-store, expected embedded"
        );
        assert_eq!(
            text(Expected { version_max: 2, ..expected() }),
            "/data/shard/FORMAT has format version 3, this build reads up to 2: use a newer build"
        );
        assert_eq!(
            text(Expected { identity: b"\x00\x01", ..expected() }),
            "/data/shard/FORMAT belongs to \"default/0\", expected 0x0001"
        );
    }

    proptest! {
        #[test]
        fn every_format_has_one_form(version: u32, incarnation: [u8; 16], identity: Vec<u8>, ready: bool) {
            let state = if ready { DatabaseState::Ready } else { DatabaseState::Creating };
            let format = Format { kind: "shard-store".to_owned(), version, state, incarnation, identity };
            prop_assert_eq!(Format::parse(&format.encode()), Ok(format));
        }
    }
}
