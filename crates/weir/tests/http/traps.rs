//! Warnings about settings that look right and are not; other settings give no warning.

use testkit::{Driver, Site, built_binary};

/// The warnings of `-t` for a server's directives.
fn warnings(server: &str) -> Vec<String> {
    let text = format!("events {{}} http {{ server {{ {server} }} }}");
    let site = Site::new(built_binary(), Driver::Epoll).config(&text);
    let output = site.run(&["-t"]);
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{server}: {told}");
    told.lines().filter(|line| line.contains("[warn]")).map(str::to_owned).collect()
}

#[track_caller]
fn warned(server: &str, message: &str) {
    let told = warnings(server);
    assert!(told.len() == 1 && told[0].contains(message), "{server}: {told:?}");
    assert!(told[0].contains("weir.conf:"), "no place: {told:?}");
}

#[track_caller]
fn silent(server: &str) {
    assert_eq!(warnings(server), Vec::<String>::new(), "{server}");
}

#[test]
fn an_expression_takes_files_without_their_root() {
    let message = "takes files from location \"/static/\" but does not have its root";
    let prefix = "location /static/ { alias /srv/static/; }";
    warned(&format!(r"{prefix} location ~* \.(css|js)$ {{ expires 30d; }}"), message);
    warned(
        r"location / { root /srv/www; } location ~ \.css$ { expires 30d; }",
        "takes files from location \"/\"",
    );
    for fine in [
        r"location ^~ /static/ { alias /srv/static/; } location ~ \.css$ { expires 1d; }",
        r"root /srv/www; location / { } location ~ \.css$ { expires 1d; }",
        r"location /static/ { root /srv; } location ~ \.css$ { root /srv/css; }",
        r"location /static/ { root /srv; } location ~ \.css$ { return 404; }",
        r"location /static/ { root /srv; } location ~ ^/other/.*\.css$ { expires 1d; }",
        r"location /static/ { root /srv; location ~ \.css$ { expires 1d; } }",
        r"location = /a.css { root /srv; } location ~ \.css$ { expires 1d; }",
        r"location /static/ { root /srv$uri; } location ~ \.css$ { expires 1d; }",
    ] {
        silent(fine);
    }
}

#[test]
fn conditions_lose_settings() {
    let rivals = "if this \"if\" and an earlier one both match";
    let a = "if ($arg_a) { add_header A a; }";
    warned(&format!("location / {{ {a} if ($arg_b) {{ add_header B b; }} }}"), rivals);
    warned(
        "location / { if ($arg_a = 1) { expires 1d; } if ($arg_b = 2) { expires 2d; } }",
        rivals,
    );
    warned(
        "location / { if ($arg_a) { expires 1d; rewrite ^ /b last; } } location /b { }",
        "settings in this \"if\" are lost",
    );
    warned(
        "location / { try_files $uri /x; if ($arg_a) { expires 1d; } }",
        "\"try_files\" of this location does not apply to requests that meet this \"if\"",
    );
    for fine in [
        "location / { if ($arg_a = 1) { expires 1d; } if ($arg_a = 2) { expires 2d; } }",
        "location / { if ($arg_a) { add_header A a; return 200; } if ($arg_b) { expires 1d; } }",
        "location / { if ($arg_a) { set $x 1; } if ($arg_b) { set $x 2; } }",
        "location / { if ($arg_a) { add_header A a; rewrite ^ http://b/ redirect; } }",
        "location / { try_files $uri /x; if ($arg_a) { return 403; } }",
        "location / { try_files $uri /x; if ($arg_a) { add_header A a; return 403; } }",
        "location / { try_files $uri /x; if ($arg_a) { proxy_pass http://127.0.0.1:1; } }",
        "if ($arg_a) { return 403; } location / { }",
    ] {
        silent(fine);
    }
}

#[test]
fn inner_fields_drop_outer_ones() {
    let outer = "add_header X-Frame-Options DENY; add_header X-Other x;";
    warned(
        &format!("{outer} location / {{ add_header Cache-Control no-store; }}"),
        "\"add_header\" here drops the fields of the enclosing level, X-Frame-Options among them",
    );
    for fine in [
        "location / { expires 1d; }",
        "location / { add_header x-frame-options SAMEORIGIN; }",
        "add_header_inherit merge; location / { add_header Cache-Control no-store; }",
        "location / { add_header_inherit on; add_header Cache-Control no-store; }",
    ] {
        silent(&format!("{outer} {fine}"));
    }
    silent("add_header X-Other x; location / { add_header Cache-Control no-store; }");
}
