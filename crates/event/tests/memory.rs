//! The user memory of an idle connection. Alone in its process, whose allocations it counts.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};

use event::{Deadline, DriverKind, Gate, Loop, Options, Sock, Wake};
use mem::Chain;

struct Counting;

static LIVE: AtomicUsize = AtomicUsize::new(0);
static CALLS: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call goes to the system's allocator unchanged; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    /// # Safety
    /// As the trait has it.
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.fetch_add(layout.size(), Ordering::Relaxed);
        CALLS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller upholds the contract, which is the system allocator's.
        unsafe { System.alloc(layout) }
    }

    /// # Safety
    /// As the trait has it.
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller upholds the contract, which is the system allocator's.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Connections; with the test itself just under a power of two, so that the tables' room to grow
/// is not counted.
const COUNT: usize = 253;

/// The loop's memory for a parked connection: its entry, slot with timer, and task. nginx's budget
/// of 944 bytes, and ours of 576, include the connection's own state.
const LOOP_BYTES_MAX: usize = 96 + 8;

/// With the ring: its state of each socket, and, for so many sends at once, the boxes of their
/// flights, kept for reuse; half as much again for the tables' room to grow.
const RING_BYTES_MAX: usize = 336;

async fn serve(sock: Sock, gate: Gate, served: Rc<Cell<usize>>) {
    loop {
        match sock.readable_or(&gate, Deadline::in_ms(75_000)).await {
            Ok(Wake::Ready) => (),
            _ => return,
        }
        // A keep-alive exchange as a server makes it: one recv, a chain, one send.
        let Ok(page) = sock.recv(1, Deadline::in_ms(60_000)).await else { return };
        if page.is_empty() {
            return;
        }
        let mut out = Chain::new();
        out.write(&page);
        drop(page);
        if sock.send(&mut out, Deadline::in_ms(60_000)).await.is_err() {
            return;
        }
        served.set(served.get() + 1);
    }
}

/// Bytes that are held, apart from the pages in the thread's free list: they are no connection's.
fn held() -> usize {
    const MANY: usize = 1024;
    let held = LIVE.load(Ordering::Relaxed);
    let pages: Vec<mem::Page> = (0..MANY).map(|_| mem::Page::get(0)).collect();
    let list = MANY * size_of::<mem::Page>();
    let grown = LIVE.load(Ordering::Relaxed) - held - list;
    // Pages that had to be made were not free; a page is its bytes and a box for them.
    let free = MANY - grown / (mem::PAGE_SIZE + 32);
    drop(pages);
    held - free * (mem::PAGE_SIZE + 32)
}

fn future_bytes(fd: UnixStream, gate: &Gate) -> usize {
    let served = Rc::new(Cell::new(0));
    size_of_val(&serve(Sock::from_fd(fd.into()), gate.clone(), served))
}

#[test]
fn idle_connections_are_small_and_busy_ones_allocate_nothing() {
    for driver in [DriverKind::Epoll, DriverKind::Uring] {
        println!("driver: {}", driver.name());
        let options = Options { driver, ..Options::default() };
        let mut event_loop = Loop::new(options).expect("a loop");
        let most = LOOP_BYTES_MAX + usize::from(driver == DriverKind::Uring) * RING_BYTES_MAX;
        // After a while the ring has taken back the buffers of the burst: its kernel has no more of
        // them than at first.
        let quiet_ms = if driver == DriverKind::Uring { 8_000 } else { 5 };
        event_loop.block_on(check(most, quiet_ms)).expect("the loop runs");
    }
}

async fn check(most: usize, quiet_ms: u64) {
    let gate = Gate::new();
    let served = Rc::new(Cell::new(0));
    let mut peers: Vec<UnixStream> = Vec::with_capacity(COUNT);
    let mut ours: Vec<UnixStream> = Vec::with_capacity(COUNT);
    for _ in 0..COUNT {
        let (a, b) = UnixStream::pair().expect("a pair");
        a.set_nonblocking(true).expect("nonblocking");
        ours.push(a);
        peers.push(b);
    }
    let spare = ours.pop().expect("there are some");
    let future = future_bytes(spare, &gate);
    let before = held();
    let count = ours.len();
    for fd in ours.drain(..) {
        event::spawn(serve(Sock::from_fd(fd.into()), gate.clone(), served.clone()));
    }
    for round in 0..3 {
        let calls = CALLS.load(Ordering::Relaxed);
        for peer in &mut peers[..count] {
            peer.write_all(b"GET / HTTP/1.1\r\n\r\n").expect("written");
        }
        event::testing::until(|| served.get() >= count * (round + 1)).await;
        for peer in &mut peers[..count] {
            assert_eq!(peer.read(&mut [0; 64]).expect("answered"), 18);
        }
        let calls = CALLS.load(Ordering::Relaxed) - calls;
        assert!(round == 0 || calls == 0, "{calls} allocations in round {round}");
    }
    event::sleep(quiet_ms).await;
    let each = (held() - before) / count;
    println!("an idle connection: {each} bytes, {future} of them its future");
    // Nor are queues in their free lists, and a page that the loop has at hand.
    let lists = (mem::PAGE_SIZE + 1024) / count + 8;
    assert!(each <= future + most + lists, "{each} bytes, future {future}");
    assert!(each <= 576, "{each} bytes");
}
