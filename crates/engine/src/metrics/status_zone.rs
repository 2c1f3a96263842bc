//! `status_zone`: the zones of servers and locations.

use conf::template::Template;
use conf::{ConfError, Node};
use os::SockAddr;

use super::{Kind, Metrics, RowId, ZoneRef};
use crate::cx::Cx;
use crate::session::Session;
use crate::settings::{Conf, ConfSet};

/// The zone of a server or a location.
#[derive(Clone)]
pub enum ZoneName {
    /// None.
    Off,
    /// One that the configuration names.
    Fixed(ZoneRef),
    /// The value of a string with variables.
    Template(Kind, Template),
}

impl ZoneName {
    /// The row of a session; `None` where nothing is counted, or the name is empty.
    pub fn row<S: Session>(&self, s: &mut S) -> Option<RowId> {
        match self {
            ZoneName::Off => None,
            ZoneName::Fixed(zone) => s.metrics().row_of(*zone),
            ZoneName::Template(kind, template) => {
                let name = template.eval(s);
                if name.is_empty() { None } else { s.metrics().row_named(*kind, &name) }
            }
        }
    }
}

/// `status_zone` of a server.
#[derive(Default)]
pub struct ServerZone(pub Option<ZoneName>);

impl Conf for ServerZone {}

crate::settings! {
    /// `status_zone` of a location, which those within it share.
    pub struct LocationZone(pub Option<ZoneName>);
}

fn parse<S: Session>(cx: &mut Cx<S>, n: &Node, kind: Kind) -> Result<ZoneName, ConfError> {
    let word = n.arg(0)?;
    let template = cx.template(word)?;
    Ok(match template.as_const() {
        None => {
            cx.env.metrics.declare_dynamic(kind);
            ZoneName::Template(kind, template)
        }
        Some(name) if name.is_empty() => {
            return Err(ConfError::at(word, "the name of a zone is empty"));
        }
        Some(name) => ZoneName::Fixed(cx.env.metrics.declare(kind, name)),
    })
}

/// Reads `status_zone` in a server.
///
/// # Errors
/// `is duplicate`, an empty name, an unknown variable.
pub fn set_server<S: Session>(cx: &mut Cx<S>, n: &Node, kind: Kind) -> Result<(), ConfError> {
    if cx.loc::<ServerZone>().0.is_some() {
        return Err(ConfError::directive(n, "is duplicate"));
    }
    let zone = parse(cx, n, kind)?;
    cx.loc::<ServerZone>().0 = Some(zone);
    Ok(())
}

/// Reads `status_zone` in a location, where `off` ends what the location around has set.
///
/// # Errors
/// As [`set_server`].
pub fn set_location<S: Session>(cx: &mut Cx<S>, n: &Node) -> Result<(), ConfError> {
    if cx.loc::<LocationZone>().0.is_some() {
        return Err(ConfError::directive(n, "is duplicate"));
    }
    let zone = match n.arg(0)?.bytes() {
        b"off" => ZoneName::Off,
        _ => parse(cx, n, Kind::Location)?,
    };
    cx.loc::<LocationZone>().0 = Some(zone);
    Ok(())
}

impl Metrics {
    /// The zone of a server: that of its `status_zone`, else its own name, else its first address.
    pub fn of_server(
        &self,
        set: &ConfSet,
        kind: Kind,
        name: &[u8],
        address: Option<&SockAddr>,
    ) -> ZoneName {
        if let Some(zone) = set.get::<ServerZone>().and_then(|zone| zone.0.clone()) {
            return zone;
        }
        let unnamed = address.filter(|_| name.is_empty()).map(ToString::to_string);
        ZoneName::Fixed(self.declare(kind, unnamed.as_deref().map_or(name, str::as_bytes)))
    }
}
