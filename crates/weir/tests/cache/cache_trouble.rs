//! A cache under trouble: a disk that stands still, a disk that is full, processes that are killed.
//! The loads `three-disks`, `cache-disk-full` and `cache-kills` of `bench` are the long forms.
//!
//! Disks are folders whose file system stalls or fails (FUSE: needs `/dev/fuse` and root, or a user
//! namespace); where that is not to be had, the tests that want them say so and pass.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use crate::origin::{Answer, Origin};
use testkit::{Driver, Site, StallingFolder, Weir, built_binary, each_driver, wait_for};

const LEN: usize = 100 << 10;

/// A body that names its target and the number of its fetch in each line.
fn body(target: &str, count: usize) -> Vec<u8> {
    format!("{target} {count}\n").into_bytes().into_iter().cycle().take(LEN).collect()
}

fn origin() -> Origin {
    Origin::start(|asked| {
        let mut answer = Answer::of(body(&asked.target, asked.count));
        answer.fields += &format!("X-Count: {}\r\n", asked.count);
        answer
    })
}

/// A server whose second disk can be told to misbehave. The server is last: it goes first.
fn three_disks(driver: Driver, origin: &Origin) -> Option<(StallingFolder, Weir)> {
    let site = Site::new(built_binary(), driver);
    let disk = StallingFolder::try_mount(&site.prefix().join("disk2"), Vec::new())?;
    let each = |text: &str| (1..=3).map(|n| text.replace('#', &n.to_string())).collect::<String>();
    let pools = each("thread_pool pool_# threads=4; ");
    let paths = each("proxy_cache_path disk# keys_zone=cache_#:1m use_temp_path=off; ");
    let port = origin.port;
    let text = format!(
        "{pools} events {{}}
         http {{
             {paths}
             server {{
                 listen 127.0.0.1:%PORT0%;
                 location / {{
                     proxy_pass http://127.0.0.1:{port};
                     proxy_cache_key $uri;
                     proxy_cache cache_$arg_d;
                     aio threads=pool_$arg_d;
                     sendfile on;
                     add_header X-Cache $upstream_cache_status;
                 }}
             }}
         }}"
    );
    Some((disk, site.config(&text).start()))
}

fn ask(weir: &Weir, path: &str) -> String {
    let response = weir.get(path);
    let count = response.header("X-Count").unwrap().parse().unwrap();
    assert!(response.body == body(path, count), "{path}");
    response.header("X-Cache").unwrap().to_owned()
}

/// Waits until an answer comes from the cache.
fn kept(weir: &Weir, path: &str) {
    wait_for("the file", || (ask(weir, path) == "HIT").then_some(()));
}

#[test]
fn a_disk_that_stands_still_holds_up_no_other() {
    each_driver(|driver| {
        let origin = origin();
        let Some((disk, weir)) = three_disks(driver, &origin) else { return };
        for d in 1..=3 {
            kept(&weir, &format!("/a?d={d}"));
        }
        disk.stall();
        // Hits and fills of the disk, more of them than its pool has threads.
        let mut stuck: Vec<_> = (0..8)
            .map(|n| {
                let mut conn = weir.connect();
                let name = if n % 2 == 0 { "a".to_owned() } else { format!("n{n}") };
                conn.send(format!("GET /{name}?d=2 HTTP/1.1\r\nHost: a\r\n\r\n"));
                conn
            })
            .collect();
        wait_for("questions to the disk", || (disk.waiting() > 0).then_some(()));
        for n in 0..10 {
            for d in [1, 3] {
                assert_eq!(ask(&weir, &format!("/a?d={d}")), "HIT");
                assert_eq!(ask(&weir, &format!("/b{n}?d={d}")), "MISS");
            }
        }
        assert!(disk.waiting() > 0);
        disk.go_on();
        for conn in &mut stuck {
            let response = conn.response();
            assert_eq!((response.status, response.body.len()), (200, LEN));
        }
    });
}

#[test]
fn a_full_disk_fails_nobody() {
    const NO_SPACE: i32 = 28;
    each_driver(|driver| {
        let origin = origin();
        let Some((disk, weir)) = three_disks(driver, &origin) else { return };
        kept(&weir, "/before?d=2");
        // An answer may come from a fetch that is not in its file yet.
        wait_for("the file", || {
            let files = weir.files_below("disk2");
            files.iter().any(|f| f.rsplit('/').next().is_some_and(|n| n.len() == 32)).then_some(())
        });
        disk.break_writes(Some(NO_SPACE));
        for n in 0..30 {
            assert_eq!(ask(&weir, &format!("/{n}?d=2")), "MISS");
        }
        assert_eq!(ask(&weir, "/before?d=2"), "HIT");
        weir.wait_for_log("error.log", "No space left on device");
        let log = weir.error_log();
        let of_files = |l: &&str| l.contains("No space left") && !l.contains("weir.index");
        assert_eq!(log.lines().filter(of_files).count(), 1, "{log}");
        disk.break_writes(None);
        kept(&weir, "/after?d=2");
    });
}

/// A response that was asked for before a purge comes to the disk after one that was asked for
/// behind it.
#[test]
fn what_a_purge_came_for_takes_no_place_behind_it() {
    each_driver(|driver| {
        let origin = origin();
        let site = Site::new(built_binary(), driver);
        let disk = match StallingFolder::mount(&site.prefix().join("cache"), Vec::new()) {
            Ok(disk) => disk,
            Err(e) => return eprintln!("SKIPPED: no file system can be mounted here: {e}"),
        };
        let text = format!(
            "thread_pool four threads=4; worker_processes 2; events {{}}
             http {{
                 proxy_cache_path cache keys_zone=one:1m use_temp_path=off;
                 server {{
                     listen 127.0.0.1:%PORT0%;
                     location = /status {{ stub_status json; }}
                     location / {{
                         proxy_pass http://127.0.0.1:{};
                         proxy_cache_key $uri;
                         proxy_cache one;
                         proxy_cache_purge $http_x_purge;
                         aio threads=four;
                         add_header X-Cache $upstream_cache_status;
                     }}
                 }}
             }}",
            origin.port
        );
        let weir = site.config(&text).start();
        let count = |name: &str, n: usize| {
            let text = format!("\"{name}\":{n},");
            wait_for(name, || weir.get("/status").text().contains(&text).then_some(()));
        };
        wait_for("the loader", || {
            weir.get("/status").text().contains("\"loaded\":true").then_some(())
        });
        // A file in the making has a number behind its name.
        disk.hold_write(|name| name.len() == 43);
        assert_eq!(ask(&weir, "/a"), "MISS");
        wait_for("the write", || disk.holds_write().then_some(()));
        assert_eq!(weir.request("GET", "/a", "X-Purge: 1\r\n").status, 200);
        let second = body("/a", 2);
        assert!(weir.get("/a").body == second);
        assert_eq!(origin.count("/a"), 2);
        // It would have its place by then if it did not wait.
        std::thread::sleep(Duration::from_millis(200));
        disk.go_on();
        count("fills", 1);
        let files = wait_for("one file", || {
            let files = disk.files("");
            let files: Vec<_> = files.into_iter().filter(|f| !f.contains(".weir")).collect();
            (files.len() == 1).then_some(files)
        });
        assert!(disk.content(&files[0]).unwrap().ends_with(&second));
        // In all workers.
        for _ in 0..8 {
            let response = weir.get("/a");
            assert!(response.body == second && response.header("X-Cache") == Some("HIT"));
        }
        assert_eq!(origin.count("/a"), 2);
    });
}

/// One answer on a connection of its own: the head, and all that followed it.
fn exchange(weir: &Weir, path: &str) -> Option<(String, Vec<u8>)> {
    let mut stream = TcpStream::connect(("127.0.0.1", weir.port(0))).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(20))).ok()?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).ok()?;
    let mut all = Vec::new();
    stream.read_to_end(&mut all).ok()?;
    let end = all.windows(4).position(|w| w == b"\r\n\r\n")? + 4;
    let body = all.split_off(end);
    Some((String::from_utf8(all).ok()?, body))
}

/// Says whether an answer of full length has the right content. `None`: it broke off.
fn is_right(path: &str, head: &str, got: &[u8]) -> Option<bool> {
    let field = |name: &str| head.lines().find_map(|l| l.strip_prefix(name)?.parse::<usize>().ok());
    (field("Content-Length: ")? == got.len())
        .then(|| field("X-Count: ").is_some_and(|count| got == body(path, count)))
}

#[test]
fn kills_leave_nothing_wrong_behind() {
    let origin = Origin::start(|asked| {
        let mut answer = Answer::of(body(&asked.target, asked.count));
        answer.fields = format!("Cache-Control: max-age=1\r\nX-Count: {}\r\n", asked.count);
        (answer.pieces, answer.pause) = (5, Duration::from_millis(2));
        answer
    });
    let text = format!(
        "worker_processes 2;
         events {{}}
         http {{
             proxy_cache_path cache levels=1:2 keys_zone=one:1m max_size=2m use_temp_path=off;
             server {{
                 listen 127.0.0.1:%PORT0%;
                 location / {{
                     proxy_pass http://127.0.0.1:{};
                     proxy_cache one;
                     proxy_cache_lock on;
                     proxy_cache_use_stale updating error;
                     proxy_cache_background_update on;
                 }}
             }}
         }}",
        origin.port
    );
    let site = Site::new(built_binary(), Driver::usual()).config(&text);
    let weir = site.allow("exited on signal 9").allow("while reading upstream").start();
    let (over, whole) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        let (weir, over, whole) = (&weir, &over, &whole);
        let clients: Vec<_> = (0..4)
            .map(|client| {
                scope.spawn(move || {
                    let mut n = client;
                    while !over.load(Ordering::Relaxed) {
                        n += 7;
                        let path = format!("/{}", n % [3, 40][n / 7 % 2]);
                        let Some((head, body)) = exchange(weir, &path) else { continue };
                        match is_right(&path, &head, &body) {
                            Some(right) => assert!(right, "{path}: {head}"),
                            None => continue,
                        }
                        whole.fetch_add(1, Ordering::Relaxed);
                    }
                })
            })
            .collect();
        for n in 0..25 {
            // Kills come at moments that have nothing to do with one another, and each finds some
            // work done since the one before.
            wait_for("answers", || (whole.load(Ordering::Relaxed) >= 3 * n as usize).then_some(()));
            std::thread::sleep(Duration::from_millis(40 + n * 37 % 60));
            let children = weir.children_of(weir.pid());
            if !children.is_empty() {
                weir.signal_to(children[n as usize * 5 % children.len()], "KILL");
            }
        }
        over.store(true, Ordering::Relaxed);
        clients.into_iter().for_each(|client| client.join().unwrap());
    });
    assert!(whole.load(Ordering::Relaxed) > 50);
    wait_for("workers", || (weir.workers().len() == 2).then_some(()));
    for path in (0..40).map(|n| format!("/{n}")) {
        let (head, body) = wait_for("an answer", || exchange(&weir, &path));
        assert_eq!(is_right(&path, &head, &body), Some(true), "{path}: {head}");
    }
}
