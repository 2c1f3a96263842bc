//! `*_store`: stores responses as files of a location.
//!
//! Each piece is written to a temporary file before it is forwarded; once the body is complete, the
//! file is renamed to its final path. If the client disconnects, the rest is still read and stored.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use base::log::{Level, Log};
use base::time::parse_http_date;
use bytes::Bytes;
use engine::TempPath;
use engine::life::Work;
use files::{Attributes, FileError, Keep, TempFile, dir_mode, move_file};
use http::output::{BodySource, Broken, NextPiece};
use http::request::Request;
use http_wire::h1::{FieldId, Method};
use mem::Chain;

use crate::conf::{Conf, Store};
use crate::source::Source;

/// The size of pieces after the client has disconnected, in bytes.
const PIECE: u64 = 256 << 10;

/// A response that is being stored.
pub(crate) struct InFile {
    folder: TempPath,
    file: Option<TempFile>,
    to: PathBuf,
    attributes: Attributes,
    /// The Content-Length of the response.
    promised: Option<u64>,
    log: Log,
    connection: u64,
    pool: event::Pool,
}

/// A source whose bytes are also written to a file.
pub(crate) struct Storing {
    source: Option<Source>,
    keeping: Option<InFile>,
    stay: Option<Work>,
}

impl Storing {
    /// Wraps `source`.
    pub fn new(r: &Request, keeping: InFile, source: Source) -> Storing {
        let stay = Some(r.main.life.work());
        Storing { source: Some(source), keeping: Some(keeping), stay }
    }

    /// Writes a piece; after a failure nothing more is written.
    async fn write(&mut self, piece: &mut Chain) {
        let Some(keeping) = &mut self.keeping else { return };
        let mut parts = Vec::new();
        let mut all = Chain::new();
        while let Some(buf) = piece.pop_front() {
            if let Some(bytes) = buf.into_bytes() {
                all.push_bytes(bytes.clone());
                parts.push(bytes);
            }
        }
        *piece = all;
        if let Err(e) = keeping.write(parts).await {
            keeping.tell(&e);
            self.keeping = None;
        }
    }

    /// The response is complete.
    async fn end(&mut self) {
        if let Some(keeping) = self.keeping.take() {
            keeping.end().await;
        }
    }

    async fn piece(&mut self, r: &mut Request) -> Result<Option<Chain>, Broken> {
        let Some(source) = &mut self.source else { return Err(Broken) };
        let next = source.next(r).await;
        let over = source.is_over();
        let Ok(next) = next else {
            self.keeping = None;
            return Err(Broken);
        };
        let Some(mut piece) = next else {
            self.end().await;
            return Ok(None);
        };
        self.write(&mut piece).await;
        if over {
            self.end().await;
        }
        Ok(Some(piece))
    }

    /// Reads and stores the rest after the client has disconnected.
    async fn go_on(mut self) {
        let Some(mut source) = self.source.take() else { return };
        while self.keeping.is_some() {
            match source.pump(PIECE).await {
                Ok(Some(mut piece)) => self.write(&mut piece).await,
                Ok(None) => return self.end().await,
                Err(_) => return,
            }
        }
    }
}

impl InFile {
    /// Where to store the current response; `None` if it is not stored.
    pub fn of(r: &mut Request, conf: &Conf, buffering: bool) -> Option<InFile> {
        let kept =
            buffering && r.upstream_mut().head.status == 200 && r.target.method != Method::Head;
        let path = match &conf.store {
            Store::Off => return None,
            _ if !kept => return None,
            Store::Mapped => r.map_path().to_vec(),
            Store::Path(t) => t.eval(r).to_vec(),
        };
        if path.is_empty() || path.contains(&0) {
            return None;
        }
        let u = r.upstream_mut();
        let modified = u.head.value(FieldId::LastModified, &u.text).and_then(parse_http_date);
        let promised = u.head.content_length;
        // Relative paths start at the server's prefix, like all paths in the configuration.
        let prefix = PathBuf::from(OsString::from_vec(r.main.prefix.to_vec()));
        Some(InFile {
            folder: conf.temp_path.clone(),
            file: None,
            to: prefix.join(OsString::from_vec(path)),
            attributes: Attributes {
                mode: Some(conf.store_access),
                mtime: modified,
                dir_mode: Some(dir_mode(conf.store_access)),
            },
            promised,
            log: r.error_log().clone(),
            connection: r.c().number,
            pool: event::pool::default(),
        })
    }

    async fn write(&mut self, parts: Vec<Bytes>) -> Result<(), FileError> {
        let (folder, file) = (self.folder.clone(), self.file.take());
        let task = self.pool.run(move || {
            let mut file = match file {
                Some(file) => file,
                None => TempFile::create(&folder, Keep::Named, 0o600)?,
            };
            file.append_parts(&parts)?;
            Ok(file)
        });
        let failed = |e: std::io::Error| FileError::new("pwritev()", &*self.folder.path, e);
        self.file = Some(task.await.map_err(|e| failed(e.into()))??);
        Ok(())
    }

    async fn end(mut self) {
        // A response without a body becomes an empty file.
        if self.file.is_none()
            && let Err(e) = self.write(Vec::new()).await
        {
            return self.tell(&e);
        }
        let Some(mut file) = self.file.take() else { return };
        if self.promised.is_some_and(|n| n != file.len()) {
            return;
        }
        let (to, attributes) = (self.to.clone(), self.attributes);
        let task = self.pool.run(move || {
            move_file(file.path(), &to, attributes)?;
            file.moved();
            Ok(())
        });
        let failed = |e: std::io::Error| FileError::new("rename()", &*self.to, e);
        if let Err(e) = task.await.unwrap_or_else(|e| Err(failed(e.into()))) {
            self.tell(&e);
        }
    }

    #[cold]
    fn tell(&self, e: &FileError) {
        base::log!(self.log, Level::Crit, Some(self.connection), "{e} while reading upstream");
    }
}

impl BodySource for Storing {
    fn next<'a>(&'a mut self, r: &'a mut Request) -> NextPiece<'a> {
        Box::pin(self.piece(r))
    }

    fn is_over(&self) -> bool {
        self.source.as_ref().is_some_and(BodySource::is_over)
    }

    fn is_ready(&self) -> bool {
        self.source.as_ref().is_some_and(BodySource::is_ready)
    }

    fn abandoned(&mut self, r: &mut Request) {
        if let Some(source) = &mut self.source {
            source.abandoned(r);
        }
        let rest = Storing {
            source: self.source.take(),
            keeping: self.keeping.take(),
            stay: self.stay.take(),
        };
        if rest.keeping.is_some() {
            event::spawn(rest.go_on());
        }
    }
}
