//! Lists of folders, byte for byte, and a file at random.

use std::process::Command;

use testkit::{Json, Site, Weir, built_binary, each_site};

fn site(driver: testkit::Driver) -> Weir {
    let weir = Site::new(built_binary(), driver)
        .file("html/d/file.txt", "x".repeat(12_345))
        .file("html/d/<&>.txt", "")
        .file("html/d/.hidden", "")
        .file("html/d/sub/a", "only")
        .file("html/a\"b/x", "")
        .http(
            "server {
                 listen 127.0.0.1:%PORT0%;
                 location / { autoindex on; }
                 location /round/ { alias html/; autoindex on; autoindex_exact_size off; }
                 location /json/ { alias html/; autoindex on; autoindex_format json; }
                 location /jsonp/ { alias html/; autoindex on; autoindex_format jsonp; }
                 location /xml/ { alias html/; autoindex on; autoindex_format xml; }
                 location /off/ { alias html/; autoindex off; }
                 location /random/ { alias html/; random_index on; }
             }",
        )
        .start();
    std::os::unix::fs::symlink("nowhere", weir.prefix().join("html/d/dangling")).unwrap();
    std::os::unix::fs::symlink("sub", weir.prefix().join("html/d/link")).unwrap();
    for name in ["file.txt", "<&>.txt", "sub"] {
        let path = weir.prefix().join("html/d").join(name);
        let time = "2001-02-03 04:05:06 UTC";
        assert!(Command::new("touch").args(["-d", time]).arg(path).status().unwrap().success());
    }
    let path = weir.prefix().join("html/d/dangling");
    let time = "2001-02-03 04:05:06 UTC";
    assert!(Command::new("touch").args(["-h", "-d", time]).arg(path).status().unwrap().success());
    weir
}

/// Pages for people: sorted by the column that the URL names, names whole.
#[test]
fn pages() {
    let long = format!("{}.txt", "\u{444}".repeat(60));
    let site = |driver| {
        Site::new(built_binary(), driver)
            .file("html/d/small.txt", "x")
            .file("html/d/Big.txt", "x".repeat(3000))
            .file("html/d/<b>\n.txt", "")
            .file(&format!("html/d/{long}"), "xx")
            .file("html/d/sub/a", "")
            .http(
                "server { listen 127.0.0.1:%PORT0%; charset koi8-r;
                     location / { autoindex on; autoindex_page on; }
                     location /json/ { alias html/; autoindex on; autoindex_page on;
                                       autoindex_format json; } }",
            )
            .start()
    };
    each_site(site, |weir| {
        let names = |query: &str| {
            let page = weir.get(&format!("/d/{query}"));
            assert_eq!(page.header("Content-Type"), Some("text/html; charset=utf-8"));
            let text = page.text();
            let row = |line: &str| {
                Some(line.split_once("<td><a href=\"")?.1.split_once('"')?.0.to_owned())
            };
            text.lines().filter_map(row).collect::<Vec<_>>()
        };
        let encoded = format!("./{}.txt", "%D1%84".repeat(60));
        let odd = "./%3Cb%3E%0A.txt";
        assert_eq!(names(""), ["../", "./sub/", odd, "./Big.txt", "./small.txt", &encoded]);
        let by_size = ["../", "./sub/", "./Big.txt", &encoded, "./small.txt", odd];
        assert_eq!(names("?sort=size&order=desc"), by_size);
        let text = weir.get("/d/").text();
        assert!(text.contains(&format!(">{long}</a></td><td>2 B</td>")), "{text}");
        assert!(text.contains(">&lt;b&gt;\u{fffd}.txt</a>") && text.contains(">2.9 KB<"), "{text}");
        assert!(text.contains("<h1><a href=\"../\">/</a> d /</h1>"), "{text}");
        assert!(text.contains("name=\"viewport\"") && text.contains("prefers-color-scheme"));
        assert!(weir.get("/json/d/").text().starts_with('['), "other formats stay");
    });
}

#[test]
fn lists() {
    each_site(site, |weir| {
        let pad = |n| " ".repeat(n);
        let rows = |sizes: [&str; 4]| {
            let row = |href: &str, text: &str, width: usize, size: &str| {
                let pad = pad(50 - width);
                format!("<a href=\"{href}\">{text}</a>{pad} 03-Feb-2001 04:05 {size}\r\n")
            };
            [
                row("link/", "link/", 5, sizes[0]),
                row("sub/", "sub/", 4, sizes[0]),
                row("%3C%26%3E.txt", "&lt;&amp;&gt;.txt", 7, sizes[1]),
                row("dangling", "dangling", 8, sizes[2]),
                row("file.txt", "file.txt", 8, sizes[3]),
            ]
            .concat()
        };
        let page = |title: &str, rows: String| {
            format!(
                "<html>\r\n<head><title>Index of {title}</title></head>\r\n<body>\r\n\
                 <h1>Index of {title}</h1><hr><pre><a href=\"../\">../</a>\r\n{rows}\
                 </pre><hr></body>\r\n</html>\r\n"
            )
        };
        let r = weir.get("/d/");
        assert_eq!((r.status, r.header("content-type")), (200, Some("text/html")));
        let dash = format!("{}-", pad(18));
        let exact =
            rows([&dash, &format!("{:>19}", 0), &format!("{:>19}", 7), &format!("{:>19}", 12345)]);
        assert_eq!(r.text(), page("/d/", exact));
        let round = rows(["      -", "      0", "      7", "    12K"]);
        assert_eq!(weir.get("/round/d/").text(), page("/round/d/", round));
        assert!(weir.get("/a%22b/").text().contains("<title>Index of /a&quot;b/</title>"));
        let head = weir.request("HEAD", "/d/", "");
        assert_eq!((head.status, head.header("content-type")), (200, Some("text/html")));
    });
}

#[test]
fn lists_for_programs() {
    each_site(site, |weir| {
        let time = "Sat, 03 Feb 2001 04:05:06 GMT";
        let row = |name: &str, kind: &str, size: &str| {
            format!(
                "\r\n{{ \"name\":\"{name}\", \"type\":\"{kind}\", \"mtime\":\"{time}\"{size} }}"
            )
        };
        let json = [
            row("link", "directory", ""),
            row("sub", "directory", ""),
            row("<&>.txt", "file", ", \"size\":0"),
            row("dangling", "other", ""),
            row("file.txt", "file", ", \"size\":12345"),
        ]
        .join(",");
        let r = weir.get("/json/d/");
        assert_eq!(r.header("content-type"), Some("application/json"));
        assert_eq!(r.text(), format!("[{json}\r\n]"));
        let r = weir.get("/jsonp/d/?callback=a.b_1");
        assert_eq!(r.header("content-type"), Some("application/javascript"));
        assert_eq!(r.text(), format!("/* callback */\r\na.b_1([{json}\r\n]);"));
        assert_eq!(weir.get("/jsonp/d/").header("content-type"), Some("application/json"));
        assert_eq!(weir.get("/jsonp/d/?callback=alert(1)").status, 400);
        assert_eq!(weir.get(&format!("/jsonp/d/?callback={}", "a".repeat(129))).status, 400);
        let r = weir.get("/xml/d/");
        assert_eq!(r.header("content-type"), Some("text/xml; charset=utf-8"));
        let time = "2001-02-03T04:05:06Z";
        let want = format!(
            "<?xml version=\"1.0\"?>\r\n<list>\r\n\
             <directory mtime=\"{time}\">link</directory>\r\n\
             <directory mtime=\"{time}\">sub</directory>\r\n\
             <file mtime=\"{time}\" size=\"0\">&lt;&amp;&gt;.txt</file>\r\n\
             <other mtime=\"{time}\">dangling</other>\r\n\
             <file mtime=\"{time}\" size=\"12345\">file.txt</file>\r\n</list>\r\n"
        );
        assert_eq!(r.text(), want);
    });
}

/// Such lists are sent in pieces.
#[test]
fn lists_of_thousands_are_whole_and_in_order() {
    let files: Vec<String> = (0..3000).map(|i| format!("file-{i:05}")).collect();
    let folders: Vec<String> = (0..300).map(|i| format!("folder-{i:05}")).collect();
    each_site(site, |weir| {
        let many = weir.prefix().join("html/many");
        std::fs::create_dir(&many).unwrap();
        // Not in their order.
        files.iter().rev().for_each(|name| drop(std::fs::File::create(many.join(name)).unwrap()));
        folders.iter().rev().for_each(|name| std::fs::create_dir(many.join(name)).unwrap());
        let wanted: Vec<&str> = folders.iter().chain(&files).map(String::as_str).collect();
        let between = |text: &str, start: &str, end: &str| -> Vec<String> {
            let pieces = text.split(start).skip(1);
            pieces.map(|piece| piece.split(end).next().unwrap().to_string()).collect()
        };
        let html = weir.get("/many/").text();
        let names = between(&html, "\r\n<a href=\"", "\">");
        let names: Vec<&str> = names.iter().map(|name| name.trim_end_matches('/')).collect();
        assert_eq!(names, wanted);
        assert!(html.ends_with("</pre><hr></body>\r\n</html>\r\n"));
        let json = weir.get("/json/many/").text();
        assert_eq!(between(&json, "\r\n{ \"name\":\"", "\""), wanted);
        // No separator lacks between two pieces, and none is there twice.
        assert_eq!(json.matches(" },\r\n{ ").count(), wanted.len() - 1);
        Json::parse(&json);
        let xml = weir.get("/xml/many/").text();
        let (folders, files) = xml.split_at(xml.find("<file").unwrap());
        let mut names = between(folders, "Z\">", "</directory>\r\n");
        names.extend(between(files, "\">", "</file>\r\n"));
        assert_eq!(names, wanted);
        assert!(xml.ends_with("</list>\r\n"));
    });
}

#[test]
fn what_is_not_listed() {
    each_site(site, |weir| {
        weir.answers_with(&[
            ("GET", "/off/d/", 403),
            ("GET", "/nope/", 404),
            ("GET", "/json/nope/", 404),
            ("GET", "/d/file.txt/", 404),
            ("POST", "/d/", 403),
        ]);
    });
}

#[test]
fn any_file_of_a_folder() {
    each_site(site, |weir| {
        assert_eq!(weir.get("/random/d/sub/").body, b"only");
        weir.write("html/d/sub/b", "other");
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..64 {
            seen.insert(weir.get("/random/d/sub/").text());
        }
        assert_eq!(seen.into_iter().collect::<Vec<_>>(), ["only", "other"]);
        assert_eq!(weir.get("/random/").status, 403);
        assert_eq!(weir.get("/random/nope/").status, 404);
        weir.wait_for_log("error.log", "opendir() \"");
    });
}
