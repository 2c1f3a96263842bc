//! Where rings are forbidden, a loop that asks for one gets epoll; where a part of them is, it does
//! without that part.

use event::{Deadline, DriverKind, Loop, Options};
use mem::Chain;

/// The filter forbids io_uring_register(2) for provided buffers alone.
const REGISTER_PBUF_RING: u32 = 22;

/// Forbids this thread a system call: always, or with this second argument.
fn forbid(call: libc::c_long, second: Option<u32>) {
    const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    const IF_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
    let step = |code, k, jt, jf| libc::sock_filter { code, jt, jf, k };
    // The filter sees the call's number at 0 and the second argument at 24.
    let mut filter = vec![step(LOAD, 0, 0, 0)];
    match second {
        None => filter.push(step(IF_EQUAL, call as u32, 0, 1)),
        Some(second) => filter.extend([
            step(IF_EQUAL, call as u32, 0, 3),
            step(LOAD, 24, 0, 0),
            step(IF_EQUAL, second, 0, 1),
        ]),
    }
    filter.push(step(RETURN, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32, 0, 0));
    filter.push(step(RETURN, libc::SECCOMP_RET_ALLOW, 0, 0));
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: the kernel reads the program and its steps, which live over the calls; it holds for
    // this thread alone.
    let set = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) == 0
    };
    assert!(set, "{}", std::io::Error::last_os_error());
}

/// The driver that a loop gets on a thread where this call is forbidden.
fn driver_without(call: libc::c_long, second: Option<u32>) -> &'static str {
    let run = std::thread::spawn(move || {
        forbid(call, second);
        let options = Options { driver: DriverKind::Uring, ..Options::default() };
        let mut event_loop = Loop::new(options).expect("a loop");
        event_loop
            .block_on(async {
                let (ours, theirs) = event::testing::pair().expect("a pair");
                for _ in 0..3 {
                    let mut chain = Chain::new();
                    chain.write(b"hello");
                    ours.send(&mut chain, Deadline::in_ms(5000)).await.expect("sent");
                    let page = theirs.recv(1, Deadline::in_ms(5000)).await.expect("received");
                    assert_eq!(page.filled(), b"hello");
                }
            })
            .expect("it runs");
        event::driver_name()
    });
    run.join().expect("the thread ends well")
}

#[test]
fn without_rings_there_is_epoll() {
    assert_eq!(driver_without(libc::SYS_io_uring_setup, None), "epoll");
    assert_eq!(driver_without(libc::SYS_io_uring_register, None), "epoll");
}

#[test]
fn without_provided_buffers_there_is_a_ring() {
    if DriverKind::Uring.is_available() {
        let driver = driver_without(libc::SYS_io_uring_register, Some(REGISTER_PBUF_RING));
        assert_eq!(driver, "io_uring");
    }
}
