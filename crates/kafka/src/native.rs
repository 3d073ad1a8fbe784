//! The calls that the safe bindings do not have: DescribeTopics with topic ids and authorised operations, topic configuration
//! on a client that exists already, and how far a message got before its delivery failed.
//!
//! All of this project's unsafe code for Kafka is in this file. Every pointer that a function here takes from the client
//! library is checked for null, and none outlives the event or options that own it.

#![allow(unsafe_code, reason = "the safe bindings lack these calls; each block says why it is sound")]

use std::ffi::{CStr, CString, c_char};
use std::ptr::NonNull;
use std::time::Duration;

use bytes::Bytes;
use rdkafka::error::RDKafkaErrorCode;
use rdkafka::message::BorrowedMessage;
use rdkafka_sys as sys;
use rdkafka_sys::types::RDKafka;

use crate::client::ClientErrors;

/// How long is waited at once, before it is asked whether waiting is any use.
const SLICE: Duration = Duration::from_millis(100);

/// How far a message got, as the client library knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Persistence {
    /// It was never sent, or the broker refused it.
    Not,
    /// It was sent and nothing was heard.
    Possibly,
    /// The broker has it.
    Persisted,
}

/// How far a message got whose delivery report this is.
pub(crate) fn persistence(message: &BorrowedMessage<'_>) -> Persistence {
    // SAFETY: the pointer is the borrowed message's own and lives as long as the borrow.
    match unsafe { sys::rd_kafka_message_status(message.ptr()) } {
        sys::rd_kafka_msg_status_t::RD_KAFKA_MSG_STATUS_NOT_PERSISTED => Persistence::Not,
        sys::rd_kafka_msg_status_t::RD_KAFKA_MSG_STATUS_POSSIBLY_PERSISTED => Persistence::Possibly,
        sys::rd_kafka_msg_status_t::RD_KAFKA_MSG_STATUS_PERSISTED => Persistence::Persisted,
    }
}

/// A message's headers as they were written: the safe bindings take every name for text, and panic where it is none.
pub(crate) fn headers(message: &BorrowedMessage<'_>) -> Vec<(Bytes, Option<Bytes>)> {
    let mut found = Vec::new();
    // SAFETY: the message is live; names are C strings and values have the length that is told, all owned by the message.
    unsafe {
        let mut headers = std::ptr::null_mut();
        let code = sys::rd_kafka_message_headers(message.ptr(), &raw mut headers);
        if code != sys::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR || headers.is_null() {
            return found;
        }
        loop {
            let (mut name, mut value, mut length) = (std::ptr::null(), std::ptr::null(), 0);
            let code =
                sys::rd_kafka_header_get_all(headers, found.len(), &raw mut name, &raw mut value, &raw mut length);
            if code != sys::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR || name.is_null() {
                return found;
            }
            let name = Bytes::copy_from_slice(CStr::from_ptr(name).to_bytes());
            let value = (!value.is_null())
                .then(|| Bytes::copy_from_slice(std::slice::from_raw_parts(value.cast::<u8>(), length)));
            found.push((name, value));
        }
    }
}

/// What a broker says of a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Description {
    pub(crate) topic_id: [u8; 16],
    pub(crate) partition_count: u32,
    /// Whether this client may read records; `None` when the broker did not say.
    pub(crate) may_read: Option<bool>,
    /// Whether this client may write records; `None` when the broker did not say.
    pub(crate) may_write: Option<bool>,
}

/// An administrative call without success.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{detail} ({code:?})")]
pub(crate) struct CallError {
    pub(crate) code: RDKafkaErrorCode,
    pub(crate) detail: String,
}

impl CallError {
    fn local(detail: &str) -> CallError {
        CallError { code: RDKafkaErrorCode::Fail, detail: detail.to_owned() }
    }
}

/// Asks the cluster about a topic. Blocks up to `timeout`.
///
/// `client` must be a live handle, as the safe bindings' `native_ptr` returns it; the caller keeps its owner alive.
pub(crate) fn describe_topic(
    client: *mut RDKafka,
    topic: &str,
    timeout: Duration,
    errors: &ClientErrors,
) -> Result<Description, CallError> {
    let name = c_name(topic)?;
    let mut names = [name.as_ptr()];
    let call = Call::new(client, sys::rd_kafka_admin_op_t::RD_KAFKA_ADMIN_OP_DESCRIBETOPICS, timeout)?;
    // SAFETY: options, queue and client are live; the names are copied by the collection, which is destroyed after the call
    // has copied it.
    unsafe {
        let error = sys::rd_kafka_AdminOptions_set_include_authorized_operations(call.options.as_ptr(), 1);
        if !error.is_null() {
            sys::rd_kafka_error_destroy(error);
        }
        let topics = sys::rd_kafka_TopicCollection_of_topic_names(names.as_mut_ptr().cast::<*const c_char>(), 1);
        sys::rd_kafka_DescribeTopics(client, topics, call.options.as_ptr(), call.queue.as_ptr());
        sys::rd_kafka_TopicCollection_destroy(topics);
    }
    let event = call.wait(timeout, errors)?;
    // SAFETY: the result and what it points to live as long as the event, which outlives this block.
    unsafe {
        let result = sys::rd_kafka_event_DescribeTopics_result(event.0.as_ptr());
        let mut count = 0;
        let found = if result.is_null() {
            std::ptr::null_mut()
        } else {
            sys::rd_kafka_DescribeTopics_result_topics(result, &raw mut count)
        };
        if found.is_null() || count == 0 || (*found).is_null() {
            return Err(CallError::local("the answer to DescribeTopics names no topic"));
        }
        description(*found)
    }
}

/// # Safety
/// `topic` must point to a live topic description.
unsafe fn description(topic: *const sys::rd_kafka_TopicDescription_t) -> Result<Description, CallError> {
    // SAFETY: the caller vouches for `topic`; everything read is owned by it.
    unsafe {
        let error = sys::rd_kafka_TopicDescription_error(topic);
        if !error.is_null() {
            let code = sys::rd_kafka_error_code(error);
            if code != sys::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR {
                return Err(CallError { code: code.into(), detail: text(sys::rd_kafka_error_string(error)) });
            }
        }
        let id = sys::rd_kafka_TopicDescription_topic_id(topic);
        if id.is_null() {
            return Err(CallError::local("the answer to DescribeTopics has no topic id"));
        }
        let mut topic_id = [0; 16];
        topic_id[..8].copy_from_slice(&sys::rd_kafka_Uuid_most_significant_bits(id).to_be_bytes());
        topic_id[8..].copy_from_slice(&sys::rd_kafka_Uuid_least_significant_bits(id).to_be_bytes());
        let mut partition_count = 0;
        sys::rd_kafka_TopicDescription_partitions(topic, &raw mut partition_count);
        let mut operation_count = 0;
        let operations = sys::rd_kafka_TopicDescription_authorized_operations(topic, &raw mut operation_count);
        let operations = if operations.is_null() || operation_count == 0 {
            None
        } else {
            Some(std::slice::from_raw_parts(operations, operation_count))
        };
        let may = |operation| {
            let all = sys::rd_kafka_AclOperation_t::RD_KAFKA_ACL_OPERATION_ALL;
            operations.map(|allowed| allowed.contains(&operation) || allowed.contains(&all))
        };
        Ok(Description {
            topic_id,
            partition_count: u32::try_from(partition_count).unwrap_or(u32::MAX),
            may_read: may(sys::rd_kafka_AclOperation_t::RD_KAFKA_ACL_OPERATION_READ),
            may_write: may(sys::rd_kafka_AclOperation_t::RD_KAFKA_ACL_OPERATION_WRITE),
        })
    }
}

/// Reads one configuration value of a topic. `None` when the topic does not have it. Blocks up to `timeout`.
///
/// `client` as for [`describe_topic`].
pub(crate) fn topic_config(
    client: *mut RDKafka,
    topic: &str,
    names: &[&str],
    timeout: Duration,
    errors: &ClientErrors,
) -> Result<Vec<Option<String>>, CallError> {
    let topic_name = c_name(topic)?;
    let call = Call::new(client, sys::rd_kafka_admin_op_t::RD_KAFKA_ADMIN_OP_DESCRIBECONFIGS, timeout)?;
    // SAFETY: options, queue and client are live; the resource is destroyed after the call has copied it.
    unsafe {
        let kind = sys::rd_kafka_ResourceType_t::RD_KAFKA_RESOURCE_TOPIC;
        let resource = sys::rd_kafka_ConfigResource_new(kind, topic_name.as_ptr());
        if resource.is_null() {
            return Err(CallError::local("no memory for the request"));
        }
        let mut resources = [resource];
        sys::rd_kafka_DescribeConfigs(client, resources.as_mut_ptr(), 1, call.options.as_ptr(), call.queue.as_ptr());
        sys::rd_kafka_ConfigResource_destroy(resource);
    }
    let event = call.wait(timeout, errors)?;
    // SAFETY: the result and what it points to live as long as the event, which outlives this block.
    unsafe {
        let result = sys::rd_kafka_event_DescribeConfigs_result(event.0.as_ptr());
        let mut count = 0;
        let found = if result.is_null() {
            std::ptr::null_mut()
        } else {
            sys::rd_kafka_DescribeConfigs_result_resources(result, &raw mut count)
        };
        if found.is_null() || count == 0 || (*found).is_null() {
            return Err(CallError::local("the answer to DescribeConfigs names no topic"));
        }
        let code = sys::rd_kafka_ConfigResource_error(*found);
        if code != sys::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR {
            let detail = text(sys::rd_kafka_ConfigResource_error_string(*found));
            return Err(CallError { code: code.into(), detail });
        }
        let mut entry_count = 0;
        let entries = sys::rd_kafka_ConfigResource_configs(*found, &raw mut entry_count);
        let mut values = vec![None; names.len()];
        for index in 0..if entries.is_null() { 0 } else { entry_count } {
            let entry = *entries.add(index);
            let name = text(sys::rd_kafka_ConfigEntry_name(entry));
            if let Some(place) = names.iter().position(|wanted| *wanted == name) {
                let value = sys::rd_kafka_ConfigEntry_value(entry);
                values[place] = (!value.is_null()).then(|| text(value));
            }
        }
        Ok(values)
    }
}

/// The end of a partition that a consumer reads, as its last fetch told it. `None` before the first.
///
/// `client` as for [`describe_topic`].
pub(crate) fn known_end(client: *mut RDKafka, topic: &str, partition: i32) -> Option<u64> {
    let name = c_name(topic).ok()?;
    let (mut low, mut high) = (-1, -1);
    // SAFETY: the client is live, the name is a C string, and both numbers are written before the call returns.
    let code =
        unsafe { sys::rd_kafka_get_watermark_offsets(client, name.as_ptr(), partition, &raw mut low, &raw mut high) };
    if code == sys::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR { u64::try_from(high).ok() } else { None }
}

fn c_name(topic: &str) -> Result<CString, CallError> {
    CString::new(topic).map_err(|_| CallError {
        code: RDKafkaErrorCode::InvalidTopic,
        detail: "the topic's name contains a zero byte".to_owned(),
    })
}

/// # Safety
/// `pointer` must be null or a live C string.
unsafe fn text(pointer: *const c_char) -> String {
    if pointer.is_null() {
        return String::new();
    }
    // SAFETY: the caller vouches for the string.
    unsafe { CStr::from_ptr(pointer) }.to_string_lossy().into_owned()
}

/// An administrative call: its options, and the queue its answer comes to.
struct Call {
    options: NonNull<sys::rd_kafka_AdminOptions_t>,
    queue: NonNull<sys::rd_kafka_queue_t>,
}

impl Call {
    fn new(client: *mut RDKafka, operation: sys::rd_kafka_admin_op_t, timeout: Duration) -> Result<Call, CallError> {
        let no_memory = || CallError::local("no memory for the request");
        // SAFETY: the client is live; both results are checked and owned by the returned value.
        unsafe {
            let options = NonNull::new(sys::rd_kafka_AdminOptions_new(client, operation)).ok_or_else(no_memory)?;
            let Some(queue) = NonNull::new(sys::rd_kafka_queue_new(client)) else {
                sys::rd_kafka_AdminOptions_destroy(options.as_ptr());
                return Err(no_memory());
            };
            let call = Call { options, queue };
            let mut reason = [0; 256];
            let refused = sys::rd_kafka_AdminOptions_set_request_timeout(
                options.as_ptr(),
                milliseconds(timeout),
                reason.as_mut_ptr(),
                reason.len(),
            );
            if refused != sys::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR {
                return Err(CallError { code: refused.into(), detail: text(reason.as_ptr()) });
            }
            Ok(call)
        }
    }

    /// Waits for the answer, and no longer than until the client has found out that there can be none.
    fn wait(&self, timeout: Duration, errors: &ClientErrors) -> Result<Event, CallError> {
        // A little longer than the request itself: its own answer says more than ours.
        let patience = timeout.saturating_add(SLICE);
        let slices = patience.as_millis().div_ceil(SLICE.as_millis());
        for _ in 0..slices {
            // SAFETY: the queue is live; the event is owned by the returned value.
            let event = unsafe { sys::rd_kafka_queue_poll(self.queue.as_ptr(), milliseconds(SLICE)) };
            if let Some(event) = NonNull::new(event).map(Event) {
                return event.checked().map_err(|error| errors.explain(error));
            }
            if let Some(error) = errors.hopeless() {
                return Err(error);
            }
        }
        let detail = format!("no answer within {patience:?}");
        Err(errors.explain(CallError { code: RDKafkaErrorCode::OperationTimedOut, detail }))
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        // SAFETY: both are owned here and used nowhere else any more.
        unsafe {
            sys::rd_kafka_queue_destroy(self.queue.as_ptr());
            sys::rd_kafka_AdminOptions_destroy(self.options.as_ptr());
        }
    }
}

struct Event(NonNull<sys::rd_kafka_event_t>);

impl Event {
    fn checked(self) -> Result<Event, CallError> {
        // SAFETY: the event is owned here.
        unsafe {
            let code = sys::rd_kafka_event_error(self.0.as_ptr());
            if code == sys::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR {
                return Ok(self);
            }
            Err(CallError { code: code.into(), detail: text(sys::rd_kafka_event_error_string(self.0.as_ptr())) })
        }
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: the event is owned here.
        unsafe { sys::rd_kafka_event_destroy(self.0.as_ptr()) }
    }
}

fn milliseconds(duration: Duration) -> i32 {
    i32::try_from(duration.as_millis()).unwrap_or(i32::MAX)
}
