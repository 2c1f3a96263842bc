//! Maintains the certificates of one issuer: decides when each one is due, orders it, records the
//! result, and schedules the next check.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use base::log;
use base::log::{Level, Log};
use base::time::unix_secs;
use event::{Gate, race, side_by_side};
use pki::issue::random;
use proto::acme::{Backoff, RenewalInfo, certificate_id, moment, window_of};

use crate::board::Board;
use crate::challenges::{answers, withdraw};
use crate::folder::{Folder, Pair};
use crate::issuer::{Issuer, Order};
use crate::ordering::{Ordering, certificates};
use crate::progress::Progress;
use crate::session::{Session, Trouble};
use crate::shared::Shared;
use crate::zone::Answer;

/// The polling interval of a host that does not lead, in milliseconds.
const FOLLOW_MS: u64 = 400;

/// The maximum interval between two checks of the leader, in seconds; short, because the clock may
/// be set.
const LOOK_S: u64 = 60;

/// Intervals between requests for renewal information (RFC 9773), in seconds: the default, the
/// minimum and the maximum of the server's Retry-After, and after a failure. The maximum also
/// applies if the server has no renewal information.
const ARI_S: u64 = 6 * 3600;
const ARI_MIN_S: u64 = 60;
const ARI_MAX_S: u64 = 86_400;
const ARI_FAILED_S: u64 = 3600;

/// The maximum number of concurrent orders, so that a slow one does not delay the others.
const ORDERS: usize = 4;

/// The time before expiry at which to log a warning, in seconds, because the certificate should
/// have been renewed long before; a sixth of its lifetime if that is shorter.
const WARN_S: i64 = 14 * 86_400;

/// An issuer in the acme process.
pub(crate) struct Keeper {
    issuer: Rc<Issuer>,
    /// The name of the account's state file. It contains the issuer's name, because issuers that
    /// share the directory may use other servers.
    account: String,
    folder: Rc<Folder>,
    board: Rc<Board>,
    log: Log,
    session: RefCell<Option<Rc<Session>>>,
    /// The validity of each certificate and its standing at the last check, by order.
    terms: RefCell<HashMap<String, Term>>,
    /// The last error of the key rollover, so that it is logged once.
    no_rollover: RefCell<String>,
    /// The published challenge responses of other hosts.
    followed: RefCell<Followed>,
    /// Challenge responses that a previous process started, kept until their orders have ended,
    /// because the server may still validate them.
    inherited: RefCell<HashMap<String, Vec<Answer>>>,
}

#[derive(Default)]
struct Followed {
    /// The challenge files: name and content.
    files: Vec<(String, Vec<u8>)>,
    answers: Vec<Answer>,
}

/// The validity of a certificate.
#[derive(Clone, Copy)]
struct Term {
    from: i64,
    until: i64,
    standing: Standing,
}

/// How close a certificate is to its expiry.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Standing {
    Good,
    EndsSoon,
    Over,
}

impl Term {
    /// Whether less than a third of its lifetime has passed.
    fn is_young(&self) -> bool {
        now().saturating_sub(self.from) < self.until.saturating_sub(self.from).max(0) / 3
    }

    fn standing_at(&self, now: i64) -> Standing {
        let life = self.until.saturating_sub(self.from).max(0);
        match self.until.saturating_sub(now) {
            left if left < 0 => Standing::Over,
            left if left < WARN_S.min(life / 6) => Standing::EndsSoon,
            _ => Standing::Good,
        }
    }
}

fn now() -> i64 {
    unix_secs().cast_signed()
}

impl Keeper {
    pub fn new(issuer: &Rc<Issuer>, board: &Rc<Board>, log: &Log) -> Keeper {
        let folder = Rc::new(Folder::new(issuer.folder.as_deref(), &issuer.name, log));
        Keeper {
            account: format!("{}.account", issuer.name),
            issuer: issuer.clone(),
            folder,
            board: board.clone(),
            log: log.clone(),
            session: RefCell::default(),
            terms: RefCell::default(),
            no_rollover: RefCell::default(),
            followed: RefCell::default(),
            inherited: RefCell::default(),
        }
    }

    /// Runs until `gate` closes: follows while another host leads, then leads.
    pub async fn run(self, gate: Gate) {
        self.folder.prepare();
        stand_in::show(&self.issuer, &self.folder, &self.board);
        if self.issuer.folder.is_none() {
            self.take_over();
        }
        let _lock = loop {
            match self.folder.lock() {
                Ok(Some(lock)) => break lock,
                Ok(None) => self.follow(None),
                Err(e) => {
                    // Without a lock, assume that there is no other host.
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
        if let Some(of) = &self.issuer.shared {
            let shared = Shared::new(&self.issuer, of, &self.folder, &self.log);
            event::spawn(shared.clone().run(gate.clone()));
            return self.run_shared(&shared, &gate).await;
        }
        self.lead();
        race(self.clean_up(), gate.closed()).await;
        while !gate.is_closed() {
            let wait = race(self.turn(), gate.closed()).await;
            let event::Either::First(secs) = wait else { return };
            race(event::sleep(secs * 1000), gate.closed()).await;
        }
    }

    /// With a folder that all servers of a fleet have: leads while this server has the lock, and
    /// follows while it does not.
    async fn run_shared(&self, shared: &Shared, gate: &Gate) {
        while !gate.is_closed() {
            let Some(fence) = shared.fence() else {
                self.follow(Some(shared.who()));
                race(shared.next_exchange(), gate.closed()).await;
                continue;
            };
            // Another server may have made the account meanwhile.
            *self.session.borrow_mut() = None;
            self.lead();
            let work = async {
                self.clean_up().await;
                loop {
                    self.drop_ended();
                    let secs = self.turn().await;
                    event::sleep(secs * 1000).await;
                }
            };
            race(race(work, shared.lost(fence)), gate.closed()).await;
            // What the order shows goes with its file, as soon as another server has removed that.
            let own: Vec<_> = self.own_answers().into_iter().flat_map(|(_, of)| of).collect();
            *self.followed.borrow_mut() = Followed { files: Vec::new(), answers: own };
        }
    }

    /// The challenge responses of each order, from the folder.
    fn own_answers(&self) -> Vec<(String, Vec<Answer>)> {
        let of = |order: &Rc<Order>| {
            let text = self.folder.read(&format!("{}.challenges", order.id)).unwrap_or_default();
            (order.id.clone(), answers(&String::from_utf8_lossy(&text)).unwrap_or_default())
        };
        self.issuer.orders.iter().map(of).collect()
    }

    /// Without a directory, the certificates are read from the zone, where the previous process
    /// published them.
    fn take_over(&self) {
        for order in &self.issuer.orders {
            let Some(shown) = self.board.shown(&order.key).filter(|s| !s.chain.is_empty()) else {
                continue;
            };
            self.folder.write(&format!("{}.key", order.id), &shown.private);
            self.folder.write(&format!("{}.crt", order.id), &shown.chain);
        }
    }

    /// While another host leads: publishes the certificates and challenge responses that it writes
    /// into the directory. `who` says who orders, if it is not a host with the same directory.
    fn follow(&self, who: Option<&str>) {
        self.board.set_follows(true);
        for order in &self.issuer.orders {
            match self.folder.pair(&order.id) {
                Some(pair) => self.show(order, &pair),
                None => {
                    let state = match who {
                        Some(who) => who,
                        None if self.folder.is_locked_here() => {
                            "another process of this host orders it"
                        }
                        None => "another host of this folder orders it",
                    };
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

    /// Called when this host becomes the leader: completes what a previous process left unfinished.
    fn lead(&self) {
        self.folder.sweep();
        self.board.set_follows(false);
        self.inherited.borrow_mut().extend(self.own_answers());
        // Publish these before anything else, because a validator may be on its way.
        let begun: Vec<_> = self.inherited.borrow().values().flatten().cloned().collect();
        self.board.add_answers(begun.clone());
        let mut followed = self.followed.take().answers;
        followed.retain(|answer| !begun.contains(answer));
        self.board.remove_answers(&followed);
        self.board.show();
        for order in &self.issuer.orders {
            let settled = Progress { settings: self.settings(), ..Progress::default() };
            self.folder.finish_install(&order.id, &settled.to_text());
            match self.folder.pair(&order.id) {
                Some(pair) => {
                    self.show(order, &pair);
                    self.ask_soon(order);
                    self.tell_own(order, &self.settings());
                }
                None => {
                    let state = "it is not ordered yet";
                    self.board.change(&order.key, |s| state.clone_into(&mut s.state));
                }
            }
        }
    }

    /// Requests renewal information at the next check, because the server may have changed it while
    /// no process was running.
    fn ask_soon(&self, order: &Order) {
        let mut progress = self.progress(&order.id, &self.settings());
        if progress.check > now() {
            progress.check = 0;
            self.save(&order.id, &progress);
        }
    }

    /// Publishes a certificate and records its validity.
    fn show(&self, order: &Order, pair: &Pair) {
        let (from, until) = times(pair).unwrap_or_default();
        let mut terms = self.terms.borrow_mut();
        if terms.get(&order.id).is_none_or(|term| (term.from, term.until) != (from, until)) {
            terms.insert(order.id.clone(), Term { from, until, standing: Standing::Good });
        }
        drop(terms);
        self.board.change(&order.key, |shown| {
            shown.chain.clone_from(&pair.chain);
            shown.private.clone_from(&pair.private);
            shown.until = until;
        });
        self.board.end_stand_ins(&self.issuer.name, &self.issuer.orders);
    }

    /// Reads a state file, adjusted to the present clock and settings.
    fn progress(&self, name: &str, settings: &str) -> Progress {
        let text = self.folder.read(&format!("{name}.state")).unwrap_or_default();
        let mut progress = Progress::parse(&text);
        if progress.settings == settings {
            let was_set_back = progress.backoff.follow_clock(now());
            if progress.early.follow_clock(now()) || was_set_back {
                self.save(name, &progress);
            }
            // Further in the future than possible: the clock was ahead when it was written.
            if progress.check > now() + ARI_MAX_S.cast_signed() {
                progress.check = 0;
            }
            return progress;
        }
        // With other settings an earlier error may be solved, and an order in progress is useless.
        Progress { settings: settings.to_owned(), ..Progress::default() }
    }

    fn save(&self, name: &str, progress: &Progress) {
        self.folder.write(&format!("{name}.state"), &progress.to_text());
    }

    /// The settings on which the outcome of an attempt depends.
    fn settings(&self) -> String {
        let issuer = &self.issuer;
        let external = issuer.external.as_ref().map_or("", |(kid, _)| kid);
        let profile = issuer.profile.as_ref().map_or("", |(name, _)| name);
        let proof = issuer.proof.kind();
        let agrees = if issuer.agrees { "agreed" } else { "" };
        format!("{} {proof} {agrees} {external} {profile}", issuer.uri)
    }

    /// Processes everything that is due. Returns the seconds until the next check.
    async fn turn(&self) -> u64 {
        self.folder.flush();
        let settings = self.settings();
        let mut account = self.progress(&self.account, &settings);
        self.warn_of_ends(&account, &settings);
        let left = account.backoff.left(now());
        if left > 0 {
            self.tell_waiting(&account);
            return left.min(LOOK_S);
        }
        let mut due = Vec::new();
        let mut wait = LOOK_S;
        for order in &self.issuer.orders {
            match self.due(order, &mut self.progress(&order.id, &settings)) {
                0 => due.push(order),
                secs => wait = wait.min(secs),
            }
        }
        if due.is_empty() {
            return wait;
        }
        if let Err(trouble) = self.session().await {
            self.failed(&self.account, None, &mut account, trouble);
            return account.backoff.left(now()).clamp(1, LOOK_S);
        }
        if account.backoff.failures > 0 {
            account = Progress { settings: settings.clone(), ..Progress::default() };
            self.save(&self.account, &account);
            let m = format_args!("acme: the server of \"{}\" answers again", self.issuer.name);
            log!(self.log, Level::Notice, None, "{m}");
            self.issuer.orders.iter().for_each(|order| self.tell_own(order, &settings));
        }
        let attending = due.iter().map(|order| self.attend_due(order, &settings));
        side_by_side(attending, ORDERS).await;
        let of = |order: &&Rc<Order>| self.due(order, &mut self.progress(&order.id, &settings));
        due.iter().map(of).fold(wait, u64::min).max(1)
    }

    /// Processes an order that is due, unless the server has become unreachable in the meantime.
    async fn attend_due(&self, order: &Order, settings: &str) {
        let is_away = || self.progress(&self.account, settings).backoff.left(now()) > 0;
        if is_away() {
            return;
        }
        match self.session().await {
            Ok(session) => {
                let mut progress = self.progress(&order.id, settings);
                self.attend(&session, order, &mut progress).await;
            }
            // Concurrent orders see the same failure; count it once.
            Err(trouble) if !is_away() => {
                let mut account = self.progress(&self.account, settings);
                self.failed(&self.account, None, &mut account, trouble);
            }
            Err(_) => {}
        }
    }

    /// Logs each certificate once when its expiry is near, and once when it has expired. It is
    /// still served.
    fn warn_of_ends(&self, account: &Progress, settings: &str) {
        for order in &self.issuer.orders {
            let mut terms = self.terms.borrow_mut();
            let Some(term) = terms.get_mut(&order.id) else { continue };
            let standing = term.standing_at(now());
            if std::mem::replace(&mut term.standing, standing) == standing {
                continue;
            }
            let until = term.until;
            drop(terms);
            let (level, what) = match standing {
                Standing::Good => continue,
                Standing::EndsSoon => (Level::Warn, "ends soon"),
                Standing::Over => (Level::Error, "has expired, and is served on"),
            };
            let own = self.progress(&order.id, settings);
            let why = if account.error.is_empty() { &own.error } else { &account.error };
            let why = if why.is_empty() { "its renewal has not been tried" } else { why };
            let date = base::time::format_http_date(until);
            let date = String::from_utf8_lossy(&date);
            let m = format_args!("acme: certificate \"{}\" {what} ({date})", order.key);
            log!(self.log, level, None, "{m}: {why}");
        }
    }

    /// The seconds until an order is due; 0 if it is due now.
    fn due(&self, order: &Order, progress: &mut Progress) -> u64 {
        let backoff = progress.backoff.left(now());
        // Without a certificate, the order is due as soon as the back-off allows.
        let Some(pair) = self.folder.pair(&order.id) else { return backoff };
        let Some((from, until)) = times(&pair) else { return backoff };
        if progress.renew == 0 || progress.renew > until {
            progress.renew = moment(window_of(from, until), random()).max(1);
            self.save(&order.id, progress);
        }
        let renewal = progress.renew;
        self.board.change(&order.key, |shown| shown.renewal = renewal);
        // An order in progress is continued at once.
        let next = if progress.order.is_some() { 0 } else { renewal.min(progress.check) };
        let pause = backoff.max(progress.early.left(now()));
        u64::try_from(next.saturating_sub(now())).unwrap_or(0).max(pause)
    }

    /// A session with the server, with an account; reused while it is fresh.
    async fn session(&self) -> Result<Rc<Session>, Trouble> {
        let known = self.session.borrow().clone().filter(|session| session.is_fresh());
        if let Some(session) = known {
            return Ok(session);
        }
        let mut session = self.open().await?;
        match session.roll_over().await {
            Ok(false) => self.no_rollover.borrow_mut().clear(),
            Ok(true) => session = self.open().await?,
            // The rollover failed; the old key is still valid.
            Err(trouble) => {
                if self.no_rollover.replace(trouble.message.clone()) != trouble.message {
                    let m = format_args!("acme: the account keeps its key: {}", trouble.message);
                    log!(self.log, Level::Warn, None, "{m}, issuer: \"{}\"", self.issuer.name);
                }
            }
        }
        session.account().await?;
        let session = Rc::new(session);
        *self.session.borrow_mut() = Some(session.clone());
        Ok(session)
    }

    async fn open(&self) -> Result<Session, Trouble> {
        let session = Session::open(&self.issuer, &self.folder, &self.log).await;
        session.map_err(|trouble| trouble.during("reading the directory"))
    }

    /// Requests renewal information and processes the order, each if it is due.
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
        let stage = self.stage();
        let ordering = Ordering { stage, session, order, replaces, save: &save };
        let done = ordering.run(progress).await;
        // Of an attempt that was broken off, if this one had nothing to prove.
        withdraw(&stage, &order.id, 1).await;
        if let Some(begun) = self.inherited.borrow_mut().remove(&order.id) {
            self.board.remove_answers(&begun);
            self.folder.remove(&format!("{}.challenges", order.id));
        }
        match done {
            Ok(pair) => {
                let (settings, mut early) = (progress.settings.clone(), Backoff::default());
                if let Some(before) = self.terms.borrow().get(&order.id).filter(|t| t.is_young()) {
                    early = progress.early;
                    early.failed(now(), random(), None, false);
                    let days = (before.until - now()) / 86_400;
                    let m = format_args!("acme: certificate \"{}\" was renewed", order.key);
                    log!(self.log, Level::Notice, None, "{m} {days} days before its end");
                }
                *progress = Progress { settings, early, ..Progress::default() };
                self.folder.install(&order.id, &pair.chain, &progress.to_text());
                self.board.change(&order.key, |shown| {
                    shown.state.clear();
                    shown.failures = 0;
                });
                self.show(order, &pair);
            }
            Err(trouble) => self.failed(&order.id, Some(order), progress, trouble),
        }
    }

    /// Requests renewal information (RFC 9773): when to renew, and when to ask again.
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

    /// Records and logs a failure, and schedules the next attempt.
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

    /// Publishes the error of an order and the time of the next attempt.
    fn tell_state(&self, order: &Order, progress: &Progress) {
        let secs = progress.backoff.left(now());
        let state = format!("{}; next attempt in {secs} s", progress.error);
        let failures = progress.backoff.failures.into();
        self.board.change(&order.key, |shown| (shown.state, shown.failures) = (state, failures));
    }

    /// Publishes the state of an order itself, after an error of the account has ended.
    fn tell_own(&self, order: &Order, settings: &str) {
        let own = self.progress(&order.id, settings);
        if own.backoff.failures > 0 {
            return self.tell_state(order, &own);
        }
        self.board.change(&order.key, |shown| {
            shown.state.clear();
            shown.failures = 0;
        });
    }

    /// Publishes an error of the account with all orders.
    fn tell_waiting(&self, progress: &Progress) {
        self.issuer.orders.iter().for_each(|order| self.tell_state(order, progress));
    }
}

/// The validity of a certificate: the first and the last second, in seconds since 1970.
fn times(pair: &Pair) -> Option<(i64, i64)> {
    let chain = certificates(&pair.chain)?;
    let own = chain.first()?;
    Some((own.not_before().unix()?, own.not_after().unix()?))
}

/// The identifier of a certificate in renewal information (RFC 9773 section 4.1).
fn identifier(pair: &Pair) -> Option<String> {
    let chain = certificates(&pair.chain)?;
    let own = chain.first()?;
    Some(certificate_id(own.authority_key_id()?, own.serial()))
}

mod left;
mod stand_in;
#[cfg(test)]
pub(crate) mod tests;
