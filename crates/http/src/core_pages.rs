//! `error_page`, and the built-in pages for statuses that nothing else answers.

use std::rc::Rc;

use bytes::Bytes;
use conf::{ConfError, Node};
use http_wire::h1::{FieldId, Method};

use crate::core_conf::{CoreLocDraft, ErrorPage, ServerTokens};
use crate::cx::Cx;
use crate::module::Verdict;
use crate::output::Body;
use crate::request::Request;
use crate::status_line::{reason, server_token};

pub(crate) fn error_page(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
    let invalid =
        |i: usize| ConfError::at(&n.args[i], format!("invalid value \"{}\"", n.args[i].lossy()));
    let last = n.args.len() - 1;
    let mut codes = last;
    let mut overwrite = None;
    if let Some(code) = n.args[last - 1].bytes().strip_prefix(b"=") {
        codes -= 1;
        if codes == 0 {
            return Err(invalid(0));
        }
        overwrite = Some(match code {
            b"" => 0,
            _ => base::ascii::parse_u64(code)
                .filter(|c| *c <= 999)
                .ok_or_else(|| invalid(last - 1))? as u16,
        });
    }
    let mut target = cx.template(&n.args[last])?;
    let mut args = Bytes::new();
    if let Some(c) = target.as_const().cloned()
        && c.first() == Some(&b'/')
        && let Some(q) = memchr::memchr(b'?', &c)
    {
        args = c.slice(q + 1..);
        target = conf::template::Template::constant(c.slice(..q));
    }
    let mut pages = Vec::new();
    for (i, w) in n.args[..codes].iter().enumerate() {
        let status =
            base::ascii::parse_u64(w.bytes()).filter(|s| *s != 499).ok_or_else(|| invalid(i))?;
        if !(300..=599).contains(&status) {
            let m = format!("value \"{}\" must be between 300 and 599", w.lossy());
            return Err(ConfError::at(w, m));
        }
        let status = status as u16;
        let overwrite = overwrite.or(matches!(status, 494..=497).then_some(400));
        pages.push(ErrorPage { status, overwrite, target: target.clone(), args: args.clone() });
    }
    let slot = &mut cx.loc::<CoreLocDraft>().error_page;
    match slot {
        Some(list) => Rc::make_mut(list).extend(pages),
        None => *slot = Some(Rc::new(pages)),
    }
    Ok(())
}

/// Title and heading of the built-in page; `None`: the response has no body.
fn page(status: u16) -> Option<(&'static str, Option<&'static str>)> {
    Some(match status {
        302 => ("302 Found", None),
        401 => ("401 Authorization Required", None),
        494 => {
            ("400 Request Header Or Cookie Too Large", Some("Request Header Or Cookie Too Large"))
        }
        495 => ("400 The SSL certificate error", Some("The SSL certificate error")),
        496 => (
            "400 No required SSL certificate was sent",
            Some("No required SSL certificate was sent"),
        ),
        497 => (
            "400 The plain HTTP request was sent to HTTPS port",
            Some("The plain HTTP request was sent to HTTPS port"),
        ),
        _ => return None,
    })
}

/// Answers `status`: by `error_page` where one is set for it, else by a built-in page.
pub(crate) fn special(r: &mut Request, status: u16) -> Verdict {
    r.out.clear_entity();
    r.out.filters.clear();
    r.flags.err_status = status;
    // After these the framing of the next bytes is in doubt, or the client was told to go away.
    if matches!(status, 400 | 413 | 414 | 495..=497 | 500 | 501) {
        r.close_connection();
    }
    // More of a refused body is in flight, and would reset the connection under the answer.
    if matches!(status, 400 | 495..=497) && !r.head.has_body() {
        r.client.channel.set_lingering(false);
    }
    let core = r.loc.core.clone();
    if !r.flags.error_page && !core.error_page.is_empty() && r.target.uri_changes > 0 {
        r.flags.error_page = !core.recursive_error_pages;
        if let Some(p) = core.error_page.iter().find(|p| p.status == status) {
            return send_error_page(r, p);
        }
    }
    builtin(r, status);
    Verdict::Done
}

fn send_error_page(r: &mut Request, p: &ErrorPage) -> Verdict {
    let overwrite = p.overwrite;
    // Another handler's answer may need the body; for any other the client need not send it.
    if !matches!(overwrite, Some(0 | 200)) {
        r.client.channel.forbid_continue();
    }
    if let Some(code) = overwrite {
        r.flags.err_status = code;
    }
    let target = r.eval(&p.target);
    match target.first() {
        Some(b'/') => {
            if r.target.method != Method::Head {
                r.target.method = Method::Get;
            }
            let (path, args) = match p.target.as_const() {
                Some(_) => (target.clone(), p.args.clone()),
                None => match memchr::memchr(b'?', &target) {
                    Some(q) => (target.slice(..q), target.slice(q + 1..)),
                    None => (target.clone(), p.args.clone()),
                },
            };
            r.internal_redirect(&path, &args)
        }
        Some(b'@') => r.named_redirect(&target),
        _ => {
            // An address elsewhere: a redirect, with the status if it is one.
            let redirect = |s: &u16| matches!(s, 301 | 302 | 303 | 307 | 308);
            let status = overwrite.filter(redirect).unwrap_or(302);
            r.out.location = Some(target);
            builtin(r, status);
            Verdict::Done
        }
    }
}

/// Prepares the built-in page.
pub(crate) fn builtin(r: &mut Request, status: u16) {
    let core = r.loc.core.clone();
    let sent = match status {
        494..=497 => 400,
        s => s,
    };
    r.out.status = sent;
    r.flags.err_status = sent;
    r.out.unconditional = true;
    r.out.allow_ranges = false;
    r.client.channel.forbid_continue();
    let location = r.out.location.clone();
    let refresh =
        core.msie_refresh && location.is_some() && matches!(status, 301 | 302) && is_msie(r);
    let mut text = Vec::with_capacity(640);
    if refresh {
        refresh_page(&mut text, &location.unwrap_or_default());
        r.out.location = None;
        r.out.status = 200;
        r.flags.err_status = 200;
    } else if !write_page(&mut text, r, status, core.server_tokens) {
        r.out.content_type = None;
        r.out.content_length = (status != 204).then_some(0);
        r.out.body = Body::Empty;
        return;
    }
    r.out.content_type = Some(Bytes::from_static(b"text/html"));
    r.out.content_length = Some(text.len() as u64);
    let mut chain = mem::Chain::new();
    chain.push_bytes(Bytes::from(text));
    r.out.body = Body::Chain(chain);
}

fn write_page(out: &mut Vec<u8>, r: &Request, status: u16, tokens: ServerTokens) -> bool {
    let usual;
    let (title, heading) = match page(status) {
        Some((title, heading)) => (title, heading),
        None => match (status, reason(status)) {
            (s, text) if s >= 300 && !text.is_empty() && s != 304 => {
                usual = format!("{s} {text}");
                (usual.as_str(), None)
            }
            _ => return false,
        },
    };
    out.extend_from_slice(b"<html>\r\n<head><title>");
    out.extend_from_slice(title.as_bytes());
    out.extend_from_slice(b"</title></head>\r\n<body>\r\n<center><h1>");
    match heading {
        Some(h) => {
            out.extend_from_slice(b"400 Bad Request</h1></center>\r\n<center>");
            out.extend_from_slice(h.as_bytes());
            out.extend_from_slice(b"</center>\r\n");
        }
        None => {
            out.extend_from_slice(title.as_bytes());
            out.extend_from_slice(b"</h1></center>\r\n");
        }
    }
    out.extend_from_slice(b"<hr><center>");
    out.extend_from_slice(server_token(tokens).as_bytes());
    out.extend_from_slice(b"</center>\r\n</body>\r\n</html>\r\n");
    if r.loc.core.msie_padding && status >= 400 && r.head.version.0 >= 1000 && is_msie_or_chrome(r)
    {
        for _ in 0..6 {
            out.extend_from_slice(
                b"<!-- a padding to disable MSIE and Chrome friendly error page -->\r\n",
            );
        }
    }
    true
}

fn refresh_page(out: &mut Vec<u8>, location: &[u8]) {
    out.extend_from_slice(b"<html><head><meta http-equiv=\"Refresh\" content=\"0; URL=");
    http_wire::uri::escape(location, http_wire::uri::Escape::Refresh, out);
    out.extend_from_slice(b"\"></head><body></body></html>\r\n");
}

fn is_msie(r: &Request) -> bool {
    r.header(FieldId::UserAgent).is_some_and(|ua| http_wire::user_agent::msie(ua).is_some())
}

fn is_msie_or_chrome(r: &Request) -> bool {
    let chrome = |ua: &[u8]| memchr::memmem::find(ua, b"Chrome/").is_some();
    is_msie(r) || r.header(FieldId::UserAgent).is_some_and(chrome)
}
