//! What operators look at: shards, lanes, routes, readiness.

use client::api::admin::{LaneList, Readiness, RouteList, ShardList};
use client::http::HttpClient;
use hyper::Method;

use crate::failure::{Exit, Failure};
use crate::output::{Output, fields, say};

/// Lists shards.
pub(super) async fn shards(client: &HttpClient, output: &Output) -> Result<(), Failure> {
    let list = client.call(Method::GET, &["v1", "admin", "shards"]).send::<ShardList>().await?.body;
    output.table(
        &list.items,
        ["ROUTE", "SHARD", "STATE", "EPOCH", "ACTIVE", "LANES", "SCHEDULED", "PUBLISHED", "CANCELED", "CLOSED THROUGH"],
        |shard| {
            [
                shard.route.clone(),
                shard.partition.to_string(),
                shard.lifecycle.clone(),
                shard.owner_epoch.to_string(),
                shard.active_messages.to_string(),
                shard.lanes.to_string(),
                shard.totals.scheduled.to_string(),
                shard.totals.published.to_string(),
                shard.totals.canceled.to_string(),
                shard.closed_through.clone(),
            ]
        },
    )
}

/// Lists lanes.
pub(super) async fn lanes(client: &HttpClient, destination: Option<String>, output: &Output) -> Result<(), Failure> {
    let list = client
        .call(Method::GET, &["v1", "admin", "lanes"])
        .query("destination", destination)
        .send::<LaneList>()
        .await?
        .body;
    for reason in &list.unavailable {
        say(&format!("lanes are missing: {reason}"));
    }
    output.table(
        &list.items,
        [
            "SHARD",
            "LANE",
            "DESTINATION",
            "PARTITION",
            "GATE",
            "READINESS",
            "CIRCUIT",
            "SCHEDULED",
            "DUE AGE MS",
            "DETAIL",
        ],
        |lane| {
            [
                lane.shard.to_string(),
                lane.lane.to_string(),
                format!("{} v{}", lane.destination, lane.destination_version),
                lane.partition.to_string(),
                lane.gate.clone(),
                lane.readiness.clone(),
                lane.circuit.clone(),
                lane.scheduled.to_string(),
                lane.due_age_ms.to_string(),
                lane.code.as_ref().map_or_else(String::new, |code| format!("{code}: {}", lane.detail)),
            ]
        },
    )
}

/// Lists routes.
pub(super) async fn routes(client: &HttpClient, output: &Output) -> Result<(), Failure> {
    let list = client.call(Method::GET, &["v1", "admin", "routes"]).send::<RouteList>().await?.body;
    output.table(&list.items, ["NAME", "ROUTE", "TENANT", "STATE", "SHARDS"], |route| {
        [route.name.clone(), route.route.clone(), route.tenant.clone(), route.state.clone(), route.shards.to_string()]
    })
}

/// Says whether the server is ready; exit code 1 when it is not.
pub(super) async fn status(client: &HttpClient, output: &Output) -> Result<(), Failure> {
    let readiness = client.call(Method::GET, &["readyz"]).send_any::<Readiness>().await?.body;
    output.item(&readiness, |readiness| {
        let synchronised = if readiness.clock_synchronised { "" } else { ", not called synchronised by the kernel" };
        fields(&[
            ("ready", Some(if readiness.ready { "yes" } else { "no" }.to_owned())),
            ("version", Some(readiness.version.clone())),
            ("clock", Some(format!("within {} us{synchronised}", readiness.clock_bound_us))),
            ("reasons", (!readiness.reasons.is_empty()).then(|| readiness.reasons.join("; "))),
        ])
    })?;
    if readiness.ready { Ok(()) } else { Err(Failure::new(Exit::Failed, "the server is not ready")) }
}
