//! HTTP/2 to clients: requests of a connection whose heads are alike.

use testkit::h2::{Client, Frame, literal, string};
use testkit::{Site, built_binary, each_driver};

/// A request as browsers and proxies write it, with the path last, and a field behind it.
fn head(path: &str, field: Option<(&str, &str)>) -> Vec<u8> {
    // GET, http, and the names of `:authority` and `:path`, from the static table.
    let all = [&[0x82, 0x86, 0x01][..], &string("a"), &[0x04], &string(path)].concat();
    let field = field.map(|(name, value)| literal(name, value)).unwrap_or_default();
    [all, field].concat()
}

#[test]
fn a_field_behind_the_path_stays_with_its_request() {
    each_driver(|driver| {
        let weir = Site::new(built_binary(), driver)
            .http(
                "http2 on;
                 server {
                     listen 127.0.0.1:%PORT0%;
                     location / { return 200 '$uri $http_authorization $http_range'; }
                 }",
            )
            .start();
        let mut c = Client::tcp(weir.port(0));
        for n in 0..40 {
            let field = match n % 5 {
                1 => Some(("authorization", "Basic c2VjcmV0")),
                3 => Some(("range", "bytes=1-2")),
                _ => None,
            };
            let path = format!("/{n}");
            let stream = c.next_stream();
            c.send_frame(&Frame::headers(stream, head(&path, field), true));
            let own = |name: &str| field.filter(|f| f.0 == name).map_or("", |f| f.1);
            let right = format!("{path} {} {}", own("authorization"), own("range"));
            assert_eq!(c.response(stream).text(), right);
        }
    });
}
