//! JavaScript: `js_set`, `js_access`, `js_content`, filters, dictionaries, fetch, limits, errors.

use testkit::{Driver, Response, Site, Weir, built_binary, each_driver, wait_until};

const SCRIPT: &str = r#"
import fs from 'fs';
let served = 0;

function echo(r) {
    served++;
    r.headersOut['X-List'] = ['a', 'b'];
    r.headersOut['Content-Type'] = 'text/x-echo; charset=utf-8';
    r.return(201, [r.method, r.uri, r.args.q, r.headersIn.host, r.requestText, r.httpVersion].join('|'));
}

function summary(r) { return `${r.variables.uri}:${r.variables.inner}`; }
function inner(r) { return 'inner ' + r.variables.arg_q; }

async function streamed(r) {
    r.status = 200;
    r.sendHeader();
    for (let i = 0; i < 3; i++) {
        r.send(`${i};`);
        await new Promise(done => setTimeout(done, 1));
    }
    r.finish();
}

async function parts(r) {
    const all = await Promise.all(['/part?n=1', '/part?n=2', '/none'].map(u => r.subrequest(u)));
    const made = await r.subrequest('/method', {method: 'PURGE', body: 'own', args: 'x=y'});
    made.headersOut['X-Kind'] += ' and changed';
    const same = made.headersOut === made.headersOut && made.args !== r.args && made.args.x === 'y';
    r.return(200, all.map(p => `${p.status} ${p.responseText} ${p.parent === r}`).join('|')
        + `|${made.responseText}|${made.headersOut['X-Kind']} ${same}`);
}

function part(r) { r.return(200, 'part ' + r.args.n); }
function method(r) {
    r.headersOut['X-Kind'] = 'made';
    r.return(200, `${r.method} ${r.requestText} ${r.variables.args}`);
}

function go(r) { r.internalRedirect('/part?n=redirected'); }

function gate(r) {
    switch (r.args.as) {
    case 'deny': r.return(403); break;
    case 'throw': throw new TypeError('gate broke');
    case 'page': r.return(401, 'own page'); break;
    default: r.variables.who = 'guest';
    }
}

async function wavers(r) {
    const wait = new Promise(done => setTimeout(done, 1));
    switch (r.args.as) {
    case 'reject': {
        const judged = wait.then(() => { throw new Error('judge broke'); });
        judged.catch(e => r.warn(e.message));
        return judged;
    }
    case 'never': await new Promise(() => {}); break;
    default: await wait;
    }
}

async function judges(r) {
    if (/attack/.test(await r.readRequestText())) { r.return(403); }
}

function flood(r) { for (;;) r.send('x'.repeat(1 << 20)); }
async function odd(r) {
    try { await r.subrequest('/method', {method: 'GET /x HTTP/1.1\r\nA: b\r\n\r\nGET'}); } catch (e) {
        r.headersOut['Transfer-Encoding'] = 'chunked';
        r.headersOut['Connection'] = 'x';
        r.return(200, e.message);
    }
}

function loop(r) { for (;;) try { for (;;); } catch (e) {} }
function sparse(r) { const all = []; all.length = 2 ** 31; r.headersOut['X-All'] = all; r.return(200); }
function shouts(r) { r.log.apply(r, Array(60000).fill('x'.repeat(1 << 20))); r.return(200); }
async function frozen(r) {
    const reply = Object.freeze(await r.subrequest('/part', {args: 'n=3'}));
    const form = await Object.freeze(r).readRequestForm();
    r.return(200, [
        reply.headersOut['Content-Length'], reply.headersOut === reply.headersOut,
        form.get('a'), form === await r.readRequestForm(),
    ].join());
}
function hoard(r) { const all = []; for (;;) all.push('x'.repeat(1 << 20) + all.length); }

function assigns(r) {
    const before = r.variables.cookie_token;
    r.variables.cookie_token = 'new';
    let refused;
    try { r.variables.cookie_other = 'x'; } catch (e) { refused = e.message; }
    r.return(200, `${before} ${r.variables.cookie_token} ${r.variables.copied} ${refused}`);
}

function headers(r) { r.headersOut['X-Filtered'] = String(r.status); delete r.headersOut['Content-Length']; }
function broken(r) { throw new Error('filter broke'); }
function body(r, data, flags) { r.sendBuffer(data.toUpperCase(), flags); }
function calls(r, data, flags) { r.sendBuffer(`[${data} ${flags.last}]`, flags); }

let kept;
function keep(r) { kept = r; r.return(200, 'kept'); }
function late(r) {
    try { r.return(200, kept.uri); } catch (e) { r.return(200, e.message); }
}

function members(r) {
    const of = (f) => { try { return `${f()}`; } catch (e) { return `${e.name}: ${e.message}`; } };
    const getter = (name) => Object.getOwnPropertyDescriptor(Object.getPrototypeOf(r), name).get;
    r.args.again = r;
    r.mine = 'own';
    Object.freeze(r);
    r.return(200, [
        of(() => r.return.call({}, 200)),
        of(() => getter('uri').call(new Proxy(r, {}))),
        of(() => getter('headersIn').call(new Proxy(r, {}))),
        of(() => getter('args').call(1)),
        of(() => r.return('x')),
        of(() => r.return(1000)),
        of(() => r.return(2 ** 60)),
        of(() => r.send({ toString() { throw 1; } })),
        of(() => r.jsVarNames(1)),
        of(() => r.sendBuffer('x')),
        of(() => `${r} ${r.args.again.mine} ${Reflect.ownKeys(r)} ${r.parent}`),
        of(() => r.headersIn === r.headersIn && r.variables === r.variables),
    ].join('\n'));
}

function dict(r) {
    const d = ngx.shared.numbers;
    r.return(200, `${d.incr('n', 2, 40)} ${d.add('n', 1)} ${d.type} ${ngx.shared.texts.set('a', 'b').get('a')}`);
}

async function fetched(r) {
    const reply = await ngx.fetch(`http://127.0.0.1:${r.variables.server_port}/method?of=fetch`,
        {method: 'POST', body: 'sent', headers: {a: 'b'}});
    r.return(200, `${reply.status} ${await reply.text()} ${reply.headers.get('x-kind')}`);
}

async function unreachable(r) {
    try { await ngx.fetch('http://127.0.0.1:1/'); } catch (e) { r.return(502, e.message); }
}

async function read(r) {
    const form = await r.readRequestForm();
    r.variables.who = form.get('name') + form.getAll('name').length;
}

function told(r) { r.return(200, `${r.variables.who} ${r.requestText}`); }

function constant(r) {
    let said = 'changed';
    try { texts.list.push(1); } catch (e) { said = e.constructor.name; }
    r.return(200, `${texts.hello} ${said}`);
}

function tick() { ngx.shared.numbers.incr('ticks', 1); }
function ticks(r) { r.return(200, String(ngx.shared.numbers.get('ticks') >= 2)); }

function early(r) { return 'set'; }
function natives(r) {
    const b = Buffer.alloc(1 << 20);
    for (;;) b.toString('hex');
}
async function place(r) {
    const one = await ngx.fetch(`http://127.0.0.1:${r.variables.server_port}/big`)
        .then(reply => reply.text()).then(text => text.length, error => error.message);
    r.return(200, String(one));
}
function big(r) { r.return(200, 'x'.repeat(5000)); }

let kept_file;
function opens(r) {
    const path = `${ngx.prefix}html/a.txt`;
    if (r.args.again === undefined) {
        kept_file = fs.openSync(path);
        r.return(200, 'open');
        return;
    }
    try { fs.readSync(kept_file, Buffer.alloc(1)); r.return(200, 'still open'); } catch (e) { r.return(200, e.code); }
}

function answered(r) { r.return(200, 'answered'); Promise.reject(new Error('nobody looks')); }
async function rejected(r) { await null; throw new Error('after a wait'); }

export default {broken, wavers, judges, flood, odd, echo, summary, inner, streamed, parts, part, method, go, gate, loop, hoard, headers,
    body, keep, late, dict, fetched, unreachable, read, told, constant, tick, ticks, answered, rejected,
    early, natives, place, members, big, opens, assigns, calls, sparse, shouts, frozen};
"#;

const CONF: &str = "
    js_import t.js;
    js_preload_object texts.json;
    js_set $summary t.summary;
    js_set $inner t.inner;
    js_var $who nobody;
    js_shared_dict_zone zone=numbers:32k type=number;
    js_shared_dict_zone zone=texts:32k timeout=1h evict;
    js_context_reuse 1;
    js_set $early t.early;
    map $cookie_token$cookie_other $copied { volatile; default $cookie_token; }
    server {
        listen 127.0.0.1:%PORT0%;
        root html;
        # The first script of each request runs here, in the server.
        set $ready $early;
        location /echo { js_content t.echo; }
        location /set { return 200 $summary; }
        location /streamed { js_content t.streamed; }
        location /parts { js_content t.parts; }
        location /part { js_content t.part; }
        location /method { js_content t.method; }
        location /go { js_content t.go; }
        location /gate { js_access t.gate; return 200 $who; }
        location /gated { js_access t.gate; add_header X-Who $who; try_files /a.txt =404; }
        location /read { js_access t.read; js_content t.told; }
        location /wavers { js_access t.wavers; try_files /a.txt =404; }
        location /judged { client_max_body_size 9m; js_memory_limit 2m; js_access t.judges;
                           js_content t.told; }
        location /flood { js_memory_limit 4m; js_time_limit 10s; js_content t.flood; }
        location /odd { js_content t.odd; }
        location /loop { js_time_limit 20ms; js_content t.loop; }
        location /sparse { js_time_limit 20ms; js_content t.sparse; }
        location /shouts { js_time_limit 20ms; js_content t.shouts; }
        location /frozen { js_content t.frozen; }
        location /hoard { js_memory_limit 4m; js_content t.hoard; }
        location /broken/ { js_header_filter t.broken; alias html/; }
        location /filtered/ { js_header_filter t.headers; js_body_filter t.body; alias html/; }
        location /calls/ { js_header_filter t.headers; js_body_filter t.calls; alias html/;
                           location /calls/proxied { proxy_pass http://127.0.0.1:%PORT0%/b.txt; } }
        location /keep { js_content t.keep; }
        location /members { js_content t.members; }
        location /late { js_content t.late; }
        location /dict { js_content t.dict; }
        location /fetched { js_content t.fetched; }
        location /unreachable { js_content t.unreachable; }
        location /constant { js_content t.constant; }
        location /ticks { js_content t.ticks; }
        location /answered { js_content t.answered; }
        location /rejected { js_content t.rejected; }
        location /big { js_content t.big; }
        location /place { js_content t.place; }
        location /place/small { js_fetch_max_response_buffer_size 1k; js_content t.place; }
        location /natives { js_time_limit 20ms; js_content t.natives; }
        location /opens { js_content t.opens; }
        location /assigns { js_content t.assigns; }
        location /assigns/unset { set $cookie_token ''; js_content t.assigns; }
        location /absent { js_content t.absent; }
        location @tick { js_periodic t.tick interval=10ms; }
    }";

fn start(driver: Driver) -> Weir {
    Site::new(built_binary(), driver)
        .file("html/a.txt", b"small\n")
        .file("html/b.txt", b"b")
        .file("conf/t.js", SCRIPT)
        .file("conf/texts.json", "{\"hello\": \"hi\", \"list\": [1, 2]}")
        .http(CONF)
        .start()
}

fn send(weir: &Weir, request: &str) -> Response {
    let mut conn = weir.connect();
    conn.send(request);
    conn.response_to("POST")
}

fn text(weir: &Weir, path: &str) -> String {
    String::from_utf8(weir.get(path).body).unwrap()
}

#[test]
fn a_handler_reads_the_request_and_answers() {
    each_driver(|driver| {
        let weir = start(driver);
        let reply = send(
            &weir,
            "POST /echo?q=%41+b HTTP/1.1\r\nHost: one.test\r\nContent-Length: 4\r\n\
             Connection: close\r\n\r\nbody",
        );
        assert_eq!(reply.status, 201);
        assert_eq!(reply.body, b"POST|/echo|A b|one.test|body|1.1");
        let listed: Vec<_> = reply.all("X-List").collect();
        assert_eq!(listed, ["a", "b"]);
        assert_eq!(reply.header("Content-Type"), Some("text/x-echo; charset=utf-8"));
        assert_eq!(reply.header("Content-Length"), Some("32"));
    });
}

#[test]
fn a_variable_may_need_another_one_of_a_script() {
    each_driver(|driver| {
        let weir = start(driver);
        assert_eq!(text(&weir, "/set?q=7"), "/set:inner 7");
        // The engines are used again.
        assert_eq!(text(&weir, "/set?q=8"), "/set:inner 8");
    });
}

#[test]
fn a_response_is_sent_while_the_script_goes_on() {
    each_driver(|driver| {
        let weir = start(driver);
        assert_eq!(text(&weir, "/streamed"), "0;1;2;");
    });
}

#[test]
fn subrequests_have_methods_bodies_and_replies() {
    each_driver(|driver| {
        let weir = start(driver);
        let made = "PURGE own x=y|made and changed true";
        let none = text(&weir, "/none");
        let want = format!("200 part 1 true|200 part 2 true|404 {none} true|{made}");
        assert_eq!(text(&weir, "/parts"), want);
        assert_eq!(text(&weir, "/go"), "part redirected");
    });
}

#[test]
fn access_is_granted_denied_and_answered() {
    each_driver(|driver| {
        let weir = start(driver);
        let gated = |path: &str| {
            let reply = weir.get(path);
            (reply.status, reply.header("X-Who").map(str::to_owned))
        };
        assert_eq!(gated("/gated"), (200, Some("guest".to_owned())));
        assert_eq!(gated("/gated?as=deny").0, 403);
        assert_eq!(gated("/gated?as=throw").0, 500);
        let page = weir.get("/gated?as=page");
        assert_eq!((page.status, &page.body[..]), (401, &b"own page"[..]));
        weir.wait_for_log("error.log", "js call exception: TypeError: gate broke");
        let log = weir.error_log();
        assert!(log.contains("at gate (") && log.contains("t.js:"), "{log}");
    });
}

/// Nobody gets in by a script that fails while it waits, or that cannot read what it judges.
#[test]
fn access_is_denied_by_scripts_that_do_not_decide() {
    each_driver(|driver| {
        let weir = start(driver);
        assert_eq!(weir.get("/wavers").status, 200);
        assert_eq!(weir.get("/wavers?as=reject").status, 500);
        assert_eq!(weir.get("/wavers?as=never").status, 500);
        weir.wait_for_log("error.log", "the promise of js_access \"t.wavers\" is never settled");
        let post = |body: &str| {
            let len = body.len();
            let head = "POST /judged HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length:";
            send(&weir, &format!("{head} {len}\r\n\r\n{body}")).status
        };
        assert_eq!(post("attack"), 403);
        // More than the engine may hold: it is not judged as an empty one.
        assert_eq!(post(&format!("attack{}", "x".repeat(3 << 20))), 500);
    });
}

#[test]
fn what_scripts_send_is_bounded_and_splits_nothing() {
    each_driver(|driver| {
        let weir = start(driver);
        let mut conn = weir.connect();
        conn.send("GET /flood HTTP/1.0\r\n\r\n");
        conn.read_to_end();
        weir.wait_for_log("error.log", "more data is sent than js_memory_limit allows");
        let reply = weir.get("/odd");
        assert_eq!((reply.status, reply.text().as_str()), (200, "invalid method"));
        assert_eq!(reply.header("Transfer-Encoding"), None);
        assert_ne!(reply.header("Connection"), Some("x"));
    });
}

#[test]
fn access_reads_a_form_and_leaves_the_body() {
    each_driver(|driver| {
        let weir = start(driver);
        let reply = send(
            &weir,
            "POST /read HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: 13\r\n\
             Content-Type: application/x-www-form-urlencoded\r\n\r\nname=a&name=b",
        );
        assert_eq!(reply.text(), "a2 name=a&name=b");
    });
}

#[test]
fn an_endless_loop_and_a_hoard_cost_their_requests_alone() {
    each_driver(|driver| {
        let weir = start(driver);
        assert_eq!(weir.get("/loop").status, 500);
        weir.wait_for_log(
            "error.log",
            "js was ended: the script ran for more than 20 ms at a stretch",
        );
        assert_eq!(weir.get("/hoard").status, 500);
        weir.wait_for_log("error.log", "out of memory");
        // The worker lives, and so do the other scripts.
        assert_eq!(text(&weir, "/part?n=3"), "part 3");
    });
}

/// Natives that go through an array or through arguments look at the clock meanwhile.
#[test]
fn natives_that_go_through_much_end_in_time() {
    each_driver(|driver| {
        let weir = start(driver);
        for path in ["/sparse", "/shouts"] {
            assert_eq!(weir.get(path).status, 500, "{path}");
            weir.wait_for_log("error.log", &format!("request: \"GET {path} "));
        }
        assert!(!weir.log("error.log").contains("panic"));
        let m = "js was ended: the script ran for more than 20 ms at a stretch";
        assert_eq!(weir.log("error.log").matches(m).count(), 2);
        assert_eq!(text(&weir, "/part?n=3"), "part 3");
    });
}

#[test]
fn frozen_requests_and_replies_are_read() {
    each_driver(|driver| {
        let weir = start(driver);
        let form = "Content-Type: application/x-www-form-urlencoded";
        let mut conn = weir.connect();
        conn.send(format!(
            "POST /frozen HTTP/1.1\r\nHost: a\r\n{form}\r\nContent-Length: 3\r\n\r\na=b"
        ));
        let r = conn.response();
        assert_eq!((r.status, &r.body[..]), (200, &b"6,true,b,true"[..]));
    });
}

#[test]
fn filters_change_headers_and_bodies() {
    each_driver(|driver| {
        let weir = start(driver);
        let reply = weir.get("/filtered/a.txt");
        assert_eq!((reply.status, &reply.body[..]), (200, &b"SMALL\n"[..]));
        assert_eq!(reply.header("X-Filtered"), Some("200"));
        assert_eq!(reply.header("Content-Length"), None);
    });
}

/// As in nginx, the end of a response from a server comes after its last bytes.
#[test]
fn a_body_filter_is_told_the_end() {
    each_driver(|driver| {
        let weir = start(driver);
        assert_eq!(text(&weir, "/calls/b.txt"), "[b true]");
        assert_eq!(text(&weir, "/calls/proxied"), "[b false][ true]");
    });
}

/// The error page is of the same location: its header goes without the filter.
#[test]
fn a_header_filter_that_throws_is_logged_once() {
    each_driver(|driver| {
        let weir = start(driver);
        assert_eq!(weir.get("/broken/a.txt").status, 500);
        let log = weir.stop_and_read("error.log");
        assert_eq!(log.matches("filter broke").count(), 1, "{log}");
    });
}

#[test]
fn an_object_of_an_ended_request_throws() {
    each_driver(|driver| {
        let weir = start(driver);
        // The second request may get another engine, where the first has not quite ended.
        wait_until("the same engine serves both", || {
            assert_eq!(text(&weir, "/keep"), "kept");
            let late = text(&weir, "/late");
            assert!(!late.starts_with('/'), "{late}");
            late == "the request of this object has ended"
        });
    });
}

#[test]
fn members_of_a_request_want_a_request_and_right_arguments() {
    each_driver(|driver| {
        let weir = start(driver);
        let no_request = "TypeError: \"this\" is not a request object";
        let expected = [
            no_request,
            no_request,
            no_request,
            no_request,
            "TypeError: invalid number",
            "RangeError: code is out of range",
            "RangeError: number is out of range",
            "TypeError: failed to convert arg",
            "TypeError: \"prefix\" must be a string",
            "TypeError: cannot send buffer while not filtering",
            "[object Request] own mine undefined",
            "true",
        ];
        assert_eq!(text(&weir, "/members?a=b"), expected.join("\n"));
    });
}

#[test]
fn dictionaries_constants_and_periodic_functions() {
    each_driver(|driver| {
        let weir = start(driver);
        assert_eq!(text(&weir, "/dict"), "42 false number b");
        assert_eq!(text(&weir, "/dict"), "44 false number b");
        assert_eq!(text(&weir, "/constant"), "hi TypeError");
        wait_until("two ticks", || text(&weir, "/ticks") == "true");
    });
}

/// A variable of a family, such as `$cookie_…`, takes a value if `set` names it somewhere.
#[test]
fn members_of_families_that_are_set_can_be_assigned_to() {
    each_driver(|driver| {
        let weir = start(driver);
        let get = |path: &str| {
            let head = format!("GET {path} HTTP/1.0\r\nCookie: token=old; other=other\r\n\r\n");
            send(&weir, &head).text()
        };
        assert_eq!(get("/assigns"), "old new new variable not found");
        assert_eq!(get("/assigns/unset"), " new new variable not found");
    });
}

#[test]
fn scripts_ask_other_servers() {
    each_driver(|driver| {
        let weir = start(driver);
        assert_eq!(text(&weir, "/fetched"), "200 POST sent of=fetch made");
        let reply = weir.get("/unreachable");
        assert_eq!((reply.status, &reply.body[..]), (502, &b"connect failed"[..]));
    });
}

#[test]
fn rejections_count_unless_the_script_has_answered() {
    each_driver(|driver| {
        let weir = start(driver);
        assert_eq!(text(&weir, "/answered"), "answered");
        weir.wait_for_log("error.log", "js unhandled rejection: Error: nobody looks");
        assert_eq!(weir.get("/rejected").status, 500);
        assert_eq!(weir.get("/absent").status, 500);
        weir.wait_for_log("error.log", "js function \"t.absent\" not found");
    });
}

/// A script that began in the server goes on in a location, whose settings hold there.
#[test]
fn settings_are_those_of_the_place_where_they_are_asked_for() {
    each_driver(|driver| {
        let weir = start(driver);
        assert_eq!(text(&weir, "/place"), "5000");
        assert_eq!(text(&weir, "/place/small"), "http response body is too large");
        assert_eq!(weir.get("/natives").status, 500);
        let line = "js was ended: the script ran for more than 20 ms at a stretch";
        weir.wait_for_log("error.log", line);
    });
}

#[test]
fn files_are_closed_at_the_end_of_their_request() {
    each_driver(|driver| {
        let weir = start(driver);
        // The second request may get another engine, where the first has not quite ended.
        wait_until("the same engine serves both", || {
            assert_eq!(text(&weir, "/opens"), "open");
            text(&weir, "/opens?again") == "EBADF"
        });
    });
}

#[test]
fn wrong_configurations_name_their_line() {
    let refused = |http: &str, message: &str| {
        let site = Site::new(built_binary(), Driver::usual())
            .file("conf/t.js", SCRIPT)
            .file("conf/broken.js", "export default {\n  a: 1,,\n};\n");
        let text = format!("events {{ }} http {{ {http} }}");
        let told = site.config(&text).is_refused(message);
        assert!(told.contains(":1"), "{told}");
    };
    let server = |inner: &str| format!("server {{ location / {{ {inner} }} }}");
    refused(&server("js_content t.echo;"), "no imports defined for \"js_content\" \"t.echo\"");
    refused("js_import missing.js; server { }", "Cannot find module \"missing.js\"");
    refused("js_import broken.js; server { }", "broken.js:2");
    refused("js_import t from; server { }", "invalid number of arguments");
    refused("js_import 1a from t.js; server { }", "cannot start with \"1\" in export name");
    refused("js_set $a t.b; js_set $a t.c; server { }", "redeclared with different function");
    refused("js_engine spider; server { }", "invalid value \"spider\"");
    refused("js_shared_dict_zone zone=a:1k; server { }", "is too small");
    refused("js_fetch_proxy ftp://a; server { }", "proxy URL must have \"http://\"");
    refused(&server("js_periodic t.a interval=0;"), "invalid parameter \"interval=0\"");
}
