//! `session_log`: one line for the requests of a session.

use testkit::{Driver, Site, Weir, built_binary, each_driver, wait_until};

fn site(driver: Driver, zone: &str) -> Weir {
    Site::new(built_binary(), driver)
        .http(&format!(
            "session_log_format sums '$request_uri $body_bytes_sent $session_log_id \"$http_x\"';
             session_log_zone logs/sessions.log zone=one:64k {zone};
             session_log one;
             server {{ listen 127.0.0.1:%PORT0%;
                 add_header X-Id $session_log_id;
                 location / {{ return 200 '12345'; }}
                 location /off {{ session_log off; return 200 '1'; }} }}"
        ))
        .start()
}

fn lines(weir: &Weir) -> Vec<String> {
    let text = std::fs::read_to_string(weir.prefix().join("logs/sessions.log"));
    text.unwrap_or_default().lines().map(str::to_owned).collect()
}

const ID: &str = "0123456789abcdef0123456789abcdef";

#[test]
fn sessions_end_after_a_pause() {
    each_driver(|driver| {
        let weir = site(driver, "format=sums timeout=200ms md5=$arg_user id=$arg_id");
        assert_eq!(weir.get(&format!("/first?id={ID}")).header("X-Id"), Some(ID));
        weir.get(&format!("/second?id={ID}"));
        weir.get(&format!("/off?id={ID}"));
        wait_until("the line of the session", || !lines(&weir).is_empty());
        assert_eq!(lines(&weir), [format!("/first?id={ID} 10 {ID} \"-\"")]);
        // MD5 of "a"; an id that is none counts for nothing.
        let md5 = "0cc175b9c0f1b6a831c399e269772661";
        let response = weir.request("GET", "/x?user=a&id=12", "X: a\"b\r\n");
        assert_eq!(response.header("X-Id"), Some(md5));
        wait_until("the next line", || lines(&weir).len() == 2);
        assert_eq!(lines(&weir)[1], format!("/x?user=a&id=12 5 {md5} \"a\\x22b\""));
    });
}

#[test]
fn sessions_outlive_a_reload_and_end_with_the_server() {
    each_driver(|driver| {
        let weir = site(driver, "format=sums timeout=1h md5=$arg_user");
        weir.get("/a?user=a");
        weir.get("/b?user=b");
        weir.reload();
        weir.get("/c?user=a");
        assert_eq!(lines(&weir), [] as [String; 0]);
        weir.signal("QUIT");
        wait_until("the lines of the rest", || lines(&weir).len() == 2);
        let of = |n: usize| lines(&weir)[n].split(' ').take(2).collect::<Vec<_>>().join(" ");
        // The one whose last request is longer ago comes first.
        assert_eq!((of(0).as_str(), of(1).as_str()), ("/b?user=b 5", "/a?user=a 10"));
    });
}

#[test]
fn wrong_parameters_are_told() {
    let site = |http: &str| Site::new(built_binary(), Driver::usual()).http(http);
    for (zone, message) in [
        ("logs/s zone=one:64k", "must have the \"id\" or the \"md5\" parameter"),
        ("logs/s id=$arg_id", "must have the \"zone\" parameter"),
        ("logs/s zone=one id=$arg_id", "invalid parameter \"zone=one\""),
        ("logs/s zone=one:64k id=$arg_id format=no", "unknown session log format \"no\""),
        ("logs/s zone=one:64k id=$arg_id timeout=0", "invalid parameter \"timeout=0\""),
    ] {
        site(&format!("session_log_zone {zone};")).is_refused(message);
    }
    site("session_log none;").is_refused("unknown session log zone \"none\"");
}
