//! The parts that FastCGI, uwsgi, SCGI and memcached share: destinations and parameters.

pub mod params;
pub mod pass;
pub mod plain;

use std::rc::Rc;

use base::log::Level;
use conf::ConfError;
use http::module::LocView;
use http::request::Request;
use http_upstream::caching::Caching;
use http_upstream::conf::{Conf as UpConf, Draft};
use http_upstream::directives::Shared;
use proto::params::Notation;

use crate::health::Speaks;

/// A module that passes requests to a gateway; it is its configuration.
pub trait Gateway: Shared {
    /// The prefix of its directives.
    const PREFIX: &'static str;
    /// The scheme of addresses in logs.
    const SCHEME: &'static str;
    /// The same for encrypted connections.
    const TLS_SCHEME: Option<&'static str> = None;
    /// The protocol that health checks speak.
    const SPEAKS: Speaks = Speaks::Other;
    /// Whether responses may go to files.
    const USES_FILES: bool = true;
}

engine::settings! {
    /// The settings of one level that all gateways with parameters have.
    pub struct Common {
        /// Times, buffers, other servers.
        pub up: Draft,
        /// The cache.
        pub cache: http_upstream::caching::Draft,
        /// The parameters.
        pub params: params::List,
    }
}

impl Common {
    /// The settings of a location, compiled. Fields of responses in `hidden` are not passed on.
    ///
    /// # Errors
    /// Sizes that do not fit to each other; files of TLS that cannot be used; checks of health that
    /// cannot be made.
    pub fn finish<G: Parameterised>(
        &self,
        l: &LocView,
        to: &pass::To<G>,
        hidden: &'static [&'static str],
    ) -> Result<(Rc<UpConf>, params::Params), ConfError> {
        let conf = self.up.finish(<G as Gateway>::PREFIX, hidden, &pass::folder::<G>(l))?;
        let conf = conf.at(<G as Gateway>::PREFIX, l).with_cache(self.cache.finish::<G>(l)?);
        let conf = match to.uses_tls() {
            true => conf.with_tls(self.up.ssl.finish(<G as Gateway>::PREFIX, &[])?),
            false => conf,
        };
        to.check_health(l, &conf)?;
        let defaults = pass::defaults::<G>(l);
        let pass_fields = conf.pass_request_headers;
        let params = params::Params::new(G::NOTATION, &self.params, &defaults, pass_fields);
        Ok((conf, params))
    }
}

/// A gateway that has parameters.
pub trait Parameterised: Gateway + Caching {
    /// The notation of its parameters.
    const NOTATION: Notation;

    /// The settings shared with the other gateways.
    fn common(&mut self) -> &mut Common;
}

/// Makes a configuration with a field `common` that of a gateway with parameters: its name, what
/// addresses begin with in logs, what they begin with where the connection is to be encrypted, and
/// the notation of its parameters.
#[macro_export]
macro_rules! gateway {
    ($conf:ty, $prefix:literal, $scheme:literal, $tls:expr, $notation:ident) => {
        impl ::http_upstream::directives::Shared for $conf {
            const TEMP_PATH: &str = concat!($prefix, "_temp 1 2");

            fn shared(&mut self) -> &mut ::http_upstream::conf::Draft {
                &mut self.common.up
            }
        }

        impl ::http_upstream::caching::Caching for $conf {
            const PREFIX: &'static str = $prefix;

            fn caching(&mut self) -> &mut ::http_upstream::caching::Draft {
                &mut self.common.cache
            }
        }

        impl $crate::gateway::Gateway for $conf {
            const PREFIX: &'static str = $prefix;
            const SCHEME: &'static str = $scheme;
            const TLS_SCHEME: Option<&'static str> = $tls;
        }

        impl $crate::gateway::Parameterised for $conf {
            const NOTATION: ::proto::params::Notation = ::proto::params::Notation::$notation;

            fn common(&mut self) -> &mut $crate::gateway::Common {
                &mut self.common
            }
        }
    };
}

/// Fields of gateways' responses that are meant for us.
pub const HIDDEN: &[&str] = &[
    "Status",
    "X-Accel-Expires",
    "X-Accel-Redirect",
    "X-Accel-Limit-Rate",
    "X-Accel-Buffering",
    "X-Accel-Charset",
];

/// A request has more parameters than the protocol can tell.
#[cold]
pub fn too_big(r: &Request, what: &str, len: usize) -> u16 {
    r.log(Level::Alert, format_args!("{what} is too big: {len}"));
    500
}
