//! `geoip`: variables that tell where the client's address is.

use std::net::IpAddr;

use bytes::Bytes;
use conf::table::{Args, Contexts, Directive};
use conf::{ConfError, Node};
use http::core_directives::directive;
use http::cx::Cx;
use http::module::{Conf, ConfType, Module, Scope};
use http::request::Request;
use http::vars::VarDef;
use net::geoip::{About, Database, Field, OpenError};

use crate::behind::Proxies;

/// The module's table.
pub static MODULE: Module = Module {
    name: "geoip",
    directives: DIRECTIVES,
    variables: VARIABLES,
    confs: &[ConfType::of::<GeoIpConf>(Scope::Main)],
    ..Module::EMPTY
};

static DIRECTIVES: &[Directive<Cx>] = &[
    directive(
        "geoip_country",
        Contexts::HTTP,
        Args::T12,
        "",
        "The database of countries that $geoip_country_code and its like are looked up in.",
        |cx, n| open(cx, n, "GeoIP database", About::Countries, |conf| &mut conf.country),
    ),
    directive(
        "geoip_city",
        Contexts::HTTP,
        Args::T12,
        "",
        "The database of cities that $geoip_city and its like are looked up in.",
        |cx, n| open(cx, n, "GeoIP City database", About::Cities, |conf| &mut conf.city),
    ),
    directive(
        "geoip_org",
        Contexts::HTTP,
        Args::T12,
        "",
        "The database of organizations that $geoip_org is looked up in.",
        |cx, n| open(cx, n, "GeoIP database", About::Owners, |conf| &mut conf.org),
    ),
    directive(
        "geoip_proxy",
        Contexts::HTTP,
        Args::T1,
        "",
        "A proxy whose X-Forwarded-For is taken for where a request came from.",
        |cx, n| cx.main::<GeoIpConf>().proxies.set_proxy(n),
    ),
    directive(
        "geoip_proxy_recursive",
        Contexts::HTTP,
        Args::FLAG,
        "off",
        "Whether the client is the last address of X-Forwarded-For that is no such proxy.",
        |cx, n| cx.main::<GeoIpConf>().proxies.set_recursive(n),
    ),
];

macro_rules! variables {
    ($($name:literal: $database:ident $field:ident,)*) => {
        &[$(VarDef::kept($name, |r, out| find(r, |c| &c.$database, Field::$field, out)),)*]
    };
}

static VARIABLES: &[VarDef] = variables! {
    "geoip_country_code": country CountryCode,
    "geoip_country_code3": country CountryCode3,
    "geoip_country_name": country CountryName,
    "geoip_org": org Organization,
    "geoip_city_continent_code": city ContinentCode,
    "geoip_city_country_code": city CountryCode,
    "geoip_city_country_code3": city CountryCode3,
    "geoip_city_country_name": city CountryName,
    "geoip_region": city RegionCode,
    "geoip_region_name": city RegionName,
    "geoip_city": city City,
    "geoip_postal_code": city PostalCode,
    "geoip_latitude": city Latitude,
    "geoip_longitude": city Longitude,
    "geoip_dma_code": city DmaCode,
    "geoip_area_code": city AreaCode,
};

#[derive(Default)]
struct GeoIpConf {
    country: Option<Database>,
    city: Option<Database>,
    org: Option<Database>,
    proxies: Proxies,
}

impl Conf for GeoIpConf {
    fn merge(&mut self, _: &Self) -> Result<(), ConfError> {
        Ok(())
    }
}

fn open(
    cx: &mut Cx,
    n: &Node,
    what: &str,
    wanted: About,
    field: fn(&mut GeoIpConf) -> &mut Option<Database>,
) -> Result<(), ConfError> {
    if field(cx.main()).is_some() {
        return Err(ConfError::directive(n, "is duplicate"));
    }
    let file = n.arg(0)?;
    let mut database = Database::open(&cx.env.path(file.bytes())).map_err(|e| {
        let space = if matches!(e, OpenError::Io(_)) { " " } else { ": " };
        ConfError::at(file, format!("GeoIP_open(\"{}\") failed{space}{e}", file.lossy()))
    })?;
    match n.args.get(1) {
        None => {}
        Some(word) if word.bytes() == b"utf8" => database.use_utf8(),
        Some(word) => {
            let m = format!("invalid parameter \"{}\"", word.lossy());
            return Err(ConfError::at(word, m));
        }
    }
    let (about, kind) = database.about();
    let modern = matches!(database, Database::MaxMind(_));
    let fits = match about {
        // Databases of the present format are named as people like; those of cities have the
        // countries too.
        About::Other => modern,
        About::Cities => about == wanted || modern && wanted == About::Countries,
        _ => about == wanted,
    };
    if !fits {
        let m = format!("invalid {what} \"{}\" type:{kind}", file.lossy());
        return Err(ConfError::at(file, m));
    }
    *field(cx.main()) = Some(database);
    Ok(())
}

fn find(
    r: &mut Request,
    database: fn(&GeoIpConf) -> &Option<Database>,
    field: Field,
    out: &mut Vec<u8>,
) -> bool {
    let Some(conf) = r.loc.confs.get::<GeoIpConf>() else { return false };
    let Some(database) = database(conf) else { return false };
    let client: Option<IpAddr> = conf.proxies.client(r);
    let found = database.find(client, field).map(Bytes::from);
    out.extend_from_slice(found.as_deref().unwrap_or_default());
    found.is_some()
}
