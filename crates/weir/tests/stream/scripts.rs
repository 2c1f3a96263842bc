//! JavaScript in `stream`: variables, `js_access`, `js_preread`, `js_filter`, over TCP, TLS and
//! UDP.

use std::io::{Read, Write};

use crate::stream_site::{exchange, securing, site};
use testkit::certificates::KeyKind;
use testkit::udp::{Echo, ask, client};
use testkit::wait_until;
use testkit::{Conn, Driver, Pair, Scripted, Site, Weir, built_binary, each_driver, pattern};

const SCRIPT: &str = r#"
let line = 'none';

function who(s) { return `${s.remoteAddress} ${s.variables.protocol} ${s}`; }
function seen(s) { return line; }
function inner(s) { return s.variables.who; }

async function gate(s) {
    await new Promise(done => setTimeout(done, 1));
    ngx.shared.counts.incr('asked', 1);
    s.allow();
}
function refuses(s) { s.deny(); }
function asksOthers(s) { s.decline(); }
function wavers(s) { }
async function never(s) { await new Promise(() => {}); }
function breaks(s) { throw new TypeError('gate broke'); }
function loops(s) { for (;;) try { for (;;); } catch (e) {} }
function unread(s) { s.on('upload', () => {}); }
function busy(s) { s.done(503); }

async function checked(s) {
    const reply = await ngx.fetch(`http://127.0.0.1:${s.variables.web}/`);
    if (reply.status === 200) s.allow(); else s.deny();
}

function firstLine(s) {
    s.on('upload', (data) => {
        const end = data.indexOf('\n');
        if (end >= 0) { line = data.slice(0, end); s.done(); }
    });
}
function afterTimer(s) {
    let due = false;
    setTimeout(() => { due = true; }, 1);
    s.on('upstream', (data) => { if (due && data.length > 0) s.done(); });
}
function throwsLater(s) { s.on('upload', (data) => { if (data) throw new Error('preread broke'); }); }

function upper(s) {
    s.on('download', (data, flags) => s.send(data.toUpperCase(), flags));
}
function brackets(s) {
    let n = 0;
    s.on('upstream', (data, flags) => {
        if (data.length) { s.send('<'); s.send(data); s.send('>', flags); n++; }
    });
    s.on('downstream', (data, flags) => {
        if (flags.last) { s.send(`|${n}`, flags); } else { s.send(data, flags); }
    });
}
function shakes(s) {
    s.on('upload', async (data, flags) => {
        s.sendUpstream('hello;');
        const greeting = new Promise(done => s.on('download', (data) => {
            s.off('download'); done(data);
        }));
        s.off('upload');
        s.sendDownstream(`(${await greeting})`);
        s.send(data, flags);
    });
}
function delayed(s) {
    s.on('upload', (data, flags) => {
        setTimeout(() => { s.send(data, flags); }, 1);
    });
}
function whole(s) {
    s.on('upstream', (data, flags) => s.send(data, flags));
    s.on('downstream', (data, flags) => s.send(data, flags));
}
function nothing(s) { }
function badSend(s) { s.send('x'); }
function badFilter(s) { s.on('upload', () => { throw new RangeError('filter broke'); }); }
function lateFilter(s) {
    s.on('upload', async () => { await new Promise(d => setTimeout(d, 1)); throw new Error('late'); });
}
// Its session would go on for as long as the timer.
function failsBesideTimer(s) {
    setTimeout(() => {}, 3_600_000);
    s.on('upload', async () => { await new Promise(d => setTimeout(d, 1)); throw new Error('beside'); });
}
function pieces(s) {
    s.on('upload', () => {
        let n = 0;
        try { for (;; n++) s.sendDownstream('x'); } catch (e) { s.error(`${n} pieces: ${e.message}`); }
        throw new Error('enough');
    });
}
// Decides when the web server has answered; the client has sent all that it has by then.
function decidesLater(s) {
    s.on('upload', async (data) => {
        if (!data) return;
        await ngx.fetch(`http://127.0.0.1:${s.variables.web}/`);
        s.done();
    });
}
function hoards(s) { s.on('upload', () => { for (;;) s.sendDownstream('x'.repeat(1 << 20)); }); }
function twoParts(s) {
    s.on('upload', (data, flags) => { s.send('a:', { flush: false }); s.send(data, flags); });
    s.on('download', (data, flags) => { s.send(data, flags); s.send('again', flags); });
}
function datagram(s) {
    s.on('upload', (data) => { data === 'no' ? s.deny() : s.allow(); });
}
function exits(s) {
    njs.on('exit', () => s.error(`ended ${s.status} ${s.variables.bytes_sent}`));
    s.allow();
}

function tick(s) { ngx.shared.counts.incr(`tick ${s.variables.fixed}`, 1); }
function ticks(s) { return String(ngx.shared.counts.get('tick set') >= 2); }

export default { who, seen, inner, gate, refuses, asksOthers, wavers, never, breaks, loops, unread,
    busy, checked, firstLine, afterTimer, throwsLater, upper, brackets, shakes, delayed, whole, nothing,
    badSend, badFilter, lateFilter, failsBesideTimer, pieces, decidesLater, hoards, twoParts, datagram, exits, tick, ticks };
"#;

/// What all sites have.
const COMMON: &str = "js_import t.js; js_shared_dict_zone zone=counts:32k type=number;
    js_set $who t.who; js_set $seen t.seen; js_set $inner t.inner; js_set $ticks t.ticks;
    js_var $fixed set;";

fn start(driver: Driver, servers: &str) -> Weir {
    site(driver, &format!("{COMMON} {servers}")).file("conf/t.js", SCRIPT).start()
}

/// A server at `%PORTn%` that answers with a text.
fn answering(n: usize, text: &str, more: &str) -> String {
    format!("server {{ listen 127.0.0.1:%PORT{n}%; return '{text}'; {more} }}\n")
}

/// One that passes its sessions to a port.
fn passing(n: usize, to: u16, more: &str) -> String {
    format!("server {{ listen 127.0.0.1:%PORT{n}%; proxy_pass 127.0.0.1:{to}; {more} }}\n")
}

/// The whole answer to `bytes`, from a server that ends the session itself.
fn told(weir: &Weir, at: usize, bytes: &str) -> String {
    let mut c = Conn::tcp(weir.port(at));
    c.send(bytes);
    String::from_utf8(c.read_to_end()).unwrap()
}

/// A server that answers one read, and ends.
fn once() -> Scripted {
    Scripted::start(|mut stream, _| {
        let mut page = [0; 65536];
        if let Ok(n @ 1..) = stream.read(&mut page) {
            stream.write_all(&[b"got ", &page[..n]].concat()).unwrap();
        }
    })
}

#[test]
fn variables_are_computed_by_functions() {
    each_driver(|driver| {
        let servers = answering(0, "$who|$inner", "") + &answering(1, "$fixed $seen", "");
        let weir = start(driver, &servers);
        let who = "127.0.0.1 TCP [object Stream Session]";
        assert_eq!(told(&weir, 0, ""), format!("{who}|{who}"));
        assert_eq!(told(&weir, 1, ""), "set none");
    });
}

#[test]
fn access_is_allowed_denied_and_left_to_others() {
    each_driver(|driver| {
        let servers = [
            answering(0, "in", "js_access t.gate; deny all;"),
            answering(1, "in", "js_access t.refuses; allow all;"),
            answering(2, "in", "js_access t.asksOthers; deny all;"),
            answering(3, "in", "js_access t.asksOthers;"),
            answering(4, "in", "js_access t.busy;"),
        ];
        let weir = start(driver, &servers.concat());
        let all: Vec<_> = (0..5).map(|at| told(&weir, at, "")).collect();
        assert_eq!(all, ["in", "", "", "in", ""]);
        let lines = weir.wait_for_lines("access.log", 5);
        let statuses: Vec<_> = lines.lines().map(|line| line.split(':').nth(1).unwrap()).collect();
        assert_eq!(statuses, ["200", "403", "403", "200", "503"]);
    });
}

#[test]
fn scripts_that_fail_let_nobody_in() {
    each_driver(|driver| {
        let names = ["wavers", "never", "breaks", "loops", "unread", "missing"];
        let servers: Vec<_> = names
            .iter()
            .enumerate()
            .map(|(n, name)| {
                answering(n, "in", &format!("js_access t.{name}; js_time_limit 20ms;"))
            })
            .collect();
        let weir = start(driver, &servers.concat());
        for (n, name) in names.iter().enumerate() {
            assert_eq!(told(&weir, n, ""), "", "{name}");
        }
        let lines = weir.wait_for_lines("access.log", names.len());
        assert!(lines.lines().all(|line| line.contains(":500:")), "{lines}");
        for line in [
            "js_access \"t.wavers\" has not decided",
            "js_access \"t.never\" returned a promise that is never settled",
            "js call exception: TypeError: gate broke at breaks (",
            "js was ended: the script ran for more than 20 ms at a stretch at loops (",
            "js_access \"t.unread\" waits for bytes that its phase does not read",
            "js function \"t.missing\" not found",
        ] {
            weir.wait_for_log("error.log", line);
        }
    });
}

#[test]
fn the_first_bytes_decide() {
    each_driver(|driver| {
        let to = once().port;
        let servers = [
            answering(0, "$seen", "js_preread t.firstLine;"),
            passing(1, to, "js_preread t.afterTimer;"),
            answering(2, "in", "js_preread t.throwsLater;"),
            answering(3, "in", "js_preread t.firstLine; preread_buffer_size 4;"),
            answering(4, "in", "js_preread t.firstLine; preread_timeout 10ms;"),
        ];
        let weir = start(driver, &servers.concat());
        let mut c = Conn::tcp(weir.port(0));
        c.send("fir");
        c.send("st\nsecond");
        assert_eq!(c.read_to_end(), b"first");
        assert_eq!(told(&weir, 1, "bytes"), "got bytes");
        assert_eq!(told(&weir, 2, "x"), "");
        weir.wait_for_log("error.log", "js exception: Error: preread broke");
        assert_eq!(told(&weir, 3, "1234"), "");
        weir.wait_for_log("error.log", "preread buffer full while prereading client data");
        assert_eq!(told(&weir, 4, ""), "");
    });
}

/// What a client has sent decides, although it sends no more.
#[test]
fn a_client_that_has_sent_all_waits_for_the_decision() {
    each_driver(|driver| {
        let (says, said) = std::sync::mpsc::channel();
        let said = std::sync::Mutex::new(said);
        let web = Scripted::start(move |mut stream, _| {
            let _ = said.lock().unwrap().recv();
            let _ = stream.write_all(b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n");
        });
        let servers = format!(
            "map _ $web {{ default {}; }} {}",
            web.port,
            answering(0, "in", "js_preread t.decidesLater;")
        );
        let weir = start(driver, &servers);
        let mut c = Conn::tcp(weir.port(0));
        c.send("bytes");
        c.finish_sending();
        wait_until("the script has asked", || web.connections() == 1);
        says.send(()).unwrap();
        assert_eq!(c.read_to_end(), b"in");
    });
}

#[test]
fn filters_change_bytes_both_ways() {
    each_driver(|driver| {
        let to = once().port;
        let servers = [
            passing(0, to, "js_filter t.upper;"),
            passing(1, to, "js_filter t.brackets;"),
            passing(2, to, "js_filter t.delayed;"),
            passing(3, to, "js_filter t.nothing;"),
            answering(4, "text", "js_filter t.upper;"),
        ];
        let weir = start(driver, &servers.concat());
        assert_eq!(told(&weir, 0, "abc"), "GOT ABC");
        assert_eq!(told(&weir, 1, "abc"), "got <abc>|1");
        assert_eq!(told(&weir, 2, "abc"), "got abc");
        assert_eq!(told(&weir, 3, "abc"), "got abc");
        assert_eq!(told(&weir, 4, ""), "TEXT");
        // Bytes are counted as the sides have sent and received them.
        weir.wait_for_log("access.log", &format!("127.0.0.1:200:TCP:3:11:127.0.0.1:{to}:5:9"));
    });
}

#[test]
fn a_filter_may_speak_with_the_server_first() {
    each_driver(|driver| {
        let server = Scripted::start(|mut stream, _| {
            let mut hello = [0; 6];
            stream.read_exact(&mut hello).unwrap();
            stream.write_all(b"welcome").unwrap();
            let mut page = [0; 100];
            let n = stream.read(&mut page).unwrap();
            stream.write_all(&[&hello, &page[..n]].concat()).unwrap();
        });
        let weir = start(driver, &passing(0, server.port, "js_filter t.shakes;"));
        assert_eq!(told(&weir, 0, "bytes"), "(welcome)hello;bytes");
    });
}

#[test]
fn large_transfers_pass_a_filter_whole() {
    each_driver(|driver| {
        let server = Scripted::start(|mut stream, _| {
            let mut len = [0; 8];
            stream.read_exact(&mut len).unwrap();
            let mut all = vec![0; u64::from_be_bytes(len) as usize];
            stream.read_exact(&mut all).unwrap();
            stream.write_all(&all).unwrap();
        });
        let more = "js_filter t.whole; js_cpu_limit 200ms;";
        let weir = start(driver, &passing(0, server.port, more));
        let data = pattern(5_000_000, 1);
        let mut c = Conn::tcp(weir.port(0));
        c.send((data.len() as u64).to_be_bytes());
        c.send(&data);
        assert!(c.read_to_end() == data);
    });
}

#[test]
fn half_closed_sessions_pass_a_filter() {
    each_driver(|driver| {
        let server = Scripted::start(|mut stream, _| {
            let mut all = Vec::new();
            stream.read_to_end(&mut all).unwrap();
            stream.write_all(&all).unwrap();
        });
        let more = "js_filter t.delayed; proxy_half_close on;";
        let weir = start(driver, &passing(0, server.port, more));
        let mut c = Conn::tcp(weir.port(0));
        c.send("bytes");
        c.finish_sending();
        assert_eq!(c.read_to_end(), b"bytes");
    });
}

#[test]
fn filters_that_fail_end_their_session_alone() {
    each_driver(|driver| {
        let to = once().port;
        let names = ["badSend", "badFilter", "lateFilter", "hoards", "failsBesideTimer", "pieces"];
        let servers: Vec<_> = names
            .iter()
            .enumerate()
            .map(|(n, name)| {
                let limits = "js_time_limit 10s; js_cpu_limit 10s;";
                passing(n, to, &format!("js_filter t.{name}; {limits}"))
            })
            .collect();
        let upper = passing(names.len(), to, "js_filter t.upper;");
        let weir = start(driver, &(servers.concat() + &upper));
        for (n, name) in names.iter().enumerate() {
            assert_eq!(told(&weir, n, "abc"), "", "{name}");
        }
        let lines = weir.wait_for_lines("access.log", names.len());
        assert!(lines.lines().all(|line| line.contains(":500:")), "{lines}");
        for line in [
            "js call exception: TypeError: cannot send buffer in this handler",
            "js exception: RangeError: filter broke",
            "js unhandled rejection: Error: late at ",
            "js unhandled rejection: Error: beside at ",
            // Each piece counts with its place in the list: 16 MB hold 64 + 1 bytes so often.
            "js: 258111 pieces: more data is sent than js_memory_limit allows",
            "js exception: TypeError: more data is sent than js_memory_limit allows",
        ] {
            weir.wait_for_log("error.log", line);
        }
        assert_eq!(told(&weir, names.len(), "abc"), "GOT ABC");
    });
}

#[test]
fn datagrams_are_looked_at_and_changed() {
    each_driver(|driver| {
        let server = Echo::start(">", 1);
        let udp = |n: usize, more: &str| {
            let to = server.port;
            format!(
                "server {{ listen 127.0.0.1:%PORT{n}% udp; proxy_pass 127.0.0.1:{to}; {more} }}\n"
            )
        };
        let servers = [
            udp(0, "js_filter t.upper; proxy_timeout 200ms;"),
            udp(1, "js_filter t.twoParts; proxy_requests 1; proxy_responses 1;"),
            udp(2, "js_preread t.datagram;"),
            udp(3, "js_access t.gate; js_filter t.delayed;"),
            "server { listen 127.0.0.1:%PORT4% udp; return $who; }".to_owned(),
            answering(9, "up", ""),
        ];
        let weir = start(driver, &servers.concat());
        let c = client(weir.port(0));
        assert_eq!((ask(&c, b"ab"), ask(&c, b"cd")), (b">AB".to_vec(), b">CD".to_vec()));
        let peers = server.peers();
        assert_eq!(peers[0], peers[1], "one session");
        weir.wait_for_log("error.log", "udp timed out, packets from/to client:2/2");
        let c = client(weir.port(1));
        assert_eq!(ask(&c, b"x"), b">a:x");
        assert_eq!(testkit::udp::receive(&c).0, b"again");
        weir.wait_for_log("access.log", &format!(":UDP:1:9:127.0.0.1:{}:3:4", server.port));
        assert_eq!(ask(&client(weir.port(2)), b"yes"), b">yes");
        client(weir.port(2)).send(b"no").unwrap();
        weir.wait_for_log("access.log", "127.0.0.1:403:UDP:2:0:");
        assert_eq!(ask(&client(weir.port(3)), b"late"), b">late");
        let who = b"127.0.0.1 UDP [object Stream Session]";
        assert_eq!(ask(&client(weir.port(4)), b"."), who);
    });
}

/// A site whose TLS ends at `%PORT0%`, or is passed through from `%PORT1%`.
fn secured(driver: Driver) -> Weir {
    let to = "server { listen 127.0.0.1:%PORT0% ssl; ssl_certificate one.pem;
        ssl_certificate_key one.key; js_preread t.firstLine; return '$seen $ssl_protocol'; }";
    let through = "map $ssl_preread_server_name $to { one.example 127.0.0.1:%PORT0%; }
        server { listen 127.0.0.1:%PORT1%; ssl_preread on; js_access t.gate; js_filter t.whole;
                 proxy_pass $to; }";
    let blocks = [COMMON, to, through, &securing(2, 0, "one", ""), &securing(3, 1, "one", "")];
    Pair::own(KeyKind::P256, "one.example")
        .on(Site::new(built_binary(), driver), "one")
        .file("conf/t.js", SCRIPT)
        .stream(&blocks.concat())
        .start()
}

#[test]
fn scripts_see_what_tls_carries() {
    each_driver(|driver| {
        let weir = secured(driver);
        for at in [2, 3] {
            assert_eq!(told(&weir, at, "line\n"), "line TLSv1.3");
        }
    });
}

#[test]
fn scripts_ask_other_servers_and_run_at_intervals() {
    each_driver(|driver| {
        let weir = Site::new(built_binary(), driver)
            .file("conf/t.js", SCRIPT)
            .config(&format!(
                "events {{}} http {{ server {{ listen 127.0.0.1:%PORT0%; return 200 ok; }} }}
                 stream {{ {COMMON} map _ $web {{ default %PORT0%; }}
                 {} {} }}",
                answering(1, "in", "js_access t.checked;"),
                answering(2, "$ticks", "js_periodic t.tick interval=10ms;")
            ))
            .start();
        assert_eq!(told(&weir, 1, ""), "in");
        wait_until("two ticks", || told(&weir, 2, "") == "true");
    });
}

#[test]
fn a_hook_runs_at_the_end_of_a_session() {
    each_driver(|driver| {
        let weir = start(driver, &answering(0, "text", "js_access t.exits;"));
        assert_eq!(told(&weir, 0, ""), "text");
        weir.wait_for_log("error.log", "js: ended 200 4");
    });
}

#[test]
fn many_sessions_pass_filters_at_once() {
    each_driver(|driver| {
        let server = Scripted::start(|mut stream, _| {
            let mut page = [0; 100];
            while let Ok(n @ 1..) = stream.read(&mut page) {
                if stream.write_all(&page[..n]).is_err() {
                    return;
                }
            }
        });
        let weir = start(driver, &passing(0, server.port, "js_filter t.upper;"));
        let mut all: Vec<_> = (0..20).map(|_| Conn::tcp(weir.port(0))).collect();
        for round in 0..3 {
            for (n, c) in all.iter_mut().enumerate() {
                exchange(c, &format!("a{n}.{round};"), &format!("A{n}.{round};"));
            }
        }
    });
}

#[test]
fn wrong_configurations_name_their_line() {
    let refused = |stream: &str, message: &str| {
        let site = Site::new(built_binary(), Driver::usual()).file("conf/t.js", SCRIPT);
        let text = format!("events {{ }} stream {{ {stream} }}");
        let told = site.config(&text).is_refused(message);
        assert!(told.contains(":1"), "{told}");
    };
    let server = |inner: &str| format!("server {{ listen 1; return a; {inner} }}");
    for directive in ["js_access", "js_preread", "js_filter"] {
        let message = format!("no imports defined for \"{directive}\" \"t.a\"");
        refused(&server(&format!("{directive} t.a;")), &message);
    }
    refused("js_import missing.js; server { listen 1; return a; }", "Cannot find module");
    refused("js_periodic t.a;", "is not allowed here");
    refused("js_content t.a;", "directive \"js_content\"");
}
