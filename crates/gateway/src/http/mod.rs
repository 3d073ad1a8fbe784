//! From HTTP to the services and back: paths here, headers and bodies in [`request`] and [`response`], one file for each kind of
//! thing.

pub(crate) mod destinations;
pub(crate) mod ingresses;
pub(crate) mod messages;
mod request;
mod response;
pub(crate) mod system;
pub(crate) mod topics;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::Router;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::{HeaderValue, Method};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get, post};
use client::api::problem::{Problem, SurfaceCode};
use hyper::header::ALLOW;

use crate::problem::{self, Failure};
use crate::state::Gateway;

pub(crate) use self::request::parameters as request_parameters;

type Shared = State<Arc<Gateway>>;
type Answer = Result<Response, Failure>;

/// Every path of the surface.
pub(crate) fn router(gateway: Arc<Gateway>) -> Router {
    Router::new()
        .route(
            "/v1/messages",
            post(messages::schedule_one).get(messages::list_messages).fallback(method_not_allowed("GET, POST")),
        )
        .route("/v1/messages:batch", post(messages::schedule_batch).fallback(method_not_allowed("POST")))
        .route(
            "/v1/messages/{id}",
            get(messages::get_message)
                .patch(messages::reschedule)
                .delete(messages::cancel)
                .fallback(method_not_allowed("GET, PATCH, DELETE")),
        )
        .route("/v1/counts", get(messages::counts).fallback(method_not_allowed("GET")))
        .route("/v1/destinations", get(destinations::list_destinations).fallback(method_not_allowed("GET")))
        .route(
            "/v1/destinations/{name}",
            get(destinations::get_destination)
                .put(destinations::put_destination)
                .post(destinations::destination_verb)
                .fallback(method_not_allowed("GET, PUT, POST")),
        )
        .route("/v1/ingresses", get(ingresses::list_ingresses).fallback(method_not_allowed("GET")))
        .route(
            "/v1/ingresses/{name}",
            get(ingresses::get_ingress)
                .put(ingresses::put_ingress)
                .delete(ingresses::delete_ingress)
                .post(ingresses::ingress_verb)
                .fallback(method_not_allowed("GET, PUT, DELETE, POST")),
        )
        .route("/v1/topics", get(topics::list_topics).fallback(method_not_allowed("GET")))
        .route("/v1/topics/{topic}", get(topics::get_topic).fallback(method_not_allowed("GET")))
        .route("/v1/topics/{topic}/records", get(topics::read_records).fallback(method_not_allowed("GET")))
        .route("/v1/admin/shards", get(system::list_shards).fallback(method_not_allowed("GET")))
        .route("/v1/admin/lanes", get(system::list_lanes).fallback(method_not_allowed("GET")))
        .route("/v1/admin/routes", get(system::list_routes).fallback(method_not_allowed("GET")))
        .route("/healthz", get(system::healthz).fallback(method_not_allowed("GET")))
        .route("/readyz", get(system::readyz).fallback(method_not_allowed("GET")))
        .route("/metrics", get(system::metrics_text).fallback(method_not_allowed("GET")))
        .route("/openapi.json", get(system::openapi_json).fallback(method_not_allowed("GET")))
        .route("/errors/{code}", get(system::error_page).fallback(method_not_allowed("GET")))
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
    let response = if open >= limit as u64 {
        gateway.metrics.requests_shed.fetch_add(1, Ordering::Relaxed);
        let detail = format!("{limit} requests are being answered already; nothing was taken");
        Failure::from(Problem::new(SurfaceCode::TooManyRequests, detail)).into_response()
    } else {
        next.run(request).await
    };
    gateway.metrics.requests_open.fetch_sub(1, Ordering::Relaxed);
    if let Some(failure) = response.extensions().get::<Failure>().filter(|failure| failure.problem.status >= 500) {
        tracing::warn!(request_id, problem = %failure.problem, "a request could not be answered");
    }
    let response = problem::finish(response, request_id);
    gateway.metrics.answered(response.status().as_u16());
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
