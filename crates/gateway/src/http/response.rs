//! What answers carry: JSON, and the headers that follow from it.

use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use client::api::problem::{Problem, SurfaceCode};
use hyper::header::{CONTENT_TYPE, ETAG};
use serde::Serialize;

use crate::problem::Failure;

pub(super) fn json(status: u16, body: &impl Serialize) -> Response {
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

pub(super) fn insert(headers: &mut HeaderMap, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(name, value);
    }
}

pub(super) fn insert_etag(headers: &mut HeaderMap, version: Option<u64>) {
    if let Some(version) = version {
        insert(headers, ETAG, &format!("\"{version}\""));
    }
}
