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
        http::messages::schedule_one,
        http::messages::schedule_batch,
        http::messages::list_messages,
        http::messages::get_message,
        http::messages::reschedule,
        http::messages::cancel,
        http::messages::counts,
        http::destinations::list_destinations,
        http::destinations::get_destination,
        http::destinations::put_destination,
        http::destinations::destination_verb,
        http::ingresses::list_ingresses,
        http::ingresses::get_ingress,
        http::ingresses::put_ingress,
        http::ingresses::delete_ingress,
        http::ingresses::ingress_verb,
        http::topics::list_topics,
        http::topics::get_topic,
        http::topics::read_records,
        http::system::list_shards,
        http::system::list_lanes,
        http::system::list_routes,
        http::system::healthz,
        http::system::readyz,
        http::system::metrics_text,
        http::system::error_page,
    ),
    components(schemas(client::api::ingress::IngressReceipt)),
    tags(
        (name = "messages", description = "Messages on their way"),
        (name = "destinations", description = "Where messages go"),
        (name = "ingresses", description = "Topics whose records schedule messages by their headers"),
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

#[cfg(test)]
mod tests {
    use super::*;

    /// With `UPDATE_DOCS=1` in the environment the copy is written anew.
    #[test]
    fn the_committed_document_is_the_one_that_is_served() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/openapi.json");
        if std::env::var_os("UPDATE_DOCS").is_some() {
            std::fs::write(path, document_text()).expect("docs/openapi.json can be written");
        }
        let committed = std::fs::read_to_string(path).expect("docs/openapi.json can be read");
        assert!(committed == document_text(), "docs/openapi.json is old: run this test with UPDATE_DOCS=1");
    }
}
