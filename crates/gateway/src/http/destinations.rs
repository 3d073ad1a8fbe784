//! Destinations over HTTP.

use axum::body::Body;
use axum::extract::{RawQuery, State};
use axum::http::HeaderMap;
use axum::response::Response;
use client::api::destination::{Destination, DestinationList, DestinationSpec};
use client::api::problem::{Problem, SurfaceCode};

use super::request::{Segment, json_body, parameters};
use super::response::json;
use super::{Answer, Shared};
use crate::destinations;
use crate::messages::parse;
use crate::messages::read::parameter;

#[utoipa::path(
    get,
    path = "/v1/destinations",
    responses((status = 200, description = "Every destination", body = DestinationList)),
    tag = "destinations"
)]
pub(crate) async fn list_destinations(State(gateway): Shared) -> Response {
    let items =
        gateway.destinations.all().iter().map(|cached| destinations::view(&cached.record, Vec::new())).collect();
    json(200, &DestinationList { items })
}

#[utoipa::path(
    get,
    path = "/v1/destinations/{name}",
    params(("name" = String, Path, description = "The destination's name")),
    responses(
        (status = 200, description = "The destination", body = Destination),
        (status = "4XX", description = "Refused; the code says why", body = Problem, content_type = "application/problem+json"),
        (status = "5XX", description = "Not answered; the code says what is known", body = Problem, content_type = "application/problem+json"),
    ),
    tag = "destinations"
)]
pub(crate) async fn get_destination(State(gateway): Shared, Segment(name): Segment) -> Answer {
    match gateway.destinations.get(&name) {
        Some(cached) => Ok(json(200, &destinations::view(&cached.record, Vec::new()))),
        None => Err(destinations::unknown(&gateway, &name).into()),
    }
}

#[utoipa::path(
    put,
    path = "/v1/destinations/{name}",
    params(
        ("name" = String, Path, description = "The destination's name"),
        ("dry_run" = Option<bool>, Query, description = "Check, and change nothing"),
    ),
    request_body = DestinationSpec,
    responses(
        (status = 201, description = "Every shard has applied it", body = Destination),
        (status = 200, description = "It was like this before, or a dry run", body = Destination),
        (status = "4XX", description = "Refused; the code says why", body = Problem, content_type = "application/problem+json"),
        (status = "5XX", description = "Not answered; the code says what is known", body = Problem, content_type = "application/problem+json"),
    ),
    tag = "destinations"
)]
pub(crate) async fn put_destination(
    State(gateway): Shared,
    Segment(name): Segment,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
    body: Body,
) -> Answer {
    let parameters = parameters(query.as_deref(), &["dry_run"])?;
    let dry_run = match parameters.get("dry_run").map(String::as_str) {
        None | Some("false") => false,
        Some("" | "true") => true,
        Some(other) => {
            return Err(parameter("dry_run", &format!("dry_run is true or false; found {other:?}")).into());
        }
    };
    let body = json_body(&gateway, &headers, body, gateway.config.body_bytes_max).await?;
    let spec: DestinationSpec = parse::owned_body(&body)?;
    let (destination, created) = destinations::put(&gateway, &name, spec, dry_run).await?;
    Ok(json(if created && !dry_run { 201 } else { 200 }, &destination))
}

#[utoipa::path(
    post,
    path = "/v1/destinations/{name}:{verb}",
    params(
        ("name" = String, Path, description = "The destination's name"),
        ("verb" = String, Path, description = "pause, resume, deprecate, activate or rebind"),
    ),
    responses(
        (status = 200, description = "The destination", body = Destination),
        (status = "4XX", description = "Refused; the code says why", body = Problem, content_type = "application/problem+json"),
        (status = "5XX", description = "Not answered; the code says what is known", body = Problem, content_type = "application/problem+json"),
    ),
    tag = "destinations"
)]
pub(crate) async fn destination_verb(State(gateway): Shared, Segment(segment): Segment) -> Answer {
    let destination = match segment.rsplit_once(':') {
        Some((name, "pause")) => destinations::set_paused(&gateway, name, true).await?,
        Some((name, "resume")) => destinations::set_paused(&gateway, name, false).await?,
        Some((name, "deprecate")) => destinations::deprecate(&gateway, name).await?,
        Some((name, "activate")) => destinations::reactivate(&gateway, name).await?,
        Some((name, "rebind")) => destinations::rebind(&gateway, name).await?,
        _ => {
            let detail =
                format!("{segment:?} has no verb; :pause, :resume, :deprecate, :activate and :rebind are known");
            return Err(Problem::new(SurfaceCode::PathNotFound, detail).into());
        }
    };
    Ok(json(200, &destination))
}
