//! Topics over HTTP.

use axum::extract::{RawQuery, State};
use axum::http::HeaderValue;
use axum::response::Response;
use client::api::problem::Problem;
use client::api::topic::{RecordPage, Topic, TopicList};
use hyper::header::CONTENT_TYPE;

use super::request::{Segment, parameters};
use super::response::json;
use super::{Answer, Shared};
use crate::topics::{self, RecordQuery, Records};

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
pub(crate) async fn get_topic(State(gateway): Shared, Segment(topic): Segment) -> Answer {
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
pub(crate) async fn read_records(State(gateway): Shared, Segment(topic): Segment, RawQuery(query): RawQuery) -> Answer {
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
