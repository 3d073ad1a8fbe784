//! Messages over HTTP.

use axum::body::Body;
use axum::extract::{RawQuery, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use axum::response::Response;
use client::api::message::{
    BatchReceipt, BatchRequest, Counts, Message, MessagePage, MessageReceipt, RescheduleRequest, ScheduleRequest,
};
use client::api::problem::{Problem, SurfaceCode};
use hyper::header::LOCATION;

use super::request::{Segment, header_text, if_match, json_body, parameters, wait};
use super::response::{insert, insert_etag, json};
use super::{Answer, Shared};
use crate::messages::change::{self, ChangeRequest, Changed};
use crate::messages::parse::{self, RawBatch};
use crate::messages::read::{self, ListQuery};
use crate::messages::schedule::{self, Scheduled};
use crate::problem::IDEMPOTENT_REPLAYED;
use crate::state::Gateway;

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

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
    let body = json_body(&gateway, &headers, body, gateway.config.body_bytes_max).await?;
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
    let body = json_body(&gateway, &headers, body, gateway.config.batch_bytes_max).await?;
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
pub(crate) async fn get_message(State(gateway): Shared, Segment(id): Segment, RawQuery(query): RawQuery) -> Answer {
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
        ("Idempotency-Key" = Option<String>, Header, description = "The same key and request get the first answer again"),
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
    Segment(id): Segment,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
    body: Body,
) -> Answer {
    let request = change_request(&gateway, &id, query.as_deref(), &headers)?;
    let body = json_body(&gateway, &headers, body, gateway.config.body_bytes_max).await?;
    Ok(changed_response(&change::reschedule(&gateway, request, &body).await?))
}

#[utoipa::path(
    delete,
    path = "/v1/messages/{id}",
    params(
        ("wait" = Option<String>, Query, description = "How far the request is followed: queued, applied (default) or published"),
        ("timeout" = Option<String>, Query, description = "How long it is followed, such as 10s"),
        ("id" = String, Path, description = "The caller's own id, or the service's ndm1_ id"),
        ("If-Match" = Option<String>, Header, description = "Only if the message is still at this version"),
        ("Idempotency-Key" = Option<String>, Header, description = "The same key and request get the first answer again"),
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
    Segment(id): Segment,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Answer {
    let request = change_request(&gateway, &id, query.as_deref(), &headers)?;
    Ok(changed_response(&change::cancel(&gateway, request).await?))
}

fn change_request<'a>(
    gateway: &Gateway,
    id: &'a str,
    query: Option<&str>,
    headers: &'a HeaderMap,
) -> Result<ChangeRequest<'a>, Problem> {
    Ok(ChangeRequest {
        id,
        if_match: if_match(headers)?,
        idempotency_key: header_text(headers, &IDEMPOTENCY_KEY)?,
        wait: wait(gateway, &parameters(query, &["wait", "timeout"])?)?,
    })
}

fn changed_response(changed: &Changed) -> Response {
    let mut response = json(changed.status, &changed.receipt);
    insert_etag(response.headers_mut(), changed.receipt.version);
    if changed.is_replay {
        response.headers_mut().insert(IDEMPOTENT_REPLAYED, HeaderValue::from_static("true"));
    }
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
