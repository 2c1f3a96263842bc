//! What depends on the server that was chosen: `*_allow_upstream`, `*_request_dynamic`,
//! `*_bind_dynamic`, `$upstream_last_addr`.

use testkit::{Driver, Site, Weir, built_binary, each_driver};

/// Servers on two addresses that tell who asks them, and nothing on a third one.
fn site(driver: Driver, http: &str) -> Weir {
    Site::new(built_binary(), driver)
        .http(&format!(
            "map $upstream_last_addr $from {{ volatile; 127.0.0.1 127.0.0.8; 127.0.0.2 127.0.0.9; }}
             upstream both {{ server 127.0.0.2:%PORT1%; server 127.0.0.1:%PORT1% backup; }}
             upstream dead {{ server 127.0.0.3:%PORT1%; server localhost:%PORT1% backup; }}
             server {{ listen 127.0.0.1:%PORT1%; listen 127.0.0.2:%PORT1%; keepalive_timeout 60s;
                 location / {{
                     return 200 \"$http_x_server|$remote_addr|$server_addr|$connection_requests\";
                 }} }}
             {http}"
        ))
        .start()
}

#[test]
fn servers_that_are_not_allowed_are_not_asked() {
    each_driver(|driver| {
        let weir = site(
            driver,
            "geo $upstream_last_addr $allowed { volatile; default 0; 127.0.0.1 1; }
             server { listen 127.0.0.1:%PORT0%; add_header X-Status $upstream_status always;
                 location /a { proxy_pass http://both; proxy_allow_upstream 1 $allowed; }
                 location /c { proxy_pass http://127.0.0.1:%PORT1%;
                     proxy_allow_upstream $allowed; }
                 location /d { proxy_pass http://127.0.0.1:%PORT1%;
                     proxy_allow_upstream $allowed $arg_key; } }",
        );
        let denied = weir.get("/a");
        assert_eq!((denied.status, denied.header("X-Status")), (403, Some("403")));
        weir.wait_for_log("error.log", "upstream server is not allowed");
        assert_eq!(weir.get("/c").status, 200);
        for (uri, status) in [("/d", 403), ("/d?key=0", 403), ("/d?key=a", 200)] {
            assert_eq!(weir.get(uri).status, status, "{uri}");
        }
    });
}

#[test]
fn a_denied_server_is_followed_by_the_next() {
    each_driver(|driver| {
        let weir = site(
            driver,
            "geo $upstream_last_addr $allowed { volatile; default 0; 127.0.0.1 1; }
             server { listen 127.0.0.1:%PORT0%; add_header X-Status $upstream_status always;
                 location / { proxy_pass http://both; proxy_allow_upstream $allowed;
                     proxy_next_upstream denied; } }",
        );
        let response = weir.get("/");
        assert_eq!((response.status, response.header("X-Status")), (200, Some("403, 200")));
    });
}

#[test]
fn a_request_can_name_its_server() {
    each_driver(|driver| {
        let weir = site(
            driver,
            "server { listen 127.0.0.1:%PORT0%;
                 proxy_set_header X-Server $upstream_last_server_name;
                 location /once { proxy_pass http://both; }
                 location /each { proxy_pass http://both; proxy_request_dynamic on; }
                 location /next { proxy_pass http://dead; proxy_request_dynamic on; } }",
        );
        let server = |uri: &str| weir.get(uri).text().split('|').next().map(str::to_owned);
        assert_eq!(server("/once").as_deref(), Some(""));
        assert_eq!(server("/each").as_deref(), Some("127.0.0.2"));
        assert_eq!(server("/next").as_deref(), Some("localhost"));
    });
}

#[test]
fn our_own_address_can_depend_on_the_server() {
    each_driver(|driver| {
        let weir = site(
            driver,
            "server { listen 127.0.0.1:%PORT0%; proxy_bind $from;
                 location /once { proxy_pass http://both; }
                 location /each { proxy_pass http://both; proxy_bind_dynamic on; }
                 location /next { proxy_pass http://dead; proxy_bind_dynamic on; } }",
        );
        let from = |uri: &str| weir.get(uri).text().split('|').nth(1).map(str::to_owned);
        assert_eq!(from("/once").as_deref(), Some("127.0.0.1"));
        assert_eq!(from("/each").as_deref(), Some("127.0.0.9"));
        assert_eq!(from("/next").as_deref(), Some("127.0.0.8"));
    });
}

#[test]
fn a_kept_connection_serves_its_own_address_alone() {
    each_driver(|driver| {
        let weir = site(
            driver,
            "upstream kept { server 127.0.0.1:%PORT1%; keepalive 8; }
             server { listen 127.0.0.1:%PORT0%; location / { proxy_pass http://kept;
                 proxy_http_version 1.1; proxy_set_header Connection '';
                 proxy_bind $arg_from; } }",
        );
        let asked = |from: &str| {
            let text = weir.get(&format!("/?from={from}")).text();
            let parts: Vec<_> = text.split('|').map(str::to_owned).collect();
            (parts[1].clone(), parts[3].clone())
        };
        let told = |from: &str, request: &str| (from.to_owned(), request.to_owned());
        assert_eq!(asked("127.0.0.5"), told("127.0.0.5", "1"));
        assert_eq!(asked("127.0.0.6"), told("127.0.0.6", "1"));
        assert_eq!(asked("127.0.0.5"), told("127.0.0.5", "2"));
        assert_eq!(asked("127.0.0.6"), told("127.0.0.6", "2"));
    });
}

#[test]
fn servers_are_asked_again_where_that_is_wanted() {
    each_driver(|driver| {
        let weir = Site::new(built_binary(), driver)
            .http(
                "upstream one { server 127.0.0.1:%PORT1% max_fails=0; }
                 upstream two { server 127.0.0.1:%PORT1% max_fails=0;
                     server 127.0.0.2:%PORT1% max_fails=0; }
                 upstream hashed { hash $uri; server 127.0.0.1:%PORT1% max_fails=0;
                     server 127.0.0.2:%PORT1% max_fails=0; }
                 upstream gone { server 127.0.0.3:%PORT1%; server 127.0.0.4:%PORT1%; }
                 server { listen 127.0.0.1:%PORT1%; listen 127.0.0.2:%PORT1%; return 500; }
                 server { listen 127.0.0.1:%PORT0%; add_header X-Status $upstream_status always;
                     proxy_next_upstream error http_500 again; proxy_next_upstream_tries 3;
                     location /one { proxy_pass http://one; }
                     location /two { proxy_pass http://two; }
                     location /hashed { proxy_pass http://hashed; }
                     location /name { proxy_pass http://127.0.0.1:%PORT1%; }
                     location /gone { proxy_pass http://gone; }
                     location /off { proxy_pass http://two; proxy_next_upstream http_500; }
                     location /unbound { proxy_pass http://two; proxy_next_upstream_tries 0; } }",
            )
            .start();
        let statuses = |uri: &str| weir.get(uri).header("X-Status").map(str::to_owned);
        for uri in ["/one", "/two", "/hashed", "/name"] {
            assert_eq!(statuses(uri).as_deref(), Some("500, 500, 500"), "{uri}");
        }
        assert_eq!(statuses("/off").as_deref(), Some("500, 500"));
        // Without a limit, each server is asked once: nobody asks for ever.
        assert_eq!(statuses("/unbound").as_deref(), Some("500, 500"));
        // Servers that failed are out of the choice: there is nobody to ask again.
        let gone = statuses("/gone").unwrap();
        assert!(gone.starts_with("502, 502"), "{gone}");
    });
}
