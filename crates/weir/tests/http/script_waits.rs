//! JavaScript that waits where something else goes on: requests of `ngx.fetch`, filters beside a
//! content handler.

use testkit::{Driver, Site, Weir, built_binary, each_driver};

const SCRIPT: &str = r#"
const later = (ms) => new Promise(done => setTimeout(done, ms));
const HOUR = 3_600_000;

async function fetches(r) {
    const url = `http://127.0.0.1:${r.variables.server_port}/plain`;
    const all = await Promise.allSettled([1, 2, 3].map(() => ngx.fetch(url)));
    // Those have ended.
    const more = await ngx.fetch(url);
    const told = all.map(one => one.status === 'fulfilled' ? one.value.status : `${one.reason}`);
    r.return(200, `${told.join('|')}|${more.status}`);
}

// The stack has the caller's frames, whatever prototypes say.
async function traced(r) {
    Object.prototype.name = 'Another name';
    Object.prototype.message = 'of two lines\n';
    const failed = await ngx.fetch('http://127.0.0.1:1/').catch(e => e);
    delete Object.prototype.name;
    delete Object.prototype.message;
    r.return(200, failed.stack.replace(`${failed}`, 'Error'));
}

function pieces(r) {
    for (let i = 0; i < 200_000; i++) r.send('x');
    r.finish();
}

function headers(r) { delete r.headersOut['Content-Length']; }

// The handler has answered, and waits for something in the meantime.
function waits(r) { setTimeout(() => {}, HOUR); r.return(200, 'answer'); }
function waitsShortly(r) { setTimeout(() => {}, 20); r.return(200, 'answer'); }
function rejectsLater(r) {
    later(1).then(() => { throw new Error('nobody looks'); });
    r.return(200, 'answer');
}

function upper(r, data, flags) { r.sendBuffer(data.toUpperCase(), flags); }
async function failsLater(r, data, flags) { await later(1); throw new RangeError('late filter'); }
function sendsLater(r, data, flags) {
    setTimeout(() => r.sendBuffer(`later ${data}`), 1);
    r.done();
}

// The numbers of the requests on their connections.
async function kept(r) {
    const url = `http://127.0.0.1:${r.variables.server_port}/number`;
    const numbers = [];
    for (let i = 0; i < 3; i++) {
        numbers.push(await (await ngx.fetch(url)).text());
        await later(20);
    }
    r.return(200, numbers.join());
}

async function timed(r) {
    console.time('timed');
    await later(1);
    console.timeEnd('timed');
    console.timeEnd('another');
    r.return(200, process.argv.includes('-p') ? 'arguments' : `${process.argv}`);
}

export default { kept, timed, fetches, traced, pieces, headers, waits, waitsShortly, rejectsLater,
    upper, failsLater, sendsLater };
"#;

const CONF: &str = "
    js_import t.js;
    server {
        listen 127.0.0.1:%PORT0%;
        location /plain { return 200 plain; }
        location /fetches { js_fetch_limit 2; js_content t.fetches; }
        location /number { return 200 $connection_requests; }
        location /kept { js_fetch_keepalive 4; js_content t.kept; }
        location /expired { js_fetch_keepalive 4; js_fetch_keepalive_timeout 10ms;
                            js_content t.kept; }
        location /proxied { js_fetch_keepalive 4; js_content t.kept;
                            js_fetch_proxy http://a:b@127.0.0.1:%PORT0%; }
        location /varying { js_fetch_keepalive 4; js_content t.kept;
                            js_fetch_proxy http://$arg_user:b@127.0.0.1:%PORT0%; }
        location /timed { js_content t.timed; }
        location /traced { js_content t.traced; }
        location /pieces { js_time_limit 10s; js_cpu_limit 10s; js_content t.pieces; }
        location /fails { js_content t.waits; js_header_filter t.headers;
                          js_body_filter t.failsLater; }
        location /sends { js_content t.waitsShortly; js_header_filter t.headers;
                          js_body_filter t.sendsLater; }
        location /rejects { js_content t.rejectsLater; js_header_filter t.headers;
                            js_body_filter t.upper; }
    }";

fn start(driver: Driver) -> Weir {
    Site::new(built_binary(), driver).file("conf/t.js", SCRIPT).http(CONF).start()
}

fn text(weir: &Weir, path: &str) -> String {
    String::from_utf8(weir.get(path).body).unwrap()
}

#[test]
fn fetches_in_flight_are_limited() {
    each_driver(|driver| {
        let weir = start(driver);
        assert_eq!(text(&weir, "/fetches"), "200|200|Error: too many fetches|200");
    });
}

#[test]
fn kept_connections_serve_until_their_time_is_over() {
    each_driver(|driver| {
        let weir = start(driver);
        assert_eq!(text(&weir, "/kept"), "1,2,3");
        assert_eq!(text(&weir, "/expired"), "1,1,1");
        assert_eq!(text(&weir, "/proxied"), "1,2,3");
        // A connection through a proxy is that of the user whom the proxy knows.
        assert_eq!(text(&weir, "/varying?user=a"), "1,1,1");
    });
}

#[test]
fn scripts_know_the_time_that_they_take_and_the_command_line() {
    each_driver(|driver| {
        let weir = start(driver);
        assert_eq!(text(&weir, "/timed"), "arguments");
        weir.wait_for_log("error.log", "js: Timer \"another\" doesn't exist.");
        let log = weir.stop_and_read("error.log");
        let took = log.split("js: timed: ").nth(1).and_then(|rest| rest.split("ms").next());
        let (ms, rest) = took.and_then(|took| took.split_once('.')).unwrap();
        // A timer of 1 ms ends with the millisecond that the loop is in.
        assert!(ms.parse::<u64>().is_ok() && rest.len() == 6, "{ms}.{rest}");
    });
}

#[test]
fn the_stack_of_a_failed_fetch_is_that_of_its_caller() {
    each_driver(|driver| {
        let weir = start(driver);
        let stack = text(&weir, "/traced");
        assert!(stack.starts_with("Error\n    at traced ("), "{stack}");
    });
}

/// Adding them up for each call would take longer than the script may run.
#[test]
fn many_small_pieces_cost_no_more_than_their_bytes() {
    each_driver(|driver| {
        let weir = start(driver);
        let reply = weir.get("/pieces");
        assert_eq!((reply.status, reply.body.len()), (200, 200_000));
    });
}

#[test]
fn a_filter_that_fails_after_a_wait_ends_the_response() {
    each_driver(|driver| {
        let weir = start(driver);
        let mut conn = weir.connect();
        conn.send("GET /fails HTTP/1.1\r\nHost: a\r\n\r\n");
        let got = conn.read_to_end();
        assert!(!got.ends_with(b"0\r\n\r\n"), "{}", got.escape_ascii());
        let line = "js unhandled rejection: RangeError: late filter at failsLater (";
        weir.wait_for_log("error.log", line);
        let log = weir.stop_and_read("error.log");
        assert_eq!(log.matches("late filter").count(), 1, "{log}");
    });
}

#[test]
fn bytes_that_a_filter_sends_after_a_wait_reach_the_client() {
    each_driver(|driver| {
        let weir = start(driver);
        assert_eq!(text(&weir, "/sends"), "later answer");
    });
}

/// The handler's answer counts although a promise of it is rejected, and a filter was called in
/// between.
#[test]
fn an_answer_counts_with_filters_too() {
    each_driver(|driver| {
        let weir = start(driver);
        assert_eq!(text(&weir, "/rejects"), "ANSWER");
        weir.wait_for_log("error.log", "js unhandled rejection: Error: nobody looks");
    });
}
