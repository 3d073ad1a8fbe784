//! Records of body version 2 that are malformed or not activated.

use bytes::Bytes;
use prost::Message;
use protocol::frame::{self, RecordKind};
use protocol::hash::{Hash, Preimage};
use protocol::id::{RouteId, ShardId};
use protocol::mutation::{MutationType, mutation_hash, mutation_id};
use protocol::{v1, v2};
use serde_json::{Value, json};

const SHARD: ShardId = ShardId { route: RouteId([0xa1; 16]), partition: 3 };

/// A record with hash and id as they must be, so that nothing but the fault of the case is wrong. Decoding verifies no signature.
struct Record {
    mutation_type: u32,
    body_version: u32,
    author: Bytes,
    retry_until_ms: i64,
    body: Bytes,
    logical_identity: Hash,
}

impl Record {
    fn frame(&self) -> Bytes {
        let known = MutationType::from_u32(self.mutation_type).unwrap_or(MutationType::TimeFence);
        let hash = mutation_hash(known, self.body_version, SHARD, self.retry_until_ms, &self.body);
        let id = mutation_id(known, &self.logical_identity, SHARD, &hash);
        let envelope = v1::ShardSystemMutationEnvelope {
            envelope_version: 1,
            system_mutation_id: Bytes::copy_from_slice(&id),
            shard_subject: v1::ShardSubject {
                route: Bytes::copy_from_slice(&SHARD.route.0),
                partition: SHARD.partition,
            },
            mutation_type: self.mutation_type,
            retry_until_ms: self.retry_until_ms,
            canonical_body: self.body.clone(),
            mutation_hash_sha256: Bytes::copy_from_slice(&hash),
            body_version: self.body_version,
            author_identity: self.author.clone(),
            signing_key_version: 1,
            signature: Bytes::from_static(&[0; 64]),
        };
        let record = Some(v1::shard_log_envelope::Record::SystemMutation(envelope));
        let log = v1::ShardLogEnvelope { log_envelope_version: 1, record };
        frame::encode(RecordKind::SystemMutation, &log.encode_to_vec())
    }
}

fn owner(epoch: u64) -> Bytes {
    let owner = v2::Owner { epoch, worker_run_id: Bytes::from_static(&[7; 16]) };
    v2::Author { author: Some(v2::author::Author::Owner(owner)) }.encode_to_vec().into()
}

fn operator() -> Bytes {
    let control = v2::Control { principal: "ops".to_owned(), role: "operator".to_owned() };
    v2::Author { author: Some(v2::author::Author::Control(control)) }.encode_to_vec().into()
}

const STAMP: v2::Stamp = v2::Stamp { epoch: 7, owner_sequence: 12, earliest_ms: 1_000, latest_ms: 1_003 };

fn by_owner(mutation_type: MutationType, body: impl Into<Bytes>) -> Record {
    let identity = Preimage::new("nereus-delay-owner-record-v2\0").u64(STAMP.epoch).u64(STAMP.owner_sequence).sha256();
    Record {
        mutation_type: mutation_type.as_u32(),
        body_version: 2,
        author: owner(STAMP.epoch),
        retry_until_ms: 0,
        body: body.into(),
        logical_identity: identity,
    }
}

fn control(kind: u32, payload: Option<v2::shard_control::Payload>) -> Record {
    let operation_id = Bytes::from_static(&[11; 32]);
    let number = u16::try_from(kind).unwrap();
    let identity = Preimage::new("nereus-delay-control-v2\0").bytes(&operation_id).u16(number).sha256();
    let body = v2::ShardControl { operation_id, kind, expected_version: None, payload };
    Record {
        mutation_type: 1,
        body_version: 2,
        author: operator(),
        retry_until_ms: 5_000,
        body: body.encode_to_vec().into(),
        logical_identity: identity,
    }
}

fn uuid(last: u8) -> Bytes {
    let mut bytes = [0; 16];
    (bytes[6], bytes[8], bytes[15]) = (0x70, 0x80, last);
    Bytes::copy_from_slice(&bytes)
}

fn admission(message: Bytes, generation: u32) -> v2::Admission {
    v2::Admission { message, generation, log_rev: 1, sequence: None }
}

fn admissions(entries: Vec<v2::Admission>) -> Record {
    let body = v2::PublishAdmission { stamp: Some(STAMP), entries };
    by_owner(MutationType::PublishAdmission, body.encode_to_vec())
}

fn outcome() -> v2::Outcome {
    let ack = v2::EmbeddedAck { topic: Bytes::from_static(&[3; 16]), partition: 1, offset: 2, time_ms: 3 };
    v2::Outcome {
        message: uuid(1),
        generation: 0,
        attempt: 1,
        side_effect: v2::SideEffect::Published.into(),
        disposition: v2::Disposition::None.into(),
        code: 0,
        evidence: Some(v2::Evidence { evidence: Some(v2::evidence::Evidence::Embedded(ack)) }),
    }
}

fn absence(kind: u32) -> Option<v2::Evidence> {
    let absence = v2::Absence { kind, digest: Bytes::from_static(&[4; 32]) };
    Some(v2::Evidence { evidence: Some(v2::evidence::Evidence::Absence(absence)) })
}

fn outcomes(entries: Vec<v2::Outcome>) -> Record {
    let body = v2::PublishOutcome { stamp: Some(STAMP), entries };
    by_owner(MutationType::PublishOutcome, body.encode_to_vec())
}

fn fence() -> v2::TimeFence {
    v2::TimeFence { stamp: Some(STAMP), close_through_ms: 900, expire_max: 10 }
}

fn fence_record(fence: &v2::TimeFence) -> Record {
    by_owner(MutationType::TimeFence, fence.encode_to_vec())
}

fn genesis() -> v2::Genesis {
    let public_key = hex::decode("197f6b23e16c8532c6abc838facd5ea789be0c76b2920334039bfa8b3d368d61").unwrap();
    let key = v2::SigningKey { version: 1, public_key: public_key.into(), roles: vec![1, 2] };
    v2::Genesis {
        route: Bytes::copy_from_slice(&SHARD.route.0),
        partition: SHARD.partition,
        partition_count: 4,
        tenant_scope: Bytes::from_static(&[5; 32]),
        limits: Some(v2::Limits::default()),
        keys: vec![key],
    }
}

fn genesis_record(change: impl Fn(&mut v2::Genesis)) -> Record {
    let mut genesis = genesis();
    change(&mut genesis);
    control(14, Some(v2::shard_control::Payload::Genesis(genesis)))
}

/// Every case with the verdict on it.
pub(crate) fn cases() -> Vec<Value> {
    let mut cases = Vec::new();
    let mut add = |name: &str, fault: &str, verdict: &str, record: &Record| {
        cases.push(json!({
            "name": format!("v2/negative/{name}"),
            "decoder": "log_record",
            "mutation": fault,
            "input_hex": hex::encode(record.frame()),
            "spec_verdict": verdict,
        }));
    };
    pairs(&mut add);
    envelopes(&mut add);
    bodies(&mut add);
    settlements(&mut add);
    control_bodies(&mut add);
    cases
}

type Add<'a> = &'a mut dyn FnMut(&str, &str, &str, &Record);

fn pairs(add: Add<'_>) {
    for mutation_type in [MutationType::ReplayDeadLetter, MutationType::ResolveUncertain, MutationType::DlqExportResult]
    {
        let name = format!("type-{}-not-built", mutation_type.as_u32());
        add(&name, "a legal pair whose body is not written yet", "unactivated", &by_owner(mutation_type, vec![]));
    }
    for mutation_type in
        [MutationType::ExpireGeneration, MutationType::ResourceRetireIntent, MutationType::ResourceDeleteConfirmed]
    {
        let name = format!("type-{}-illegal", mutation_type.as_u32());
        add(&name, "no pair with body version 2", "reject", &by_owner(mutation_type, vec![]));
    }
    let fence_body = fence_record(&fence());
    add("type-14", "no such type", "reject", &Record { mutation_type: 14, ..fence_record(&fence()) });
    add("type-0", "no such type", "reject", &Record { mutation_type: 0, ..fence_record(&fence()) });
    add("body-version-0", "versions begin at 1", "reject", &Record { body_version: 0, ..fence_record(&fence()) });
    add("body-version-3", "a later version", "unactivated", &Record { body_version: 3, ..fence_body });
    let owner_epoch =
        v2::OwnerEpoch { stamp: Some(STAMP), store_incarnation: Bytes::from_static(&[1; 16]), previous_epoch: 6 };
    let record = by_owner(MutationType::OwnerEpoch, owner_epoch.encode_to_vec());
    add("owner-epoch-of-version-1", "type 13 has no body version 1", "reject", &Record { body_version: 1, ..record });
}

fn envelopes(add: Add<'_>) {
    let record = || fence_record(&fence());
    add(
        "author-epoch-differs",
        "the author has epoch 8, the stamp 7",
        "reject",
        &Record { author: owner(8), ..record() },
    );
    add("author-of-wrong-kind", "an operator signs a fence", "reject", &Record { author: operator(), ..record() });
    add("author-empty", "no author", "reject", &Record { author: Bytes::new(), ..record() });
    add("owner-with-retry-limit", "retry_until of an owner is 1", "reject", &Record { retry_until_ms: 1, ..record() });
    add("identity-differs", "the id is another record's", "reject", &Record { logical_identity: [9; 32], ..record() });
    let mut short_run = v2::Owner { epoch: 7, worker_run_id: Bytes::from_static(&[7; 15]) };
    let author = v2::Author { author: Some(v2::author::Author::Owner(short_run.clone())) };
    add(
        "worker-run-15-bytes",
        "the run id is short",
        "reject",
        &Record { author: author.encode_to_vec().into(), ..record() },
    );
    short_run.worker_run_id = Bytes::from_static(&[7; 16]);
    let mut author = v2::Author { author: Some(v2::author::Author::Owner(short_run)) }.encode_to_vec();
    author.extend([0x18, 0]);
    add("author-unknown-field", "field 3 in the author", "reject", &Record { author: author.into(), ..record() });
}

fn bodies(add: Add<'_>) {
    let stamped = |stamp| fence_record(&v2::TimeFence { stamp, ..fence() });
    add("stamp-missing", "no stamp", "reject", &stamped(None));
    let sequence_0 = v2::Stamp { owner_sequence: 0, ..STAMP };
    let identity = Preimage::new("nereus-delay-owner-record-v2\0").u64(7).u64(0).sha256();
    let record = Record { logical_identity: identity, ..stamped(Some(sequence_0)) };
    add("stamp-sequence-0", "sequences begin at 1", "reject", &record);
    add("stamp-reversed", "latest before earliest", "reject", &stamped(Some(v2::Stamp { latest_ms: 999, ..STAMP })));
    add("stamp-negative", "earliest below zero", "reject", &stamped(Some(v2::Stamp { earliest_ms: -1, ..STAMP })));
    add(
        "fence-negative",
        "close_through below zero",
        "reject",
        &fence_record(&v2::TimeFence { close_through_ms: -1, ..fence() }),
    );
    let mut written_zero = v2::TimeFence { expire_max: 0, ..fence() }.encode_to_vec();
    written_zero.extend([0x18, 0]);
    add("zero-written", "expire_max 0 is written", "reject", &by_owner(MutationType::TimeFence, written_zero));
    let mut unknown_field = fence().encode_to_vec();
    unknown_field.extend([0x20, 1]);
    add("unknown-field", "field 4 in a fence", "reject", &by_owner(MutationType::TimeFence, unknown_field));
    let mut cut = fence().encode_to_vec();
    cut.pop();
    add("body-cut", "the last byte is gone", "reject", &by_owner(MutationType::TimeFence, cut));

    add("no-entries", "an admission of nothing", "reject", &admissions(vec![]));
    let entry = |last, generation| admission(uuid(last), generation);
    add("entries-equal", "the same entry twice", "reject", &admissions(vec![entry(1, 0), entry(1, 0)]));
    add("entries-descend", "the greater message first", "reject", &admissions(vec![entry(2, 0), entry(1, 0)]));
    add("generations-descend", "the greater generation first", "reject", &admissions(vec![entry(1, 1), entry(1, 0)]));
    let version_4 = {
        let mut bytes = uuid(1).to_vec();
        bytes[6] = 0x40;
        Bytes::from(bytes)
    };
    add("message-uuid-4", "a message of uuid version 4", "reject", &admissions(vec![admission(version_4, 0)]));
    add("message-15-bytes", "a short message", "reject", &admissions(vec![admission(uuid(1).slice(..15), 0)]));
    let epoch =
        v2::OwnerEpoch { stamp: Some(STAMP), store_incarnation: Bytes::from_static(&[1; 17]), previous_epoch: 6 };
    let record = by_owner(MutationType::OwnerEpoch, epoch.encode_to_vec());
    add("store-incarnation-17-bytes", "a long store incarnation", "reject", &record);
    let refusal = v2::Refusal { message: uuid(1), generation: 0, log_rev: 1, code: 0 };
    let body = v2::ClaimResult { stamp: Some(STAMP), entries: vec![refusal.clone()] };
    add("refusal-ok", "a refusal with code OK", "reject", &by_owner(MutationType::ClaimResult, body.encode_to_vec()));
    let body = v2::ClaimResult { stamp: Some(STAMP), entries: vec![v2::Refusal { code: 0x7001, ..refusal }] };
    add("refusal-code-unknown", "no such code", "reject", &by_owner(MutationType::ClaimResult, body.encode_to_vec()));
}

fn settlements(add: Add<'_>) {
    let published: i32 = v2::SideEffect::Published.into();
    let not_published: i32 = v2::SideEffect::NotPublished.into();
    let unknown: i32 = v2::SideEffect::Unknown.into();
    let retriable: i32 = v2::Disposition::MessageRetriable.into();
    let mut one = |name: &str, fault: &str, change: &dyn Fn(&mut v2::Outcome)| {
        let mut entry = outcome();
        change(&mut entry);
        add(name, fault, "reject", &outcomes(vec![entry]));
    };
    one("published-without-evidence", "nothing proves it", &|entry| entry.evidence = None);
    one("published-with-absence", "absence proves the opposite", &|entry| entry.evidence = absence(1));
    one("published-with-disposition", "published and retriable", &|entry| entry.disposition = retriable);
    one("published-with-code", "published and TOO_LATE", &|entry| entry.code = 0x1005);
    one("attempt-0", "attempts begin at 1", &|entry| entry.attempt = 0);
    one("side-effect-0", "no side effect", &|entry| entry.side_effect = 0);
    one("side-effect-4", "no such side effect", &|entry| entry.side_effect = 4);
    one("evidence-empty", "evidence of nothing", &|entry| entry.evidence = Some(v2::Evidence { evidence: None }));
    one("ack-topic-15-bytes", "a short topic", &|entry| {
        let ack = v2::EmbeddedAck { topic: Bytes::from_static(&[3; 15]), partition: 1, offset: 2, time_ms: 3 };
        entry.evidence = Some(v2::Evidence { evidence: Some(v2::evidence::Evidence::Embedded(ack)) });
    });
    one("ack-time-negative", "a time below zero", &|entry| {
        let ack = v2::PulsarAck { partition: 1, ledger: 2, entry: 3, batch_index: 0, time_ms: -1 };
        entry.evidence = Some(v2::Evidence { evidence: Some(v2::evidence::Evidence::Pulsar(ack)) });
    });
    one("operator-without-name", "an operator without a name", &|entry| {
        let statement =
            v2::OperatorStatement { principal: String::new(), statement_sha256: Bytes::from_static(&[1; 32]) };
        entry.evidence = Some(v2::Evidence { evidence: Some(v2::evidence::Evidence::Operator(statement)) });
    });
    let code = 0x5102;
    one("not-published-with-ack", "an acknowledgement proves the opposite", &|entry| {
        (entry.side_effect, entry.disposition, entry.code) = (not_published, retriable, code);
    });
    one("not-published-without-disposition", "nothing follows", &|entry| {
        (entry.side_effect, entry.code, entry.evidence) = (not_published, code, absence(2));
    });
    one("not-published-disposition-4", "a disposition of version 1 only", &|entry| {
        (entry.side_effect, entry.disposition, entry.code) = (not_published, 4, code);
        entry.evidence = absence(2);
    });
    for kind in [0, 5] {
        one(&format!("absence-kind-{kind}"), "no such kind", &|entry| {
            (entry.side_effect, entry.disposition, entry.code) = (not_published, retriable, code);
            entry.evidence = absence(kind);
        });
    }
    one("unknown-with-evidence", "evidence of what nobody knows", &|entry| {
        (entry.side_effect, entry.code) = (unknown, 0x5104);
    });
    one("unknown-with-disposition", "unknown and retriable", &|entry| {
        (entry.side_effect, entry.disposition, entry.code, entry.evidence) = (unknown, retriable, 0x5104, None);
    });
    one("unknown-ok", "unknown with code OK", &|entry| {
        (entry.side_effect, entry.evidence) = (unknown, None);
    });
    let second = v2::Outcome { attempt: 2, ..outcome() };
    add("attempts-descend", "the greater attempt first", "reject", &outcomes(vec![second, outcome()]));
    assert_eq!(published, outcome().side_effect);
}

fn control_bodies(add: Add<'_>) {
    use v2::shard_control::Payload;
    for kind in [1, 5, 6, 7, 10, 11, 12, 13, 22] {
        let name = format!("control-{kind:02}-not-built");
        add(&name, "a control kind without a payload yet", "unactivated", &control(kind, None));
    }
    for kind in [0, 23] {
        add(&format!("control-{kind}"), "no such control kind", "reject", &control(kind, None));
    }
    add("control-without-payload", "kind 4 says nothing", "reject", &control(4, None));
    let retire = |version| Some(Payload::KeyRetire(v2::KeyRetire { version }));
    add("control-payload-of-another-kind", "kind 15 with the payload of 16", "reject", &control(15, retire(1)));
    add("key-version-0", "key versions begin at 1", "reject", &control(16, retire(0)));
    let pause = |length| Some(Payload::LanePause(v2::LanePause { lane_id: Bytes::from(vec![1; length]) }));
    add("lane-31-bytes", "a short lane id", "reject", &control(8, pause(31)));
    let close = v2::ProfileClose { profile_id: Bytes::new(), version: 1 };
    add("profile-without-name", "an empty profile id", "reject", &control(3, Some(Payload::ProfileClose(close))));
    let policy = v2::RetryPolicyActivate { policy: Bytes::from_static(&[8, 1]) };
    add(
        "policy-incomplete",
        "a policy of one field",
        "reject",
        &control(19, Some(Payload::RetryPolicyActivate(policy))),
    );
    let rebind = |profile_id: &'static [u8], resource: Option<v2::resource::Resource>| {
        let resource = Some(v2::Resource { resource });
        let payload = v2::DestinationRebind { profile_id: Bytes::from_static(profile_id), resource };
        control(21, Some(Payload::DestinationRebind(payload)))
    };
    let topic = |length| {
        let topic_id = Bytes::from(vec![1; length]);
        Some(v2::resource::Resource::Embedded(v2::EmbeddedTopic { topic_id }))
    };
    let nowhere = v2::DestinationRebind { profile_id: Bytes::from_static(b"orders"), resource: None };
    let nowhere = control(21, Some(Payload::DestinationRebind(nowhere)));
    add("rebind-without-payload", "kind 21 says nothing", "reject", &control(21, None));
    add("rebind-without-name", "an empty profile id", "reject", &rebind(b"", topic(16)));
    add("rebind-without-resource", "it says not where to", "reject", &nowhere);
    add("rebind-without-system", "a resource of no system", "reject", &rebind(b"orders", None));
    add("rebind-topic-15-bytes", "a short topic id", "reject", &rebind(b"orders", topic(15)));
    let not_text = v2::KafkaTopic { cluster_id: "a\0b".to_owned(), topic_id: Bytes::from_static(&[1; 16]) };
    let not_text = rebind(b"orders", Some(v2::resource::Resource::Kafka(not_text)));
    add("rebind-cluster-with-nul", "a name that is not text", "reject", &not_text);
    let operation = Record { author: owner(7), ..control(4, Some(Payload::StopNewSchedules(v2::StopNewSchedules {}))) };
    add("control-by-an-owner", "an owner signs an operation", "reject", &operation);

    let genesis = |change: &dyn Fn(&mut v2::Genesis)| genesis_record(change);
    add("genesis-of-another-route", "another route", "reject", &genesis(&|g| g.route = Bytes::from_static(&[2; 16])));
    add("genesis-of-another-partition", "another partition", "reject", &genesis(&|g| g.partition = 2));
    add("genesis-partition-count", "partition 3 of 3", "reject", &genesis(&|g| g.partition_count = 3));
    add("genesis-without-limits", "no limits", "reject", &genesis(&|g| g.limits = None));
    add(
        "genesis-limit-negative",
        "a duration below zero",
        "reject",
        &genesis(&|g| {
            g.limits = Some(v2::Limits { fence_margin_ms: -1, ..Default::default() });
        }),
    );
    add("genesis-without-keys", "nobody may sign", "reject", &genesis(&|g| g.keys.clear()));
    add("genesis-without-control", "no operator may sign", "reject", &genesis(&|g| g.keys[0].roles = vec![1]));
    add("genesis-roles-descend", "roles out of order", "reject", &genesis(&|g| g.keys[0].roles = vec![2, 1]));
    add("genesis-role-3", "no such role", "reject", &genesis(&|g| g.keys[0].roles = vec![1, 2, 3]));
    add("genesis-key-twice", "two keys of version 1", "reject", &genesis(&|g| g.keys.push(g.keys[0].clone())));
    add("genesis-key-31-bytes", "a short key", "reject", &genesis(&|g| g.keys[0].public_key.truncate(31)));
    add(
        "genesis-key-no-point",
        "no point of the curve",
        "reject",
        &genesis(&|g| {
            let mut no_point = [0xff; 32];
            no_point[0] = 0x02;
            g.keys[0].public_key = Bytes::copy_from_slice(&no_point);
        }),
    );
    add(
        "genesis-key-of-small-order",
        "anything is signed by it",
        "reject",
        &genesis(&|g| {
            let mut identity = [0; 32];
            identity[0] = 1;
            g.keys[0].public_key = Bytes::copy_from_slice(&identity);
        }),
    );
}
