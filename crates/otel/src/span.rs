//! Creates a request's span, in the log phase.

use std::io::Write;
use std::rc::Rc;

use crate::otlp::{Side, Span, SpanWriter, Value};
use bytes::Bytes;
use http::request::Request;
use http_wire::h1::FieldId;

use crate::batches::Batches;
use crate::context::{Context, Trace};
use crate::{Attribute, TraceConf, tries};

/// Adds the request's span, if it has one, to the worker's batches.
pub fn end(r: &mut Request, conf: &TraceConf, batches: &Rc<Batches>) {
    // Subrequests have no spans, as in nginx-otel: they are part of the client's request.
    if r.is_subrequest() {
        return;
    }
    let Some(trace) = r.shared_if_any::<Trace>() else { return };
    let Some(context) = trace.context() else { return };
    // A request that runs through the phases again (`post_action`) has already ended its span.
    if !std::mem::take(&mut context.borrow_mut().own.sampled) {
        return;
    }
    if !batches.has_room() {
        batches.drop_span(r);
        return;
    }
    let context = context.borrow().clone();
    batches.exemplars.keep(r, context.own.trace_id);
    let mut writer = batches.take_writer();
    begin(r, conf, &context, &mut writer);
    default_attributes(r, &mut writer);
    for attribute in conf.attributes.iter().flat_map(|list| list.iter()) {
        let value = r.eval(&attribute.value);
        writer.attribute(&attribute.name, attribute.typed(&value));
    }
    if r.status() >= 500 {
        writer.error();
    }
    batches.add(r, writer);
    if conf.upstream.unwrap_or(false) {
        tries::end(r, &context, batches);
    }
}

fn begin(r: &mut Request, conf: &TraceConf, context: &Context, writer: &mut SpanWriter) {
    let name = match &conf.name {
        Some(name) => r.eval(name),
        None => r.loc.info.name.clone(),
    };
    // Derived from the time of the request's first byte and the loop's clock, which costs no system
    // call.
    let start_ns = r.account.start_ms * 1_000_000;
    writer.begin(&Span {
        trace_id: context.own.trace_id,
        span_id: context.own.span_id,
        parent_id: context.parent.map(|parent| parent.span_id),
        state: &context.state,
        name: &name,
        side: Side::Server,
        start_ns,
        end_ns: start_ns + r.account.elapsed_us() * 1000,
    });
}

/// Writes the attributes of every span: names and types of OpenTelemetry's semantic conventions
/// 1.16.
fn default_attributes(r: &Request, writer: &mut SpanWriter) {
    let mut text = |name: &str, value: &[u8]| writer.attribute(name.as_bytes(), Value::Text(value));
    text("http.method", r.method_name());
    text("http.target", r.unparsed_uri());
    let route: &Bytes = &r.loc.info.name;
    if !route.is_empty() {
        text("http.route", route);
    }
    text("http.scheme", if r.is_secured() { b"https" } else { b"http" });
    let protocol = r.head.protocol.of(r.head_bytes());
    if let Some(version) = protocol.get(5..).filter(|version| !version.is_empty()) {
        text("http.flavor", version);
    }
    if let Some(agent) = r.header(FieldId::UserAgent) {
        text("http.user_agent", agent);
    }
    let mut number = |name: &str, value: u64| {
        let value = i64::try_from(value).unwrap_or(i64::MAX);
        writer.attribute(name.as_bytes(), Value::Number(value));
    };
    number("http.request_content_length", r.head.content_length.unwrap_or(0));
    number("http.response_content_length", r.account.body_bytes_sent());
    let status = r.status();
    if status > 0 {
        number("http.status_code", status.into());
    }
    network_attributes(r, writer);
}

fn network_attributes(r: &Request, writer: &mut SpanWriter) {
    let name = if r.server.name.is_empty() { &r.target.host[..] } else { &r.server.name[..] };
    writer.attribute(b"net.host.name", Value::Text(name));
    let port = r.c().local_port();
    let usual = if r.is_secured() { 443 } else { 80 };
    if port != usual {
        writer.attribute(b"net.host.port", Value::Number(port.into()));
    }
    let mut addr = [0; 64];
    let mut rest = &mut addr[..];
    // The buffer is larger than any address.
    let _ = write!(rest, "{}", r.peer().host());
    let left = rest.len();
    writer.attribute(b"net.sock.peer.addr", Value::Text(&addr[..64 - left]));
    writer.attribute(b"net.sock.peer.port", Value::Number(r.peer().port().into()));
}

impl Attribute {
    /// The value with its type: request and response header fields are arrays in the conventions.
    fn typed<'a>(&self, value: &'a [u8]) -> Value<'a> {
        let is_field = self.name.starts_with(b"http.request.header.")
            || self.name.starts_with(b"http.response.header.");
        if is_field { Value::Texts(value) } else { Value::Text(value) }
    }
}
