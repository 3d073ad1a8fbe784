//! Shards, lanes, routes, health and descriptions over HTTP.

use axum::extract::{RawQuery, State};
use axum::http::HeaderValue;
use axum::response::{IntoResponse, Response};
use client::api::admin::{LaneList, Readiness, RouteList, ShardList};
use client::api::pages;
use client::api::problem::{Code, Problem, SurfaceCode};
use hyper::header::CONTENT_TYPE;

use super::request::{Segment, parameters};
use super::response::json;
use super::{Answer, Shared};
use crate::{admin, metrics, openapi};

#[utoipa::path(
    get,
    path = "/v1/admin/shards",
    responses((status = 200, description = "Every shard", body = ShardList)),
    tag = "admin"
)]
pub(crate) async fn list_shards(State(gateway): Shared) -> Response {
    json(200, &admin::shards(&gateway))
}

#[utoipa::path(
    get,
    path = "/v1/admin/lanes",
    params(("destination" = Option<String>, Query, description = "Of this destination")),
    responses(
        (status = 200, description = "Lanes", body = LaneList),
        (status = "4XX", description = "Refused; the code says why", body = Problem, content_type = "application/problem+json"),
        (status = "5XX", description = "Not answered; the code says what is known", body = Problem, content_type = "application/problem+json"),
    ),
    tag = "admin"
)]
pub(crate) async fn list_lanes(State(gateway): Shared, RawQuery(query): RawQuery) -> Answer {
    let parameters = parameters(query.as_deref(), &["destination"])?;
    Ok(json(200, &admin::lanes(&gateway, parameters.get("destination").map(String::as_str)).await?))
}

#[utoipa::path(
    get,
    path = "/v1/admin/routes",
    responses((status = 200, description = "Every route", body = RouteList)),
    tag = "admin"
)]
pub(crate) async fn list_routes(State(gateway): Shared) -> Response {
    json(200, &admin::routes(&gateway))
}

#[utoipa::path(
    get,
    path = "/errors/{code}",
    params(("code" = String, Path, description = "A code, such as TOO_LATE")),
    responses(
        (status = 200, description = "What the code means and what to do, Markdown", body = String, content_type = "text/markdown"),
        (status = "4XX", description = "There is no such code", body = Problem, content_type = "application/problem+json"),
    ),
    tag = "health"
)]
pub(crate) async fn error_page(Segment(name): Segment) -> Answer {
    let page = Code::from_name(&name).and_then(pages::page).ok_or_else(|| {
        let detail = format!("there is no code {name:?}; nereus-delay explain lists them all");
        Problem::new(SurfaceCode::PathNotFound, detail)
    })?;
    Ok(([(CONTENT_TYPE, "text/markdown; charset=utf-8")], page).into_response())
}

#[utoipa::path(
    get,
    path = "/healthz",
    responses((status = 200, description = "The server runs")),
    tag = "health"
)]
pub(crate) async fn healthz() -> &'static str {
    "ok\n"
}

#[utoipa::path(
    get,
    path = "/readyz",
    responses(
        (status = 200, description = "The server can do its work", body = Readiness),
        (status = 503, description = "It cannot; the reasons say why", body = Readiness),
    ),
    tag = "health"
)]
pub(crate) async fn readyz(State(gateway): Shared) -> Response {
    let readiness = admin::readiness(&gateway);
    json(if readiness.ready { 200 } else { 503 }, &readiness)
}

#[utoipa::path(
    get,
    path = "/metrics",
    responses((status = 200, description = "Metrics in the OpenMetrics text format", content_type = "application/openmetrics-text")),
    tag = "health"
)]
pub(crate) async fn metrics_text(State(gateway): Shared) -> Answer {
    let mut response = metrics::text(&gateway).await?.into_response();
    let openmetrics = HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, openmetrics);
    Ok(response)
}

pub(crate) async fn openapi_json() -> Response {
    let mut response = openapi::document_text().into_response();
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
