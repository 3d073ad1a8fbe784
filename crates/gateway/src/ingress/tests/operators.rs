//! What operators notice.

use std::time::Duration;

use client::api::ingress::{IngressSpec, IngressState};
use client::api::kafka::KafkaConnection;
use client::api::problem::Problem;
use ports::target::{TargetCheck, TargetError};

use super::{INGRESS, RECEIPTS, REFUSALS, TOPIC, create, settled, spec, taken};
use crate::ingress::service;
use crate::tests::source::{Faults, record};
use crate::tests::world::{Cell, Server};

async fn put(server: &Server, spec: IngressSpec) -> Result<bool, Problem> {
    service::put(&server.gateway, INGRESS, spec, false).await.map(|(_, created)| created)
}

async fn begin(cell: &Cell) -> Server {
    let server = cell.start("server");
    server.active().await;
    create(cell, &server).await;
    server
}

fn kafka(change: impl FnOnce(&mut KafkaConnection)) -> IngressSpec {
    let mut spec = spec();
    change(spec.kafka.as_mut().expect("is there"));
    spec
}

#[test]
fn an_ingress_is_created_once_and_changed_by_the_same_request() {
    let cell = Cell::new(1, 1);
    cell.world.run(async {
        let server = begin(&cell).await;
        assert_eq!(cell.source.created(), [REFUSALS, RECEIPTS]);
        assert_eq!(put(&server, spec()).await, Ok(false), "the same again changes nothing");
        let ingress = service::get(&server.gateway, INGRESS).await.expect("is there");
        assert_eq!((ingress.topic.as_str(), ingress.system.as_str()), (TOPIC, "kafka"));
        assert_eq!(ingress.spec.group.as_deref(), Some("nereus-delay.in"));
        assert_eq!(ingress.spec.refusals.as_deref(), Some(REFUSALS));

        // Brokers, settings and the default may change; what progress belongs to may not.
        let changed = kafka(|kafka| {
            kafka.bootstrap_servers = "other:9092".to_owned();
            kafka.settings.insert("client.id".to_owned(), "x".to_owned());
        });
        assert_eq!(put(&server, IngressSpec { destination: None, ..changed.clone() }).await, Ok(false));
        let ingress = service::get(&server.gateway, INGRESS).await.expect("is there");
        assert_eq!((ingress.spec.kafka, ingress.spec.destination), (changed.kafka, None));
        let other_topic =
            put(&server, kafka(|kafka| kafka.topic = "bills".to_owned())).await.expect_err("another topic");
        assert_eq!((other_topic.code.as_str(), other_topic.status), ("INGRESS_CONFLICT", 409));
        assert!(other_topic.detail.contains("create another ingress"), "{other_topic}");
        let other_group = IngressSpec { group: Some("g".to_owned()), ..spec() };
        assert_eq!(put(&server, other_group).await.expect_err("another group").code, "INGRESS_CONFLICT");

        let listed = service::list(&server.gateway).await.expect("answers");
        assert_eq!(listed.iter().map(|ingress| ingress.name.as_str()).collect::<Vec<_>>(), [INGRESS]);
    });
}

#[test]
fn a_request_that_cannot_be_had_says_what_is_wrong_and_makes_nothing() {
    let cell = Cell::new(2, 1);
    cell.world.run(async {
        let server = cell.start("server");
        server.active().await;
        let refusal = async |spec: IngressSpec| {
            let problem = put(&server, spec).await.expect_err("is refused");
            (problem.code, problem.field.unwrap_or_default())
        };
        let of = |code: &str, field: &str| (code.to_owned(), field.to_owned());
        assert_eq!(refusal(IngressSpec { kafka: None, ..spec() }).await, of("INVALID_FIELD", "kafka"));
        let nowhere = IngressSpec { destination: Some("bills".to_owned()), ..spec() };
        assert_eq!(refusal(nowhere).await, of("UNKNOWN_DESTINATION", "destination"));
        let round = IngressSpec { refusals: Some(TOPIC.to_owned()), ..spec() };
        assert_eq!(refusal(round).await, of("INGRESS_CONFLICT", "refusals"));
        let round = IngressSpec { receipts: Some(TOPIC.to_owned()), ..spec() };
        assert_eq!(refusal(round).await, of("INGRESS_CONFLICT", "receipts"));
        let one = IngressSpec { receipts: Some(REFUSALS.to_owned()), ..spec() };
        assert_eq!(refusal(one).await, of("INGRESS_CONFLICT", "receipts"));
        let name = service::put(&server.gateway, "_in", spec(), false).await.expect_err("no name");
        assert_eq!((name.code.as_str(), name.field.as_deref()), ("INVALID_FIELD", Some("name")));

        let check = TargetCheck { name: "topic", ok: false, detail: "there is no topic".to_owned() };
        cell.source.set_check(Err(TargetError::CheckFailed { checks: vec![check] }));
        let failed = put(&server, spec()).await.expect_err("a check failed");
        assert_eq!((failed.code.as_str(), failed.checks.len()), ("INGRESS_CHECK_FAILED", 1));
        cell.source.set_check(Err(TargetError::Unavailable { reason: "no broker".to_owned() }));
        assert_eq!(refusal(spec()).await.0, "UNAVAILABLE");
        cell.source.set_check(Ok(()));

        let (planned, created) = service::put(&server.gateway, INGRESS, spec(), true).await.expect("a dry run");
        assert!(created && !planned.checks.is_empty() && planned.spec.refusals.is_some());
        assert_eq!(cell.source.created(), [""; 0], "nothing was made");
        let missing = service::get(&server.gateway, INGRESS).await.expect_err("nothing was made");
        assert_eq!((missing.code.as_str(), missing.status), ("UNKNOWN_INGRESS", 404));
    });
}

#[test]
fn a_paused_ingress_takes_nothing_and_goes_on_where_it_stood_also_after_a_restart() {
    let cell = Cell::new(3, 1);
    cell.world.run(async {
        let server = begin(&cell).await;
        let put = |value: &str| cell.source.produce(0, record(value, cell.world.now_ms(), &[("nereus-delay", "1d")]));
        put("a");
        settled(&cell, &server, 1).await;
        let paused = service::set_paused(&server.gateway, INGRESS, true).await.expect("is there");
        assert_eq!(paused.state, IngressState::Paused);
        put("b");
        cell.world.wait(Duration::from_secs(60)).await;
        server.process.kill();
        let server = cell.start("second");
        cell.world.wait(Duration::from_secs(60)).await;
        assert_eq!(taken(&cell), [("a".to_owned(), 1)].into());
        let ingress = service::get(&server.gateway, INGRESS).await.expect("is there");
        assert_eq!((ingress.state, ingress.partitions[0].floor, ingress.lag), (IngressState::Paused, 1, None));
        service::set_paused(&server.gateway, INGRESS, false).await.expect("is there");
        settled(&cell, &server, 1).await;
        assert_eq!(taken(&cell), ["a", "b"].map(|value| (value.to_owned(), 1)).into());
    });
}

#[test]
fn a_deleted_ingress_that_is_made_again_goes_on_where_it_stood() {
    let cell = Cell::new(4, 1);
    cell.world.run(async {
        let server = begin(&cell).await;
        let put = |value: &str| cell.source.produce(0, record(value, cell.world.now_ms(), &[("nereus-delay", "1d")]));
        put("a");
        settled(&cell, &server, 1).await;
        let last = service::delete(&server.gateway, INGRESS).await.expect("was there");
        assert_eq!(last.records.scheduled, 1);
        assert_eq!(service::delete(&server.gateway, INGRESS).await.expect_err("is gone").code, "UNKNOWN_INGRESS");
        put("b");
        // The group has forgotten too.
        cell.source.seek(None);
        cell.world.wait(Duration::from_secs(60)).await;
        assert_eq!(taken(&cell), [("a".to_owned(), 1)].into());
        create(&cell, &server).await;
        settled(&cell, &server, 1).await;
        assert_eq!(taken(&cell), ["a", "b"].map(|value| (value.to_owned(), 1)).into());
    });
}

#[test]
fn an_ingress_that_cannot_join_says_why_and_tries_again() {
    let cell = Cell::new(5, 1);
    cell.world.run(async {
        let server = begin(&cell).await;
        service::set_paused(&server.gateway, INGRESS, true).await.expect("is there");
        cell.source.set_faults(Faults { open: 100, ..Faults::default() });
        service::set_paused(&server.gateway, INGRESS, false).await.expect("is there");
        cell.world.wait(Duration::from_secs(120)).await;
        let ingress = service::get(&server.gateway, INGRESS).await.expect("is there");
        assert_eq!((ingress.state, ingress.reason.as_deref()), (IngressState::Failed, Some("cannot join")));
        let entry = server.gateway.ingresses.get(INGRESS).expect("is there");
        assert!((5..20).contains(&entry.counters.errors()), "pauses grow: {}", entry.counters.errors());
        cell.source.set_faults(Faults::default());
        cell.world.wait(Duration::from_secs(31)).await;
        let ingress = service::get(&server.gateway, INGRESS).await.expect("is there");
        assert_eq!((ingress.state, ingress.last_error.as_deref()), (IngressState::Running, Some("cannot join")));
    });
}
