//! A site with scripts for content, access and bodies, which each protocol serves.

/// The module `t.js`.
pub const SCRIPT: &str = "
async function content(r) {
    const part = await r.subrequest('/part');
    r.headersOut['X-Seen'] = `${r.httpVersion} ${r.method}`;
    r.return(200, `${part.responseText}|${r.requestText ?? ''}`);
}
async function streamed(r) {
    r.sendHeader();
    for (let i = 0; i < 5; i++) {
        r.send('x'.repeat(20_000));
        await new Promise(done => setTimeout(done, 1));
    }
    r.finish();
}
async function access(r) {
    await new Promise(done => setTimeout(done, 1));
    if (r.args.as !== 'friend') r.return(403);
}
function headers(r) { delete r.headersOut['Content-Length']; }
function body(r, data, flags) { r.sendBuffer(data.toUpperCase(), flags); }
export default { content, streamed, access, headers, body };
";

/// The locations.
pub const LOCATIONS: &str = "
    location /content { js_content t.content; }
    location /streamed { js_content t.streamed; }
    location /part { return 200 part; }
    location /access { js_access t.access; try_files /large.txt =404; }
    location /body/ { js_header_filter t.headers; js_body_filter t.body; alias html/; }
";

/// The files that the locations serve.
pub fn large() -> String {
    "some text ".repeat(30_000)
}
