//! `…_comp_level LEVEL [threads[=POOL]]`: how hard to try, and whether in a thread.

use conf::value::number;
use conf::{ConfError, Node};
use event::Pool;
use http::cx::Cx;

/// A level, and the pool whose threads compress.
#[derive(Clone, Debug)]
pub struct Level {
    /// The number.
    pub level: u64,
    /// `None`: the worker itself compresses what does not take long.
    pub pool: Option<Pool>,
}

/// A directive's setter; the levels are from `range.0` to `range.1`.
///
/// # Errors
/// The level does not exist, or the pool does not.
pub(crate) fn set_level(
    cx: &mut Cx,
    n: &Node,
    range: (u64, u64),
    field: fn(&mut Cx) -> &mut Option<Level>,
) -> Result<(), ConfError> {
    if field(cx).is_some() {
        return Err(ConfError::directive(n, "is duplicate"));
    }
    let level = number(n, 0)?;
    if level < range.0 || level > range.1 {
        let m = format!("value must be between {} and {}", range.0, range.1);
        return Err(ConfError::at(n.arg(0)?, m));
    }
    let pool = match n.args.get(1) {
        None => None,
        Some(word) => {
            let name = match word.bytes() {
                b"threads" => event::pool::DEFAULT_NAME.as_bytes(),
                text => text.strip_prefix(b"threads=").ok_or_else(|| {
                    ConfError::at(word, format!("invalid parameter \"{}\"", word.lossy()))
                })?,
            };
            Some(cx.env.pools.get(name).ok_or_else(|| {
                let name = base::log::lossy(name);
                ConfError::at(word, format!("unknown thread pool \"{name}\""))
            })?)
        }
    };
    *field(cx) = Some(Level { level, pool });
    Ok(())
}
