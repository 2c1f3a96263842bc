//! The response body for a client of a response that this worker is fetching into a cache.

use std::cell::Cell;
use std::rc::Rc;

use base::log::Level;
use cache::{Feed, FeedEnding, Fill, FillPiece, FillReader};
use event::race_if;
use http::channel::ClientEnd;
use http::output::{BodySource, Broken, NextPiece};
use http::request::Request;
use mem::Chain;

use crate::conf::Conf;
use crate::source::{Ending, Fail, Source, finished};

impl Feed for Source {
    type Failure = Fail;

    fn ready(&mut self) -> Option<Chain> {
        Source::ready(self)
    }

    fn has_ended(&self) -> bool {
        Source::has_ended(self)
    }

    fn is_whole(&self) -> bool {
        Source::is_whole(self)
    }

    fn pump(&mut self, most: u64) -> impl Future<Output = Result<Option<Chain>, Fail>> {
        Source::pump(self, most)
    }

    fn take_received(&mut self) -> u64 {
        self.take_fresh()
    }

    fn ending(&mut self) -> FeedEnding {
        let Ending { messages, trailers } = Source::ending(self);
        FeedEnding { messages, trailers }
    }
}

/// The response body for one client.
pub(crate) struct FillBody {
    reader: FillReader,
    /// Set for the client whose request went to the upstream.
    first: Option<Rc<Conf>>,
    over: Cell<bool>,
}

impl FillBody {
    /// The body for another request that reads along.
    pub fn new(fill: Rc<Fill>, most: u64) -> FillBody {
        FillBody { reader: FillReader::new(fill, most), first: None, over: Cell::new(false) }
    }

    /// The body for the request that went to the upstream.
    pub fn first(fill: Rc<Fill>, conf: Rc<Conf>) -> FillBody {
        let mut body = FillBody::new(fill, conf.busy as u64);
        body.first = Some(conf);
        body
    }

    /// The whole body, if it is complete already.
    pub fn whole(&mut self, r: &mut Request) -> Option<Chain> {
        let all = self.reader.fill().whole()?;
        self.sync(r);
        self.finish(r);
        Some(all)
    }

    /// Updates the request's counters and state.
    fn sync(&mut self, r: &mut Request) {
        if self.first.is_none() {
            return;
        }
        let (fresh, messages) = self.reader.fill().take_report();
        let a = r.upstream_mut().now();
        a.received += fresh;
        a.response_length += fresh;
        for (level, m) in messages {
            r.log(level, format_args!("{m} while reading upstream"));
        }
    }

    fn finish(&mut self, r: &mut Request) {
        self.over.set(true);
        if let Some(conf) = &self.first {
            finished(r, conf, self.reader.fill().take_trailers());
        }
    }

    async fn piece(&mut self, r: &mut Request) -> Result<Option<Chain>, Broken> {
        loop {
            let piece = self.reader.piece();
            self.sync(r);
            match piece {
                FillPiece::Bytes { chain, last } => {
                    if last {
                        self.finish(r);
                    }
                    return Ok(Some(chain));
                }
                FillPiece::End => {
                    self.finish(r);
                    return Ok(None);
                }
                FillPiece::Broken => {
                    self.broke(r);
                    return Err(Broken);
                }
                FillPiece::Pending => {}
            }
            let client = r.watched();
            let gone = client.as_ref().map(ClientEnd::gone);
            if race_if(self.reader.changed(), gone).await.is_second() {
                r.log(Level::Info, format_args!("client prematurely closed connection"));
                self.finish(r);
                return Err(Broken);
            }
        }
    }

    #[cold]
    fn broke(&mut self, r: &mut Request) {
        let failure = self.reader.fill().take_failure();
        let failure = failure.and_then(|failure| failure.downcast::<Fail>().ok());
        match (failure, self.first.is_some()) {
            (Some(fail), true) => fail.tell(r),
            _ => {
                let m = "the response could not be read to its end";
                r.log(Level::Error, format_args!("{m}"));
                r.upstream_mut().cut_short = true;
            }
        }
        self.finish(r);
    }
}

impl BodySource for FillBody {
    fn next<'a>(&'a mut self, r: &'a mut Request) -> NextPiece<'a> {
        Box::pin(self.piece(r))
    }

    fn is_over(&self) -> bool {
        self.over.get()
    }

    fn is_ready(&self) -> bool {
        self.reader.is_ready()
    }

    fn abandoned(&mut self, r: &mut Request) {
        self.sync(r);
        self.finish(r);
    }
}
