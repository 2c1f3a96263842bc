//! TCP sessions through the real server: the proxy, its servers, and the modules around it.

use std::io::{Read, Write};
use std::net::TcpStream;

use crate::stream_site::{exchange, passing, site, start};
use testkit::{
    Conn, Driver, Scripted, Site, built_binary, on_all_drivers, pattern, site_on_all_drivers,
    wait_until,
};

/// A server that echoes, with a mark in front of each read.
fn echo(mark: &'static str) -> Scripted {
    Scripted::start(move |mut stream, _| {
        let mut page = [0; 65536];
        while let Ok(n @ 1..) = stream.read(&mut page) {
            let answer = [mark.as_bytes(), &page[..n]].concat();
            if stream.write_all(&answer).is_err() {
                return;
            }
        }
    })
}

/// The whole answer to `bytes`, from a server that ends the session itself.
fn ask(port: u16, bytes: &[u8]) -> String {
    let mut c = Conn::tcp(port);
    c.send(bytes);
    String::from_utf8(c.read_to_end()).unwrap()
}

/// The whole answer to `bytes` with the end of sending behind them.
fn ask_all(port: u16, bytes: &[u8]) -> String {
    let mut c = Conn::tcp(port);
    c.send(bytes);
    c.finish_sending();
    String::from_utf8(c.read_to_end()).unwrap()
}

#[test]
fn bytes_go_both_ways_and_are_counted() {
    on_all_drivers(|driver| {
        let port = echo(">").port;
        let named = format!(
            "server {{ listen 127.0.0.1:%PORT1%; proxy_pass $to; set $to 127.0.0.1:{port}; }}"
        );
        let weir = start(driver, &(passing(0, port, "") + &named));
        for at in [0, 1] {
            let mut c = Conn::tcp(weir.port(at));
            exchange(&mut c, "one", ">one");
            exchange(&mut c, "three", ">three");
        }
        let line = format!("127.0.0.1:200:TCP:8:10:127.0.0.1:{port}:8:10");
        assert_eq!(weir.wait_for_lines("access.log", 2), format!("{line}\n{line}\n"));
        weir.wait_for_log("error.log", "client disconnected, bytes from/to client:8/10");
        let connected = format!("connected to 127.0.0.1:{port}, client: 127.0.0.1");
        weir.wait_for_log("error.log", &connected);
    });
}

#[test]
fn large_transfers_are_whole() {
    on_all_drivers(|driver| {
        let server = Scripted::start(|mut stream, _| {
            let mut len = [0; 8];
            stream.read_exact(&mut len).unwrap();
            let mut all = vec![0; u64::from_be_bytes(len) as usize];
            stream.read_exact(&mut all).unwrap();
            stream.write_all(&all).unwrap();
        });
        let port = server.port;
        let text = passing(0, port, "proxy_buffer_size 3000;") + &passing(1, port, "");
        let weir = start(driver, &text);
        for at in [0, 1] {
            let data = pattern(3_000_000, at);
            let mut c = Conn::tcp(weir.port(at));
            c.send((data.len() as u64).to_be_bytes());
            c.send(&data);
            assert!(c.read_to_end() == data, "{at}");
        }
    });
}

#[test]
fn half_closed_sessions_go_on() {
    on_all_drivers(|driver| {
        let server = Scripted::start(|mut stream, _| {
            let mut all = Vec::new();
            stream.read_to_end(&mut all).unwrap();
            stream.write_all(&all).unwrap();
        });
        let port = server.port;
        let text = passing(0, port, "proxy_half_close on;") + &passing(1, port, "");
        let weir = start(driver, &text);
        assert_eq!(ask_all(weir.port(0), b"whole"), "whole");
        assert_eq!(ask_all(weir.port(1), b"whole"), "", "the end of one side ends the session");
    });
}

#[test]
fn the_next_server_is_tried() {
    on_all_drivers(|driver| {
        let server = echo(">");
        let live = server.port;
        let weir = start(
            driver,
            &format!(
                "upstream u {{ server 127.0.0.1:%PORT9% fail_timeout=1h; server 127.0.0.1:{live};
                 }}
                 upstream dead {{ zone dead 64k; server 127.0.0.1:%PORT9% down; }}
                 server {{ listen 127.0.0.1:%PORT0%; proxy_pass u; }}
                 server {{ listen 127.0.0.1:%PORT1%; proxy_pass dead; }}
                 server {{ listen 127.0.0.1:%PORT2%; proxy_pass 127.0.0.1:%PORT9%;
                 proxy_next_upstream off; }}"
            )
            .replace("%PORT9%", "1"),
        );
        for _ in 0..3 {
            exchange(&mut Conn::tcp(weir.port(0)), "x", ">x");
        }
        assert!(Conn::tcp(weir.port(1)).read_to_end().is_empty());
        assert!(Conn::tcp(weir.port(2)).read_to_end().is_empty());
        let log = weir.wait_for_lines("access.log", 5);
        assert!(log.contains(&format!(":200:TCP:1:2:127.0.0.1:1, 127.0.0.1:{live}:0, 1:0, 2")));
        assert!(
            log.contains(":502:TCP:0:0:dead:0:0") && log.contains(":502:TCP:0:0:127.0.0.1:1:0")
        );
        let line = "no live upstreams while connecting to upstream, client: 127.0.0.1";
        weir.wait_for_log("error.log", line);
    });
}

#[test]
fn bytes_that_are_there_before_the_server_reach_the_one_that_answers() {
    on_all_drivers(|driver| {
        let server = Scripted::start(|mut stream, _| {
            let mut page = vec![0; 40_000];
            stream.read_exact(&mut page).unwrap();
            stream.write_all(&page).unwrap();
        });
        let live = server.port;
        let servers = format!(
            "upstream u {{ server 127.0.0.1:1 fail_timeout=1h; server 127.0.0.1:{live}; }}"
        );
        let weir = start(driver, &(servers + &passing(0, 0, "").replace("127.0.0.1:0;", "u;")));
        let data = pattern(40_000, 3);
        let worker = weir.workers()[0];
        weir.signal_to(worker, "STOP");
        let mut c = Conn::tcp(weir.port(0));
        c.send(&data);
        weir.signal_to(worker, "CONT");
        assert!(c.read_to_end() == data);
        let line = weir.wait_for_lines("access.log", 1);
        let to = format!("127.0.0.1:1, 127.0.0.1:{live}");
        assert_eq!(line, format!("127.0.0.1:200:TCP:40000:40000:{to}:0, 40000:0, 40000\n"));
    });
}

#[test]
fn an_idle_session_ends() {
    on_all_drivers(|driver| {
        let weir = start(driver, &passing(0, echo(">").port, "proxy_timeout 100ms;"));
        let mut c = Conn::tcp(weir.port(0));
        c.send("x");
        assert_eq!(c.read_to_end(), b">x");
        weir.wait_for_log("error.log", "connection timed out (110: Connection timed out)");
    });
}

#[test]
fn rates_are_kept() {
    on_all_drivers(|driver| {
        let weir = start(driver, &passing(0, echo("").port, "proxy_download_rate 1000;"));
        let mut c = Conn::tcp(weir.port(0));
        let began = std::time::Instant::now();
        c.send(pattern(2500, 1));
        assert_eq!(c.read_exact(2500), pattern(2500, 1));
        // 1,000 bytes at once, and as many with each second.
        assert!(began.elapsed().as_millis() >= 1900, "{:?}", began.elapsed());
    });
}

#[test]
fn headers_of_the_proxy_protocol_go_in_and_out() {
    site_on_all_drivers(
        |driver| {
            start(
                driver,
                "set_real_ip_from 127.0.0.0/8;
                 server { listen 127.0.0.1:%PORT0% proxy_protocol; return
                 '$remote_addr:$remote_port:$proxy_protocol_addr:$realip_remote_addr'; }
                 server { listen 127.0.0.1:%PORT1%; proxy_pass 127.0.0.1:%PORT0%;
                 proxy_protocol on; }
                 server { listen 127.0.0.1:%PORT2%; proxy_pass 127.0.0.1:%PORT0%;
                 proxy_protocol v2; }
                 server { listen 127.0.0.1:%PORT3% proxy_protocol; proxy_pass 127.0.0.1:%PORT0%;
                 proxy_protocol v2; }",
            )
        },
        |weir| {
            for at in [1, 2] {
                let mut c = Conn::tcp(weir.port(at));
                let own = c.local_port().unwrap();
                let told = format!("127.0.0.1:{own}:127.0.0.1:127.0.0.1");
                assert_eq!(String::from_utf8(c.read_to_end()).unwrap(), told);
            }
            let header = b"PROXY TCP4 192.0.2.1 192.0.2.2 123 5678\r\n";
            let told = "192.0.2.1:123:192.0.2.1:127.0.0.1";
            assert_eq!(ask(weir.port(0), header), told);
            assert_eq!(ask(weir.port(3), header), told, "the client's address is passed on");
            assert_eq!(ask(weir.port(0), b"no header at all\r\n"), "");
            weir.wait_for_log("error.log", "broken header: \"no header at all");
            weir.wait_for_log("access.log", "127.0.0.1:400:TCP:");
        },
    );
}

#[test]
fn sessions_are_refused_and_limited() {
    on_all_drivers(|driver| {
        let denied = "limit_conn_zone $binary_remote_addr zone=z:64k;
             server { listen 127.0.0.1:%PORT0%; deny 127.0.0.1; return no; }";
        let limited = passing(1, echo(">").port, "limit_conn z 1;");
        let weir = start(driver, &[denied, &limited].concat());
        assert!(Conn::tcp(weir.port(0)).read_to_end().is_empty());
        weir.wait_for_log("access.log", "127.0.0.1:403:TCP:0:0");
        let mut first = Conn::tcp(weir.port(1));
        exchange(&mut first, "x", ">x");
        assert!(Conn::tcp(weir.port(1)).read_to_end().is_empty());
        weir.wait_for_log("access.log", "127.0.0.1:503:TCP:0:0");
        drop(first);
        wait_until("room for another one", || {
            let mut c = Conn::tcp(weir.port(1));
            c.send("y");
            c.read_some().is_ok_and(|read| read == b">y")
        });
    });
}

#[test]
fn a_server_without_content_ends_its_sessions() {
    site_on_all_drivers(
        |driver| start(driver, "server { listen 127.0.0.1:%PORT0%; }"),
        |weir| {
            assert!(Conn::tcp(weir.port(0)).read_to_end().is_empty());
            weir.wait_for_log("access.log", "127.0.0.1:500:TCP:0:0");
        },
    );
}

#[test]
fn values_of_map_geo_and_shares() {
    site_on_all_drivers(
        |driver| {
            start(
                driver,
                "map $server_port $kind { default other; %PORT0% first; }
                 geo $where { default far; 127.0.0.0/8 near; }
                 split_clients $remote_addr $half { 100% all; }
                 server { listen 127.0.0.1:%PORT0%; set $both '$kind $where';
                 return '$both $half $protocol'; }",
            )
        },
        |weir| assert_eq!(ask(weir.port(0), b""), "first near all TCP"),
    );
}

#[test]
fn a_leaving_worker_finishes_its_sessions() {
    on_all_drivers(|driver| {
        let weir = start(driver, &passing(0, echo(">").port, ""));
        let mut c = Conn::tcp(weir.port(0));
        exchange(&mut c, "a", ">a");
        let before = weir.workers();
        weir.reload();
        // The old worker passes on.
        exchange(&mut c, "b", ">b");
        let mut fresh = Conn::tcp(weir.port(0));
        exchange(&mut fresh, "c", ">c");
        // The old worker may have taken both.
        drop((c, fresh));
        weir.wait_until_left(&before);
    });
}

#[test]
fn sessions_end_with_the_time_of_a_leaving_worker() {
    on_all_drivers(|driver| {
        let server = passing(0, echo(">").port, "");
        let weir = Site::new(built_binary(), driver)
            .config(&format!(
                "worker_processes 1; worker_shutdown_timeout 100ms; events {{ }}
                 stream {{ handover off; {server} }}"
            ))
            .start();
        let mut c = Conn::tcp(weir.port(0));
        exchange(&mut c, "a", ">a");
        weir.reload();
        assert!(c.is_closed());
        weir.wait_for_log("error.log", "shutdown timeout, client: 127.0.0.1");
    });
}

#[test]
fn a_client_that_breaks_off_costs_its_session_alone() {
    on_all_drivers(|driver| {
        let weir = start(driver, &passing(0, echo(">").port, ""));
        let mut other = Conn::tcp(weir.port(0));
        exchange(&mut other, "a", ">a");
        for _ in 0..20 {
            let mut c = TcpStream::connect(("127.0.0.1", weir.port(0))).unwrap();
            c.write_all(b"bytes that nobody reads an answer to").unwrap();
        }
        weir.wait_for_lines("access.log", 20);
        exchange(&mut other, "b", ">b");
    });
}

#[test]
fn what_is_refused() {
    let listen = "listen 127.0.0.1:%PORT0%;";
    for (text, message) in [
        ("server { return x; }", "no \"listen\" is defined for server in "),
        ("server { listen 127.0.0.1; return x; }", "no port in \"127.0.0.1\" of the \"listen\""),
        (&format!("server {{ {listen} {listen} return x; }}"), "a duplicate listen 127.0.0.1:"),
        (&format!("server {{ {listen} proxy_pass a/b; }}"), "invalid host in upstream \"a/b\" in "),
        (&format!("server {{ {listen} proxy_pass 127.0.0.1; }}"), "no port in upstream"),
        (
            &format!("server {{ {listen} return x; access_log logs/a; }}"),
            "log format is not specified",
        ),
        (&format!("server {{ {listen} return $http_host; }}"), "unknown \"http_host\" variable"),
        (
            &format!("server {{ {listen} return x; proxy_protocol v3; }}"),
            "invalid value \"v3\" in ",
        ),
        (
            "server { listen 127.0.0.1:%PORT0% ssl; return x; }",
            "no \"ssl_certificate\" is defined for the \"listen ... ssl\" directive in",
        ),
        (
            &format!("server {{ {listen} location / {{ }} }}"),
            "\"location\" directive is not allowed",
        ),
        ("upstream u { server 127.0.0.1:1; least_time header; }", "invalid value \"header\""),
    ] {
        site(Driver::usual(), text).is_refused(message);
    }
}

#[test]
fn sessions_that_move_less_than_the_minimum_rate_are_ended() {
    on_all_drivers(|driver| {
        let port = echo("").port;
        let (slow, any) = (passing(0, port, ""), passing(1, port, "proxy_min_rate off;"));
        let weir = start(driver, &format!("proxy_min_rate 10k 2s; {slow} {any}"));
        let (mut idle, mut lively) = (Conn::tcp(weir.port(1)), Conn::tcp(weir.port(0)));
        idle.send("a");
        // A byte now and then does not keep a session; several have one line of the log.
        let mut slow: Vec<_> = (0..3).map(|_| Conn::tcp(weir.port(0))).collect();
        let mut ended = 0;
        wait_until("the slow sessions' ends", || {
            lively.send([b'x'; 50_000]);
            assert_eq!(lively.read_exact(50_000).len(), 50_000);
            slow.retain_mut(|conn| conn.try_send("x").is_ok());
            ended = 3 - slow.len();
            ended == 3
        });
        let log = weir.wait_for_log("error.log", "slower than the minimum rate while proxying");
        assert!(log.contains("[info]"), "{log}");
        let lines = weir.error_log().matches("slower than the minimum rate").count();
        assert_eq!((ended, lines), (3, 1));
        exchange(&mut lively, "y", "y");
        idle.send("b");
        assert_eq!(idle.read_exact(2), b"ab");
    });
}

#[test]
fn sessions_are_logged_as_json() {
    site_on_all_drivers(
        |driver| {
            let text = "log_json own { status $status; took $session_time; sent $bytes_sent;
                    tries $upstream_connect_time; client $remote_addr; }
                server { listen 127.0.0.1:%PORT0%; return hello; access_log logs/own.log own;
                    access_log logs/slow.log own slow=1h failed; }";
            start(driver, text)
        },
        |weir| {
            assert_eq!(ask(weir.port(0), b""), "hello");
            let line = weir.wait_for_log("own.log", "client");
            let (took, rest) = line.split_once("\"took\":").unwrap().1.split_once(',').unwrap();
            assert!(took.parse::<f64>().is_ok() && line.starts_with("{\"status\":200,"), "{line}");
            assert_eq!(rest, "\"sent\":5,\"tries\":null,\"client\":\"127.0.0.1\"}");
            assert_eq!(weir.log("slow.log"), "");
        },
    );
}

#[test]
fn tables_choose_servers() {
    site_on_all_drivers(
        |driver| {
            let text =
                "keyval_zone zone=servers:64k type=ip; keyval $remote_addr $server zone=servers;
                server { listen 127.0.0.1:%PORT0%; set $server stored; return \"$server\"; }
                server { listen 127.0.0.1:%PORT1%; return \"$server|\"; }";
            start(driver, text)
        },
        |weir| {
            assert_eq!(ask(weir.port(1), b""), "|");
            assert_eq!(ask(weir.port(0), b""), "stored");
            assert_eq!(ask(weir.port(1), b""), "stored|");
        },
    );
}
