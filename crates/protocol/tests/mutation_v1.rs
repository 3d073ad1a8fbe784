//! Every body of version 1, every branch of evidence, every control payload and resource: written, read back, and refused when one
//! rule is broken. Bytes of the types that have published vectors are held in `testdata/vectors`.

#![allow(clippy::unwrap_used, reason = "a refusal of what must be legal fails the test")]

mod v1_bodies;

use ed25519_dalek::SigningKey;
use protocol::mutation_v1::{MutationBodyV1, MutationV1};
use protocol::record::{self, LogRecord};
use protocol::v1;
use v1_bodies::{bodies, evidence_branches, owner, shard};

fn key() -> SigningKey {
    SigningKey::from_bytes(&[5; 32])
}

fn sign(author: v1::AuthorIdentity, body: MutationBodyV1) -> Result<MutationV1, protocol::field::FieldError> {
    MutationV1::sign(shard(), author, 9_000, body, 3, &key())
}

#[test]
fn every_body_reads_as_it_was_written() {
    let mut types = std::collections::BTreeSet::new();
    for (name, author, body) in bodies() {
        let mutation = sign(author, body).unwrap_or_else(|error| panic!("{name}: {error}"));
        let frame = mutation.encode_frame();
        let decoded = match record::decode(&frame) {
            Ok(LogRecord::MutationV1(decoded)) => decoded,
            other => panic!("{name}: {other:?}"),
        };
        assert_eq!(*decoded, mutation, "{name}");
        assert_eq!(decoded.encode_frame(), frame, "{name}");
        assert!(decoded.verify(&key().verifying_key()), "{name}");
        types.insert(mutation.mutation_type().as_u32());
    }
    assert_eq!(types.into_iter().collect::<Vec<_>>(), (1..=12).collect::<Vec<_>>());
}

/// A body of each type under the author of another type.
#[test]
fn the_author_is_fixed_by_the_type() {
    let bodies = bodies();
    for (name, author, body) in &bodies {
        for (other, wrong, _) in &bodies {
            let same_branch = std::mem::discriminant(author.author.as_ref().unwrap())
                == std::mem::discriminant(wrong.author.as_ref().unwrap());
            let signed = sign(wrong.clone(), body.clone());
            assert_eq!(signed.is_ok(), same_branch, "{name} signed as {other}");
        }
    }
}

#[test]
fn evidence_says_only_what_its_kind_can_say() {
    use v1::EvidenceStatus::{Unresolved, VerifiedNotPublished, VerifiedPublished};
    let published = [1, 2, 4];
    let open = [5, 8];
    let definitive = [9, 10];
    for (kind, branch) in evidence_branches() {
        for status in [VerifiedPublished, VerifiedNotPublished, Unresolved] {
            let evidence = v1_bodies::evidence(kind, status, branch.clone());
            let legal = match status {
                VerifiedPublished => published.contains(&kind) || open.contains(&kind),
                VerifiedNotPublished => !published.contains(&kind),
                Unresolved => !definitive.contains(&kind),
            };
            // What the outcome says must go with the status, so that only the evidence itself is judged here.
            let body = v1_bodies::outcome_with(evidence, status);
            assert_eq!(sign(owner(), body).is_ok(), legal, "kind {kind} with {status:?}");
        }
    }
}

#[test]
fn evidence_of_another_attempt_is_none() {
    let (kind, branch) = evidence_branches().swap_remove(0);
    let evidence = v1_bodies::evidence(kind, v1::EvidenceStatus::VerifiedPublished, branch);
    let MutationBodyV1::PublishOutcome(mut body) =
        v1_bodies::outcome_with(evidence, v1::EvidenceStatus::VerifiedPublished)
    else {
        unreachable!("an outcome was asked for");
    };
    body.publish_attempt_id = bytes::Bytes::from_static(&[0x66; 32]);
    let error = sign(owner(), MutationBodyV1::PublishOutcome(body)).unwrap_err();
    assert_eq!(error.path(), "evidence.kafka_produce_ack.delivery");
}

/// Each change breaks one rule, and the error names the field.
#[test]
fn a_broken_rule_is_named() {
    for (name, path, author, body) in v1_bodies::broken() {
        let error = sign(author, body).expect_err(name);
        assert_eq!(error.path(), path, "{name}: {error}");
    }
}
