//! Ingresses over HTTP.

use axum::body::Body;
use axum::extract::{RawQuery, State};
use axum::http::HeaderMap;
use client::api::ingress::{Ingress, IngressList, IngressSpec};
use client::api::problem::{Problem, SurfaceCode};

use super::request::{Segment, json_body, parameters};
use super::response::json;
use super::{Answer, Shared};
use crate::ingress::service;
use crate::messages::parse;
use crate::messages::read::parameter;

#[utoipa::path(
    get,
    path = "/v1/ingresses",
    responses(
        (status = 200, description = "Every ingress", body = IngressList),
        (status = "5XX", description = "Not answered; the code says what is known", body = Problem, content_type = "application/problem+json"),
    ),
    tag = "ingresses"
)]
pub(crate) async fn list_ingresses(State(gateway): Shared) -> Answer {
    Ok(json(200, &IngressList { items: service::list(&gateway).await? }))
}

#[utoipa::path(
    get,
    path = "/v1/ingresses/{name}",
    params(("name" = String, Path, description = "The ingress's name")),
    responses(
        (status = 200, description = "The ingress, with its partitions, their floors and lag", body = Ingress),
        (status = "4XX", description = "Refused; the code says why", body = Problem, content_type = "application/problem+json"),
        (status = "5XX", description = "Not answered; the code says what is known", body = Problem, content_type = "application/problem+json"),
    ),
    tag = "ingresses"
)]
pub(crate) async fn get_ingress(State(gateway): Shared, Segment(name): Segment) -> Answer {
    Ok(json(200, &service::get(&gateway, &name).await?))
}

#[utoipa::path(
    put,
    path = "/v1/ingresses/{name}",
    params(
        ("name" = String, Path, description = "The ingress's name"),
        ("dry_run" = Option<bool>, Query, description = "Check, and change nothing"),
    ),
    request_body = IngressSpec,
    responses(
        (status = 201, description = "It was created and begins to read", body = Ingress),
        (status = 200, description = "It was there before and is like this now, or a dry run", body = Ingress),
        (status = "4XX", description = "Refused; the code says why", body = Problem, content_type = "application/problem+json"),
        (status = "5XX", description = "Not answered; the code says what is known", body = Problem, content_type = "application/problem+json"),
    ),
    tag = "ingresses"
)]
pub(crate) async fn put_ingress(
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
    let spec: IngressSpec = parse::owned_body(&body)?;
    let (ingress, created) = service::put(&gateway, &name, spec, dry_run).await?;
    Ok(json(if created && !dry_run { 201 } else { 200 }, &ingress))
}

#[utoipa::path(
    delete,
    path = "/v1/ingresses/{name}",
    params(("name" = String, Path, description = "The ingress's name")),
    responses(
        (status = 200, description = "It is gone; this is what it was. What it has settled stays known: made again under its name, it goes on there", body = Ingress),
        (status = "4XX", description = "Refused; the code says why", body = Problem, content_type = "application/problem+json"),
        (status = "5XX", description = "Not answered; the code says what is known", body = Problem, content_type = "application/problem+json"),
    ),
    tag = "ingresses"
)]
pub(crate) async fn delete_ingress(State(gateway): Shared, Segment(name): Segment) -> Answer {
    Ok(json(200, &service::delete(&gateway, &name).await?))
}

#[utoipa::path(
    post,
    path = "/v1/ingresses/{name}:{verb}",
    params(
        ("name" = String, Path, description = "The ingress's name"),
        ("verb" = String, Path, description = "pause or resume"),
    ),
    responses(
        (status = 200, description = "The ingress", body = Ingress),
        (status = "4XX", description = "Refused; the code says why", body = Problem, content_type = "application/problem+json"),
        (status = "5XX", description = "Not answered; the code says what is known", body = Problem, content_type = "application/problem+json"),
    ),
    tag = "ingresses"
)]
pub(crate) async fn ingress_verb(State(gateway): Shared, Segment(segment): Segment) -> Answer {
    let ingress = match segment.rsplit_once(':') {
        Some((name, "pause")) => service::set_paused(&gateway, name, true).await?,
        Some((name, "resume")) => service::set_paused(&gateway, name, false).await?,
        _ => {
            let detail = format!("{segment:?} has no verb; :pause and :resume are known");
            return Err(Problem::new(SurfaceCode::PathNotFound, detail).into());
        }
    };
    Ok(json(200, &ingress))
}
