//! The pages of `weir serve` for errors: what happened, in words, with the id of the request.

/// Statuses, what they mean, and what may help.
const PAGES: &[(u16, &str, &str)] = &[
    (403, "Access denied", "This page exists, but it is not for you."),
    (404, "Page not found", "There is nothing at this address. Is it spelt right?"),
    (405, "Method not allowed", "This page cannot be asked for in that way."),
    (413, "Too large", "The request has more bytes than are taken here."),
    (416, "No such part", "The file does not have the part that was asked for."),
    (500, "Internal error", "Something is broken here. The terminal of the server says what."),
    (502, "Bad gateway", "The server behind this one cannot be reached, or gave no valid answer."),
    (503, "Not available", "There is no room for this request at the moment. Try again soon."),
    (504, "Gateway timeout", "The server behind this one did not answer in time."),
];

const STYLE: &str = "body{font:16px/1.5 system-ui,sans-serif;max-width:34em;margin:15vh auto;\
    padding:0 1em;color:#1a1d21;background:#fff}h1{font-size:1.6em;margin:0}\
    small{color:#5b6270;overflow-wrap:anywhere}@media(prefers-color-scheme:dark)\
    {body{color:#e6e9ee;background:#101317}small{color:#98a1ae}}";

/// The directives of a server.
pub(crate) fn directives() -> String {
    let mut out = String::new();
    for (status, title, text) in PAGES {
        let page = format!(
            "<!DOCTYPE html><html lang=\"en\"><head><meta charset=\"utf-8\">\
             <meta name=\"viewport\" content=\"width=device-width\"><title>{status} {title}</title>\
             <style>{STYLE}</style></head><body><main><h1>{title}</h1><p>{text}</p>\
             <small>Status {status}, request $request_id</small></main></body></html>"
        );
        out.push_str(&format!(
            "error_page {status} @weir_{status};\nlocation @weir_{status} {{\n\
             types {{ }}\ndefault_type text/html;\nreturn {status} '{page}\n';\n}}\n"
        ));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_texts_of_the_configuration() {
        let text = directives();
        assert_eq!(text.matches('\'').count(), 2 * PAGES.len());
        assert_eq!(text.matches('$').count(), PAGES.len());
        assert!(!text.contains('\\'));
    }
}
