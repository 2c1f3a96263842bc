//! The module in the engine, with a real database; and everything that can go wrong with one.

use std::net::TcpListener;
use std::sync::OnceLock;

use testkit::Maria;
use weir_module::testing::{Ran, load, serve};
use weir_mysql::MODULE;

/// One database for all tests of this file; it ends with the process that started it.
fn maria() -> &'static Maria {
    static MARIA: OnceLock<Maria> = OnceLock::new();
    MARIA.get_or_init(Maria::start)
}

fn database() -> String {
    let port = maria().port();
    format!("mysql_port {port}; mysql_user weir; mysql_pass weir; mysql_db weir;")
}

fn ask(server: &str, requests: &[&str]) -> Ran {
    serve(&MODULE, &format!("{} {server}", database()), requests)
}

/// A single location that asks `query`, on a thread and on the loop.
fn both(query: &str, more: &str, path: &str) -> [Ran; 2] {
    ["mysql_with_thread", "mysql_with_block"].map(|with| {
        ask(&format!("location / {{ mysql_query \"{query}\"; {with}; {more} }}"), &[path])
    })
}

#[test]
fn rows_in_both_formats() {
    for ran in both("select id, name, price, null as n from car where id < 3 order by id", "", "/")
    {
        let answer = &ran.answers[0];
        assert_eq!(answer.status, 200, "{}", ran.log);
        assert_eq!(answer.header("Content-Type"), Some("application/json"));
        assert_eq!(
            answer.text(),
            "[{\"id\":1,\"name\":\"car 1\",\"price\":1.50,\"n\":null},\
             {\"id\":2,\"name\":\"car 2\",\"price\":3.00,\"n\":null}]\n"
        );
    }
    for ran in both("select id, name from car where id = 7", "mysql_format tsv;", "/") {
        assert_eq!(ran.answers[0].text(), "id\tname\n7\tcar 7\n");
    }
}

#[test]
fn variables_are_bound_and_never_text() {
    let query = "select id, name from car where id = $arg_id or name = $arg_name";
    for (args, found) in [
        ("id=3", "[{\"id\":3,\"name\":\"car 3\"}]\n"),
        ("id=0&name=car+1", "[]\n"),
        // The database makes a number of the beginning, as of any text; it is no condition.
        ("id=5%20or%201=1", "[{\"id\":5,\"name\":\"car 5\"}]\n"),
        ("id='%20or%20''='", "[]\n"),
        ("name=x';drop%20table%20car;--", "[]\n"),
    ] {
        for ran in both(query, "", &format!("/?{args}")) {
            assert_eq!(
                (ran.answers[0].status, ran.answers[0].text()),
                (200, found.into()),
                "{args}"
            );
        }
    }
    assert_eq!(maria().client("select count(*) from car").unwrap().trim(), "1000");
}

#[test]
fn statements_without_rows_say_what_they_changed() {
    maria().client("create table if not exists note (id int auto_increment primary key, t text)");
    let ran = ask(
        "location / { mysql_query \"insert into note (t) values ($arg_t)\"; mysql_with_thread; }",
        &["/?t=a", "/?t=b"],
    );
    assert_eq!(ran.answers[0].text(), "{\"affected_rows\":1,\"last_insert_id\":1}\n");
    assert_eq!(ran.answers[1].text(), "{\"affected_rows\":1,\"last_insert_id\":2}\n");
}

#[test]
fn what_goes_wrong_has_its_status_and_its_line() {
    let wrong = "mysql_pass wrong;";
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let silent_port = silent.local_addr().unwrap().port();
    let gone = format!("mysql_port {nobody};");
    let mute = format!("mysql_port {silent_port}; mysql_timeout 300ms;");
    for (query, more, status, said) in [
        ("select 1", wrong, 502, "Access denied for user"),
        ("select 1", &gone, 502, "connect() failed"),
        ("select 1", &mute, 504, "timed out"),
        ("select from", "", 502, "query failed"),
        ("select * from nothing", "", 502, "doesn't exist"),
        ("select sleep(60)", "mysql_timeout 300ms;", 504, "timed out"),
        ("select repeat('x', 1000000) from car limit 100", "", 502, "larger than mysql_max_resp"),
    ] {
        for ran in both(query, more, "/") {
            assert_eq!(ran.answers[0].status, status, "{query}: {}", ran.log);
            let line = ran.log.lines().find(|line| line.contains(said));
            let line = line.unwrap_or_else(|| panic!("{query}: {}", ran.log));
            assert!(line.contains("[error]") && line.contains("client: 127.0.0.1"), "{line}");
            assert!(!ran.log.contains("wrong"), "{}", ran.log);
        }
    }
}

#[test]
fn a_large_result_comes_where_it_may() {
    let query = "select repeat('x', 1000000) as x from car limit 30";
    let ran = ask(
        &format!(
            "location / {{ mysql_query \"{query}\"; mysql_max_response 31m; mysql_with_thread; }}"
        ),
        &["/"],
    );
    assert_eq!((ran.answers[0].status, ran.answers[0].body.len()), (200, 30 * 1_000_008 + 32));
    assert!(!ran.log.contains("event loop was held"), "{}", ran.log);
}

#[test]
fn a_connection_lost_half_way_is_502_and_the_next_request_has_another() {
    std::thread::spawn(|| {
        let id = testkit::wait_for("the query", || {
            let sql = "select id from information_schema.processlist where info like \
                       'select sleep(8%' and time_ms > 300";
            maria().client(sql).and_then(|out| out.trim().parse::<u64>().ok())
        });
        maria().client(&format!("kill connection {id}")).unwrap();
    });
    let ran = ask(
        "location /long { mysql_query \"select sleep(8.5)\"; mysql_with_thread; } \
         location / { mysql_query \"select 1 as one\"; mysql_with_thread; }",
        &["/", "/long", "/"],
    );
    let statuses: Vec<_> = ran.answers.iter().map(|a| a.status).collect();
    assert_eq!(statuses, [200, 502, 200], "{}", ran.log);
}

#[test]
fn a_kept_connection_that_the_database_closed_costs_no_answer() {
    // Other settings, other connections: while the second request is answered on its own, those of
    // the first are ended.
    std::thread::spawn(|| {
        let busy = "select id from information_schema.processlist where info like '%sleep(1.25%'";
        testkit::wait_for("the pause", || {
            maria()
                .client(busy)
                .filter(|out| !out.contains("information_schema") && !out.is_empty())
        });
        let idle = "select id from information_schema.processlist where command = 'Sleep'";
        for id in maria().client(idle).unwrap().split_whitespace() {
            // It may have gone by itself.
            let _ = maria().client(&format!("kill connection {id}"));
        }
    });
    let ran = ask(
        "location / { mysql_query \"select 1 as one\"; mysql_with_thread; } \
         location /pause { mysql_timeout 9s; mysql_query \"select sleep(1.25)\"; mysql_with_thread; }",
        &["/", "/pause", "/"],
    );
    let statuses: Vec<_> = ran.answers.iter().map(|a| a.status).collect();
    assert_eq!(statuses, [200; 3], "{}", ran.log);
}

#[test]
fn faults_in_a_configuration_are_named() {
    let said = |server: &str| load(&MODULE, server).unwrap_err();
    assert_eq!(
        said("location / { mysql_with_thread; }"),
        "\"mysql_with_thread\" needs a \"mysql_query\" in test.conf:1"
    );
    assert_eq!(
        said("mysql_query \"select '$arg_x'\";"),
        "variable \"$arg_x\" stands in quotes or a comment: it is bound as a parameter, write it \
         without in test.conf:1"
    );
    assert!(said("mysql_query \"select ?, $arg_x\";").contains("a \"?\" of its own"));
    assert!(said("mysql_query \"select $nothing\";").contains("unknown \"nothing\" variable"));
    assert!(said("mysql_port 0;").contains("invalid value"));
    assert!(said("mysql_connections 0;").contains("invalid value"));
    assert!(said("location / { mysql_with_thread pool=x; }").contains("unknown thread pool \"x\""));
    assert!(said("mysql_pass file:/nowhere;").contains("open() \"/nowhere\" failed"));
    assert!(said("mysql_pass env:NO_SUCH_NAME;").contains("\"NO_SUCH_NAME\""));
}

#[test]
fn passwords_come_from_files() {
    let secret = std::env::temp_dir().join(format!("weir-mysql-pass-{}", std::process::id()));
    std::fs::write(&secret, "weir\nmore\n").unwrap();
    let ran = ask(
        &format!(
            "location / {{ mysql_pass file:{}; mysql_query \"select 1 as one\"; mysql_with_thread; }}",
            secret.display()
        ),
        &["/"],
    );
    std::fs::remove_file(secret).unwrap();
    assert_eq!(ran.answers[0].text(), "[{\"one\":1}]\n", "{}", ran.log);
}

#[test]
fn the_socket_of_the_database_is_an_address_too() {
    let server = format!(
        "location / {{ mysql_host unix:{}; mysql_query \"select 1 as one\"; mysql_with_thread; }}",
        maria().socket().display()
    );
    assert_eq!(ask(&server, &["/"]).answers[0].text(), "[{\"one\":1}]\n");
}
