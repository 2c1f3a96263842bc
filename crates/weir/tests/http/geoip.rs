//! `geoip` and `geoip2` over real connections, with databases made here.

use testkit::mmdb::{Value, mmdb};
use testkit::{Driver, Site, built_binary, each_driver, wait_for};

fn map(entries: &[(&'static str, Value)]) -> Value {
    Value::Map(entries.to_vec())
}

fn text(text: &'static str) -> Value {
    Value::Text(text)
}

fn named(name: &'static str) -> Value {
    map(&[("en", text(name))])
}

fn city() -> Value {
    let country = map(&[("iso_code", text("SE")), ("names", named("Sweden"))]);
    let region = map(&[("iso_code", text("E")), ("names", named("Östergötland"))]);
    let location = [("latitude", Value::Double(58.4167)), ("longitude", Value::Double(-15.61666))];
    map(&[
        ("continent", map(&[("code", text("EU"))])),
        ("country", country),
        ("subdivisions", Value::List(vec![region])),
        ("city", map(&[("names", named("Linköping"))])),
        ("postal", map(&[("code", text("582 22"))])),
        ("location", map(&location)),
        ("traits", map(&[("is_anycast", Value::Flag(true)), ("score", Value::Number(7))])),
    ])
}

fn asn() -> Value {
    map(&[
        ("autonomous_system_number", Value::Number32(64496)),
        ("autonomous_system_organization", text("Example")),
    ])
}

const CLIENT: [u8; 4] = [89, 160, 20, 112];

const HTTP: &str = r#"
geoip_country city.mmdb;
geoip_city city.mmdb utf8;
geoip_org asn.mmdb;
geoip_proxy 127.0.0.0/8;
geoip2 city.mmdb {
    $g2_city default=nowhere city names en;
    $g2_region subdivisions 0 names en;
    $g2_arg default=none source=$arg_ip country iso_code;
    $g2_lat location latitude;
    $g2_any traits is_anycast;
    $g2_score traits score;
    $g2_map default=map traits;
    $g2_built metadata build_epoch;
}
geoip2_proxy 127.0.0.1;
server {
    listen 127.0.0.1:%PORT0%;
    location /country {
        return 200 "$geoip_country_code $geoip_country_code3 $geoip_country_name";
    }
    location /city {
        return 200 "$geoip_city_continent_code,$geoip_city_country_code,$geoip_region,$geoip_region_name,$geoip_city,$geoip_postal_code,$geoip_latitude,$geoip_longitude,$geoip_dma_code";
    }
    location /org { return 200 "$geoip_org"; }
    location /two { return 200 "$g2_city,$g2_region,$g2_lat,$g2_any,$g2_score,$g2_map,$g2_built"; }
    location /arg { return 200 "$g2_arg"; }
}
"#;

fn site(driver: Driver) -> Site {
    Site::new(built_binary(), driver)
        .file("city.mmdb", mmdb("GeoLite2-City", CLIENT, &city()))
        .file("asn.mmdb", mmdb("GeoLite2-ASN", CLIENT, &asn()))
}

#[test]
fn values() {
    each_driver(|driver| {
        let weir = site(driver).http(HTTP).start();
        let from = |uri: &str, ip: &str| {
            weir.request("GET", uri, &format!("X-Forwarded-For: {ip}\r\n")).text()
        };
        assert_eq!(from("/country", "89.160.20.112"), "SE SWE Sweden");
        assert_eq!(from("/country", "::ffff:89.160.20.112"), "SE SWE Sweden");
        let city = "EU,SE,E,Östergötland,Linköping,582 22,58.4167,-15.6167,0";
        assert_eq!(from("/city", "89.160.20.112"), city);
        assert_eq!(from("/org", "89.160.20.112"), "AS64496 Example");
        let two = "Linköping,Östergötland,58.41670,1,7,map,1500000000";
        assert_eq!(from("/two", "89.160.20.112"), two);
        for ip in ["89.160.20.113", "2001:db8::1"] {
            assert_eq!(from("/country", ip), "  ");
            assert_eq!(from("/org", ip), "");
            assert_eq!(from("/two", ip), "nowhere,,,,,map,1500000000");
        }
        assert_eq!(weir.get("/country").text(), "  ");
        assert_eq!(weir.get("/arg?ip=89.160.20.112").text(), "SE");
        assert_eq!(weir.get("/arg?ip=nonsense").text(), "none");
    });
}

#[test]
fn a_database_that_was_replaced_is_read_again() {
    each_driver(|driver| {
        let weir = site(driver)
            .http(
                "geoip2 asn.mmdb { auto_reload 10ms; $org source=$arg_ip \
                 autonomous_system_organization; } \
                 server { listen 127.0.0.1:%PORT0%; return 200 $org; }",
            )
            .allow("MMDB_open")
            .start();
        let org = || weir.get("/?ip=89.160.20.112").text();
        assert_eq!(org(), "Example");
        // A file that is not a database leaves the old data in use.
        weir.write("asn.mmdb", b"nonsense");
        wait_for("a complaint", || {
            assert_eq!(org(), "Example");
            weir.log("error.log").contains("MMDB_open(").then_some(())
        });
        let other = map(&[("autonomous_system_organization", text("Other"))]);
        weir.write("asn.mmdb", mmdb("GeoLite2-ASN", CLIENT, &other));
        wait_for("the new database", || (org() == "Other").then_some(()));
    });
}

#[test]
fn what_is_wrong_is_told() {
    for (directives, message) in [
        ("geoip_city nope.mmdb;", "GeoIP_open(\"nope.mmdb\") failed (2: No such file"),
        ("geoip_city city.mmdb latin1;", "invalid parameter \"latin1\""),
        ("geoip_city asn.mmdb;", "invalid GeoIP City database \"asn.mmdb\" type:GeoLite2-ASN"),
        ("geoip_org city.mmdb;", "invalid GeoIP database \"city.mmdb\" type:GeoLite2-City"),
        ("geoip_org text;", "GeoIP_open(\"text\") failed: (it is no GeoIP database, or cut off)"),
        ("geoip_org asn.mmdb; geoip_org asn.mmdb;", "\"geoip_org\" directive is duplicate"),
        ("geoip_proxy 10.0.0.0/33;", "invalid network \"10.0.0.0/33\""),
        ("geoip2 text {}", "MMDB_open(\"text\") failed"),
        ("geoip2 city.mmdb { x y; }", "invalid setting \"x\""),
        ("geoip2 city.mmdb { $x metadata y; }", "invalid metadata field"),
        ("geoip2 city.mmdb { $x source=y z; }", "invalid variable name \"source=y\""),
        ("geoip2 city.mmdb { $uri x; }", "the duplicate \"uri\" variable"),
    ] {
        let text = format!("events {{}} http {{ {directives} }}");
        let site = site(Driver::Epoll).file("text", b"no database").config(&text);
        let output = site.run(&["-t"]);
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && told.contains(message), "{directives}: {told}");
    }
}
