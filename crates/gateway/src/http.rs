//! Paths, methods and headers: from HTTP to the services and back.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{DefaultBodyLimit, Path, RawQuery, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get, post};
use client::api::admin::{LaneList, Readiness, RouteList, ShardList};
use client::api::destination::{Destination, DestinationList, DestinationSpec};
use client::api::message::{
    BatchReceipt, BatchRequest, Counts, Message, MessagePage, MessageReceipt, RescheduleRequest, ScheduleRequest,
};
use client::api::pages;
use client::api::problem::{Code, Problem, SurfaceCode};
use client::api::topic::{RecordPage, Topic, TopicList};
use client::duration::parse_delay_ms;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use hyper::header::{ALLOW, CONTENT_TYPE, ETAG, IF_MATCH, LOCATION};
use serde::Serialize;

use crate::messages::change::{self, Changed, IfMatch};
use crate::messages::parse::{self, RawBatch};
use crate::messages::read::{self, ListQuery, parameter};
use crate::messages::schedule::{self, Scheduled};
use crate::messages::submit::{Wait, WaitFor};
use crate::problem::Failure;
use crate::state::Gateway;
use crate::topics::{self, RecordQuery, Records};
use crate::{admin, destinations, metrics, openapi};

type Shared = State<Arc<Gateway>>;
type Answer = Result<Response, Failure>;

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
const IDEMPOTENT_REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Every path of the surface.
pub(crate) fn router(gateway: Arc<Gateway>) -> Router {
    Router::new()
        .route("/v1/messages", post(schedule_one).get(list_messages).fallback(method_not_allowed("GET, POST")))
        .route("/v1/messages:batch", post(schedule_batch).fallback(method_not_allowed("POST")))
        .route(
            "/v1/messages/{id}",
            get(get_message).patch(reschedule).delete(cancel).fallback(method_not_allowed("GET, PATCH, DELETE")),
        )
        .route("/v1/counts", get(counts).fallback(method_not_allowed("GET")))
        .route("/v1/destinations", get(list_destinations).fallback(method_not_allowed("GET")))
        .route(
            "/v1/destinations/{name}",
            get(get_destination)
                .put(put_destination)
                .post(destination_verb)
                .fallback(method_not_allowed("GET, PUT, POST")),
        )
        .route("/v1/topics", get(list_topics).fallback(method_not_allowed("GET")))
        .route("/v1/topics/{topic}", get(get_topic).fallback(method_not_allowed("GET")))
        .route("/v1/topics/{topic}/records", get(read_records).fallback(method_not_allowed("GET")))
        .route("/v1/admin/shards", get(list_shards).fallback(method_not_allowed("GET")))
        .route("/v1/admin/lanes", get(list_lanes).fallback(method_not_allowed("GET")))
        .route("/v1/admin/routes", get(list_routes).fallback(method_not_allowed("GET")))
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics_text))
        .route("/openapi.json", get(openapi_json))
        .route("/errors/{code}", get(error_page).fallback(method_not_allowed("GET")))
        .fallback(any(path_not_found))
        // Handlers read bodies themselves, up to their own limits.
        .layer(DefaultBodyLimit::disable())
        .layer(middleware::from_fn_with_state(gateway.clone(), account))
        .with_state(gateway)
}

/// Names each request, sheds what is too much, counts the rest.
async fn account(State(gateway): Shared, request: Request, next: Next) -> Response {
    let number = gateway.request_count.fetch_add(1, Ordering::Relaxed);
    let request_id = format!("r{number:x}");
    let open = gateway.metrics.requests_open.fetch_add(1, Ordering::Relaxed);
    let limit = gateway.config.requests_max;
    let mut response = if open >= limit as u64 {
        gateway.metrics.requests_shed.fetch_add(1, Ordering::Relaxed);
        let detail = format!("{limit} requests are being answered already; nothing was taken");
        Failure::from(Problem::new(SurfaceCode::TooManyRequests, detail)).into_response()
    } else {
        next.run(request).await
    };
    gateway.metrics.requests_open.fetch_sub(1, Ordering::Relaxed);
    gateway.metrics.answered(response.status().as_u16());
    if let Ok(value) = HeaderValue::from_str(&request_id) {
        response.headers_mut().insert(REQUEST_ID, value);
    }
    if response.status().is_server_error() {
        tracing::warn!(request_id, status = response.status().as_u16(), "a request could not be answered");
    }
    response
}

async fn path_not_found(request: Request) -> Failure {
    let detail = format!("there is nothing at {:?}; /openapi.json lists every path", request.uri().path());
    Problem::new(SurfaceCode::PathNotFound, detail).into()
}

fn method_not_allowed(allowed: &'static str) -> impl Fn(Method) -> std::future::Ready<Response> + Clone {
    move |method| {
        let detail = format!("{method} does not go here; {allowed} do");
        let mut response = Failure::from(Problem::new(SurfaceCode::MethodNotAllowed, detail)).into_response();
        response.headers_mut().insert(ALLOW, HeaderValue::from_static(allowed));
        std::future::ready(response)
    }
}

#[utoipa::path(
    post,
    path = "/v1/messages",
    params(
        ("wait" = Option<String>, Query, description = "How far the request is followed: queued, applied (default) or published"),
        ("timeout" = Option<String>, Query, description = "How long it is followed, such as 10s"),
        ("Idempotency-Key" = Option<String>, Header, description = "The same key and body get the first answer again"),
    ),
    request_body = ScheduleRequest,
    responses(
        (status = 201, description = "Scheduled", body = MessageReceipt),
        (status = 202, description = "Queued; the verdict was not known in time", body = MessageReceipt),
        (status = "4XX", description = "Refused; the code says why", body = Problem, content_type = "application/problem+json"),
        (status = "5XX", description = "Not answered; the code says what is known", body = Problem, content_type = "application/problem+json"),
    ),
    tag = "messages"
)]
pub(crate) async fn schedule_one(
    State(gateway): Shared,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
    body: Body,
) -> Answer {
    let wait = wait(&gateway, &parameters(query.as_deref(), &["wait", "timeout"])?)?;
    let body = json_body(&headers, body, gateway.config.body_bytes_max).await?;
    let key = header_text(&headers, &IDEMPOTENCY_KEY)?;
    let scheduled = schedule::one(&gateway, &body, key, wait).await?;
    Ok(scheduled_response(&scheduled))
}

fn scheduled_response(scheduled: &Scheduled) -> Response {
    let mut response = json(scheduled.status, &scheduled.receipt);
    let headers = response.headers_mut();
    insert(headers, LOCATION, &format!("/v1/messages/{}", scheduled.receipt.message_id));
    insert_etag(headers, scheduled.receipt.version);
    if scheduled.is_replay {
        headers.insert(IDEMPOTENT_REPLAYED, HeaderValue::from_static("true"));
    }
    response
}

#[utoipa::path(
    post,
    path = "/v1/messages:batch",
    params(
        ("wait" = Option<String>, Query, description = "How far the request is followed: queued, applied (default) or published"),
        ("timeout" = Option<String>, Query, description = "How long it is followed, such as 10s"),
    ),
    request_body = BatchRequest,
    responses(
        (status = 200, description = "A receipt or a problem for each message, in order", body = BatchReceipt),
        (status = "4XX", description = "Refused; the code says why", body = Problem, content_type = "application/problem+json"),
        (status = "5XX", description = "Not answered; the code says what is known", body = Problem, content_type = "application/problem+json"),
    ),
    tag = "messages"
)]
pub(crate) async fn schedule_batch(
    State(gateway): Shared,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
    body: Body,
) -> Answer {
    let wait = wait(&gateway, &parameters(query.as_deref(), &["wait", "timeout"])?)?;
    let body = json_body(&headers, body, gateway.config.batch_bytes_max).await?;
    let batch: RawBatch<'_> = parse::body(&body)?;
    let limit = gateway.config.batch_messages_max;
    if batch.messages.len() > limit {
        let detail =
            format!("the batch has {} messages; the limit is {limit}; nothing was taken", batch.messages.len());
        return Err(Problem::new(SurfaceCode::RequestTooLarge, detail).field("messages").into());
    }
    let results = schedule::batch(&gateway, &batch.messages, wait).await;
    Ok(json(200, &BatchReceipt { results }))
}

#[utoipa::path(
    get,
    path = "/v1/messages/{id}",
    params(
        ("id" = String, Path, description = "The caller's own id, or the service's ndm1_ id"),
        ("include" = Option<String>, Query, description = "payload: key, value and headers too"),
    ),
    responses(
        (status = 200, description = "The message", body = Message),
        (status = "4XX", description = "Refused; the code says why", body = Problem, content_type = "application/problem+json"),
        (status = "5XX", description = "Not answered; the code says what is known", body = Problem, content_type = "application/problem+json"),
    ),
    tag = "messages"
)]
pub(crate) async fn get_message(State(gateway): Shared, Path(id): Path<String>, RawQuery(query): RawQuery) -> Answer {
    let parameters = parameters(query.as_deref(), &["include"])?;
    let with_payload = read::includes_payload(parameters.get("include").map(String::as_str))?;
    let message = read::get(&gateway, &id, with_payload).await?;
    let mut response = json(200, &message);
    insert_etag(response.headers_mut(), Some(message.version));
    Ok(response)
}

#[utoipa::path(
    patch,
    path = "/v1/messages/{id}",
    params(
        ("wait" = Option<String>, Query, description = "How far the request is followed: queued, applied (default) or published"),
        ("timeout" = Option<String>, Query, description = "How long it is followed, such as 10s"),
        ("id" = String, Path, description = "The caller's own id, or the service's ndm1_ id"),
        ("If-Match" = Option<String>, Header, description = "Only if the message is still at this version"),
    ),
    request_body = RescheduleRequest,
    responses(
        (status = 200, description = "Moved", body = MessageReceipt),
        (status = 202, description = "Queued; the verdict was not known in time", body = MessageReceipt),
        (status = "4XX", description = "Refused; the code says why", body = Problem, content_type = "application/problem+json"),
        (status = "5XX", description = "Not answered; the code says what is known", body = Problem, content_type = "application/problem+json"),
    ),
    tag = "messages"
)]
pub(crate) async fn reschedule(
    State(gateway): Shared,
    Path(id): Path<String>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
    body: Body,
) -> Answer {
    let wait = wait(&gateway, &parameters(query.as_deref(), &["wait", "timeout"])?)?;
    let if_match = if_match(&headers)?;
    let body = json_body(&headers, body, gateway.config.body_bytes_max).await?;
    Ok(changed_response(&change::reschedule(&gateway, &id, &body, if_match, wait).await?))
}

#[utoipa::path(
    delete,
    path = "/v1/messages/{id}",
    params(
        ("wait" = Option<String>, Query, description = "How far the request is followed: queued, applied (default) or published"),
        ("timeout" = Option<String>, Query, description = "How long it is followed, such as 10s"),
        ("id" = String, Path, description = "The caller's own id, or the service's ndm1_ id"),
        ("If-Match" = Option<String>, Header, description = "Only if the message is still at this version"),
    ),
    responses(
        (status = 200, description = "Canceled, now or before", body = MessageReceipt),
        (status = 202, description = "Queued; the verdict was not known in time", body = MessageReceipt),
        (status = "4XX", description = "Refused; the code says why", body = Problem, content_type = "application/problem+json"),
        (status = "5XX", description = "Not answered; the code says what is known", body = Problem, content_type = "application/problem+json"),
    ),
    tag = "messages"
)]
pub(crate) async fn cancel(
    State(gateway): Shared,
    Path(id): Path<String>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Answer {
    let wait = wait(&gateway, &parameters(query.as_deref(), &["wait", "timeout"])?)?;
    let if_match = if_match(&headers)?;
    Ok(changed_response(&change::cancel(&gateway, &id, if_match, wait).await?))
}

fn changed_response(changed: &Changed) -> Response {
    let mut response = json(changed.status, &changed.receipt);
    insert_etag(response.headers_mut(), changed.receipt.version);
    response
}

#[utoipa::path(
    get,
    path = "/v1/messages",
    params(
        ("destination" = Option<String>, Query, description = "Of this destination"),
        ("status" = Option<String>, Query, description = "In these statuses, separated by commas"),
        ("due_after" = Option<String>, Query, description = "With a delivery time at or after this"),
        ("due_before" = Option<String>, Query, description = "With a delivery time before this"),
        ("id_prefix" = Option<String>, Query, description = "Whose own id starts with this"),
        ("limit" = Option<u32>, Query, description = "Items of a page"),
        ("cursor" = Option<String>, Query, description = "next_cursor of the page before"),
        ("include" = Option<String>, Query, description = "payload: key, value and headers too"),
    ),
    responses(
        (status = 200, description = "A page", body = MessagePage),
        (status = "4XX", description = "Refused; the code says why", body = Problem, content_type = "application/problem+json"),
        (status = "5XX", description = "Not answered; the code says what is known", body = Problem, content_type = "application/problem+json"),
    ),
    tag = "messages"
)]
pub(crate) async fn list_messages(State(gateway): Shared, RawQuery(query): RawQuery) -> Answer {
    let names = ["destination", "status", "due_after", "due_before", "id_prefix", "limit", "cursor", "include"];
    let mut parameters = parameters(query.as_deref(), &names)?;
    let query = ListQuery {
        destination: parameters.remove("destination"),
        status: parameters.remove("status"),
        due_after: parameters.remove("due_after"),
        due_before: parameters.remove("due_before"),
        id_prefix: parameters.remove("id_prefix"),
        limit: parameters.remove("limit"),
        cursor: parameters.remove("cursor"),
        include: parameters.remove("include"),
    };
    Ok(json(200, &read::list(&gateway, &query).await?))
}

#[utoipa::path(
    get,
    path = "/v1/counts",
    params(("destination" = Option<String>, Query, description = "Of this destination")),
    responses(
        (status = 200, description = "How many messages are kept, by status", body = Counts),
        (status = "4XX", description = "Refused; the code says why", body = Problem, content_type = "application/problem+json"),
        (status = "5XX", description = "Not answered; the code says what is known", body = Problem, content_type = "application/problem+json"),
    ),
    tag = "messages"
)]
pub(crate) async fn counts(State(gateway): Shared, RawQuery(query): RawQuery) -> Answer {
    let parameters = parameters(query.as_deref(), &["destination"])?;
    Ok(json(200, &read::counts(&gateway, parameters.get("destination").map(String::as_str)).await?))
}

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
pub(crate) async fn get_destination(State(gateway): Shared, Path(name): Path<String>) -> Answer {
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
    Path(name): Path<String>,
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
    let body = json_body(&headers, body, gateway.config.body_bytes_max).await?;
    let spec: DestinationSpec = parse::owned_body(&body)?;
    let (destination, created) = destinations::put(&gateway, &name, spec, dry_run).await?;
    Ok(json(if created && !dry_run { 201 } else { 200 }, &destination))
}

#[utoipa::path(
    post,
    path = "/v1/destinations/{name}:{verb}",
    params(
        ("name" = String, Path, description = "The destination's name"),
        ("verb" = String, Path, description = "pause or resume"),
    ),
    responses(
        (status = 200, description = "The destination", body = Destination),
        (status = "4XX", description = "Refused; the code says why", body = Problem, content_type = "application/problem+json"),
        (status = "5XX", description = "Not answered; the code says what is known", body = Problem, content_type = "application/problem+json"),
    ),
    tag = "destinations"
)]
pub(crate) async fn destination_verb(State(gateway): Shared, Path(segment): Path<String>) -> Answer {
    let destination = match segment.rsplit_once(':') {
        Some((name, "pause")) => destinations::set_paused(&gateway, name, true).await?,
        Some((name, "resume")) => destinations::set_paused(&gateway, name, false).await?,
        _ => {
            let detail = format!("{segment:?} has no verb; :pause and :resume are known");
            return Err(Problem::new(SurfaceCode::PathNotFound, detail).into());
        }
    };
    Ok(json(200, &destination))
}

#[utoipa::path(
    get,
    path = "/v1/topics",
    responses((status = 200, description = "Every topic of the embedded log", body = TopicList)),
    tag = "topics"
)]
pub(crate) async fn list_topics(State(gateway): Shared) -> Answer {
    Ok(json(200, &topics::list(&gateway)?))
}

#[utoipa::path(
    get,
    path = "/v1/topics/{topic}",
    params(("topic" = String, Path, description = "The topic's name")),
    responses(
        (status = 200, description = "The topic", body = Topic),
        (status = "4XX", description = "Refused; the code says why", body = Problem, content_type = "application/problem+json"),
        (status = "5XX", description = "Not answered; the code says what is known", body = Problem, content_type = "application/problem+json"),
    ),
    tag = "topics"
)]
pub(crate) async fn get_topic(State(gateway): Shared, Path(topic): Path<String>) -> Answer {
    Ok(json(200, &topics::describe(&gateway, &topic)?))
}

#[utoipa::path(
    get,
    path = "/v1/topics/{topic}/records",
    params(
        ("topic" = String, Path, description = "The topic's name"),
        ("partition" = Option<u32>, Query, description = "The partition; 0 when not given"),
        ("offset" = Option<String>, Query, description = "A number, start (default) or end"),
        ("limit" = Option<u32>, Query, description = "Records of a page"),
        ("follow" = Option<bool>, Query, description = "Go on as records come, one JSON object a line"),
    ),
    responses(
        (status = 200, description = "Records", body = RecordPage),
        (status = "4XX", description = "Refused; the code says why", body = Problem, content_type = "application/problem+json"),
        (status = "5XX", description = "Not answered; the code says what is known", body = Problem, content_type = "application/problem+json"),
    ),
    tag = "topics"
)]
pub(crate) async fn read_records(
    State(gateway): Shared,
    Path(topic): Path<String>,
    RawQuery(query): RawQuery,
) -> Answer {
    let mut parameters = parameters(query.as_deref(), &["partition", "offset", "limit", "follow"])?;
    let query = RecordQuery {
        partition: parameters.remove("partition"),
        offset: parameters.remove("offset"),
        limit: parameters.remove("limit"),
        follow: parameters.remove("follow"),
    };
    Ok(match topics::read(&gateway, &topic, &query)? {
        Records::Page(page) => json(200, &page),
        Records::Lines(body) => {
            let mut response = Response::new(body);
            response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/x-ndjson"));
            response
        }
    })
}

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
pub(crate) async fn error_page(Path(name): Path<String>) -> Answer {
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

async fn openapi_json() -> Response {
    let mut response = openapi::document_text().into_response();
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

fn json(status: u16, body: &impl Serialize) -> Response {
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    match serde_json::to_vec(body) {
        Ok(body) => {
            let mut response = (status, body).into_response();
            response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
            response
        }
        Err(error) => Failure::from(Problem::new(SurfaceCode::Internal, error.to_string())).into_response(),
    }
}

/// Reads a whole JSON body, up to a limit.
async fn json_body(headers: &HeaderMap, body: Body, bytes_max: usize) -> Result<bytes::Bytes, Problem> {
    let content_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let essence = content_type.split(';').next().unwrap_or_default().trim();
    if !essence.eq_ignore_ascii_case("application/json") {
        let detail = format!("send the body as application/json; found {content_type:?}");
        return Err(Problem::new(SurfaceCode::UnsupportedMediaType, detail).field("Content-Type"));
    }
    match Limited::new(body, bytes_max).collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => {
            let detail = format!("the body is larger than {bytes_max} bytes; nothing was taken");
            let problem = Problem::new(SurfaceCode::RequestTooLarge, detail);
            Err(Problem { limit_bytes: Some(bytes_max as u64), ..problem })
        }
        Err(error) => Err(Problem::new(SurfaceCode::MalformedBody, format!("the body broke off: {error}"))),
    }
}

/// The query's parameters. Unknown and repeated ones are refused: a misspelt filter must not show everything.
fn parameters(query: Option<&str>, known: &[&'static str]) -> Result<BTreeMap<&'static str, String>, Problem> {
    let mut parameters = BTreeMap::new();
    for pair in query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let Some(name) = known.iter().find(|known| **known == name) else {
            let detail = format!("there is no parameter {name:?} here; there are: {}", known.join(", "));
            return Err(Problem::new(SurfaceCode::InvalidParameter, detail).field(name));
        };
        let value = percent_decode(value).ok_or_else(|| parameter(name, &format!("{name} is not valid text")))?;
        if parameters.insert(*name, value).is_some() {
            return Err(parameter(name, &format!("{name} is given twice")));
        }
    }
    Ok(parameters)
}

/// Decodes a query value: percent escapes, and plus for space.
fn percent_decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        match first {
            b'+' => bytes.push(b' '),
            b'%' => {
                let (digits, after) = rest.split_at_checked(2)?;
                bytes.push(u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?);
                rest = after;
            }
            other => bytes.push(*other),
        }
    }
    String::from_utf8(bytes).ok()
}

/// How far the request is followed: `wait` and `timeout`.
fn wait(gateway: &Gateway, parameters: &BTreeMap<&'static str, String>) -> Result<Wait, Problem> {
    let until = match parameters.get("wait").map(String::as_str) {
        None | Some("applied") => WaitFor::Applied,
        Some("queued") => WaitFor::Queued,
        Some("published") => WaitFor::Published,
        Some(other) => {
            return Err(parameter("wait", &format!("wait is queued, applied or published; found {other:?}")));
        }
    };
    let timeout = match parameters.get("timeout") {
        None => gateway.config.wait_default,
        Some(text) => {
            let timeout_ms =
                parse_delay_ms(text).map_err(|error| parameter("timeout", &format!("timeout: {error}")))?;
            Duration::from_millis(timeout_ms.unsigned_abs())
        }
    };
    let limit = gateway.config.wait_max;
    if timeout > limit {
        let detail = format!("timeout is {} ms; the limit is {} ms", timeout.as_millis(), limit.as_millis());
        return Err(parameter("timeout", &detail));
    }
    Ok(Wait::new(until, timeout))
}

fn if_match(headers: &HeaderMap) -> Result<IfMatch, Problem> {
    let Some(text) = header_text(headers, &IF_MATCH)? else { return Ok(IfMatch::Any) };
    if text.trim() == "*" {
        return Ok(IfMatch::Any);
    }
    let version = text.trim().strip_prefix('"').and_then(|text| text.strip_suffix('"'));
    match version.and_then(|version| version.parse().ok()) {
        Some(version) => Ok(IfMatch::Version(version)),
        None => {
            let detail = format!("If-Match is the ETag of an answer, such as \"3\" in quotes, or *; found {text:?}");
            Err(Problem::new(SurfaceCode::InvalidHeader, detail).field("If-Match"))
        }
    }
}

fn header_text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a str>, Problem> {
    let mut values = headers.get_all(name).iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(Problem::new(SurfaceCode::InvalidHeader, format!("{name} is given twice")).field(name.as_str()));
    }
    value.to_str().map(Some).map_err(|_| {
        Problem::new(SurfaceCode::InvalidHeader, format!("{name} is not visible ASCII text")).field(name.as_str())
    })
}

fn insert(headers: &mut HeaderMap, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(name, value);
    }
}

fn insert_etag(headers: &mut HeaderMap, version: Option<u64>) {
    if let Some(version) = version {
        insert(headers, ETAG, &format!("\"{version}\""));
    }
}
