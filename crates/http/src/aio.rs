//! `aio` and its companions: the directives, and the pool of a request.

use base::log::Level;
use conf::{ConfError, Node};
use event::Pool;

use crate::core_conf::CoreLocDraft;
use crate::cx::Cx;
use crate::request::Request;

pub use files::{Aio, NoPool};

impl Request {
    /// The pool that waits for this request's disks; `None` where the worker itself does.
    ///
    /// # Errors
    /// The pool is named by variables, and no pool has that name.
    pub fn pool(&mut self) -> Result<Option<Pool>, NoPool> {
        match self.loc.core.aio.pool() {
            Ok(pool) => Ok(pool),
            Err(_) => self.named_pool().map(Some),
        }
    }

    /// Runs work that may block on a disk where this request's disk work runs: in a thread of its
    /// pool, or here where `aio` is off. The task runs to its end even if this future is dropped,
    /// and owns all that it works on.
    ///
    /// # Errors
    /// The task was not run, or panicked; the error says why.
    pub async fn on_disk<T: Send + 'static>(
        &mut self,
        task: impl FnOnce() -> T + Send + 'static,
    ) -> std::io::Result<T> {
        match self.pool() {
            Ok(None) => Ok(task()),
            Ok(Some(pool)) => Ok(pool.run(task).await?),
            Err(no_pool) => Err(no_pool.into()),
        }
    }

    /// The pool that writes temporary files; `None` with `aio off` or `aio_write off`: the worker
    /// does.
    pub fn writing_pool(&mut self) -> Result<Option<Pool>, NoPool> {
        if self.loc.core.aio_write { self.pool() } else { Ok(None) }
    }

    #[cold]
    fn named_pool(&mut self) -> Result<Pool, NoPool> {
        let loc = self.loc.clone();
        let Aio::Named(name) = &loc.core.aio else { return Err(NoPool) };
        let name = self.eval(name);
        self.main.pools.get(&name).ok_or_else(|| {
            let name = base::log::lossy(&name);
            self.log(Level::Error, format_args!("thread pool \"{name}\" not found"));
            NoPool
        })
    }
}

pub(crate) fn aio(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
    if cx.loc::<CoreLocDraft>().aio.is_some() {
        return Err(ConfError::directive(n, "is duplicate"));
    }
    let word = n.arg(0)?;
    let pool = |cx: &Cx, name: &[u8]| {
        cx.env.pools.get(name).map(Aio::Pool).ok_or_else(|| {
            let name = base::log::lossy(name);
            ConfError::at(word, format!("unknown thread pool \"{name}\""))
        })
    };
    let aio = match word.bytes() {
        b"off" => Aio::Off,
        b"auto" => Aio::Auto,
        b"io_uring" => Aio::Ring,
        // nginx's `on` is the kernel's queue of direct reads, for some reads; the pool serves all.
        b"on" | b"threads" => pool(cx, event::pool::DEFAULT_NAME.as_bytes())?,
        text => {
            let Some(name) = text.strip_prefix(b"threads=") else {
                return Err(ConfError::directive(n, "invalid value"));
            };
            let mut of_name = word.clone();
            of_name.text = word.text.slice_ref(name);
            let template = cx.template(&of_name)?;
            match template.as_const() {
                Some(name) => pool(cx, name)?,
                None => Aio::Named(template),
            }
        }
    };
    cx.loc::<CoreLocDraft>().aio = Some(aio);
    Ok(())
}

pub(crate) fn directio(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
    let directio = &mut cx.loc::<CoreLocDraft>().directio;
    if directio.is_some() {
        return Err(ConfError::directive(n, "is duplicate"));
    }
    let text = n.arg(0)?.bytes();
    *directio = Some(match text {
        b"off" => None,
        _ => {
            let from = conf::value::parse_offset(text);
            Some(from.ok_or_else(|| ConfError::directive(n, "invalid value"))?)
        }
    });
    Ok(())
}

/// The most that one buffer of `output_buffers` may have, and the coarsest `directio_alignment`:
/// a request's memory is limited.
const BUFFER_MAX: usize = 16 << 20;

pub(crate) fn directio_alignment(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
    let alignment = &mut cx.loc::<CoreLocDraft>().directio_alignment;
    conf::value::set_offset(alignment, n)?;
    match alignment {
        Some(a) if !a.is_power_of_two() || *a > BUFFER_MAX as u64 => {
            let m = "\"directio_alignment\" must be a power of two, 16m at most";
            Err(ConfError::at(n.arg(0)?, m))
        }
        _ => Ok(()),
    }
}

pub(crate) fn output_buffers(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
    let buffers = &mut cx.loc::<CoreLocDraft>().output_buffers;
    if buffers.is_some() {
        return Err(ConfError::directive(n, "is duplicate"));
    }
    let conf::value::Bufs { num: count, size } = conf::value::bufs(n)?;
    // At most 16m in all, because a request's memory is limited.
    let most = (count.min((BUFFER_MAX / size).max(1)), size.min(BUFFER_MAX));
    if most != (count, size) {
        conf::warn(n.arg(1)?, "\"output_buffers\" are 16m in all at most");
    }
    *buffers = Some(most);
    Ok(())
}
