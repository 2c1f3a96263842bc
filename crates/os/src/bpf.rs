//! bpf(2): the few calls that steering connections needs.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

/// Commands.
const MAP_CREATE: libc::c_int = 0;
const MAP_UPDATE_ELEM: libc::c_int = 2;
const PROG_LOAD: libc::c_int = 5;

const MAP_TYPE_ARRAY: u32 = 2;
const MAP_TYPE_REUSEPORT_SOCKARRAY: u32 = 20;
const MAP_MMAPABLE: u32 = 1 << 10;

const PROG_TYPE_SK_REUSEPORT: u32 = 21;

const SO_ATTACH_REUSEPORT_EBPF: libc::c_int = 52;

/// The attributes of the command that makes a map. The rest of the kernel's union is zero.
#[repr(C)]
struct MapAttr {
    map_type: u32,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
    flags: u32,
}

/// The attributes of the command that changes an element.
#[repr(C)]
struct ElementAttr {
    map: u32,
    pad: u32,
    key: u64,
    value: u64,
    flags: u64,
}

/// The attributes of the command that loads a program.
#[repr(C)]
struct ProgramAttr {
    program_type: u32,
    count: u32,
    instructions: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
    name: [u8; 16],
}

fn call<T>(command: libc::c_int, attr: &T) -> io::Result<RawFd> {
    // SAFETY: the attributes live over the call and have the size given; the callers here keep the
    // memory they point to alive over the call as well.
    let rc = unsafe {
        libc::syscall(libc::SYS_bpf, command, std::ptr::from_ref(attr), size_of::<T>() as u32)
    };
    if rc < 0 { Err(io::Error::last_os_error()) } else { Ok(rc as RawFd) }
}

fn make_map(map_type: u32, entries: u32, flags: u32) -> io::Result<OwnedFd> {
    let attr = MapAttr { map_type, key_size: 4, value_size: 8, max_entries: entries, flags };
    let fd = call(MAP_CREATE, &attr)?;
    // SAFETY: the kernel has just made it for us.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// A map of `entries` words of 64 bits that can be mapped into memory.
pub(crate) fn array(entries: u32) -> io::Result<OwnedFd> {
    make_map(MAP_TYPE_ARRAY, entries, MAP_MMAPABLE)
}

/// A map of these listening sockets. A socket can be in one such map only.
pub(crate) fn socket_array(sockets: &[BorrowedFd<'_>]) -> io::Result<OwnedFd> {
    let map = make_map(MAP_TYPE_REUSEPORT_SOCKARRAY, sockets.len() as u32, 0)?;
    for (index, socket) in (0u32..).zip(sockets) {
        let value = socket.as_raw_fd() as u64;
        let attr = ElementAttr {
            map: map.as_raw_fd() as u32,
            pad: 0,
            key: (&raw const index).addr() as u64,
            value: (&raw const value).addr() as u64,
            flags: 0,
        };
        call(MAP_UPDATE_ELEM, &attr)?;
    }
    Ok(map)
}

/// An instruction in the kernel's layout.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    code: u8,
    /// Destination in the low half, source in the high one.
    registers: u8,
    offset: i16,
    value: i32,
}

#[cfg(test)]
impl Step {
    /// The offset of the jump, from the next step, if it is a jump.
    pub(crate) fn jump(self) -> Option<i16> {
        [0x15, 0xbd, 0xa5].contains(&self.code).then_some(self.offset)
    }
}

/// A register.
pub(crate) type Reg = u8;

/// Instructions by name, with the operation codes of the kernel's `bpf.h`.
pub(crate) mod step {
    use super::{Reg, Step};

    const fn make(code: u8, to: Reg, from: Reg, offset: i16, value: i32) -> Step {
        Step { code, registers: from << 4 | to, offset, value }
    }

    /// `to = from`
    pub(crate) const fn copy(to: Reg, from: Reg) -> Step {
        make(0xbf, to, from, 0, 0)
    }

    pub(crate) const fn set(to: Reg, value: i32) -> Step {
        make(0xb7, to, 0, 0, value)
    }

    pub(crate) const fn add(to: Reg, value: i32) -> Step {
        make(0x07, to, 0, 0, value)
    }

    pub(crate) const fn multiply(to: Reg, value: i32) -> Step {
        make(0x27, to, 0, 0, value)
    }

    pub(crate) const fn shift_right(to: Reg, bits: i32) -> Step {
        make(0x77, to, 0, 0, bits)
    }

    /// `to = *(u32 *)(from + offset)`
    pub(crate) const fn load_word(to: Reg, from: Reg, offset: i16) -> Step {
        make(0x61, to, from, offset, 0)
    }

    /// `to = *(u64 *)(from + offset)`
    pub(crate) const fn load_double(to: Reg, from: Reg, offset: i16) -> Step {
        make(0x79, to, from, offset, 0)
    }

    /// `*(u32 *)(to + offset) = from`
    pub(crate) const fn store_word(to: Reg, offset: i16, from: Reg) -> Step {
        make(0x63, to, from, offset, 0)
    }

    /// `to = map`, in two steps
    pub(crate) const fn map(to: Reg, fd: i32) -> [Step; 2] {
        const PSEUDO_MAP_FD: Reg = 1;
        [make(0x18, to, PSEUDO_MAP_FD, 0, fd), make(0, 0, 0, 0, 0)]
    }

    /// A helper of the kernel's.
    pub(crate) const fn call(helper: i32) -> Step {
        make(0x85, 0, 0, 0, helper)
    }

    /// Over `offset` steps when `a == value`
    pub(crate) const fn jump_if_equal(a: Reg, value: i32, offset: i16) -> Step {
        make(0x15, a, 0, offset, value)
    }

    /// Over `offset` steps when `a <= b`
    pub(crate) const fn jump_unless_above(a: Reg, b: Reg, offset: i16) -> Step {
        make(0xbd, a, b, offset, 0)
    }

    /// Over `offset` steps when `a < value`
    pub(crate) const fn jump_if_below(a: Reg, value: i32, offset: i16) -> Step {
        make(0xa5, a, 0, offset, value)
    }

    /// Ends the program.
    pub(crate) const fn exit() -> Step {
        make(0x95, 0, 0, 0, 0)
    }
}

/// Loads a program that chooses a socket of a `SO_REUSEPORT` group.
pub(crate) fn load_reuseport(steps: &[Step]) -> io::Result<OwnedFd> {
    let license = c"Dual MIT/GPL";
    let mut name = [0; 16];
    name[..10].copy_from_slice(b"weir_steer");
    let attr = ProgramAttr {
        program_type: PROG_TYPE_SK_REUSEPORT,
        count: steps.len() as u32,
        instructions: steps.as_ptr().addr() as u64,
        license: license.as_ptr().addr() as u64,
        log_level: 0,
        log_size: 0,
        log: 0,
        kernel_version: 0,
        flags: 0,
        name,
    };
    let fd = call(PROG_LOAD, &attr)?;
    // SAFETY: the kernel has just made it for us.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Makes a program choose among the group that `socket` belongs to; replaces another one.
pub(crate) fn attach_reuseport(socket: impl AsFd, program: &OwnedFd) -> io::Result<()> {
    let fd = program.as_raw_fd();
    // SAFETY: the kernel reads a descriptor's number, which lives over the call.
    let rc = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            SO_ATTACH_REUSEPORT_EBPF,
            (&raw const fd).cast(),
            size_of::<RawFd>() as libc::socklen_t,
        )
    };
    if rc == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
