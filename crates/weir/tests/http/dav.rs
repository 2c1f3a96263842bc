//! The dav module: its responses, and the files on disk afterwards.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::PathBuf;

use testkit::{Driver, Response, Site, Weir, built_binary, each_driver, each_site};

use crate::tmpfs::Tmpfs;

fn site(driver: Driver) -> Weir {
    start(Site::new(built_binary(), driver))
}

fn start(site: Site) -> Weir {
    // The workers must be able to write what the test makes: they stay who it is.
    let is_root = std::fs::metadata("/proc/self").unwrap().uid() == 0;
    let user = if is_root { "user root;" } else { "" };
    site.file("html/src", "SOURCE")
        .file("html/tree/a", "A")
        .file("html/tree/sub/b", "B")
        .config(&format!(
            "{user} worker_processes 1; events {{}}
             http {{
                 absolute_redirect off;
                 client_max_body_size 4m;
                 client_body_temp_path temp;
                 server {{
                     listen 127.0.0.1:%PORT0%;
                     server_name here;
                     dav_methods put delete mkcol copy move;
                     location / {{ }}
                     location /full/ {{ create_full_put_path on; dav_access group:rw all:r; }}
                     location /alias/ {{ alias html/; }}
                     location /deep/ {{ min_delete_depth 3; }}
                     location /read/ {{ dav_methods off; }}
                     location /device/ {{ client_body_temp_path /dev/shm/weir-%PORT0%; }}
                 }}
             }}"
        ))
        .start()
}

fn ask(weir: &Weir, method: &str, path: &str, fields: &str) -> Response {
    let mut c = weir.connect();
    c.send(format!("{method} {path} HTTP/1.1\r\nHost: here\r\n{fields}\r\n"));
    c.response_to(method)
}

fn put(weir: &Weir, path: &str, body: &str, fields: &str) -> Response {
    let mut c = weir.connect();
    let len = body.len();
    c.send(format!(
        "PUT {path} HTTP/1.1\r\nHost: here\r\nContent-Length: {len}\r\n{fields}\r\n{body}"
    ));
    c.response()
}

fn on_disk(weir: &Weir, path: &str) -> PathBuf {
    weir.prefix().join("html").join(path)
}

fn read(weir: &Weir, path: &str) -> String {
    std::fs::read_to_string(on_disk(weir, path)).unwrap_or_else(|e| format!("({e})"))
}

fn to(path: &str) -> String {
    format!("Destination: {path}\r\n")
}

#[test]
fn put_makes_and_replaces_files() {
    each_site(site, |weir| {
        let r = put(&weir, "/new%20file", "first", "");
        assert_eq!((r.status, r.header("location")), (201, Some("/new%20file")));
        assert_eq!(r.header("content-length"), Some("0"));
        let date = "Date: Sun, 06 Nov 1994 08:49:37 GMT\r\n";
        let r = put(&weir, "/new%20file", "second", date);
        assert_eq!((r.status, r.header("content-length")), (204, None));
        assert_eq!(read(&weir, "new file"), "second");
        let meta = on_disk(&weir, "new file").metadata().unwrap();
        assert_eq!(meta.permissions().mode() & 0o777, 0o600);
        let changed = meta.modified().unwrap().duration_since(std::time::UNIX_EPOCH).unwrap();
        assert_eq!(changed.as_secs(), 784_111_777);
        assert_eq!(put(&weir, "/alias/x", "y", "").status, 201);
        assert_eq!(read(&weir, "x"), "y");
        assert_eq!(put(&weir, "/x/", "y", "").status, 409);
        assert_eq!(put(&weir, "/tree", "y", "").status, 409);
        assert_eq!(put(&weir, "/x", "y", "Content-Range: bytes 0-0/9\r\n").status, 501);
        assert_eq!(put(&weir, "/read/x", "y", "").status, 405);
        let temp = std::fs::read_dir(weir.prefix().join("temp")).unwrap();
        assert_eq!(temp.count(), 0, "temporary files are left behind");
    });
}

#[test]
fn put_makes_folders_where_told() {
    each_site(site, |weir| {
        assert_eq!(put(&weir, "/full/a/b/c", "deep", "").status, 201);
        assert_eq!(read(&weir, "full/a/b/c"), "deep");
        let mode = |path| on_disk(&weir, path).metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!(mode("full/a/b/c"), 0o664);
        assert_eq!(mode("full/a") & 0o700, 0o700);
        assert_eq!(put(&weir, "/no/such/folder", "x", "").status, 500);
        weir.wait_for_log("error.log", "rename() \"");
    });
}

#[test]
fn put_of_a_chunked_body_that_breaks_off_changes_nothing() {
    each_site(site, |weir| {
        let head = "PUT /src HTTP/1.1\r\nHost: here\r\nTransfer-Encoding: chunked\r\n\r\n";
        let mut c = weir.connect();
        c.send(format!("{head}3\r\nNEW\r\n"));
        c.finish_sending();
        assert!(c.is_closed());
        let mut c = weir.connect();
        c.send(format!("{head}3\r\nNEWER"));
        assert_eq!(c.response().status, 400);
        assert_eq!(read(&weir, "src"), "SOURCE");
        let mut c = weir.connect();
        c.send(format!("{head}3\r\nNEW\r\n2\r\nER\r\n0\r\n\r\n"));
        assert_eq!(c.response().status, 204);
        assert_eq!(read(&weir, "src"), "NEWER");
    });
}

#[test]
fn put_that_stops_half_way_changes_nothing() {
    each_site(site, |weir| {
        let half = "x".repeat(100_000);
        for path in ["/src", "/new", "/full/a/b"] {
            let mut c = weir.connect();
            let head = "HTTP/1.1\r\nHost: here\r\nContent-Length: 200000\r\n\r\n";
            c.send(format!("PUT {path} {head}{half}"));
            c.finish_sending();
            assert!(c.is_closed(), "{path}");
        }
        weir.wait_for_log("error.log", "prematurely closed connection");
        assert_eq!(read(&weir, "src"), "SOURCE");
        assert!(!on_disk(&weir, "new").exists() && !on_disk(&weir, "full").exists());
        testkit::wait_for("no part of a body left behind", || {
            let names = std::fs::read_dir(weir.prefix().join("temp"));
            names.map_or(0, Iterator::count).eq(&0).then_some(())
        });
    });
}

#[test]
fn put_may_cross_devices() {
    each_site(site, |weir| {
        let temp = PathBuf::from(format!("/dev/shm/weir-{}", weir.port(0)));
        std::fs::create_dir_all(on_disk(&weir, "device")).unwrap();
        let body = "0123456789".repeat(200_000);
        let status =
            [put(&weir, "/device/f", &body, "").status, put(&weir, "/device/f", "s", "").status];
        let left = std::fs::read_dir(&temp).map(Iterator::count);
        let _ = std::fs::remove_dir_all(&temp);
        assert_eq!(status, [201, 204]);
        assert_eq!(read(&weir, "device/f"), "s");
        assert_eq!(std::fs::read_dir(on_disk(&weir, "device")).unwrap().count(), 1);
        assert_eq!(left.unwrap(), 0);
    });
}

#[test]
fn folders_are_made_and_deleted() {
    each_site(site, |weir| {
        let status = |method, path, fields: &str| ask(&weir, method, path, fields).status;
        let r = ask(&weir, "MKCOL", "/col/", "");
        assert_eq!((r.status, r.header("location")), (201, Some("/col/")));
        assert!(on_disk(&weir, "col").is_dir());
        assert_eq!(status("MKCOL", "/col/", ""), 405);
        assert_eq!(status("MKCOL", "/file", ""), 409);
        assert_eq!(status("MKCOL", "/no/parent/", ""), 409);
        assert_eq!(status("DELETE", "/tree", ""), 409);
        assert_eq!(status("DELETE", "/tree/", "Depth: 0\r\n"), 400);
        assert_eq!(status("DELETE", "/src", "Depth: 1\r\n"), 400);
        assert_eq!(status("DELETE", "/src", "Depth: x\r\n"), 400);
        assert_eq!(status("DELETE", "/src/", ""), 409);
        assert_eq!(status("DELETE", "/nothing", ""), 404);
        assert_eq!(status("DELETE", "/src", "Content-Length: 1\r\n\r\nx"), 415);
        std::os::unix::fs::symlink(on_disk(&weir, "src"), on_disk(&weir, "tree/link")).unwrap();
        assert_eq!(status("DELETE", "/tree/", ""), 204);
        assert!(!on_disk(&weir, "tree").exists());
        assert!(on_disk(&weir, "src").exists(), "what a link points to stays");
        assert_eq!(status("DELETE", "/src", "Depth: infinity\r\n"), 204);
        std::fs::create_dir_all(on_disk(&weir, "deep/a")).unwrap();
        std::fs::write(on_disk(&weir, "deep/f"), "x").unwrap();
        assert_eq!(status("DELETE", "/deep/f", ""), 409);
        assert_eq!(status("DELETE", "/deep/a/", ""), 409);
    });
}

#[test]
fn files_are_copied_and_moved() {
    each_site(site, |weir| {
        let status = |method, path, fields: &str| ask(&weir, method, path, fields).status;
        assert_eq!(status("COPY", "/src", &to("/copy%20it")), 204);
        assert_eq!(
            (read(&weir, "copy it"), read(&weir, "src")),
            ("SOURCE".into(), "SOURCE".into())
        );
        assert_eq!(status("MOVE", "/copy%20it", &to("http://HERE:99/new/place")), 204);
        assert_eq!(read(&weir, "new/place"), "SOURCE");
        assert!(!on_disk(&weir, "copy it").exists());
        std::fs::write(on_disk(&weir, "old"), "old").unwrap();
        let keep = "Overwrite: F\r\n";
        assert_eq!(status("COPY", "/src", &(to("/old") + keep)), 412);
        assert_eq!(read(&weir, "old"), "old");
        assert_eq!(status("COPY", "/src", &(to("/old") + "Overwrite: T\r\n")), 204);
        assert_eq!(read(&weir, "old"), "SOURCE");
        for (fields, want) in [
            (String::new(), 400),
            (to("ftp://here/x"), 400),
            (to("http://there/x"), 400),
            (to("http://here.evil/x"), 400),
            (to("http://here"), 400),
            (to("/../x"), 400),
            (to("/%2e%2e/x"), 400),
            (to("/x/"), 409),
            (to("/tree"), 409),
            (to("/src"), 403),
            (to("/x") + "Overwrite: TRUE\r\n", 400),
            (to("/x") + "Depth: 1\r\n", 400),
        ] {
            assert_eq!(status("COPY", "/src", &fields), want, "{fields}");
        }
        assert_eq!(status("MOVE", "/src", &(to("/x") + "Depth: 0\r\n")), 400);
        assert_eq!(status("COPY", "/nothing", &to("/x")), 404);
        assert_eq!(status("COPY", "/alias/src", &to("/else/x")), 400);
        assert_eq!(status("COPY", "/alias/src", &to("/alias/y")), 204);
        assert_eq!(read(&weir, "y"), "SOURCE");
        let names = std::fs::read_dir(on_disk(&weir, "")).unwrap();
        let partial = names.flatten().any(|e| e.file_name().to_string_lossy().contains(".0"));
        assert!(!partial, "a temporary copy is left behind");
    });
}

#[test]
fn folders_are_copied_and_moved_whole() {
    each_site(site, |weir| {
        let status = |method, path, fields: &str| ask(&weir, method, path, fields).status;
        assert_eq!(status("COPY", "/tree/", &to("/twin/")), 201);
        assert_eq!((read(&weir, "twin/a"), read(&weir, "twin/sub/b")), ("A".into(), "B".into()));
        let time = |path| on_disk(&weir, path).metadata().unwrap().modified().unwrap();
        let whole = |path| time(path).duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
        assert_eq!(whole("twin/a"), whole("tree/a"));
        std::fs::write(on_disk(&weir, "twin/extra"), "x").unwrap();
        assert_eq!(status("COPY", "/tree/", &(to("/twin/") + "Overwrite: F\r\n")), 412);
        assert_eq!(status("MOVE", "/tree/", &to("/twin/")), 201);
        assert!(!on_disk(&weir, "tree").exists() && !on_disk(&weir, "twin/extra").exists());
        assert_eq!(read(&weir, "twin/sub/b"), "B");
        assert_eq!(status("COPY", "/twin", &to("/x")), 400);
        assert_eq!(status("COPY", "/twin/", &to("/twin/inside/")), 403);
        assert_eq!(status("MOVE", "/twin/sub/", &to("/twin/")), 403);
        assert_eq!(status("MOVE", "/twin/", &to("/twin//")), 403);
    });
}

/// A link to a folder, which may be outside of the root, is removed or moved as what it is.
#[test]
fn links_to_folders_lose_nothing_of_what_they_lead_to() {
    each_site(site, |weir| {
        let outside = weir.prefix().join("outside");
        std::fs::create_dir(&outside).unwrap();
        std::fs::write(outside.join("kept"), "kept").unwrap();
        let link = |name: &str| std::os::unix::fs::symlink(&outside, on_disk(&weir, name)).unwrap();
        let is_there = |name: &str| on_disk(&weir, name).symlink_metadata().is_ok();
        let kept = || std::fs::read_to_string(outside.join("kept")).unwrap();
        link("link");
        assert_eq!(ask(&weir, "DELETE", "/link/", "").status, 204);
        assert_eq!((is_there("link"), kept().as_str()), (false, "kept"));
        link("plain");
        assert_eq!(ask(&weir, "DELETE", "/plain", "").status, 204);
        assert_eq!((is_there("plain"), kept().as_str()), (false, "kept"));
        link("from");
        assert_eq!(ask(&weir, "MOVE", "/from/", &to("/to/")).status, 201);
        assert!(!is_there("from") && on_disk(&weir, "to").is_symlink());
        assert_eq!(kept(), "kept");
        // In a folder that is removed, too.
        link("tree/inner");
        assert_eq!(ask(&weir, "DELETE", "/tree/", "").status, 204);
        assert_eq!((is_there("tree"), kept().as_str()), (false, "kept"));
        // A destination that is a link is replaced.
        assert_eq!(ask(&weir, "MKCOL", "/other/", "").status, 201);
        assert_eq!(ask(&weir, "MOVE", "/other/", &to("/to/")).status, 201);
        assert!(on_disk(&weir, "to").is_dir() && !on_disk(&weir, "to").is_symlink());
        assert_eq!(kept(), "kept");
    });
}

#[test]
fn a_full_disk_is_507() {
    each_driver(|driver| {
        let site = Site::new(built_binary(), driver);
        let Some(_disk) = Tmpfs::mount(&site.prefix().join("html/small")) else { return };
        let weir = start(site);
        let large = "x".repeat(2 << 20);
        assert_eq!(put(&weir, "/small/file", &large, "").status, 507);
        assert!(!on_disk(&weir, "small/file").exists());
        assert_eq!(put(&weir, "/large", &large, "").status, 201);
        assert_eq!(ask(&weir, "COPY", "/large", &to("/small/copy")).status, 507);
        assert_eq!(ask(&weir, "MOVE", "/large", &to("/small/moved")).status, 507);
        assert_eq!(read(&weir, "large").len(), large.len());
        assert_eq!(put(&weir, "/small/file", "fits", "").status, 201);
    });
}

#[test]
fn destinations_have_either_scheme_and_whole_escapes() {
    each_site(site, |weir| {
        for (n, scheme) in ["http", "https", "HTTPS"].iter().enumerate() {
            let there = to(&format!("{scheme}://here/copy{n}"));
            assert_eq!(ask(&weir, "COPY", "/src", &there).status, 204, "{scheme}");
            assert_eq!(read(&weir, &format!("copy{n}")), "SOURCE");
        }
        for broken in ["/%zz", "/%2", "/a%", "http://here/%g0"] {
            assert_eq!(ask(&weir, "COPY", "/src", &to(broken)).status, 400, "{broken}");
        }
    });
}

/// nginx takes the groups of the request for the destination, too: it copies a file onto itself,
/// which empties it.
#[test]
fn an_alias_with_groups_has_those_of_the_destination() {
    testkit::each_driver(|driver| {
        let text = "user root; worker_processes 1; events {} http { server {
            listen 127.0.0.1:%PORT0%; dav_methods DELETE MKCOL COPY MOVE; root html;
            location ~ ^/numbered/(.*)$ { alias %PREFIX%/html/d/$1; }
            location ~ ^/named/(?<file>.*)$ { alias %PREFIX%/html/d/$file;
                                              add_header X-File $file always; } } }";
        let weir = Site::new(built_binary(), driver).file("html/d/keep", "").config(text).start();
        for at in ["/numbered", "/named"] {
            weir.write("html/d/a", "one");
            weir.write("html/d/sub/b", "two");
            let ask = |method: &str, uri: &str, to: &str, status: u16| {
                let to =
                    if to.is_empty() { String::new() } else { format!("Destination: {to}\r\n") };
                let r = weir.request(method, &format!("{at}{uri}"), &to);
                assert_eq!(r.status, status, "{method} {at}{uri} {to}");
                r
            };
            let read =
                |name: &str| std::fs::read_to_string(weir.prefix().join("html/d").join(name)).ok();
            let r = ask("COPY", "/a", &format!("{at}/c"), 204);
            assert_eq!((read("a").as_deref(), read("c").as_deref()), (Some("one"), Some("one")));
            if at == "/named" {
                assert_eq!(r.header("X-File"), Some("a"));
            }
            ask("COPY", "/sub/", &format!("http://localhost{at}/copy/"), 201);
            assert_eq!(read("copy/b").as_deref(), Some("two"));
            ask("MOVE", "/c", &format!("{at}/sub/b"), 204);
            assert_eq!((read("c"), read("sub/b").as_deref()), (None, Some("one")));
            ask("COPY", "/a", &format!("{at}/a"), 403);
            ask("MOVE", "/a", "/elsewhere/a", 400);
            assert_eq!(read("a").as_deref(), Some("one"));
            ask("DELETE", "/copy/", "", 204);
            ask("DELETE", "/a", "", 204);
            ask("DELETE", "/a", "", 404);
            assert_eq!((read("a"), read("copy/b")), (None, None));
        }
    });
}
