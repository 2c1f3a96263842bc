//! Scripts under HTTP/3.

use crate::scripted::{LOCATIONS, SCRIPT, large};
use testkit::certificates::KeyKind;
use testkit::h3::Client;
use testkit::{Driver, Pair, Site, Weir, built_binary, each_site};

fn start(driver: Driver) -> Weir {
    Pair::own(KeyKind::P256, "localhost")
        .on(Site::new(built_binary(), driver), "a")
        .file("html/large.txt", large())
        .file("conf/t.js", SCRIPT)
        .http(&format!(
            "js_import t.js; ssl_certificate a.pem; ssl_certificate_key a.key;
             server {{ listen 127.0.0.1:%PORT0% quic; root html; {LOCATIONS} }}"
        ))
        .start()
}

#[test]
fn scripts_answer_decide_and_change_bodies() {
    each_site(start, |weir| {
        let mut c = Client::connect(weir.port(0), "localhost");
        let reply = c.request("POST", "/content", &[("content-length", "4")], b"sent");
        assert_eq!((reply.status, &reply.body[..]), (200, &b"part|sent"[..]));
        assert_eq!(reply.header("x-seen"), Some("3.0 POST"));
        assert_eq!(c.get("/streamed").body.len(), 100_000);
        let all = c.get_all(&["/access", "/access?as=friend", "/body/large.txt"]);
        let statuses: Vec<_> = all.iter().map(|reply| reply.status).collect();
        assert_eq!(statuses, [403, 200, 200]);
        assert!(all[2].body == large().to_uppercase().into_bytes());
    });
}
