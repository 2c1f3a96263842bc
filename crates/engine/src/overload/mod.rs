//! Overload: a worker that runs short of a resource gives up what is worth least, before it fails.
//!
//! ```text
//!  share of the resource in use
//!  ───────────── T-10 % ──────────────── T-5 % ────────────── T ──────────▶
//!     normal      │  no connection is kept │  slow clients go │ new connections
//!                 │  longer than a second  │  first           │ are refused (503)
//! ```
//!
//! Four resources are watched: memory of the control group, descriptors, connections, and the
//! lateness of the loop. Connections that can be closed at any time (idle, or with half a request)
//! count as free. A step ends when the share is [`SLACK`] below its beginning.
//!
//! The step is a value of the worker. Engines read it where they accept a connection
//! (`Conn::is_surplus`), keep one (`Conn::is_unwanted`) or begin a request (`http::phases`). The
//! loop chooses the connections to close (`event::runtime::victims`).
//!
//! In the last step, a client (an address; with IPv6 a block of 64 bits) that holds more than its
//! share of all connections is refused while others are still accepted. These others may use half
//! of what is left beyond the limit; after that, one busy connection of such a client is closed
//! (*displaced*) for each of theirs: its wait fails, and the engine asks for the reason
//! (`Conn::is_displaced`) where it logs.
//!
//! When each resource is sampled:
//!
//! - Connections and descriptors with each accepted connection, because a burst takes them within a
//!   turn; all resources at intervals, but only while there is something to watch, so that an idle
//!   worker sleeps.
//! - Memory that requests in progress will take counts from their beginning ([`Promise`]), and
//!   between two samples the growth of buffers is added ([`os::memory::room`]): a hundred clients
//!   take more within an interval than lies between two steps. Buffers stop growing before the
//!   group's limit, so that no allocation fails there.
//!
//! Behind these steps, the allocator's reserve ([`os::memory`]) is the last resort.

mod look;
mod promise;

use std::cell::{Cell, RefCell};
use std::net::IpAddr;
use std::rc::Rc;

use base::log::Level;
use event::{Asked, Notify, Room, Standing};
use os::memory_group::{self, Group};

use look::{Look, RESOURCES, Resource};
pub use promise::Promise;

use crate::stats::{OfOverload, Stats};
use crate::told;

/// The lengths to which a worker goes for room.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Step {
    /// There is room.
    #[default]
    None,
    /// Connections are kept for [`KEPT_MS`] at most.
    Close,
    /// Slow clients are closed.
    Shed,
    /// Requests of new connections are refused.
    Refuse,
}

/// `worker_overload`: the shares, in percent, from which on new connections are refused. 0 is off.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// The memory of the control group.
    pub memory: u8,
    /// The file descriptors that the process may have.
    pub descriptors: u8,
    /// `worker_connections`.
    pub connections: u8,
    /// The share of all connections, in percent, above which a client makes way for others.
    pub client: u8,
    /// The lateness of the loop, milliseconds; 0 is off.
    pub latency_ms: u64,
    /// The seconds after which a client that was refused may try again.
    pub retry_s: u64,
}

impl Limits {
    /// Without `worker_overload`. The loop's lateness is left out: a slow disk or a busy machine
    /// may be usual somewhere.
    pub const DEFAULT: Limits = Limits {
        memory: 95,
        descriptors: 95,
        connections: 95,
        client: 10,
        latency_ms: 0,
        retry_s: 2,
    };
    /// Nothing is looked at.
    pub const OFF: Limits =
        Limits { memory: 0, descriptors: 0, connections: 0, client: 0, latency_ms: 0, retry_s: 2 };
}

/// The time for which a connection is kept in [`Step::Close`], milliseconds: each client gets a
/// turn, and a connection still has many requests.
const KEPT_MS: u64 = 1_000;

/// A client that has taken nothing for so long, milliseconds, is slow. Telephones pause for five
/// seconds.
const UNMOVED_MS: u64 = 10_000;

/// Percent by which the share has to fall until a step ends.
const SLACK: u64 = 3;

/// Intervals of looks, milliseconds: in need, or while memory is half full; and at memory
/// otherwise.
const NEED_MS: u64 = 100;
const MEMORY_MS: u64 = 250;

/// An accepted connection looks anew at memory that was found so long ago, milliseconds, where the
/// next step is due: what was freed meanwhile counts.
const FRESH_MS: u64 = 10;

/// So many percent below the limit, before the first step, free memory of the heap goes back to the
/// system: once it is this part of the worker's share, and at such intervals, milliseconds, because
/// its pages have to be filled with zeros again.
const GIVE_BACK_BELOW: u64 = 15;
const FREE_PART: u64 = 16;
const GIVE_BACK_MS: u64 = 300;

/// Percent of the control group's memory beyond the limit of the last step that buffers may take.
const BEYOND: u64 = 2;

/// Percent of the control group's memory in use from which on no response is written to a temporary
/// file, whatever the steps are: the page cache needs the rest.
const NO_CACHE: u64 = 60;

/// Looks between two sheddings: what was asked to close has closed by then.
const LOOKS: u64 = 3;

/// The most that a round of shedding grows.
const ROUNDS: u32 = 2;

/// Looks of which the least lateness counts: a single long turn is none.
const LATE_LOOKS: usize = 4;

/// After this time without shortage the episode has ended, which is logged.
const CALM_MS: u64 = 2_000;

/// A time of need, as the log tells it.
#[derive(Default)]
struct Episode {
    since_ms: u64,
    /// The last look that found need.
    last_ms: u64,
    logged: Step,
    closed: u64,
    refused: u64,
}

/// A worker's watch over its resources.
struct Watch {
    limits: Limits,
    stats: Rc<Stats>,
    group: Option<Group>,
    /// Processes that serve as this one does.
    workers: u64,
    steps: Cell<[Step; RESOURCES]>,
    episode: RefCell<Option<Episode>>,
    /// The last latenesses of the loop.
    late: Cell<[u64; LATE_LOOKS]>,
    looks: Cell<u64>,
    rounds: Cell<u32>,
    /// Half of the memory or more was in use at the last look.
    half_full: Cell<bool>,
    /// Nobody is preferred: see [`Look::is_beyond`].
    memory_is_full: Cell<bool>,
    /// Memory in use at the last look, without promises; 0 where others hold most of it.
    memory_used: Cell<u64>,
    /// Memory of this worker's heap that is free, but was not given back: promises are kept from it
    /// first.
    reusable: Cell<u64>,
    /// [`os::memory::room`] at the last look, and the time of that.
    room: Cell<i64>,
    looked_ms: Cell<u64>,
    /// When free memory of the heap was given back last.
    gave_back_ms: Cell<u64>,
    raised: Notify,
}

thread_local! {
    static STEP: Cell<Step> = const { Cell::new(Step::None) };
    static OWN: RefCell<Option<Rc<Watch>>> = const { RefCell::new(None) };
}

/// In a worker, with its loop: watches from now on.
pub fn begin(limits: Limits, stats: Rc<Stats>, workers: usize) {
    let group = (limits.memory > 0).then(Group::find).flatten();
    let watch = Rc::new(Watch {
        limits,
        stats,
        group,
        workers: workers as u64,
        steps: Cell::default(),
        episode: RefCell::default(),
        late: Cell::default(),
        looks: Cell::new(0),
        rounds: Cell::new(0),
        half_full: Cell::new(false),
        memory_is_full: Cell::new(false),
        memory_used: Cell::new(0),
        reusable: Cell::new(0),
        room: Cell::new(i64::MAX),
        looked_ms: Cell::new(0),
        gave_back_ms: Cell::new(0),
        raised: Notify::new(),
    });
    STEP.set(Step::None);
    os::memory::unset_room();
    let _ = watch.of_memory();
    OWN.set(Some(watch.clone()));
    if limits != Limits::OFF {
        event::spawn(run(watch));
    }
}

/// Looks at intervals, until another watch begins.
async fn run(watch: Rc<Watch>) {
    loop {
        let began = os::clock::monotonic_usec();
        let ms = watch.interval_ms();
        match ms {
            None => watch.raised.notified().await,
            Some(ms) => event::sleep(ms).await,
        }
        if !OWN.with_borrow(|own| own.as_ref().is_some_and(|own| Rc::ptr_eq(own, &watch))) {
            return;
        }
        let took = (os::clock::monotonic_usec() - began) / 1000;
        watch.look(ms.map(|ms| took.saturating_sub(ms)));
    }
}

/// The present step of this worker.
#[inline]
pub fn step() -> Step {
    STEP.get()
}

/// Whether a connection of that age, on the clock of [`base::time::now_ms`], is not kept.
#[inline]
pub fn ends(start_ms: u64) -> bool {
    step() >= Step::Close && base::time::now_ms().saturating_sub(start_ms) >= KEPT_MS
}

/// A connection was accepted: whether it has no room. `standing` is its client's
/// ([`event::Sock::standing`]), of whom `ip` is the address.
pub fn is_surplus(ip: Option<IpAddr>, standing: impl FnOnce(usize) -> Standing) -> bool {
    let watch = OWN.with_borrow(Clone::clone);
    let Some(watch) = watch else { return false };
    watch.look_at_room();
    step() >= Step::Refuse && !watch.prefers(ip, standing)
}

/// A connection makes room for others: whether to log that, once a minute for a client.
pub fn is_told(ip: Option<IpAddr>) -> bool {
    told::is_due(ip, "makes room")
}

/// A request, or a session, was refused for want of room: the seconds after which the client may
/// try again.
#[cold]
pub fn refused() -> u64 {
    OWN.with_borrow(|own| {
        let Some(watch) = own else { return Limits::DEFAULT.retry_s };
        watch.stats.count_overload(OfOverload::Refused, 1);
        if let Some(episode) = &mut *watch.episode.borrow_mut() {
            episode.refused += 1;
        }
        watch.limits.retry_s
    })
}

impl Watch {
    /// The time until the next look; `None`: when something is raised.
    fn interval_ms(&self) -> Option<u64> {
        let hurries = self.half_full.get() || self.limits.latency_ms > 0;
        if hurries || self.episode.borrow().is_some() {
            return Some(NEED_MS);
        }
        self.group.as_ref().map(|_| MEMORY_MS)
    }

    /// Connections and descriptors now.
    fn of_room(&self, room: Room) -> [Look; 2] {
        let look = |resource, used: usize, of: usize, limit: u8| Look {
            resource,
            used: used.saturating_sub(room.parked) as u64,
            of: of as u64,
            limit: limit.into(),
        };
        let Limits { connections, descriptors, .. } = self.limits;
        [
            look(Resource::Connections, room.connections, room.connections_max, connections),
            look(Resource::Descriptors, room.descriptors, room.descriptors_max, descriptors),
        ]
    }

    /// A connection was accepted: a step may begin, none ends.
    fn look_at_room(&self) {
        let [connections, descriptors] = self.of_room(event::room());
        for look in [Some(connections), Some(descriptors), self.estimate()].into_iter().flatten() {
            let now = self.steps.get()[look.resource as usize];
            let wanted = look.step(now);
            if wanted > now {
                self.enter(&look, wanted);
            }
        }
    }

    /// Whether a connection is accepted while others are refused: its client has less than its
    /// share, and another one has more.
    #[cold]
    fn prefers(&self, ip: Option<IpAddr>, standing: impl FnOnce(usize) -> Standing) -> bool {
        let percent = usize::from(self.limits.client);
        let is_late = self.steps.get()[Resource::Latency as usize] >= Step::Refuse;
        if percent == 0 || is_late || self.memory_is_full.get() {
            return false;
        }
        let room = event::room();
        let all = room.connections_max.min(room.descriptors_max);
        let share = (all.saturating_mul(percent) / 100).max(1);
        match standing(share) {
            Standing::Even => return false,
            Standing::Heavy(count) => {
                tell_heavy(ip, count, share);
                return false;
            }
            Standing::Light => {}
        }
        if self.of_room(room).iter().any(Look::is_beyond) {
            if !event::displace(share) {
                return false;
            }
            self.stats.count_overload(OfOverload::Displaced, 1);
        }
        self.stats.count_overload(OfOverload::Preferred, 1);
        true
    }

    /// Looks at everything; `late_ms` is by how much this comes too late.
    fn look(&self, late_ms: Option<u64>) {
        self.looks.set(self.looks.get() + 1);
        let room = event::room();
        let [connections, descriptors] = self.of_room(room);
        let all = [Some(connections), Some(descriptors), self.of_memory(), self.of_loop(late_ms)];
        for look in all.into_iter().flatten() {
            let now = self.steps.get()[look.resource as usize];
            self.enter(&look, look.step(now));
        }
        let step = |resource: Resource| self.steps.get()[resource as usize];
        match step(Resource::Memory) >= Step::Shed {
            true => self.shed_memory(),
            false => self.rounds.set(0),
        }
        match self.steps.get().iter().any(|step| *step >= Step::Shed) {
            true => self.closed(event::shed_unmoved(UNMOVED_MS)),
            false => event::forget_unmoved(),
        }
        self.end_episode();
    }

    /// The memory of the control group, where most of it is this server's: closing connections
    /// gives nothing back of what other programs hold.
    fn of_memory(&self) -> Option<Look> {
        let group = self.group.as_ref()?;
        let (mut used, limit) = (group.used()?, group.limit());
        // Buffers that the kernel may fill before the next look.
        let lent = event::room().lent as u64;
        self.half_full.set(used * 2 >= limit);
        self.looked_ms.set(base::time::now_ms());
        let mut own = memory_group::own();
        if self.gives_back(used, own) {
            event::give_back();
            (used, own) = (group.used()?, memory_group::own());
        }
        self.reusable.set(if promise::bytes() > 0 { reusable(own) } else { 0 });
        let own = own.saturating_mul(self.workers);
        let used = if own * 2 >= used { used + lent * self.workers } else { 0 };
        self.memory_used.set(used);
        // Buffers grow by the worker's part of what is left up to the first step, and of what is
        // left behind the last one.
        let percent = u64::from(self.limits.memory);
        let part = |percent: u64| (limit / 100).saturating_mul(percent) / self.workers.max(1);
        let (soft, used) = (part(percent.saturating_sub(10)), used / self.workers.max(1));
        let room = soft as i64 - used as i64;
        let behind = |percent| part(percent) as i64 - soft as i64;
        os::memory::set_room(room, behind((percent + BEYOND).min(99)), -behind(NO_CACHE));
        self.room.set(room);
        let look = self.memory_with(0)?;
        self.memory_is_full.set(look.is_beyond());
        Some(look)
    }

    /// Whether memory is about to be scarce and much of it is free within the heap: that counts as
    /// used, and a burst of clients would be felt long after its end.
    fn gives_back(&self, used: u64, own: u64) -> bool {
        let (limit, now_ms) = (self.group.as_ref().map_or(0, Group::limit), base::time::now_ms());
        let percent = u64::from(self.limits.memory).saturating_sub(GIVE_BACK_BELOW);
        if used < limit / 100 * percent || now_ms < self.gave_back_ms.get() + GIVE_BACK_MS {
            return false;
        }
        let gives = reusable(own) >= limit / FREE_PART / self.workers.max(1);
        if gives {
            self.gave_back_ms.set(now_ms);
        }
        gives
    }

    /// The memory as it was found at the last look, with what buffers took since, and with what was
    /// promised. Both are this worker's, and the other ones are taken to be alike.
    fn memory_with(&self, grown: u64) -> Option<Look> {
        let group = self.group.as_ref()?;
        let promised = promise::bytes().saturating_sub(self.reusable.get());
        let more = grown.saturating_add(promised).saturating_mul(self.workers);
        let used = match self.memory_used.get() {
            0 => 0,
            used => used.saturating_add(more),
        };
        let limit = self.limits.memory.into();
        Some(Look { resource: Resource::Memory, used, of: group.limit(), limit })
    }

    /// The same between two looks: where a step would begin, memory is looked at anew, as buffers
    /// may have been freed.
    fn estimate(&self) -> Option<Look> {
        let grown = self.room.get().saturating_sub(os::memory::room());
        let look = self.memory_with(u64::try_from(grown).unwrap_or(0))?;
        let now = self.steps.get()[Resource::Memory as usize];
        let is_fresh = base::time::now_ms() < self.looked_ms.get() + FRESH_MS;
        if look.step(now) <= now || is_fresh { Some(look) } else { self.of_memory() }
    }

    /// The percentage of the memory in use, without promises.
    fn memory_percent(&self) -> u64 {
        let limit = self.group.as_ref().map_or(u64::MAX, Group::limit);
        self.memory_used.get().saturating_mul(100) / limit.max(1)
    }

    /// The lateness of the loop: the least of the last looks.
    fn of_loop(&self, late_ms: Option<u64>) -> Option<Look> {
        let of = self.limits.latency_ms;
        let late_ms = late_ms.filter(|_| of > 0)?;
        let mut late = self.late.get();
        late.rotate_right(1);
        late[0] = late_ms;
        self.late.set(late);
        let used = late.into_iter().min()?;
        Some(Look { resource: Resource::Latency, used, of, limit: 100 })
    }

    /// The resource asks for a step.
    fn enter(&self, look: &Look, wanted: Step) {
        let mut steps = self.steps.get();
        let before = std::mem::replace(&mut steps[look.resource as usize], wanted);
        if wanted == Step::None && before == Step::None {
            return;
        }
        self.steps.set(steps);
        let step = steps.into_iter().max().unwrap_or_default();
        STEP.set(step);
        self.stats.set_overload(step as u64);
        if wanted > Step::None {
            self.note(look, wanted, wanted > before);
        }
    }

    /// Need: logs each step once an episode, and counts it each time.
    #[cold]
    fn note(&self, look: &Look, wanted: Step, is_new: bool) {
        let now_ms = base::time::now_ms();
        let logged = {
            let mut episode = self.episode.borrow_mut();
            if episode.is_none() {
                self.raised.notify_one();
            }
            let episode =
                episode.get_or_insert_with(|| Episode { since_ms: now_ms, ..Episode::default() });
            episode.last_ms = now_ms;
            let logged = wanted.max(episode.logged);
            std::mem::replace(&mut episode.logged, logged)
        };
        if !is_new {
            return;
        }
        let (level, count, action) = match wanted {
            Step::None => return,
            Step::Close => {
                (Level::Warn, OfOverload::Closes, "keeping connections for a second at most")
            }
            Step::Shed => (Level::Warn, OfOverload::Sheds, "closing slow clients"),
            Step::Refuse => (Level::Error, OfOverload::Refusals, "refusing new connections"),
        };
        self.stats.count_overload(count, 1);
        if wanted > logged {
            base::log!(base::log::default(), level, None, "{look} are in use: {action}");
        }
    }

    /// Gives memory back, and has more connections close each time: idle ones, and beyond the last
    /// step also those of clients that are slow but move. Before, new ones are refused in favour of
    /// what has begun.
    #[cold]
    fn shed_memory(&self) {
        let limit = u64::from(self.limits.memory);
        if self.memory_percent() + 5 + SLACK < limit {
            // Promises: they may be kept.
            return;
        }
        let round = self.rounds.get();
        if round > 0 && !self.looks.get().is_multiple_of(LOOKS) {
            return;
        }
        self.rounds.set((round + 1).min(ROUNDS));
        self.closed(match self.memory_percent() > limit {
            true => {
                let Asked { parked, slow } = event::shed(round);
                parked + slow
            }
            false => event::shed_parked(round),
        });
    }

    fn closed(&self, count: usize) {
        if count == 0 {
            return;
        }
        self.stats.count_overload(OfOverload::Closed, count as u64);
        if let Some(episode) = &mut *self.episode.borrow_mut() {
            episode.closed += count as u64;
        }
    }

    /// Logs the end of an episode when that is certain.
    fn end_episode(&self) {
        let now_ms = base::time::now_ms();
        let ended = self.episode.borrow_mut().take_if(|e| now_ms >= e.last_ms + CALM_MS);
        let Some(Episode { since_ms, last_ms, closed, refused, .. }) = ended else { return };
        event::forget_standings();
        let ms = last_ms - since_ms;
        base::log!(
            base::log::default(),
            Level::Warn,
            None,
            "overload is over after {ms} ms: {closed} connections were closed, {refused} refused"
        );
    }
}

/// Bytes of `own`, this worker's memory, that its heap has free.
fn reusable(own: u64) -> u64 {
    let kept = (mem::pages_kept() * mem::PAGE_SIZE) as u64;
    own.saturating_sub(os::memory::in_use() as u64) + kept
}

/// Logs that a client has too many connections, once a minute.
#[cold]
fn tell_heavy(ip: Option<IpAddr>, count: usize, share: usize) {
    if let Some(ip) = ip
        && told::is_due(Some(ip), "share")
    {
        base::log!(
            base::log::default(),
            Level::Warn,
            None,
            "client {ip} has {count} connections, its share is {share}: more are refused, and it \
             makes way for others"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A watch over a group of 100 MB, of which `used_mb` were found in use.
    fn watch_of_memory(used_mb: u64) -> Watch {
        Watch {
            limits: Limits::DEFAULT,
            stats: Rc::new(Stats::new(1).unwrap()),
            group: Some(Group::of_limit(100 << 20)),
            workers: 2,
            steps: Cell::default(),
            episode: RefCell::default(),
            late: Cell::default(),
            looks: Cell::new(0),
            rounds: Cell::new(0),
            half_full: Cell::new(true),
            memory_is_full: Cell::new(false),
            memory_used: Cell::new(used_mb << 20),
            reusable: Cell::new(0),
            room: Cell::new(i64::MAX),
            looked_ms: Cell::new(base::time::now_ms()),
            gave_back_ms: Cell::new(0),
            raised: Notify::new(),
        }
    }

    #[test]
    fn growth_and_promises_count_as_used_memory() {
        let watch = watch_of_memory(80);
        let step = || watch.memory_with(0).map(|look| look.step(Step::None));
        assert_eq!(step(), Some(Step::None));
        let promise = Promise::new(5 << 20);
        // The other worker has promised as much.
        assert_eq!(step(), Some(Step::Shed));
        watch.reusable.set(2 << 20);
        assert_eq!(step(), Some(Step::Close));
        let grown = |mb: u64| watch.memory_with(mb << 20).map(|look| look.step(Step::None));
        assert_eq!(grown(6), Some(Step::Refuse));
        drop(promise);
        assert_eq!((step(), grown(6)), (Some(Step::None), Some(Step::Shed)));
        assert_eq!(watch.memory_percent(), 80);
        // Most of the memory is others': nothing that this server does gives it back.
        watch.memory_used.set(0);
        assert_eq!(grown(90), Some(Step::None));
    }
}
