//! Purges that reach other servers (`*_cache_path … sync`).

use testkit::{Driver, Peer, Site, Weir, built_binary, signal, wait_until};

/// A server with a cache, in front of a location of its own whose body counts.
fn node(redis: u16) -> Weir {
    let config = format!(
        "shared_state redis://127.0.0.1:{redis} prefix=purges interval=20ms timeout=400ms;
         worker_processes 2;
         events {{}}
         http {{
             proxy_cache_path cache keys_zone=c:1m sync;
             map $request_method $purges {{ PURGE 1; default 0; }}
             server {{
                 listen 127.0.0.1:%PORT0%;
                 location / {{
                     proxy_pass http://127.0.0.1:%PORT1%;
                     proxy_cache c;
                     proxy_cache_key $uri;
                     proxy_cache_valid 1h;
                     proxy_cache_purge $purges;
                     add_header X-Cache $upstream_cache_status;
                 }}
                 location = /status {{ stub_status json; }}
             }}
             server {{
                 listen 127.0.0.1:%PORT1%;
                 location / {{ add_header Cache-Tag \"tag$arg_tag all\"; return 200 \"$uri\"; }}
             }}
         }}"
    );
    Site::new(built_binary(), Driver::usual()).config(&config).start()
}

fn is_cached(weir: &Weir, path: &str) -> bool {
    let response = weir.get(path);
    assert_eq!(response.status, 200);
    response.header("X-Cache") == Some("HIT")
}

/// Has every server cache the paths.
fn fill(all: &[&Weir], paths: &[&str]) {
    for weir in all {
        for path in paths {
            wait_until("it is cached", || is_cached(weir, path));
        }
    }
}

/// Waits until a path is gone from the cache of a server; the look itself caches it again.
fn wait_until_purged(weir: &Weir, path: &str) {
    wait_until(&format!("{path} is purged"), || !is_cached(weir, path));
}

fn wait_for_state(weir: &Weir, state: &str) {
    let text = format!("\"state\":\"{state}\"");
    wait_until(state, || String::from_utf8(weir.get("/status").body).unwrap().contains(&text));
}

#[test]
fn a_purge_on_one_server_holds_on_all() {
    let redis = Peer::redis();
    let (one, two) = (node(redis.port()), node(redis.port()));
    wait_for_state(&one, "joined");
    wait_for_state(&two, "joined");
    let paths = ["/a/1", "/a/2", "/b/1"];
    fill(&[&one, &two], &paths);
    assert_eq!(one.request("PURGE", "/b/1", "").status, 200);
    wait_until_purged(&two, "/b/1");
    fill(&[&one, &two], &paths);
    assert_eq!(two.request("PURGE", "/a/*", "").status, 200);
    wait_until_purged(&one, "/a/1");
    wait_until_purged(&one, "/a/2");
    assert!(is_cached(&one, "/b/1"), "other keys stay");
    fill(&[&one, &two], &paths);
    assert_eq!(one.request("PURGE", "/", "Cache-Tag: all\r\n").status, 200);
    paths.iter().for_each(|path| wait_until_purged(&two, path));
}

#[test]
fn a_server_that_was_away_purges_when_it_is_back() {
    let redis = Peer::redis();
    let (one, two) = (node(redis.port()), node(redis.port()));
    wait_for_state(&one, "joined");
    wait_for_state(&two, "joined");
    fill(&[&one, &two], &["/a", "/b"]);
    signal(redis.pid(), "STOP");
    wait_for_state(&one, "away");
    let answer = one.request("PURGE", "/a", "");
    assert_eq!(answer.status, 202, "the other one hears of it later");
    assert!(answer.text().contains("\"waits\":true"), "{}", answer.text());
    assert!(!is_cached(&one, "/a"), "purged here at once");
    assert!(is_cached(&two, "/a"), "the other server cannot know");
    signal(redis.pid(), "CONT");
    wait_until_purged(&two, "/a");
    assert!(is_cached(&two, "/b"));
}

/// A purge that waits for Redis outlives its server.
#[test]
fn a_purge_waits_on_the_disk() {
    let redis = Peer::redis();
    let (mut one, two) = (node(redis.port()), node(redis.port()));
    wait_for_state(&one, "joined");
    wait_for_state(&two, "joined");
    let paths = ["/a/1", "/a/2", "/b/1", "/c/1"];
    fill(&[&one, &two], &paths);
    signal(redis.pid(), "STOP");
    wait_for_state(&one, "away");
    assert_eq!(one.request("PURGE", "/a/*", "").status, 202);
    assert_eq!(one.request("PURGE", "/b/1", "").status, 202);
    one.crash();
    paths.iter().for_each(|path| assert!(is_cached(&two, path), "the other one cannot know"));
    signal(redis.pid(), "CONT");
    one.start_again();
    wait_for_state(&one, "joined");
    paths[..3].iter().for_each(|path| wait_until_purged(&two, path));
    assert!(is_cached(&two, "/c/1"));
    let file = one.prefix().join("cache/.weir.purges.waiting");
    wait_until("nothing waits", || std::fs::metadata(&file).unwrap().len() == 0);
    assert_eq!(one.request("PURGE", "/c/1", "").status, 200);
    wait_until_purged(&two, "/c/1");
}

/// A key that cannot be looked for in the index is refused before anything is purged, also if this
/// server could: others would have to purge everything.
#[test]
fn a_key_that_is_too_long_is_not_purged() {
    let redis = Peer::redis();
    let one = node(redis.port());
    let path = format!("/{}", "a".repeat(4097));
    // What was stored before may have been purged meanwhile.
    wait_for_state(&one, "joined");
    wait_until("it is cached", || is_cached(&one, &path));
    for path in [format!("{path}*"), path.clone()] {
        assert_eq!(one.request("PURGE", &path, "").status, 400);
    }
    assert!(is_cached(&one, &path));
}
