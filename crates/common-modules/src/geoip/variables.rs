//! The directives and variables of `geoip`: the place of the client's address.

use std::net::IpAddr;

use bytes::Bytes;
use conf::table::{Args, Directive, directive};
use conf::{ConfError, Node};
use engine::settings::{Conf, ConfType, Scope};
use engine::vars::VarDef;
use engine::{Cx, Module, Session};

use super::{About, Database, Field, OpenError};
use crate::proxies::Proxies;

/// The module's table, for an engine's list.
pub const fn module<S: Session>() -> Module<S> {
    Module {
        name: "geoip",
        directives: const { &directives() },
        variables: const { &variables() },
        confs: const { &[ConfType::of::<GeoIpConf>(Scope::Main)] },
        ..Module::EMPTY
    }
}

const fn directives<S: Session>() -> [Directive<Cx<S>>; 5] {
    [
        directive(
            "geoip_country",
            S::BLOCK,
            Args::T12,
            "",
            "The GeoIP country database, for $geoip_country_code and similar variables.",
            |cx, n| open(cx, n, "GeoIP database", About::Countries, |conf| &mut conf.country),
        ),
        directive(
            "geoip_city",
            S::BLOCK,
            Args::T12,
            "",
            "The GeoIP city database, for $geoip_city and similar variables.",
            |cx, n| open(cx, n, "GeoIP City database", About::Cities, |conf| &mut conf.city),
        ),
        directive(
            "geoip_org",
            S::BLOCK,
            Args::T12,
            "",
            "The GeoIP organization database, for $geoip_org.",
            |cx, n| open(cx, n, "GeoIP database", About::Owners, |conf| &mut conf.org),
        ),
        directive(
            "geoip_proxy",
            S::BLOCK,
            Args::T1,
            "",
            "A trusted proxy: its X-Forwarded-For gives the address to look up.",
            |cx, n| cx.main::<GeoIpConf>().proxies.set_proxy(n),
        ),
        directive(
            "geoip_proxy_recursive",
            S::BLOCK,
            Args::FLAG,
            "off",
            "Takes the last address in X-Forwarded-For that is not a trusted proxy.",
            |cx, n| cx.main::<GeoIpConf>().proxies.set_recursive(n),
        ),
    ]
}

/// A variable that holds one field of the client's record.
macro_rules! of_record {
    ($name:literal, $database:ident, $field:ident) => {
        VarDef::kept($name, |s, out| find(s, |c| &c.$database, Field::$field, out))
    };
}

const fn variables<S: Session>() -> [VarDef<S>; 16] {
    [
        of_record!("geoip_country_code", country, CountryCode),
        of_record!("geoip_country_code3", country, CountryCode3),
        of_record!("geoip_country_name", country, CountryName),
        of_record!("geoip_org", org, Organization),
        of_record!("geoip_city_continent_code", city, ContinentCode),
        of_record!("geoip_city_country_code", city, CountryCode),
        of_record!("geoip_city_country_code3", city, CountryCode3),
        of_record!("geoip_city_country_name", city, CountryName),
        of_record!("geoip_region", city, RegionCode),
        of_record!("geoip_region_name", city, RegionName),
        of_record!("geoip_city", city, City),
        of_record!("geoip_postal_code", city, PostalCode),
        of_record!("geoip_latitude", city, Latitude),
        of_record!("geoip_longitude", city, Longitude),
        of_record!("geoip_dma_code", city, DmaCode),
        of_record!("geoip_area_code", city, AreaCode),
    ]
}

/// The databases that an engine looks addresses up in.
#[derive(Default)]
pub(crate) struct GeoIpConf {
    country: Option<Database>,
    city: Option<Database>,
    org: Option<Database>,
    proxies: Proxies,
}

impl Conf for GeoIpConf {}

fn open<S: Session>(
    cx: &mut Cx<S>,
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

fn find<S: Session>(
    s: &mut S,
    database: fn(&GeoIpConf) -> &Option<Database>,
    field: Field,
    out: &mut Vec<u8>,
) -> bool {
    let Some(conf) = s.confs().get::<GeoIpConf>() else { return false };
    let Some(database) = database(conf) else { return false };
    let client: Option<IpAddr> = conf.proxies.client(s);
    let found = database.find(client, field).map(Bytes::from);
    out.extend_from_slice(found.as_deref().unwrap_or_default());
    found.is_some()
}
