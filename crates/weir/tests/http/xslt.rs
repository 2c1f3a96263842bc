//! The module `xslt` over real connections: what it makes of documents, and says of them.

use testkit::{
    Driver, Response, Scripted, Site, Weir, built_binary, each_driver, each_site, refused,
};

/// A stylesheet around its own elements.
pub fn sheet(inside: &str) -> String {
    let namespace = "http://www.w3.org/1999/XSL/Transform";
    format!("<xsl:stylesheet version=\"1.0\" xmlns:xsl=\"{namespace}\">{inside}</xsl:stylesheet>")
}

/// A page of HTML with the document's text.
pub fn page() -> String {
    sheet(
        "<xsl:output method='html' indent='no'/>\
         <xsl:template match='/'><html><body><xsl:value-of select='/root'/></body></html>\
         </xsl:template>",
    )
}

/// The parameters a, b and c, and the document's text.
fn parameters() -> String {
    sheet(
        "<xsl:output method='text'/>\
         <xsl:param name='a'>-</xsl:param><xsl:param name='b'/><xsl:param name='c'/>\
         <xsl:template match='/'>[<xsl:value-of select='$a'/>|<xsl:value-of select='$b'/>|\
         <xsl:value-of select='$c'/>|<xsl:value-of select='.'/>]</xsl:template>",
    )
}

/// The document as it is.
fn copy() -> String {
    sheet("<xsl:template match='/'><xsl:copy-of select='.'/></xsl:template>")
}

const TYPES: &str = "types { text/xml xml; application/rss+xml rss; text/html html; }";

/// A server of the documents below `html/`, and of these locations.
fn site(driver: Driver, files: &[(&str, &str)], server: &str) -> Weir {
    let mut site = Site::new(built_binary(), driver)
        .file("page.xsl", page())
        .file("parameters.xsl", parameters())
        .file("copy.xsl", copy());
    for (name, text) in files {
        site = site.file(name, text);
    }
    let listen = "listen 127.0.0.1:%PORT0%; root html;";
    let plain = "location /plain/ { alias html/; }";
    site.http(&format!("server {{ {listen} {TYPES} {plain} {server} }}")).start()
}

const DATA: (&str, &str) = ("html/a.xml", "<root>data</root>");
const PAGE: &str = "<html><body>data</body></html>\n";

fn fields<'a>(r: &'a Response, names: &[&str]) -> Vec<Option<&'a str>> {
    names.iter().map(|name| r.header(name)).collect()
}

#[test]
fn documents_become_pages() {
    each_driver(|driver| {
        let weir = site(
            driver,
            &[DATA, ("html/a.rss", "<root>feed</root>"), ("html/a.html", "<root>page</root>")],
            "location /static/ { xslt_stylesheet page.xsl; alias html/; }
             location /proxied/ {
                 xslt_stylesheet page.xsl;
                 proxy_pass http://127.0.0.1:%PORT0%/plain/;
             }
             location /feeds/ {
                 xslt_types application/rss+xml;
                 location /feeds/all/ { xslt_types *; xslt_stylesheet page.xsl; alias html/; }
                 xslt_stylesheet page.xsl;
                 alias html/;
             }
             location /returned/ {
                 xslt_stylesheet page.xsl;
                 default_type text/xml;
                 return 404 '<root>$uri</root>';
             }",
        );
        let names = ["Content-Type", "Last-Modified", "ETag", "Accept-Ranges", "Content-Length"];
        for uri in ["/static/a.xml", "/proxied/a.xml", "/feeds/a.xml"] {
            let answer = weir.get(uri);
            assert_eq!((answer.status, answer.text().as_str()), (200, PAGE), "{uri}");
            let length = PAGE.len().to_string();
            let want = [Some("text/html"), None, None, None, Some(length.as_str())];
            assert_eq!(fields(&answer, &names), want, "{uri}");
            let head = weir.request("HEAD", uri, "");
            assert_eq!((head.status, head.body.len()), (200, 0), "{uri}");
            // An upstream sends no body for HEAD: the length is not known.
            let length = Some(length.as_str()).filter(|_| !uri.contains("proxied"));
            assert_eq!(fields(&head, &names), [Some("text/html"), None, None, None, length]);
            let part = weir.request("GET", uri, "Range: bytes=0-4\r\n");
            if !uri.contains("proxied") {
                assert_eq!((part.status, part.text().as_str()), (200, PAGE), "{uri}");
            }
        }
        let feed = "<html><body>feed</body></html>\n";
        weir.gives(&[
            ("/static/a.rss", "<root>feed</root>"),
            ("/static/a.html", "<root>page</root>"),
            ("/feeds/a.rss", feed),
            ("/feeds/a.html", "<root>page</root>"),
            ("/feeds/all/a.rss", feed),
            ("/feeds/all/a.html", "<html><body>page</body></html>\n"),
        ]);
        let returned = weir.get("/returned/x");
        let text = "<html><body>/returned/x</body></html>\n";
        assert_eq!((returned.status, returned.text().as_str()), (404, text));
        assert_eq!(weir.get("/static/none.xml").status, 404);
    });
}

#[test]
fn conditions_and_validators() {
    each_driver(|driver| {
        let weir = site(
            driver,
            &[DATA],
            "location /off/ { xslt_stylesheet page.xsl; alias html/; }
             location /on/ { xslt_stylesheet page.xsl; xslt_last_modified on; alias html/; }
             location /proxied/ {
                 xslt_stylesheet page.xsl;
                 xslt_last_modified on;
                 proxy_pass http://127.0.0.1:%PORT0%/plain/;
             }",
        );
        let plain = weir.get("/plain/a.xml");
        let date = plain.header("Last-Modified").unwrap();
        let weak = format!("W/{}", plain.header("ETag").unwrap());
        for uri in ["/on/a.xml", "/proxied/a.xml"] {
            let answer = weir.get(uri);
            assert_eq!(answer.text(), PAGE, "{uri}");
            let found = fields(&answer, &["Last-Modified", "ETag"]);
            assert_eq!(found, [Some(date), Some(weak.as_str())], "{uri}");
        }
        for uri in ["/off/a.xml", "/on/a.xml"] {
            let since = format!("If-Modified-Since: {date}\r\n");
            let unchanged = weir.request("GET", uri, &since);
            assert_eq!((unchanged.status, unchanged.body.len()), (304, 0), "{uri}");
        }
        let same = weir.request("GET", "/on/a.xml", &format!("If-None-Match: {weak}\r\n"));
        assert_eq!(same.status, 304);
        let other = weir.request("GET", "/on/a.xml", "If-None-Match: \"other\"\r\n");
        assert_eq!((other.status, other.text().as_str()), (200, PAGE));
    });
}

/// The popular use: lists of folders with a look of their own, by the example of the documentation.
#[test]
fn lists_of_folders() {
    let listing = include_str!("../../../../docs/examples/listing.xsl");
    each_driver(|driver| {
        let weir = site(
            driver,
            &[
                ("listing.xsl", listing),
                ("html/f/one.txt", "1"),
                ("html/f/a & b <c>.txt", "two"),
                ("html/f/sub/x", ""),
                ("html/f/sub/deeper/x", ""),
            ],
            "location / {
                 autoindex on;
                 autoindex_format xml;
                 xslt_stylesheet listing.xsl;
                 xslt_string_param path $uri;
             }",
        );
        let list = weir.get("/f/");
        assert_eq!(list.header("Content-Type"), Some("text/html; charset=utf-8"));
        let text = list.text();
        for part in [
            "<!DOCTYPE html",
            "<h1>/f/</h1>",
            "<a href=\"one.txt\">one.txt</a>",
            "a &amp; b &lt;c&gt;.txt</a>",
            "<a href=\"sub/\">sub/</a>",
            "<a href=\"../\">",
            ">3</td>",
        ] {
            assert!(text.contains(part), "{part:?} is not in {text}");
        }
        let head = weir.request("HEAD", "/f/", "");
        assert_eq!(head.header("Content-Type"), list.header("Content-Type"));
        assert!(weir.get("/f/sub/").text().contains("<h1>/f/sub/</h1>"));
        assert_eq!(weir.get("/f/one.txt").text(), "1");
    });
}

#[test]
fn parameters_of_each_kind() {
    each_driver(|driver| {
        let weir = site(
            driver,
            &[DATA],
            "xslt_param c '1 + 1';
             location /own/ {
                 xslt_stylesheet parameters.xsl \"a='x%3Ay':b=/root\" \"c='$arg_c%25'\";
                 xslt_string_param a unused;
                 alias html/;
             }
             location /inherited/ { xslt_stylesheet parameters.xsl; alias html/; }
             location /texts/ {
                 xslt_stylesheet parameters.xsl;
                 xslt_string_param a $arg_a;
                 xslt_string_param b \"'\\\"<$arg_b>\";
                 xslt_string_param none 1;
                 alias html/;
                 location /texts/inside/ { alias html/; }
                 location /texts/other/ { xslt_param b //root; alias html/; }
             }
             location /asked/ {
                 xslt_stylesheet parameters.xsl $arg_p;
                 xslt_param a $arg_a;
                 alias html/;
             }",
        );
        weir.gives(&[
            ("/own/a.xml?c=1", "[x:y|data|1%|data]"),
            ("/own/a.xml?c=2%2B", "[x:y|data|2+%|data]"),
            ("/inherited/a.xml", "[-||2|data]"),
            ("/texts/a.xml?a=1+%2B&b=%22", "[1+%2B|'\"<%22>||data]"),
            ("/texts/inside/a.xml?a=1", "[1|'\"<>||data]"),
            ("/texts/other/a.xml", "[-|data||data]"),
            ("/asked/a.xml?a=2*3&p=b=4:c=5", "[6|4|5|data]"),
            // The stylesheet's own one counts.
            ("/asked/a.xml?a=1&p=a=7", "[7|||data]"),
        ]);
        for (uri, told) in [
            ("/asked/a.xml?a=1&p=b=1:word", "xslt filter: invalid parameter \"word\""),
            ("/asked/a.xml?a=1+", "xslt filter: parameter \"a\""),
            ("/asked/a.xml", "xslt filter: parameter \"a\""),
        ] {
            assert_eq!(weir.get(uri).status, 500, "{uri}");
            weir.wait_for_log("error.log", told);
        }
    });
}

#[test]
fn stylesheets_one_after_another() {
    each_driver(|driver| {
        let wrap = sheet(
            "<xsl:param name='a' select=\"'none'\"/>\
             <xsl:template match='/'><root a='{$a}'>(<xsl:value-of select='/root'/>)</root>\
             </xsl:template>",
        );
        let end = sheet(
            "<xsl:output method='text' media-type='text/plain'/><xsl:param name='a'/>\
             <xsl:template match='/'><xsl:value-of select=\"concat(/root, /root/@a, $a)\"/>\
             </xsl:template>",
        );
        let weir = site(
            driver,
            &[DATA, ("wrap.xsl", &wrap), ("end.xsl", &end)],
            "location /two/ {
                 xslt_stylesheet wrap.xsl a=1;
                 xslt_stylesheet wrap.xsl a=2;
                 xslt_stylesheet end.xsl;
                 alias html/;
             }
             location /both/ {
                 xslt_stylesheet wrap.xsl;
                 xslt_stylesheet end.xsl;
                 xslt_string_param a $arg_a;
                 alias html/;
             }",
        );
        weir.gives(&[("/two/a.xml", "((data))2"), ("/both/a.xml?a=x", "(data)xx")]);
        assert_eq!(weir.get("/two/a.xml").header("Content-Type"), Some("text/plain"));
    });
}

#[test]
fn types_and_charsets() {
    each_driver(|driver| {
        let with = |output: &str, root: &str| {
            sheet(&format!(
                "<xsl:output {output} omit-xml-declaration='yes' indent='no'/>\
                 <xsl:template match='/'><{root}>\u{e9}</{root}></xsl:template>"
            ))
        };
        let cases = [
            ("xml", with("", "r"), "text/xml", "<r>\u{e9}</r>"),
            ("root", with("", "html"), "text/html", "<html>\u{e9}</html>"),
            ("text", with("method='text'", "html"), "text/xml", "\u{e9}"),
            ("media", with("media-type='application/x'", "html"), "application/x", ""),
            ("utf", with("encoding='UTF-8'", "r"), "text/xml; charset=UTF-8", "<r>\u{e9}</r>"),
            ("latin", with("encoding='iso-8859-1'", "r"), "text/xml; charset=iso-8859-1", ""),
        ];
        let mut files = vec![DATA];
        let names: Vec<_> = cases.iter().map(|case| format!("{}.xsl", case.0)).collect();
        files.extend(names.iter().zip(&cases).map(|(name, case)| (name.as_str(), &*case.1)));
        let mut server = String::new();
        for (name, ..) in &cases {
            server.push_str(&format!(
                "location /{name}/ {{ xslt_stylesheet {name}.xsl; alias html/; }}
                 location /koi/{name}/ {{
                     xslt_stylesheet {name}.xsl;
                     proxy_pass http://127.0.0.1:%PORT0%/said/;
                 }}\n"
            ));
        }
        server.push_str(
            "location /said/ { charset koi8-r; charset_types *; alias html/; }
             location /charset/ { xslt_stylesheet root.xsl; charset utf-8; alias html/; }",
        );
        let weir = site(driver, &files, &server);
        for (name, _, content_type, body) in &cases {
            let answer = weir.get(&format!("/{name}/a.xml"));
            assert_eq!(answer.header("Content-Type"), Some(*content_type), "{name}");
            if !body.is_empty() {
                assert_eq!(answer.text().trim_end(), *body, "{name}");
            }
            // The document's charset is not the result's.
            let answer = weir.get(&format!("/koi/{name}/a.xml"));
            let want = match content_type.contains("charset") {
                true => (*content_type).to_owned(),
                false => format!("{content_type}; charset=utf-8"),
            };
            assert_eq!(answer.header("Content-Type"), Some(want.as_str()), "{name}");
        }
        assert_eq!(weir.get("/latin/a.xml").body.trim_ascii_end(), b"<r>\xe9</r>");
        let answer = weir.get("/charset/a.xml");
        assert_eq!(answer.header("Content-Type"), Some("text/html; charset=utf-8"));
    });
}

#[test]
fn entities() {
    each_driver(|driver| {
        let folder = Site::new(built_binary(), driver);
        let secret = folder.prefix().join("secret.txt").display().to_string();
        let doctype = |inside: &str| format!("<!DOCTYPE root [{inside}]><root>&e;.</root>");
        let named = doctype(&format!("<!ENTITY e SYSTEM \"file://{secret}\">"));
        let network = Scripted::start(|_, _| ());
        let url = format!("http://127.0.0.1:{}/x", network.port);
        let remote = doctype(&format!("<!ENTITY e SYSTEM \"{url}\">"));
        let subset = format!("<!DOCTYPE root SYSTEM \"{url}\"><root>.</root>");
        let files = [
            ("entities.dtd", "<!ENTITY e \"from the file\">\n<!ENTITY f \"&e;, twice\">"),
            ("broken.dtd", "<!ENTITY e"),
            ("html/dtd.xml", "<!DOCTYPE root><root>&e;.</root>"),
            ("html/twice.xml", "<!DOCTYPE root SYSTEM \"none.dtd\"><root>&f;.</root>"),
            ("html/own.xml", &doctype("<!ENTITY e \"own\">")),
            ("html/named.xml", &named),
            ("html/remote.xml", &remote),
            ("html/subset.xml", &subset),
        ];
        let mut site = folder.file("page.xsl", page()).file("secret.txt", "secret");
        for (name, text) in files {
            site = site.file(name, text);
        }
        let weir = site
            .http(&format!(
                "server {{
                     listen 127.0.0.1:%PORT0%;
                     {TYPES}
                     xslt_types text/plain;
                     location /none/ {{ xslt_stylesheet page.xsl; alias html/; }}
                     location /dtd/ {{
                         xml_entities entities.dtd;
                         xslt_stylesheet page.xsl;
                         alias html/;
                     }}
                     location /external/ {{
                         xml_external_entities on;
                         xslt_stylesheet page.xsl;
                         alias html/;
                     }}
                 }}"
            ))
            .start();
        let made = |text: &str| format!("<html><body>{text}.</body></html>\n");
        for (uri, text) in [
            ("/dtd/dtd.xml", "from the file"),
            ("/dtd/twice.xml", "from the file, twice"),
            ("/dtd/own.xml", "own"),
            ("/none/own.xml", "own"),
            ("/none/named.xml", ""),
            ("/external/named.xml", "secret"),
        ] {
            let answer = weir.get(uri);
            assert_eq!((answer.status, answer.text()), (200, made(text)), "{uri}");
        }
        assert_eq!(weir.get("/none/dtd.xml").status, 500);
        for folder in ["none", "external", "dtd"] {
            weir.get(&format!("/{folder}/remote.xml"));
            assert_eq!(weir.get(&format!("/{folder}/subset.xml")).text(), made(""), "{folder}");
        }
        assert_eq!(network.connections(), 0);
        let note = "is not read (xml_external_entities), client: ";
        weir.wait_for_log("error.log", note);
    });
}

#[test]
fn what_cannot_be_transformed() {
    let empty = sheet("<xsl:output method='text'/><xsl:template match='/'/>");
    let ends = sheet(
        "<xsl:template match='/'><xsl:message>first</xsl:message>\
         <xsl:message terminate='yes'>no more</xsl:message></xsl:template>",
    );
    let says = sheet(
        "<xsl:output method='text'/>\
         <xsl:template match='/'><xsl:message>seen: <xsl:value-of select='.'/></xsl:message>ok\
         </xsl:template>",
    );
    each_driver(|driver| {
        let weir = site(
            driver,
            &[
                DATA,
                ("html/open.xml", "<root><a>"),
                ("html/empty.xml", ""),
                ("html/text.xml", "no document"),
                ("html/entity.xml", "<root>&none;</root>"),
                ("html/sorry.html", "sorry"),
                ("html/sorry.xml", "<root>sorry</root>"),
                ("empty.xsl", &empty),
                ("ends.xsl", &ends),
                ("says.xsl", &says),
            ],
            "location /page/ { xslt_stylesheet page.xsl; alias html/; }
             location /empty/ { xslt_stylesheet empty.xsl; alias html/; }
             location /ends/ { xslt_stylesheet ends.xsl; alias html/; }
             location /says/ { xslt_stylesheet says.xsl; alias html/; }
             location /sorry/ {
                 xslt_stylesheet page.xsl;
                 error_page 500 =200 /page/sorry.html;
                 alias html/;
             }
             location /again/ {
                 xslt_stylesheet page.xsl;
                 error_page 500 =503 /page/sorry.xml;
                 alias html/;
             }
             location /worse/ {
                 xslt_stylesheet page.xsl;
                 error_page 500 =503 /page/open.xml;
                 alias html/;
             }",
        );
        for uri in ["open", "empty", "text", "entity"] {
            let answer = weir.get(&format!("/page/{uri}.xml"));
            assert_eq!(answer.status, 500, "{uri}");
            assert_eq!(answer.header("Content-Type"), Some("text/html"), "{uri}");
            assert!(answer.text().contains("500 Internal Server Error"), "{uri}");
        }
        let log = weir.error_log();
        assert_eq!(log.matches("[error]").count(), 4, "{log}");
        assert_eq!(log.matches("xslt filter: ").count(), 4, "{log}");
        assert_eq!(weir.get("/empty/a.xml").status, 500);
        weir.wait_for_log("error.log", "xslt filter: the result is empty");
        assert_eq!(weir.get("/ends/a.xml").status, 500);
        weir.wait_for_log("error.log", "no more");
        assert_eq!(weir.get("/says/a.xml").text(), "ok");
        weir.wait_for_log("error.log", "[warn]");
        weir.wait_for_log("error.log", "xslt filter: seen: data");
        weir.gives(&[("/sorry/open.xml", "sorry"), ("/page/a.xml", PAGE)]);
        let again = weir.get("/again/open.xml");
        let text = "<html><body>sorry</body></html>\n";
        assert_eq!((again.status, again.text().as_str()), (503, text));
        assert_eq!(weir.get("/worse/open.xml").status, 500);
    });
}

/// Filters before it work on the document, those behind it on the result.
#[test]
fn beside_other_filters() {
    let long = format!("<root>{}</root>", "data ".repeat(1000));
    let command = sheet(
        "<xsl:output method='html' indent='no'/><xsl:template match='/'>\
         <html><body><xsl:comment>#echo var=\"uri\" </xsl:comment></body></html>\
         </xsl:template>",
    );
    each_driver(|driver| {
        let weir = site(
            driver,
            &[
                DATA,
                ("html/long.xml", &long),
                ("html/parts.html", "1<!--#include virtual=\"/sub/a.xml\" -->2"),
                ("html/failing.html", "1<!--#include virtual=\"/sub/none.xml\" -->2"),
                ("command.xsl", &command),
            ],
            "location /gzip/ {
                 gzip on;
                 xslt_stylesheet page.xsl;
                 alias html/;
             }
             location /unzipped/ {
                 gunzip on;
                 proxy_pass http://127.0.0.1:%PORT0%/coded/;
                 proxy_set_header Accept-Encoding gzip;
             }
             location /coded/ { gzip on; gzip_types *; alias html/; }
             location /sub_filter/ {
                 sub_filter data text;
                 sub_filter_types *;
                 xslt_stylesheet page.xsl;
                 alias html/;
             }
             location /ssi/ { ssi on; xslt_stylesheet command.xsl; alias html/; }
             location /image/ {
                 image_filter test;
                 xslt_types *;
                 xslt_stylesheet page.xsl;
                 alias html/;
             }
             location /parts/ { ssi on; alias html/; }
             location /sub/ { xslt_stylesheet page.xsl; alias html/; }",
        );
        let zipped = weir.request("GET", "/gzip/long.xml", "Accept-Encoding: gzip\r\n");
        assert_eq!(zipped.header("Content-Encoding"), Some("gzip"));
        assert_eq!(zipped.header("Content-Type"), Some("text/html"));
        assert!(zipped.body.len() < 1000);
        weir.gives(&[
            ("/sub_filter/a.xml", "<html><body>text</body></html>\n"),
            ("/ssi/a.xml", "<html><body>/ssi/a.xml</body></html>\n"),
            ("/parts/parts.html", "1<html><body>data</body></html>\n2"),
        ]);
        // Both work on whole bodies: it is no image, and the page that says so is no XML.
        assert_eq!(weir.get("/image/a.xml").status, 500);
        weir.wait_for_log("error.log", "xslt filter: ");
        let parts = weir.get("/parts/parts.html");
        assert_eq!(parts.header("Content-Type"), Some("text/html"));
        assert!(weir.get("/parts/failing.html").text().contains("404"));
    });
}

#[test]
fn what_is_wrong_is_told() {
    refused(
        "server { location / { * } }",
        &[
            ("xslt_stylesheet none.xsl;", "/none.xsl\" cannot be used: "),
            ("xml_entities none.dtd;", "/none.dtd\" cannot be used: "),
            ("xslt_stylesheet;", "invalid number of arguments in \"xslt_stylesheet\""),
            ("xslt_param a;", "invalid number of arguments in \"xslt_param\""),
            ("xslt_string_param a $;", "invalid variable name"),
            ("xslt_last_modified yes;", "invalid value \"yes\""),
            ("xslt_timeout 1y1;", "\"xslt_timeout\" directive invalid value"),
        ],
    );
    refused("server { * }", &[("xslt_stylesheet a.xsl;", "directive is not allowed here")]);
    let broken = sheet("<xsl:template match='/'>\n<xsl:value-of/></xsl:template>");
    for (inside, told) in [
        ("xslt_stylesheet broken.xsl;", "broken.xsl:2 in "),
        ("xslt_stylesheet open.xsl;", "open.xsl"),
        ("xslt_stylesheet no.xsl;", "no.xsl"),
        ("xslt_stylesheet page.xsl \"a=$nothing\";", "unknown \"nothing\" variable"),
        ("xml_entities broken.dtd;", "broken.dtd"),
        ("xml_entities a.dtd; xml_entities a.dtd;", "\"xml_entities\" directive is duplicate"),
    ] {
        let told_of = Site::new(built_binary(), Driver::usual())
            .file("page.xsl", page())
            .file("broken.xsl", &broken)
            .file("open.xsl", "<xsl:stylesheet")
            .file("no.xsl", "<root/>")
            .file("a.dtd", "<!ENTITY a 'b'>")
            .file("broken.dtd", "<!ENTITY e")
            .http(&format!("server {{ location / {{ {inside} }} }}"))
            .is_refused(told);
        assert!(told_of.contains("[emerg]") && told_of.contains(".conf:"), "{told_of}");
    }
}

/// Distributions have the module in a file of its own.
#[test]
fn a_file_of_the_module_is_not_needed() {
    each_site(
        |driver| {
            Site::new(built_binary(), driver)
                .file("page.xsl", page())
                .file("html/a.xml", DATA.1)
                .config(&format!(
                    "load_module modules/ngx_http_xslt_filter_module.so;
                     events {{}}
                     http {{ server {{
                         listen 127.0.0.1:%PORT0%;
                         {TYPES}
                         location / {{ xslt_stylesheet page.xsl; }}
                     }} }}"
                ))
                .start()
        },
        |weir| assert_eq!(weir.get("/a.xml").text(), PAGE),
    );
}
