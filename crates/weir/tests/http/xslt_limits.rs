//! The module `xslt` over real connections: bounds on documents, memory and time, and reloads.

use std::time::{Duration, Instant};

use testkit::{Driver, Site, Weir, built_binary, each_driver, wait_until};

use crate::xslt::{page, sheet};

/// A template that calls itself twice, sixty deep: it would end in some thousands of years.
fn endless() -> String {
    sheet(
        "<xsl:template match='/'><xsl:call-template name='t'>\
         <xsl:with-param name='n' select='60'/></xsl:call-template></xsl:template>\
         <xsl:template name='t'><xsl:param name='n'/><xsl:if test='$n &gt; 0'>\
         <xsl:call-template name='t'><xsl:with-param name='n' select='$n - 1'/>\
         </xsl:call-template>\
         <xsl:call-template name='t'><xsl:with-param name='n' select='$n - 1'/>\
         </xsl:call-template></xsl:if></xsl:template>",
    )
}

/// A template that calls itself for ever.
fn deeper() -> String {
    sheet(
        "<xsl:template match='/'><xsl:call-template name='t'/></xsl:template>\
         <xsl:template name='t'><a><xsl:call-template name='t'/></a></xsl:template>",
    )
}

/// A text that doubles thirty times.
fn larger() -> String {
    sheet(
        "<xsl:template match='/'><xsl:call-template name='t'>\
         <xsl:with-param name='text' select=\"'0123456789abcdef'\"/>\
         <xsl:with-param name='n' select='30'/></xsl:call-template></xsl:template>\
         <xsl:template name='t'><xsl:param name='text'/><xsl:param name='n'/>\
         <xsl:choose><xsl:when test='$n &gt; 0'><xsl:call-template name='t'>\
         <xsl:with-param name='text' select='concat($text, $text)'/>\
         <xsl:with-param name='n' select='$n - 1'/></xsl:call-template></xsl:when>\
         <xsl:otherwise><a><xsl:value-of select='$text'/></a></xsl:otherwise></xsl:choose>\
         </xsl:template>",
    )
}

const HTTP: &str = "server {
    listen 127.0.0.1:%PORT0%;
    root html;
    types { text/xml xml; }
    location /page/ { xslt_stylesheet page.xsl; alias html/; }
    location /small/ { xslt_buffer 1k; xslt_stylesheet page.xsl; alias html/; }
    location /chunked/ { ssi on; ssi_types text/xml; alias html/; }
    location /small_chunked/ {
        xslt_buffer 1k;
        xslt_stylesheet page.xsl;
        proxy_http_version 1.1;
        proxy_pass http://127.0.0.1:%PORT0%/chunked/;
    }
    location /memory/ { xslt_memory 100k; xslt_stylesheet page.xsl; alias html/; }
    location /larger/ { xslt_memory 10m; xslt_stylesheet larger.xsl; alias html/; }
    location /deeper/ { xslt_stylesheet deeper.xsl; alias html/; }
    location /endless/ { xslt_timeout 300ms; xslt_stylesheet endless.xsl; alias html/; }
    location /waiting/ { xslt_timeout 0; xslt_stylesheet endless.xsl; alias html/; }
}";

fn start(driver: Driver) -> Weir {
    site(driver).start()
}

fn site(driver: Driver) -> Site {
    let nodes = format!("<root>{}</root>", "<a/>".repeat(5000));
    Site::new(built_binary(), driver)
        .file("page.xsl", page())
        .file("endless.xsl", endless())
        .file("deeper.xsl", deeper())
        .file("larger.xsl", larger())
        .file("html/a.xml", "<root>data</root>")
        .file("html/long.xml", format!("<root>{}</root>", "x".repeat(2000)))
        .file("html/nodes.xml", nodes)
        .http(HTTP)
}

/// Whether a thread of the pool computes.
fn is_busy(weir: &Weir) -> bool {
    weir.workers().iter().any(|worker| {
        let tasks = std::fs::read_dir(format!("/proc/{worker}/task"));
        tasks.into_iter().flatten().flatten().any(|task| {
            let stat = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
            // PID (NAME) STATE
            let stat = stat.split_once('(').and_then(|(_, rest)| rest.rsplit_once(')'));
            stat.is_some_and(|(name, rest)| name.contains("xslt") && rest.starts_with(" R"))
        })
    })
}

#[test]
fn documents_and_results_have_bounds() {
    each_driver(|driver| {
        let weir = start(driver);
        assert_eq!(weir.get("/page/long.xml").body.len(), 2000 + 27);
        for (uri, told) in [
            ("/small/long.xml", "the response has more than 1024 bytes (xslt_buffer)"),
            ("/small_chunked/long.xml", "the response has more than 1024 bytes (xslt_buffer)"),
            ("/memory/nodes.xml", "xslt filter: "),
            ("/larger/a.xml", "xslt filter: "),
            ("/deeper/a.xml", "xslt filter: "),
        ] {
            let before = weir.error_log().len();
            assert_eq!(weir.get(uri).status, 500, "{uri}");
            let log = weir.error_log();
            assert!(log[before..].contains(told), "{uri}: {log}");
        }
        weir.gives(&[
            ("/small/a.xml", "<html><body>data</body></html>\n"),
            ("/small_chunked/a.xml", "<html><body>data</body></html>\n"),
            ("/memory/a.xml", "<html><body>data</body></html>\n"),
        ]);
    });
}

#[test]
fn a_transformation_ends_in_time() {
    each_driver(|driver| {
        let weir = start(driver);
        let began = Instant::now();
        assert_eq!(weir.get("/endless/a.xml").status, 500);
        assert!(began.elapsed() >= Duration::from_millis(300));
        weir.wait_for_log("error.log", "xslt filter: no result after 300 ms (xslt_timeout)");
        wait_until("the end of the thread's work", || !is_busy(&weir));
        assert_eq!(weir.get("/page/a.xml").status, 200);
    });
}

#[test]
fn nothing_is_done_for_a_client_that_is_gone() {
    each_driver(|driver| {
        let weir = start(driver);
        let mut client = weir.connect();
        client.send("GET /waiting/a.xml HTTP/1.1\r\nHost: a\r\n\r\n");
        wait_until("the beginning of the thread's work", || is_busy(&weir));
        // Others are served meanwhile.
        assert_eq!(weir.get("/page/a.xml").status, 200);
        drop(client);
        wait_until("the end of the thread's work", || !is_busy(&weir));
        weir.wait_for_log("access.log", "\"GET /waiting/a.xml HTTP/1.1\" 499 ");
    });
}

#[test]
fn reloads_read_stylesheets_again() {
    each_driver(|driver| {
        let weir = site(driver).allow("cannot be used").start();
        let made = |text: &str| format!("<html><body>{text}</body></html>\n");
        assert_eq!(weir.get("/page/a.xml").text(), made("data"));
        weir.write("page.xsl", sheet("<xsl:template match='/'><a></xsl:template>"));
        weir.signal("HUP");
        weir.wait_for_log("error.log", "page.xsl");
        weir.wait_for_log("error.log", "[emerg]");
        assert_eq!(weir.get("/page/a.xml").text(), made("data"));
        weir.write("page.xsl", page().replace("select='/root'", "select='\"new\"'"));
        // It was read when the configuration was.
        assert_eq!(weir.get("/page/a.xml").text(), made("data"));
        weir.reload();
        wait_until("the new stylesheet", || weir.get("/page/a.xml").text() == made("new"));
    });
}
