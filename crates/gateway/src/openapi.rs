//! The OpenAPI document, made from the handlers and their types. `docs/openapi.json` is a copy that a test holds to it.

use utoipa::OpenApi;

use crate::http;

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Nereus Delay",
        description = "Delayed messages: schedule, cancel, reschedule, ask. Times go out as RFC 3339 UTC with an `_ms` twin; unknown fields and parameters are refused; errors are RFC 9457 problems with a stable code.",
        license(name = "Apache-2.0", identifier = "Apache-2.0")
    ),
    paths(
        http::schedule_one,
        http::schedule_batch,
        http::list_messages,
        http::get_message,
        http::reschedule,
        http::cancel,
        http::counts,
        http::list_destinations,
        http::get_destination,
        http::put_destination,
        http::destination_verb,
        http::list_topics,
        http::get_topic,
        http::read_records,
        http::list_shards,
        http::list_lanes,
        http::list_routes,
        http::healthz,
        http::readyz,
        http::metrics_text,
        http::error_page,
    ),
    tags(
        (name = "messages", description = "Messages on their way"),
        (name = "destinations", description = "Where messages go"),
        (name = "topics", description = "The embedded log's topics, for consumers"),
        (name = "admin", description = "What operators see"),
        (name = "health", description = "What monitoring sees"),
    )
)]
struct Document;

/// The document as text, with a line end at its end.
pub fn document_text() -> String {
    let mut text = Document::openapi().to_pretty_json().unwrap_or_default();
    text.push('\n');
    text
}
