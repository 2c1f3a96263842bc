//! `proxy_http_version 2`: heads that come again on a connection, whose blocks are copied.

use testkit::h2::{Reply, origin};
use testkit::{Driver, Site, Weir, built_binary, each_driver};

fn site(driver: Driver, port: u16) -> Weir {
    let text = format!(
        "upstream u {{ server 127.0.0.1:{port}; keepalive 4; }}
         server {{
             listen 127.0.0.1:%PORT0%;
             proxy_http_version 2;
             location / {{ proxy_pass http://u; }}
             location /small {{
                 proxy_pass http://u;
                 proxy_buffer_size 128;
                 proxy_buffers 8 128;
                 proxy_busy_buffers_size 256;
             }}
         }}"
    );
    Site::new(built_binary(), driver).http(&text).start()
}

#[test]
fn each_request_has_its_own_head_and_its_own_response() {
    each_driver(|driver| {
        let origin = origin(|request, number| {
            let of = |name: &str| request.field(name).unwrap_or("-").to_owned();
            let (agent, secret) = (of("user-agent"), of("authorization"));
            let text = format!("{} {} {agent} {secret} {number}", of(":method"), request.path());
            let reply = Reply::of(text).with("x-server", "origin");
            // Of some agents each response has another head.
            match agent.as_str() {
                "other" => reply.with("x-path", request.path()),
                _ => reply.with("x-agent", &agent),
            }
        });
        let weir = site(driver, origin.port);
        let mut conn = weir.connect();
        let mut ask = |method: &str, path: &str, agent: &str, secret: &str| {
            let credentials = match secret {
                "-" => String::new(),
                secret => format!("Authorization: {secret}\r\n"),
            };
            conn.send(format!(
                "{method} {path} HTTP/1.1\r\nHost: a\r\nUser-Agent: {agent}\r\n{credentials}\r\n"
            ));
            let answer = conn.response();
            assert_eq!(answer.text(), format!("{method} {path} {agent} {secret} 1"));
            match agent {
                "other" => assert_eq!(answer.header("x-path"), Some(path)),
                _ => assert_eq!(answer.header("x-agent"), Some(agent)),
            }
            assert_eq!(answer.header("x-server"), Some("origin"));
        };
        for round in 0..4 {
            for agent in ["one", "two", "other", "one", "one"] {
                let long = format!("/{round}/{}", agent.repeat(20));
                ["/", "/a?b=c", &long, "/"].iter().for_each(|path| ask("GET", path, agent, "-"));
                ask("DELETE", "/", agent, "-");
                ask("GET", "/", agent, &format!("{agent} {round}"));
            }
        }
    });
}

#[test]
fn a_head_that_repeats_is_too_big_where_it_is() {
    each_driver(|driver| {
        let origin = origin(|_, _| Reply::of("fine").with("x-long", &"x".repeat(150)));
        let weir = site(driver, origin.port);
        for _ in 0..4 {
            assert_eq!(weir.get("/").text(), "fine");
        }
        assert_eq!(weir.get("/small").status, 502);
        weir.wait_for_log("error.log", "upstream sent too big header");
        assert_eq!(weir.get("/").text(), "fine");
        assert_eq!(origin.connections(), 1);
    });
}
