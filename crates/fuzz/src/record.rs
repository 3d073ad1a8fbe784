//! Frames of the shard log: the bytes as they come, and the same with the check sum that they should have.

use bytes::Bytes;
use protocol::command::{ClientCommand, CommandBody, prepare};
use protocol::frame;
use protocol::mutation_v1::MutationV1;
use protocol::mutation_v2::MutationV2;
use protocol::record::{self, LogRecord, Malformed, Part, RecordError};
use testkit::log::signing_key;

use crate::{check_error, forge};

/// A value of the shard log.
pub fn record(input: &[u8]) {
    check(&Bytes::copy_from_slice(input));
    if let Some(sound) = forge::sound_frame(input, frame::MAGIC) {
        check(&sound);
    }
}

/// Decodes a frame. What decodes is what an encoder writes, to the byte.
pub(crate) fn check(frame: &Bytes) {
    match record::decode(frame) {
        Ok(record) => {
            assert_eq!(record.encode_frame(), frame, "another frame than was read");
            check_writable(record);
        }
        Err(error) => {
            check_error(&error);
            if let RecordError::Malformed(Malformed { part: Part::Body, identity, .. }) = &error {
                let is_command = frame.get(5) == Some(&frame::RecordKind::ClientCommand.as_u8());
                assert_eq!(identity.is_some(), is_command, "a command that cannot be answered: {error}");
            }
        }
    }
}

/// Whoever writes records would have written this one: the value alone gives the bytes.
fn check_writable(record: LogRecord) {
    match record {
        LogRecord::Command(command) => {
            let ClientCommand { command_id, message_id, retry_until_ms, body, .. } = command.clone();
            if let CommandBody::Schedule(schedule) = &body
                && let Err(error) = prepare::check_metadata(schedule.intent())
            {
                // A name of the caller's may stand in the error; its length is bounded by the record's.
                drop(error.to_string());
            }
            let written = ClientCommand::new(command_id, message_id, retry_until_ms, body);
            assert_eq!(written.as_ref(), Ok(&command), "a command that nobody could have prepared");
        }
        LogRecord::MutationV2(read) => {
            let MutationV2 { shard, author, retry_until_ms, body, signing_key_version, .. } = read.clone();
            let written = MutationV2::sign(shard, author, retry_until_ms, body, signing_key_version, &signing_key(1))
                .expect("what decodes can be written");
            assert_eq!(written.body_bytes, read.body_bytes, "another body than was read");
            assert_eq!((written.hash, written.mutation_id), (read.hash, read.mutation_id));
        }
        LogRecord::MutationV1(read) => {
            let MutationV1 { shard, author, retry_until_ms, body, signing_key_version, .. } = *read.clone();
            let written = MutationV1::sign(shard, author, retry_until_ms, body, signing_key_version, &signing_key(1))
                .expect("what decodes can be written");
            assert_eq!(written.body_bytes, read.body_bytes, "another body than was read");
            assert_eq!((written.hash, written.mutation_id), (read.hash, read.mutation_id));
        }
    }
}
