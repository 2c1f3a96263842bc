//! Keeps the certificates of one issuer: which one is due, what became of it, and when to look
//! again.

use std::cell::RefCell;
use std::rc::Rc;

use base::log;
use base::log::{Level, Log};
use base::time::unix_secs;
use event::{Gate, race};
use proto::acme::{RenewalInfo, certificate_id, moment, window_of};
use tls::issue::random;

use crate::board::Board;
use crate::challenges::{Stage, answers};
use crate::folder::{Folder, Pair};
use crate::issuer::{Issuer, Order};
use crate::ordering::{Ordering, certificates};
use crate::progress::Progress;
use crate::session::{Session, Trouble};
use crate::zone::Answer;

/// Pause between two looks of a host that does not lead, milliseconds.
const FOLLOW_MS: u64 = 400;

/// The longest pause of the host that leads, seconds: the clock may be set.
const LOOK_S: u64 = 60;

/// Pauses between questions for renewal information, seconds: by default, at least and at most;
/// behind a failure, and where the server has none.
const ARI_S: u64 = 6 * 3600;
const ARI_MIN_S: u64 = 60;
const ARI_MAX_S: u64 = 86_400;
const ARI_FAILED_S: u64 = 3600;

/// Where the progress of the account is kept.
const ACCOUNT: &str = "account";

/// One issuer in the acme process.
pub(crate) struct Keeper {
    issuer: Rc<Issuer>,
    folder: Rc<Folder>,
    board: Rc<Board>,
    log: Log,
    session: RefCell<Option<Rc<Session>>>,
    /// The answers of other hosts that are shown.
    followed: RefCell<Followed>,
}

#[derive(Default)]
struct Followed {
    /// The files of challenges, with their names.
    files: Vec<(String, Vec<u8>)>,
    answers: Vec<Answer>,
}

fn now() -> i64 {
    unix_secs().cast_signed()
}

impl Keeper {
    pub fn new(issuer: &Rc<Issuer>, board: &Rc<Board>, log: &Log) -> Keeper {
        let folder = Rc::new(Folder::new(issuer.folder.as_deref(), &issuer.name, log));
        Keeper {
            issuer: issuer.clone(),
            folder,
            board: board.clone(),
            log: log.clone(),
            session: RefCell::default(),
            followed: RefCell::default(),
        }
    }

    /// Runs until `gate` closes.
    pub async fn run(self, gate: Gate) {
        self.folder.prepare();
        if self.issuer.folder.is_none() {
            self.take_over();
        }
        let _lock = loop {
            match self.folder.lock() {
                Ok(Some(lock)) => break lock,
                Ok(None) => self.follow(),
                Err(e) => {
                    // Alone, as far as can be known.
                    let (name, e) = (&self.issuer.name, base::log::os_error(&e));
                    let m = format_args!("acme: locking the folder failed {e}");
                    log!(self.log, Level::Error, None, "{m}, issuer: \"{name}\"");
                    break None;
                }
            }
            race(event::sleep(FOLLOW_MS), gate.closed()).await;
            if gate.is_closed() {
                return;
            }
        };
        self.lead();
        while !gate.is_closed() {
            let wait = race(self.turn(), gate.closed()).await;
            let event::Either::First(secs) = wait else { return };
            race(event::sleep(secs * 1000), gate.closed()).await;
        }
    }

    /// Without a folder, the certificates are those in the zone.
    fn take_over(&self) {
        for order in &self.issuer.orders {
            let Some(shown) = self.board.shown(&order.key).filter(|s| !s.chain.is_empty()) else {
                continue;
            };
            self.folder.write(&format!("{}.key", order.id), &shown.private);
            self.folder.write(&format!("{}.crt", order.id), &shown.chain);
        }
    }

    /// Another host leads: shows what it has put into the folder.
    fn follow(&self) {
        self.board.set_follows(true);
        for order in &self.issuer.orders {
            match self.folder.pair(&order.id) {
                Some(pair) => self.show(order, &pair),
                None => {
                    let state = "another host of this folder orders it";
                    self.board.change(&order.key, |s| state.clone_into(&mut s.state));
                }
            }
        }
        let mut files: Vec<_> = self.folder.list(".challenges");
        files.sort();
        let read = |name: String| Some((name.clone(), self.folder.read(&name)?.to_vec()));
        let files: Vec<_> = files.into_iter().filter_map(read).collect();
        if self.followed.borrow().files == files {
            return;
        }
        let all: Vec<u8> = files.iter().flat_map(|(_, text)| text.clone()).collect();
        let found = answers(&String::from_utf8_lossy(&all)).unwrap_or_default();
        let before = self.followed.replace(Followed { files, answers: found.clone() });
        self.board.remove_answers(&before.answers);
        self.board.add_answers(found);
    }

    /// This host leads now: ends what a process before broke off.
    fn lead(&self) {
        self.board.set_follows(false);
        let followed = self.followed.take();
        self.board.remove_answers(&followed.answers);
        for order in &self.issuer.orders {
            let settled = Progress { settings: self.settings(), ..Progress::default() };
            self.folder.finish_install(&order.id, || self.save(&order.id, &settled));
            // The validator may still come for a challenge that was under way.
            match self.folder.pair(&order.id) {
                Some(pair) => {
                    self.show(order, &pair);
                    self.ask_soon(order);
                }
                None => {
                    let state = "it is not ordered yet";
                    self.board.change(&order.key, |s| state.clone_into(&mut s.state));
                }
            }
        }
    }

    /// The server may have changed its mind while nobody asked.
    fn ask_soon(&self, order: &Order) {
        let mut progress = self.progress(&order.id, &self.settings());
        if progress.check > now() {
            progress.check = 0;
            self.save(&order.id, &progress);
        }
    }

    fn show(&self, order: &Order, pair: &Pair) {
        let until = times(pair).map_or(0, |(_, until)| until);
        self.board.change(&order.key, |shown| {
            shown.chain.clone_from(&pair.chain);
            shown.private.clone_from(&pair.private);
            shown.until = until;
        });
    }

    fn progress(&self, name: &str, settings: &str) -> Progress {
        let text = self.folder.read(&format!("{name}.state")).unwrap_or_default();
        let progress = Progress::parse(&text);
        if progress.settings == settings {
            return progress;
        }
        // Whatever was wrong may be right now; an order under way is of no use.
        Progress { settings: settings.to_owned(), ..Progress::default() }
    }

    fn save(&self, name: &str, progress: &Progress) {
        self.folder.write(&format!("{name}.state"), &progress.to_text());
    }

    /// The facts that an attempt depends on.
    fn settings(&self) -> String {
        let issuer = &self.issuer;
        let external = issuer.external.as_ref().map_or("", |(kid, _)| kid);
        let profile = issuer.profile.as_ref().map_or("", |(name, _)| name);
        let proof = issuer.proof.kind();
        let agrees = if issuer.agrees { "agreed" } else { "" };
        format!("{} {proof} {agrees} {external} {profile}", issuer.uri)
    }

    /// Looks after what is due. Gives the seconds until the next look.
    async fn turn(&self) -> u64 {
        let settings = self.settings();
        let mut account = self.progress(ACCOUNT, &settings);
        let left = account.backoff.left(now());
        if left > 0 {
            self.tell_waiting(&account);
            return left.min(LOOK_S);
        }
        let mut wait = LOOK_S;
        for order in &self.issuer.orders {
            let mut progress = self.progress(&order.id, &settings);
            let due = self.due(order, &mut progress);
            if due > 0 {
                wait = wait.min(due);
                continue;
            }
            let session = match self.session().await {
                Ok(session) => session,
                Err(trouble) => {
                    self.failed(ACCOUNT, None, &mut account, trouble);
                    return account.backoff.left(now()).clamp(1, LOOK_S);
                }
            };
            if account.backoff.failures > 0 {
                account = Progress { settings: settings.clone(), ..Progress::default() };
                self.save(ACCOUNT, &account);
                let m = format_args!("acme: the server of \"{}\" answers again", self.issuer.name);
                log!(self.log, Level::Notice, None, "{m}");
            }
            self.attend(&session, order, &mut progress).await;
            wait = wait.min(self.due(order, &mut progress).max(1));
        }
        wait
    }

    /// Seconds until an order needs attention.
    fn due(&self, order: &Order, progress: &mut Progress) -> u64 {
        let backoff = progress.backoff.left(now());
        let Some(pair) = self.folder.pair(&order.id) else { return backoff };
        let Some((from, until)) = times(&pair) else { return backoff };
        if progress.renew == 0 || progress.renew > until {
            progress.renew = moment(window_of(from, until), random()).max(1);
            self.save(&order.id, progress);
        }
        let renewal = progress.renew;
        self.board.change(&order.key, |shown| shown.renewal = renewal);
        let next = if progress.order.is_some() { 0 } else { renewal.min(progress.check) };
        u64::try_from(next.saturating_sub(now())).unwrap_or(0).max(backoff)
    }

    async fn session(&self) -> Result<Rc<Session>, Trouble> {
        let known = self.session.borrow().clone().filter(|session| session.is_fresh());
        if let Some(session) = known {
            return Ok(session);
        }
        let session = Session::open(&self.issuer, &self.folder, &self.log).await;
        let session = Rc::new(session.map_err(|trouble| trouble.during("reading the directory"))?);
        *self.session.borrow_mut() = Some(session.clone());
        Ok(session)
    }

    /// Asks for renewal information if it is time, and orders if that is due.
    async fn attend(&self, session: &Rc<Session>, order: &Order, progress: &mut Progress) {
        let pair = self.folder.pair(&order.id);
        let id = pair.as_ref().and_then(identifier);
        if let (Some(pair), Some(id)) = (&pair, &id)
            && progress.order.is_none()
            && progress.check <= now()
        {
            self.ask_renewal(session, order, pair, id, progress).await;
            self.save(&order.id, progress);
        }
        if pair.is_some() && progress.order.is_none() && progress.renew > now() {
            return;
        }
        let replaces = id.filter(|_| session.directory.renewal_info.is_some());
        let save = |progress: &Progress| self.save(&order.id, progress);
        let stage = Stage {
            issuer: &self.issuer,
            board: &self.board,
            folder: &self.folder,
            log: &self.log,
        };
        let ordering = Ordering { stage, session, order, replaces, save: &save };
        match ordering.run(progress).await {
            Ok(pair) => {
                let settings = progress.settings.clone();
                *progress = Progress { settings, ..Progress::default() };
                self.folder.install(&order.id, &pair.chain, || self.save(&order.id, progress));
                self.board.change(&order.key, |shown| shown.state.clear());
                self.show(order, &pair);
            }
            Err(trouble) => self.failed(&order.id, Some(order), progress, trouble),
        }
    }

    /// RFC 9773: the server says when to renew, and when to ask again.
    async fn ask_renewal(
        &self,
        session: &Session,
        order: &Order,
        pair: &Pair,
        id: &str,
        progress: &mut Progress,
    ) {
        let later = |secs: u64| now() + i64::try_from(secs).unwrap_or(0);
        let Some(base) = &session.directory.renewal_info else {
            progress.check = later(ARI_MAX_S);
            return;
        };
        let url = format!("{}/{id}", base.trim_end_matches('/'));
        let asked = async {
            let reply = session.get(&url).await?;
            Ok::<_, Trouble>((RenewalInfo::parse(&reply.body)?, reply.retry_after))
        };
        match asked.await {
            Ok((info, retry_after)) => {
                let until = times(pair).map_or(i64::MAX, |(_, until)| until);
                let (start, end) = info.window;
                let is_inside = (start..=end).contains(&progress.renew);
                if !is_inside && start < until {
                    progress.renew = moment((start, end.min(until)), random()).max(1);
                    let why = info.explanation.map(|url| format!(", see {url}"));
                    let why = why.unwrap_or_default();
                    let m = format_args!("acme: certificate \"{}\" is to be renewed", order.key);
                    let from = format_args!("from {start} to {end}");
                    log!(self.log, Level::Notice, None, "{m} {from}{why}");
                }
                let secs = retry_after.unwrap_or(ARI_S);
                progress.check = later(secs.clamp(ARI_MIN_S, ARI_MAX_S));
            }
            Err(trouble) => {
                progress.check = later(ARI_FAILED_S);
                let m = format_args!("acme: no renewal information for \"{}\"", order.key);
                log!(self.log, Level::Warn, None, "{m}: {}", trouble.message);
            }
        }
    }

    /// Notes a failure, and says when the next attempt is.
    fn failed(&self, name: &str, order: Option<&Order>, progress: &mut Progress, trouble: Trouble) {
        let is_limited = trouble.problem.as_ref().is_some_and(|problem| problem.is_rate_limited());
        let permanent = trouble.is_permanent;
        progress.backoff.failed(now(), random(), trouble.retry_after, permanent);
        let is_news = progress.error != trouble.message;
        progress.error = trouble.message;
        self.save(name, progress);
        let level = match () {
            () if !is_news => Level::Info,
            () if permanent => Level::Error,
            () => Level::Warn,
        };
        let issuer = &self.issuer.name;
        let of = match order {
            Some(order) => format!("issuer: \"{issuer}\", order: \"{}\"", order.id),
            None => format!("issuer: \"{issuer}\""),
        };
        let secs = progress.backoff.left(now());
        let limited = if is_limited { " (rate limited)" } else { "" };
        let error = &progress.error;
        let next = format_args!("next attempt in {secs} s{limited}");
        log!(self.log, level, None, "acme: {error}; {next}, {of}");
        match order {
            Some(order) => self.tell_state(order, progress),
            None => self.tell_waiting(progress),
        }
    }

    fn tell_state(&self, order: &Order, progress: &Progress) {
        let secs = progress.backoff.left(now());
        let state = format!("{}; next attempt in {secs} s", progress.error);
        self.board.change(&order.key, |shown| shown.state = state);
    }

    fn tell_waiting(&self, progress: &Progress) {
        self.issuer.orders.iter().for_each(|order| self.tell_state(order, progress));
    }
}

/// The first and the last second of a certificate.
fn times(pair: &Pair) -> Option<(i64, i64)> {
    let chain = certificates(&pair.chain)?;
    let own = chain.first()?;
    Some((own.not_before().unix()?, own.not_after().unix()?))
}

/// The identifier of a certificate for RFC 9773.
fn identifier(pair: &Pair) -> Option<String> {
    let chain = certificates(&pair.chain)?;
    let own = chain.first()?;
    Some(certificate_id(own.authority_key_id()?, own.serial()))
}
