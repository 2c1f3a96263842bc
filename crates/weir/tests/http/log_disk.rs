//! Logs and the disks that they are on: no line is lost while files are rotated, configurations
//! replaced and workers stopped, and a disk that stands still holds up nobody.
//!
//! The slow disk is a file system of the test's own (FUSE). Mounting it needs root and `/dev/fuse`;
//! where that is not to be had, the tests say so and pass.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use testkit::{
    Conn, Driver, Site, StallingFolder, Weir, built_binary, each_driver, listener, wait_for,
};

const CLIENTS: usize = 3;

/// The numbers that a client's lines tell, in the order of the logs.
fn numbers_of(lines: &str, client: usize) -> Vec<usize> {
    let prefix = format!("/n?{client}.");
    lines.lines().filter_map(|l| l.strip_prefix(&*prefix)?.parse().ok()).collect()
}

/// One client: asks for numbers in their order, some times on a connection and then on a new one.
fn client(weir: &Weir, id: usize, stop: &AtomicBool, count: &AtomicUsize) {
    let mut n = 0;
    while !stop.load(Ordering::Relaxed) {
        let mut conn = weir.connect();
        for left in (0..7).rev() {
            let close = if left == 0 { "Connection: close\r\n" } else { "" };
            conn.send(format!("GET /n?{id}.{n} HTTP/1.1\r\nHost: x\r\n{close}\r\n"));
            let response = conn.response();
            assert_eq!(response.status, 200);
            n += 1;
            count.store(n, Ordering::Relaxed);
            // A worker that leaves says so with its last answer.
            if response.header("connection") == Some("close") {
                break;
            }
        }
    }
}

/// Sets the flag when it is dropped.
struct SetAtEnd<'a>(&'a AtomicBool);

impl Drop for SetAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn every_answer_has_its_line_across_rotation_reload_and_stop() {
    each_driver(|driver| {
        let mut weir = Site::new(built_binary(), driver)
            .config(
                "worker_processes 2;\nevents {}\nhttp {\nlog_format n $request_uri;\n\
                 server { listen 127.0.0.1:%PORT0%;\n\
                 location / { access_log logs/n.log n; access_log logs/held.log n buffer=4k; \
                 access_log logs/by-$host.log n; open_log_file_cache max=9; root html; \
                 try_files /a.txt =404; } } }\n",
            )
            .file("html/a.txt", "a")
            .start();
        let logs = weir.prefix().join("logs");
        std::fs::set_permissions(&logs, std::os::unix::fs::PermissionsExt::from_mode(0o777))
            .unwrap();
        let stop = AtomicBool::new(false);
        let counts: [AtomicUsize; CLIENTS] = Default::default();
        std::thread::scope(|scope| {
            // The scope waits for the clients, also if this fails.
            let _at_end = SetAtEnd(&stop);
            for (id, count) in counts.iter().enumerate() {
                let (weir, stop) = (&weir, &stop);
                scope.spawn(move || client(weir, id, stop, count));
            }
            let answers = || counts.iter().map(|n| n.load(Ordering::Relaxed)).sum::<usize>();
            let more_answers = |more: usize| {
                let before = answers();
                wait_for("answers", || (answers() >= before + more).then_some(()));
            };
            for round in 0..4 {
                more_answers(30);
                for name in ["n", "held"] {
                    let (from, to) = (format!("{name}.log"), format!("{name}.{round}"));
                    std::fs::rename(logs.join(from), logs.join(to)).unwrap();
                }
                let reopened = |pid: u32| {
                    let line = format!("{pid}#{pid}: reopening logs");
                    weir.log("error.log").matches(&line).count()
                };
                let workers = weir.workers().into_iter().map(|pid| (pid, reopened(pid)));
                let workers: Vec<_> = workers.collect();
                weir.signal("USR1");
                wait_for("new files", || logs.join("n.log").exists().then_some(()));
                // A file that is renamed at this moment is made anew by the master, and is not the
                // workers' yet.
                for (pid, before) in workers {
                    let is_over = || reopened(pid) > before || !weir.workers().contains(&pid);
                    wait_for("the workers' files", || is_over().then_some(()));
                }
                weir.error_log();
                more_answers(15);
                if round % 2 == 0 {
                    weir.reload();
                }
            }
        });
        weir.signal("QUIT");
        assert!(weir.wait_for_end().success());
        wait_for("the workers' end", || weir.processes().is_empty().then_some(()));
        for name in ["n", "held"] {
            let parts = ["0", "1", "2", "3", "log"].map(|end| weir.log(&format!("{name}.{end}")));
            complete(&parts.concat(), &counts, name);
        }
        complete(&weir.log("by-x.log"), &counts, "by-x");
    });
}

/// Each number of each client is there once.
fn complete(lines: &str, counts: &[AtomicUsize], name: &str) {
    assert!(lines.is_empty() || lines.ends_with('\n'));
    for (id, count) in counts.iter().enumerate() {
        let mut numbers = numbers_of(lines, id);
        // Workers are several, and so are the old and the new file for a moment.
        numbers.sort_unstable();
        let want: Vec<usize> = (0..count.load(Ordering::Relaxed)).collect();
        assert!(want.len() > 10, "client {id} got {} answers", want.len());
        assert!(numbers == want, "{name}: {} lines of {} answers", numbers.len(), want.len());
    }
}

/// A server whose logs are on a disk that stalls, if the machine allows it. The server is last: it
/// goes first.
fn site(driver: Driver, main: &str) -> Option<(StallingFolder, Weir)> {
    let site = Site::new(built_binary(), driver);
    let disk = StallingFolder::try_mount(&site.prefix().join("disk"), Vec::new())?;
    let weir = site
        .file("html/a.txt", "a")
        .config(&format!(
            "worker_processes 1;\n{main}\nerror_log logs/error.log info;\nevents {{}}\nhttp {{\n\
             log_format n $request_uri;\nserver {{ listen 127.0.0.1:%PORT0%; root html;\n\
             location / {{ access_log disk/n.log n; error_log disk/error.log info; \
             try_files /a.txt =404; }}\n\
             location /var {{ access_log disk/$arg_n.log n; try_files /a.txt =404; }}\n\
             location /no {{ access_log disk/n.log n; error_log disk/error.log info; }} }} }}\n"
        ))
        .start();
    Some((disk, weir))
}

fn ask_all(conn: &mut Conn, numbers: std::ops::Range<usize>) {
    for n in numbers {
        conn.send(format!("GET /n?0.{n} HTTP/1.1\r\nHost: x\r\n\r\n"));
        assert_eq!(conn.response().status, 200);
    }
}

#[test]
fn a_log_disk_that_stands_still_holds_up_nobody() {
    each_driver(|driver| {
        let Some((disk, mut weir)) = site(driver, "") else { return };
        let mut conn = weir.connect();
        ask_all(&mut conn, 0..10);
        disk.stall();
        // Lines of kept connections and of some that end, of the error log, and of paths that have
        // to be opened; the files are to be reopened, too.
        ask_all(&mut conn, 10..200);
        for _ in 0..5 {
            assert_eq!(weir.get("/no").status, 404);
            assert_eq!(weir.get("/var?n=x").status, 200);
        }
        wait_for("something reaches the disk", || (disk.waiting() >= 2).then_some(()));
        ask_all(&mut conn, 200..300);
        let stalled = disk.content("n.log").unwrap_or_default();
        disk.go_on();
        wait_for("the lines", || {
            let text = String::from_utf8(disk.content("n.log")?).ok()?;
            (numbers_of(&text, 0).len() == 300).then_some(())
        });
        let text = String::from_utf8(disk.content("n.log").unwrap()).unwrap();
        assert!(numbers_of(&text, 0).into_iter().eq(0..300), "{text}");
        assert!(stalled.len() < text.len() / 2);
        wait_for("the lines by path", || {
            (disk.content("x.log")? == "/var?n=x\n".repeat(5).as_bytes()).then_some(())
        });
        wait_for("the errors", || {
            let text = String::from_utf8(disk.content("error.log")?).ok()?;
            (text.matches("open() ").count() == 5).then_some(())
        });
        assert!(!weir.error_log().contains("dropped"));
        // A worker that leaves waits for the lines not yet written.
        disk.stall();
        ask_all(&mut conn, 300..310);
        drop(conn);
        weir.signal("QUIT");
        weir.wait_for_log("error.log", "gracefully shutting down");
        std::thread::sleep(Duration::from_millis(100));
        disk.go_on();
        assert!(weir.wait_for_end().success());
        let text = String::from_utf8(disk.content("n.log").unwrap()).unwrap();
        assert!(numbers_of(&text, 0).into_iter().eq(0..310), "{text}");
    });
}

#[test]
fn a_queue_that_is_full_drops_lines_and_says_how_many() {
    each_driver(|driver| {
        let Some((disk, weir)) = site(driver, "log_queue_size 2k;") else { return };
        let mut conn = weir.connect();
        ask_all(&mut conn, 0..10);
        disk.stall();
        ask_all(&mut conn, 10..900);
        let line = weir.wait_for_log("error.log", "are dropped");
        assert!(line.contains("[error]") && line.contains("disk/n.log\" are dropped: "), "{line}");
        disk.go_on();
        let line = weir.wait_for_log("error.log", "are written again");
        let dropped: usize = line
            .rsplit_once(": ")
            .and_then(|(_, rest)| rest.strip_suffix(" were dropped")?.parse().ok())
            .expect("a number");
        ask_all(&mut conn, 900..910);
        wait_for("the last lines", || {
            let text = String::from_utf8(disk.content("n.log")?).ok()?;
            text.ends_with("/n?0.909\n").then_some(())
        });
        let text = String::from_utf8(disk.content("n.log").unwrap()).unwrap();
        let numbers = numbers_of(&text, 0);
        assert!(numbers.is_sorted());
        assert_eq!(numbers.len() + dropped, 910);
        assert!(dropped > 500, "{dropped}");
        assert_eq!(weir.stop_and_read("error.log").matches("are dropped").count(), 1);
    });
}

#[test]
fn requests_that_a_worker_gives_up_are_logged() {
    each_driver(|driver| {
        let (slow, port) = listener();
        let mut weir = Site::new(built_binary(), driver)
            .config(&format!(
                "worker_shutdown_timeout 300ms;\nevents {{}}\nhttp {{\n\
                 log_format n \"$uri $status $bytes_sent\";\naccess_log logs/n.log n;\n\
                 server {{ listen 127.0.0.1:%PORT0%; root html;\n\
                 location /slow {{ proxy_pass http://127.0.0.1:{port}; }}\n\
                 location /rate {{ limit_rate 1k; alias html/big.bin; }}\n\
                 location /body {{ proxy_pass http://127.0.0.1:{port}; }} }} }}\n"
            ))
            .file("html/big.bin", vec![b'x'; 100_000])
            .start();
        let ask = |text: &str| {
            let mut conn = weir.connect();
            conn.send(text);
            conn
        };
        let _slow = ask("GET /slow HTTP/1.1\r\nHost: x\r\n\r\n");
        let mut rate = ask("GET /rate HTTP/1.1\r\nHost: x\r\n\r\n");
        let _body = ask("POST /body HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nabc");
        let _half = ask("GET /half HTTP/1.1\r\nHost:");
        let _idle = weir.connect();
        assert!(rate.read_until(b"\r\n\r\n").starts_with(b"HTTP/1.1 200"));
        let _taken = wait_for("the upstream's client", || slow.accept().ok());
        weir.signal("QUIT");
        assert!(weir.wait_for_end().success());
        let text = weir.log("n.log");
        let mut lines: Vec<&str> = text.lines().collect();
        lines.sort_unstable();
        assert_eq!(lines.len(), 3, "{text}");
        assert_eq!(lines[0], "/body 499 0");
        assert!(lines[1].starts_with("/rate 200 ") && !lines[1].ends_with(" 0"), "{text}");
        assert_eq!(lines[2], "/slow 499 0");
    });
}
