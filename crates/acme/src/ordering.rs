//! Processes one order, from the beginning or from the point at which a previous process stopped.
//!
//! ```text
//!            (recorded in the state file)
//!  nothing ──────▶ key made ─▶ requested ─▶ order URL ─▶ authorize ─▶ finalize ─▶ wait ─▶ fetch
//!                               │               ▲
//!  killed here: searches the ───┘               └── killed later: continues the same order
//!  account's list of orders
//! ```

use base::log;
use base::log::Level;
use base::time::{now_ms, unix_secs};
use pki::issue::{Key, covers};
use pki::x509::Certificate;
use proto::acme::{
    Account, Malformed, Order as Resource, OrderStatus, OrderStep, Reply, finalize, new_order,
};

use crate::account::make_key;
use crate::challenges::{self, Stage};
use crate::folder::Pair;
use crate::issuer::Order;
use crate::progress::Progress;
use crate::session::{Session, Trouble};

/// The time limit for one step of the server, in milliseconds.
const STEP_MS: u64 = 300_000;

/// The minimum and maximum polling interval if the server sends no Retry-After, in milliseconds.
const PAUSE_MS: (u64, u64) = (100, 5_000);

/// The maximum polling interval during the first `USUAL_MS`, which most orders need at most:
/// somebody may be waiting for the first certificate. Both in milliseconds.
const SOON_MS: u64 = 400;
const USUAL_MS: u64 = 20_000;

/// Polling intervals while the server works on a step.
pub(crate) struct Pause {
    until_ms: u64,
    /// The time waited so far.
    waited_ms: u64,
}

impl Pause {
    pub fn new() -> Pause {
        Pause { until_ms: now_ms() + STEP_MS, waited_ms: 0 }
    }

    /// Waits as long as the server requests, otherwise an eighth of the time waited so far (at
    /// first at most `SOON_MS`), which bounds the delay after the server has finished. Returns
    /// false if the step takes too long.
    pub async fn wait(&mut self, asked: Option<u64>) -> bool {
        if now_ms() >= self.until_ms {
            return false;
        }
        let most = if self.waited_ms < USUAL_MS { SOON_MS } else { PAUSE_MS.1 };
        let own = (self.waited_ms / 8).clamp(PAUSE_MS.0, most);
        let ms = asked.map_or(own, |secs| secs.clamp(1, 60) * 1000);
        self.waited_ms += ms;
        event::sleep(ms).await;
        true
    }
}

/// An order that this process is working on.
pub(crate) struct Ordering<'a> {
    pub stage: Stage<'a>,
    pub session: &'a Session,
    pub order: &'a Order,
    /// The identifier of the certificate to be replaced (RFC 9773).
    pub replaces: Option<String>,
    /// Stores the progress.
    pub save: &'a dyn Fn(&Progress),
}

impl Ordering<'_> {
    /// Processes the order to its end. Returns the verified chain and its private key.
    pub async fn run(&self, progress: &mut Progress) -> Result<Pair, Trouble> {
        let key = self.key().await?;
        for _ in 0..2 {
            let (url, is_old) = match &progress.order {
                Some(url) => (url.clone(), true),
                None => (self.ask(progress).await?, false),
            };
            match self.follow(&url, &key).await {
                Ok(pair) => return Ok(pair),
                Err((trouble, goes_on)) => {
                    if !goes_on {
                        self.forget(progress);
                    }
                    // The order from before has failed or was deleted by the server: start a new
                    // one.
                    if !is_old || goes_on {
                        return Err(trouble);
                    }
                }
            }
        }
        Err(Trouble::new("the order is gone"))
    }

    /// Forgets the order, because it has ended.
    fn forget(&self, progress: &mut Progress) {
        progress.order = None;
        progress.asked = false;
        (self.save)(progress);
    }

    /// The private key for the order. It is stored before the order is created, so that a restarted
    /// process can finish the order with it.
    async fn key(&self) -> Result<Key, Trouble> {
        let (folder, id) = (self.stage.folder, &self.order.id);
        if let Some(text) = folder.next_key(id)
            && let Ok(key) = Key::from_pem(&text)
            && key.kind() == self.order.kind
        {
            return Ok(key);
        }
        let key = make_key(self.order.kind).await?;
        folder.keep_next_key(id, &key.to_pem());
        Ok(key)
    }

    /// Creates an order, unless the account has one that a previous process requested. Returns its
    /// URL.
    async fn ask(&self, progress: &mut Progress) -> Result<String, Trouble> {
        let found = if progress.asked { self.search().await? } else { None };
        let url = match found {
            Some(url) => url,
            None => {
                progress.asked = true;
                (self.save)(progress);
                let reply = self.ask_new().await;
                if let Err(trouble) = &reply
                    && trouble.problem.is_some()
                {
                    // The server answered with an error, so no order was created.
                    progress.asked = false;
                    (self.save)(progress);
                }
                let reply = reply.map_err(|trouble| trouble.during("making an order"))?;
                Resource::parse(&reply.body)?;
                reply.location.ok_or(Malformed("no address of the order"))?
            }
        };
        progress.order = Some(url.clone());
        progress.asked = false;
        (self.save)(progress);
        Ok(url)
    }

    async fn ask_new(&self) -> Result<Reply, Trouble> {
        let (session, names) = (self.session, &self.order.names);
        let url = &session.directory.new_order;
        let payload = new_order(names, session.profile(), self.replaces.as_deref());
        let done = session.call(url, Some(&payload)).await;
        match &done {
            Err(Trouble { problem: Some(problem), .. })
                if self.replaces.is_some() && problem.is_bad_replaces() =>
            {
                let payload = new_order(names, session.profile(), None);
                session.call(url, Some(&payload)).await
            }
            _ => done,
        }
    }

    /// Searches the account's order list, if the server has one, for an unfinished order with these
    /// names.
    async fn search(&self) -> Result<Option<String>, Trouble> {
        let account = self.session.account().await?;
        let reply = self.session.call(&account, None).await?;
        let Some(list) = Account::parse(&reply.body)?.orders else { return Ok(None) };
        let (mut next, mut listed) = (Some(list), Vec::new());
        for _ in 0..PAGES_MAX {
            let Some(page) = next.take() else { break };
            let Ok(reply) = self.session.call(&page, None).await else { break };
            listed.extend(Account::parse_orders(&reply.body)?);
            next = reply.next;
        }
        let mut wanted: Vec<_> = self.order.names.iter().map(|name| name.value()).collect();
        wanted.sort();
        // The newest orders come last.
        for url in listed.iter().rev().take(SEARCHED_MAX) {
            let Ok(reply) = self.session.call(url, None).await else { continue };
            let Ok(mut found) = Resource::parse(&reply.body) else { continue };
            found.names.sort();
            if found.names == wanted && is_open(found.status) {
                return Ok(Some(url.clone()));
            }
        }
        Ok(None)
    }

    /// Processes the order at `url`. On an error, the flag is true if the same order can be
    /// continued later.
    async fn follow(&self, url: &str, key: &Key) -> Result<Pair, (Trouble, bool)> {
        let lasting = |trouble: Trouble| (trouble, true);
        let over = |trouble: Trouble| (trouble, false);
        let (mut pause, mut last) = (Pause::new(), None);
        loop {
            let reply = match self.session.call(url, None).await {
                Ok(reply) => reply,
                Err(trouble) => {
                    let status = trouble.problem.as_ref().map(|problem| problem.status);
                    return Err((trouble, !matches!(status, Some(403 | 404 | 410))));
                }
            };
            let order = Resource::parse(&reply.body).map_err(|e| lasting(e.into()))?;
            self.tell(&format!("the order is {}", word(order.status)));
            match order.step().map_err(|e| over(e.into()))? {
                OrderStep::Authorize(urls) => {
                    let done = challenges::answer(&self.stage, self.session, self.order, &urls);
                    done.await.map_err(lasting)?;
                }
                OrderStep::Finalize(url) => {
                    let names = &self.order.names;
                    let request = key.request(names, self.stage.issuer.common_name_in_csr);
                    let request = request.map_err(|e| over(Trouble::permanent(e.to_string())))?;
                    let payload = finalize(&request);
                    if let Err(trouble) = self.session.call(&url, Some(&payload)).await {
                        let kind = trouble.problem.as_ref().map(|problem| problem.kind.as_str());
                        let too_early = kind == Some("orderNotReady");
                        if !too_early {
                            let is_over = trouble.is_permanent;
                            return Err((trouble.during("finalizing"), !is_over));
                        }
                    }
                }
                OrderStep::Wait => {}
                OrderStep::Fetch(url) => return self.fetch(&url, key).await.map_err(over),
                OrderStep::Failed(problem) => {
                    let trouble = problem.map(Trouble::from);
                    let trouble = trouble.unwrap_or_else(|| Trouble::new("the order failed"));
                    return Err(over(trouble));
                }
            }
            // After a step the status has usually changed, so read it again at once.
            let is_new = last.replace(order.status) != Some(order.status);
            if is_new && order.status != OrderStatus::Processing {
                continue;
            }
            if !pause.wait(reply.retry_after).await {
                let m = format!("the order is still {}", word(order.status));
                return Err(lasting(Trouble::new(m)));
            }
        }
    }

    fn tell(&self, state: &str) {
        self.stage.board.change(&self.order.key, |shown| state.clone_into(&mut shown.state));
    }

    /// Downloads the chain, or the preferred one of several alternatives, and verifies it.
    async fn fetch(&self, url: &str, key: &Key) -> Result<Pair, Trouble> {
        let reply = self.session.call(url, None).await?;
        let mut chain = reply.body;
        if let Some(preferred) = &self.stage.issuer.preferred_chain
            && !is_from(&chain, preferred)
        {
            for url in &reply.alternates {
                let other = self.session.call(url, None).await?.body;
                if is_from(&other, preferred) {
                    chain = other;
                    break;
                }
            }
        }
        check(&chain, self.order)?;
        let pair = Pair { chain, private: key.to_pem() };
        pair.check().map_err(|e| Trouble::new(format!("the certificate is of no use: {e}")))?;
        let log = self.stage.log;
        let m = format_args!("acme: certificate \"{}\" issued", self.order.key);
        log!(log, Level::Notice, None, "{m}");
        self.stage.board.issued(&self.order.key);
        Ok(pair)
    }
}

/// The maximum number of pages of the order list, and of orders to inspect.
const PAGES_MAX: usize = 100;
const SEARCHED_MAX: usize = 50;

fn is_open(status: OrderStatus) -> bool {
    matches!(status, OrderStatus::Pending | OrderStatus::Ready)
}

fn word(status: OrderStatus) -> &'static str {
    match status {
        OrderStatus::Pending => "pending",
        OrderStatus::Ready => "ready",
        OrderStatus::Processing => "processing",
        OrderStatus::Valid => "valid",
        OrderStatus::Invalid => "invalid",
    }
}

/// Parses a chain: the leaf certificate first. `None` if it cannot be parsed.
pub(crate) fn certificates(chain: &[u8]) -> Option<Vec<Certificate>> {
    let chain = pki::pem::certificates(chain).ok()?;
    chain.into_iter().map(|der| Certificate::parse(der.into()).ok()).collect()
}

/// Whether the top certificate of a chain was issued by `issuer` (its common name).
fn is_from(chain: &[u8], issuer: &str) -> bool {
    let last = certificates(chain).and_then(|mut chain| chain.pop());
    last.is_some_and(|last| last.issuer().common_names().any(|name| name == issuer))
}

/// Checks that a chain covers the order's names, that each certificate is signed by the next, and
/// that it is valid now.
fn check(chain: &[u8], order: &Order) -> Result<(), Trouble> {
    let no = |why: &str| Trouble::new(format!("the certificate is of no use: {why}"));
    let chain = certificates(chain).ok_or_else(|| no("it cannot be read"))?;
    let own = chain.first().ok_or_else(|| no("there is none"))?;
    if !covers(own, &order.names) {
        return Err(no("it is for other names"));
    }
    if !chain.windows(2).all(|pair| pair[0].is_signed_by(pair[1].public_key())) {
        return Err(no("its chain is broken"));
    }
    match own.not_after().unix() {
        Some(end) if end > unix_secs().cast_signed() => Ok(()),
        _ => Err(no("it has expired")),
    }
}

#[cfg(test)]
mod tests {
    use event::sim::{self, Faults, Plan};

    use super::*;

    #[test]
    fn what_the_server_has_done_is_seen_soon() {
        let ran = sim::run(Plan::new(0, Faults::NONE), async {
            let (mut pause, began_ms) = (Pause::new(), now_ms());
            let (mut before, mut looks) = (0, 0);
            while pause.wait(None).await {
                let at = now_ms() - began_ms;
                let most = if before < USUAL_MS { 401 } else { 5_001 };
                assert!(at - before <= most.min(101 + before / 8), "{before} {at}");
                (before, looks) = (at, looks + 1);
            }
            // Nor is it asked more often than that makes necessary.
            assert!(before >= STEP_MS && looks < 130, "{looks} looks, {before} ms");
            // A pause that the server asks for is kept.
            let (mut pause, began_ms) = (Pause::new(), now_ms());
            assert!(pause.wait(Some(7)).await);
            assert!((7_000..7_100).contains(&(now_ms() - began_ms)));
        });
        ran.unwrap();
    }
}
