//! Makes the seeds: from the conformance vectors, from a shard's own rows and records, and from requests as people send them.

mod shard;
mod text;

use std::collections::BTreeMap;
use std::path::Path;

use bytes::Bytes;
use prost::Message;
use protocol::command::{AdapterMetadata, CommandBody};
use protocol::hash::sha256;
use protocol::mutation::MutationType;
use protocol::mutation_v2::{OperatorStatement, PublishedEvidence, TopicAck};
use protocol::record::{self, LogRecord};
use serde_json::Value;

/// Seeds by target, each with its file name.
pub(crate) type Seeds = BTreeMap<&'static str, Vec<(String, Vec<u8>)>>;

pub(crate) fn seeds() -> Seeds {
    let cases = Cases::read();
    BTreeMap::from([
        ("body", text::bodies()),
        ("command", cases.commands()),
        ("header", text::headers()),
        ("log", shard::logs()),
        ("mutation", cases.mutations()),
        ("receipt", cases.receipts()),
        ("record", cases.records()),
        ("row", shard::rows()),
        ("value", cases.values()),
    ])
}

/// The cases of the kept vectors.
struct Cases(Vec<Value>);

impl Cases {
    fn read() -> Cases {
        let mut cases = Vec::new();
        for file in ["golden", "negative", "v2"] {
            let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../testdata/vectors/{file}.json"));
            let file: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
            cases.extend(file["cases"].as_array().unwrap().iter().cloned());
        }
        // The largest ones are kept as hashes alone.
        cases.retain(|case| case["expected"]["frame_hex"].as_str().is_none_or(|hex| hex.len() < 4_000));
        cases.retain(|case| case["kind"] != "command" || case["expected"]["frame_hex"].is_string());
        Cases(cases)
    }

    fn of<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = &'a Value> {
        self.0.iter().filter(move |case| case["kind"] == kind)
    }

    /// Every command with its type.
    fn commands(&self) -> Vec<(String, Vec<u8>)> {
        let command = |case: &Value| {
            let Ok(LogRecord::Command(command)) = record::decode(&expected(case, "frame_hex").into()) else {
                panic!("no command: {}", name(case));
            };
            let index = u8::try_from(command.command_type().as_u32() - 1).unwrap();
            (name(case), concat(&[&[index], &command.body_bytes]))
        };
        let mut seeds: Vec<_> = self.of("command").map(command).collect();
        let (first, seed) = seeds[0].clone();
        seeds.push((format!("{first}-cut"), seed[..seed.len() / 2].to_vec()));
        seeds
    }

    /// Mutations of version 2 for the author who writes them, and of version 1 with theirs.
    fn mutations(&self) -> Vec<(String, Vec<u8>)> {
        let mutation = |case: &Value, version: u8, author: &[u8]| {
            let frame = expected(case, "frame_hex");
            let mutation_type = type_of(&frame);
            let index = u8::try_from(mutation_type.as_u32() - 1).unwrap();
            let length = u16::try_from(author.len()).unwrap().to_be_bytes();
            let head = [index, version, length[0], length[1]];
            (name(case), concat(&[&head, author, &expected(case, "canonical_body_hex")]))
        };
        let mut seeds: Vec<_> = self.of("system_mutation_v2").take(32).map(|case| mutation(case, 2, &[])).collect();
        seeds.extend(self.of("system_mutation").map(|case| mutation(case, 1, &expected(case, "author_identity_hex"))));
        seeds.sort_by_key(|(_, seed)| seed.len());
        seeds.truncate(36);
        seeds
    }

    /// One frame of each sort, and some that are refused.
    fn records(&self) -> Vec<(String, Vec<u8>)> {
        let frame = |case: &Value| (name(case), expected(case, "frame_hex"));
        let mut seeds: Vec<_> = self.of("command").step_by(5).map(frame).collect();
        seeds.extend(self.of("system_mutation").map(frame));
        seeds.extend(self.of("system_mutation_v2").step_by(4).map(frame));
        let refused = self.0.iter().filter(|case| {
            matches!(case["decoder"].as_str(), Some("log_record" | "command_frame" | "system_mutation_frame"))
        });
        seeds.extend(refused.step_by(16).map(|case| (name(case), unhex(&case["input_hex"]))));
        seeds.truncate(38);
        seeds
    }

    /// Receipts as text, as frames and as fields.
    fn receipts(&self) -> Vec<(String, Vec<u8>)> {
        let kinds = [
            ("command_queued_receipt", 3),
            ("command_applied_receipt", 4),
            ("native_delivery_receipt", 5),
            ("payload_reservation_receipt", 6),
            ("control_operation_receipt", 7),
        ];
        let mut seeds = Vec::new();
        for (kind, tag) in kinds {
            for case in self.of(kind) {
                let frame = expected(case, "frame_hex");
                // The payload without its last field, the digest.
                let fields = frame[12..frame.len() - 4 - 34].to_vec();
                seeds.push((format!("{}-fields", name(case)), concat(&[&[tag], &fields])));
                seeds.push((format!("{}-frame", name(case)), concat(&[&[2], &frame])));
            }
            if let Some(case) = self.of(kind).next() {
                let text = protocol::receipt_frame::to_text(&expected(case, "frame_hex"));
                seeds.push((format!("{}-text", name(case)), concat(&[&[0], text.as_bytes()])));
            }
        }
        seeds.truncate(38);
        seeds
    }

    /// Values of every kind.
    fn values(&self) -> Vec<(String, Vec<u8>)> {
        let mut seeds = Vec::new();
        let mut add = |kind: u8, name: String, value: &[u8]| {
            seeds.push((format!("{kind:02}-{name}"), concat(&[&[kind], value])));
        };
        let mut positions: Vec<Vec<u8>> = Vec::new();
        for case in self.of("source_position").step_by(2) {
            positions.push(expected(case, "canonical_hex"));
            add(0, name(case), &expected(case, "canonical_hex"));
            add(2, name(case), &expected(case, "protobuf_hex"));
        }
        for (index, position) in positions.iter().enumerate() {
            let length = u16::try_from(position.len()).unwrap().to_be_bytes();
            let mut later = position.clone();
            later.iter_mut().rev().nth(9).into_iter().for_each(|byte| *byte ^= 1);
            add(1, format!("two-{index}"), &concat(&[&length, position, &later]));
        }
        for case in self.of("self_routing_id").take(2) {
            add(3, name(case), &expected(case, "id_hex"));
            add(4, name(case), case["expected"]["message_id_text"].as_str().unwrap().as_bytes());
        }
        for case in self.of("lane_id") {
            add(5, name(case), &expected(case, "lane_tuple_hex"));
            add(11, name(case), &expected(case, "target_resource_protobuf_hex"));
        }
        for case in self.of("retry_policy").take(1) {
            add(6, name(case), &expected(case, "canonical_hex"));
        }
        for case in self.of("profile_semantic_hash") {
            add(7, name(case), &expected(case, "canonical_hex"));
        }
        for case in self.of("command").step_by(12) {
            if let Ok(LogRecord::Command(command)) = record::decode(&Bytes::from(expected(case, "frame_hex")))
                && let CommandBody::Schedule(schedule) = &command.body
            {
                let is_kafka = matches!(schedule.intent().metadata, AdapterMetadata::Kafka(_));
                add(8, format!("intent-{}-{is_kafka}", name(case)), schedule.intent_bytes());
            }
        }
        for case in self.of("payload_commit_proof") {
            add(9, name(case), &expected(case, "canonical_hex"));
        }
        // Three headers, two of them empty; no payload; the first two and the value are null.
        add(10, "nulls".to_owned(), &[3, 0, 0, 1, 0, 1, 0, 0, 0, 1]);
        for case in self.of("command_queued_receipt").take(2) {
            add(12, name(case), &expected(case, "broker_ack_hex"));
        }
        let ack = TopicAck { topic: [7; 16], partition: 1, offset: 9, time_ms: 1_800_000_000_000 };
        let statement = OperatorStatement { principal: "operator".to_owned(), statement_sha256: sha256(b"") };
        for evidence in [PublishedEvidence::Kafka(ack), PublishedEvidence::Operator(statement)] {
            let bytes = evidence.to_proto().encode_to_vec();
            add(13, format!("evidence-{}", bytes[0]), &bytes);
        }
        seeds
    }
}

fn type_of(frame: &[u8]) -> MutationType {
    match record::decode(&Bytes::copy_from_slice(frame)) {
        Ok(LogRecord::MutationV2(mutation)) => mutation.mutation_type(),
        Ok(LogRecord::MutationV1(mutation)) => mutation.mutation_type(),
        other => panic!("no mutation: {other:?}"),
    }
}

/// A case's name as a file's.
fn name(case: &Value) -> String {
    case["name"].as_str().unwrap().replace('/', "-")
}

fn expected(case: &Value, field: &str) -> Vec<u8> {
    unhex(&case["expected"][field])
}

fn unhex(value: &Value) -> Vec<u8> {
    hex::decode(value.as_str().unwrap_or_else(|| panic!("no text: {value}"))).unwrap()
}

fn concat(parts: &[&[u8]]) -> Vec<u8> {
    parts.concat()
}
