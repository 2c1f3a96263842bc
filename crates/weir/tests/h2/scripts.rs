//! Scripts under HTTP/2.

use crate::scripted::{LOCATIONS, SCRIPT, large};
use testkit::h2::Client;
use testkit::{Driver, Site, Weir, built_binary, each_site};

fn start(driver: Driver) -> Weir {
    Site::new(built_binary(), driver)
        .file("html/large.txt", large())
        .file("conf/t.js", SCRIPT)
        .http(&format!(
            "js_import t.js; http2 on; server {{ listen 127.0.0.1:%PORT0%; root html; {LOCATIONS} }}"
        ))
        .start()
}

#[test]
fn scripts_answer_decide_and_change_bodies() {
    each_site(start, |weir| {
        let mut c = Client::tcp(weir.port(0));
        let reply = c.request("POST", "/content", &[("content-length", "4")], b"sent");
        assert_eq!((reply.status, &reply.body[..]), (200, &b"part|sent"[..]));
        assert_eq!(reply.header("x-seen"), Some("2.0 POST"));
        assert_eq!(c.get("/streamed").body.len(), 100_000);
        let all = c.get_all(&["/access", "/access?as=friend", "/body/large.txt"]);
        let statuses: Vec<_> = all.iter().map(|reply| reply.status).collect();
        assert_eq!(statuses, [403, 200, 200]);
        assert!(all[2].body == large().to_uppercase().into_bytes());
    });
}
