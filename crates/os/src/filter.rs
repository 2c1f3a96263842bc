//! Classic BPF: programs that choose a socket of a `SO_REUSEPORT` group. No privilege is needed for
//! them.
//!
//! A program has two registers, A and X, and sixteen words of memory. It sees a datagram from its
//! first byte of payload on. What it returns is the number of a socket, in the order in which the
//! group's were bound; where there is none of that number, the kernel chooses by its hash of the
//! addresses (`reuseport_select_sock`). Loading from beyond the datagram's end ends the program
//! with 0: programs compare the length first.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use crate::socket::set_int;

/// An instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    code: u32,
    /// Steps that are left out if a comparison holds, and if not.
    over: (u8, u8),
    value: u32,
}

const fn make(code: u32, value: u32) -> Step {
    Step { code, over: (0, 0), value }
}

/// The other operand of a calculation.
#[derive(Clone, Copy, Debug)]
pub enum With {
    /// A constant.
    Value(u32),
    /// Register X.
    X,
}

const fn calculate(operation: u32, with: With) -> Step {
    match with {
        With::Value(value) => make(libc::BPF_ALU | operation | libc::BPF_K, value),
        With::X => make(libc::BPF_ALU | operation | libc::BPF_X, 0),
    }
}

impl Step {
    /// `A = value`
    pub const fn set(value: u32) -> Step {
        make(libc::BPF_LD | libc::BPF_IMM, value)
    }

    /// `A = the length of the datagram`
    pub const fn length() -> Step {
        make(libc::BPF_LD | libc::BPF_W | libc::BPF_LEN, 0)
    }

    /// `A = a random number`
    pub const fn random() -> Step {
        let random = (libc::SKF_AD_OFF + libc::SKF_AD_RANDOM) as u32;
        make(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, random)
    }

    /// `A = the byte at this offset`
    pub const fn byte(at: u32) -> Step {
        make(libc::BPF_LD | libc::BPF_B | libc::BPF_ABS, at)
    }

    /// `A = the big-endian word at X + this offset`
    pub const fn word_behind_x(at: u32) -> Step {
        make(libc::BPF_LD | libc::BPF_W | libc::BPF_IND, at)
    }

    /// `X = value`
    pub const fn set_x(value: u32) -> Step {
        make(libc::BPF_LDX | libc::BPF_IMM, value)
    }

    /// `X = A`
    pub const fn to_x() -> Step {
        make(libc::BPF_MISC | libc::BPF_TAX, 0)
    }

    /// `A = memory[at]`
    pub const fn recall(at: u32) -> Step {
        make(libc::BPF_LD | libc::BPF_MEM, at)
    }

    /// `X = memory[at]`
    pub const fn recall_x(at: u32) -> Step {
        make(libc::BPF_LDX | libc::BPF_MEM, at)
    }

    /// `memory[at] = A`
    pub const fn store(at: u32) -> Step {
        make(libc::BPF_ST, at)
    }

    /// `A ^= with`
    pub const fn xor(with: With) -> Step {
        calculate(libc::BPF_XOR, with)
    }

    /// `A &= with`
    pub const fn and(with: With) -> Step {
        calculate(libc::BPF_AND, with)
    }

    /// `A *= with`
    pub const fn multiply(with: With) -> Step {
        calculate(libc::BPF_MUL, with)
    }

    /// `A %= value`, which is not 0.
    pub const fn modulo(value: u32) -> Step {
        calculate(libc::BPF_MOD, With::Value(value))
    }

    /// `A >>= bits`
    pub const fn shift_right(bits: u32) -> Step {
        calculate(libc::BPF_RSH, With::Value(bits))
    }

    /// Over so many steps if `A == value`, over so many if not.
    pub const fn if_equal(value: u32, then: u8, otherwise: u8) -> Step {
        let over = (then, otherwise);
        Step { code: libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, over, value }
    }

    /// Over so many steps if `A >= value`, over so many if not.
    pub const fn if_at_least(value: u32, then: u8, otherwise: u8) -> Step {
        let over = (then, otherwise);
        Step { code: libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K, over, value }
    }

    /// Over so many steps if `A & value != 0`, over so many if not.
    pub const fn if_any_of(value: u32, then: u8, otherwise: u8) -> Step {
        let over = (then, otherwise);
        Step { code: libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K, over, value }
    }

    /// Over so many steps.
    pub const fn jump(over: u32) -> Step {
        make(libc::BPF_JMP | libc::BPF_JA, over)
    }

    /// Ends the program with A.
    pub const fn give() -> Step {
        make(libc::BPF_RET | libc::BPF_A, 0)
    }
}

/// Has a program choose the socket of each connection or datagram of the group that `fd` belongs
/// to; replaces another one.
///
/// # Errors
/// The kernel refuses the program, or the socket was not bound with `SO_REUSEPORT`.
pub fn attach_reuseport(fd: impl AsFd, steps: &[Step]) -> io::Result<()> {
    let mut filter: Vec<_> = steps
        .iter()
        .map(|step| libc::sock_filter {
            code: step.code as u16,
            jt: step.over.0,
            jf: step.over.1,
            k: step.value,
        })
        .collect();
    let len = libc::c_ushort::try_from(filter.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    let program = libc::sock_fprog { len, filter: filter.as_mut_ptr() };
    // SAFETY: the kernel reads the program and the `len` steps it points to, which live over the
    // call.
    let rc = unsafe {
        libc::setsockopt(
            fd.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_REUSEPORT_CBPF,
            (&raw const program).cast(),
            size_of::<libc::sock_fprog>() as libc::socklen_t,
        )
    };
    if rc == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Takes the program of a group away, if there is one; whether there was.
///
/// # Errors
/// The system's.
pub fn detach_reuseport(fd: impl AsFd) -> io::Result<bool> {
    match set_int(fd, libc::SOL_SOCKET, libc::SO_DETACH_REUSEPORT_BPF, 0) {
        Ok(()) => Ok(true),
        Err(e) if e.raw_os_error() == Some(libc::ENOENT) => Ok(false),
        Err(e) => Err(e),
    }
}
